//! A conversation for a person at a terminal: who spoke and when, Markdown laid out, tool output folded.

use std::io::{self, Write};

use ctx_api::model::in_api;
use ctx_session::conversation::{Part, Role};
use ctx_session::record::{CancelReason, ToolStatus, Usage};
use ctx_views::read::Ended;

use super::diff;
use super::markdown::render;
use super::{Said, Transcript, Wanted};
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::words::{self, Clock};

/// Lines of a tool's output that are shown of a longer one.
const FOLDED_LINES: usize = 6;
/// The same of a diff.
const DIFF_LINES: usize = 60;
/// Characters of a line of it.
const FOLDED_LINE_CHARS: usize = 160;
/// Characters of a tool's input on its line.
const INPUT_CHARS: usize = 200;

/// How it is to look.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub paint: Paint,
    /// None: nobody's screen; text is left as it is.
    pub width: Option<usize>,
    /// Nothing is folded or left out.
    pub full: bool,
    /// The project's file has changed since.
    pub stale: bool,
    pub clock: Clock,
    /// What its model calls have cost.
    pub usage: Usage,
}

pub fn show(transcript: &Transcript<'_>, look: Look, out: &mut impl Write) -> Result<(), Failure> {
    head(transcript, look, out)?;
    if look.full {
        for said in transcript.whole(Wanted::All)? {
            message(&said?, look, out)?;
        }
        return Ok(());
    }
    let counting = transcript.messages(Wanted::Counting)?;
    if let Some(hidden) = counting.superseded() {
        writeln!(out, "{}\n", look.paint.dim(&format!("not shown: {hidden}; --full shows them")))?;
    }
    for said in counting {
        message(&said?, look, out)?;
    }
    Ok(())
}

fn head(transcript: &Transcript<'_>, look: Look, out: &mut impl Write) -> io::Result<()> {
    let (summary, paint) = (&transcript.summary, look.paint);
    let meta = &summary.meta;
    writeln!(out, "{}", paint.bold(&output::one_line(&transcript.heading())))?;
    // Without a title the name stands above already.
    let name = meta.title.is_some().then(|| transcript.name());
    let mut facts: Vec<String> = name.into_iter().chain([meta.state.to_string()]).collect();
    if meta.archived {
        facts.push("archived".to_owned());
    }
    if look.stale {
        facts.push("stale".to_owned());
    }
    facts.extend([in_api(&meta.model), output::one_line(&summary.cwd), meta.id.to_string()]);
    writeln!(out, "{}", paint.dim(&facts.join(" · ")))?;
    if look.usage != Usage::default() {
        writeln!(out, "{}", paint.dim(&words::cost(look.usage)))?;
    }
    if let Some(from) = meta.forked_from {
        writeln!(out, "{}", paint.dim(&format!("forked from {} at record {}", from.session_id, from.seq)))?;
    }
    if let Some(issue) = meta.bound_issue {
        writeln!(out, "{}", paint.dim(&format!("works on issue {issue}")))?;
    }
    if look.stale {
        let message = "the project file has changed; `ctx restart` uses the new one";
        writeln!(out, "{}", paint.dim(message))?;
    }
    writeln!(out)
}

/// The line above a message: its role, its time, and what removed it from context.
pub fn who_and_when(said: &Said, clock: Clock, paint: Paint) -> String {
    let caller = said.message.caller.as_ref().map(|caller| format!(" {}", output::one_line(&caller.name)));
    let role = format!("{}{}", said.message.role, caller.unwrap_or_default());
    let who = match said.message.role {
        Role::User => paint.cyan(&role),
        Role::Assistant | Role::Subagent => paint.green(&role),
        Role::System => paint.yellow(&role),
        Role::Tool => paint.dim(&role),
    };
    let gone = said.removed.map_or_else(String::new, |by| paint.dim(&format!(" ({by})")));
    format!("{who} {}{gone}", paint.dim(&clock.show(said.message.time)))
}

