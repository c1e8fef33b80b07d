//! Issues, todos and the session that works on an issue: the seed's section on binding, line by line, and what the
//! `todo` and `issue` tools do to them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;

use ctx_session::Name;
use ctx_views::db::IndexReader;
use serde_json::{Value, json};
use testkit::until;

use crate::support::{ENDLESS, Http, Response, builder};

impl Http {
    fn issue(&self, body: &Value) -> Value {
        self.call("POST", "/projects/default/issues", Some(&body.to_string())).json(201)
    }

    /// A new issue; its id.
    fn titled(&self, title: &str) -> String {
        text(&self.issue(&json!({ "title": title }))["id"])
    }

    fn bind(&self, session: &str, issue: &str) -> Response {
        let body = json!({ "issue_id": issue }).to_string();
        self.call("PUT", &format!("/sessions/{session}/bind"), Some(&body))
    }

    fn unbind(&self, session: &str) -> Response {
        self.call("DELETE", &format!("/sessions/{session}/bind"), None)
    }

    fn bound(&self, session: &str) -> Value {
        self.get(&format!("/sessions/{session}"))["bound_issue"].clone()
    }

    fn end(&self, session: &str) {
        self.call("DELETE", &format!("/sessions/{session}?confirm=true"), None).json(204);
    }

    fn change_todos(&self, issue: &str, body: &Value) -> Response {
        self.call("POST", &format!("/issues/{issue}/todos"), Some(&body.to_string()))
    }

    /// `a:open b:done`.
    fn todos(&self, issue: &str) -> String {
        line(&self.get(&format!("/issues/{issue}/todos")))
    }

