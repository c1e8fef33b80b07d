//! Attacks of one user on another, and on the daemon's owner. Each of them worked in November 2026.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::until;

use super::support::{Answer, Daemon, connect};
use super::users::{GID, UID, as_other, as_user};

/// A user of this machine.
pub fn user_named(name: &str) -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name)).unwrap().to_owned();
    let ids: Vec<u32> = line.split(':').skip(2).take(2).map(|id| id.parse().unwrap()).collect();
    (ids[0], ids[1])
}

fn log_of(daemon: &Daemon, uid: u32, name: &str) -> PathBuf {
    daemon.root().join(format!("home/{uid}/agent/coder/session/{name}/events.jsonl"))
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}

fn id_in(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    first["session_id"].as_str().unwrap().to_owned()
}

/// Two sessions, the other user's with a name that sorts first, in a daemon that is stopped.
fn two_sessions() -> (Daemon, PathBuf, PathBuf) {
    let mut daemon = Daemon::start();
    as_other(|| daemon.client().say("a", "m", "theirs"));
    daemon.client().say("victim", "m", "mine");
    daemon.stop();
    let (theirs, mine) = (log_of(&daemon, UID, "a"), log_of(&daemon, 0, "victim"));
    (daemon, theirs, mine)
}

#[test]
fn a_log_with_the_id_of_anothers_session_does_not_take_its_place() {
    let (mut daemon, theirs, mine) = two_sessions();
    let (own, victim) = (id_in(&theirs), id_in(&mine));
    let written = as_other(|| std::fs::write(&theirs, "x").is_ok() || std::fs::remove_file(&theirs).is_ok());
    assert!(!written, "the log is not theirs to write");
    // As it was when it was theirs.
    replace(&theirs, &own, &victim);
    chown(&theirs, Some(UID), Some(GID)).unwrap();
    let forged = std::fs::read(&theirs).unwrap();
    daemon.start_again();
    let shown = daemon.api("GET", &format!("/sessions/{victim}")).ok();
    assert_eq!((&shown["name"], &shown["owner"]), (&json!("victim"), &json!(0)));
    let body = json!({ "text": "for my eyes only" });
    daemon.api_with("POST", &format!("/sessions/{victim}/messages"), &body).ok();
    until("the answer", || std::fs::read_to_string(&mine).unwrap().contains("run_finished").then_some(()));
    assert!(std::fs::read_to_string(&mine).unwrap().contains("for my eyes only"));
    assert_eq!(std::fs::read(&theirs).unwrap(), forged, "a foreign log is not written");
    as_other(|| {
        for path in [format!("/sessions/{victim}"), format!("/sessions/{own}")] {
            assert_eq!(daemon.api("GET", &path).status, 404, "{path}");
        }
        assert_eq!(daemon.api("GET", "/projects/default/sessions").ok()["items"], json!([]));
        until("the index to forget it", || {
            let found = daemon.api("GET", "/search?q=theirs").ok();
            found["items"].as_array().unwrap().is_empty().then_some(())
        });
        let mut client = daemon.client();
        client.ask(json!({"op": "resume", "id": "r", "session": "a"}));
        client.refused("ENOENT");
        // Nor is it overwritten by a session that begins anew under its name.
        client.ask(json!({"op": "send", "id": "s", "session": "a", "input": "x"}));
        assert_eq!(client.expect("error")["request"], "s");
    });
    assert!(daemon.stderr().contains("foreign=1"), "{}", daemon.stderr());
    let told = daemon.ctx(&["doctor"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stdout.contains(&format!("foreign: it belongs to uid {UID}")), "{told:?}");
}

#[test]
fn of_two_logs_that_say_the_same_id_none_wins_because_its_name_sorts_first() {
    let (mut daemon, theirs, mine) = two_sessions();
    let victim = id_in(&mine);
    replace(&theirs, &id_in(&theirs), &victim);
    let before = (std::fs::read(&theirs).unwrap(), std::fs::read(&mine).unwrap());
    daemon.start_again();
    assert_eq!(daemon.api("GET", &format!("/sessions/{victim}")).status, 404);
    let told = daemon.ctx(&["doctor"]);
    assert!(told.code == 1 && told.stdout.contains("another log has the same id"), "{told:?}");
    assert_eq!((std::fs::read(&theirs).unwrap(), std::fs::read(&mine).unwrap()), before);
    // A directory that has the id in its name is no better.
    daemon.stop();
    replace(&theirs, &victim, "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    let freed = theirs.parent().unwrap().with_file_name(format!("a+{victim}"));
    std::fs::rename(theirs.parent().unwrap(), &freed).unwrap();
    daemon.start_again();
    assert_eq!(daemon.api("GET", &format!("/sessions/{victim}")).ok()["name"], "victim");
}

/// A project of a user, whose conversations are summed up by a command that tells who runs it.
struct Project {
    dir: PathBuf,
    proof: PathBuf,
}

fn project(daemon: &Daemon, name: &str, (uid, gid): (u32, u32)) -> Project {
    let dir = daemon.path(name);
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    let proof = dir.join("proof");
    let command = format!(
        "id -u > {0}; id -g >> {0}; env >> {0}; pwd >> {0}; cat > /dev/null; echo short",
        proof.display()
    );
    let compaction = format!("{{strategy: delegate, delegate: [sh, -c, '{command}']}}");
    let text =
        format!("version: 1\nproject: {name}\nprimary:\n  model: debug:echo\n  compaction: {compaction}\n");
    std::fs::write(dir.join(".ctx/project.yaml"), text).unwrap();
    for path in [dir.clone(), dir.join(".ctx"), dir.join(".ctx/project.yaml")] {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
    Project { dir, proof }
}

impl Project {
    /// Registered, and its owner agrees to its command.
    fn add(&self, daemon: &Daemon) -> Value {
        let added = daemon.api_with("POST", "/projects", &json!({ "directory": self.dir })).ok();
        let trust = format!("/projects/{}/trust", added["id"].as_str().unwrap());
        daemon.api_with("POST", &trust, &json!({})).ok()
    }
}

/// Talks until the window is full and the conversation is made shorter; the compaction.
fn compacted(daemon: &Daemon, id: &str) -> Value {
    for word in ["one", "two", "three", "four"] {
        let body = json!({ "text": format!("{word} ").repeat(1_500) });
        daemon.api_with("POST", &format!("/sessions/{id}/messages"), &body).ok();
        until("the answer", || {
            let shown = daemon.api("GET", &format!("/sessions/{id}")).ok();
            (shown["state"] == "idle").then_some(())
        });
    }
    daemon.api("GET", &format!("/sessions/{id}/compactions")).ok()["items"][0].clone()
}

#[test]
fn a_projects_command_has_the_rights_of_the_sessions_owner_and_a_clean_environment() {
    let daemon = Daemon::with(&[("SECRET_OF_THE_DAEMON", "xyzzy")]);
    let (uid, gid) = user_named("nobody");
    let theirs = project(&daemon, "theirs", (uid, gid));
    let made = as_user(uid, gid, || {
        theirs.add(&daemon);
        let session = daemon.api_with("POST", "/projects/theirs/sessions", &json!({})).ok();
        compacted(&daemon, session["id"].as_str().unwrap())
    });
    assert_eq!((&made["summary"], &made["fallback_occurred"]), (&json!("short"), &json!(false)), "{made}");
    let proof = std::fs::read_to_string(&theirs.proof).unwrap();
    assert!(proof.starts_with(&format!("{uid}\n{gid}\n")), "{proof}");
    assert!(!proof.contains("xyzzy") && !proof.contains("CTX_"), "{proof}");
    assert!(proof.ends_with(&format!("{}\n", theirs.dir.display())), "{proof}");
    assert_eq!(std::fs::metadata(&theirs.proof).unwrap().uid(), uid);
}

#[test]
fn roots_session_never_runs_a_strangers_command() {
    let daemon = Daemon::start();
    let (uid, gid) = user_named("nobody");
    // Root registers a directory in which a stranger writes.
    let theirs = project(&daemon, "theirs", (uid, gid));
    theirs.add(&daemon);
    let session = daemon.api_with("POST", "/projects/theirs/sessions", &json!({})).ok();
    let made = compacted(&daemon, session["id"].as_str().unwrap());
    assert_eq!((&made["summary"], &made["fallback_occurred"]), (&Value::Null, &json!(true)), "{made}");
    assert!(made["fallback_reason"].as_str().unwrap().contains(&format!("belongs to uid {uid}")), "{made}");
    assert!(!theirs.proof.exists());
}

#[test]
fn anothers_agent_and_project_cannot_be_addressed_not_even_by_root() {
    let daemon = Daemon::start();
    let (uid, gid) = user_named("nobody");
    let theirs = project(&daemon, "helper", (uid, gid));
    as_user(uid, gid, || theirs.add(&daemon));
    let socket = daemon.root().join("agent/helper.sock");
    until("the agent's socket", || socket.exists().then_some(()));
    let dir = daemon.root().join("agent/helper.d");
    // Their own: read and addressed.
    as_user(uid, gid, || {
        assert!(std::fs::read_to_string(dir.join("model")).is_ok());
        connect(&socket).unwrap().say("default", "m", "hello");
    });
    // Another user: neither read nor connected to, and what they are told is what a made-up name gets.
    as_other(|| {
        assert!(std::fs::read_dir(&dir).is_err() && std::fs::read(dir.join("model")).is_err());
        assert!(connect(&socket).is_err());
        let ask = |slug: &str| {
            let made = daemon.api_with("POST", &format!("/projects/{slug}/sessions"), &json!({}));
            let read = daemon.api("GET", &format!("/projects/{slug}"));
            let by_agent = daemon.api_with("POST", "/projects/default/sessions", &json!({ "agent": slug }));
            [made, read, by_agent]
                .map(|answer| (answer.status, answer.body.to_string().replace(slug, "NAME")))
        };
        assert_eq!(ask("helper"), ask("made-up"));
        assert_eq!(ask("helper").map(|(status, _)| status), [404, 404, 404]);
    });
    // Root can open everything, and is not led to work by what a stranger wrote.
    let mut root = connect(&socket).unwrap();
    root.send("default", "m", "hello");
    assert_eq!(root.refused("ENOENT")["request"], "m");
    let said = daemon.ctx(&["send", "-a", "helper", "hello"]).fails(1);
    assert!(said.contains("no agent `helper`"), "{said}");
    assert_eq!(daemon.api_with("POST", "/projects/helper/sessions", &json!({})).status, 404);
    let by_agent = json!({ "agent": "helper" });
    assert_eq!(daemon.api_with("POST", "/projects/default/sessions", &by_agent).status, 404);
    assert!(!theirs.proof.exists());
}

#[test]
fn a_daemon_of_a_plain_user_needs_no_root_for_any_of_it() {
    let mut daemon = Daemon::as_user(UID, GID);
    let own = project(&daemon, "own", (UID, GID));
    let log = log_of(&daemon, UID, "default");
    as_other(|| {
        daemon.client().say("default", "m", "hello");
        daemon.client().say("other", "m", "hello");
        own.add(&daemon);
        let session = daemon.api_with("POST", "/projects/own/sessions", &json!({})).ok();
        assert_eq!(compacted(&daemon, session["id"].as_str().unwrap())["summary"], "short");
    });
    assert!(std::fs::read_to_string(&own.proof).unwrap().starts_with(&format!("{UID}\n{GID}\n")));
    let data = std::fs::metadata(&log).unwrap();
    assert_eq!((data.uid(), data.mode() & 0o777), (UID, 0o600));
    daemon.stop();
    // A log that someone else could write is as foreign to it.
    std::fs::set_permissions(&log, std::os::unix::fs::PermissionsExt::from_mode(0o622)).unwrap();
    daemon.start_again();
    let names = as_other(|| {
        let list = daemon.api("GET", "/projects/default/sessions").ok();
        list["items"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect::<Vec<_>>()
    });
    assert_eq!(names, ["other"]);
}

/// Brings in a session under this id with one record.
fn import(daemon: &Daemon, id: &str, mut record: Value) -> Answer {
    let time = "2026-11-01T10:00:00.000Z";
    record["time"] = json!(time);
    let batch = json!({"import_id": "01ARZ3NDEKTSV4RRFFQ69G5FA2", "agent": "aider", "session": id, "name": "past",
        "model": "m", "created_at": time, "origin": {"agent": "aider", "native_id": "n"}, "records": [record]});
    daemon.api_with("POST", "/imports", &batch)
}

fn import_said(daemon: &Daemon, id: &str, said: &str) -> Value {
    let (message, run) = ("01ARZ3NDEKTSV4RRFFQ69G5FA0", "01ARZ3NDEKTSV4RRFFQ69G5FA1");
    import(daemon, id, json!({"type": "user", "message_id": message, "turn_id": run, "text": said})).ok()
}

#[test]
fn an_imported_sessions_id_can_be_taken_from_nobody_and_tells_nobody_of_anothers() {
    let daemon = Daemon::start();
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    // The id follows from the source, so a stranger can know it before its owner imports.
    let theirs = as_other(|| import_said(&daemon, id, "squatting"));
    let own = import_said(&daemon, id, "mine");
    assert_eq!((&own["session"], &own["created"]), (&json!(id), &json!(true)));
    // And a third learns nothing from the answer.
    let third = as_user(UID + 7, GID, || import_said(&daemon, id, "probing"));
    assert_eq!((&theirs["created"], &third["created"]), (&json!(true), &json!(true)));
    assert!(theirs["session"] != own["session"] && third["session"] != theirs["session"]);
    as_other(|| {
        assert_eq!(daemon.api("GET", &format!("/sessions/{id}")).status, 404);
        let listed = daemon.api("GET", "/imports").ok();
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(import_said(&daemon, id, "squatting")["added"], 0, "the same again adds nothing");
        // What was said and done comes in; what says whose it is, or what its agent may do, does not.
        let meta = std::fs::read_to_string(
            daemon.root().join(format!("home/{UID}/agent/aider/session/past/events.jsonl")),
        );
        let mut meta: Value = serde_json::from_str(meta.unwrap().lines().next().unwrap()).unwrap();
        meta["owner"] = json!(0);
        let context = json!({"type": "message_pinned", "message_id": "01ARZ3NDEKTSV4RRFFQ69G5FA0", "pinned": true, "by": 0});
        for record in [meta, context] {
            let refused = import(&daemon, id, record);
            assert_eq!((refused.status, refused.code()), (400, "EINVAL"), "{refused:?}");
        }
        assert_eq!(daemon.api_with("POST", "/imports/undo", &json!({})).ok()["removed"], 1);
    });
    assert_eq!(daemon.api("GET", &format!("/sessions/{id}")).ok()["owner"], 0);
}

#[test]
fn a_key_that_a_user_hands_over_is_nobody_elses() {
    let daemon = Daemon::with(&[("ANTHROPIC_API_KEY", "sk-of-the-daemon")]);
    let providers = || daemon.api("GET", "/providers").ok()["items"].clone();
    let names =
        |items: &Value| items.as_array().unwrap().iter().map(|item| item["name"].clone()).collect::<Vec<_>>();
    as_other(|| {
        let variables = json!({ "variables": { "OPENAI_API_KEY": "sk-of-another-user" } });
        daemon.api_with("PUT", "/providers/variables", &variables).ok();
        let shown = providers();
        assert_eq!(names(&shown), ["openai"], "the daemon's own environment is not theirs");
        assert!(!shown.to_string().contains("sk-of"), "{shown}");
    });
    assert_eq!(names(&providers()), ["anthropic"], "nor is theirs the daemon's");
    let third = as_user(UID + 7, GID, || {
        let tried = daemon.api_with("POST", "/models/test", &json!({ "model": "openai:gpt-x" }));
        (names(&providers()), tried.body.to_string())
    });
    assert!(third.0.is_empty() && !third.1.contains("sk-of"), "{third:?}");
}
