//! The API without a daemon: the router of the Unix socket over an engine whose logs are in memory.
//!
//! Its clock is that of the runtime, so `start_paused` and `tokio::time::advance` move deadlines too. The index and the audit
//! log need a disk: tests of those go through a daemon.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use ctx_api::http::{Handed, ModelNamed, ProviderNamed, ToolNamed, Tried};
use ctx_doors::http::{About, Access, ApiParts, BODY_BYTES_MAX, Catalog, Door, Told};
use ctx_doors::mcp::ServerName;
use ctx_doors::shells::{LogPiece, ShellSource, Shells};
use ctx_doors::ws::Hub;
use ctx_engine::port::NoProjects;
use ctx_engine::{Caller, Clock, Engine, Fresh, Parts};
use ctx_host::ShellHost;
use ctx_journal::FileJournal;
use ctx_session::{Code, Limits, Name, Refusal, Timestamp, Ulid};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::worker::Hands;

/// Who asks unless a test says otherwise.
pub const ME: u32 = 1000;

/// The runtime's clock, which stands still in a test with paused time.
#[derive(Debug, Clone, Copy)]
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.0.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(1_700_000_000_000 + passed)
    }
}

/// An API, asked by one user.
#[derive(Clone)]
pub struct TestDoor {
    door: Door,
    router: Router,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub json: Value,
}

impl Answer {
    /// Its JSON, if the status is this one.
    #[track_caller]
    pub fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.json);
        self.json
    }

    /// The error's code, if the status is this one. Bad input names the field that is to blame.
    #[track_caller]
    pub fn code(self, status: u16) -> String {
        let error = self.ok(status)["error"].clone();
        let names_a_field = error["details"]["field"].as_str().is_some_and(|field| !field.is_empty());
        assert!(error["code"] != "EINVAL" || names_a_field, "bad input of which field: {error}");
        assert!(error["message"].is_string(), "{error}");
        error["code"].as_str().unwrap().to_owned()
    }
}

impl TestDoor {
    pub async fn new() -> TestDoor {
        TestDoor::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> TestDoor {
        let clock = RuntimeClock(tokio::time::Instant::now());
        let stop = CancellationToken::new();
        let parts = Parts {
            journal: Arc::new(FileJournal::in_memory()),
            memory: Arc::new(FileJournal::in_memory()),
            root: None,
            worker: Arc::new(Hands),
            project_files: Arc::new(NoProjects),
            spaces: Arc::new(ctx_engine::NoSpaces),
            workspace: None,
            limits,
            fresh: Fresh::new(clock, 7),
            uid: 0,
            gid: 0,
            app: "test".to_owned(),
        };
        let engine = Engine::new(parts);
        engine.start().await.unwrap();
        let about = About {
            is_uncaged: false,
            version: "0".to_owned(),
            root: "/nowhere".to_owned(),
            address: None,
            started_at: clock.now(),
            started: Instant::now(),
        };
        let name = ServerName { name: "test".to_owned(), version: "0".to_owned() };
        // Nobody has a token here: the file is never made.
        let access = Access::open("/nonexistent/tokens".into(), clock, 1).unwrap();
        let door = Door::new(ApiParts {
            engine: engine.clone(),
            about,
            access,
            catalog: Arc::new(OneAgent),
            hub: Hub::new(engine, stop.clone()),
            shells: Shells::new(Arc::new(NoShells), name, BODY_BYTES_MAX, stop),
            terminals: Arc::new(ctx_terminal::Terminals::new(
                std::path::Path::new("/nonexistent"),
                &Limits::default(),
            )),
            files: None,
        });
        TestDoor { router: door.for_peer(Caller { uid: ME, gid: ME }), door }
    }

    /// The same API, asked by another user.
    pub fn asked_by(&self, uid: u32) -> TestDoor {
        TestDoor { router: self.door.for_peer(Caller { uid, gid: uid }), door: self.door.clone() }
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let json = match bytes.as_ref() {
            b"" => Value::Null,
            text => serde_json::from_slice(text).unwrap(),
        };
        Answer { status, json }
    }

    pub async fn call(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        let uri = format!("/api/v1{path}");
        self.send(Request::builder().method(method).uri(uri).body(body.into()).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Value {
        self.call("GET", path, "").await.ok(200)
    }

    /// A new session; its id.
    pub async fn session(&self, body: &str) -> String {
        let made = self.call("POST", "/projects/default/sessions", body.to_owned()).await.ok(201);
        made["id"].as_str().unwrap().to_owned()
    }

    /// Posts a message; the answer.
    pub async fn post(&self, session: &str, text: &str) -> Value {
        let body = json!({ "text": text }).to_string();
        self.call("POST", &format!("/sessions/{session}/messages"), body).await.ok(202)
    }

    pub async fn state(&self, session: &str) -> String {
        self.get(&format!("/sessions/{session}")).await["state"].as_str().unwrap().to_owned()
    }

    pub async fn wait_for(&self, session: &str, state: &str) {
        until(state, async || (self.state(session).await == state).then_some(())).await;
    }
}

/// Asks until there is an answer. No time passes meanwhile for what waits on the runtime's clock.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        tokio::task::yield_now().await;
    }
}

/// A tree with one agent, that of the project `default`.
struct OneAgent;

impl Catalog for OneAgent {
    fn models(&self, _: u32) -> std::io::Result<Vec<ModelNamed>> {
        let name = "test/hands".to_owned();
        let (window, output, input_usd, output_usd, key) = (None, None, None, None, None);
        Ok(vec![ModelNamed { name, window, output, input_usd, output_usd, key, is_main: true }])
    }

    fn providers(&self, _: u32) -> Vec<ProviderNamed> {
        Vec::new()
    }

    fn take_variables(&self, _: u32, _: BTreeMap<String, String>) -> Told<'_, Handed> {
        Box::pin(std::future::ready(Ok(Handed { providers: Vec::new(), problem: None, code: None })))
    }

    fn try_model(&self, _: u32, model: String) -> Told<'_, Tried> {
        Box::pin(std::future::ready(Ok(Tried { model, text: "ok".to_owned(), took_ms: 1 })))
    }

    fn agents(&self) -> std::io::Result<Vec<String>> {
        Ok(vec!["coder".to_owned()])
    }

    fn tools(&self, _: u32) -> Vec<ToolNamed> {
        Vec::new()
    }

    fn take_server_variables(&self, _: u32, _: BTreeMap<String, String>) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }

    fn primary(&self, project: &str) -> Option<String> {
        (project == "default").then(|| "coder".to_owned())
    }

    fn group_of(&self, uid: u32) -> Option<u32> {
        Some(uid)
    }

    fn is_open(&self, _: &Name) -> bool {
        true
    }

    fn sync_sockets(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

struct NoShells;

impl ShellSource for NoShells {
    fn host(&self, _: u32) -> Result<ShellHost, Refusal> {
        Err(Refusal::new(Code::Eacces, "this daemon has no shells"))
    }

    fn owner(&self, _: Ulid) -> Option<u32> {
        None
    }

    fn piece(&self, log: Ulid, _: u64, _: usize) -> Result<LogPiece, Refusal> {
        Err(Refusal::new(Code::Enoent, format!("no shell {log}")))
    }
}
