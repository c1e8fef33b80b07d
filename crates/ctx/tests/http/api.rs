//! Sessions, messages, runs and records, and what is promised of lists and repeated writes.

use serde_json::{Value, json};
use testkit::until;

use crate::support::{ENDLESS, Http, builder};

#[test]
fn a_conversation_from_the_first_message_to_the_end() {
    let http = Http::start();
    let id = http.session(r#"{"name":"talk","agent":"coder"}"#);
    let shown = http.get(&format!("/sessions/{id}"));
    assert_eq!(
        (&shown["name"], &shown["state"], &shown["project"]),
        (&json!("talk"), &json!("idle"), &json!("default"))
    );
    let posted = http.post(&id, "hello");
    assert!(["running", "done"].contains(&posted["state"].as_str().unwrap()), "{posted}");
    http.wait_for(&id, "idle");
    let messages = http.get(&format!("/sessions/{id}/messages"));
    let said: Vec<(&str, &str)> = messages["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["role"].as_str().unwrap(), m["content"].as_str().unwrap()))
        .collect();
    assert_eq!(said, [("user", "hello"), ("assistant", "hello")]);
    assert_eq!(messages["items"][0]["id"], posted["message_id"]);
    let run = http.get(&format!("/sessions/{id}/runs/{}", posted["run_id"].as_str().unwrap()));
    assert_eq!(run["state"], "done");
    assert_eq!(run["operator_message"]["content"], "hello");
    assert_eq!(run["primary_response"]["content"], "hello");
    assert_eq!(http.get(&format!("/sessions/{id}/runs"))["items"], json!([run]), "in a list it is as whole");
    let renamed = http.call("PUT", &format!("/sessions/{id}"), Some(r#"{"title":"A talk"}"#)).json(200);
    assert_eq!(renamed["title"], "A talk");
    assert_eq!(
        http.call("DELETE", &format!("/sessions/{id}"), None).code(400),
        "EINVAL",
        "not without confirm"
    );
    assert_eq!(http.call("DELETE", &format!("/sessions/{id}?confirm=true"), None).status, 204);
    let again = http.call("POST", &format!("/sessions/{id}/messages"), Some(r#"{"text":"x"}"#));
    assert_eq!(again.code(409), "ESHUTDOWN");
}

#[test]
fn the_same_session_through_every_door() {
    let http = Http::start();
    http.daemon.ctx(&["send", "coder", "by the command line"]).ok();
    let listed = http.get("/projects/default/sessions");
    let id = listed["items"][0]["id"].as_str().unwrap().to_owned();
    http.post(&id, "by http");
    http.wait_for(&id, "idle");
    let api = http.get(&format!("/sessions/{id}/messages"));
    let history = http.daemon.ctx(&["history", "coder/default", "--json"]).ok();
    let files: Vec<Value> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(&files, api["items"].as_array().unwrap(), "the command prints the API's objects");
    let records = http.call("GET", &format!("/sessions/{id}/records"), None);
    assert!(records.headers.contains("application/jsonl"));
    let log = std::fs::read_to_string(http.daemon.root().join(log_of(&http, &id))).unwrap();
    assert_eq!(records.text, log, "the records are the log");
    let tail = http.call("GET", &format!("/sessions/{id}/records?from=3"), None);
    assert_eq!(tail.text, log.lines().skip(3).map(|line| format!("{line}\n")).collect::<String>());
}

#[test]
fn the_same_session_through_every_door_at_once() {
    let http = Http::of(builder());
    http.python("doors.py", &[]).ok();
}

fn log_of(http: &Http, id: &str) -> String {
    let shown = http.get(&format!("/sessions/{id}"));
    format!(
        "home/{}/agent/coder/session/{}/events.jsonl",
        shown["owner"],
        shown["dir_name"].as_str().unwrap()
    )
}

#[test]
fn a_write_with_a_key_is_done_once_also_when_it_is_sent_twice_at_a_time() {
    let mut http = Http::start();
    let bearer = format!("Authorization: Bearer {}", http.token);
    let create = || {
        let args = ["-X", "POST", "-H", &bearer, "-H", "Idempotency-Key: once", "--data-binary", "{}"];
        http.curl("/projects/default/sessions", &args).json(201)["id"].as_str().unwrap().to_owned()
    };
    let ids: Vec<String> = std::thread::scope(|scope| {
        let sending: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        sending.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(http.get("/projects/default/sessions")["items"].as_array().map(Vec::len), Some(1));
    let args =
        ["-X", "POST", "-H", &bearer, "-H", "Idempotency-Key: once", "--data-binary", r#"{"name":"x"}"#];
    assert_eq!(http.curl("/projects/default/sessions", &args).code(400), "EINVAL", "another request");
    // A message's key holds also after a restart.
    let path = format!("/sessions/{}/messages", ids[0]);
    let args = ["-X", "POST", "-H", &bearer, "-H", "Idempotency-Key: m", "--data-binary", r#"{"text":"hi"}"#];
    let first = http.curl(&path, &args).json(202);
    http.daemon.kill();
    http.daemon.start_again();
    let again = http.curl(&path, &args).json(202);
    assert_eq!(again["run_id"], first["run_id"]);
    // So does a session's, also one that was made as a fork.
    let fork = json!({ "resume_from": ids[0] }).to_string();
    for body in ["{}", &fork] {
        let key = format!("Idempotency-Key: session {}", body.len());
        let args = ["-X", "POST", "-H", &bearer, "-H", &key, "--data-binary", body];
        let first = http.curl("/projects/default/sessions", &args).json(201);
        http.daemon.kill();
        http.daemon.start_again();
        assert_eq!(http.curl("/projects/default/sessions", &args).json(201)["id"], first["id"]);
    }
}

#[test]
fn a_run_is_cancelled_and_its_text_is_kept() {
    let http = Http::start();
    let id = http.playing();
    let run = http.post(&id, ENDLESS)["run_id"].as_str().unwrap().to_owned();
    assert_eq!(
        http.call("POST", &format!("/sessions/{id}/messages"), Some(r#"{"text":"x"}"#)).code(409),
        "EBUSY"
    );
    until("the text", || http.get("/status")["running"].as_u64().filter(|n| *n == 1));
    let ended = http.call("POST", &format!("/sessions/{id}/runs/{run}/cancel"), None).json(200);
    assert_eq!(ended["state"], "cancelled");
    let again = http.call("POST", &format!("/sessions/{id}/runs/{run}/cancel"), None).json(200);
    assert_eq!(again["state"], "cancelled");
    assert_eq!(http.state(&id), "idle");
}

#[test]
fn models_and_agents_are_listed() {
    let http = Http::start();
    let names = |path: &str| -> Vec<String> {
        let list = http.get(path);
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("/agents"), ["coder"]);
    assert!(names("/models").contains(&"debug:echo".to_owned()), "{:?}", names("/models"));
    // Whatever it was called by, one name is shown.
    let id = http.session("{}");
    let change = r#"{"model_override":"debug/script"}"#;
    let session = http.call("PUT", &format!("/sessions/{id}"), Some(change)).json(200);
    assert_eq!(
        (&session["model"], &session["model_override"]),
        (&json!("debug:echo"), &json!("debug:script"))
    );
}

#[test]
fn what_was_said_and_done_is_found_by_its_owner_alone() {
    let http = Http::start();
    let id = http.session("{}");
    http.post(&id, "the heron stands in the reeds");
    http.wait_for(&id, "idle");
    // The index follows behind.
    let hits = until("the hits", || {
        let found = http.get("/search?q=heron");
        (found["items"].as_array().map(Vec::len) == Some(2)).then_some(found)
    });
    assert_eq!(hits["items"][0]["session_id"], id);
    let marked = hits["items"][0]["snippet"].as_array().unwrap().iter().find(|piece| piece["is_hit"] == true);
    assert_eq!(marked.map(|piece| &piece["text"]), Some(&json!("heron")));
    until("the audit events", || {
        let audit = http.get(&format!("/audit?session={id}&limit=3"));
        let newest =
            audit["items"][0]["event"] == "session.state" || audit["items"][0]["event"] == "run.completed";
        (newest && audit["next"].is_string()).then_some(())
    });
    let theirs = http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    for path in ["/search?q=heron", "/audit"] {
        assert_eq!(http.call_as(&theirs, "GET", path, None).json(200)["items"], json!([]), "{path}");
    }
    assert_eq!(http.call("GET", "/search", None).code(400), "EINVAL");
    assert_eq!(http.call("GET", "/audit?event=nothing", None).code(400), "EINVAL");
}

#[test]
fn a_search_has_every_filter_and_can_be_grouped_by_session() {
    let http = Http::start();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../ctx-interop/tests/fixtures");
    for case in ["codex/tools", "claude/interactive"] {
        http.daemon.ctx(&["import", "--path", &format!("{fixtures}/{case}/files")]).ok();
    }
    let items = |path: &str| http.get(path)["items"].as_array().unwrap().clone();
    until("both to be searchable", || (items("/search/sessions?q=inventory").len() == 2).then_some(()));
    let grouped = http.get("/search/sessions?q=inventory&from=codex&hits=2");
    let session = &grouped["items"][0];
    assert_eq!((session["hits"].as_array().unwrap().len(), &grouped["more"]), (2, &json!(false)));
    assert!(
        session["matches"].as_u64().unwrap() > 2 && session["hits"][0]["session_id"] == session["session_id"]
    );
    assert_eq!(items("/search/sessions?q=inventory&limit=1").len(), 1);
    assert_eq!(http.get("/search/sessions?q=inventory&limit=1")["more"], true);
    let flat = items("/search?q=inventory&dir=/home/dev/inventory&branch=main&tool=exec_command");
    let is_codex = |hit: &Value| hit["agent"] == "codex" && hit["tool"] == "exec_command";
    assert!(!flat.is_empty() && flat.iter().all(is_codex), "{flat:?}");
    assert!(items("/search?q=inventory&branch=other").is_empty());
    for bad in [
        "?q=x&from=nobody",
        "?q=x&dir=work",
        "?q=x&from=codex&agent=codex",
        "?q=x&hits=2",
        "/sessions?q=x&cursor=1:0",
    ] {
        assert_eq!(http.call("GET", &format!("/search{bad}"), None).code(400), "EINVAL", "{bad}");
    }
}

#[test]
fn a_thousand_sessions_with_a_run_each_over_sixteen_clients() {
    let many = builder()
        .env("CTX_LIMITS_RUNNING_PER_PROJECT", "2000")
        .env("CTX_LIMITS_RUNNING_PER_OPERATOR", "2000");
    let http = Http::of(many);
    let said = http.python("crowd.py", &["1000", "16"]).ok();
    let figures: Value = serde_json::from_str(&said).expect("figures");
    assert_eq!(figures["sessions"], 1000);
    assert!(figures["memory_mb"].as_u64().unwrap() < 200, "{figures}");
}
