//! Projects through HTTP, sockets and the command line of a real daemon.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid};
use serde_json::{Value, json};
use testkit::until;

use crate::support::{ENDLESS, Http, builder};

const OTHER: u32 = 54_321;

/// What a model is shown, as JSON.
const DUMP: &str = r#"{"script":[{"dump":true}]}"#;

/// A project's directory.
struct Project {
    dir: PathBuf,
}

impl Project {
    /// With a file that is right.
    fn new(http: &Http, slug: &str) -> Project {
        let project = Project { dir: http.daemon.path(&format!("src-{slug}")) };
        project.write(&format!("version: 1\nproject: {slug}\nprimary: {{model: \"debug:script\"}}\n"));
        project
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn write(&self, text: &str) {
        self.put(".ctx/project.yaml", text);
    }

    fn body(&self) -> String {
        json!({ "directory": self.dir }).to_string()
    }

    fn add(&self, http: &Http) -> Value {
        http.call("POST", "/projects", Some(&self.body())).json(201)
    }
}

/// A new session of a project; its id.
fn session(http: &Http, project: &str, body: &str) -> String {
    let made = http.call("POST", &format!("/projects/{project}/sessions"), Some(body)).json(201);
    made["id"].as_str().unwrap().to_owned()
}

/// The last thing an agent said, once the session is idle again.
fn answer(http: &Http, session: &str, text: &str) -> String {
    http.post(session, text);
    http.wait_for(session, "idle");
    let messages = http.get(&format!("/sessions/{session}/messages"));
    let said = messages["items"].as_array().unwrap().iter().rfind(|message| message["role"] == "assistant");
    said.map(|message| message["content"].as_str().unwrap().to_owned()).unwrap_or_default()
}

fn names(list: &Value, field: &str) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_projects_agent_answers_with_its_prompt_policy_model_and_tools() {
    let http = Http::start();
    let project = Project::new(&http, "music");
    project.put(".ctx/prompts/primary.md", "You are the band.\n");
    project.put("score.txt", "do re mi\n");
    project.write(
        "version: 1\nproject: music\nprimary:\n  name: band\n  model: debug:script\n  prompt: prompts/primary.md\n  \
         tools: [fs.read, todo]\n  max_steps: 2\npolicy: [\"deny fs.read *secret*\", \"allow fs.read\"]\n",
    );
    let added = project.add(&http);
    assert_eq!(
        (&added["id"], &added["state"], &added["agent"]),
        (&json!("music"), &json!("ready"), &json!("band"))
    );
    assert_eq!(names(&http.get("/projects"), "id"), ["default", "music"]);
    assert!(names(&http.get("/agents"), "name").contains(&"band".to_owned()));
    // The socket is there when the answer is.
    let said = http.daemon.ctx(&["send", "-a", "band", DUMP]).ok();
    let dump: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&dump["prompt"], &dump["model"]), (&json!("You are the band.\n"), &json!("debug/script")));
    let tools: Vec<&str> =
        dump["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(tools, ["fs.read", "todo"], "those that are named");
    let read = |path: &str| json!({"script": [{"tool": {"name": "fs.read", "input": {"path": path}}}, {"dump": true}]});
    let said = http.daemon.ctx(&["send", "-a", "band", &read("score.txt").to_string()]).ok();
    assert!(said.contains("do re mi"), "the project is where it works: {said}");
    let said = http.daemon.ctx(&["send", "-a", "band", &read("secret").to_string()]).ok();
    assert!(said.contains("secret does not exist") || said.contains("denies"), "{said}");
    project.put("secret", "hidden");
    let said = http.daemon.ctx(&["send", "-a", "band", &read("secret").to_string()]).ok();
    assert!(said.contains("the policy denies fs.read") && !said.contains("hidden"), "{said}");
    // Its steps are counted by the project's number, not the daemon's.
    let three = json!({"script": [{"tool": {"name": "fs.read", "input": {"path": "score.txt"}}},
        {"tool": {"name": "fs.read", "input": {"path": "score.txt"}}}, {"text": "never"}]});
    let failed = http.daemon.ctx(&["send", "-a", "band", &three.to_string()]).fails(1);
    assert!(failed.contains("its limit of 2 steps") && failed.contains("primary.max_steps"), "{failed}");
    shown_read_only(&http, &project.dir);
}

