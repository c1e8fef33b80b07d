//! Bad input gets a code and a clear message, and changes nothing. And schemathesis over the whole document.

use std::process::Command;

use serde_json::Value;
use testkit::{Outcome, finish, rounds};

use crate::support::{Http, builder};

#[test]
fn wrong_bodies_are_refused_and_nothing_is_made() {
    let http = Http::start();
    let id = http.session("{}");
    let before = http.call("GET", &format!("/sessions/{id}/records"), None).text;
    let deep = "[".repeat(100_000);
    let deep_text = format!("{{\"text\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
    let huge = format!("{{\"text\":{}}}", "9".repeat(400));
    let long = serde_json::json!({ "text": "x".repeat(600 * 1024) }).to_string();
    let bodies = [
        "",
        "{",
        "[]",
        "null",
        "5",
        "\"text\"",
        r#"{"text":5}"#,
        r#"{"text":null}"#,
        r#"{"txt":"x"}"#,
        r#"{"text":"x","extra":1}"#,
        r#"{"text":"x","client_id":{}}"#,
        r#"{"text":""}"#,
        r#"{"text":"x","model_override":"no:such"}"#,
        r#"{"text":"\ud800"}"#,
        deep.as_str(),
        &deep_text,
        &huge,
    ];
    let bearer = format!("Authorization: Bearer {}", http.token);
    let file = http.daemon.path("body");
    let path = format!("/sessions/{id}/messages");
    let send = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let data = format!("@{}", file.display());
        // A busy server may take long to say that it does not want the body; a body sent to it meanwhile breaks the pipe.
        http.curl(&path, &["-X", "POST", "-H", &bearer, "--expect100-timeout", "60", "--data-binary", &data])
    };
    for body in bodies {
        let refused = send(body.as_bytes());
        let start: String = body.chars().take(60).collect();
        assert!((400..500).contains(&refused.status), "{} for {start}: {}", refused.status, refused.text);
        assert!(refused.json(refused.status)["error"]["message"].is_string());
    }
    assert_eq!(send(b"{\"text\":\"\xff\xfe\"}").code(400), "EINVAL");
    assert_eq!(send(long.as_bytes()).code(413), "EMSGSIZE", "longer than a message may be");
    assert_eq!(send(&vec![b' '; 5 << 20]).code(413), "EMSGSIZE", "longer than a body may be");
    assert_eq!(
        http.call("GET", &format!("/sessions/{id}/records"), None).text,
        before,
        "nothing has changed"
    );
}

