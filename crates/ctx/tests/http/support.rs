//! A daemon with its address and a token, requests to it, curl, and Python scripts.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::{DaemonBuilder, Outcome, TestDaemon, finish, until};

use crate::line::Line;

const BINARY: &str = env!("CARGO_BIN_EXE_ctx");

/// A daemon, where it listens, and a token of its owner.
pub struct Http {
    pub daemon: TestDaemon,
    pub token: String,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: String,
    pub text: String,
}

impl Response {
    /// Its JSON, if the status is this one.
    #[track_caller]
    pub fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if self.text.is_empty() {
            return Value::Null;
        }
        let json: Value =
            serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text));
        let error = &json["error"];
        let names_a_field = error["details"]["field"].as_str().is_some_and(|field| !field.is_empty());
        assert!(error["code"] != "EINVAL" || names_a_field, "bad input of which field: {}", self.text);
        json
    }

    /// The field that is to blame for bad input.
    #[track_caller]
    pub fn field(&self) -> String {
        let error = &self.json(400)["error"];
        assert_eq!(error["code"], "EINVAL", "{}", self.text);
        error["details"]["field"].as_str().unwrap_or_default().to_owned()
    }

    /// The error's code, if the status is this one.
    #[track_caller]
    pub fn code(&self, status: u16) -> String {
        self.json(status)["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A daemon that may be asked as often as a test that waits does; a test of that limit sets it anew.
pub fn builder() -> DaemonBuilder {
    let builder = TestDaemon::build(BINARY).arg("--listen").arg("127.0.0.1:0");
    builder.env("CTX_LIMITS_REQUESTS_PER_SECOND", "100000")
}

impl Http {
    pub fn start() -> Http {
        Http::of(builder())
    }

    pub fn of(builder: DaemonBuilder) -> Http {
        let daemon = builder.start();
        // A daemon that may have one connection may not have noticed yet that the first has gone.
        let made = || Some(daemon.ctx(&["token", "new"])).filter(|made| made.code != 69);
        let token = testkit::until("a token", made).ok().trim().to_owned();
        Http { daemon, token }
    }

    /// HOST:PORT, as the daemon has announced it.
    pub fn address(&self) -> String {
        let text = std::fs::read_to_string(self.daemon.root().join(".state/daemon.json")).unwrap();
        let file: Value = serde_json::from_str(&text).unwrap();
        file["address"].as_str().expect("an address").to_owned()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/api/v1{path}", self.address())
    }

    /// curl with these arguments and nothing else of ours.
    pub fn curl(&self, path: &str, args: &[&str]) -> Response {
        let mut command = Command::new("curl");
        command.args(["-sS", "-i", "--path-as-is", "--max-time", "60"]).args(args).arg(self.url(path));
        let out = finish(&mut command).ok();
        let (mut head, mut body) = out.split_once("\r\n\r\n").unwrap_or((&out, ""));
        while head.contains(" 100 Continue") {
            (head, body) = body.split_once("\r\n\r\n").unwrap_or((body, ""));
        }
        let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {out}"));
        Response { status, headers: head.to_lowercase(), text: body.to_owned() }
    }

    /// A request of which only the answer matters.
    pub fn call_as(&self, token: &str, method: &str, path: &str, body: Option<&str>) -> Response {
        let answer = Line::as_whom(self, token).ask(method, path, body);
        answer.unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    pub fn call(&self, method: &str, path: &str, body: Option<&str>) -> Response {
        self.call_as(&self.token, method, path, body)
    }

    pub fn get(&self, path: &str) -> Value {
        self.call("GET", path, None).json(200)
    }

    /// A new session; its id.
    pub fn session(&self, body: &str) -> String {
        let made = self.call("POST", "/projects/default/sessions", Some(body)).json(201);
        made["id"].as_str().expect("an id").to_owned()
    }

    /// A new session whose model plays scripts; its id.
    pub fn playing(&self) -> String {
        let id = self.session("{}");
        let change = r#"{"model_override":"debug:script"}"#;
        self.call("PUT", &format!("/sessions/{id}"), Some(change)).json(200);
        id
    }

    /// Posts a message; the answer.
    pub fn post(&self, session: &str, text: &str) -> Value {
        let body = serde_json::json!({ "text": text }).to_string();
        self.call("POST", &format!("/sessions/{session}/messages"), Some(&body)).json(202)
    }

    pub fn state(&self, session: &str) -> String {
        self.get(&format!("/sessions/{session}"))["state"].as_str().unwrap_or_default().to_owned()
    }

    pub fn wait_for(&self, session: &str, state: &str) {
        until(&format!("{session} to be {state}"), || (self.state(session) == state).then_some(()));
    }

    /// Runs a script of `tests/python` to its end. It is told the address, the token and the root by environment.
    pub fn python(&self, script: &str, args: &[&str]) -> Outcome {
        finish(&mut self.python_command(script, args))
    }

    /// The same, and the daemon may be killed meanwhile.
    pub fn python_begins(&self, script: &str, args: &[&str]) -> Child {
        let mut command = self.python_command(script, args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python starts")
    }

    fn python_command(&self, script: &str, args: &[&str]) -> Command {
        let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned();
        let python = repository.join("target/test-venv/bin/python");
        assert!(python.exists(), "no test clients: `scripts/setup test` installs them");
        let mut command = Command::new(python);
        command.arg(repository.join("tests/python").join(script)).args(args);
        command.env("CTX_ADDRESS", self.address()).env("CTX_TOKEN", &self.token);
        command.env("CTX_ROOT", self.daemon.root()).env("CTX_BINARY", BINARY);
        command.env("CTX_DAEMON_PID", self.daemon.pid().to_string());
        command
    }
}

/// A message for `debug/script` that goes on until it is cancelled.
pub const ENDLESS: &str = r#"{"script":[{"text":"begun"},{"sleep_ms":600000}]}"#;
