//! Lists of sessions: filters, pages, and that nobody is shown less than they were acknowledged.

use serde_json::{Value, json};
use testkit::until;

use crate::support::{ENDLESS, Http, builder};

fn names(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
}

impl Http {
    fn listed(&self, query: &str) -> Vec<String> {
        names(&self.get(&format!("/projects/default/sessions?{query}")))
    }
}

#[test]
fn sessions_are_found_by_state_agent_directory_and_text() {
    let http = Http::start();
    let cwd = json!({ "name": "elsewhere", "cwd": "/" }).to_string();
    http.session(&cwd);
    let talk = http.session(r#"{"name":"talk"}"#);
    http.post(&talk, "about zebras and lions");
    http.wait_for(&talk, "idle");
    let busy = http.session(r#"{"name":"busy"}"#);
    http.call("PUT", &format!("/sessions/{busy}"), Some(r#"{"model_override":"debug:script"}"#)).json(200);
    http.post(&busy, ENDLESS);
    // Its run has written what it has to before the next session changes.
    let records = || http.call("GET", &format!("/sessions/{busy}/records"), None).text;
    until("the run to begin", || records().contains("assistant_started").then_some(()));
    let over = http.session(r#"{"name":"over"}"#);
    http.call("PUT", &format!("/sessions/{over}"), Some(r#"{"title":"The old one"}"#)).json(200);
    http.call("DELETE", &format!("/sessions/{over}?confirm=true"), None).json(204);
    assert_eq!(http.listed(""), ["over", "busy", "talk", "elsewhere"]);
    assert_eq!(http.listed("state=running"), ["busy"], "as it was acknowledged, at once");
    assert_eq!(http.listed("state=ended"), ["over"]);
    assert_eq!(http.listed("cwd=%2F"), ["elsewhere"]);
    assert_eq!(http.listed("agent=coder&state=idle"), ["talk", "elsewhere"]);
    assert_eq!(http.listed("agent=nobody"), Vec::<String>::new());
    // Texts follow a moment behind.
    for (text, wanted) in [("zebras", "talk"), ("old%20one", "over"), ("elsewh", "elsewhere")] {
        until(text, || (http.listed(&format!("text={text}")) == [wanted]).then_some(()));
    }
    assert_eq!(http.listed("text=zebras&state=running"), Vec::<String>::new());
    assert_eq!(http.listed("text=%25"), Vec::<String>::new(), "no pattern, but a character");
    let theirs = http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    let none = http.call_as(&theirs, "GET", "/projects/default/sessions?text=zebras", None).json(200);
    assert_eq!(none["items"], json!([]));
}

#[test]
fn pages_of_what_a_text_finds_are_stable_too() {
    let http = Http::start();
    for n in 0..7 {
        let id = http.session(&json!({ "name": format!("n{n}") }).to_string());
        http.call("PUT", &format!("/sessions/{id}"), Some(r#"{"title":"needle"}"#)).json(200);
    }
    until("the index", || (http.listed("text=needle").len() == 7).then_some(()));
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = http.get(&format!("/projects/default/sessions?text=needle&limit=2{cursor}"));
        seen.extend(names(&page));
        let late = http.session("{}");
        http.call("PUT", &format!("/sessions/{late}"), Some(r#"{"title":"needle"}"#)).json(200);
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["n6", "n5", "n4", "n3", "n2", "n1", "n0"]);
}

#[test]
fn after_a_start_a_page_shows_all_it_did_before_and_loads_no_session() {
    let mut http = Http::of(builder().env("CTX_LIMITS_IDLE_UNLOAD_MS", "0"));
    for n in 0..20 {
        let id = http.session(&json!({ "name": format!("n{n}") }).to_string());
        let change = json!({ "title": format!("T{n}"), "model_override": "debug:script" }).to_string();
        http.call("PUT", &format!("/sessions/{id}"), Some(&change)).json(200);
        if n % 4 == 0 {
            http.call("DELETE", &format!("/sessions/{id}?confirm=true"), None).json(204);
        }
    }
    let before = http.get("/projects/default/sessions");
    until("the index", || (http.listed("text=T19").len() == 1).then_some(()));
    assert_eq!(http.daemon.stop(), 0);
    http.daemon.start_again();
    assert_eq!(http.get("/status")["loaded"], 0);
    assert_eq!(http.get("/projects/default/sessions"), before);
    assert_eq!(http.get("/status")["loaded"], 0, "the index knew it all");
    let first = &before["items"][3];
    assert_eq!(&http.get(&format!("/sessions/{}", first["id"].as_str().unwrap())), first);
    assert_eq!(http.get("/status")["loaded"], 0, "a GET loads no session");
    // Without the index the logs are read, and the page is the same.
    http.daemon.kill();
    for file in ["index.db", "index.db-wal", "index.db-shm"] {
        let _ = std::fs::remove_file(http.daemon.root().join(".state").join(file));
    }
    http.daemon.start_again();
    assert_eq!(http.get("/projects/default/sessions"), before);
}
