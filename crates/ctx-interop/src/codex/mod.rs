//! Codex: one JSONL file a thread under `sessions/YYYY/MM/DD/`. Versions 0.50 to 0.166.
//!
//! `response_item` records are the conversation. `event_msg` records repeat it for display; of those only what the
//! conversation does not say is taken: how commands ended, interruptions, errors and tokens. A fork of 0.166 has
//! only its own records and points into its parent's file ([`Base`]).

mod wire;

use std::borrow::Cow;
use std::collections::HashMap;

use ctx_session::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::event::{Finish, Link, Tokens, Transcript, Verdict, What};
use crate::json::{self, image, join, lines, number, owned, text};
use crate::outcome::{by_exit_code, exit_code_in_head};

use wire::{Item, Line, parts};

/// Where the history of a fork is: in the parent's records before an ordinal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub thread: String,
    pub end_ordinal: u64,
}

/// Messages of the role `user` that the program wrote.
const INJECTED: [&str; 10] = [
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<subagent_notification>",
    "<skill>",
    "<permissions",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
    "Warning: The maximum number of",
];

/// Events that repeat the conversation or only serve the display.
const EVENTS_IGNORED: [&str; 28] = [
    "user_message",
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "agent_reasoning_section_break",
    "task_started",
    "turn_started",
    "thread_settings_applied",
    "context_compacted",
    "exec_command_begin",
    "exec_command_output_delta",
    "patch_apply_begin",
    "mcp_tool_call_begin",
    "web_search_begin",
    "web_search_end",
    "view_image_tool_call",
    "turn_diff",
    "plan_update",
    "background_event",
    "stream_error",
    "warning",
    "item_started",
    "entered_review_mode",
    "exited_review_mode",
    "undo_completed",
    "thread_rolled_back",
    "session_configured",
    "deprecation_notice",
];

/// What events say of a tool call.
#[derive(Default)]
struct Fact {
    failed: Option<bool>,
    exit_code: Option<i64>,
    diff: Option<String>,
}

struct Reader<'f> {
    file: &'f str,
    found: Transcript,
    base: Option<Base>,
    facts: HashMap<String, Fact>,
    names: HashMap<String, String>,
    /// Results that did not say themselves how the call ended, by place in the events.
    undecided: Vec<(usize, String)>,
    has_usage_records: bool,
    /// The newest sum of tokens.
    total: Option<Value>,
    has_meta: bool,
}

/// Reads a thread's file. `file` is its name in reports.
pub fn read(bytes: &[u8], file: &str) -> (Transcript, Option<Base>) {
    read_until(bytes, file, u64::MAX)
}

/// Reads the records of a thread before an ordinal: the history of a fork.
pub fn read_until(bytes: &[u8], file: &str, end_ordinal: u64) -> (Transcript, Option<Base>) {
    let mut reader = Reader {
        file,
        found: Transcript::new(id_of_file(file).unwrap_or_default()),
        base: None,
        facts: HashMap::new(),
        names: HashMap::new(),
        undecided: Vec::new(),
        // Where the first of them is damaged, the counts that repeat them must not stand for all.
        has_usage_records: memchr::memmem::find(bytes, b"\"type\":\"token_usage_record\"").is_some(),
        total: None,
        has_meta: false,
    };
    for (number, bytes) in lines(bytes) {
        match serde_json::from_slice::<Line<'_>>(bytes) {
            Ok(line) if line.ordinal.is_some_and(|ordinal| ordinal >= end_ordinal) => {}
            Ok(line) => reader.line(number, &line),
            Err(error) => reader.found.note_damage(file, number, json::why_bad(bytes, &error)),
        }
    }
    reader.decide();
    (reader.found, reader.base)
}

/// Puts the parent's history before a fork's own.
pub fn inherit(fork: &mut Transcript, parent: Transcript) {
    let own = std::mem::take(&mut fork.events);
    fork.events = parent.events;
    for event in &mut fork.events {
        event.inherited = true;
        event.key = format!("{}:{}", parent.native_id, event.key);
    }
    fork.events.extend(own);
}

/// The thread's id, which ends the name of its file.
pub fn id_of_file(file: &str) -> Option<String> {
    let stem = file.rsplit('/').next()?.strip_suffix(".jsonl")?;
    let id = stem.get(stem.len().checked_sub(36)?..)?;
    id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-').then(|| id.to_owned())
}

