//! The wire format of Gemini's generateContent. Pure.

use serde_json::{Map, Value, json};

use super::sse::Message;
use super::talk::{Block, Names, Said, blocks, object};
use super::wire::{Counted, Heard, Options, Piece, Reader, Trouble, text_at};
use crate::model::{Finish, Request};

/// In place of a signature that another model's call does not have; these models refuse a call without one.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The body of a request.
pub fn body(request: &Request, names: &Names, options: &Options) -> Value {
    let mut body = json!({ "contents": contents(request, names, options) });
    let Some(fields) = body.as_object_mut() else { return body };
    if !request.prompt.is_empty() {
        fields.insert("systemInstruction".to_owned(), json!({ "parts": [{ "text": request.prompt }] }));
    }
    if !request.tools.is_empty() {
        let declared: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                let name = names.sent(&tool.name);
                let mut declared = json!({ "name": name, "description": tool.description });
                // An object without properties is refused, and no parameters mean the same.
                let schema = &tool.schema;
                let has_input = schema["properties"].as_object().is_some_and(|some| !some.is_empty());
                if let (true, Some(declared)) = (has_input, declared.as_object_mut()) {
                    declared.insert("parameters".to_owned(), fitting(schema));
                }
                declared
            })
            .collect();
        fields.insert("tools".to_owned(), json!([{ "functionDeclarations": declared }]));
    }
    let mut config = Map::new();
    if options.reasons {
        let mut thinking = json!({ "includeThoughts": true });
        if let (Some(effort), Some(fields)) = (&options.reasoning, thinking.as_object_mut()) {
            // The second generation is told how many tokens, later ones how hard.
            match generation(&options.id) {
                Some(0..=2) => fields.insert("thinkingBudget".to_owned(), budget(effort).into()),
                Some(_) | None => fields.insert("thinkingLevel".to_owned(), effort.as_str().into()),
            };
        }
        config.insert("thinkingConfig".to_owned(), thinking);
    }
    if let Some(max) = options.max_output {
        config.insert("maxOutputTokens".to_owned(), max.into());
    }
    if !config.is_empty() {
        fields.insert("generationConfig".to_owned(), config.into());
    }
    body
}

/// The conversation.
fn contents(request: &Request, names: &Names, options: &Options) -> Vec<Value> {
    let needs_signature = generation(&options.id).is_some_and(|generation| generation >= 3);
    let mut contents = Vec::new();
    for block in blocks(request, names) {
        match block {
            Block::User(said) => {
                let parts: Value = said.into_iter().map(user).collect();
                contents.push(json!({ "role": "user", "parts": parts }));
            }
            Block::Model { text, calls } => {
                let mut parts = Vec::new();
                if !text.trim().is_empty() {
                    parts.push(json!({ "text": text }));
                }
                for (at, call) in calls.into_iter().enumerate() {
                    let function = json!({ "name": call.name, "args": object(&call.input) });
                    let mut part = json!({ "functionCall": function });
                    let none = || (needs_signature && at == 0).then(|| NO_SIGNATURE.into());
                    let signature = call.kept.into_iter().next().or_else(none);
                    if let (Some(part), Some(signature)) = (part.as_object_mut(), signature) {
                        part.insert("thoughtSignature".to_owned(), signature);
                    }
                    parts.push(part);
                }
                contents.push(json!({ "role": "model", "parts": parts }));
            }
            Block::Results(given) => {
                let part = |given: super::talk::Given| {
                    let key = if given.is_error { "error" } else { "output" };
                    let response = json!({ key: given.text });
                    json!({ "functionResponse": { "name": given.name, "response": response } })
                };
                let parts: Value = given.into_iter().map(part).collect();
                contents.push(json!({ "role": "user", "parts": parts }));
            }
        }
    }
    contents
}