#[test]
fn wrong_paths_and_queries_are_refused() {
    let http = Http::start();
    let id = http.session("{}");
    for path in [
        "/sessions/../../../etc/passwd",
        "/sessions/..%2f..%2fetc",
        "/sessions/%00",
        "/sessions/%ff%fe",
        "/sessions/x",
        "/sessions//messages",
        "/projects/..%2f/sessions/x",
        "/sessions/01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "/",
        "",
    ] {
        let answer = http.call("GET", path, None);
        assert!([400, 404].contains(&answer.status), "{path}: {} {}", answer.status, answer.text);
        assert!(answer.json(answer.status)["error"]["code"].is_string(), "{path}");
    }
    for query in [
        "limit=x",
        "limit=-1",
        "limit=99999999999999999999999",
        "limit=1&limit=2",
        "since=x",
        "before=%00",
        "nope=1",
        "cursor=zzz",
        "cursor=a99999999999999999999999",
        "superseded=maybe",
        "since=01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "cursor=%C3%A4",
    ] {
        let answer = http.call("GET", &format!("/sessions/{id}/messages?{query}"), None);
        assert_eq!(answer.code(400), "EINVAL", "{query}");
    }
    assert_eq!(http.call("GET", "/projects/default/sessions?state=sleeping", None).code(400), "EINVAL");
    assert_eq!(http.call("GET", "/projects/nowhere/sessions", None).code(404), "ENOENT");
    assert_eq!(http.call("GET", "/projects/default/sessions?text=nowhere", None).status, 200);
    assert_eq!(http.call("POST", "/projects/nowhere/sessions", None).code(404), "ENOENT");
    assert_eq!(
        http.call("POST", "/projects/default/sessions", Some(r#"{"agent":"nobody"}"#)).code(404),
        "ENOENT"
    );
    assert_eq!(http.call("PATCH", &format!("/sessions/{id}"), None).status, 405);
    for name in ["a/b", "..", "index", "x.sock", ""] {
        let body = serde_json::json!({ "name": name }).to_string();
        assert_eq!(
            http.call("POST", "/projects/default/sessions", Some(&body)).code(400),
            "EINVAL",
            "{name}"
        );
    }
    assert_eq!(http.get("/projects/default/sessions")["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn bad_input_says_which_field_is_to_blame() {
    let http = Http::start();
    let id = http.session("{}");
    let session = format!("/sessions/{id}");
    let shell = http.call("POST", "/shells", None).json(201)["id"].as_str().unwrap().to_owned();
    let issue = http.call("POST", "/projects/default/issues", Some(r#"{"title":"t"}"#)).json(201);
    let issue = issue["id"].as_str().unwrap().to_owned();
    let exec = format!("/shells/{shell}/exec");
    let messages = format!("{session}/messages");
    let bodies = [
        ("POST", messages.as_str(), r#"{"text":5}"#, "text"),
        ("POST", &messages, r#"{"text":"x","extra":1}"#, "extra"),
        ("POST", &messages, "{}", "text"),
        ("POST", &messages, "[]", "body"),
        ("POST", &messages, "{", "body"),
        ("POST", &messages, r#"{"text":"x","client_id":""}"#, "client_id"),
        ("POST", &messages, r#"{"text":"x","model_override":"a b"}"#, "model_override"),
        ("PUT", &session, r#"{"title":" "}"#, "title"),
        ("PUT", &session, r#"{"archived":"yes"}"#, "archived"),
        ("POST", "/projects/default/sessions", r#"{"cwd":"here"}"#, "cwd"),
        ("POST", "/projects/default/sessions", r#"{"scope":"temp"}"#, "scope"),
        ("POST", "/projects/default/sessions", r#"{"bound_issue":"x"}"#, "bound_issue"),
        ("POST", "/projects/default/sessions", r#"{"agent":"a/b"}"#, "agent"),
        ("POST", "/projects", r#"{"directory":5}"#, "directory"),
        ("POST", "/projects", r#"{"directory":"not absolute"}"#, "directory"),
        ("POST", "/projects/default/issues", r#"{"title":""}"#, "title"),
        ("POST", "/projects/default/issues", r#"{"title":"t","criteria":[{"text":5}]}"#, "criteria[0]"),
        ("POST", "/shells", r#"{"cwd":"/nowhere at all"}"#, "cwd"),
        ("POST", "/shells", r#"{"env":{"a b":"c"}}"#, "env"),
        ("POST", &exec, r#"{"command":"true","timeout_secs":-1}"#, "timeout_secs"),
        ("POST", &exec, r#"{"command":"a\u0000b"}"#, "command"),
        ("POST", "/tokens", r#"{"label":7}"#, "label"),
    ];
    for (method, path, body, field) in bodies {
        assert_eq!(http.call(method, path, Some(body)).field(), field, "{method} {path} {body}");
    }
    let fork = format!(r#"{{"resume_from":{{"session":"{id}","seq":1,"checkpoint":"x"}}}}"#);
    let refused = http.call("POST", "/projects/default/sessions", Some(&fork));
    assert_eq!(refused.field(), "resume_from");
    for (path, field) in [
        (format!("{session}/runs?cursor=zzz"), "cursor"),
        (format!("{session}/runs?cursor=01ARZ3NDEKTSV4RRFFQ69G5FAV"), "cursor"),
        (format!("{session}/messages?limit=x"), "limit"),
        (format!("{session}/messages?nope=1"), "nope"),
        (format!("{session}/messages?since=01ARZ3NDEKTSV4RRFFQ69G5FAV"), "since"),
        (format!("{session}/checkpoints?cursor=zzz"), "cursor"),
        ("/search".to_owned(), "q"),
        ("/search?q=x&cursor=zzz".to_owned(), "cursor"),
        ("/search?q=-".to_owned(), "q"),
        ("/audit?event=nothing".to_owned(), "event"),
        ("/audit?cursor=x".to_owned(), "cursor"),
        ("/shells?cursor=x".to_owned(), "cursor"),
        ("/projects?cursor=a%2Fb".to_owned(), "cursor"),
        ("/projects/default/issues?status=asleep".to_owned(), "status"),
    ] {
        assert_eq!(http.call("GET", &path, None).field(), field, "{path}");
    }
    let op = http.call("POST", &format!("/issues/{issue}/todos"), Some(r#"{"op":"fly"}"#));
    assert!(!op.field().is_empty());
}

#[test]
fn a_parameter_that_a_route_does_not_have_is_refused_by_every_route() {
    let http = Http::start();
    let document: Value = http.curl("/openapi.json", &[]).json(200);
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let there = path.strip_prefix("/api/v1").unwrap().split('/');
        let there: Vec<&str> = there.map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        for (method, operation) in item.as_object().unwrap() {
            let there = format!("{}?nope=1", there.join("/"));
            let refused = http.call(&method.to_uppercase(), &there, None);
            assert_eq!(refused.field(), "nope", "{method} {there}");
            assert!(operation["responses"]["400"].is_object(), "{method} {path} is described without it");
            asked += 1;
        }
    }
    assert!(asked > 60, "{asked} routes");
    assert_eq!(http.call("GET", "/healthz?", None).status, 200, "a query of nothing asks for nothing");
    assert_eq!(http.call("PATCH", "/healthz?nope=1", None).status, 405);
}

#[test]
fn the_document_and_its_page_are_served() {
    let http = Http::start();
    let document: Value = http.curl("/openapi.json", &[]).json(200);
    assert_eq!(document["openapi"].as_str().map(|v| &v[..2]), Some("3."));
    assert!(document["paths"]["/api/v1/sessions/{id}/messages"]["post"]["responses"]["409"].is_object());
    says_what_is_true(&document);
    let page = http.curl("/docs", &[]);
    assert_eq!(page.status, 200);
    assert!(!page.text.contains("http://") && !page.text.contains("https://"), "nothing from elsewhere");
}

/// What schemathesis cannot find out: a document that allows everything is never contradicted.
fn says_what_is_true(document: &serde_json::Value) {
    let responses =
        |path: &str, method: &str| &document["paths"][format!("/api/v1{path}")][method]["responses"];
    let mcp = &responses("/mcp", "post")["200"]["content"];
    assert!(mcp["text/event-stream"].is_object() && mcp["application/json"].is_null(), "{mcp}");
    for path in ["/healthz", "/docs", "/openapi.json"] {
        let all: Vec<&String> = responses(path, "get").as_object().unwrap().keys().collect();
        assert_eq!(
            all,
            ["200", "400", "403", "503"],
            "{path}: the query, the gate, and the limit of connections"
        );
    }
    for status in ["409", "413", "422", "504", "507"] {
        assert!(responses("/sessions/{id}", "get")[status].is_null(), "reading gives no {status}");
        assert!(responses("/sessions/{id}/messages", "post")[status].is_object(), "{status}");
    }
    assert!(responses("/stats", "get")["404"].is_null(), "it names nothing");
    let schemas = &document["components"]["schemas"];
    let states = ["idle", "running", "queued", "paused", "ended", "failed"];
    assert_eq!(schemas["Session"]["properties"]["state"]["enum"], serde_json::json!(states));
    let finish = &schemas["Run"]["properties"]["finish_reason"]["enum"];
    assert_eq!(*finish, serde_json::json!(["awaiting_compaction", null]));
}

/// Every route, with what fits the document and with what does not: no 500, no status or shape that is not in it.
#[test]
fn schemathesis_finds_nothing() {
    let http = Http::of(builder().env("CTX_SHELLS_MAX", "2"));
    let id = http.session("{}");
    http.post(&id, "something to find");
    http.wait_for(&id, "idle");
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut command = Command::new(repository.join("target/test-venv/bin/schemathesis"));
    command.current_dir(http.daemon.workspace()).args(["run", &http.url("/openapi.json")]);
    command.args(["--header", &format!("Authorization: Bearer {}", http.token)]);
    command.args([
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        &rounds(5).end.to_string(),
        "--seed",
        "7",
        "--workers",
        "2",
    ]);
    command.args(["--exclude-path-regex", "socket$", "--no-color", "--request-timeout", "30"]);
    let checks =
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
    command.args(["--checks", checks]);
    // The tool itself sometimes breaks in Python's parser, which says nothing of our answers: then it runs again.
    let broke = |outcome: &Outcome| outcome.stdout.contains("AST constructor recursion depth mismatch");
    let mut outcome = finish(&mut command);
    for _ in 0..3 {
        if !broke(&outcome) {
            break;
        }
        outcome = finish(&mut command);
    }
    outcome.ok();
}

#[test]
fn an_answer_before_the_body_has_arrived_ends_the_connection() {
    let http = Http::start();
    let closes =
        |answer: &crate::support::Response| answer.headers.to_lowercase().contains("connection: close");
    let body = "x".repeat(100_000);
    let file = http.daemon.path("body");
    std::fs::write(&file, &body).unwrap();
    let data = format!("@{}", file.display());
    // Nobody reads what a stranger sends.
    let refused = http.curl("/projects", &["-X", "POST", "--data-binary", &data]);
    assert_eq!(refused.status, 401);
    assert!(closes(&refused), "{}", refused.headers);
    let bearer = format!("Authorization: Bearer {}", http.token);
    let read = http.curl("/projects", &["-X", "POST", "-H", &bearer, "--data-binary", "{}"]);
    assert_eq!(read.status, 400);
    assert!(!closes(&read), "{}", read.headers);
}
