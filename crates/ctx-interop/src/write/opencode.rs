//! A session as OpenCode keeps one: rows of its database. `opencode -s` takes it up.

use ctx_session::Timestamp;
use serde_json::{Value, json};

use super::{Handoff, nth, object};
use crate::event::{Verdict, What};

/// A message or a part.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRow {
    pub id: String,
    /// The message of a part.
    pub message: String,
    pub at: Timestamp,
    pub data: Value,
}

pub struct Session {
    pub id: String,
    pub title: String,
    pub messages: Vec<NewRow>,
    pub parts: Vec<NewRow>,
}

struct Writer<'h> {
    handoff: &'h Handoff,
    count: u64,
    user: String,
    session: Session,
    /// The assistant message that is written to.
    open: Option<usize>,
}

pub fn write(handoff: &Handoff) -> Session {
    let title = handoff.title.clone().unwrap_or_else(|| "Handed on by ctx".to_owned());
    // Ids of sessions go down with time, so that the newest is first.
    let id = id("ses", !(handoff.at.as_millis() * 4096), handoff.random);
    let session = Session { id, title, messages: Vec::new(), parts: Vec::new() };
    let mut writer = Writer { handoff, count: 0, user: String::new(), session, open: None };
    for event in &handoff.events {
        let at = event.at.unwrap_or(handoff.at);
        writer.event(at, &event.what);
    }
    writer.session
}

/// A prefix, twelve digits that sort by time, and fourteen characters.
fn id(prefix: &str, order: u64, random: u128) -> String {
    const ALPHABET: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = random;
    let mut tail = String::new();
    for _ in 0..14 {
        let at = usize::try_from(rest % 62).unwrap_or_default();
        tail.push(ALPHABET.get(at).copied().map_or('0', char::from));
        rest /= 62;
    }
    format!("{prefix}_{:012x}{tail}", order & 0xffff_ffff_ffff)
}

impl Writer<'_> {
    /// An id after all before it: they are made in the order of the conversation.
    fn next(&mut self, prefix: &str) -> String {
        self.count += 1;
        let order = self.handoff.at.as_millis().wrapping_mul(4096).wrapping_add(self.count);
        id(prefix, order, nth(self.handoff.random, usize::try_from(self.count).unwrap_or_default()))
    }

    fn event(&mut self, at: Timestamp, what: &What) {
        match what {
            What::User { text } => self.user(at, text),
            What::Compaction { summary } if !summary.is_empty() => {
                self.user(at, &format!("This is a summary of the conversation until here:\n\n{summary}"));
            }
            What::Assistant { text, .. } => {
                self.open = None;
                let time = json!({ "start": at.as_millis(), "end": at.as_millis() });
                self.part(at, json!({ "type": "text", "text": text, "time": time }));
            }
            What::ToolCall { id, name, input } => {
                let state = json!({ "status": "running", "input": object(input), "time": { "start": at.as_millis() } });
                self.part(at, json!({ "type": "tool", "callID": id, "tool": name, "state": state }));
                self.finish("tool-calls");
            }
            What::ToolResult { id, verdict, output, diff } => {
                self.result(at, id, *verdict, output, diff.as_deref())
            }
            What::Interrupted
            | What::Compaction { .. }
            | What::Injected { .. }
            | What::Reasoning { .. }
            | What::Step { .. }
            | What::Failed { .. } => {}
        }
    }

    fn model(&self) -> (String, String) {
        let model = self.handoff.model.clone().unwrap_or_else(|| "unknown".to_owned());
        match model.split_once(['/', ':']) {
            Some((provider, model)) => (provider.to_owned(), model.to_owned()),
            None => ("ctx".to_owned(), model),
        }
    }

    fn user(&mut self, at: Timestamp, text: &str) {
        self.open = None;
        let message = self.next("msg");
        self.user.clone_from(&message);
        let (provider, model) = self.model();
        let data = json!({
            "role": "user", "time": { "created": at.as_millis() }, "agent": "build",
            "model": { "providerID": provider, "modelID": model },
        });
        self.session.messages.push(NewRow { id: message.clone(), message: String::new(), at, data });
        let part = self.next("prt");
        self.session.parts.push(NewRow {
            id: part,
            message,
            at,
            data: json!({ "type": "text", "text": text }),
        });
    }

    /// Adds a part to the answer, which is begun where none is open.
    fn part(&mut self, at: Timestamp, data: Value) {
        let at_message = match self.open {
            Some(open) => open,
            None => {
                let id = self.next("msg");
                let (provider, model) = self.model();
                let time = at.as_millis();
                let data = json!({
                    "parentID": self.user, "role": "assistant", "mode": "build", "agent": "build",
                    "path": { "cwd": self.handoff.cwd, "root": self.handoff.cwd }, "cost": 0,
                    "tokens": { "input": 0, "output": 0, "reasoning": 0, "cache": { "read": 0, "write": 0 } },
                    "modelID": model, "providerID": provider, "time": { "created": time, "completed": time },
                    "finish": "stop",
                });
                self.session.messages.push(NewRow { id, message: String::new(), at, data });
                let last = self.session.messages.len() - 1;
                self.open = Some(last);
                last
            }
        };
        let message = self.session.messages.get(at_message).map(|row| row.id.clone()).unwrap_or_default();
        let id = self.next("prt");
        self.session.parts.push(NewRow { id, message, at, data });
    }

    fn finish(&mut self, reason: &str) {
        let open = self.open.and_then(|open| self.session.messages.get_mut(open));
        if let Some(data) = open.and_then(|row| row.data.as_object_mut()) {
            data.insert("finish".to_owned(), json!(reason));
        }
    }

    fn result(&mut self, at: Timestamp, id: &str, verdict: Verdict, output: &str, diff: Option<&str>) {
        let is_call = |row: &&mut NewRow| row.data.get("callID").and_then(Value::as_str) == Some(id);
        let Some(row) = self.session.parts.iter_mut().rev().find(is_call) else { return };
        let time = json!({ "start": row.at.as_millis(), "end": at.as_millis() });
        let input = row.data.pointer("/state/input").cloned().unwrap_or(json!({}));
        let state = match verdict {
            Verdict::Success | Verdict::Failure => {
                let exit = i32::from(verdict == Verdict::Failure);
                let mut metadata = json!({ "output": output, "exit": exit, "truncated": false });
                if let (Some(diff), Some(metadata)) = (diff, metadata.as_object_mut()) {
                    metadata.insert("diff".to_owned(), json!(diff));
                }
                json!({ "status": "completed", "input": input, "output": output, "metadata": metadata, "title": "", "time": time })
            }
            Verdict::Interrupted => {
                json!({ "status": "error", "input": input, "error": "Tool execution aborted", "time": time })
            }
        };
        if let Some(data) = row.data.as_object_mut() {
            data.insert("state".to_owned(), state);
        }
        // The next call or text is of another answer.
        self.open = None;
    }
}
