//! The wire format of OpenAI's chat completions, which most other servers speak too. Pure.

use serde_json::{Map, Value, json};

use super::sse::Message;
use super::talk::{Block, Names, Said, arguments, blocks, object};
use super::wire::{Counted, Heard, Options, Piece, Reader, Trouble, text_at};
use crate::model::{Finish, Request};

/// The body of a request.
pub fn body(request: &Request, names: &Names, options: &Options) -> Value {
    let mut messages = Vec::new();
    if !request.prompt.is_empty() {
        messages.push(json!({ "role": "system", "content": request.prompt }));
    }
    for block in blocks(request, names) {
        match block {
            Block::User(said) => messages.push(json!({ "role": "user", "content": user(said) })),
            Block::Model { text, calls } => {
                // With calls alone there is no content; an empty one is refused by some.
                let content = if text.is_empty() { Value::Null } else { text.into() };
                let mut message = json!({ "role": "assistant", "content": content });
                // Servers that show their reasoning want to see it again with the calls that it led to.
                for (field, thought) in calls.iter().flat_map(|call| &call.kept).filter_map(thought) {
                    if let Some(message) = message.as_object_mut() {
                        message.insert(field.to_owned(), thought);
                    }
                }
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|call| {
                        let function =
                            json!({ "name": call.name, "arguments": object(&call.input).to_string() });
                        json!({ "id": call.id, "type": "function", "function": function })
                    })
                    .collect();
                if let (false, Some(message)) = (calls.is_empty(), message.as_object_mut()) {
                    message.insert("tool_calls".to_owned(), calls.into());
                }
                messages.push(message);
            }
            Block::Results(given) => messages.extend(given.into_iter().map(
                |given| json!({ "role": "tool", "tool_call_id": given.id, "content": given.in_words() }),
            )),
        }
    }
    let mut body = json!({
        "model": options.id, "messages": messages, "stream": true,
        "stream_options": { "include_usage": true },
    });
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            let function = json!({
                "name": names.sent(&tool.name), "description": tool.description, "parameters": tool.schema,
            });
            json!({ "type": "function", "function": function })
        })
        .collect();
    if let Some(body) = body.as_object_mut() {
        if !tools.is_empty() {
            body.insert("tools".to_owned(), tools.into());
        }
        if let Some(effort) = &options.reasoning {
            body.insert("reasoning_effort".to_owned(), effort.as_str().into());
        }
        if let Some(max) = options.max_output {
            body.insert("max_completion_tokens".to_owned(), max.into());
        }
    }
    body
}

/// The fields that reasoning comes in.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Reasoning as it was kept: its field, and its text.
fn thought(kept: &Value) -> Option<(&'static str, Value)> {
    REASONING.into_iter().find_map(|field| Some((field, kept.get(field)?.clone())))
}

/// Text alone is a string, which every server understands.
fn user(said: Vec<Said>) -> Value {
    if let Some(texts) = said.iter().map(Said::text).collect::<Option<Vec<&str>>>() {
        return texts.join("\n\n").into();
    }
    let part = |said: Said| match said {
        Said::Text(text) => json!({ "type": "text", "text": text }),
        Said::Image { mime, base64 } => {
            json!({ "type": "image_url", "image_url": { "url": format!("data:{mime};base64,{base64}") } })
        }
    };
    said.into_iter().map(part).collect()
}

