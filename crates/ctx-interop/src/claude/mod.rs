//! Claude Code: one JSONL file a session under `projects/<cwd>/`. Versions 2.0 and 2.1.
//!
//! Records form a tree by `parentUuid`, and lines are not in its order: a record is told after its parent. One reply of
//! the model is several lines, one per block, with one message id. A subagent has a file of its own.

mod tree;
mod wire;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use ctx_session::Timestamp;
use serde_json::Value;

use crate::event::{Event, Finish, Link, Tokens, Transcript, Verdict, What};
use crate::json::{self, image, join, lines, number, owned, text};

use tree::{abandoned, order, waiting};
use wire::{Block, Line, Message, Usage, blocks};

/// Kinds that say nothing of the conversation.
const IGNORED: [&str; 10] = [
    "queue-operation",
    "last-prompt",
    "mode",
    "permission-mode",
    "file-history-snapshot",
    "progress",
    "agent-name",
    "pr-link",
    "tag",
    "content-replacement",
];

/// How texts begin that the program wrote in the user's name.
const INJECTED: [&str; 9] = [
    "<command-name>",
    "<command-message>",
    "<command-args>",
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<system-reminder>",
    "<user-memory-input>",
    "Caveat: The messages below",
];

const INTERRUPTED: &str = "[Request interrupted by user";

/// Reads a session's file, or a subagent's, as a whole. `file` is its name in reports.
pub fn read(bytes: &[u8], file: &str) -> Transcript {
    read_some(bytes, file, false)
}

/// Reads a file; where it is being written, without the records that stand above the one that they answer.
pub fn read_some(bytes: &[u8], file: &str, is_written: bool) -> Transcript {
    let stem = file.rsplit('/').next().and_then(|name| name.strip_suffix(".jsonl")).unwrap_or_default();
    let mut reader = Reader { file, found: Transcript::new(stem), spent: HashMap::new() };
    let mut records = Vec::new();
    let mut seen = HashSet::new();
    let mut last = 0;
    for (number, bytes) in lines(bytes) {
        last = number;
        match serde_json::from_slice::<Line<'_>>(bytes) {
            Ok(line) => {
                reader.found.intact += 1;
                // The first line stays the first, also of a file that grows; the first of the conversation may not.
                if reader.found.created.is_none() {
                    reader.found.created = line.timestamp.as_deref().and_then(|time| time.parse().ok());
                }
                let is_new = line.uuid.as_ref().is_none_or(|uuid| seen.insert(uuid.clone()));
                if is_new {
                    records.push((number, line));
                }
            }
            Err(error) => reader.found.note_damage(file, number, json::why_bad(bytes, &error)),
        }
    }
    drop(seen);
    let ordered = order(&records);
    // Where a line is damaged, it may be the one that is missing; the last may only not be whole yet.
    let may_wait = is_written && reader.found.damage.iter().all(|damage| damage.line == last);
    let waiting = if may_wait { waiting(&records, &ordered) } else { HashSet::new() };
    reader.found.waiting = waiting.len();
    let abandoned = abandoned(&records, &ordered, is_prompt);
    for at in ordered.into_iter().filter(|at| !waiting.contains(at)) {
        let Some((number, line)) = records.get(at) else { continue };
        let before = reader.found.events.len();
        reader.line(*number, line);
        if abandoned.contains(&at) {
            let keys = reader.found.events.iter().skip(before).map(|event| event.key.clone());
            reader.found.abandoned.extend(keys);
        }
    }
    reader.found
}