impl Reader<'_> {
    fn line(&mut self, line_number: u64, line: &Line<'_>) {
        let at = line.timestamp.as_deref().and_then(|time| time.parse().ok());
        let payload = line.payload.get();
        let read = match &*line.kind {
            "response_item" => serde_json::from_str(payload).map(|item| self.item(line_number, at, &item)),
            "session_meta" => serde_json::from_str(payload).map(|meta| self.meta(&meta)),
            "event_msg" => self.event(line_number, at, payload),
            "turn_context" => serde_json::from_str(payload).map(|context| self.context(&context)),
            "token_usage_record" => serde_json::from_str::<Value>(payload).map(|record| {
                let id = owned(&record, "/response_id").unwrap_or_else(|| format!("L{line_number}"));
                if let Some(spent) = spent(record.pointer("/usage")) {
                    self.found.spend(format!("u:{id}"), at, spent);
                }
            }),
            "compacted" => serde_json::from_str::<Value>(payload).map(|record| {
                let summary = owned(&record, "/message").unwrap_or_default();
                self.found.push(format!("L{line_number}"), at, What::Compaction { summary });
            }),
            // A picture of the program's state, for itself.
            "world_state" | "ghost_snapshot" => Ok(()),
            other => {
                self.found.note_unknown(other);
                Ok(())
            }
        };
        match read {
            Ok(()) => self.found.intact += 1,
            Err(error) => {
                let why = format!("a {} that cannot be read: {error}", line.kind);
                self.found.note_damage(self.file, line_number, why);
            }
        }
    }

    fn meta(&mut self, meta: &Value) {
        self.found.version = owned(meta, "/cli_version").or(self.found.version.take());
        // A fork of older versions begins with a copy of its parent, whose meta comes second.
        if std::mem::replace(&mut self.has_meta, true) {
            return;
        }
        if let Some(id) = text(meta, "/id") {
            self.found.native_id = id.to_owned();
        }
        self.found.cwd = owned(meta, "/cwd");
        self.found.branch = owned(meta, "/git/branch");
        self.found.created = meta.get("timestamp").and_then(json::time);
        let parent = text(meta, "/forked_from_id").or(text(meta, "/history_base/thread_id"));
        self.found.link = parent.map(|parent| Link::ForkOf { native_id: parent.to_owned() });
        if let Some(spawned) = text(meta, "/source/subagent/thread_spawn/parent_thread_id") {
            self.found.link = Some(Link::SubagentOf { native_id: spawned.to_owned(), call: None });
        }
        let end = meta.pointer("/history_base/end_ordinal_exclusive").and_then(Value::as_u64);
        self.base =
            parent.zip(end).map(|(thread, end_ordinal)| Base { thread: thread.to_owned(), end_ordinal });
    }

    fn context(&mut self, context: &Value) {
        self.found.model = owned(context, "/model").or(self.found.model.take());
        if self.found.cwd.is_none() {
            self.found.cwd = owned(context, "/cwd");
        }
    }

    fn item(&mut self, line: u64, at: Option<Timestamp>, item: &Item<'_>) {
        let key = |what: &str, id: Option<&str>| id.map_or(format!("L{line}"), |id| format!("{what}:{id}"));
        let (id, call_id) = (item.id.as_deref(), item.call_id.as_deref());
        match &*item.kind {
            "message" => self.message(line, at, item),
            "reasoning" => {
                let said = join(parts(item.summary).into_iter().filter_map(|part| part.text));
                let raw = || join(parts(item.content).into_iter().filter_map(|part| part.text));
                let said = if said.is_empty() { raw() } else { said };
                if !said.is_empty() {
                    self.found.push(key("r", id), at, What::Reasoning { text: said });
                }
            }
            "function_call" | "custom_tool_call" | "local_shell_call" | "web_search_call"
            | "tool_search_call" => {
                let arguments = item.arguments.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
                let arguments = arguments.map(|value| match value {
                    Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
                    other => other,
                });
                let input = arguments.or(item.input.clone()).or(item.action.clone()).unwrap_or(Value::Null);
                let name = item.name.as_deref().unwrap_or(item.kind.trim_end_matches("_call")).to_owned();
                let call = call_id.or(id).map_or(format!("L{line}"), str::to_owned);
                self.names.insert(call.clone(), name.clone());
                self.found.push(format!("c:{call}"), at, What::ToolCall { id: call.clone(), name, input });
                // The provider made this search itself; no result follows.
                if &*item.kind == "web_search_call" {
                    self.result(at, &call, Some(Verdict::Success), String::new());
                }
            }
            "function_call_output" | "custom_tool_call_output" | "tool_search_output" => {
                let call = call_id.map_or(format!("L{line}"), str::to_owned);
                let (output, verdict) = said(item.output.as_ref(), self.file, line);
                self.result(at, &call, verdict, output);
            }
            "ghost_snapshot" | "compaction" | "compaction_summary" | "context_compaction" => {}
            other => self.found.note_unknown(format!("response_item/{other}")),
        }
    }

    fn message(&mut self, line: u64, at: Option<Timestamp>, item: &Item<'_>) {
        let file = self.file;
        let pieces = parts(item.content).into_iter().map(|part| match (part.text, part.image_url) {
            (Some(text), _) => text,
            (None, Some(url)) => Cow::Owned(image(None, &url, file, line)),
            (None, None) => Cow::Borrowed(""),
        });
        let text = join(pieces);
        let key = item.id.as_deref().map_or(format!("L{line}"), |id| format!("m:{id}"));
        match item.role.as_deref() {
            Some("assistant") if text.is_empty() => {}
            Some("assistant") => {
                let model = self.found.model.clone();
                self.found.push(key, at, What::Assistant { text, model, finish: Finish::Stop, tokens: None });
            }
            Some("user") if text.starts_with("<turn_aborted>") => self.found.interrupt(key, at),
            Some("user") if !is_injected(&text, item.metadata) => {
                self.found.push(key, at, What::User { text })
            }
            _ => self.found.push(key, at, What::Injected { text }),
        }
    }

    fn result(&mut self, at: Option<Timestamp>, call: &str, verdict: Option<Verdict>, output: String) {
        if verdict.is_none() {
            self.undecided.push((self.found.events.len(), call.to_owned()));
        }
        let verdict = verdict.unwrap_or(Verdict::Success);
        let what = What::ToolResult { id: call.to_owned(), verdict, output, diff: None };
        self.found.push(format!("o:{call}"), at, what);
    }

    fn event(&mut self, line: u64, at: Option<Timestamp>, payload: &str) -> Result<(), serde_json::Error> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
        }
        let kind = serde_json::from_str::<Kind<'_>>(payload)?.kind;
        if EVENTS_IGNORED.contains(&&*kind) {
            return Ok(());
        }
        let event: Value = serde_json::from_str(payload)?;
        let key = format!("L{line}");
        match &*kind {
            "turn_aborted" => self.found.interrupt(key, at),
            "task_complete" | "turn_complete" => {
                if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
                    let message = owned(error, "/message").unwrap_or_else(|| error.to_string());
                    self.found.push(key, at, What::Failed { message });
                }
            }
            "error" => {
                let message = owned(&event, "/message").unwrap_or_default();
                self.found.push(key, at, What::Failed { message });
            }
            "token_count" if !self.has_usage_records => self.count(line, at, &event),
            "token_count" => {}
            "thread_name_updated" => self.found.title = owned(&event, "/thread_name"),
            "exec_command_end" | "patch_apply_end" | "mcp_tool_call_end" => self.fact(&event, "/call_id"),
            "item_completed" => {
                if let Some(item) = event.get("item") {
                    self.fact(item, "/id");
                }
            }
            other => self.found.note_unknown(format!("event_msg/{other}")),
        }
        Ok(())
    }

    /// What an event says of how a tool call ended.
    fn fact(&mut self, event: &Value, call: &str) {
        let Some(call) = text(event, call) else { return };
        let status = text(event, "/status").map(|status| matches!(status, "failed" | "declined"));
        let success = event.get("success").and_then(Value::as_bool).map(|success| !success);
        let error = event.pointer("/result/Err").is_some().then_some(true);
        let fact = self.facts.entry(call.to_owned()).or_default();
        fact.failed = error.or(success).or(status).or(fact.failed);
        fact.exit_code = event.get("exit_code").and_then(Value::as_i64).or(fact.exit_code);
        if let Some(changes) = event.get("changes") {
            fact.diff = diff(changes);
        }
    }

    /// A count of tokens is written again with other news: it is of a new call where its sum is another. It may stand before
    /// what the call said, so that it stands for itself.
    fn count(&mut self, line: u64, at: Option<Timestamp>, event: &Value) {
        let total = event.pointer("/info/total_token_usage").filter(|total| total.is_object());
        if total.is_some() && total == self.total.as_ref() {
            return;
        }
        let sum = |total: &Value| {
            format!("t{}.{}", number(total, "/input_tokens"), number(total, "/output_tokens"))
        };
        let id = total.map_or(format!("L{line}"), sum);
        self.total = total.cloned().or(self.total.take());
        if let Some(tokens) = spent(event.pointer("/info/last_token_usage")) {
            let model = self.found.model.clone();
            self.found.push(format!("u:{id}"), at, What::Step { model, tokens });
        }
    }

    /// Settles the results that events know more of.
    fn decide(&mut self) {
        for (at, call) in std::mem::take(&mut self.undecided) {
            let name = self.names.get(&call).map(String::as_str).unwrap_or_default();
            let fact = self.facts.get(&call);
            let known = fact.and_then(|fact| {
                let by_code = fact.exit_code.map(by_exit_code);
                by_code.or(fact.failed.map(|failed| if failed { Verdict::Failure } else { Verdict::Success }))
            });
            let Some(event) = self.found.events.get_mut(at) else { continue };
            if let What::ToolResult { verdict, output, .. } = &mut event.what {
                *verdict = known.unwrap_or_else(|| by_prose(name, output));
            }
        }
        for event in &mut self.found.events {
            if let What::ToolResult { id, diff, .. } = &mut event.what
                && let Some(fact) = self.facts.get_mut(id)
            {
                *diff = fact.diff.take();
            }
        }
    }
}

