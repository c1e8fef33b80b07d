//! The wire format of OpenAI's responses. Nothing is stored at the provider: what it wants to see again of its reasoning
//! is kept with the calls that follow it. Pure.

use serde_json::{Value, json};

use super::sse::Message;
use super::talk::{Block, Names, Said, arguments, blocks, object};
use super::wire::{Counted, Heard, Options, Piece, Reader, Trouble, text_at};
use crate::model::{Finish, Request};

/// The body of a request.
pub fn body(request: &Request, names: &Names, options: &Options) -> Value {
    let mut input = Vec::new();
    for block in blocks(request, names) {
        match block {
            Block::User(said) => {
                let content: Value = said.into_iter().map(user).collect();
                input.push(json!({ "role": "user", "content": content }));
            }
            Block::Model { text, calls } => {
                // Its reasoning stands before what came of it.
                let mut items = Vec::new();
                for call in calls {
                    items.extend(call.kept);
                    items.push(json!({
                        "type": "function_call", "call_id": call.id, "name": call.name,
                        "arguments": object(&call.input).to_string(),
                    }));
                }
                let first_call = items.iter().position(|item| item["type"] == "function_call").unwrap_or(0);
                if !text.trim().is_empty() {
                    let content = json!([{ "type": "output_text", "text": text }]);
                    items.insert(first_call, json!({ "role": "assistant", "content": content }));
                }
                input.extend(items);
            }
            Block::Results(given) => input.extend(given.into_iter().map(|given| {
                json!({ "type": "function_call_output", "call_id": given.id, "output": given.in_words() })
            })),
        }
    }
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({
                "type": "function", "name": names.sent(&tool.name), "description": tool.description,
                "parameters": tool.schema, "strict": false,
            })
        })
        .collect();
    let mut body = json!({ "model": options.id, "input": input, "stream": true, "store": false });
    if let Some(body) = body.as_object_mut() {
        if !request.prompt.is_empty() {
            body.insert("instructions".to_owned(), request.prompt.as_str().into());
        }
        if !tools.is_empty() {
            body.insert("tools".to_owned(), tools.into());
        }
        if options.reasons {
            body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
        }
        if let Some(effort) = &options.reasoning {
            body.insert("reasoning".to_owned(), json!({ "effort": effort, "summary": "auto" }));
        }
        if let Some(max) = options.max_output {
            body.insert("max_output_tokens".to_owned(), max.into());
        }
    }
    body
}

fn user(said: Said) -> Value {
    match said {
        Said::Text(text) => json!({ "type": "input_text", "text": text }),
        Said::Image { mime, base64 } => {
            json!({ "type": "input_image", "image_url": format!("data:{mime};base64,{base64}") })
        }
    }
}

/// An answer that comes in.
#[derive(Debug, Default)]
pub struct Responses {
    /// Reasoning that belongs to the next call.
    kept: Vec<Value>,
    has_calls: bool,
    refusal: String,
}

impl Reader for Responses {
    fn read(&mut self, message: &Message) -> Result<Heard, Trouble> {
        if message.data.trim() == "[DONE]" {
            return Ok(Heard::default());
        }
        let event = &super::wire::json(&message.data)?;
        let delta = || text_at(event, "/delta").unwrap_or_default().to_owned();
        let pieces = match text_at(event, "/type").unwrap_or(&message.event) {
            "response.output_text.delta" => vec![Piece::Text(delta())],
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                vec![Piece::Reasoning(delta())]
            }
            "response.reasoning_summary_part.added" if event["summary_index"].as_u64() > Some(0) => {
                vec![Piece::Reasoning("\n\n".to_owned())]
            }
            "response.refusal.delta" => {
                self.refusal.push_str(&delta());
                Vec::new()
            }
            "response.output_item.done" => self.item(&event["item"]),
            "response.completed" | "response.incomplete" => return self.over(&event["response"]),
            "response.failed" => {
                return Err(Trouble::Said(event.pointer("/response/error").cloned().unwrap_or_default()));
            }
            "error" => {
                let error = event.get("error").filter(|error| error.is_object()).unwrap_or(event);
                return Err(Trouble::Said(error.clone()));
            }
            _ => Vec::new(),
        };
        Ok(Heard { pieces, is_over: false })
    }

    fn end(&mut self) -> Result<Heard, Trouble> {
        Ok(Heard::default())
    }

    /// It says so at the end alone.
    fn counted(&self) -> Option<Counted> {
        None
    }
}

impl Responses {
    /// Takes a finished item. Reasoning that is not encrypted is dropped: the provider stores nothing, so its id alone would name nothing.
    fn item(&mut self, item: &Value) -> Vec<Piece> {
        match text_at(item, "/type") {
            Some("reasoning") if item["encrypted_content"].is_string() => {
                self.kept.push(json!({
                    "type": "reasoning", "id": item["id"], "summary": item["summary"],
                    "encrypted_content": item["encrypted_content"],
                }));
                Vec::new()
            }
            Some("function_call") => {
                self.has_calls = true;
                vec![Piece::Call {
                    id: text_at(item, "/call_id").map(str::to_owned),
                    name: text_at(item, "/name").unwrap_or_default().to_owned(),
                    input: arguments(text_at(item, "/arguments").unwrap_or_default()),
                    kept: std::mem::take(&mut self.kept),
                }]
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn over(&mut self, response: &Value) -> Result<Heard, Trouble> {
        let why = text_at(response, "/incomplete_details/reason");
        if why == Some("content_filter") || !self.refusal.is_empty() {
            return Err(Trouble::refused(&self.refusal));
        }
        let finish = match (why, self.has_calls) {
            (Some(_), _) => Finish::Length,
            (None, true) => Finish::ToolCalls,
            (None, false) => Finish::Stop,
        };
        let number = |at: &str| response.pointer(at).and_then(Value::as_u64).unwrap_or(0);
        let counted = Counted {
            input: number("/usage/input_tokens"),
            output: number("/usage/output_tokens"),
            cached: number("/usage/input_tokens_details/cached_tokens"),
            cache_written: number("/usage/input_tokens_details/cache_write_tokens"),
        };
        let usage = response.get("usage").filter(|usage| usage.is_object()).map(|_| Piece::Usage(counted));
        Ok(Heard { pieces: usage.into_iter().chain([Piece::Finish(finish)]).collect(), is_over: true })
    }
}