/// Whether a record is what the user typed.
fn is_prompt(line: &Line<'_>) -> bool {
    let message = line.message.and_then(|message| serde_json::from_str::<Message<'_>>(message.get()).ok());
    let Some(Ok(blocks)) = message.map(|message| blocks(message.content)) else { return false };
    let says = |block: &Block<'_>| block.text.as_deref().is_some_and(|text| !is_of_program(text));
    line.is_meta != Some(true)
        && line.is_compact_summary != Some(true)
        && blocks.iter().all(|block| block.kind != "tool_result")
        && blocks.iter().any(says)
}

/// Whether a text in the user's name is the program's.
fn is_of_program(text: &str) -> bool {
    text.starts_with(INTERRUPTED) || INJECTED.iter().any(|mark| text.starts_with(mark))
}

/// The call of a session that a subagent worked for; none where nobody asked for it. Only the lines that name it are read.
pub fn call_of(agent: &str, session: &[u8]) -> Option<String> {
    let named = memchr::memmem::Finder::new(agent.as_bytes());
    lines(session).filter(|(_, line)| named.find(line).is_some()).find_map(|(_, line)| {
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        let result: Value = serde_json::from_str(line.tool_use_result?.get()).ok()?;
        let message: Message<'_> = serde_json::from_str(line.message?.get()).ok()?;
        let blocks = blocks(message.content).ok()?;
        let call = blocks.into_iter().find_map(|block| block.tool_use_id)?;
        (text(&result, "/agentId") == Some(agent)).then(|| call.into_owned())
    })
}

/// What tells a session and its copies apart from others: when its file begins, and its first record, which a fork keeps.
pub fn beginning(head: &[u8]) -> Option<(Timestamp, String)> {
    let mut begins = None;
    for (_, line) in lines(head) {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else { continue };
        begins = begins.or_else(|| line.timestamp.as_deref().and_then(|time| time.parse().ok()));
        if let (Some(begins), Some(uuid), "user" | "assistant") = (begins, &line.uuid, &*line.kind) {
            return Some((begins, uuid.clone().into_owned()));
        }
    }
    None
}

struct Reader<'f> {
    file: &'f str,
    found: Transcript,
    /// Where the tokens of a message of the model stand: its last line has the final count.
    spent: HashMap<String, usize>,
}