fn spent(usage: Option<&Value>) -> Option<Tokens> {
    let usage = usage.filter(|usage| usage.is_object())?;
    let of = |name: &str| number(usage, name);
    let (input, output) = (of("/input_tokens"), of("/output_tokens"));
    Some(Tokens { input, output, cached: of("/cached_input_tokens"), cost_nano_usd: 0 })
}

/// The changes of files as one diff.
fn diff(changes: &Value) -> Option<String> {
    let mut whole = String::new();
    for (path, change) in changes.as_object()? {
        let body = text(change, "/unified_diff").map(str::to_owned);
        let added = || text(change, "/content").map(|content| prefixed('+', content));
        let body = body.or_else(added).unwrap_or_default();
        whole.push_str(&format!("--- {path}\n+++ {path}\n{body}"));
        if !whole.ends_with('\n') {
            whole.push('\n');
        }
    }
    (!whole.is_empty()).then_some(whole)
}

fn prefixed(mark: char, content: &str) -> String {
    content.lines().map(|line| format!("{mark}{line}\n")).collect()
}

fn is_injected(text: &str, metadata: Option<&RawValue>) -> bool {
    let by_harness = || {
        let metadata: Value = serde_json::from_str(metadata?.get()).ok()?;
        let items = metadata.get("content_item_metadata")?.as_array()?.clone();
        let is_harness = |item: &Value| crate::json::text(item, "/provenance/type") == Some("harness");
        Some(!items.is_empty() && items.iter().all(is_harness))
    };
    INJECTED.iter().any(|mark| text.starts_with(mark)) || by_harness().unwrap_or(false)
}

