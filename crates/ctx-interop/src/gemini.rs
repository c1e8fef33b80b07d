//! Gemini CLI: a log of patches in JSONL (0.61), or one JSON file (0.20), under `tmp/<project>/chats/`.
//!
//! In the log a message with an id that was there before replaces it, and `$set` replaces fields of the session. A resume
//! rewrites the messages in a poorer form, so what was said first stays.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use ctx_session::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::event::{Finish, Tokens, Transcript, Verdict, What};
use crate::json::{self, image, join, lines, number, owned, text, time};
use crate::outcome::{by_exit_code, exit_code_at_end};

/// Reads the log of patches. `file` is its name in reports.
pub fn read_log(bytes: &[u8], file: &str) -> Transcript {
    let mut reader = Reader::new(file);
    for (number, bytes) in lines(bytes) {
        match serde_json::from_slice::<Value>(bytes) {
            Ok(record) if record.is_object() => {
                reader.found.intact += 1;
                reader.record(number, record);
            }
            Ok(_) => reader.found.note_damage(file, number, "not a record"),
            Err(error) => reader.found.note_damage(file, number, json::why_bad(bytes, &error)),
        }
    }
    reader.tell()
}

/// Reads a session that is one JSON value.
pub fn read_json(bytes: &[u8], file: &str) -> Transcript {
    let mut reader = Reader::new(file);
    match serde_json::from_slice::<Value>(bytes) {
        Ok(mut session) => {
            reader.found.intact += 1;
            let messages = session.get_mut("messages").map(Value::take);
            reader.about(&session);
            for message in messages.as_ref().and_then(Value::as_array).into_iter().flatten() {
                reader.keep(1, message.clone(), false);
            }
        }
        Err(error) => {
            reader.found.note_damage(file, error.line() as u64, json::why_bad(bytes, &error));
        }
    }
    reader.tell()
}

struct Reader<'f> {
    file: &'f str,
    found: Transcript,
    hash: Option<String>,
    /// The messages in the order of their first appearance, by id and type: an id may be used for two.
    messages: Vec<(u64, Value)>,
    places: HashMap<(String, String), usize>,
}

impl<'f> Reader<'f> {
    fn new(file: &'f str) -> Reader<'f> {
        Reader {
            file,
            found: Transcript::default(),
            hash: None,
            messages: Vec::new(),
            places: HashMap::new(),
        }
    }

    fn record(&mut self, line: u64, mut record: Value) {
        if let Some(mut set) = record.get_mut("$set").map(Value::take) {
            if let Some(Value::Array(messages)) = set.get_mut("messages").map(Value::take) {
                for message in messages {
                    self.keep(line, message, false);
                }
            }
            self.about(&set);
        } else if record.get("sessionId").is_some() && record.get("type").is_none() {
            self.about(&record);
        } else if record.get("id").is_some() {
            self.keep(line, record, true);
        } else if record.get("$rewindTo").is_none() {
            let first = record.as_object().and_then(|object| object.keys().next().cloned());
            self.found.note_unknown(first.unwrap_or_default());
        }
    }

    fn about(&mut self, value: &Value) {
        if self.found.native_id.is_empty()
            && let Some(id) = text(value, "/sessionId")
        {
            self.found.native_id = id.to_owned();
        }
        self.found.created = self.found.created.or(value.get("startTime").and_then(time));
        self.hash = self.hash.take().or(owned(value, "/projectHash"));
        self.found.title = owned(value, "/summary").or(self.found.title.take());
    }

    /// Adds a message. One that is there is replaced by a newer version, but not by a copy in another form.
    fn keep(&mut self, line: u64, message: Value, replaces: bool) {
        let key = (owned(&message, "/id").unwrap_or_default(), owned(&message, "/type").unwrap_or_default());
        match self.places.get(&key).and_then(|at| self.messages.get_mut(*at)) {
            Some((_, old)) if replaces => *old = message,
            Some(_) => {}
            None => {
                self.places.insert(key, self.messages.len());
                self.messages.push((line, message));
            }
        }
    }

    fn tell(mut self) -> Transcript {
        let mut results = HashSet::new();
        for (line, message) in std::mem::take(&mut self.messages) {
            let at = message.get("timestamp").and_then(time);
            let key = owned(&message, "/id").unwrap_or_else(|| format!("L{line}"));
            match text(&message, "/type") {
                Some("user") => self.user(line, &key, at, &message, &mut results),
                Some("gemini") => self.gemini(line, &key, at, &message, &mut results),
                Some("info" | "warning" | "about" | "quit") => {
                    if let Some(text) = owned(&message, "/content") {
                        self.found.push(key, at, What::Injected { text });
                    }
                }
                Some("error") => {
                    let message = owned(&message, "/content").unwrap_or_default();
                    self.found.push(key, at, What::Failed { message });
                }
                other => self.found.note_unknown(format!("message/{}", other.unwrap_or("?"))),
            }
        }
        self.found.cwd = self.hash.as_deref().and_then(|hash| directory(hash, &self.found));
        self.found
    }

    fn user(
        &mut self,
        line: u64,
        key: &str,
        at: Option<Timestamp>,
        message: &Value,
        results: &mut HashSet<String>,
    ) {
        let Some(content) = message.get("content") else { return };
        for part in content.as_array().into_iter().flatten() {
            if let Some(response) = part.get("functionResponse") {
                self.response(at, response, None, results);
            }
        }
        let text = said(content, self.file, line);
        if text.starts_with("<session_context>")
            || text.starts_with("This is the Gemini CLI. We are setting up")
        {
            self.found.push(key, at, What::Injected { text });
        } else if text == "Request cancelled." || text.starts_with("[Operation Cancelled]") {
            self.found.interrupt(key, at);
        } else if !text.is_empty() {
            self.found.push(key, at, What::User { text });
        }
    }

    fn gemini(
        &mut self,
        line: u64,
        key: &str,
        at: Option<Timestamp>,
        message: &Value,
        results: &mut HashSet<String>,
    ) {
        self.found.model = owned(message, "/model").or(self.found.model.take());
        let model = self.found.model.clone();
        for (nth, thought) in
            message.get("thoughts").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let parts = [text(thought, "/subject"), text(thought, "/description")];
            let text = join(parts.into_iter().flatten().map(Cow::Borrowed));
            if !text.is_empty() {
                self.found.push(format!("{key}/r{nth}"), at, What::Reasoning { text });
            }
        }
        let content = message.get("content").unwrap_or(&Value::Null);
        let text = said(content, self.file, line);
        let spent = Tokens {
            input: number(message, "/tokens/input"),
            output: number(message, "/tokens/output").saturating_add(number(message, "/tokens/thoughts")),
            cached: number(message, "/tokens/cached"),
            cost_nano_usd: 0,
        };
        let tokens = (spent != Tokens::default()).then_some(spent);
        let calls = message.get("toolCalls").and_then(Value::as_array);
        if !text.is_empty() {
            let finish =
                if calls.is_some_and(|calls| !calls.is_empty()) { Finish::ToolCalls } else { Finish::Stop };
            self.found.push(key, at, What::Assistant { text, model, finish, tokens });
        } else if let Some(tokens) = tokens {
            self.found.push(key, at, What::Step { model, tokens });
        }
        for call in calls.into_iter().flatten() {
            self.call(at, call, results);
        }
        // The form of the API, after a resume.
        for part in content.as_array().into_iter().flatten() {
            if let Some(call) = part.get("functionCall") {
                self.call(at, call, results);
            }
        }
    }

