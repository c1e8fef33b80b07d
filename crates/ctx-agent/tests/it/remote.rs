//! Models of providers against a server that speaks their wire formats: what is sent, what is heard, and every way to fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctx_agent::Models;
use ctx_agent::model::provider::setup::{Key, Kind, Secret, Setup};
use ctx_agent::model::{Event, Finish, ModelError, Providers, Request, ToolSpec, Turn};
use ctx_session::conversation::{Part, Role};
use ctx_session::record::ToolStatus;
use ctx_session::{Limits, Ulid};
use serde_json::{Value, json};
use testkit::models::{End, ModelServer, Part as Say, Reply, Wire};

use crate::support::Root;

pub const KEY: &str = "sk-very-secret-key-1234567890";

/// One provider for everyone.
pub struct One(pub Setup);

impl Providers for One {
    fn of(&self, _: u32) -> Vec<Setup> {
        vec![self.0.clone()]
    }
}

pub fn kind(wire: Wire) -> Kind {
    match wire {
        Wire::Responses => Kind::Openai,
        Wire::Chat => Kind::OpenaiChat,
        Wire::Messages => Kind::Anthropic,
        Wire::Gemini => Kind::Gemini,
    }
}

pub fn setup(server: &ModelServer, wire: Wire) -> Setup {
    let key = Key::Variable { name: "K".to_owned(), value: Some(Secret::new(KEY)), is_of_shell: true };
    let base = match wire {
        Wire::Responses | Wire::Chat => format!("{}/v1", server.url()),
        Wire::Messages | Wire::Gemini => server.url(),
    };
    Setup::plain("p", kind(wire), Some(&base), key)
}

pub fn models(root: &Root, setup: Setup) -> Models {
    root.models().with_providers(Arc::new(One(setup)))
}

pub fn user(text: &str) -> Turn {
    Turn { role: Role::User, content: vec![Part::Text { text: text.to_owned() }] }
}

pub fn request(messages: Vec<Turn>) -> Request {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["path"],
        "properties": { "path": { "type": ["string", "null"], "default": "." } },
    });
    let tool = ToolSpec { name: "fs.read".to_owned(), description: "reads".to_owned(), schema };
    Request {
        model: "p/test-model".to_owned(),
        attempt: 1,
        prompt: "be brief".to_owned(),
        messages,
        tools: vec![tool],
        images: Arc::default(),
    }
}