    /// Has the model play a script to its end; what it and its tools have said in that run.
    fn play(&self, session: &str, steps: &Value) -> Vec<(String, String)> {
        let before = self.get(&format!("/sessions/{session}/messages?limit=1000"));
        let before = before["items"].as_array().map_or(0, Vec::len);
        self.post(session, &json!({ "script": steps }).to_string());
        self.wait_for(session, "idle");
        let after = self.get(&format!("/sessions/{session}/messages?limit=1000"));
        let said = after["items"].as_array().unwrap().iter().skip(before + 1);
        said.map(|message| (text(&message["role"]), text(&message["content"]))).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn line(todos: &Value) -> String {
    let one = |todo: &Value| format!("{}:{}", text(&todo["text"]), text(&todo["status"]));
    todos["items"].as_array().unwrap().iter().map(one).collect::<Vec<_>>().join(" ")
}

fn todo(input: &Value) -> Value {
    json!({ "tool": { "name": "todo", "input": input } })
}

/// What a tool gave, of what was said.
fn result_of(said: &[(String, String)]) -> String {
    let results: Vec<&str> =
        said.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    (*results.last().unwrap_or_else(|| panic!("no result: {said:?}"))).to_owned()
}

/// The last turn of the request that the model dumped.
fn last_turn(said: &[(String, String)]) -> (String, String) {
    let (_, dumped) = said.last().unwrap();
    let request: Value = serde_json::from_str(dumped).unwrap_or_else(|error| panic!("{error}: {dumped}"));
    let turn = request["messages"].as_array().unwrap().last().unwrap().clone();
    (text(&turn["role"]), turn["content"].to_string())
}

#[test]
fn issues_are_made_listed_read_and_changed() {
    let http = Http::start();
    let criteria = json!(["it works", { "text": "it is fast", "done": true }]);
    let made = http.issue(&json!({ "title": "Fix it", "body": "because", "criteria": criteria }));
    let id = text(&made["id"]);
    assert_eq!(
        (&made["number"], &made["status"], &made["project"]),
        (&json!(1), &json!("open"), &json!("default"))
    );
    let whole = json!([{ "text": "it works", "done": false }, { "text": "it is fast", "done": true }]);
    assert_eq!((&made["criteria"], &made["todos"], &made["session_id"]), (&whole, &json!([]), &Value::Null));
    assert_eq!(http.get(&format!("/issues/{id}")), made);
    for n in 2..=5 {
        assert_eq!(http.issue(&json!({ "title": format!("Issue {n}") }))["number"], n);
    }
    let change =
        json!({ "title": "Fix it all", "status": "in_progress", "criteria": ["only this"] }).to_string();
    let changed = http.call("PATCH", &format!("/issues/{id}"), Some(&change)).json(200);
    assert_eq!(
        (&changed["title"], &changed["body"], &changed["status"]),
        (&json!("Fix it all"), &json!("because"), &json!("in_progress"))
    );
    assert_eq!(changed["criteria"], json!([{ "text": "only this", "done": false }]));
    assert!(changed["updated_at"].as_u64() >= made["created_at"].as_u64());

    let numbers = |path: &str| -> (Vec<u64>, Value) {
        let page = http.get(&format!("/projects/default/issues{path}"));
        let items = page["items"].as_array().unwrap().iter().map(|issue| issue["number"].as_u64().unwrap());
        (items.collect(), page["next"].clone())
    };
    assert_eq!(numbers("").0, [1, 2, 3, 4, 5]);
    assert_eq!(numbers("?status=in_progress").0, [1]);
    assert_eq!(numbers("?status=closed").0, [] as [u64; 0]);
    let (first, next) = numbers("?limit=2&status=open");
    assert_eq!(first, [2, 3]);
    http.titled("a late one");
    assert_eq!(numbers(&format!("?limit=2&status=open&cursor={}", text(&next))).0, [4, 5]);

    let key =
        ["-X", "POST", "-H", &format!("Authorization: Bearer {}", http.token), "-H", "Idempotency-Key: k"];
    let once = || {
        http.curl("/projects/default/issues", &[&key[..], &["-d", r#"{"title":"once"}"#]].concat()).json(201)
    };
    assert_eq!(once(), once());
    assert_eq!(numbers("").0.len(), 7);

    let before = http.get("/projects/default/issues");
    for body in [
        "",
        "{}",
        r#"{"title":""}"#,
        r#"{"title":"a\nb"}"#,
        r#"{"title":"x","extra":1}"#,
        r#"{"title":5}"#,
        r#"{"title":"x","criteria":[5]}"#,
        r#"{"title":"x","criteria":[{"text":"y","more":1}]}"#,
        r#"{"title":"x","status":"open"}"#,
    ] {
        assert_eq!(http.call("POST", "/projects/default/issues", Some(body)).code(400), "EINVAL", "{body}");
    }
    for body in [r#"{"status":"doing"}"#, r#"{"number":7}"#, r#"{"title":" "}"#] {
        assert_eq!(http.call("PATCH", &format!("/issues/{id}"), Some(body)).code(400), "EINVAL", "{body}");
    }
    assert_eq!(http.call("GET", "/projects/default/issues?status=doing", None).code(400), "EINVAL");
    assert_eq!(http.call("GET", "/projects/default/issues?cursor=x", None).code(400), "EINVAL");
    for path in
        ["/projects/nowhere/issues", "/issues/x", "/issues/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/issues/x/todos"]
    {
        assert_eq!(http.call("GET", path, None).code(404), "ENOENT", "{path}");
    }
    assert_eq!(http.call("POST", "/projects/nowhere/issues", Some(r#"{"title":"x"}"#)).code(404), "ENOENT");
    assert_eq!(http.get("/projects/default/issues"), before, "nothing has changed");
}

#[test]
fn todos_are_added_and_moved_by_hand() {
    let http = Http::start();
    let id = http.titled("By hand");
    assert_eq!(line(&http.change_todos(&id, &json!({ "text": "a" })).json(201)), "a:open");
    let ops = [
        (json!({ "op": "append", "item": "b" }), "a:open b:open"),
        (json!({ "op": "start", "item": "a" }), "a:in_progress b:open"),
        (json!({ "op": "start", "item": "2" }), "a:open b:in_progress"),
        (json!({ "op": "done", "item": "b" }), "a:open b:done"),
        (json!({ "op": "note", "item": "a", "note": "hard" }), "a:open b:done"),
        (json!({ "op": "drop", "item": "1" }), "a:dropped b:done"),
        (json!({ "op": "init", "items": ["c"] }), "a:dropped b:done c:open"),
    ];
    for (op, wanted) in ops {
        assert_eq!(line(&http.change_todos(&id, &op).json(200)), wanted, "{op}");
    }
    let issue = http.get(&format!("/issues/{id}"));
    assert_eq!((&issue["todos"][0]["note"], &issue["todos"][1]["note"]), (&json!("hard"), &Value::Null));
    for (op, status, code) in [
        (json!({ "op": "init", "items": ["d"] }), 409, "EEXIST"),
        (json!({ "op": "done", "item": "nothing like it" }), 404, "ENOENT"),
        (json!({ "op": "delete", "item": "a" }), 400, "EINVAL"),
        (json!({ "op": "start" }), 400, "EINVAL"),
        (json!({ "op": "start", "item": "a", "note": "x" }), 400, "EINVAL"),
        (json!({ "text": "x", "done": true }), 400, "EINVAL"),
        (json!({}), 400, "EINVAL"),
    ] {
        assert_eq!(http.change_todos(&id, &op).code(status), code, "{op}");
    }
    assert_eq!(http.todos(&id), "a:dropped b:done c:open");
}

/// "Session-side pointer. Binding is not a state transition."
#[test]
fn binding_is_a_pointer_and_todos_wait_for_whoever_binds_next() {
    let http = Http::start();
    let (session, other) = (http.playing(), http.titled("Another"));
    let issue = http.titled("The one");
    http.change_todos(&issue, &json!({ "op": "init", "items": ["a", "b"] })).json(200);
    http.change_todos(&issue, &json!({ "op": "start", "item": "a" })).json(200);
    assert_eq!(http.bound(&session), Value::Null);
    let bound = http.bind(&session, &issue).json(200);
    assert_eq!((&bound["bound_issue"], &bound["state"]), (&json!(issue), &json!("idle")));
    assert_eq!(http.bind(&session, &issue).json(200)["bound_issue"], json!(issue), "again is nothing new");
    assert_eq!(http.get(&format!("/issues/{issue}"))["session_id"], json!(session));
    // Out of reach, and as they were.
    let with = |body: &str| http.call("DELETE", &format!("/sessions/{session}/bind"), Some(body));
    assert_eq!(with(r#"{"issue_id":"x"}"#).code(400), "EINVAL", "there is nothing to say");
    assert_eq!(with("{").code(400), "EINVAL");
    assert_eq!(http.unbind(&session).status, 204);
    assert_eq!(with("{}").status, 204);
    assert_eq!(http.bound(&session), Value::Null);
    assert_eq!(http.get(&format!("/issues/{issue}"))["session_id"], Value::Null);
    assert_eq!(http.todos(&issue), "a:in_progress b:open");
    let said = http.play(&session, &json!([todo(&json!({ "op": "done", "item": "a" }))]));
    assert!(result_of(&said).contains("this session has no issue"), "{said:?}");
    assert_eq!(http.todos(&issue), "a:in_progress b:open");
    // Bound again, they are there again.
    http.bind(&session, &issue).json(200);
    let said = http.play(&session, &json!([todo(&json!({ "op": "done", "item": "a" }))]));
    assert_eq!(result_of(&said), "1. [x] a\n2. [ ] b");
    // One at most: another takes its place.
    http.bind(&session, &other).json(200);
    assert_eq!(http.bound(&session), json!(other));
    assert_eq!(http.get(&format!("/issues/{issue}"))["session_id"], Value::Null);
    assert_eq!(http.todos(&issue), "a:done b:open");
    // While it runs, too.
    http.post(&session, ENDLESS);
    http.bind(&session, &issue).json(200);
    assert_eq!(http.state(&session), "running");
    // Validates.
    assert_eq!(http.bind(&session, "01ARZ3NDEKTSV4RRFFQ69G5FAV").code(404), "ENOENT");
    assert_eq!(http.bind(&session, "x").code(400), "EINVAL");
    let path = format!("/sessions/{session}/bind");
    assert_eq!(http.call("PUT", &path, Some("{}")).code(400), "EINVAL");
    let extra = json!({ "issue_id": issue, "force": true }).to_string();
    assert_eq!(http.call("PUT", &path, Some(&extra)).code(400), "EINVAL");
    assert_eq!(http.bind("01ARZ3NDEKTSV4RRFFQ69G5FAV", &issue).code(404), "ENOENT");
    assert_eq!(http.bound(&session), json!(issue));
    http.end(&session);
    assert_eq!(http.bind(&session, &other).code(409), "ESHUTDOWN");
    assert_eq!(http.unbind(&session).code(409), "ESHUTDOWN");
    // What was done is in the audit log.
    for (event, count) in [("session.bound", 4), ("session.unbound", 1)] {
        until(event, || {
            let listed = http.get(&format!("/audit?event={event}"));
            (listed["items"].as_array().map(Vec::len) == Some(count)).then_some(())
        });
    }
}

/// "An issue may be worked by many sessions over its lifetime, one active at a time."
#[test]
fn an_issue_has_one_session_at_a_time_and_is_free_after_it() {
    let http = Http::start();
    let issue = http.titled("Wanted");
    let create = || {
        let body = json!({ "bound_issue": issue }).to_string();
        http.call("POST", "/projects/default/sessions", Some(&body))
    };
    let count = || http.get("/projects/default/sessions")["items"].as_array().map(Vec::len);
    let first = create().json(201);
    assert_eq!(first["bound_issue"], json!(issue), "bound from the beginning");
    let first = text(&first["id"]);
    let second = http.session("{}");
    assert_eq!(http.bind(&second, &issue).code(409), "EBUSY");
    let busy = create();
    assert_eq!(busy.code(409), "EBUSY");
    assert!(busy.text.contains(&first), "it says which session: {}", busy.text);
    assert_eq!(count(), Some(2), "what is refused makes no session");
    http.unbind(&first).json(204);
    http.bind(&second, &issue).json(200);
    assert_eq!(http.bind(&first, &issue).code(409), "EBUSY");
    let before = http.get(&format!("/issues/{issue}"));
    http.end(&second);
    let after = http.get(&format!("/issues/{issue}"));
    assert_eq!(after["status"], "open", "ending a session resolves no issue");
    assert_eq!((&after["todos"], &after["session_id"]), (&before["todos"], &Value::Null));
    let third = text(&create().json(201)["id"]);
    assert_eq!(http.bound(&third), json!(issue));
    for (wrong, status) in [("x", 400), ("01ARZ3NDEKTSV4RRFFQ69G5FAV", 404)] {
        let body = json!({ "bound_issue": wrong }).to_string();
        assert_eq!(http.call("POST", "/projects/default/sessions", Some(&body)).status, status);
    }
    // A fork begins without it: the issue stays with the first.
    http.post(&third, "hello");
    http.wait_for(&third, "idle");
    let fork = http.session(&json!({ "resume_from": third }).to_string());
    assert_eq!((http.bound(&fork), http.bound(&third)), (Value::Null, json!(issue)));
    assert_eq!(http.bind(&fork, &issue).code(409), "EBUSY");
    let both = json!({ "resume_from": third, "bound_issue": issue }).to_string();
    assert_eq!(http.call("POST", "/projects/default/sessions", Some(&both)).code(400), "EINVAL");
}

/// "`todo` requires a binding", and its operations on the bound issue.
#[test]
fn the_tools_work_on_the_bound_issue_alone() {
    let http = Http::start();
    let session = http.playing();
    for tool in ["todo", "issue"] {
        let input =
            if tool == "todo" { json!({ "op": "init", "items": ["a"] }) } else { json!({ "op": "read" }) };
        let said = http.play(&session, &json!([{ "tool": { "name": tool, "input": input } }]));
        assert!(result_of(&said).contains("ask the operator to bind one"), "{said:?}");
    }
    let issue = http.titled("Tools");
    http.bind(&session, &issue).json(200);
    let said = http.play(
        &session,
        &json!([
            todo(&json!({ "op": "init", "items": ["a", "b", "c"] })),
            todo(&json!({ "op": "start", "item": "a" })),
            todo(&json!({ "op": "done", "item": "a" })),
            todo(&json!({ "op": "start", "item": "2" })),
            todo(&json!({ "op": "note", "item": "b", "note": "slow" })),
            todo(&json!({ "op": "drop", "item": "c" })),
            todo(&json!({ "op": "append", "item": "d" })),
            { "text": "so far" },
        ]),
    );
    assert_eq!(result_of(&said), "1. [x] a\n2. [>] b (slow)\n3. [-] c\n4. [ ] d");
    assert_eq!(said.last(), Some(&("assistant".to_owned(), "so far".to_owned())));
    assert_eq!(http.todos(&issue), "a:done b:in_progress c:dropped d:open");
    let refused =
        http.play(&session, &json!([todo(&json!({ "op": "init", "items": ["x"] })), { "text": "." }]));
    assert!(result_of(&refused).contains("append to them"), "{refused:?}");
    let refused = http.play(&session, &json!([todo(&json!({ "op": "start" })), { "text": "." }]));
    assert!(result_of(&refused).contains("bad arguments"), "{refused:?}");
    let read = http.play(
        &session,
        &json!([{ "tool": { "name": "issue", "input": { "op": "read" } } }, { "text": "." }]),
    );
    let shown = result_of(&read);
    assert!(shown.starts_with("#1 Tools (open)") && shown.contains("2. [>] b (slow)"), "{shown}");
    let moved = json!([{ "tool": { "name": "issue", "input": { "op": "transition", "to": "in_progress" } } }, { "text": "." }]);
    http.play(&session, &moved);
    assert_eq!(http.get(&format!("/issues/{issue}"))["status"], "in_progress");
    assert_eq!(http.todos(&issue), "a:done b:in_progress c:dropped d:open");
}

#[test]
fn an_agent_asks_for_the_end_of_an_issue_and_the_operator_confirms_it() {
    let http = Http::start();
    let issue = http.titled("Asked");
    let session = http.playing();
    let status = || text(&http.get(&format!("/issues/{issue}"))["status"]);
    let asks = |to: &str| json!([{ "tool": { "name": "issue", "input": { "op": "transition", "to": to } } }, { "text": "." }]);
    // Nobody is asked about an issue that is not there.
    let refused = http.play(&session, &asks("resolved"));
    assert!(result_of(&refused).contains("no issue"), "{refused:?}");
    http.bind(&session, &issue).json(200);
    // No rule of the policy stands for the operator's word.
    std::fs::write(http.daemon.root().join("agent/coder.d/policy"), "allow issue\nallow *\n").unwrap();
    for (to, decision, then) in
        [("resolved", "deny", "open"), ("resolved", "allow", "resolved"), ("closed", "allow", "closed")]
    {
        let before = status();
        http.post(&session, &json!({ "script": asks(to) }).to_string());
        let waits = until("the approval", || {
            let waiting = http.get(&format!("/sessions/{session}/approvals"));
            waiting["items"].as_array().unwrap().first().cloned()
        });
        assert_eq!((&waits["tool"], &waits["subject"]), (&json!("issue"), &json!(to)));
        assert_eq!(status(), before, "not before the operator has confirmed it");
        let at = format!("/sessions/{session}/approvals/{}", text(&waits["id"]));
        http.call("POST", &at, Some(&json!({ "decision": decision }).to_string())).json(200);
        http.wait_for(&session, "idle");
        assert_eq!(status(), then, "{to}: {decision}");
    }
    // What is begun, or opened again, needs nobody.
    http.play(&session, &asks("in_progress"));
    assert_eq!(status(), "in_progress");
    // The operator may say it for a whole run.
    let body = json!({ "text": json!({ "script": asks("resolved") }).to_string(), "approvals": "allow" });
    http.call("POST", &format!("/sessions/{session}/messages"), Some(&body.to_string())).json(202);
    http.wait_for(&session, "idle");
    assert_eq!(status(), "resolved");
}

/// "An ephemeral system-role message listing open items. The message is not persisted."
#[test]
fn the_model_is_reminded_of_open_todos_and_nobody_stores_it() {
    let http = Http::start();
    let issue = http.titled("Reminded");
    // A session each: what was dumped before would be dumped again.
    let ask = |steps: &Value| {
        let session = http.playing();
        http.bind(&session, &issue).json(200);
        let said = http.play(&session, steps);
        let records = http.call("GET", &format!("/sessions/{session}/records"), None).text;
        let with_it = records.lines().filter(|line| line.contains("Open todos of the bound issue"));
        let mut kinds = with_it.map(|line| text(&serde_json::from_str::<Value>(line).unwrap()["type"]));
        assert!(kinds.all(|kind| kind == "assistant_finished"), "only what the model dumped");
        let runs = http.get(&format!("/sessions/{session}/runs"));
        assert_eq!(runs["items"][0]["state"], "done", "{runs}");
        assert!(said.iter().all(|(role, _)| role != "system"), "{said:?}");
        http.end(&session);
        said
    };
    let dump = json!([{ "dump": true }]);
    assert_eq!(last_turn(&ask(&dump)).0, "user", "there is nothing to be reminded of");
    http.change_todos(&issue, &json!({ "op": "init", "items": ["write it", "test it", "ship it"] }))
        .json(200);
    http.change_todos(&issue, &json!({ "op": "done", "item": "write it" })).json(200);
    let (role, shown) = last_turn(&ask(&dump));
    assert_eq!(role, "system");
    assert!(shown.contains("2. [ ] test it") && shown.contains("3. [ ] ship it"), "{shown}");
    assert!(!shown.contains("write it"), "what is done is not open: {shown}");
    // Not after a todo result, which has the list; but after that of any other tool.
    let said = ask(&json!([todo(&json!({ "op": "start", "item": "test it" })), { "dump": true }]));
    assert_eq!(last_turn(&said).0, "tool");
    let list = json!({ "tool": { "name": "fs.list", "input": { "path": "." } } });
    let (role, shown) = last_turn(&ask(&json!([list, { "dump": true }])));
    assert_eq!(role, "system");
    assert!(shown.contains("2. [>] test it"), "{shown}");
    // A run that ends with a tool's result is well, reminded or not.
    ask(&json!([list]));
    let session = http.playing();
    assert_eq!(last_turn(&http.play(&session, &dump)).0, "user", "nor one that is bound to nothing");
}

/// "The operator confirms closure at the closing checkpoint."
#[test]
fn the_closing_checkpoint_resolves_the_issue_when_the_operator_says_so() {
    let http = Http::start();
    let (session, issue) = (http.playing(), http.titled("To be closed"));
    let sign_off = json!({ "script": [
        { "tool": { "name": "checkpoint", "input": { "reason": "acceptance criteria met, requesting sign-off" } } },
        { "text": "thank you" },
    ] })
    .to_string();
    let pause = || {
        http.post(&session, &sign_off);
        http.wait_for(&session, "paused");
        let at = text(&http.get(&format!("/sessions/{session}"))["checkpoint"]);
        format!("/sessions/{session}/checkpoints/{at}/resume")
    };
    let status = || text(&http.get(&format!("/issues/{issue}"))["status"]);
    let resume = pause();
    assert_eq!(
        http.call("POST", &resume, Some(r#"{"resolve":true}"#)).code(400),
        "EINVAL",
        "nothing is bound"
    );
    assert_eq!(http.state(&session), "paused");
    http.bind(&session, &issue).json(200);
    http.call("POST", &resume, Some("{}")).json(200);
    http.wait_for(&session, "idle");
    assert_eq!(status(), "open", "resuming alone resolves nothing");
    let resume = pause();
    http.call("POST", &resume, Some(r#"{"resolve":true}"#)).json(200);
    http.wait_for(&session, "idle");
    assert_eq!(status(), "resolved");
    assert_eq!(http.bound(&session), json!(issue), "a pointer still");
    assert_eq!(
        http.call("POST", &resume, Some(r#"{"resolve":true}"#)).status,
        409,
        "it is not paused any more"
    );
}

#[test]
fn a_killed_daemon_keeps_issues_todos_and_bindings() {
    let mut http = Http::start();
    let (session, issue) = (http.playing(), http.titled("Kept"));
    http.bind(&session, &issue).json(200);
    http.play(
        &session,
        &json!([
            todo(&json!({ "op": "init", "items": ["a", "b"] })),
            todo(&json!({ "op": "start", "item": "a" }))
        ]),
    );
    http.call("PATCH", &format!("/issues/{issue}"), Some(r#"{"body":"new","status":"in_progress"}"#))
        .json(200);
    let before = http.get("/projects/default/issues");
    http.daemon.kill();
    http.daemon.start_again();
    assert_eq!(http.get("/projects/default/issues"), before);
    assert_eq!(http.bound(&session), json!(issue));
    let other = http.session("{}");
    assert_eq!(http.bind(&other, &issue).code(409), "EBUSY", "also to a session that is not loaded");
    assert_eq!(http.issue(&json!({ "title": "Next" }))["number"], 2);
    let said = http.play(&session, &json!([todo(&json!({ "op": "done", "item": "a" })), { "text": "." }]));
    assert_eq!(result_of(&said), "1. [x] a\n2. [ ] b");
    // A purged session holds nothing.
    http.end(&session);
    http.call("DELETE", &format!("/sessions/{session}?purge=true"), None).json(204);
    http.bind(&other, &issue).json(200);
}

#[test]
fn an_issue_is_of_one_project_and_its_sessions_alone_work_on_it() {
    let http = Http::start();
    let dir = http.daemon.path("src");
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    let file = "version: 1\nproject: music\nprimary: {model: \"debug:script\"}\n";
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    http.call("POST", "/projects", Some(&json!({ "directory": dir }).to_string())).json(201);
    http.titled("Of the default project");
    let made = http.call("POST", "/projects/music/issues", Some(r#"{"title":"A song"}"#)).json(201);
    assert_eq!((&made["number"], &made["project"]), (&json!(1), &json!("music")), "numbers are per project");
    let id = text(&made["id"]);
    let elsewhere = http.session("{}");
    assert_eq!(http.bind(&elsewhere, &id).code(400), "EINVAL");
    let body = json!({ "bound_issue": id }).to_string();
    let count =
        |project: &str| http.get(&format!("/projects/{project}/sessions"))["items"].as_array().map(Vec::len);
    assert_eq!(http.call("POST", "/projects/default/sessions", Some(&body)).code(400), "EINVAL");
    assert_eq!(count("default"), Some(1), "what is refused makes no session");
    let session = http.call("POST", "/projects/music/sessions", Some(&body)).json(201);
    assert_eq!(session["bound_issue"], json!(id));
    let said = http.play(&text(&session["id"]), &json!([todo(&json!({ "op": "init", "items": ["a"] }))]));
    assert_eq!(result_of(&said), "1. [ ] a");
    // Restarted, it works on the same issue, unless another has taken it up.
    let restart = |session: &Value| {
        http.call("POST", &format!("/sessions/{}/restart", text(&session["id"])), None).json(201)
    };
    let second = restart(&session);
    assert_eq!(second["bound_issue"], json!(id));
    assert_eq!(http.get(&format!("/issues/{id}"))["session_id"], second["id"]);
    assert_eq!(restart(&session)["bound_issue"], Value::Null);
    assert_eq!(http.bound(&text(&second["id"])), json!(id));
}

#[test]
fn the_index_has_issues_and_todos_and_is_built_again_from_the_logs() {
    let mut http = Http::start();
    let (session, issue) = (http.playing(), http.titled("Indexed"));
    http.bind(&session, &issue).json(200);
    let path = http.daemon.root().join(".state/index.db");
    let shown = || -> String {
        let Ok(index) = IndexReader::open(&path) else { return String::new() };
        let found = index.queries().issues(&Name::new("default").unwrap()).unwrap_or_default();
        found.iter().map(ctx_session::project::Issue::text).collect()
    };
    http.play(
        &session,
        &json!([
            todo(&json!({ "op": "init", "items": ["a", "b"] })),
            todo(&json!({ "op": "start", "item": "b" }))
        ]),
    );
    let wanted = "#1 Indexed (open)\n\nTodos:\n1. [ ] a\n2. [>] b\n";
    until("the index", || (shown() == wanted).then_some(()));
    http.daemon.kill();
    for file in ["index.db", "index.db-wal", "index.db-shm"] {
        let _ = std::fs::remove_file(http.daemon.root().join(".state").join(file));
    }
    http.daemon.start_again();
    until("the index", || (shown() == wanted).then_some(()));
}

#[test]
fn issues_of_others_do_not_exist() {
    let http = Http::start();
    let (session, issue) = (http.session("{}"), http.titled("Mine"));
    http.bind(&session, &issue).json(200);
    let theirs = http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    assert_eq!(http.call_as(&theirs, "GET", "/projects/default/issues", None).json(200)["items"], json!([]));
    let bind = json!({ "issue_id": issue }).to_string();
    for (method, path, body) in [
        ("GET", format!("/issues/{issue}"), None),
        ("PATCH", format!("/issues/{issue}"), Some(r#"{"title":"theirs"}"#)),
        ("GET", format!("/issues/{issue}/todos"), None),
        ("POST", format!("/issues/{issue}/todos"), Some(r#"{"text":"theirs"}"#)),
        ("PUT", format!("/sessions/{session}/bind"), Some(bind.as_str())),
        ("DELETE", format!("/sessions/{session}/bind"), None),
    ] {
        assert_eq!(http.call_as(&theirs, method, &path, body).code(404), "ENOENT", "{method} {path}");
    }
    let own = http.call_as(&theirs, "POST", "/projects/default/issues", Some(r#"{"title":"Own"}"#)).json(201);
    let listed = http.call_as(&theirs, "GET", "/projects/default/issues", None).json(200);
    assert_eq!(listed["items"], json!([own]));
    assert_eq!(
        http.get("/projects/default/issues")["items"].as_array().map(Vec::len),
        Some(2),
        "the owner sees all"
    );
    assert_eq!(http.get(&format!("/issues/{issue}"))["title"], "Mine");
}

/// A connection that is kept: a race needs two requests that are not a process each.
struct Wire {
    stream: BufReader<TcpStream>,
    head: String,
}

impl Wire {
    fn open(http: &Http) -> Wire {
        let stream = TcpStream::connect(http.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        let head = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", http.address(), http.token);
        Wire { stream: BufReader::new(stream), head }
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> u16 {
        let head =
            format!("{method} /api/v1{path} HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n", self.head, body.len());
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes()).unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let line = line.trim_end().to_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            }
            if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        status
    }
}

#[test]
fn of_two_that_bind_at_once_one_wins_hundreds_of_times() {
    let http = Http::of(builder());
    let issue = http.titled("Wanted by two");
    let sessions = [http.session("{}"), http.session("{}")];
    let start = Barrier::new(2);
    let body = json!({ "issue_id": issue }).to_string();
    let race = |session: &str| -> Vec<u16> {
        let mut wire = Wire::open(&http);
        let path = format!("/sessions/{session}/bind");
        let mut answers = Vec::new();
        for _ in testkit::rounds(100) {
            start.wait();
            answers.push(wire.call("PUT", &path, &body));
            // Both have been answered before the winner lets go.
            start.wait();
            assert_eq!(wire.call("DELETE", &path, ""), 204);
        }
        answers
    };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| race(&sessions[0]));
        let two = scope.spawn(|| race(&sessions[1]));
        (one.join().unwrap(), two.join().unwrap())
    });
    for pair in one.iter().zip(&two) {
        assert!(matches!(pair, (200, 409) | (409, 200)), "{pair:?}");
    }
}
