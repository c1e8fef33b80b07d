//! Rules of the wire formats that are easily broken: where reasoning stands, how it is asked for, servers that number calls in
//! their own way, schemas, and what an answer that breaks off has cost.

use ctx_agent::model::provider::Format;
use ctx_agent::model::provider::sse::Message;
use ctx_agent::model::provider::talk::Names;
use ctx_agent::model::provider::wire::{Counted, Options, Piece};
use ctx_agent::model::{Event, Request, Turn};
use ctx_session::Ulid;
use ctx_session::conversation::{Part, Role};
use ctx_session::record::ToolStatus;
use serde_json::{Value, json};
use testkit::models::{End, ModelServer, Part as Say, Reply, Wire};

use crate::remote::{heard, models, request, setup, user};
use crate::support::Root;

fn body(format: Format, request: &Request, options: Options) -> Value {
    format.body(request, &Names::of(&request.tools), &options)
}

fn read(format: Format, events: &[Value]) -> Vec<Piece> {
    let mut reader = format.reader();
    let mut pieces = Vec::new();
    for event in events {
        let message = Message { event: String::new(), data: event.to_string() };
        pieces.extend(reader.read(&message).unwrap().pieces);
    }
    pieces.extend(reader.end().unwrap().pieces);
    pieces
}

fn call(id: u128, kept: Option<Value>) -> Part {
    let provider = kept.map(|item| json!({ "model": "p/test-model", "items": [item] }));
    Part::ToolCall { call_id: Ulid(id), name: "fs.read".to_owned(), input: json!({}), provider }
}

/// A turn that called tools, each with what its provider wants to see again.
fn after_calls(kept: &[Option<Value>]) -> Request {
    let calls = kept.iter().zip(1..).map(|(kept, id)| call(id, kept.clone()));
    let text = Part::Text { text: "Let me look. ".to_owned() };
    let result =
        |id| Part::ToolResult { call_id: Ulid(id), status: ToolStatus::Ok, text: "content".to_owned() };
    request(vec![
        user("hi"),
        Turn { role: Role::Assistant, content: [text].into_iter().chain(calls).collect() },
        Turn { role: Role::Tool, content: (1..=kept.len() as u128).map(result).collect() },
    ])
}

fn thought(text: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": "sig" })
}

fn hard(thinks_by_budget: bool, max_output: Option<u64>) -> Options {
    Options { reasoning: Some("high".to_owned()), thinks_by_budget, max_output, ..Options::default() }
}

#[test]
fn thinking_stands_before_the_call_that_it_led_to() {
    let request = after_calls(&[Some(thought("first")), Some(thought("then"))]);
    let sent = body(Format::Messages, &request, hard(false, None));
    let kinds: Vec<&str> = sent["messages"][1]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "thinking", "tool_use"]);
    assert_eq!(sent["messages"][1]["content"][1]["text"], "Let me look.", "no space at its end");
    assert_eq!(sent["thinking"], json!({ "type": "adaptive", "display": "summarized" }));
    assert_eq!(sent["output_config"], json!({ "effort": "high" }));
}

#[test]
fn a_turn_that_began_without_thinking_goes_on_without() {
    // Another model made the call, or it was made before thinking was switched on.
    let sent = body(Format::Messages, &after_calls(&[None]), hard(true, Some(20_000)));
    assert_eq!(sent.get("thinking"), None);
    let mut again = after_calls(&[None]);
    again.messages.push(user("and now?"));
    let sent = body(Format::Messages, &again, hard(true, Some(20_000)));
    assert_eq!(sent["thinking"], json!({ "type": "enabled", "budget_tokens": 10_000 }));
    let sent = body(Format::Messages, &request(vec![user("hi")]), hard(true, Some(1_000)));
    assert_eq!(sent.get("thinking"), None, "an answer of 1000 tokens has no room for it");
}

#[test]
fn gemini_is_told_how_hard_to_think_in_the_way_of_its_generation() {
    for (id, thinking) in [
        ("gemini-2.5-pro", json!({ "includeThoughts": true, "thinkingBudget": 24_576 })),
        ("gemini-3.8-flash", json!({ "includeThoughts": true, "thinkingLevel": "high" })),
    ] {
        let options = Options { id: id.to_owned(), reasons: true, ..hard(false, None) };
        let sent = body(Format::Gemini, &request(vec![user("hi")]), options);
        assert_eq!(sent["generationConfig"]["thinkingConfig"], thinking, "{id}");
    }
    // Since the third generation every turn's first call has a signature, and another model's has none.
    for (id, signed) in [("gemini-2.5-pro", 0), ("gemini-3.1-pro-preview", 1)] {
        let options = Options { id: id.to_owned(), ..Options::default() };
        let sent = body(Format::Gemini, &after_calls(&[None, None]), options).to_string();
        assert_eq!(sent.matches("thoughtSignature").count(), signed, "{id}");
    }
}

