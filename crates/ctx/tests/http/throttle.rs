//! The seed's list for the concurrency throttle, through HTTP.

use serde_json::json;
use testkit::until;

use crate::support::{ENDLESS, Http, builder};

fn path(id: &str, what: &str) -> String {
    format!("/sessions/{id}/{what}")
}

/// A daemon with four sessions running, and a fifth.
fn full() -> (Http, Vec<String>, String) {
    let http = Http::start();
    let running: Vec<String> = (0..4).map(|_| http.playing()).collect();
    for id in &running {
        assert_eq!(http.post(id, ENDLESS)["state"], "running", "under the limit");
        assert_eq!(http.state(id), "running");
    }
    let fifth = http.playing();
    (http, running, fifth)
}

#[test]
fn what_others_run_in_a_project_neither_queues_my_message_nor_is_told_to_me() {
    let http = Http::of(builder().env("CTX_LIMITS_RUNNING_PER_PROJECT", "2"));
    for _ in 0..2 {
        assert_eq!(http.post(&http.playing(), ENDLESS)["state"], "running");
    }
    let token = http.daemon.ctx(&["token", "new", "--uid", "54322"]).ok().trim().to_owned();
    let call = |method: &str, path: &str, body: Option<&str>| http.call_as(&token, method, path, body);
    let playing = || {
        let made = call("POST", "/projects/default/sessions", Some("{}")).json(201);
        let id = made["id"].as_str().unwrap().to_owned();
        let script = Some(r#"{"model_override":"debug:script"}"#);
        call("PUT", &format!("/sessions/{id}"), script).json(200);
        id
    };
    let post = |id: &str| {
        let body = json!({ "text": ENDLESS }).to_string();
        call("POST", &path(id, "messages"), Some(&body)).json(202)
    };
    let first = playing();
    assert_eq!(post(&first)["state"], "running", "nothing of theirs ran");
    assert_eq!(post(&playing())["state"], "running");
    let third = playing();
    assert_eq!(post(&third)["state"], "queued", "their own two fill their own limit");
    let limit = call("GET", &format!("/sessions/{third}"), None).json(200)["limit"].clone();
    assert_eq!(limit, json!({ "scope": "per_project", "running": 2, "limit": 2 }));
    let queued = until("the audit's line", || {
        let told = call("GET", "/audit?event=session.queued", None).json(200);
        told["items"].as_array().and_then(|told| told.first().cloned())
    });
    assert_eq!(queued["data"]["running_count"], 2, "{queued}");
    // What they were told to do helps.
    assert_eq!(call("POST", &path(&third, "resume"), None).code(409), "EBUSY");
    call("DELETE", &format!("/sessions/{first}?confirm=true"), None).json(204);
    call("POST", &path(&third, "resume"), None).json(202);
}

#[test]
fn sixteen_run_across_projects_and_the_seventeenth_waits() {
    let http = Http::start();
    let projects: Vec<String> = (0..5).map(|n| format!("p{n}")).collect();
    for project in &projects {
        let dir = http.daemon.path(project);
        std::fs::create_dir_all(dir.join(".ctx")).unwrap();
        let file = format!("version: 1\nproject: {project}\nprimary:\n  model: debug:script\n");
        std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
        http.call("POST", "/projects", Some(&json!({ "directory": dir }).to_string())).json(201);
    }
    let session = |project: &str| {
        let made = http.call("POST", &format!("/projects/{project}/sessions"), Some("{}")).json(201);
        made["id"].as_str().unwrap().to_owned()
    };
    let mut running = Vec::new();
    for project in projects.iter().take(4) {
        for _ in 0..4 {
            let id = session(project);
            assert_eq!(http.post(&id, ENDLESS)["state"], "running", "{} run", running.len());
            running.push(id);
        }
    }
    let late = session("p4");
    let posted = http.post(&late, "later");
    assert_eq!(posted["state"], "queued", "nothing of its own project runs");
    let shown = http.get(&format!("/sessions/{late}"));
    assert_eq!(
        (&shown["reason"], &shown["limit"]["scope"]),
        (&json!("concurrency_limit"), &json!("per_operator"))
    );
    assert_eq!(http.get(&path(&late, "messages"))["items"][0]["content"], "later", "it is kept");
    assert_eq!(http.call("POST", &path(&late, "resume"), None).code(409), "EBUSY", "still no slot");
    // Who stands for someone else is not counted with them.
    let other = http.call("POST", "/tokens", Some(r#"{"uid":54321}"#)).json(201)["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let theirs = http.call_as(&other, "POST", "/projects/default/sessions", Some("{}")).json(201);
    let theirs = path(theirs["id"].as_str().unwrap(), "messages");
    let posted_too = http.call_as(&other, "POST", &theirs, Some(r#"{"text":"x"}"#)).json(202);
    assert_eq!(posted_too["state"], "running");
    http.call("DELETE", &format!("/sessions/{}?confirm=true", running[0]), None).json(204);
    assert_eq!(http.state(&late), "queued", "nothing starts by itself");
    assert_eq!(http.call("POST", &path(&late, "resume"), None).json(202)["run_id"], posted["run_id"]);
    http.wait_for(&late, "idle");
}

#[test]
fn creating_sessions_asks_no_limit() {
    let (http, _, _) = full();
    let more: Vec<String> = (0..3).map(|_| http.session("{}")).collect();
    assert!(more.iter().all(|id| http.state(id) == "idle"));
}