/// Of `gemini-3.1-pro`: 3.
fn generation(id: &str) -> Option<u32> {
    let number = id.strip_prefix("gemini-")?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn budget(effort: &str) -> u64 {
    match effort {
        "low" => 1_024,
        "high" => 24_576,
        _ => 8_192,
    }
}

fn user(said: Said) -> Value {
    match said {
        Said::Text(text) => json!({ "text": text }),
        Said::Image { mime, base64 } => json!({ "inlineData": { "mimeType": mime, "data": base64 } }),
    }
}

/// The words of a JSON schema that this API knows. It refuses a request with any other.
const KNOWN: &[&str] = &[
    "type",
    "title",
    "description",
    "properties",
    "required",
    "items",
    "enum",
    "nullable",
    "anyOf",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
];

/// A schema with only what this API understands: what is left out is checked by the tool itself.
pub fn fitting(schema: &Value) -> Value {
    fit_part(schema, schema, 0)
}

/// How deep references are followed: a schema may contain itself.
const DEPTH_MAX: usize = 16;

fn fit_part(schema: &Value, whole: &Value, depth: usize) -> Value {
    let any = || json!({ "type": "string" });
    if depth > DEPTH_MAX {
        return any();
    }
    let fitting = |schema: &Value| fit_part(schema, whole, depth + 1);
    // It knows no references: what they name stands in their place.
    if let Some(name) = text_at(schema, "/$ref") {
        return name.strip_prefix('#').and_then(|at| whole.pointer(at)).map_or_else(any, fitting);
    }
    let Value::Object(schema) = schema else { return any() };
    let mut fit = Map::new();
    for (word, value) in schema {
        match (word.as_str(), value) {
            ("type", Value::Array(types)) => {
                let named = types.iter().filter_map(Value::as_str);
                if let Some(first) = named.clone().find(|name| *name != "null") {
                    fit.insert("type".to_owned(), first.into());
                }
                if named.into_iter().any(|name| name == "null") {
                    fit.insert("nullable".to_owned(), true.into());
                }
            }
            ("properties", Value::Object(properties)) => {
                let properties: Map<String, Value> =
                    properties.iter().map(|(name, schema)| (name.clone(), fitting(schema))).collect();
                fit.insert("properties".to_owned(), properties.into());
            }
            ("items", value) => {
                fit.insert("items".to_owned(), fitting(value));
            }
            ("anyOf" | "oneOf", Value::Array(choices)) => {
                fit.insert("anyOf".to_owned(), choices.iter().map(fitting).collect());
            }
            ("const", Value::String(only)) => {
                fit.insert("enum".to_owned(), json!([only]));
            }
            // Only strings may be listed.
            ("enum", Value::Array(words)) if !words.iter().all(Value::is_string) => {}
            (word, value) if KNOWN.contains(&word) => {
                fit.insert(word.to_owned(), value.clone());
            }
            _ => {}
        }
    }
    // A list must say of what, and everything must have a type.
    if fit.get("type").and_then(Value::as_str) == Some("array") {
        fit.entry("items").or_insert_with(any);
    }
    if !fit.contains_key("type") && !fit.contains_key("anyOf") {
        let is_object = fit.contains_key("properties");
        fit.insert("type".to_owned(), if is_object { "object" } else { "string" }.into());
    }
    fit.into()
}

/// An answer that comes in.
#[derive(Debug, Default)]
pub struct Gemini {
    finish: Option<Finish>,
    has_calls: bool,
    counted: Option<Counted>,
}

impl Reader for Gemini {
    fn read(&mut self, message: &Message) -> Result<Heard, Trouble> {
        let chunk = super::wire::json(&message.data)?;
        if let Some(error) = chunk.get("error") {
            return Err(Trouble::Said(error.clone()));
        }
        if let Some(why) = text_at(&chunk, "/promptFeedback/blockReason") {
            return Err(Trouble::refused(why));
        }
        if let Some(usage) = chunk.get("usageMetadata") {
            let number = |at: &str| usage[at].as_u64().unwrap_or(0);
            self.counted = Some(Counted {
                input: number("promptTokenCount"),
                output: number("candidatesTokenCount").saturating_add(number("thoughtsTokenCount")),
                cached: number("cachedContentTokenCount"),
                cache_written: 0,
            });
        }
        let parts = chunk.pointer("/candidates/0/content/parts").and_then(Value::as_array);
        let pieces = parts.into_iter().flatten().filter_map(|part| self.part(part)).collect();
        match text_at(&chunk, "/candidates/0/finishReason") {
            None => {}
            Some("STOP") => self.finish = Some(Finish::Stop),
            Some("MAX_TOKENS") => self.finish = Some(Finish::Length),
            Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS") => {
                return Err(Trouble::NotProtocol("it wrote a tool call that cannot be read".to_owned()));
            }
            Some(why) => return Err(Trouble::refused(why)),
        }
        Ok(Heard { pieces, is_over: false })
    }

    /// Nothing but the end of the stream says that the answer is over.
    fn end(&mut self) -> Result<Heard, Trouble> {
        let Some(finish) = self.finish.take() else { return Ok(Heard::default()) };
        let finish = if self.has_calls && finish == Finish::Stop { Finish::ToolCalls } else { finish };
        let usage = self.counted.take().map(Piece::Usage);
        Ok(Heard { pieces: usage.into_iter().chain([Piece::Finish(finish)]).collect(), is_over: true })
    }

    fn counted(&self) -> Option<Counted> {
        self.counted
    }
}

impl Gemini {
    fn part(&mut self, part: &Value) -> Option<Piece> {
        if let Some(call) = part.get("functionCall") {
            self.has_calls = true;
            let name = text_at(call, "/name").unwrap_or_default().to_owned();
            let input = call.get("args").cloned().unwrap_or_else(|| json!({}));
            let kept = part.get("thoughtSignature").cloned().into_iter().collect();
            let id = text_at(call, "/id").map(str::to_owned);
            return Some(Piece::Call { id, name, input, kept });
        }
        let text = text_at(part, "/text")?.to_owned();
        let is_thought = part["thought"].as_bool() == Some(true);
        Some(if is_thought { Piece::Reasoning(text) } else { Piece::Text(text) })
    }
}
