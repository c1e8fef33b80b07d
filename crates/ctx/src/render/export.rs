//! A conversation as a file: JSON lines in a form that stays (`docs/export.md`), or Markdown to read.

use std::io::Write;

use ctx_api::model::in_api;
use ctx_session::conversation::{Message, Part, Role};
use ctx_session::record::{Caller, ForkedFrom};
use ctx_session::{Code, IssueId, Name, RunId, Scope, SessionId, StateName, Timestamp, Ulid};
use serde::Serialize;

use super::markdown::left_open;
use super::{Said, Transcript, Wanted};
use crate::failure::Failure;
use crate::{output, words};

/// Goes up when a field changes its meaning or goes; new fields may come at any time.
const VERSION: u32 = 1;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Session(Box<SessionLine<'a>>),
    Message(MessageLine<'a>),
}

#[derive(Serialize)]
struct SessionLine<'a> {
    version: u32,
    id: SessionId,
    name: &'a Name,
    title: Option<&'a str>,
    agent: Option<&'a Name>,
    project: &'a Name,
    scope: Scope,
    space: Option<&'a Name>,
    owner: u32,
    model: String,
    cwd: &'a str,
    state: StateName,
    archived: bool,
    bound_issue: Option<IssueId>,
    forked_from: Option<ForkedFrom>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Serialize)]
struct MessageLine<'a> {
    seq: u64,
    id: Ulid,
    run: RunId,
    role: Role,
    time: Timestamp,
    superseded: bool,
    content: &'a [Part],
    /// The subagent whose conversation it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a Caller>,
}

pub fn jsonl(transcript: &Transcript<'_>, out: &mut impl Write) -> Result<(), Failure> {
    put(out, &Line::Session(Box::new(session_line(transcript))))?;
    for said in transcript.whole(Wanted::All)? {
        let said = said?;
        let superseded = said.superseded();
        let message = said.message;
        let Message { seq, id, run, role, time, ref content, ref caller } = message;
        let caller = caller.as_ref();
        put(out, &Line::Message(MessageLine { seq, id, run, role, time, superseded, content, caller }))?;
    }
    Ok(())
}

fn put(out: &mut impl Write, line: &Line<'_>) -> Result<(), Failure> {
    let text = serde_json::to_string(line).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
    writeln!(out, "{text}")?;
    Ok(())
}

fn session_line<'a>(transcript: &'a Transcript<'_>) -> SessionLine<'a> {
    let summary = &transcript.summary;
    let meta = &summary.meta;
    SessionLine {
        version: VERSION,
        id: meta.id,
        name: &meta.name,
        title: meta.title.as_deref(),
        agent: meta.agent.as_ref(),
        project: &meta.project,
        scope: meta.scope,
        space: meta.space.as_ref(),
        owner: meta.owner,
        model: in_api(&meta.model),
        cwd: &summary.cwd,
        state: meta.state,
        archived: meta.archived,
        bound_issue: meta.bound_issue,
        forked_from: meta.forked_from,
        created_at: summary.created_at,
        updated_at: summary.updated_at,
    }
}

pub fn markdown(transcript: &Transcript<'_>, wanted: Wanted, out: &mut impl Write) -> Result<(), Failure> {
    let summary = &transcript.summary;
    let meta = &summary.meta;
    writeln!(out, "# {}\n", output::one_line(&transcript.heading()))?;
    writeln!(out, "- session: `{}` (`{}`)", transcript.name(), meta.id)?;
    writeln!(out, "- model: `{}`", in_api(&meta.model))?;
    writeln!(out, "- directory: `{}`", output::one_line(&summary.cwd))?;
    writeln!(out, "- state: {}{}", meta.state, if meta.archived { ", archived" } else { "" })?;
    writeln!(out, "- begun: {}", words::date_time(summary.created_at))?;
    writeln!(out, "- last change: {}", words::date_time(summary.updated_at))?;
    if let Some(issue) = meta.bound_issue {
        writeln!(out, "- works on issue: `{issue}`")?;
    }
    if let Some(from) = meta.forked_from {
        writeln!(out, "- forked from: `{}` at record {}", from.session_id, from.seq)?;
    }
    let messages = transcript.whole(wanted)?;
    if let Some(hidden) = messages.superseded().filter(|_| wanted == Wanted::Counting) {
        writeln!(out, "- not shown: {hidden} (`ctx export --all` has them)")?;
    }
    for said in messages {
        let said = said?;
        for part in &said.message.content {
            writeln!(out)?;
            put_part(&said, part, out)?;
        }
    }
    Ok(())
}

fn put_part(said: &Said, part: &Part, out: &mut impl Write) -> Result<(), Failure> {
    let gone = said.removed.map_or_else(String::new, |by| format!(", {by}"));
    let who = match said.message.role {
        Role::User => "User",
        Role::Assistant => "Assistant",
        Role::Subagent => "Subagent",
        Role::System => "System",
        Role::Tool => "Tool",
    };
    match part {
        Part::Text { text } => {
            writeln!(out, "## {who}\n\n*{}{gone}*\n", words::date_time(said.message.time))?;
            let text = text.trim_end_matches('\n');
            writeln!(out, "{text}")?;
            // What a message leaves open would take in all that follows.
            if let Some(closing) = left_open(text) {
                writeln!(out, "{closing}")?;
            }
            Ok(())
        }
        Part::Image(image) => Ok(writeln!(out, "*{}*", image.in_words())?),
        Part::ToolCall { name, input, .. } => {
            let input = serde_json::to_string_pretty(input).unwrap_or_default();
            writeln!(out, "**Tool call** `{}`{gone}\n", output::one_line(name))?;
            fenced("json", &input, out)
        }
        Part::ToolResult { status, text, .. } => {
            writeln!(out, "**Tool result** ({status}){gone}\n")?;
            fenced("text", text, out)
        }
    }
}

/// A code block whose fence is longer than any in the text.
fn fenced(language: &str, text: &str, out: &mut impl Write) -> Result<(), Failure> {
    let ticks = |line: &str| line.trim_start().chars().take_while(|c| *c == '`').count();
    let longest = text.lines().map(ticks).max().unwrap_or(0).max(2);
    let fence = "`".repeat(longest + 1);
    writeln!(out, "{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))?;
    Ok(())
}