/// What holds can be read under `agent/`, and is nobody's to change.
fn shown_read_only(http: &Http, dir: &Path) {
    let shown = http.daemon.root().join("agent/band.d");
    let text = |name: &str| std::fs::read_to_string(shown.join(name)).unwrap();
    assert_eq!(text("prompt"), "You are the band.\n");
    assert_eq!(text("policy"), "deny fs.read *secret*\nallow fs.read\n");
    assert_eq!((text("model").as_str(), text("project").as_str()), ("debug:script\n", "music\n"));
    assert_eq!((text("status").as_str(), text("cwd").as_str()), ("ready\n", "/work\n"));
    assert_eq!(text("mount"), format!("{} /work rw\n", dir.display()));
    let meta: Value = serde_json::from_str(&text("meta.json")).unwrap();
    assert_eq!((&meta["described_by"], &meta["max_steps"]), (&json!("project"), &json!(2)));
    for entry in std::fs::read_dir(&shown).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, 0o400, "{}", entry.path().display());
    }
}

#[test]
fn an_invalid_project_says_where_refuses_sessions_and_is_ready_when_it_is_mended() {
    let http = Http::start();
    let project = Project::new(&http, "music");
    project.write("version: 1\nproject: music\nprimary:\n  modell: main\n  max_steps: zero\n");
    let added = project.add(&http);
    assert_eq!(added["state"], "invalid");
    let place = |error: &Value| (error["line"].as_u64().unwrap(), error["column"].as_u64().unwrap());
    let errors: Vec<(u64, u64)> = added["errors"].as_array().unwrap().iter().map(place).collect();
    assert_eq!(errors, [(4, 3), (5, 14)]);
    assert_eq!(
        (&added["errors"][0]["code"], &added["errors"][0]["file"]),
        (&json!("EBADMSG"), &json!(".ctx/project.yaml"))
    );
    let refused = http.call("POST", "/projects/music/sessions", Some("{}")).json(422);
    assert_eq!(refused["error"]["code"], "EBADMSG");
    assert_eq!(place(&refused["error"]["details"]), (4, 3));
    assert!(refused["error"]["message"].as_str().unwrap().contains("project.yaml:4:3: unknown key `modell`"));
    assert!(
        !names(&http.get("/agents"), "name").contains(&"music".to_owned()),
        "nobody has said who its agent is"
    );
    // Mended: nothing has to be told to the daemon.
    project.write("version: 1\nproject: music\nprimary: {model: \"debug:echo\"}\n");
    assert_eq!(http.get("/projects/music")["state"], "ready");
    assert_eq!(answer(&http, &session(&http, "music", "{}"), "hello"), "hello");
    // Broken again: the session that is there goes on, a new one is refused at every door.
    let kept = session(&http, "music", r#"{"name":"kept"}"#);
    project.write("version: 1\nproject: music\nprimary: [\n");
    assert_eq!(http.get("/projects/music")["state"], "invalid");
    assert_eq!(answer(&http, &kept, "still here"), "still here");
    until("the agent's socket", || http.daemon.root().join("agent/music.sock").exists().then_some(()));
    let said = http.daemon.ctx(&["send", "-a", "music", "--session", "new", "x"]).fails(2);
    assert!(said.contains("project.yaml:4:1") && said.contains("EBADMSG"), "{said}");
    let status = std::fs::read_to_string(http.daemon.root().join("agent/music.d/status")).unwrap();
    assert!(status.starts_with("invalid .ctx/project.yaml:4:1: "), "{status}");
}

#[test]
fn a_session_keeps_the_file_it_began_with_and_a_restart_takes_up_the_new_one() {
    let mut http = Http::start();
    let project = Project::new(&http, "music");
    let file = |model: &str| {
        project.write(&format!("version: 1\nproject: music\nprimary: {{model: {model}, prompt: p.md}}\n"));
    };
    file("debug:script");
    project.put(".ctx/p.md", "first");
    let added = project.add(&http);
    let old = session(&http, "music", r#"{"name":"work"}"#);
    let shown = |http: &Http, id: &str| http.get(&format!("/sessions/{id}"));
    let prompt = |http: &Http, id: &str| {
        let dump: Value = serde_json::from_str(&answer(http, id, DUMP)).unwrap();
        dump["prompt"].as_str().unwrap().to_owned()
    };
    assert_eq!(prompt(&http, &old), "first");
    let before = shown(&http, &old);
    assert_eq!((&before["stale"], &before["dsl_hash"]), (&json!(false), &added["dsl_hash"]));
    let sum =
        testkit::finish(std::process::Command::new("sha256sum").arg(project.dir.join(".ctx/project.yaml")))
            .ok();
    assert_eq!(added["dsl_hash"].as_str().unwrap(), sum.split(' ').next().unwrap(), "the hash of the file");
    // A prompt that changed is a change too.
    project.put(".ctx/p.md", "second");
    // Many who read at once share one look at the files, for a moment.
    until("the change to be seen", || (shown(&http, &old)["stale"] == true).then_some(()));
    assert_eq!(prompt(&http, &old), "first", "what it began with");
    let young = session(&http, "music", r#"{"name":"young"}"#);
    assert_eq!(
        (shown(&http, &young)["stale"].clone(), prompt(&http, &young)),
        (json!(false), "second".to_owned())
    );
    // Neither a crash nor a file that is gone changes that.
    file("debug:echo");
    http.daemon.kill();
    http.daemon.start_again();
    assert_eq!(shown(&http, &young)["stale"], true);
    assert_eq!((prompt(&http, &old), prompt(&http, &young)), ("first".to_owned(), "second".to_owned()));
    std::fs::remove_dir_all(project.dir.join(".ctx")).unwrap();
    http.daemon.kill();
    http.daemon.start_again();
    assert_eq!(http.get("/projects/music")["state"], "invalid");
    assert_eq!(prompt(&http, &old), "first");
    let said = http.daemon.ctx(&["send", "-a", "music", "--session", "new", "x"]).fails(2);
    assert!(said.contains("no .ctx/project.yaml"), "also the agent of an earlier daemon: {said}");
    assert_eq!(http.call("POST", &format!("/sessions/{old}/restart"), None).code(422), "EBADMSG");
    assert_eq!(shown(&http, &old)["state"], "idle", "what cannot be restarted is left as it is");
    project.put(".ctx/p.md", "third");
    file("debug:script");
    restarts(&http, &old);
}

/// A restart: the same name, the file as it is now, the old one ended.
fn restarts(http: &Http, old: &str) {
    let listed = http.daemon.ctx(&["ls", "music"]).ok();
    assert!(listed.lines().any(|line| line.contains("music/work") && line.contains("stale")), "{listed}");
    let listed = http.daemon.ctx(&["ls", "music", "--json"]).ok();
    assert!(listed.lines().all(|line| line.contains(r#""stale":true"#)), "{listed}");
    assert!(http.daemon.ctx(&["show", old]).ok().contains("stale"));
    let new = http.call("POST", &format!("/sessions/{old}/restart"), None).json(201);
    let id = new["id"].as_str().unwrap();
    assert_ne!(id, old);
    assert_eq!(
        (&new["name"], &new["agent"], &new["stale"]),
        (&json!("work"), &json!("music"), &json!(false))
    );
    let dump: Value = serde_json::from_str(&answer(http, id, DUMP)).unwrap();
    assert_eq!(dump["prompt"], "third");
    assert_eq!(http.state(old), "ended");
    assert!(!http.daemon.ctx(&["show", id]).ok().contains("stale"));
    // By command, and not over a run that is going on.
    http.post(id, ENDLESS);
    http.wait_for(id, "running");
    assert!(http.daemon.ctx(&["restart", "music/work"]).fails(1).contains("--yes"));
    let newest = http.daemon.ctx(&["restart", "--yes", "music/work"]).ok();
    assert_eq!(http.state(id), "ended");
    assert_eq!(http.get(&format!("/sessions/{}", newest.trim()))["name"], "work");
    assert_eq!(http.call("POST", "/sessions/01K9ZZZZZZZZZZZZZZZZZZZZZZ/restart", None).code(404), "ENOENT");
}

#[test]
fn a_restart_of_an_agent_with_control_files_reads_them_anew() {
    let http = Http::start();
    let old = http.session(r#"{"name":"work"}"#);
    let new = http.call("POST", &format!("/sessions/{old}/restart"), None).json(201);
    assert_eq!(
        (&new["name"], &new["agent"], &new["dsl_hash"]),
        (&json!("work"), &json!("coder"), &json!(null))
    );
    assert_eq!(http.state(&old), "ended");
    let again = http.call("POST", &format!("/sessions/{old}/restart"), None);
    assert_eq!(again.code(409), "EEXIST", "its name is the new one's");
}

#[test]
fn a_restarted_session_keeps_its_title_and_its_model() {
    let http = Http::start();
    let old = http.session(r#"{"name":"work"}"#);
    let set = r#"{"title":"the long way","model_override":"debug:script"}"#;
    http.call("PUT", &format!("/sessions/{old}"), Some(set)).json(200);
    let new = http.call("POST", &format!("/sessions/{old}/restart"), None).json(201);
    assert_eq!(
        (&new["title"], &new["model_override"]),
        (&json!("the long way"), &json!("debug:script")),
        "{new}"
    );
    let said = answer(&http, new["id"].as_str().unwrap(), r#"{"script":[{"text":"as before"}]}"#);
    assert_eq!(said, "as before", "by the same model");
}

#[test]
fn of_two_projects_that_want_one_name_the_second_is_invalid() {
    let http = Http::start();
    let (first, second) = (Project::new(&http, "one"), Project::new(&http, "two"));
    let named = |slug: &str, agent: &str| {
        format!("version: 1\nproject: {slug}\nprimary:\n  name: {agent}\n  model: \"debug:echo\"\n")
    };
    first.write(&named("one", "helper"));
    second.write(&named("two", "helper"));
    assert_eq!(first.add(&http)["state"], "ready");
    let clash = second.add(&http);
    assert_eq!(clash["state"], "invalid");
    let error = &clash["errors"][0];
    assert_eq!((&error["line"], &error["column"]), (&json!(4), &json!(9)));
    assert!(
        error["message"].as_str().unwrap().contains("the agent `helper` belongs to project one"),
        "{error}"
    );
    assert_eq!(http.call("POST", "/projects/two/sessions", Some("{}")).code(422), "EBADMSG");
    assert_eq!(http.get(&format!("/sessions/{}", session(&http, "one", "{}")))["project"], "one");
    // Coder has control files of its own.
    second.write(&named("two", "coder"));
    let clash = http.get("/projects/two");
    assert!(
        clash["errors"][0]["message"].as_str().unwrap().contains("with its own control files"),
        "{clash}"
    );
    second.write(&named("two", "other"));
    assert_eq!(http.get("/projects/two")["state"], "ready");
    assert_eq!(http.daemon.ctx(&["send", "-a", "helper", "hi"]).ok().trim(), "hi");
    until("the socket of an agent that came by an edit", || {
        (http.daemon.ctx(&["send", "-a", "other", "hi"]).stdout.trim() == "hi").then_some(())
    });
    // An agent that is called otherwise now is gone under its old name.
    second.write(&named("two", "another"));
    until("the old name to go", || (!http.daemon.root().join("agent/other.sock").exists()).then_some(()));
    assert!(!http.daemon.root().join("agent/other.d").exists());
    // The file says another name than the registry.
    second.write(&named("three", "another"));
    let clash = http.get("/projects/two");
    assert_eq!((&clash["errors"][0]["line"], &clash["errors"][0]["column"]), (&json!(2), &json!(10)));
    assert_eq!(http.call("POST", "/projects/one/sessions", Some(r#"{"agent":"coder"}"#)).code(400), "EINVAL");
}

#[test]
fn a_project_is_removed_when_nothing_runs_and_comes_back_with_what_it_had() {
    let mut http = Http::start();
    let project = Project::new(&http, "music");
    project.add(&http);
    let id = session(&http, "music", "{}");
    answer(&http, &id, r#"{"script":[{"text":"kept"}]}"#);
    http.post(&id, ENDLESS);
    http.wait_for(&id, "running");
    let busy = http.call("DELETE", "/projects/music", None);
    assert_eq!(busy.code(409), "EBUSY");
    assert!(busy.text.contains("1 session runs"), "{}", busy.text);
    http.call("DELETE", &format!("/sessions/{id}?confirm=true"), None).json(204);
    assert!(http.daemon.ctx(&["project", "rm", "music"]).fails(2).contains("--yes"));
    http.daemon.ctx(&["project", "rm", "--yes", "music"]).ok();
    let gone = |http: &Http| {
        assert_eq!(http.call("GET", "/projects/music", None).code(404), "ENOENT");
        assert_eq!(http.call("DELETE", "/projects/music", None).code(404), "ENOENT");
        assert_eq!(http.call("POST", "/projects/music/sessions", Some("{}")).code(404), "ENOENT");
        assert!(!names(&http.get("/agents"), "name").contains(&"music".to_owned()));
        assert!(!http.daemon.root().join("agent/music.d").exists());
        assert!(http.get(&format!("/sessions/{id}/messages"))["items"].as_array().unwrap().len() > 1);
    };
    gone(&http);
    http.daemon.kill();
    http.daemon.start_again();
    gone(&http);
    assert_eq!(project.add(&http)["state"], "ready");
    let log = std::fs::read_to_string(http.daemon.root().join(".state/project/music/events.jsonl")).unwrap();
    let kinds: Vec<Value> =
        log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(kinds, ["project_added", "project_read", "project_removed", "project_added", "project_read"]);
    assert_eq!(http.call("DELETE", "/projects/default", None).code(403), "EACCES");
}

#[test]
fn another_user_sees_nothing_of_a_project_and_may_have_their_own() {
    let http = Http::start();
    let token = http.daemon.ctx(&["token", "new", "--uid", &OTHER.to_string()]).ok();
    let token = token.trim();
    let other = |method: &str, path: &str, body: Option<&str>| http.call_as(token, method, path, body);
    let mine = Project::new(&http, "mine");
    mine.add(&http);
    let id = session(&http, "mine", "{}");
    assert_eq!(names(&other("GET", "/projects", None).json(200), "id"), ["default"]);
    assert_eq!(other("GET", "/projects/mine", None).code(404), "ENOENT");
    assert_eq!(other("PUT", "/projects/mine", Some(&mine.body())).code(404), "ENOENT");
    assert_eq!(other("DELETE", "/projects/mine", None).code(404), "ENOENT");
    assert_eq!(other("GET", "/projects/mine/sessions", None).code(404), "ENOENT");
    assert_eq!(other("POST", "/projects/mine/sessions", Some("{}")).code(404), "ENOENT");
    assert_eq!(other("POST", "/projects/default/sessions", Some(r#"{"agent":"mine"}"#)).code(404), "ENOENT");
    assert_eq!(other("POST", &format!("/sessions/{id}/restart"), None).code(404), "ENOENT");
    assert!(!names(&other("GET", "/agents", None).json(200), "name").contains(&"mine".to_owned()));
    assert_eq!(connected_by_other(&http, "mine"), ErrorKind::PermissionDenied, "nor on its socket");
    let refused = other("POST", "/projects", Some(&mine.body()));
    assert_eq!(refused.code(400), "EINVAL", "not their directory");
    assert!(refused.text.contains("that belongs to you"), "{}", refused.text);
    // A directory of theirs; a file in it that is not theirs is not read for them.
    let theirs = Project::new(&http, "theirs");
    let give =
        |name: &str| chown(theirs.dir.join(name), Some(OTHER), Some(OTHER)).expect("this test needs root");
    give("");
    let named = json!({ "directory": theirs.dir, "id": "theirs" }).to_string();
    assert!(
        other("POST", "/projects", Some(&named)).json(201)["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("does not belong to uid 54321")
    );
    give(".ctx/project.yaml");
    assert_eq!(other("GET", "/projects/theirs", None).json(200)["state"], "ready");
    let made = other("POST", "/projects/theirs/sessions", Some("{}")).json(201);
    assert_eq!((&made["owner"], &made["project"]), (&json!(OTHER), &json!("theirs")));
    let shown = std::fs::File::open(http.daemon.root().join("agent/theirs.d")).unwrap();
    let data = shown.metadata().unwrap();
    assert_eq!(
        (data.mode() & 0o777, data.uid(), data.gid()),
        (0o750, 0, 0),
        "nobody else reads what it shows"
    );
    assert_eq!(ctx_journal::access::kept_for(&shown).unwrap().uid, OTHER);
    // The daemon's owner sees all.
    assert_eq!(names(&http.get("/projects"), "id"), ["default", "mine", "theirs"]);
    let taken = json!({ "directory": theirs.dir, "id": "mine" }).to_string();
    assert_eq!(other("POST", "/projects", Some(&taken)).code(409), "EEXIST");
}

/// The agent of an invalid project is its owner's as before, also for a daemon that never saw the file right.
#[test]
fn an_invalid_project_goes_on_as_it_last_was_right_also_after_a_restart() {
    let mut http = Http::start();
    let token = http.daemon.ctx(&["token", "new", "--uid", &OTHER.to_string()]).ok();
    let token = token.trim().to_owned();
    let mine = Project::new(&http, "mine");
    mine.write("version: 1\nproject: mine\nprimary: {name: heron, model: \"debug:echo\"}\nlimits: {running_per_project: 1}\n");
    assert_eq!(mine.add(&http)["agent"], "heron");
    let id = session(&http, "mine", "{}");
    mine.write("version: 1\nproject: mine\nprimary: {model: [\n");
    let seen = |http: &Http| {
        let shown = http.get("/projects/mine");
        assert_eq!(shown["state"], "invalid");
        let agents = |token: &str| names(&http.call_as(token, "GET", "/agents", None).json(200), "name");
        (shown["agent"].clone(), agents(&http.token), agents(&token))
    };
    let before = seen(&http);
    assert_eq!(before.0, "heron");
    assert!(before.1.contains(&"heron".to_owned()) && !before.2.contains(&"heron".to_owned()), "{before:?}");
    http.daemon.kill();
    http.daemon.start_again();
    assert_eq!(seen(&http), before);
    assert_eq!(answer(&http, &id, "still here"), "still here", "a session of it works as before");
    let theirs = |body: &str| http.call_as(&token, "POST", "/projects/default/sessions", Some(body));
    let (hidden, never) = (theirs(r#"{"agent":"heron"}"#), theirs(r#"{"agent":"nobody"}"#));
    assert_eq!(hidden.code(404), "ENOENT");
    assert_eq!(hidden.text.replace("heron", "nobody"), never.text, "as if it had never been there");
    // Its name is its own also now, and who may not see it is not told whose it is.
    let other = Project::new(&http, "theirs");
    other.write("version: 1\nproject: theirs\nprimary: {name: heron, model: \"debug:echo\"}\n");
    let third = Project::new(&http, "third");
    for dir in [&other.dir, &third.dir] {
        for name in ["", ".ctx", ".ctx/project.yaml"] {
            chown(dir.join(name), Some(OTHER), Some(OTHER)).expect("this test needs root");
        }
    }
    let added = http.call_as(&token, "POST", "/projects", Some(&other.body())).json(201);
    let message = added["errors"][0]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("the name `heron` is taken") && !message.contains("mine"), "{added}");
    // Nor by a project's own name, whether it is registered or was.
    let taken = json!({ "directory": third.dir, "id": "mine" }).to_string();
    let refused = http.call_as(&token, "POST", "/projects", Some(&taken));
    assert_eq!(refused.code(409), "EEXIST");
    assert_eq!(http.call("DELETE", "/projects/mine", None).status, 204);
    assert_eq!(http.call_as(&token, "POST", "/projects", Some(&taken)).text, refused.text);
    assert!(refused.text.contains("is taken"), "{}", refused.text);
}

/// Why another user cannot connect to an agent's socket.
fn connected_by_other(http: &Http, agent: &str) -> ErrorKind {
    let open = |path: &Path| std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    open(&http.daemon.path(""));
    let socket = http.daemon.root().join(format!("agent/{agent}.sock"));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(OTHER), Gid::from_raw(OTHER));
            // The ids of this thread alone.
            rustix::thread::set_thread_groups(&[]).expect("this test needs root");
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            UnixStream::connect(&socket).unwrap_err().kind()
        });
        other.join().unwrap()
    })
}

#[test]
fn a_projects_own_limit_of_running_sessions_holds() {
    let http = Http::of(builder().env("CTX_LIMITS_RUNNING_PER_PROJECT", "2"));
    let project = Project::new(&http, "music");
    let limited = |n: u32| {
        project.write(&format!(
            "version: 1\nproject: music\nprimary: {{model: \"debug:script\"}}\nlimits: {{running_per_project: {n}}}\n"
        ));
    };
    limited(1);
    project.add(&http);
    let ids: Vec<String> = (0..4).map(|_| session(&http, "music", "{}")).collect();
    assert_eq!(http.post(&ids[0], ENDLESS)["state"], "running");
    assert_eq!(http.post(&ids[1], ENDLESS)["state"], "queued");
    assert_eq!(
        http.get(&format!("/sessions/{}", ids[1]))["limit"],
        json!({"scope":"per_project","running":1,"limit":1})
    );
    // The project's file as it is now counts, also for sessions that keep an older one.
    limited(3);
    assert_eq!(
        http.call("POST", &format!("/sessions/{}/resume", ids[1]), None).json(202)["state"],
        "running"
    );
    assert_eq!(http.post(&ids[2], ENDLESS)["state"], "running", "more than the daemon's own");
    assert_eq!(http.post(&ids[3], ENDLESS)["state"], "queued");
    let coder = http.playing();
    assert_eq!(http.post(&coder, ENDLESS)["state"], "running", "other projects have their own");
}

#[test]
fn what_is_no_project_is_refused_and_the_registry_pages() {
    let http = Http::start();
    let no = |body: &Value| http.call("POST", "/projects", Some(&body.to_string()));
    let empty = http.daemon.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let file = http.daemon.path("file");
    std::fs::write(&file, "x").unwrap();
    for directory in
        [json!("relative"), json!(""), json!("/no/such"), json!(file), json!(empty), json!("/a\u{0}b")]
    {
        assert_eq!(no(&json!({ "directory": directory })).code(400), "EINVAL", "{directory}");
    }
    for body in [json!({}), json!({"directory": 5}), json!({"directory": empty, "extra": 1})] {
        assert_eq!(no(&body).code(400), "EINVAL", "{body}");
    }
    let project = Project::new(&http, "a");
    assert_eq!(no(&json!({"directory": project.dir, "id": "no name"})).code(400), "EINVAL");
    assert_eq!(no(&json!({"directory": project.dir, "id": "default"})).code(409), "EEXIST");
    // Once, however often it is sent.
    let bearer = format!("Authorization: Bearer {}", http.token);
    let body = project.body();
    let args = ["-X", "POST", "-H", &bearer, "-H", "Idempotency-Key: k1", "--data-binary", &body];
    let (first, again) = (http.curl("/projects", &args), http.curl("/projects", &args));
    assert_eq!(first.json(201), again.json(201));
    assert_eq!(no(&json!({"directory": project.dir})).code(409), "EEXIST");
    assert_eq!(
        no(&json!({"directory": project.dir, "id": "b"})).code(409),
        "EEXIST",
        "a directory is one project"
    );
    // Moved: said, and the same project.
    let moved = Project { dir: http.daemon.path("moved") };
    std::fs::rename(&project.dir, &moved.dir).unwrap();
    assert_eq!(http.get("/projects/a")["state"], "invalid");
    let put = http.call("PUT", "/projects/a", Some(&moved.body())).json(200);
    assert_eq!((&put["state"], &put["directory"]), (&json!("ready"), &json!(moved.dir)));
    assert_eq!(http.call("PUT", "/projects/a", Some("{}")).json(200)["state"], "ready");
    assert_eq!(http.call("PUT", "/projects/nobody", Some(&moved.body())).code(404), "ENOENT");
    assert_eq!(http.call("GET", "/projects/..%2f", None).code(404), "ENOENT");
    let page = http.get("/projects?limit=1");
    assert_eq!((names(&page, "id"), &page["next"]), (vec!["a".to_owned()], &json!("a")));
    assert_eq!(names(&http.get("/projects?limit=1&cursor=a"), "id"), ["default"]);
    assert_eq!(http.call("GET", "/projects?cursor=%20", None).code(400), "EINVAL");
}
