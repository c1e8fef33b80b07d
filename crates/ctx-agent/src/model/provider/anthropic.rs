//! The wire format of Anthropic's messages. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::sse::Message;
use super::talk::{Block, Names, Said, arguments, blocks, object};
use super::wire::{Counted, Heard, Options, Piece, Reader, Trouble, text_at};
use crate::model::{Finish, Request};

/// This API must be told how long an answer may be; of models whose limit is not known, this.
const OUTPUT_TOKENS: u64 = 8_192;

/// The body of a request. What comes again in the next request is marked to be cached: the prompt with the tools before it,
/// and the conversation up to its last two turns of the user.
pub fn body(request: &Request, names: &Names, options: &Options) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    // A turn that made its calls without thinking cannot go on with it: the API wants to see the beginning of that turn.
    let mut goes_on_without_thinking = false;
    for block in blocks(request, names) {
        goes_on_without_thinking = match &block {
            Block::User(_) => false,
            Block::Model { calls, .. } => calls.first().is_some_and(|call| call.kept.is_empty()),
            Block::Results(_) => goes_on_without_thinking,
        };
        let (role, content) = match block {
            Block::User(said) => ("user", said.into_iter().map(user).collect()),
            Block::Model { text, calls } => ("assistant", assistant(&text, calls)),
            Block::Results(given) => {
                let result = |given: super::talk::Given| {
                    json!({
                        "type": "tool_result", "tool_use_id": given.id, "content": given.text,
                        "is_error": given.is_error,
                    })
                };
                ("user", given.into_iter().map(result).collect::<Vec<_>>())
            }
        };
        match messages.last_mut() {
            // Results and what the user says next are one turn.
            Some(last) if last["role"] == role => {
                if let Some(list) = last["content"].as_array_mut() {
                    list.extend(content);
                }
            }
            Some(_) | None => messages.push(json!({ "role": role, "content": content })),
        }
    }
    for message in messages.iter_mut().rev().filter(|message| message["role"] == "user").take(2) {
        if let Some(last) = message["content"].as_array_mut().and_then(|content| content.last_mut()) {
            mark(last);
        }
    }
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            let name = names.sent(&tool.name);
            json!({ "name": name, "description": tool.description, "input_schema": tool.schema })
        })
        .collect();
    if let (true, Some(last)) = (request.prompt.is_empty(), tools.last_mut()) {
        mark(last);
    }
    let max = options.max_output.or(options.output).unwrap_or(OUTPUT_TOKENS);
    let mut body = json!({ "model": options.id, "max_tokens": max, "messages": messages, "stream": true });
    if let Some(body) = body.as_object_mut() {
        if !request.prompt.is_empty() {
            let mut system = json!({ "type": "text", "text": request.prompt });
            mark(&mut system);
            body.insert("system".to_owned(), json!([system]));
        }
        if !tools.is_empty() {
            body.insert("tools".to_owned(), tools.into());
        }
        if let Some(effort) = options.reasoning.as_deref().filter(|_| !goes_on_without_thinking) {
            think(body, effort, max, options);
        }
    }
    body
}

/// Says how to think. Its text is asked for: later models leave it out otherwise.
fn think(body: &mut Map<String, Value>, effort: &str, max: u64, options: &Options) {
    match (options.thinks_by_budget, budget(effort, max)) {
        (true, Some(tokens)) => {
            body.insert("thinking".to_owned(), json!({ "type": "enabled", "budget_tokens": tokens }));
        }
        (true, None) => {}
        (false, _) => {
            body.insert("thinking".to_owned(), json!({ "type": "adaptive", "display": "summarized" }));
            body.insert("output_config".to_owned(), json!({ "effort": effort }));
        }
    }
}

fn mark(block: &mut Value) {
    if let Some(block) = block.as_object_mut() {
        block.insert("cache_control".to_owned(), json!({ "type": "ephemeral" }));
    }
}

/// The fewest tokens to think with that the API takes.
const BUDGET_MIN: u64 = 1_024;

/// Tokens to think with: never the whole answer. None: the answer has no room for thinking.
fn budget(effort: &str, max: u64) -> Option<u64> {
    let wanted = match effort {
        "low" => 2_048,
        "high" => 24_576,
        _ => 8_192,
    };
    (max > BUDGET_MIN).then(|| wanted.min(max / 2).max(BUDGET_MIN))
}

fn user(said: Said) -> Value {
    match said {
        Said::Text(text) => json!({ "type": "text", "text": text }),
        Said::Image { mime, base64 } => {
            json!({ "type": "image", "source": { "type": "base64", "media_type": mime, "data": base64 } })
        }
    }
}

/// Thinking stands before the call that it led to, as it was signed; the text behind the first of it.
fn assistant(text: &str, calls: Vec<super::talk::Call>) -> Vec<Value> {
    // Space at the end of what the model said is refused, and so is text of nothing else.
    let mut text = Some(text.trim_end())
        .filter(|text| !text.is_empty())
        .map(|text| json!({ "type": "text", "text": text }));
    let mut content = Vec::new();
    for call in calls {
        content.extend(call.kept);
        content.extend(text.take());
        content.push(
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": object(&call.input) }),
        );
    }
    content.extend(text);
    content
}

/// An answer that comes in.
#[derive(Debug, Default)]
pub struct Messages {
    open: BTreeMap<u64, Open>,
    /// Thinking that belongs to the first call.
    kept: Vec<Value>,
    counted: Counted,
    finish: Option<Finish>,
}