    fn call(&mut self, at: Option<Timestamp>, call: &Value, results: &mut HashSet<String>) {
        let id = owned(call, "/id").unwrap_or_default();
        let name = owned(call, "/name").unwrap_or_default();
        let input = call.get("args").cloned().unwrap_or(Value::Null);
        self.found.push(format!("c:{id}"), at, What::ToolCall { id, name, input });
        let ended = call.get("timestamp").and_then(time).or(at);
        for part in call.get("result").and_then(Value::as_array).into_iter().flatten() {
            if let Some(response) = part.get("functionResponse") {
                self.response(ended, response, Some(call), results);
            }
        }
    }

    /// A result, which stands in the log up to three times.
    fn response(
        &mut self,
        at: Option<Timestamp>,
        response: &Value,
        call: Option<&Value>,
        results: &mut HashSet<String>,
    ) {
        let id = owned(response, "/id").unwrap_or_default();
        if !results.insert(id.clone()) {
            return;
        }
        let error = owned(response, "/response/error");
        let status = call.and_then(|call| text(call, "/status"));
        let output = error.clone().or(owned(response, "/response/output"));
        let output =
            output.unwrap_or_else(|| response.get("response").map(Value::to_string).unwrap_or_default());
        let exit = exit_code_at_end(&output, "Exit Code: ");
        let verdict = match status {
            Some("cancelled") => Verdict::Interrupted,
            Some("error") => Verdict::Failure,
            _ if error.is_some() => Verdict::Failure,
            _ => exit.map_or(Verdict::Success, by_exit_code),
        };
        let diff = call.and_then(|call| owned(call, "/resultDisplay/fileDiff"));
        self.found.push(format!("o:{id}"), at, What::ToolResult { id, verdict, output, diff });
    }
}

/// The text of a content, which is a string, a part or a list of parts. Thoughts and calls are told elsewhere.
fn said(content: &Value, file: &str, line: u64) -> String {
    let piece = |part: &Value| -> Option<String> {
        if part.get("thought") == Some(&Value::Bool(true)) {
            return None;
        }
        if let Some(data) = part.get("inlineData").or(part.get("fileData")) {
            return Some(image(
                text(data, "/mimeType"),
                text(data, "/fileUri").unwrap_or_default(),
                file,
                line,
            ));
        }
        part.as_str().map(str::to_owned).or_else(|| owned(part, "/text"))
    };
    match content {
        Value::Array(parts) => join(parts.iter().filter_map(piece).map(Cow::Owned)),
        other => piece(other).unwrap_or_default(),
    }
}

/// The session's directory: the store has only its hash, but the calls name files beneath it.
fn directory(hash: &str, found: &Transcript) -> Option<String> {
    let inputs = found.events.iter().filter_map(|event| match &event.what {
        What::ToolCall { input, .. } => Some(input),
        _ => None,
    });
    let texts =
        inputs.filter_map(Value::as_object).flat_map(|input| input.values()).filter_map(Value::as_str);
    let paths = texts.filter(|text| text.starts_with('/') && text.len() < 4096).take(200);
    let mut tried = HashSet::new();
    for path in paths {
        for (end, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
            let Some(candidate) = path.get(..end).filter(|candidate| tried.insert(*candidate)) else {
                continue;
            };
            if hex(&Sha256::digest(candidate)) == hash {
                return Some(candidate.to_owned());
            }
        }
    }
    None
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
