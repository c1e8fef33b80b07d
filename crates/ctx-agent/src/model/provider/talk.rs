//! The conversation in the form that every provider accepts: it begins with the user, and a model's calls are followed by
//! what each of them gave. Pure.
//!
//! The pack sees to most of this; here it is made sure, because a provider refuses the whole request otherwise.

use std::collections::{BTreeSet, HashMap};

use ctx_session::Ulid;
use ctx_session::conversation::{Part, Role};
use ctx_session::image::Image;
use ctx_session::record::ToolStatus;
use serde_json::Value;

use crate::model::{Request, ToolSpec, Turn};

/// What one side says before the other one does.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    User(Vec<Said>),
    Model {
        text: String,
        calls: Vec<Call>,
    },
    /// One for each call of the block before, in their order.
    Results(Vec<Given>),
}

/// A piece of what the user says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Text(String),
    Image { mime: String, base64: String },
}

/// A tool call of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: Ulid,
    /// As the provider knows the tool.
    pub name: String,
    pub input: Value,
    /// What this very model wants to see again with the call.
    pub kept: Vec<Value>,
}

impl Said {
    /// Its text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Said::Text(text) => Some(text),
            Said::Image { .. } => None,
        }
    }
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    pub id: Ulid,
    pub name: String,
    pub text: String,
    pub is_error: bool,
}

impl Given {
    /// For a provider that has no place to say that it is an error.
    pub fn in_words(&self) -> String {
        if self.is_error { format!("error: {}", self.text) } else { self.text.clone() }
    }
}

/// The blocks of a request.
pub fn blocks(request: &Request, names: &Names) -> Vec<Block> {
    let mut results: HashMap<Ulid, (ToolStatus, &str)> = HashMap::new();
    for part in request.messages.iter().flat_map(|turn| &turn.content) {
        if let Part::ToolResult { call_id, status, text } = part {
            results.entry(*call_id).or_insert((*status, text));
        }
    }
    let mut blocks = Vec::new();
    for turn in &request.messages {
        match turn.role {
            Role::User | Role::Subagent => {
                say(&mut blocks, Said::Text(turn.text()));
                for part in &turn.content {
                    if let Part::Image(image) = part {
                        say(&mut blocks, shown(image, request));
                    }
                }
            }
            Role::System => say(&mut blocks, Said::Text(format!("[note]\n{}", turn.text()))),
            Role::Assistant => answer(&mut blocks, turn, request, names, &results),
            // Each stands behind its call already.
            Role::Tool => {}
        }
    }
    if !matches!(blocks.first(), Some(Block::User(_))) {
        let removed = "(the beginning of the conversation was removed)".to_owned();
        blocks.insert(0, Block::User(vec![Said::Text(removed)]));
    }
    blocks
}

fn say(blocks: &mut Vec<Block>, piece: Said) {
    if piece.text().is_some_and(|text| text.trim().is_empty()) {
        return;
    }
    match blocks.last_mut() {
        Some(Block::User(said)) => said.push(piece),
        Some(_) | None => blocks.push(Block::User(vec![piece])),
    }
}

/// An image, or what is said in its place: the model is not made to see, or its bytes are gone.
fn shown(image: &Image, request: &Request) -> Said {
    match request.images.get(&image.sha256) {
        Some(base64) => Said::Image { mime: image.mime.clone(), base64: base64.clone() },
        None => Said::Text(format!("{} was here, which you cannot be shown", image.in_words())),
    }
}

fn answer(
    blocks: &mut Vec<Block>,
    turn: &Turn,
    request: &Request,
    names: &Names,
    results: &HashMap<Ulid, (ToolStatus, &str)>,
) {
    let mut calls = Vec::new();
    for part in &turn.content {
        if let Part::ToolCall { call_id, name, input, provider } = part {
            let kept = provider.as_ref().map(|kept| kept_for(&request.model, kept)).unwrap_or_default();
            calls.push(Call { id: *call_id, name: names.sent(name), input: input.clone(), kept });
        }
    }
    let text = turn.text();
    if text.trim().is_empty() && calls.is_empty() {
        return;
    }
    let given = calls.iter().map(|call| {
        let lost = (ToolStatus::Interrupted, "the run ended before this tool did");
        let (status, text) = results.get(&call.id).copied().unwrap_or(lost);
        let text = if text.trim().is_empty() { "(no output)" } else { text };
        let is_error = status != ToolStatus::Ok;
        Given { id: call.id, name: call.name.clone(), text: text.to_owned(), is_error }
    });
    let given: Vec<Given> = given.collect();
    blocks.push(Block::Model { text, calls });
    if !given.is_empty() {
        blocks.push(Block::Results(given));
    }
}

/// Wraps what a model wants to see again, so that no other model is sent it.
pub fn keep(model: &str, items: Vec<Value>) -> Option<Value> {
    (!items.is_empty()).then(|| serde_json::json!({ "model": model, "items": items }))
}

fn kept_for(model: &str, kept: &Value) -> Vec<Value> {
    let is_own = kept.get("model").and_then(Value::as_str) == Some(model);
    let items = kept.get("items").and_then(Value::as_array).filter(|_| is_own);
    items.cloned().unwrap_or_default()
}

/// The longest name of a tool that all providers take.
const NAME_CHARS_MAX: usize = 64;

/// The tools of a request under names that providers accept.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// As sent, and ours.
    pairs: Vec<(String, String)>,
}

impl Names {
    /// Fits the names of tools. Names that become equal are numbered, so that each name that is sent means one tool.
    pub fn of(tools: &[ToolSpec]) -> Names {
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let mut pairs = Vec::new();
        for tool in tools {
            let plain = fitting(&tool.name);
            let mut sent = plain.clone();
            let mut number = 2;
            while !taken.insert(sent.clone()) {
                let tail = format!("_{number}");
                let room = NAME_CHARS_MAX.saturating_sub(tail.len());
                sent = plain.chars().take(room).collect::<String>() + &tail;
                number += 1;
            }
            pairs.push((sent, tool.name.clone()));
        }
        Names { pairs }
    }

    /// Under which name a tool is sent, also one that is not offered any more.
    pub fn sent(&self, name: &str) -> String {
        let found = self.pairs.iter().find(|(_, ours)| ours == name);
        found.map_or_else(|| fitting(name), |(sent, _)| sent.clone())
    }

    /// Which tool a name means; one that nobody offered stays as it is, and the loop says so.
    pub fn ours(&self, sent: &str) -> String {
        let found = self.pairs.iter().find(|(known, _)| known == sent);
        found.map_or_else(|| sent.to_owned(), |(_, ours)| ours.clone())
    }
}

/// Letters, digits, `_` and `-`, beginning with a letter or `_`.
fn fitting(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let mut text: String = name.chars().map(fits).collect();
    if !text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        text.insert(0, '_');
    }
    text.chars().take(NAME_CHARS_MAX).collect()
}

/// The arguments of a call out of the text a model wrote: those that are no JSON stay text, and the tool says so to the model.
pub fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The arguments of an earlier call: providers take objects only.
pub fn object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        other => serde_json::json!({ "malformed": other }),
    }
}