fn message(said: &Said, look: Look, out: &mut impl Write) -> io::Result<()> {
    let (message, paint) = (&said.message, look.paint);
    // Calls and results say by themselves who they are of.
    if message.content.iter().any(|part| matches!(part, Part::Text { .. })) {
        writeln!(out, "{}", who_and_when(said, look.clock, paint))?;
    }
    for part in &message.content {
        match part {
            // What a person typed is shown as typed; only models write Markdown.
            Part::Text { text } if message.role == Role::User && !said.superseded() => {
                writeln!(out, "{}", output::plain(text).trim_end_matches('\n'))?;
            }
            part => {
                // A subagent's calls and results stand further in, with its name.
                if let (Some(caller), Part::ToolCall { .. } | Part::ToolResult { .. }) =
                    (&message.caller, part)
                {
                    write!(out, "  {}", paint.dim(&output::one_line(&caller.name)))?;
                }
                show_part(part, said.superseded(), look, out)?;
            }
        }
    }
    if let Some(ended) = &said.ended {
        writeln!(out, "{}", how_it_ended(ended, paint))?;
    }
    writeln!(out)
}

/// The line below the last message of a run that did not come to its end.
pub fn how_it_ended(ended: &Ended, paint: Paint) -> String {
    match ended {
        Ended::Failed { code, reason, message } => {
            paint.red(&output::one_line(&format!("[failed: {reason} ({code}): {message}]")))
        }
        Ended::Cancelled(reason) => paint.yellow(match reason {
            CancelReason::Operator => "[cancelled by the operator]",
            CancelReason::SessionEnded => "[cancelled: the session was ended]",
            CancelReason::QueuedDiscarded => "[cancelled: discarded from the queue]",
            CancelReason::Disconnected => "[cancelled: the client disconnected]",
            CancelReason::RolledBack => "[cancelled by a rollback]",
        }),
    }
}

fn show_part(part: &Part, superseded: bool, look: Look, out: &mut impl Write) -> io::Result<()> {
    let paint = look.paint;
    match part {
        // A removed message is dimmed as a whole, so that it is not mistaken for a part of the conversation.
        Part::Text { text } if superseded => {
            for line in output::plain(text).lines() {
                writeln!(out, "{}", paint.dim(line))?;
            }
            Ok(())
        }
        Part::Text { text } => {
            let text = output::plain(text);
            match look.width {
                Some(width) => out.write_all(render(&text, width, paint).as_bytes()),
                None => writeln!(out, "{}", text.trim_end_matches('\n')),
            }
        }
        Part::Image(image) => writeln!(out, "{}", paint.dim(&output::one_line(&image.in_words()))),
        Part::ToolCall { name, input, .. } => {
            let input = output::plain(&input.to_string());
            let input = if look.full { input } else { words::shorten(&input, INPUT_CHARS) };
            let name = paint.bold(&output::plain(name));
            writeln!(out, "  {} {name} {}", paint.yellow("→"), paint.dim(&input))
        }
        Part::ToolResult { status, text, .. } => {
            let status = match status {
                ToolStatus::Ok => paint.green("ok"),
                ToolStatus::Error => paint.red("error"),
                ToolStatus::Interrupted => paint.yellow("interrupted"),
                ToolStatus::Skipped => paint.yellow("skipped"),
            };
            writeln!(out, "  {} {status}", paint.yellow("←"))?;
            tool_output(&output::plain(text), look, out)
        }
    }
}

/// Whether an output ends with the note that there is more of it.
fn is_cut(text: &str) -> bool {
    text.lines().next_back().is_some_and(|line| line.starts_with("[output cut") && line.ends_with(']'))
}

fn tool_output(text: &str, look: Look, out: &mut impl Write) -> io::Result<()> {
    let diff = diff::begins_at(text);
    let folded = if diff.is_some() { DIFF_LINES } else { FOLDED_LINES };
    let shown = if look.full { usize::MAX } else { folded };
    let mut lines = text.lines();
    for (at, line) in lines.by_ref().take(shown).enumerate() {
        let line = if look.full { line.to_owned() } else { words::shorten(line, FOLDED_LINE_CHARS) };
        let line = match diff {
            Some(begin) if at >= begin => diff::line(&line, look.paint),
            Some(_) | None => look.paint.dim(&line),
        };
        writeln!(out, "    {line}")?;
    }
    let more = lines.count();
    if more == 0 {
        return Ok(());
    }
    let what = if more == 1 { "line" } else { "lines" };
    // Of output that was too long for the model, the beginning alone is counted here.
    let rest = if is_cut(text) { " of what the model read" } else { "" };
    writeln!(out, "    {}", look.paint.dim(&format!("… {more} more {what}{rest}; --full shows them")))
}
