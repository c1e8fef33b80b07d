//! A conversation for a person at a terminal: who spoke and when, Markdown laid out, tool output folded.

use std::io::{self, Write};

use ctx_api::model::in_tree;
use ctx_session::conversation::{Part, Role};
use ctx_session::record::ToolStatus;

use super::markdown::render;
use super::{Said, Transcript, Wanted};
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::words;

/// Lines of a tool's output that are shown of a longer one.
const FOLDED_LINES: usize = 6;
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
    facts.extend([in_tree(&meta.model), output::one_line(&summary.cwd), meta.id.to_string()]);
    writeln!(out, "{}", paint.dim(&facts.join(" · ")))?;
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
pub fn who_and_when(said: &Said, paint: Paint) -> String {
    let role = said.message.role.as_str();
    let who = match said.message.role {
        Role::User => paint.cyan(role),
        Role::Assistant | Role::Subagent => paint.green(role),
        Role::System => paint.yellow(role),
        Role::Tool => paint.dim(role),
    };
    let gone = said.removed.map_or_else(String::new, |by| paint.dim(&format!(" ({by})")));
    format!("{who} {}{gone}", paint.dim(&words::date_time(said.message.time)))
}

fn message(said: &Said, look: Look, out: &mut impl Write) -> io::Result<()> {
    let (message, paint) = (&said.message, look.paint);
    // Calls and results say by themselves who they are of.
    if message.content.iter().any(|part| matches!(part, Part::Text { .. })) {
        writeln!(out, "{}", who_and_when(said, paint))?;
    }
    for part in &message.content {
        show_part(part, said.superseded(), look, out)?;
    }
    writeln!(out)
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
    let mut lines = text.lines();
    let shown = if look.full { usize::MAX } else { FOLDED_LINES };
    for line in lines.by_ref().take(shown) {
        let line = if look.full { line.to_owned() } else { words::shorten(line, FOLDED_LINE_CHARS) };
        writeln!(out, "    {}", look.paint.dim(&line))?;
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
