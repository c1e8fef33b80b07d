//! A session as Claude Code keeps one. `claude --resume` takes it up.

use serde_json::{Map, Value, json};

use super::{Handoff, nth, object, uuid};
use crate::event::{Event, Finish, Verdict, What};

/// The file below `projects/`, the id to resume, and the lines.
pub struct Session {
    pub id: String,
    pub file: String,
    pub text: String,
}

/// The version whose records these are.
const VERSION: &str = "2.1.0";

pub fn write(handoff: &Handoff) -> Session {
    let id = uuid(4, handoff.at, handoff.random);
    let mut writer = Writer { handoff, id: &id, parent: None, count: 0, text: String::new() };
    if let Some(title) = &handoff.title {
        writer.raw(json!({ "type": "ai-title", "aiTitle": title, "sessionId": id }));
    }
    for event in &handoff.events {
        writer.event(event);
    }
    let text = writer.text;
    let folder: String =
        handoff.cwd.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Session { file: format!("{folder}/{id}.jsonl"), id, text }
}

struct Writer<'h> {
    handoff: &'h Handoff,
    id: &'h str,
    parent: Option<String>,
    count: usize,
    text: String,
}

impl Writer<'_> {
    fn raw(&mut self, line: Value) {
        self.text.push_str(&line.to_string());
        self.text.push('\n');
    }

    /// A record of the conversation, after the one before.
    fn record(&mut self, event: &Event, kind: &str, more: Value) {
        self.count += 1;
        let uuid = uuid(4, self.handoff.at, nth(self.handoff.random, self.count));
        let mut line = json!({
            "parentUuid": self.parent, "isSidechain": false, "userType": "external", "cwd": self.handoff.cwd,
            "sessionId": self.id, "version": VERSION, "gitBranch": self.handoff.branch.as_deref().unwrap_or(""),
            "type": kind, "uuid": uuid, "timestamp": event.at.unwrap_or(self.handoff.at),
        });
        if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
            line.extend::<Map<String, Value>>(more);
        }
        self.raw(line);
        self.parent = Some(uuid);
    }

    fn event(&mut self, event: &Event) {
        match &event.what {
            What::User { text } => {
                self.record(event, "user", json!({ "message": { "role": "user", "content": text } }));
            }
            What::Assistant { text, finish, .. } => {
                let block = json!({ "type": "text", "text": text });
                let stop = if *finish == Finish::Interrupted { "stop_sequence" } else { "end_turn" };
                self.assistant(event, block, stop);
            }
            What::ToolCall { id, name, input } => {
                let block = json!({ "type": "tool_use", "id": call_id(id), "name": tool_name(name), "input": object(input) });
                self.assistant(event, block, "tool_use");
            }
            What::ToolResult { id, verdict, output, .. } => {
                let result = json!({
                    "tool_use_id": call_id(id), "type": "tool_result", "content": output,
                    "is_error": *verdict != Verdict::Success,
                });
                let structured = match verdict {
                    Verdict::Success => json!({ "stdout": output, "stderr": "", "interrupted": false }),
                    Verdict::Failure => json!(format!("Error: {output}")),
                    Verdict::Interrupted => json!({ "stdout": output, "stderr": "", "interrupted": true }),
                };
                let message = json!({ "role": "user", "content": [result] });
                self.record(event, "user", json!({ "message": message, "toolUseResult": structured }));
            }
            What::Compaction { summary } => {
                let boundary = json!({
                    "subtype": "compact_boundary", "content": "Conversation compacted", "isMeta": false, "level": "info",
                    "compactMetadata": { "trigger": "manual", "preTokens": 0 },
                });
                let before = self.parent.take();
                let boundary = with(boundary, "logicalParentUuid", json!(before));
                self.record(event, "system", boundary);
                let message = json!({ "role": "user", "content": summary });
                let more = json!({ "message": message, "isCompactSummary": true, "isVisibleInTranscriptOnly": true });
                self.record(event, "user", more);
            }
            What::Interrupted => {
                let content = json!([{ "type": "text", "text": "[Request interrupted by user]" }]);
                self.record(event, "user", json!({ "message": { "role": "user", "content": content } }));
            }
            What::Injected { .. } | What::Reasoning { .. } | What::Step { .. } | What::Failed { .. } => {}
        }
    }

    fn assistant(&mut self, event: &Event, block: Value, stop: &str) {
        let id = format!("msg_{:026x}", nth(self.handoff.random, self.count + 1) >> 24);
        let model = self.handoff.model.as_deref().filter(|model| model.starts_with("claude"));
        // What was interrupted is stored as the program's own words there.
        let model = if stop == "stop_sequence" { Some("<synthetic>") } else { model };
        let message = json!({
            "id": id, "type": "message", "role": "assistant", "model": model.unwrap_or("claude-sonnet-4-5"), "content": [block],
            "stop_reason": stop, "stop_sequence": null,
            "usage": { "input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0 },
        });
        self.record(event, "assistant", json!({ "message": message }));
    }
}

fn with(mut value: Value, name: &str, more: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert(name.to_owned(), more);
    }
    value
}

/// An id in the characters that the provider takes.
fn call_id(id: &str) -> String {
    clean(id, 64, "call")
}

fn tool_name(name: &str) -> String {
    clean(name, 64, "tool")
}

fn clean(text: &str, most: usize, none: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let text: String = text.chars().map(clean).take(most).collect();
    if text.is_empty() { none.to_owned() } else { text }
}
