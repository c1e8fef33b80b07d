//! Files are opened with the rights of the session's owner: with real users, and as each attack was made.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Http, Response};

/// Two users that no passwd file knows, and one that every one does.
const ANN: u32 = 54_331;
const BOB: u32 = 54_332;
const DAEMON: u32 = 1;

/// What nobody but its owner may ever see.
const SECRET: &str = "the secret text";

/// A user with a token.
struct User<'a> {
    http: &'a Http,
    uid: u32,
    token: String,
}

impl<'a> User<'a> {
    fn new(http: &'a Http, uid: u32) -> User<'a> {
        let token = http.daemon.ctx(&["token", "new", "--uid", &uid.to_string()]).ok().trim().to_owned();
        User { http, uid, token }
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        self.http.call_as(&self.token, method, path, body.map(Value::to_string).as_deref())
    }

    /// A session of a project; its id.
    fn session(&self, project: &str) -> String {
        let made = self.call("POST", &format!("/projects/{project}/sessions"), Some(&json!({}))).json(201);
        let id = made["id"].as_str().unwrap().to_owned();
        self.call("PUT", &format!("/sessions/{id}"), Some(&json!({ "model_override": "debug:script" })))
            .json(200);
        id
    }

    fn post(&self, session: &str, script: &Value) -> Response {
        let body = json!({ "text": json!({ "script": script }).to_string() });
        self.call("POST", &format!("/sessions/{session}/messages"), Some(&body))
    }

    /// What a tool gives their agent.
    fn tool(&self, session: &str, name: &str, path: &str) -> String {
        let script = json!([{ "tool": { "name": name, "input": { "path": path } } }, { "dump": true }]);
        self.post(session, &script).json(202);
        let dump = self.last_answer(session);
        let request: Value = serde_json::from_str(&dump).unwrap();
        let results =
            request["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "tool");
        results.unwrap_or_else(|| panic!("no result: {request}")).to_string()
    }

    /// The last thing their agent said, once the session is idle.
    fn last_answer(&self, session: &str) -> String {
        let state = || self.call("GET", &format!("/sessions/{session}"), None).json(200)["state"].clone();
        testkit::until("an idle session", || (state() == "idle").then_some(()));
        let messages = self.call("GET", &format!("/sessions/{session}/messages"), None).json(200);
        let all = messages["items"].as_array().unwrap();
        let said = all.iter().rfind(|message| message["role"] == "assistant" && message["content"] != "");
        said.unwrap()["content"].as_str().unwrap().to_owned()
    }

    fn give(&self, path: &Path, mode: u32) {
        give(path, self.uid, mode);
    }

    /// A directory of theirs with a project file and a note; registered.
    fn project(&self, dir: &Path, slug: &str, note: &str) {
        self.clone_project(dir, slug, note);
        self.call("POST", "/projects", Some(&json!({ "directory": dir }))).json(201);
    }

    fn clone_project(&self, dir: &Path, slug: &str, note: &str) {
        std::fs::create_dir_all(dir.join(".ctx")).unwrap();
        let text = format!("version: 1\nproject: {slug}\nprimary: {{model: \"debug:script\"}}\n");
        std::fs::write(dir.join(".ctx/project.yaml"), text).unwrap();
        std::fs::write(dir.join("note"), note).unwrap();
        for (name, mode) in [("", 0o700), (".ctx", 0o700), (".ctx/project.yaml", 0o600), ("note", 0o600)] {
            self.give(&dir.join(name), mode);
        }
    }
}

fn give(path: &Path, uid: u32, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    chown(path, Some(uid), Some(uid)).expect("this test needs root");
}

/// A file with the secret in it.
fn secret(path: &Path, uid: u32, mode: u32) {
    std::fs::write(path, SECRET).unwrap();
    give(path, uid, mode);
}

#[test]
fn a_registered_directory_that_became_a_link_gives_nobody_a_file_outside() {
    let http = Http::start();
    let (ann, root) = (User::new(&http, ANN), User::new(&http, 0));
    let outside = http.daemon.path("outside");
    std::fs::create_dir_all(outside.join(".ctx")).unwrap();
    // One that is root's alone, and one that all may read: a link must lead to neither.
    secret(&outside.join("closed"), 0, 0o600);
    secret(&outside.join("open"), 0, 0o644);
    for user in [&ann, &root] {
        let slug = format!("of-{}", user.uid);
        let dir = http.daemon.path(&format!("src-{slug}"));
        user.project(&dir, &slug, "as it was");
        let session = user.session(&slug);
        assert!(user.tool(&session, "fs.read", "note").contains("as it was"));
        let away = dir.with_extension("away");
        std::fs::rename(&dir, &away).unwrap();
        symlink(&outside, &dir).unwrap();
        for path in ["closed", "open", "/work/closed"] {
            let script =
                json!([{ "tool": { "name": "fs.read", "input": { "path": path } } }, { "dump": true }]);
            let refused = user.post(&session, &script);
            assert_eq!(refused.code(403), "EACCES");
            assert!(refused.text.contains("a link on the way"), "{}", refused.text);
        }
        let shown = user.call("GET", &format!("/projects/{slug}"), None).json(200);
        assert_eq!(shown["state"], "invalid");
        assert!(shown.to_string().contains("a link on the way"), "{shown}");
        // A fresh clone in the same place is the project again.
        std::fs::remove_file(&dir).unwrap();
        user.clone_project(&dir, &slug, "as it is now");
        assert!(user.tool(&session, "fs.read", "note").contains("as it is now"));
    }
}

#[test]
fn a_link_higher_up_leads_nowhere_too() {
    let http = Http::start();
    let ann = User::new(&http, ANN);
    let above = http.daemon.path("src-deep");
    std::fs::create_dir(&above).unwrap();
    ann.give(&above, 0o755);
    ann.project(&above.join("inner"), "inner", "mine");
    let session = ann.session("inner");
    std::fs::rename(&above, http.daemon.path("moved")).unwrap();
    symlink(http.daemon.path("moved"), &above).unwrap();
    let refused = ann.post(&session, &json!([{ "text": "hello" }]));
    assert_eq!(refused.code(403), "EACCES");
}

#[test]
fn an_agent_reads_what_its_sessions_owner_may_read() {
    let http = Http::start();
    let (ann, bob, daemon) = (User::new(&http, ANN), User::new(&http, BOB), User::new(&http, DAEMON));
    let work = http.daemon.workspace();
    secret(&work.join("bobs"), BOB, 0o600);
    secret(&work.join("group"), 0, 0o640);
    chown(work.join("group"), None, Some(DAEMON)).unwrap();
    secret(&work.join("AGENTS.md"), BOB, 0o600);
    std::fs::create_dir(work.join("closed")).unwrap();
    secret(&work.join("closed/there"), BOB, 0o644);
    give(&work.join("closed"), BOB, 0o700);
    symlink("closed/there", work.join("link")).unwrap();
    let anns = ann.session("default");
    for path in ["bobs", "group", "closed/there", "link", "AGENTS.md"] {
        let gave = ann.tool(&anns, "fs.read", path);
        assert!(gave.contains("EACCES") && !gave.contains(SECRET), "{path}: {gave}");
    }
    assert!(ann.tool(&anns, "fs.list", "closed").contains("EACCES"));
    assert!(!ann.last_answer(&anns).contains(SECRET), "nor is another's AGENTS.md in the prompt");
    let bobs = bob.session("default");
    for path in ["bobs", "closed/there", "link"] {
        assert!(bob.tool(&bobs, "fs.read", path).contains(SECRET), "{path}");
    }
    assert!(bob.last_answer(&bobs).contains("Instructions from /work/AGENTS.md"));
    let daemons = daemon.session("default");
    assert!(daemon.tool(&daemons, "fs.read", "group").contains(SECRET), "by the group of passwd and group");
}

#[test]
fn what_a_user_may_not_search_does_not_show_whether_it_is_there() {
    let http = Http::start();
    let (ann, bob) = (User::new(&http, ANN), User::new(&http, BOB));
    let work = http.daemon.workspace();
    for closed in [work.join("closed"), http.daemon.path("closed")] {
        std::fs::create_dir_all(closed.join("there")).unwrap();
        secret(&closed.join("there/file"), BOB, 0o600);
        give(&closed.join("there"), BOB, 0o755);
        give(&closed, BOB, 0o700);
    }
    let anns = ann.session("default");
    let outside = http.daemon.path("closed").display().to_string();
    for (there, missing) in [
        ("closed/there/file".to_owned(), "closed/gone!/file".to_owned()),
        ("closed/there".to_owned(), "closed/gone!".to_owned()),
        (format!("{outside}/there"), format!("{outside}/gone!")),
        (format!("{outside}/there/file"), format!("{outside}/gone!/file")),
    ] {
        for tool in ["fs.read", "fs.list"] {
            let same = |path: &str| ann.tool(&anns, tool, path).replace("gone!", "there");
            let (one, two) = (same(&there), same(&missing));
            let without_ids = |text: &str| text.split("EACCES").nth(1).map(str::to_owned);
            assert!(without_ids(&one).is_some(), "{one}");
            assert_eq!(without_ids(&one), without_ids(&two), "{tool} {there}");
        }
    }
    for (there, missing) in
        [("/work/closed/there", "/work/closed/gone!"), ("/work/closed/there/file", "/work/closed/gone!/file")]
    {
        let ask = |cwd: &str| ann.call("POST", "/projects/default/sessions", Some(&json!({ "cwd": cwd })));
        let (one, two) = (ask(there), ask(missing));
        assert_eq!((one.status, one.text), (two.status, two.text.replace("gone!", "there")));
    }
    for directory in ["there", "gone!", "there/file"] {
        let ask = |user: &User<'_>| {
            let body = json!({ "directory": format!("{outside}/{directory}") });
            user.call("POST", "/projects", Some(&body))
        };
        assert!(ask(&ann).text.contains("that belongs to you"), "{}", ask(&ann).text);
        assert_eq!(ask(&bob).code(400), "EINVAL");
    }
}
