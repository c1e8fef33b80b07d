//! What the chat shows: messages, text as it comes, tools, and what became of a run. Each is shown once, whether it
//! came as a frame or was read as something of the past. Writes, and decides nothing.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use ctx_api::http::{Message, MessagePart, Role, Run};
use serde_json::Value;

use ctx_session::image::Image;
use ctx_session::record::{COMPACTION_PENDING, Usage};

use super::known::{Item, Known};
use crate::client::LiveFrame;
use crate::output::{self, Paint};
use crate::{waits, words};

/// Longest piece of a tool's input or output that is shown.
const TOOL_CHARS: usize = 160;
pub struct View<W> {
    out: W,
    paint: Paint,
    /// Kept from escape sequences of others.
    on_terminal: bool,
    at_line_start: bool,
    /// The screen ends with a piece of the model's reasoning.
    in_reasoning: bool,
    /// The message whose text ends the screen.
    open: Option<String>,
    known: Known,
    /// Client ids of what was typed here: the terminal has shown it.
    own: HashSet<String>,
    /// What was shown of messages that are not finished.
    partial: HashMap<String, String>,
    /// How commands name the session.
    pub named: String,
    /// The last message that was shown, or a call; what came after it is new.
    pub last: Option<String>,
    /// The run of what was shown last.
    pub run: Option<String>,
    /// Approvals and pauses are answered by what is typed here.
    pub answers_here: bool,
    /// The terminal has shown what was typed.
    pub typed_is_shown: bool,
}

fn text<'a>(payload: &'a Value, field: &str) -> &'a str {
    payload.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The subagent that a frame is of.
fn caller_of(payload: &Value) -> Option<&str> {
    payload.get("caller")?.get("name")?.as_str()
}

impl<W: Write> View<W> {
    pub fn new(out: W, paint: Paint, on_terminal: bool) -> View<W> {
        View {
            out,
            paint,
            on_terminal,
            at_line_start: true,
            in_reasoning: false,
            open: None,
            known: Known::default(),
            own: HashSet::new(),
            partial: HashMap::new(),
            named: String::new(),
            last: None,
            run: None,
            answers_here: false,
            typed_is_shown: true,
        }
    }

    /// Where it is written to.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Another session: what was shown before is no part of it.
    pub fn begin(&mut self) {
        self.known = Known::default();
        (self.open, self.last, self.run) = (None, None, None);
        self.partial.clear();
        self.own.clear();
    }

    /// A line as it is, of a command.
    pub fn line(&mut self, line: &str) -> std::io::Result<()> {
        self.end_line()?;
        writeln!(self.out, "{}", output::plain(line))?;
        self.out.flush()
    }

    /// What was typed here will come back with this client id.
    pub fn typed(&mut self, client_id: &str) {
        self.at_line_start = true;
        self.open = None;
        self.own.insert(client_id.to_owned());
    }

    /// A key was pressed that the terminal shows as `^C`.
    pub fn keyed(&mut self) {
        self.at_line_start = false;
    }

    /// A message of the past.
    pub fn message(&mut self, message: &Message) -> std::io::Result<()> {
        let id = message.id.to_string();
        if message.metadata.damage.is_none() {
            self.run = Some(message.run_id.to_string());
        }
        match message.role {
            Role::User => {
                let client_id = message.metadata.client_id.as_deref();
                let text = with_images(&message.content, &message.parts);
                self.said_by_user(&id, client_id.unwrap_or_default(), &text)
            }
            Role::System => self.system(&id, &message.content),
            Role::Subagent if message.parts.is_empty() => {
                let caller = message.metadata.caller.as_ref().map(|caller| caller.name.as_str());
                self.said_by_subagent(&id, caller.unwrap_or_default(), &message.content)
            }
            Role::Assistant | Role::Subagent | Role::Tool => {
                if message.parts.is_empty() {
                    return self.finished(&id, &message.content);
                }
                let caller = message.metadata.caller.as_ref().map(|caller| caller.name.as_str());
                message.parts.iter().try_for_each(|part| match part {
                    MessagePart::Text { text } => self.finished(&id, text),
                    MessagePart::Image { .. } => Ok(()),
                    MessagePart::ToolCall { name, input, .. } => {
                        self.called(&id, caller, name, &input.to_string())
                    }
                    MessagePart::ToolResult { status, text, .. } => {
                        self.result(&id, caller, (status.as_str(), text), message.metadata.diff.as_deref())
                    }
                })
            }
        }
    }

    /// Goes on from this message of that run without showing either.
    pub fn passed(&mut self, message: &Message, run: &Run) {
        self.run = Some(run.id.to_string());
        self.remember(&message.id.to_string());
        if run.completed_at.is_some() {
            self.known.add(Item::RunEnd(run.id.to_string()));
        }
    }