impl Reader<'_> {
    fn line(&mut self, number: u64, line: &Line<'_>) {
        self.about(line);
        let at = line.timestamp.as_deref().and_then(|time| time.parse().ok());
        let key = line.uuid.as_deref().map_or(format!("L{number}"), str::to_owned);
        let read = match &*line.kind {
            "user" => self.user(number, &key, at, line),
            "assistant" => self.assistant(&key, at, line),
            "system" => {
                self.system(&key, at, line);
                Ok(())
            }
            "attachment" => self.attachment(&key, at, line),
            "ai-title" => {
                self.found.title = line.ai_title.as_deref().map(str::to_owned).or(self.found.title.take());
                Ok(())
            }
            "custom-title" => {
                self.found.title =
                    line.custom_title.as_deref().map(str::to_owned).or(self.found.title.take());
                Ok(())
            }
            "summary" => {
                self.found.title = line.summary.as_deref().map(str::to_owned).or(self.found.title.take());
                Ok(())
            }
            kind if IGNORED.contains(&kind) => Ok(()),
            other => {
                self.found.note_unknown(other);
                Ok(())
            }
        };
        if let Err(error) = read {
            self.found.intact = self.found.intact.saturating_sub(1);
            self.found.note_damage(
                self.file,
                number,
                format!("a {} that cannot be read: {error}", line.kind),
            );
        }
    }

    fn about(&mut self, line: &Line<'_>) {
        let found = &mut self.found;
        let set = |slot: &mut Option<String>, value: &Option<Cow<'_, str>>| {
            let value = value.as_deref().filter(|value| !value.is_empty());
            if value.is_some() && slot.as_deref() != value {
                *slot = value.map(str::to_owned);
            }
        };
        set(&mut found.version, &line.version);
        set(&mut found.branch, &line.git_branch);
        if found.cwd.is_none() {
            set(&mut found.cwd, &line.cwd);
        }
        if line.is_sidechain == Some(true)
            && let (Some(session), Some(agent)) = (&line.session_id, &line.agent_id)
            && found.link.is_none()
        {
            found.native_id = format!("{session}/{agent}");
            found.link = Some(Link::SubagentOf { native_id: session.clone().into_owned(), call: None });
        } else if found.link.is_none()
            && let Some(session) = &line.session_id
        {
            // A file that was renamed keeps its session.
            if found.native_id.len() != session.len() {
                found.native_id = session.clone().into_owned();
            }
        }
    }

    fn user(
        &mut self,
        number: u64,
        key: &str,
        at: Option<Timestamp>,
        line: &Line<'_>,
    ) -> Result<(), serde_json::Error> {
        let Some(message) = line.message else { return Ok(()) };
        let message: Message<'_> = serde_json::from_str(message.get())?;
        let blocks = blocks(message.content)?;
        let mut said = Vec::new();
        for (nth, block) in blocks.into_iter().enumerate() {
            match &*block.kind {
                "text" => said.push(block.text.unwrap_or_default()),
                "image" | "document" => {
                    let source = block.source.unwrap_or(Value::Null);
                    let place = text(&source, "/url").or(text(&source, "/path")).unwrap_or_default();
                    said.push(Cow::Owned(image(text(&source, "/media_type"), place, self.file, number)));
                }
                "tool_result" => self.result(number, format!("{key}/{nth}"), at, block, line),
                other => self.found.note_unknown(format!("user/{other}")),
            }
        }
        let said = join(said.into_iter());
        if said.is_empty() {
            return Ok(());
        }
        if line.is_compact_summary == Some(true) {
            self.found.push(key, at, What::Compaction { summary: said });
        } else if said.starts_with(INTERRUPTED) {
            self.found.interrupt(key, at);
        } else if line.is_meta == Some(true) || INJECTED.iter().any(|mark| said.starts_with(mark)) {
            self.found.push(key, at, What::Injected { text: said });
        } else {
            self.found.push(key, at, What::User { text: said });
        }
        Ok(())
    }

    fn result(&mut self, number: u64, key: String, at: Option<Timestamp>, block: Block<'_>, line: &Line<'_>) {
        let Some(id) = block.tool_use_id.map(Cow::into_owned) else { return };
        let structured: Value =
            line.tool_use_result.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(Value::Null);
        let output = match &block.content {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => join(parts.iter().map(|part| match text(part, "/text") {
                Some(text) => Cow::Borrowed(text),
                None => Cow::Owned(image(text(part, "/source/media_type"), "", self.file, number)),
            })),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let was_stopped = structured.get("interrupted").and_then(Value::as_bool) == Some(true)
            || output.starts_with(INTERRUPTED)
            || output.starts_with("The user doesn't want to proceed");
        let verdict = match block.is_error {
            _ if was_stopped => Verdict::Interrupted,
            Some(true) => Verdict::Failure,
            Some(false) | None => Verdict::Success,
        };
        let patch =
            structured.get("structuredPatch").filter(|patch| patch.as_array().is_some_and(|p| !p.is_empty()));
        let diff = patch.map(|patch| diff(text(&structured, "/filePath").unwrap_or_default(), patch));
        self.found.push(key, at, What::ToolResult { id, verdict, output, diff });
    }

    fn assistant(
        &mut self,
        key: &str,
        at: Option<Timestamp>,
        line: &Line<'_>,
    ) -> Result<(), serde_json::Error> {
        let Some(message) = line.message else { return Ok(()) };
        let message: Message<'_> = serde_json::from_str(message.get())?;
        let is_synthetic = message.model.as_deref() == Some("<synthetic>");
        let blocks = blocks(message.content)?;
        if is_synthetic {
            let said = join(blocks.into_iter().filter_map(|block| block.text));
            let what = match line.is_api_error_message {
                Some(true) => What::Failed { message: said },
                _ if said == "No response requested." => What::Injected { text: said },
                _ => What::Assistant { text: said, model: None, finish: Finish::Interrupted, tokens: None },
            };
            self.found.push(key, at, what);
            return Ok(());
        }
        let model = message.model.map(Cow::into_owned);
        if model.is_some() {
            self.found.model.clone_from(&model);
        }
        let finish = match message.stop_reason.as_deref() {
            Some("tool_use") => Finish::ToolCalls,
            Some("max_tokens") => Finish::Length,
            _ => Finish::Stop,
        };
        let first = self.found.events.len();
        for (nth, block) in blocks.into_iter().enumerate() {
            let key = format!("{key}/{nth}");
            let what = match &*block.kind {
                "text" => {
                    let text = block.text.unwrap_or_default().into_owned();
                    What::Assistant { text, model: model.clone(), finish, tokens: None }
                }
                "thinking" => What::Reasoning { text: block.thinking.unwrap_or_default().into_owned() },
                "redacted_thinking" => continue,
                "tool_use" | "server_tool_use" | "mcp_tool_use" => What::ToolCall {
                    id: block.id.unwrap_or_default().into_owned(),
                    name: block.name.unwrap_or_default().into_owned(),
                    input: block.input.unwrap_or(Value::Null),
                },
                // Tools of the provider give their results within the answer.
                kind if kind.ends_with("tool_result") => match served(block) {
                    Some(result) => result,
                    None => continue,
                },
                other => {
                    self.found.note_unknown(format!("assistant/{other}"));
                    continue;
                }
            };
            let is_empty =
                matches!(&what, What::Assistant { text, .. } | What::Reasoning { text } if text.is_empty());
            if !is_empty {
                self.found.push(key, at, what);
            }
        }
        let usage = message.usage.and_then(|usage| serde_json::from_str(usage.get()).ok());
        if let (Some(id), Some(usage)) = (message.id, usage) {
            self.spend(&id, at, usage, first);
        }
        Ok(())
    }

    /// Counts the tokens of a message of the model once, as its last line has them. They stand with its text, where its first line
    /// has one; `first` is what the line has told first.
    fn spend(&mut self, id: &str, at: Option<Timestamp>, usage: Usage, first: usize) {
        let cached = usage.cache_read_input_tokens.unwrap_or(0);
        let written = usage.cache_creation_input_tokens.unwrap_or(0);
        let input = usage.input_tokens.saturating_add(cached).saturating_add(written);
        let spent = Tokens { input, output: usage.output_tokens, cached, cost_nano_usd: 0 };
        let old = self.spent.get(id).and_then(|at| self.found.events.get_mut(*at));
        match old.map(|event| &mut event.what) {
            Some(What::Assistant { tokens, .. }) => *tokens = Some(spent),
            Some(What::Step { tokens, .. }) => *tokens = spent,
            _ => {
                let is_text = |event: &Event| matches!(event.what, What::Assistant { tokens: None, .. });
                let text = self.found.events.iter().skip(first).position(is_text).map(|nth| first + nth);
                let place = text.unwrap_or(self.found.events.len());
                match self.found.events.get_mut(place).map(|event| &mut event.what) {
                    Some(What::Assistant { tokens, .. }) => *tokens = Some(spent),
                    _ => {
                        let model = self.found.model.clone();
                        self.found.push(format!("u:{id}"), at, What::Step { model, tokens: spent });
                    }
                }
                self.spent.insert(id.to_owned(), place);
            }
        }
    }

    fn system(&mut self, key: &str, at: Option<Timestamp>, line: &Line<'_>) {
        match line.subtype.as_deref() {
            // The summary that follows it is the compaction.
            Some("compact_boundary" | "microcompact_boundary") => {}
            Some(
                "turn_duration" | "stop_hook_summary" | "local_command" | "informational" | "away_summary",
            ) => {}
            Some("api_error") => {
                self.found.push(
                    key,
                    at,
                    What::Failed { message: "the provider refused the request".to_owned() },
                );
            }
            other => self.found.note_unknown(format!("system/{}", other.unwrap_or("?"))),
        }
    }

    /// Reminders and listings that the program adds for the model.
    fn attachment(
        &mut self,
        key: &str,
        at: Option<Timestamp>,
        line: &Line<'_>,
    ) -> Result<(), serde_json::Error> {
        let Some(attachment) = line.attachment else { return Ok(()) };
        let attachment: Value = serde_json::from_str(attachment.get())?;
        let said = owned(&attachment, "/content").or(owned(&attachment, "/prompt"));
        if let Some(text) = said.filter(|text| !text.is_empty()) {
            self.found.push(key, at, What::Injected { text });
        }
        Ok(())
    }
}