/// All events of one call, or its error with what came before.
pub async fn heard(models: &Models, request: Request) -> (Vec<Event>, Option<ModelError>) {
    let mut events = Vec::new();
    let id = models.resolve_for(&request.model, 0).unwrap();
    let model = models.open_for(&id, 0).unwrap();
    let mut answer = match model.call(request).await {
        Ok(answer) => answer,
        Err(error) => return (events, Some(error)),
    };
    loop {
        match answer.next().await {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

fn text(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn full() -> Vec<Say> {
    vec![
        Say::Reasoning("I should look at the files first.".to_owned()),
        Say::Text("Let me read both — é.".to_owned()),
        Say::Call { name: "fs_read".to_owned(), input: "{\"path\":\"a.rs\"}".to_owned() },
        Say::Call { name: "fs_read".to_owned(), input: "{\"path\":\"b.rs\"}".to_owned() },
    ]
}

#[tokio::test]
async fn every_format_streams_text_reasoning_parallel_calls_and_usage() {
    for wire in Wire::ALL {
        let (server, root) = (ModelServer::start(), Root::new());
        server.reply(Reply::parts(full()));
        let (events, error) = heard(&models(&root, setup(&server, wire)), request(vec![user("hi")])).await;
        assert_eq!(error, None, "{wire:?}");
        assert_eq!(text(&events), "Let me read both — é.", "{wire:?}");
        let thought: String = events
            .iter()
            .filter_map(|event| if let Event::Reasoning(text) = event { Some(text.as_str()) } else { None })
            .collect();
        assert_eq!(thought, "I should look at the files first.", "{wire:?}");
        let calls: Vec<(String, String)> = events
            .iter()
            .filter_map(|event| match event {
                Event::ToolCall(call) => Some((call.name.clone(), call.input["path"].to_string())),
                _ => None,
            })
            .collect();
        let call = |path: &str| ("fs.read".to_owned(), format!("\"{path}\""));
        assert_eq!(calls, [call("a.rs"), call("b.rs")], "{wire:?}: names are mapped back");
        let Some(Event::Usage(usage)) = events.iter().find(|event| matches!(event, Event::Usage(_))) else {
            panic!("{wire:?}: no usage");
        };
        assert_eq!((usage.input, usage.output, usage.cached), (1000, 50, 400), "{wire:?}");
        assert_eq!(events.last(), Some(&Event::Finish(Finish::ToolCalls)), "{wire:?}");
    }
}

/// What the model said before, as the log has it: its calls carry what the provider wants to see again.
fn conversation(events: &[Event]) -> Vec<Turn> {
    let mut answer = Turn { role: Role::Assistant, content: Vec::new() };
    let mut results = Turn { role: Role::Tool, content: Vec::new() };
    answer.content.push(Part::Text { text: text(events) });
    for (at, event) in events.iter().enumerate() {
        let Event::ToolCall(call) = event else { continue };
        let (call_id, name) = (Ulid(at as u128 + 1), call.name.clone());
        let (input, provider) = (call.input.clone(), call.provider.clone());
        answer.content.push(Part::ToolCall { call_id, name, input, provider });
        let (status, text) = (ToolStatus::Ok, format!("content {at}"));
        results.content.push(Part::ToolResult { call_id, status, text });
    }
    vec![user("hi"), answer, results]
}

/// The values of every key of this name, wherever it stands.
fn all(value: &Value, key: &str) -> Vec<Value> {
    match value {
        Value::Object(fields) => {
            let own = fields.get(key).cloned();
            own.into_iter().chain(fields.values().flat_map(|value| all(value, key))).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| all(item, key)).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn reasoning_goes_back_to_the_model_that_needs_it_and_to_no_other() {
    for (wire, key, sealed) in [
        (Wire::Responses, "encrypted_content", "gAAAsealed"),
        (Wire::Messages, "signature", "EqQBsigned"),
        (Wire::Gemini, "thoughtSignature", "CsigQ"),
    ] {
        let (server, root) = (ModelServer::start(), Root::new());
        server.reply(Reply::parts(full()));
        let models = models(&root, setup(&server, wire));
        let (events, _) = heard(&models, request(vec![user("hi")])).await;
        let (_, error) = heard(&models, request(conversation(&events))).await;
        assert_eq!(error, None, "{wire:?}: the server checks that calls and results belong together");
        let mut other = request(conversation(&events));
        other.model = "p/other-model".to_owned();
        heard(&models, other).await;
        let bodies = server.bodies();
        assert!(all(&bodies[1], key).contains(&json!(sealed)), "{wire:?}: {}", bodies[1]);
        assert!(all(&bodies[2], key).is_empty(), "{wire:?}: {}", bodies[2]);
    }
}

#[tokio::test]
async fn the_prompt_and_the_last_turns_are_marked_for_the_cache() {
    let (server, root) = (ModelServer::start(), Root::new());
    server.reply(Reply::parts(full()));
    let models = models(&root, setup(&server, Wire::Messages));
    let (events, _) = heard(&models, request(vec![user("hi")])).await;
    heard(&models, request(conversation(&events))).await;
    let body = &server.bodies()[1];
    assert_eq!(all(&body["system"], "cache_control").len(), 1);
    assert_eq!(all(&body["messages"], "cache_control").len(), 2);
    assert_eq!(body["max_tokens"], 8192, "of a model that nobody knows");
}

#[tokio::test]
async fn a_call_that_never_came_to_a_result_is_sent_with_one_that_says_so() {
    for wire in Wire::ALL {
        let (server, root) = (ModelServer::start(), Root::new());
        let call = |id: u128| Part::ToolCall {
            call_id: Ulid(id),
            name: "fs.read".to_owned(),
            input: json!("not an object"),
            provider: None,
        };
        let stray = Part::ToolResult { call_id: Ulid(9), status: ToolStatus::Ok, text: "lost".to_owned() };
        let turns = vec![
            Turn { role: Role::Assistant, content: vec![call(1), call(2)] },
            Turn { role: Role::Tool, content: vec![stray] },
            user("go on"),
        ];
        let (events, error) = heard(&models(&root, setup(&server, wire)), request(turns)).await;
        assert_eq!(error, None, "{wire:?}");
        assert_eq!(text(&events), "nothing more in the script");
        let sent = server.bodies()[0].to_string();
        assert!(
            sent.contains("the run ended before this tool did") && !sent.contains("lost"),
            "{wire:?}: {sent}"
        );
    }
}

#[tokio::test]
async fn schemas_and_names_are_made_to_fit() {
    let (server, root) = (ModelServer::start(), Root::new());
    heard(&models(&root, setup(&server, Wire::Gemini)), request(vec![user("hi")])).await;
    let declared = &server.bodies()[0]["tools"][0]["functionDeclarations"][0];
    assert_eq!(declared["name"], "fs_read");
    let expected = json!({
        "type": "object", "required": ["path"],
        "properties": { "path": { "type": "string", "nullable": true } },
    });
    assert_eq!(declared["parameters"], expected);
}

#[tokio::test]
async fn a_stream_that_breaks_at_any_event_is_an_error_and_what_came_before_is_heard() {
    for wire in Wire::ALL {
        let (server, root) = (ModelServer::start(), Root::new());
        let models = models(&root, setup(&server, wire));
        let whole = 60;
        for count in 0..whole {
            let end = if count % 2 == 0 { End::Broken(count) } else { End::Short(count) };
            server.reply(Reply::parts(full()).ending(end));
            let (events, error) = heard(&models, request(vec![user("hi")])).await;
            let spoke = events.iter().any(|event| !matches!(event, Event::Usage(_)));
            let finished = matches!(events.last(), Some(Event::Finish(_)));
            match (finished, spoke) {
                // Behind its last word, an answer is whole however the connection ends.
                (true, _) => assert_eq!(error, None, "{wire:?} {count}"),
                (false, true) => assert_eq!(error.unwrap().reason(), "broken_stream", "{wire:?} {count}"),
                (false, false) => assert_eq!(error.unwrap().reason(), "unreachable", "{wire:?} {count}"),
            }
        }
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_reach_the_tool_as_text() {
    let (server, root) = (ModelServer::start(), Root::new());
    let call = Say::Call { name: "fs_read".to_owned(), input: "{\"path\": oops".to_owned() };
    server.reply(Reply::parts(vec![call]));
    let (events, _) = heard(&models(&root, setup(&server, Wire::Messages)), request(vec![user("hi")])).await;
    let Some(Event::ToolCall(call)) = events.first() else { panic!("{events:?}") };
    assert_eq!(call.input, json!("{\"path\": oops"));
}

fn hasty() -> Limits {
    Limits { model_first_byte_ms: 150, model_idle_ms: 150, ..Limits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_silent_too_long_is_given_up() {
    let (server, root) = (ModelServer::start(), Root::with_limits(hasty()));
    server.reply(Reply::parts(full()).ending(End::Silent(3)));
    let (_, error) = heard(&models(&root, setup(&server, Wire::Messages)), request(vec![user("hi")])).await;
    let error = error.unwrap();
    assert_eq!((error.code().name(), error.reason()), ("ETIMEDOUT", "model_idle"));
    assert!(error.to_string().contains("limits.model_idle_ms"), "{error}");
    testkit::until("the connection to be closed", || (server.open() == 0).then_some(()));

    // A server that takes the connection and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut mute = setup(&server, Wire::Chat);
    mute.base_url = format!("http://{}", listener.local_addr().unwrap());
    let (_, error) = heard(&models(&root, mute), request(vec![user("hi")])).await;
    let error = error.unwrap();
    assert_eq!((error.code().name(), error.reason()), ("ETIMEDOUT", "model_first_byte"));
    assert!(error.to_string().contains("limits.model_first_byte_ms"), "{error}");
}

#[tokio::test]
async fn a_slow_drip_is_heard_to_its_end() {
    let limits = Limits { model_idle_ms: 10_000, ..Limits::default() };
    let (server, root) = (ModelServer::start(), Root::with_limits(limits));
    server.reply(Reply::parts(full()).ending(End::Slow(Duration::from_millis(2))));
    let (events, error) =
        heard(&models(&root, setup(&server, Wire::Responses)), request(vec![user("hi")])).await;
    assert_eq!((text(&events).as_str(), error), ("Let me read both — é.", None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_dropped_closes_its_connection() {
    let (server, root) = (ModelServer::start(), Root::new());
    server.reply(Reply::parts(full()).ending(End::Silent(4)));
    let models = models(&root, setup(&server, Wire::Messages));
    let id = models.resolve_for("p/test-model", 0).unwrap();
    let mut answer = models.open_for(&id, 0).unwrap().call(request(vec![user("hi")])).await.unwrap();
    answer.next().await.unwrap();
    assert_eq!(server.open(), 1);
    drop(answer);
    testkit::until("the server to see it", || (server.open() == 0).then_some(()));
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unreachable_and_one_without_the_new_format_is_asked_in_the_old() {
    let (server, root) = (ModelServer::start(), Root::new());
    let mut nowhere = setup(&server, Wire::Chat);
    nowhere.base_url = "http://127.0.0.1:9/v1".to_owned();
    let (_, error) = heard(&models(&root, nowhere), request(vec![user("hi")])).await;
    let error = error.unwrap();
    assert_eq!((error.code().name(), error.reason()), ("EHOSTDOWN", "unreachable"));
    assert!(error.to_string().contains("http://127.0.0.1:9/v1"), "{error}");

    server.only_chat();
    let models = models(&root, setup(&server, Wire::Responses));
    for _ in 0..2 {
        let (events, error) = heard(&models, request(vec![user("hi")])).await;
        assert_eq!((text(&events).as_str(), error), ("nothing more in the script", None));
    }
    let paths: Vec<String> = server.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(paths, ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]);
}

#[tokio::test]
async fn keys_and_headers_go_where_each_provider_wants_them() {
    for (wire, header, value) in [
        (Wire::Chat, "authorization", format!("Bearer {KEY}")),
        (Wire::Messages, "x-api-key", KEY.to_owned()),
        (Wire::Gemini, "x-goog-api-key", KEY.to_owned()),
    ] {
        let (server, root) = (ModelServer::start(), Root::new());
        let mut setup = setup(&server, wire);
        setup.headers.push(("x-team".to_owned(), "blue".to_owned()));
        heard(&models(&root, setup), request(vec![user("hi")])).await;
        let asked = &server.asked()[0];
        assert_eq!(asked.header(header), Some(value.as_str()), "{wire:?}");
        assert_eq!(asked.header("x-team"), Some("blue"));
    }
}

#[tokio::test]
async fn a_key_is_read_when_it_is_used_and_one_that_others_can_read_is_not() {
    use std::os::unix::fs::PermissionsExt;
    let (server, root) = (ModelServer::start(), Root::new());
    let path = root.dir.path().join("key");
    std::fs::write(&path, format!("{KEY}\n")).unwrap();
    let with = |key: Key| Setup { key, ..setup(&server, Wire::Chat) };
    let ask = async |key: Key| heard(&models(&root, with(key)), request(vec![user("hi")])).await.1;
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o640);
    let error = ask(Key::File(path.clone())).await.unwrap();
    assert_eq!((error.code().name(), error.reason()), ("EKEYREJECTED", "no_key"));
    assert!(error.to_string().contains("chmod 600"), "{error}");
    mode(0o600);
    assert_eq!(ask(Key::File(path.clone())).await, None);
    assert_eq!(ask(Key::Command(format!("cat '{}'", path.display()))).await, None);
    let error = ask(Key::Command(format!("echo {KEY}; exit 3"))).await.unwrap();
    assert!(error.reason() == "no_key" && !error.to_string().contains(KEY), "{error}");
    assert_eq!(ask(Key::None).await, None, "a server of one's own may want none");
    let sent: Vec<Option<String>> =
        server.asked().iter().map(|asked| asked.header("authorization").map(str::to_owned)).collect();
    assert_eq!(sent, [Some(format!("Bearer {KEY}")), Some(format!("Bearer {KEY}")), None]);
}

#[test]
fn another_user_brings_in_no_name_that_stands_for_something_else_and_not_without_end() {
    let root = Root::new();
    let models = models(&root, Setup::plain("ollama", Kind::Ollama, None, Key::None));
    let code = |text: &str| models.resolve_for(text, 54_401).map(drop).map_err(|error| error.code());
    assert_eq!(code("ollama:o4:mini"), Err(ctx_session::Code::Eacces));
    assert!(!root.path().join("model/ollama/o4-mini.d").exists());
    models.resolve_for("ollama:o4:mini", 0).unwrap();
    assert_eq!(code("ollama:o4:mini"), Ok(()), "once it is there, it is for all");
    let brought = (0..1_000).take_while(|number| code(&format!("ollama:m{number}")).is_ok()).count();
    assert_eq!(brought, 100);
    assert!(models.resolve_for("ollama:another", 54_402).is_ok(), "others are not held up");
}

#[test]
fn a_model_of_a_provider_gets_its_place_in_the_tree() {
    let root = Root::new();
    let setup = Setup::plain("ollama", Kind::Ollama, None, Key::None);
    let models = models(&root, setup);
    let id = models.resolve_for("ollama:qwen3:8b", 0).unwrap();
    assert_eq!(id.to_string(), "ollama/qwen3-8b");
    let file =
        |name: &str| std::fs::read_to_string(root.path().join("model/ollama/qwen3-8b.d").join(name)).unwrap();
    assert_eq!((file("id").as_str(), file("driver").as_str()), ("ollama/qwen3:8b\n", "ollama\n"));
    assert_eq!(models.resolve_for("ollama/qwen3-8b", 0).unwrap(), id, "as records name it");
    let other = models.resolve_for("ollama:qwen3/8b", 0).unwrap_err();
    assert!(other.to_string().contains("stands for `qwen3:8b` already"), "{other}");
    let missing = models.resolve_for("anthropic:claude-x", 0).unwrap_err().to_string();
    assert!(missing.contains("anthropic is not set up") && missing.contains("ctx model add"), "{missing}");
    std::fs::write(root.path().join("model/ollama/qwen3-8b.d/limit"), "window=4096\n").unwrap();
    assert_eq!(models.open_for(&id, 0).unwrap().window(), Some(4096));
}

#[tokio::test]
async fn a_run_goes_through_tools_with_every_format_and_waits_at_a_rate_limit() {
    for wire in Wire::ALL {
        let limits = Limits { model_retry_ms: 1, ..Limits::default() };
        let (server, root) = (ModelServer::start(), Root::with_limits(limits));
        root.put("a.rs", "fn a() {}\n");
        server.reply(Reply::raw(429, "application/json", "{\"error\":{\"message\":\"slow down\"}}"));
        server.reply(Reply::raw(503, "text/plain", "busy"));
        let reads = Say::Call { name: "fs_read".to_owned(), input: "{\"path\":\"a.rs\"}".to_owned() };
        server.reply(Reply::parts(vec![Say::Reasoning("hm".to_owned()), reads.clone(), reads]));
        server.reply(Reply::text("It has one function."));
        let models = models(&root, setup(&server, wire));
        let told = crate::support::run_message(&root, &models, "p:test-model", "what is in a.rs?").await;
        assert!(told.contains("It has one function.") && told.contains("fn a() {}"), "{wire:?}: {told}");
        assert_eq!(server.bodies().len(), 4, "{wire:?}: {told}");
        assert!(!told.contains(KEY));
    }
}

/// Counts what a provider's list of setups was asked for: keys come and go, so it is asked at every call.
#[tokio::test]
async fn a_provider_that_goes_is_missed_at_the_next_call() {
    struct Gone(Mutex<Vec<Setup>>);
    impl Providers for Gone {
        fn of(&self, _: u32) -> Vec<Setup> {
            self.0.lock().unwrap().clone()
        }
    }
    let (server, root) = (ModelServer::start(), Root::new());
    let own = Setup { name: "openai".to_owned(), ..setup(&server, Wire::Responses) };
    let gone = Arc::new(Gone(Mutex::new(vec![own])));
    let models = root.models().with_providers(gone.clone());
    let request = Request { model: "openai/test-model".to_owned(), ..request(vec![user("hi")]) };
    assert_eq!(heard(&models, request.clone()).await.1, None);
    gone.0.lock().unwrap().clear();
    let error = heard(&models, request).await.1.unwrap();
    assert_eq!((error.code().name(), error.reason()), ("EKEYREJECTED", "no_key"));
    assert!(error.to_string().contains("$OPENAI_API_KEY is not set"), "{error}");
}
