//! `Idempotency-Key`: what a request with a key has made is made once, whatever happens to its answer or to the daemon.

use std::path::Path;

use serde_json::{Value, json};
use testkit::until;

use crate::support::{ENDLESS, Http, Response};

impl Http {
    fn keyed(&self, key: &str, path: &str, body: &str) -> Response {
        let file = self.daemon.path("body");
        std::fs::write(&file, body).unwrap();
        let bearer = format!("Authorization: Bearer {}", self.token);
        let key = format!("Idempotency-Key: {key}");
        let data = format!("@{}", file.display());
        self.curl(path, &["-X", "POST", "-H", &bearer, "-H", &key, "--data-binary", &data])
    }
}

/// A request that creates something, another that could be mistaken for it, and the field that names what was made.
struct Creates {
    key: &'static str,
    path: String,
    body: String,
    other: String,
    named: &'static str,
}

fn creates(path: &str, body: &Value, other: &Value, named: &'static str) -> Creates {
    // One key for all: it is another request at another place.
    Creates { key: "k", path: path.to_owned(), body: body.to_string(), other: other.to_string(), named }
}

fn project(dir: &Path, slug: &str) -> Value {
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    std::fs::write(dir.join(".ctx/project.yaml"), format!("version: 1\nproject: {slug}\n")).unwrap();
    json!({ "directory": dir })
}