/// The output, and what it says of how the call ended.
fn said(output: Option<&Value>, file: &str, line: u64) -> (String, Option<Verdict>) {
    let success = output.and_then(|output| output.get("success")).and_then(Value::as_bool);
    let mut verdict = success.map(|success| if success { Verdict::Success } else { Verdict::Failure });
    let mut text = match output {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => join(items.iter().map(|item| match text(item, "/text") {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(image(None, text(item, "/image_url").unwrap_or_default(), file, line)),
        })),
        Some(other) => owned(other, "/content").unwrap_or_else(|| other.to_string()),
        None => String::new(),
    };
    let mut exit_code = exit_code_in_head(&text);
    // Older versions wrap the output of commands in JSON.
    if text.starts_with("{\"output\":")
        && let Ok(wrapped) = serde_json::from_str::<Value>(&text)
    {
        exit_code = wrapped.pointer("/metadata/exit_code").and_then(Value::as_i64).or(exit_code);
        text = owned(&wrapped, "/output").unwrap_or(text);
    }
    verdict = exit_code.map(by_exit_code).or(verdict);
    if verdict.is_none() && (text.starts_with("aborted by user") || text == "aborted") {
        verdict = Some(Verdict::Interrupted);
    }
    (text, verdict)
}

/// How a call ended whose result has neither a code nor a flag: a patch or a command that worked always has one.
fn by_prose(name: &str, output: &str) -> Verdict {
    let is_running = output.lines().take(8).any(|line| line.starts_with("Process running with session ID"));
    match name {
        "apply_patch" | "shell" | "local_shell" | "exec_command" | "container.exec" if !is_running => {
            Verdict::Failure
        }
        _ => Verdict::Success,
    }
}