/// An answer that comes in.
#[derive(Debug, Default)]
pub struct Chat {
    calls: Vec<Begun>,
    finish: Option<Finish>,
    usage: Option<Counted>,
    refusal: String,
    /// What it thought, and the field that it came in.
    reasoning: Option<(&'static str, String)>,
}

/// A call whose arguments are still coming.
#[derive(Debug, Default)]
struct Begun {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Reader for Chat {
    fn read(&mut self, message: &Message) -> Result<Heard, Trouble> {
        if message.data.trim() == "[DONE]" {
            self.finish.get_or_insert(Finish::Stop);
            return self.end();
        }
        let chunk: Value = super::wire::json(&message.data)?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(Trouble::Said(error.clone()));
        }
        // Read before the choice: the chunk with the usage may have no choices.
        if let Some(usage) = chunk.get("usage").and_then(Value::as_object) {
            self.usage = Some(count(usage));
        }
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(Heard::default()) };
        let mut pieces = Vec::new();
        if let Some(delta) = choice.get("delta") {
            let reasoning = REASONING
                .into_iter()
                .find_map(|field| Some((field, delta.get(field)?.as_str().filter(|text| !text.is_empty())?)));
            if let Some((field, text)) = reasoning {
                self.reasoning.get_or_insert_with(|| (field, String::new())).1.push_str(text);
                pieces.push(Piece::Reasoning(text.to_owned()));
            }
            pieces.extend(text_at(delta, "/content").map(|text| Piece::Text(text.to_owned())));
            self.refusal.push_str(text_at(delta, "/refusal").unwrap_or_default());
            for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                self.call(call);
            }
        }
        match choice.get("finish_reason").and_then(Value::as_str) {
            None => {}
            Some("length") => self.finish = Some(Finish::Length),
            Some("tool_calls" | "function_call") => self.finish = Some(Finish::ToolCalls),
            Some("content_filter") => return Err(Trouble::refused(&self.refusal)),
            Some(_) => self.finish = Some(Finish::Stop),
        }
        Ok(Heard { pieces, is_over: false })
    }

    /// The usage comes behind the reason to stop, so the answer is over only with its stream.
    fn end(&mut self) -> Result<Heard, Trouble> {
        let Some(finish) = self.finish.take() else { return Ok(Heard::default()) };
        if !self.refusal.is_empty() {
            return Err(Trouble::refused(&self.refusal));
        }
        let calls = std::mem::take(&mut self.calls);
        let mut kept = self.reasoning.take().map(|(field, text)| json!({ field: text }));
        let mut pieces: Vec<Piece> = calls
            .into_iter()
            .map(|call| Piece::Call {
                id: Some(call.id).filter(|id| !id.is_empty()),
                name: call.name,
                input: arguments(&call.arguments),
                kept: kept.take().into_iter().collect(),
            })
            .collect();
        pieces.extend(self.usage.take().map(Piece::Usage));
        pieces.push(Piece::Finish(finish));
        Ok(Heard { pieces, is_over: true })
    }

    fn counted(&self) -> Option<Counted> {
        self.usage
    }
}

impl Chat {
    fn call(&mut self, delta: &Value) {
        let index = delta.get("index").and_then(Value::as_u64);
        let id = text_at(delta, "/id").unwrap_or_default();
        let known = match index {
            // Some servers number every call 0; one with another id is another call.
            Some(_) => self.calls.iter().rposition(|call| {
                call.index == index && (id.is_empty() || call.id.is_empty() || call.id == id)
            }),
            // Without a number, one with a new id is a new call.
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().position(|call| call.id == id),
        };
        let at = known.unwrap_or_else(|| {
            self.calls.push(Begun { index, ..Begun::default() });
            self.calls.len() - 1
        });
        let Some(call) = self.calls.get_mut(at) else { return };
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        call.name.push_str(text_at(delta, "/function/name").unwrap_or_default());
        match delta.pointer("/function/arguments") {
            Some(Value::String(text)) => call.arguments.push_str(text),
            // Some servers send them as an object.
            Some(Value::Object(whole)) => call.arguments = Value::Object(whole.clone()).to_string(),
            Some(_) | None => {}
        }
    }
}

fn count(usage: &Map<String, Value>) -> Counted {
    let usage = Value::Object(usage.clone());
    let number = |at: &str| usage.pointer(at).and_then(Value::as_u64).unwrap_or(0);
    Counted {
        input: number("/prompt_tokens"),
        output: number("/completion_tokens"),
        cached: number("/prompt_tokens_details/cached_tokens"),
        cache_written: number("/prompt_tokens_details/cache_write_tokens"),
    }
}