/// A block that is not complete yet.
#[derive(Debug)]
enum Open {
    Text,
    Thinking { text: String, signature: String },
    Redacted { data: Value },
    Tool { id: String, name: String, input: String },
}

impl Reader for Messages {
    fn read(&mut self, message: &Message) -> Result<Heard, Trouble> {
        let event = &super::wire::json(&message.data)?;
        let index = event["index"].as_u64().unwrap_or(0);
        let pieces = match text_at(event, "/type").unwrap_or(&message.event) {
            "message_start" => {
                self.count(event.pointer("/message/usage").unwrap_or(&Value::Null));
                Vec::new()
            }
            "content_block_start" => self.begin(index, &event["content_block"]),
            "content_block_delta" => self.delta(index, &event["delta"]),
            "content_block_stop" => self.stop(index),
            "message_delta" => {
                self.count(&event["usage"]);
                match text_at(event, "/delta/stop_reason") {
                    Some("refusal") => return Err(Trouble::refused("")),
                    Some("tool_use") => self.finish = Some(Finish::ToolCalls),
                    Some("max_tokens" | "model_context_window_exceeded") => {
                        self.finish = Some(Finish::Length);
                    }
                    Some(_) => self.finish = Some(Finish::Stop),
                    None => {}
                }
                Vec::new()
            }
            "message_stop" => {
                let finish = self.finish.unwrap_or(Finish::Stop);
                let pieces = vec![Piece::Usage(self.counted), Piece::Finish(finish)];
                return Ok(Heard { pieces, is_over: true });
            }
            "error" => return Err(Trouble::Said(event["error"].clone())),
            _ => Vec::new(),
        };
        Ok(Heard { pieces, is_over: false })
    }

    fn end(&mut self) -> Result<Heard, Trouble> {
        Ok(Heard::default())
    }

    fn counted(&self) -> Option<Counted> {
        (self.counted != Counted::default()).then_some(self.counted)
    }
}

impl Messages {
    fn begin(&mut self, index: u64, block: &Value) -> Vec<Piece> {
        let text = |at: &str| text_at(block, at).unwrap_or_default().to_owned();
        let (open, piece) = match text_at(block, "/type") {
            Some("text") => (Open::Text, Some(Piece::Text(text("/text")))),
            Some("thinking") => {
                let (text, signature) = (text("/thinking"), text("/signature"));
                (Open::Thinking { text: text.clone(), signature }, Some(Piece::Reasoning(text)))
            }
            Some("redacted_thinking") => (Open::Redacted { data: block["data"].clone() }, None),
            Some("tool_use") => {
                let input = block["input"].as_object().filter(|input| !input.is_empty());
                let input = input.map(|input| Value::Object(input.clone()).to_string()).unwrap_or_default();
                (Open::Tool { id: text("/id"), name: text("/name"), input }, None)
            }
            Some(_) | None => return Vec::new(),
        };
        self.open.insert(index, open);
        piece.into_iter().collect()
    }

    fn delta(&mut self, index: u64, delta: &Value) -> Vec<Piece> {
        let text = |at: &str| text_at(delta, at).unwrap_or_default();
        match (text_at(delta, "/type"), self.open.get_mut(&index)) {
            (Some("text_delta"), _) => vec![Piece::Text(text("/text").to_owned())],
            (Some("thinking_delta"), Some(Open::Thinking { text: thought, .. })) => {
                thought.push_str(text("/thinking"));
                vec![Piece::Reasoning(text("/thinking").to_owned())]
            }
            (Some("signature_delta"), Some(Open::Thinking { signature, .. })) => {
                signature.push_str(text("/signature"));
                Vec::new()
            }
            (Some("input_json_delta"), Some(Open::Tool { input, .. })) => {
                input.push_str(text("/partial_json"));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Closes a block. Thinking without a signature is not kept, because the API refuses it when it is sent again.
    fn stop(&mut self, index: u64) -> Vec<Piece> {
        match self.open.remove(&index) {
            Some(Open::Thinking { text, signature }) if !signature.is_empty() => {
                self.kept.push(json!({ "type": "thinking", "thinking": text, "signature": signature }));
                Vec::new()
            }
            Some(Open::Redacted { data }) => {
                self.kept.push(json!({ "type": "redacted_thinking", "data": data }));
                Vec::new()
            }
            Some(Open::Tool { id, name, input }) => {
                let (input, kept) = (arguments(&input), std::mem::take(&mut self.kept));
                vec![Piece::Call { id: Some(id), name, input, kept }]
            }
            Some(Open::Text | Open::Thinking { .. }) | None => Vec::new(),
        }
    }

    /// Later numbers are those of the whole answer so far. What was read from a cache is counted apart from the rest.
    fn count(&mut self, usage: &Value) {
        let number = |at: &str| usage[at].as_u64();
        if let Some(fresh) = number("input_tokens") {
            let cached = number("cache_read_input_tokens").unwrap_or(self.counted.cached);
            let cache_written = number("cache_creation_input_tokens").unwrap_or(self.counted.cache_written);
            let input = fresh.saturating_add(cached).saturating_add(cache_written);
            self.counted = Counted { input, cached, cache_written, ..self.counted };
        }
        self.counted.output = number("output_tokens").unwrap_or(self.counted.output);
    }
}