    /// How a run of the past ended, where that is not with its answer.
    pub fn ended(&mut self, run: &Run) -> std::io::Result<()> {
        let id = run.id.to_string();
        match (run.state.as_str(), &run.error) {
            ("failed", Some(error)) => self.failed(&id, &error.message, error.code.name()),
            ("cancelled", _) => self.cancelled(&id),
            _ => Ok(()),
        }
    }

    /// A frame of the present; not those of `control`.
    pub fn frame(&mut self, frame: &LiveFrame) -> std::io::Result<()> {
        let payload = &frame.payload;
        let (id, call, run) = (text(payload, "id"), text(payload, "call_id"), text(payload, "run_id"));
        if !run.is_empty() {
            self.run = Some(run.to_owned());
        }
        match frame.kind.as_str() {
            // What a subagent says comes whole; several may speak at once.
            "delta" | "reasoning_delta" if payload.get("caller").is_some() => Ok(()),
            "reasoning_delta" => self.reasoning(text(payload, "text")),
            "delta" => self.delta(text(payload, "message_id"), text(payload, "text")),
            "message" if text(payload, "role") == "user" => {
                let parts = payload.get("parts").cloned().unwrap_or_default();
                let parts: Vec<MessagePart> = serde_json::from_value(parts).unwrap_or_default();
                let said = with_images(text(payload, "content"), &parts);
                self.said_by_user(id, text(payload, "client_id"), &said)
            }
            "message" if text(payload, "role") == "system" => self.system(id, text(payload, "content")),
            "message" if text(payload, "role") == "subagent" => {
                self.said_by_subagent(id, caller_of(payload).unwrap_or_default(), text(payload, "content"))
            }
            "message" => {
                self.finished(id, text(payload, "content"))?;
                match text(payload, "finish_reason") {
                    "length" => self.notice(words::AT_OUTPUT_LIMIT),
                    _ => Ok(()),
                }
            }
            "tool_started" => {
                let input = payload.get("input").map(Value::to_string).unwrap_or_default();
                self.called(call, caller_of(payload), text(payload, "name"), &input)
            }
            "tool_finished" => {
                let diff = payload.get("diff").and_then(Value::as_str);
                self.result(
                    call,
                    caller_of(payload),
                    (text(payload, "status"), text(payload, "output")),
                    diff,
                )
            }
            "run.completed" if text(payload, "state") == "failed" => {
                self.ring()?;
                let error = payload.get("error").cloned().unwrap_or_default();
                self.failed(run, text(&error, "message"), text(&error, "code"))
            }
            "run.completed" => self.cost(payload),
            "run.cancelled" => self.cancelled(run),
            kind => self.event(kind, payload),
        }
    }

    /// What a run that is over has cost, where that is known: a line below its answer.
    fn cost(&mut self, payload: &Value) -> std::io::Result<()> {
        let usage = payload.get("tokens").cloned().and_then(|usage| serde_json::from_value(usage).ok());
        match usage.filter(|usage: &Usage| usage.cost_nano_usd > 0) {
            Some(usage) => self.aside(&words::cost(usage)),
            None => Ok(()),
        }
    }

    /// What was done with the session, and what it waits for.
    fn event(&mut self, kind: &str, payload: &Value) -> std::io::Result<()> {
        match kind {
            "session.queued" => {
                let limit =
                    payload.get("limit").cloned().and_then(|limit| serde_json::from_value(limit).ok());
                self.notice(&waits::queued(&self.named, limit))
            }
            "session.queued_discarded" => self.notice("the queued message was discarded"),
            "session.renamed" => self.notice(&format!("the title is now {}", text(payload, "title"))),
            "session.failed" => {
                let failure = payload.get("failure").cloned().unwrap_or_default();
                let (message, code) = (text(&failure, "message"), text(&failure, "code"));
                self.notice(&format!("the session failed: {message} ({code})"))
            }
            "checkpoint.created" => {
                let reason = payload.get("reason").and_then(Value::as_str);
                self.paused(text(payload, "checkpoint_id"), reason)
            }
            "checkpoint.resumed" => self.notice("resumed"),
            "checkpoint.rolled_back" => {
                self.notice("rolled back: later messages were removed from context by a rollback")
            }
            "compaction.applied" => {
                let count = |name: &str| payload.get(name).and_then(Value::as_array).map_or(0, Vec::len);
                match count("superseded_message_ids") + count("elided_call_ids") {
                    0 => self.notice("there was nothing to compact"),
                    _ => self.notice("compacted: the model gets a shorter conversation"),
                }
            }
            "compaction.approved" => self.notice("the compaction was approved"),
            "compaction.rejected" => self.notice("the compaction was rejected"),
            "approval.requested" => {
                let part = |name: &str| payload.get(name).and_then(Value::as_str);
                self.asks(text(payload, "approval_id"), text(payload, "tool"), part("subject"), part("diff"))
            }
            "subagent.spawned" => self.aside(&format!("▸ {} begins", text(payload, "name"))),
            "subagent.exited" => match payload.get("message").and_then(Value::as_str) {
                Some(why) => self.notice(why),
                None => self.aside(&format!("▸ {} {}", text(payload, "name"), text(payload, "state"))),
            },
            "run.retrying" => {
                let number = |name: &str| payload.get(name).and_then(Value::as_u64).unwrap_or_default();
                let count = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
                let (attempt, max) = (count("attempt"), count("attempts_max"));
                self.notice(&waits::retrying(text(payload, "message"), attempt, max, number("wait_ms")))
            }
            "run.noticed" => self.notice(text(payload, "message")),
            "approval.settled" => self.notice(&format!("answered: {}", text(payload, "outcome"))),
            _ => Ok(()),
        }
    }

