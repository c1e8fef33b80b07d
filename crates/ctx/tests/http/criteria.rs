//! The acceptance criteria of the bound issue, as its agent marks them.

use serde_json::{Value, json};

use crate::support::Http;

/// Plays one call of the `issue` tool; what it gave.
fn issue(http: &Http, session: &str, input: Value) -> String {
    let call = json!({ "tool": { "name": "issue", "input": input } });
    http.post(session, &json!({ "script": [call, { "text": "." }] }).to_string());
    http.wait_for(session, "idle");
    let list = http.get(&format!("/sessions/{session}/messages?limit=1000"));
    let mut results = list["items"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
    results.next_back().unwrap()["content"].as_str().unwrap().to_owned()
}

fn criteria(http: &Http, id: &str) -> Value {
    http.get(&format!("/issues/{id}"))["criteria"].clone()
}

/// "When the agent has marked the last open criterion done, it calls checkpoint."
#[test]
fn an_agent_marks_the_criteria_of_the_bound_issue() {
    let http = Http::start();
    let new = json!({ "title": "Mend", "criteria": [{ "text": "it builds" }, { "text": "it is fast" }] });
    let made = http.call("POST", "/projects/default/issues", Some(&new.to_string())).json(201);
    let id = made["id"].as_str().unwrap();
    let session = http.playing();
    let met = |item: &str, met: bool| {
        issue(&http, &session, json!({ "op": "criterion", "item": item, "met": met }))
    };
    assert!(met("1", true).contains("bind one"), "without a binding there is nothing to mark");
    http.call("PUT", &format!("/sessions/{session}/bind"), Some(&json!({ "issue_id": id }).to_string()))
        .json(200);

    let said = met("it is fast", true);
    assert!(said.contains("1. [ ] it builds") && said.contains("2. [x] it is fast"), "{said}");
    met("1", true);
    let done = |first: bool, second: bool| json!([{ "text": "it builds", "done": first }, { "text": "it is fast", "done": second }]);
    assert_eq!(criteria(&http, id), done(true, true));
    met("2", false);
    assert_eq!(criteria(&http, id), done(true, false), "and takes it back");
    let refused = met("it sings", true);
    assert!(refused.contains("no such criterion") && refused.contains("1. [x] it builds"), "{refused}");
    let refused = issue(&http, &session, json!({ "op": "criterion", "item": "1" }));
    assert!(refused.contains("bad arguments"), "{refused}");
    assert_eq!(http.get(&format!("/issues/{id}"))["status"], "open", "a criterion moves no issue");
}