/// Every route that makes something which a restart does not take away.
fn all(http: &Http) -> Vec<Creates> {
    let (idle, source, old, running) =
        (http.session("{}"), http.session("{}"), http.session("{}"), http.playing());
    for session in [&idle, &source] {
        http.post(session, "hello");
        http.wait_for(session, "idle");
    }
    http.post(&running, ENDLESS);
    http.wait_for(&running, "running");
    let issue = http.call("POST", "/projects/default/issues", Some(r#"{"title":"old"}"#)).json(201);
    let todos = format!("/issues/{}/todos", issue["id"].as_str().unwrap());
    let sessions = "/projects/default/sessions";
    let (one, two) = (project(&http.daemon.path("one"), "one"), project(&http.daemon.path("two"), "two"));
    let restart = Creates {
        key: "k",
        path: format!("/sessions/{old}/restart"),
        body: String::new(),
        other: "{}".to_owned(),
        named: "id",
    };
    vec![
        creates(sessions, &json!({ "name": "new" }), &json!({ "name": "newer" }), "id"),
        Creates {
            key: "k2",
            ..creates(sessions, &json!({ "resume_from": source }), &json!({ "resume_from": idle }), "id")
        },
        restart,
        creates(
            &format!("/sessions/{source}/messages"),
            &json!({ "text": "a" }),
            &json!({ "text": "b" }),
            "run_id",
        ),
        creates(
            &format!("/sessions/{running}/checkpoints"),
            &json!({ "reason": "a" }),
            &json!({ "reason": "b" }),
            "id",
        ),
        creates(
            &format!("/sessions/{idle}/compactions"),
            &json!({ "strategy": "drop" }),
            &json!({ "strategy": "summarize" }),
            "run_id",
        ),
        creates("/projects/default/issues", &json!({ "title": "a" }), &json!({ "title": "b" }), "id"),
        creates(&todos, &json!({ "text": "a" }), &json!({ "text": "b" }), "items"),
        creates("/projects", &one, &two, "id"),
    ]
}

/// What could have been made twice.
fn counts(http: &Http) -> Vec<usize> {
    ["/projects/default/sessions?archived=true", "/projects/default/issues", "/projects"]
        .iter()
        .map(|path| http.get(path)["items"].as_array().unwrap().len())
        .collect()
}

#[test]
fn what_a_key_made_is_known_also_after_a_restart() {
    let mut http = Http::start();
    let requests = all(&http);
    let made: Vec<Response> = requests.iter().map(|one| http.keyed(one.key, &one.path, &one.body)).collect();
    let names: Vec<Value> =
        requests.iter().zip(&made).map(|(one, made)| made.json(made.status)[one.named].clone()).collect();
    for (one, made) in requests.iter().zip(&made) {
        assert!([201, 202].contains(&made.status), "{}: {}", one.path, made.text);
        assert!(!made.json(made.status)[one.named].is_null(), "{}: {}", one.path, made.text);
    }
    let before = counts(&http);
    for restarted in [false, true] {
        if restarted {
            http.daemon.kill();
            http.daemon.start_again();
        }
        for ((one, first), name) in requests.iter().zip(&made).zip(&names) {
            let again = http.keyed(one.key, &one.path, &one.body);
            assert_eq!(&again.json(first.status)[one.named], name, "{} {restarted}", one.path);
            let other = http.keyed(one.key, &one.path, &one.other);
            assert_eq!(other.field(), "Idempotency-Key", "{} {restarted}", one.path);
        }
        assert_eq!(counts(&http), before, "{restarted}");
    }
}

#[test]
fn a_fork_does_not_know_the_keys_of_its_source() {
    let mut http = Http::start();
    let source = http.session("{}");
    let hello = r#"{"text":"hello"}"#;
    let first = http.keyed("k", &format!("/sessions/{source}/messages"), hello).json(202);
    http.wait_for(&source, "idle");
    let body = json!({ "resume_from": source }).to_string();
    let fork =
        http.keyed("k", "/projects/default/sessions", &body).json(201)["id"].as_str().unwrap().to_owned();
    http.daemon.kill();
    http.daemon.start_again();
    let second = http.keyed("k", &format!("/sessions/{fork}/messages"), hello).json(202);
    assert_ne!(first["run_id"], second["run_id"]);
    http.wait_for(&fork, "idle");
    let said = http.get(&format!("/sessions/{fork}/messages"));
    assert_eq!(said["items"].as_array().map(Vec::len), Some(4));
}

#[test]
fn what_has_a_long_answer_is_not_done_twice() {
    let http = Http::start();
    let long = json!({ "title": "long", "body": "x".repeat(200_000) }).to_string();
    let first = http.keyed("k", "/projects/default/issues", &long).json(201);
    assert_eq!(http.keyed("k", "/projects/default/issues", &long).json(201), first, "from the log");
    assert_eq!(http.get("/projects/default/issues")["items"].as_array().map(Vec::len), Some(1));

    let shell = http.call("POST", "/shells", None).json(201)["id"].as_str().unwrap().to_owned();
    let file = http.daemon.path("done");
    let command = format!("echo x >> {}; head -c 90000 /dev/zero | tr '\\0' y", file.display());
    let body = json!({ "command": command, "budget": { "max_chars": 100_000 } }).to_string();
    let path = format!("/shells/{shell}/exec");
    let answer = http.keyed("k", &path, &body);
    assert!(answer.text.len() > 80_000 && answer.status == 200, "{} {}", answer.status, answer.text.len());
    assert_eq!(http.keyed("k", &path, &body).code(409), "EEXIST");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n", "done once");
}

#[test]
fn a_secret_is_told_once() {
    let mut http = Http::start();
    let tokens = |http: &Http| http.get("/tokens")["items"].as_array().unwrap().len();
    let before = tokens(&http);
    let made = http.keyed("k", "/tokens", r#"{"label":"a"}"#).json(201);
    for restarted in [false, true] {
        if restarted {
            http.daemon.kill();
            http.daemon.start_again();
        }
        let again = http.keyed("k", "/tokens", r#"{"label":"a"}"#);
        assert_eq!(again.code(409), "EEXIST");
        assert!(again.text.contains(made["id"].as_str().unwrap()), "which one: {}", again.text);
        assert!(!again.text.contains(made["token"].as_str().unwrap()));
        assert_eq!(http.keyed("k", "/tokens", r#"{"label":"b"}"#).field(), "Idempotency-Key");
        assert_eq!(tokens(&http), before + 1);
    }
    let secret = made["token"].as_str().unwrap().to_owned();
    assert_eq!(http.call_as(&secret, "GET", "/status", None).status, 200, "it is good all the same");
    for (path, field) in [("/codes", "code"), ("/tickets", "ticket")] {
        let secret = http.keyed("k", path, "{}").json(201)[field].as_str().unwrap().to_owned();
        let again = http.keyed("k", path, "{}");
        assert_eq!(again.code(409), "EEXIST", "{path}");
        assert!(!again.text.contains(&secret), "{path}");
    }
}

#[test]
fn a_key_is_as_long_as_it_may_be_everywhere() {
    let http = Http::start();
    let id = http.session("{}");
    let (longest, too_long) = ("k".repeat(256), "k".repeat(257));
    for (path, body) in [
        ("/projects/default/sessions".to_owned(), "{}"),
        (format!("/sessions/{id}/messages"), r#"{"text":"x"}"#),
        ("/projects/default/issues".to_owned(), r#"{"title":"x"}"#),
    ] {
        assert_eq!(http.keyed(&too_long, &path, body).field(), "Idempotency-Key", "{path}");
        let first = http.keyed(&longest, &path, body);
        assert!([201, 202].contains(&first.status), "{path}: {}", first.text);
        assert_eq!(http.keyed(&longest, &path, body).text, first.text, "{path}");
    }
    until("the run to end", || (http.state(&id) == "idle").then_some(()));
}