    /// It is paused at this checkpoint.
    pub fn paused(&mut self, checkpoint: &str, reason: Option<&str>) -> std::io::Result<()> {
        if !self.known.add(Item::Waits(checkpoint.to_owned())) {
            return Ok(());
        }
        let asks = reason.filter(|_| self.answers_here && reason != Some(COMPACTION_PENDING));
        match asks {
            Some(reason) => self.call_for(&waits::paused_here(reason)),
            None => self.call_for(&waits::paused(&self.named, reason)),
        }
    }

    /// A call waits for an answer.
    pub fn asks(
        &mut self,
        approval: &str,
        tool: &str,
        subject: Option<&str>,
        diff: Option<&str>,
    ) -> std::io::Result<()> {
        if !self.known.add(Item::Waits(approval.to_owned())) {
            return Ok(());
        }
        self.diff(diff)?;
        match self.answers_here {
            true => self.call_for(&waits::asks_here(tool, subject)),
            false => self.notice(&waits::asks(&self.named, approval, tool, subject)),
        }
    }

    /// The question is shown again when it is asked again.
    pub fn forget_question(&mut self, approval: &str) {
        self.known.remove(&Item::Waits(approval.to_owned()));
    }

    /// A line that wants the person.
    fn call_for(&mut self, line: &str) -> std::io::Result<()> {
        self.ring()?;
        self.notice(line)
    }

    /// The bell, on a terminal.
    fn ring(&mut self) -> std::io::Result<()> {
        self.end_line()?;
        match self.on_terminal && self.answers_here {
            true => self.out.write_all(b"\x07"),
            false => Ok(()),
        }
    }

