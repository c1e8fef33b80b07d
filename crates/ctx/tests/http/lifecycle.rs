//! Forks, archives and purges through the API.

use serde_json::{Value, json};
use testkit::until;

use crate::support::{ENDLESS, Http};

fn said(http: &Http, session: &str) -> Vec<Value> {
    let list = http.get(&format!("/sessions/{session}/messages"));
    list["items"].as_array().unwrap().iter().map(|message| message["content"].clone()).collect()
}

fn listed(http: &Http, query: &str) -> Vec<String> {
    let list = http.get(&format!("/projects/default/sessions{query}"));
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_session_begins_as_a_copy_of_another() {
    let http = Http::start();
    let source = http.session("{}");
    http.post(&source, "hello");
    http.wait_for(&source, "idle");
    let records = http.call("GET", &format!("/sessions/{source}/records"), None).text.lines().count() as u64;

    let whole = json!({ "resume_from": source, "name": "copy" }).to_string();
    let fork = http.call("POST", "/projects/default/sessions", Some(&whole)).json(201);
    let id = fork["id"].as_str().unwrap();
    assert_eq!((&fork["state"], &fork["name"]), (&json!("idle"), &json!("copy")));
    assert_eq!(fork["forked_from"], json!({ "session_id": source, "seq": records - 1 }));
    until("the fork to say what its source says", || {
        let (fork, source) = (said(&http, id), said(&http, &source));
        (fork.len() == 2 && fork == source).then_some(())
    });

    let start = json!({ "resume_from": { "session": source, "seq": 0 } }).to_string();
    let empty = http.call("POST", "/projects/default/sessions", Some(&start)).json(201);
    assert_eq!(said(&http, empty["id"].as_str().unwrap()), Vec::<Value>::new());

    http.post(id, "alone");
    http.wait_for(id, "idle");
    assert_eq!((said(&http, id).len(), said(&http, &source).len()), (4, 2));
}

#[test]
fn a_fork_is_answered_with_what_it_took_over() {
    let http = Http::start();
    let source = http.playing();
    let titled = r#"{"title":"the original"}"#;
    http.call("PUT", &format!("/sessions/{source}"), Some(titled)).json(200);
    let records = http.call("GET", &format!("/sessions/{source}/records"), None).text.lines().count() as u64;
    let whole = json!(source);
    let all = json!({ "session": source, "seq": records - 1 });
    let first = json!({ "session": source, "seq": 0 });
    for (from, model, title) in [
        (whole, json!("debug:script"), json!("the original")),
        (all, json!("debug:script"), json!("the original")),
        (first, Value::Null, Value::Null),
    ] {
        let body = json!({ "resume_from": from }).to_string();
        let made = http.call("POST", "/projects/default/sessions", Some(&body)).json(201);
        assert_eq!((&made["model_override"], &made["title"]), (&model, &title), "{body}");
        let read = http.get(&format!("/sessions/{}", made["id"].as_str().unwrap()));
        assert_eq!((&read["model_override"], &read["title"]), (&model, &title), "{body}");
    }
}

#[test]
fn a_change_that_is_refused_in_part_changes_nothing() {
    let http = Http::start();
    let id = http.playing();
    let path = format!("/sessions/{id}");
    http.call("POST", &format!("{path}/messages"), Some(&json!({ "text": ENDLESS }).to_string())).json(202);
    let records = || http.call("GET", &format!("{path}/records"), None).text;
    until("the run to have said something", || records().contains("assistant_started").then_some(()));
    let before = http.get(&path);
    let all = r#"{"title":"new","model_override":"debug:echo","archived":true}"#;
    assert_eq!(http.call("PUT", &path, Some(all)).code(409), "EBUSY", "what runs cannot be put away");
    for bad in [r#"{"model_override":"debug:echo","title":" "}"#, r#"{"title":"new","model_override":"a b"}"#]
    {
        assert_eq!(http.call("PUT", &path, Some(bad)).code(400), "EINVAL", "{bad}");
    }
    let after = http.get(&path);
    for field in ["title", "model_override", "archived"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    assert!(!records().contains("session_renamed"));
    assert_eq!(http.call("DELETE", &format!("{path}?confirm=true"), None).status, 204);
    assert_eq!(
        http.call("PUT", &path, Some(all)).code(409),
        "ESHUTDOWN",
        "what has ended has no model to set"
    );
    assert_eq!(http.get(&path)["archived"], json!(false));
    let rest = r#"{"title":"new","archived":true}"#;
    let changed = http.call("PUT", &path, Some(rest)).json(200);
    assert_eq!((&changed["title"], &changed["archived"]), (&json!("new"), &json!(true)));
}

#[test]
fn a_fork_that_cannot_be_made_is_refused_and_leaves_nothing() {
    let http = Http::start();
    let source = http.session(r#"{"name":"taken"}"#);
    http.post(&source, "hello");
    http.wait_for(&source, "idle");
    let refused = |body: Value, status: u16| {
        http.call("POST", "/projects/default/sessions", Some(&body.to_string())).code(status)
    };
    let missing = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    assert_eq!(refused(json!({ "resume_from": missing }), 404), "ENOENT");
    assert_eq!(refused(json!({ "resume_from": "x" }), 400), "EINVAL");
    assert_eq!(refused(json!({ "resume_from": { "session": source, "seq": 1 } }), 400), "EINVAL");
    assert_eq!(refused(json!({ "resume_from": { "session": source, "seq": 99 } }), 404), "ENOENT");
    assert_eq!(refused(json!({ "resume_from": { "session": source, "at": 1 } }), 400), "EINVAL");
    assert_eq!(
        refused(json!({ "resume_from": { "session": source, "checkpoint": missing } }), 400),
        "EINVAL"
    );
    assert_eq!(refused(json!({ "resume_from": source, "agent": "other" }), 400), "EINVAL");
    assert_eq!(refused(json!({ "resume_from": source, "cwd": "/" }), 400), "EINVAL");
    assert_eq!(refused(json!({ "resume_from": source, "scope": "temp" }), 400), "EINVAL");
    assert_eq!(refused(json!({ "resume_from": source, "name": "taken" }), 409), "EEXIST");
    assert_eq!(refused(json!({ "resume_from": source, "name": "../x" }), 400), "EINVAL");
    let elsewhere = json!({ "resume_from": source }).to_string();
    http.call("POST", "/projects/other/sessions", Some(&elsewhere)).code(400);
    assert_eq!(listed(&http, "?archived=true"), [source]);
}

#[test]
fn a_session_is_put_away_and_brought_back() {
    let http = Http::start();
    let id = http.session("{}");
    let path = format!("/sessions/{id}");
    let away = http.call("PUT", &path, Some(r#"{"archived":true}"#)).json(200);
    assert_eq!((&away["archived"], &away["state"]), (&json!(true), &json!("idle")));
    assert_eq!((listed(&http, ""), listed(&http, "?archived=true")), (vec![], vec![id.clone()]));
    http.post(&id, "back");
    http.wait_for(&id, "idle");
    assert_eq!(listed(&http, ""), std::slice::from_ref(&id));
    assert_eq!(http.get(&path)["archived"], false);
}

#[test]
fn a_session_that_is_over_is_deleted_and_no_other() {
    let http = Http::start();
    let id = http.session("{}");
    let path = format!("/sessions/{id}");
    assert_eq!(http.call("DELETE", &format!("{path}?purge=true"), None).code(409), "EBUSY");
    assert_eq!(http.call("DELETE", &format!("{path}?confirm=true"), None).status, 204);
    assert_eq!(http.call("DELETE", &format!("{path}?purge=true"), None).status, 204);
    assert_eq!(http.call("GET", &path, None).code(404), "ENOENT");
    assert_eq!(http.call("DELETE", &format!("{path}?purge=true"), None).code(404), "ENOENT");
    assert_eq!(listed(&http, "?archived=true"), Vec::<String>::new());
    let told = http.get("/audit?event=session.purged");
    let told: Vec<&Value> =
        told["items"].as_array().unwrap().iter().map(|line| &line["data"]["session_id"]).collect();
    assert_eq!(told, [&json!(id)], "who deleted it is known when it is gone");
}