/// What a tool of the provider gave: pages by title and address, texts, or why there is nothing.
fn served(block: Block<'_>) -> Option<What> {
    let id = block.tool_use_id?.into_owned();
    let content = block.content.unwrap_or(Value::Null);
    let failed = text(&content, "/type").is_some_and(|kind| kind.ends_with("_error"));
    let piece = |part: &Value| {
        let lines = ["/text", "/title", "/url"].into_iter().filter_map(|field| text(part, field));
        let said = join(lines.map(Cow::Borrowed));
        Cow::Owned(if said.is_empty() { part.to_string() } else { said })
    };
    let output = match &content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => join(parts.iter().map(piece)),
        other => owned(other, "/error_code").unwrap_or_else(|| other.to_string()),
    };
    let verdict = if failed || block.is_error == Some(true) { Verdict::Failure } else { Verdict::Success };
    Some(What::ToolResult { id, verdict, output, diff: None })
}

/// The hunks of an edit as a diff.
fn diff(path: &str, hunks: &Value) -> String {
    let mut whole = format!("--- {path}\n+++ {path}\n");
    for hunk in hunks.as_array().into_iter().flatten() {
        let at = |name: &str| number(hunk, name);
        whole.push_str(&format!(
            "@@ -{},{} +{},{} @@\n",
            at("/oldStart"),
            at("/oldLines"),
            at("/newStart"),
            at("/newLines")
        ));
        for line in
            hunk.get("lines").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            whole.push_str(line);
            whole.push('\n');
        }
    }
    whole
}