#[test]
fn reasoning_of_a_compatible_server_goes_back_with_the_calls() {
    let delta = |delta: Value| json!({ "choices": [{ "delta": delta }] });
    let begun = |id: &str| json!({ "tool_calls": [{ "index": 0, "id": id, "function": { "name": "fs_read", "arguments": "{}" } }] });
    let pieces = read(
        Format::Chat,
        &[
            delta(json!({ "reasoning_content": "I " })),
            delta(json!({ "reasoning_content": "see." })),
            delta(begun("a")),
            delta(begun("b")),
            json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] }),
        ],
    );
    let calls: Vec<(&Value, &[Value])> = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Call { input, kept, .. } => Some((input, kept.as_slice())),
            _ => None,
        })
        .collect();
    let kept = [json!({ "reasoning_content": "I see." })];
    assert_eq!(calls, [(&json!({}), &kept[..]), (&json!({}), &[])], "two calls, though both are number 0");
    let sent = body(Format::Chat, &after_calls(&[Some(kept[0].clone())]), Options::default());
    assert_eq!(sent["messages"][2]["reasoning_content"], "I see.");
    let silent = Request {
        messages: vec![user("hi"), Turn { role: Role::Assistant, content: vec![call(1, None)] }],
        ..request(vec![])
    };
    assert_eq!(body(Format::Chat, &silent, Options::default())["messages"][2]["content"], Value::Null);
}

#[test]
fn schemas_with_references_and_without_types_fit() {
    let mut asked = request(vec![user("hi")]);
    asked.tools[0].schema = json!({
        "type": "object",
        "properties": {
            "list": { "type": "array" }, "one": { "$ref": "#/$defs/item" }, "any": { "description": "x" },
            "self": { "$ref": "#/$defs/loop" },
        },
        "$defs": { "item": { "type": "integer" }, "loop": { "type": "array", "items": { "$ref": "#/$defs/loop" } } },
    });
    let sent = body(Format::Gemini, &asked, Options::default());
    let fit = &sent["tools"][0]["functionDeclarations"][0]["parameters"]["properties"];
    assert_eq!(fit["list"], json!({ "type": "array", "items": { "type": "string" } }));
    assert_eq!(fit["one"], json!({ "type": "integer" }));
    assert_eq!(fit["any"], json!({ "type": "string", "description": "x" }));
    assert!(!sent.to_string().contains("$ref"));
}

#[test]
fn what_goes_into_a_cache_is_counted() {
    let usage = json!({ "input_tokens": 100, "output_tokens": 5, "input_tokens_details": { "cached_tokens": 10, "cache_write_tokens": 80 } });
    let event = json!({ "type": "response.completed", "response": { "usage": usage } });
    let pieces = read(Format::Responses, &[event]);
    let counted = Counted { input: 100, output: 5, cached: 10, cache_written: 80 };
    assert_eq!(pieces.first(), Some(&Piece::Usage(counted)));
}

#[tokio::test]
async fn what_a_broken_answer_has_cost_is_known_where_the_provider_says_so() {
    for (wire, tokens) in [(Wire::Messages, Some(1000)), (Wire::Gemini, Some(1000)), (Wire::Chat, None)] {
        let (server, root) = (ModelServer::start(), Root::new());
        server.reply(
            Reply::parts(vec![Say::Text("a long text of many words".to_owned())]).ending(End::Broken(3)),
        );
        let (events, error) = heard(&models(&root, setup(&server, wire)), request(vec![user("hi")])).await;
        assert!(error.is_some(), "{wire:?}");
        let usage = events.iter().find_map(|event| match event {
            Event::Usage(usage) => Some(usage.input),
            _ => None,
        });
        assert_eq!(usage, tokens, "{wire:?}");
    }
}

#[tokio::test]
async fn an_address_with_a_password_is_shown_without_it() {
    let (server, root) = (ModelServer::start(), Root::new());
    let mut hidden = setup(&server, Wire::Chat);
    hidden.base_url = "http://me:hunter2@127.0.0.1:9/v1?key=hunter3".to_owned();
    hidden.headers.push(("x-key".to_owned(), "hunter4-long".to_owned()));
    let (_, error) = heard(&models(&root, hidden), request(vec![user("hi")])).await;
    let error = error.unwrap().to_string();
    assert!(error.contains("http://127.0.0.1:9/v1") && !error.contains("hunter"), "{error}");
    let mut echoed = setup(&server, Wire::Chat);
    echoed.headers.push(("x-key".to_owned(), "hunter4-long".to_owned()));
    let reply = json!({ "error": { "message": "bad header hunter4-long" } });
    server.reply(Reply::raw(400, "application/json", &reply.to_string()));
    let (_, error) = heard(&models(&root, echoed), request(vec![user("hi")])).await;
    assert!(!error.unwrap().to_string().contains("hunter4"));
}