    /// A line of ours.
    pub fn notice(&mut self, line: &str) -> std::io::Result<()> {
        self.end_line()?;
        let line = self.paint.yellow(&format!("[{}]", output::plain(line)));
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    /// Nothing more is shown.
    pub fn finish(&mut self) -> std::io::Result<()> {
        self.end_line()?;
        self.out.flush()
    }

    /// Whether the message is new.
    fn remember(&mut self, id: &str) -> bool {
        let is_new = self.known.add(Item::Message(id.to_owned()));
        if is_new {
            self.last = Some(id.to_owned());
        }
        is_new
    }

    fn said_by_user(&mut self, id: &str, client_id: &str, content: &str) -> std::io::Result<()> {
        let typed_here = self.own.remove(client_id);
        if !self.remember(id) || (typed_here && self.typed_is_shown) {
            return Ok(());
        }
        self.end_line()?;
        let shown = self.plain(content);
        for line in shown.lines() {
            let line = self.paint.cyan(&format!("> {line}"));
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    /// What ctx itself told the model, such as a summary.
    fn system(&mut self, id: &str, content: &str) -> std::io::Result<()> {
        if !self.remember(id) {
            return Ok(());
        }
        content.lines().try_for_each(|line| self.aside(&format!("| {line}")))
    }

    /// What the model thinks, for who watches it work.
    fn reasoning(&mut self, piece: &str) -> std::io::Result<()> {
        if !self.on_terminal || piece.is_empty() {
            return Ok(());
        }
        if !self.in_reasoning {
            self.end_line()?;
        }
        let shown = self.paint.dim(&self.plain(piece));
        self.out.write_all(shown.as_bytes())?;
        (self.at_line_start, self.in_reasoning) = (piece.ends_with('\n'), true);
        self.out.flush()
    }

    fn delta(&mut self, id: &str, piece: &str) -> std::io::Result<()> {
        if self.known.has(&Item::Message(id.to_owned())) {
            return Ok(());
        }
        if self.in_reasoning {
            self.end_line()?;
        }
        self.partial.entry(id.to_owned()).or_default().push_str(piece);
        self.write(piece)?;
        self.open = Some(id.to_owned());
        Ok(())
    }

    /// A whole message: what its deltas have shown is not shown again, unless they do not make it up or something else
    /// has come in between.
    fn finished(&mut self, id: &str, whole: &str) -> std::io::Result<()> {
        let shown = self.partial.remove(id).unwrap_or_default();
        // A step that only called tools has said nothing, and is no message that could be asked for.
        if whole.is_empty() || !self.remember(id) {
            return Ok(());
        }
        if self.in_reasoning {
            self.end_line()?;
        }
        let goes_on = shown.is_empty() || self.open.as_deref() == Some(id);
        match whole.strip_prefix(shown.as_str()) {
            Some("") => {}
            Some(rest) if goes_on => self.write(rest)?,
            Some(_) | None => {
                self.end_line()?;
                self.write(whole)?;
            }
        }
        self.end_line()?;
        self.out.flush()
    }

    fn said_by_subagent(&mut self, id: &str, name: &str, content: &str) -> std::io::Result<()> {
        if content.is_empty() || !self.remember(id) {
            return Ok(());
        }
        let who = words::of_caller(Some(name));
        content.lines().try_for_each(|line| self.aside(&format!("{who}| {line}")))
    }

    fn called(&mut self, call: &str, caller: Option<&str>, name: &str, input: &str) -> std::io::Result<()> {
        if !self.known.add(Item::Call(call.to_owned())) {
            return Ok(());
        }
        self.last = Some(call.to_owned());
        let who = words::of_caller(caller);
        self.aside(&format!("{who}→ {name} {}", words::shorten(input, TOOL_CHARS)))
    }

    fn result(
        &mut self,
        call: &str,
        caller: Option<&str>,
        (status, output): (&str, &str),
        diff: Option<&str>,
    ) -> std::io::Result<()> {
        if !self.known.add(Item::Result(call.to_owned())) {
            return Ok(());
        }
        // What follows the call is read again, and known.
        self.last.get_or_insert_with(|| call.to_owned());
        // The diff says the rest.
        let said = if diff.is_some() { output.lines().next().unwrap_or_default() } else { output };
        let line = format!("{}← {status} {}", words::of_caller(caller), words::shorten(said, TOOL_CHARS));
        self.aside(line.trim_end())?;
        // A script reads what was said; a person also what was changed.
        self.diff(diff.filter(|_| self.on_terminal))
    }

    fn diff(&mut self, diff: Option<&str>) -> std::io::Result<()> {
        let Some(diff) = diff else { return Ok(()) };
        self.end_line()?;
        let shown = crate::render::diff::text(diff, "  ", self.paint);
        self.out.write_all(shown.as_bytes())?;
        self.out.flush()
    }

    fn failed(&mut self, run: &str, message: &str, code: &str) -> std::io::Result<()> {
        if !self.known.add(Item::RunEnd(run.to_owned())) {
            return Ok(());
        }
        self.end_line()?;
        let line = self.paint.red(&format!("[the run failed: {} ({code})]", output::plain(message)));
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn cancelled(&mut self, run: &str) -> std::io::Result<()> {
        if !self.known.add(Item::RunEnd(run.to_owned())) {
            return Ok(());
        }
        self.notice("cancelled")
    }

    fn aside(&mut self, line: &str) -> std::io::Result<()> {
        self.end_line()?;
        let line = self.paint.dim(&self.plain(line));
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn plain(&self, text: &str) -> String {
        if self.on_terminal { output::plain(text).to_string() } else { text.to_owned() }
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let shown = self.plain(text);
        self.out.write_all(shown.as_bytes())?;
        self.at_line_start = text.ends_with('\n');
        self.out.flush()
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        (self.open, self.in_reasoning) = (None, false);
        if !self.at_line_start {
            self.out.write_all(b"\n")?;
            self.at_line_start = true;
        }
        Ok(())
    }
}

/// What a user said, with a line for each image.
fn with_images(text: &str, parts: &[MessagePart]) -> String {
    let line = |part: &MessagePart| match part {
        MessagePart::Image { mime, sha256, size } => {
            let image = Image { mime: mime.clone(), sha256: sha256.clone(), size: *size };
            Some(format!("\n{}", image.in_words()))
        }
        MessagePart::Text { .. } | MessagePart::ToolCall { .. } | MessagePart::ToolResult { .. } => None,
    };
    text.to_owned() + &parts.iter().filter_map(line).collect::<String>()
}

#[cfg(test)]
mod tests;
