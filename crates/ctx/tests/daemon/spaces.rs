//! Spaces: members of the group read and resume what is shared; for others it does not exist.

use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use testkit::until;

use super::support::{Answer, Daemon};
use super::users::as_user;
use super::walls::user_named;

/// A space of the group `daemon` with a session of root's in it, and its id.
fn shared() -> (Daemon, String) {
    let daemon = Daemon::start();
    let said = daemon.ctx(&["space", "new", "team", "--group", "daemon"]);
    assert_eq!(said.code, 0, "{said:?}");
    daemon.ctx(&["send", "--space", "team", "--session", "review", "the heron nests at dawn"]).ok();
    let sessions = daemon.shown_all();
    let found = sessions.iter().find(|session| session["name"] == "review").unwrap();
    assert_eq!((&found["scope"], &found["space"]), (&json!("shared"), &json!("team")));
    let id = found["id"].as_str().unwrap().to_owned();
    (daemon, id)
}

fn as_named<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let (uid, gid) = user_named(name);
    as_user(uid, gid, work)
}

#[test]
fn members_list_read_and_resume_and_the_session_stays_its_owners() {
    let (daemon, id) = shared();
    let dir = daemon.root().join("shared/team/agent/coder/session/review");
    until("the index", || {
        let found = as_named("daemon", || daemon.api("GET", "/search?q=heron").ok());
        (!found["items"].as_array().unwrap().is_empty()).then_some(())
    });
    as_named("daemon", || {
        let spaces = daemon.api("GET", "/spaces").ok();
        assert_eq!(spaces["items"][0]["name"], "team", "{spaces}");
        let list = daemon.api("GET", "/projects/default/sessions").ok();
        assert_eq!(list["items"][0]["id"], json!(id), "{list}");
        assert!(std::fs::read_to_string(dir.join("latest.md")).unwrap().contains("heron"));
        assert!(std::fs::write(dir.join("latest.md"), "x").is_err());
        // By name in the space, over the socket.
        let mut client = daemon.client();
        client.ask(json!({"op": "send", "id": "m", "session": "review", "scope": "shared", "space": "team",
            "input": "and at dusk"}));
        client.until_done();
        let refused = daemon.api("DELETE", &format!("/sessions/{id}?confirm=true"));
        assert_eq!((refused.status, refused.code()), (403, "EACCES"), "what cannot be undone is its owner's");
    });
    let shown = daemon.api("GET", &format!("/sessions/{id}")).ok();
    assert_eq!((&shown["owner"], &shown["state"]), (&json!(0), &json!("idle")));
    assert!(std::fs::read_to_string(dir.join("messages.jsonl")).unwrap().contains("and at dusk"));
    // It is over and can be purged: by its owner, and not by a member.
    daemon.api("DELETE", &format!("/sessions/{id}?confirm=true")).ok();
    let restart = as_named("daemon", || daemon.api("POST", &format!("/sessions/{id}/restart")));
    assert_eq!(restart.code(), "EACCES");
    let purge = format!("/sessions/{id}?confirm=true&purge=true");
    let by_member = as_named("daemon", || daemon.api("DELETE", &purge));
    assert_eq!(by_member.code(), "EACCES");
    assert!(dir.exists());
}

#[test]
fn for_others_a_space_is_like_a_made_up_one() {
    let (daemon, id) = shared();
    let asked = |space: &str, id: &str| -> Vec<(u16, String)> {
        let new = json!({ "scope": "shared", "space": space });
        let answers = vec![
            daemon.api_with("POST", "/projects/default/sessions", &new),
            daemon.api("DELETE", &format!("/spaces/{space}")),
            daemon.api("GET", &format!("/sessions/{id}")),
            daemon.api("GET", &format!("/sessions/{id}/messages")),
            daemon.api_with("POST", &format!("/sessions/{id}/messages"), &json!({ "text": "x" })),
            daemon.api_with(
                "POST",
                "/projects/default/sessions",
                &json!({ "resume_from": { "session_id": id } }),
            ),
        ];
        let plain = |answer: Answer| {
            (answer.status, answer.body.to_string().replace(space, "SPACE").replace(id, "ID"))
        };
        answers.into_iter().map(plain).collect()
    };
    as_named("bin", || {
        let real = asked("team", &id);
        assert_eq!(real, asked("made-up", "01ARZ3NDEKTSV4RRFFQ69G5FAV"));
        assert!(real.iter().all(|(status, _)| (400..500).contains(status)), "{real:?}");
        assert_eq!(daemon.api("GET", "/spaces").ok()["items"], json!([]));
        assert_eq!(daemon.api("GET", "/projects/default/sessions").ok()["items"], json!([]));
        assert_eq!(daemon.api("GET", "/search?q=heron").ok()["items"], json!([]));
        let mut client = daemon.client();
        for space in ["team", "made-up"] {
            let request = json!({"op": "send", "id": "m", "session": "review", "scope": "shared", "space": space, "input": "x"});
            client.ask(request.clone());
            client.refused("ENOENT");
            let mut resume = request;
            resume["op"] = "resume".into();
            client.ask(resume);
            client.refused("ENOENT");
        }
        assert!(std::fs::read_dir(daemon.root().join("shared/team")).is_err());
    });
}

#[test]
fn who_may_make_and_remove_a_space() {
    let mut daemon = Daemon::start();
    let new = |name: &str, group: &str| {
        daemon.api_with("POST", "/spaces", &json!({ "name": name, "group": group }))
    };
    let code = |answer: Answer| (answer.status, answer.code().to_owned());
    as_named("bin", || {
        assert_eq!(code(new("mine", "daemon")), (403, "EACCES".to_owned()), "a group that they are not in");
        assert_eq!(new("mine", "bin").ok()["created_by"], json!(user_named("bin").0));
        assert_eq!(code(new("mine", "bin")), (409, "EEXIST".to_owned()));
        assert_eq!(code(new("other", "no-such-group-here")), (400, "EINVAL".to_owned()));
        assert_eq!(code(new("../x", "bin")), (400, "EINVAL".to_owned()));
        let session = json!({ "scope": "shared", "space": "mine", "name": "s" });
        daemon.api_with("POST", "/projects/default/sessions", &session).ok();
    });
    let dir = daemon.root().join("shared/mine");
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o750);
    daemon.restart();
    let ls =
        |name: &str| as_named(name, || daemon.api("GET", "/spaces").ok()["items"].as_array().unwrap().len());
    assert_eq!((ls("bin"), ls("daemon"), ls("root")), (1, 0, 1), "it is there after a restart");
    let busy = as_named("bin", || daemon.api("DELETE", "/spaces/mine"));
    assert_eq!(code(busy), (409, "EBUSY".to_owned()));
    let session: Value = daemon.shown_all().into_iter().find(|session| session["name"] == "s").unwrap();
    let id = session["id"].as_str().unwrap();
    daemon.ctx(&["end", id, "--yes"]).ok();
    daemon.ctx(&["purge", id, "--yes"]).ok();
    assert_eq!(as_named("bin", || daemon.api("DELETE", "/spaces/mine")).status, 204);
    assert!(!dir.exists() && !daemon.root().join(".state/spaces/mine").exists());
    assert_eq!(code(daemon.api("DELETE", "/spaces/mine")), (404, "ENOENT".to_owned()));
}

#[test]
fn a_member_lets_the_owners_agent_do_no_more_than_its_owner_did() {
    let (daemon, id) = shared();
    let write = json!([{"tool": {"name": "fs.write", "input": {"path": "made", "content": "x"}}}]);
    let input = super::support::script(write);
    let made = daemon.workspace().join("made");
    let at = format!("/sessions/{id}");
    as_named("daemon", || {
        let mut client = daemon.client();
        for more in [json!({"approvals": "allow"}), json!({"allow": ["fs.write"]}), json!({"net": "host"})] {
            let mut request = json!({"op": "send", "id": "m", "session": "review", "scope": "shared",
                "space": "team", "model_override": "debug:script", "input": input});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            client.ask(request);
            assert_eq!(client.refused("EACCES")["request"], "m", "{more}");
            let mut body = json!({"text": input, "model_override": "debug:script"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let refused = daemon.api_with("POST", &format!("{at}/messages"), &body);
            assert_eq!((refused.status, refused.code()), (403, "EACCES"), "{more}");
        }
        // The question that it asks is its owner's to allow; a member may say no.
        let body = json!({"text": input, "model_override": "debug:script"});
        daemon.api_with("POST", &format!("{at}/messages"), &body).ok();
        let question = until("the question", || {
            let waiting = daemon.api("GET", &format!("{at}/approvals")).ok();
            waiting["items"].as_array().unwrap().first().map(|one| one["id"].as_str().unwrap().to_owned())
        });
        let answer = format!("{at}/approvals/{question}");
        let refused = daemon.api_with("POST", &answer, &json!({"decision": "allow"}));
        assert_eq!((refused.status, refused.code()), (403, "EACCES"));
        assert!(!made.exists());
        daemon.api_with("POST", &answer, &json!({"decision": "deny"})).ok();
    });
    until("the end of the run", || (daemon.api("GET", &at).ok()["state"] == "idle").then_some(()));
    assert!(!made.exists());
    // Its owner may.
    let body = json!({"text": input, "model_override": "debug:script", "approvals": "allow"});
    daemon.api_with("POST", &format!("{at}/messages"), &body).ok();
    until("the file", || made.exists().then_some(()));
}

/// A text frame of a client.
fn frame(value: &Value) -> Vec<u8> {
    let text = value.to_string().into_bytes();
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    [&[0x81, 0xfe][..], &length, &[0; 4], &text].concat()
}

#[test]
fn a_member_looks_at_the_owners_terminal_and_types_nothing_into_it() {
    use std::io::{Read, Write};
    let (daemon, id) = shared();
    let proof = daemon.path("typed");
    let command = json!({ "command": ["sh"], "cage": false });
    let terminal = daemon.api_with("POST", &format!("/sessions/{id}/terminals"), &command).ok();
    let pty = terminal["id"].clone();
    let heard = as_named("daemon", || {
        let mut stream =
            std::os::unix::net::UnixStream::connect(daemon.root().join(".state/api.sock")).unwrap();
        let head = format!(
            "GET /api/v1/sessions/{id}/socket HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&frame(&json!({ "channel": "control", "type": "hello", "payload": {} }))).unwrap();
        let keys = BASE64_STANDARD.encode(format!("touch {}\n", proof.display()));
        let typed = json!({ "channel": "pty", "type": "stdin", "pty_id": pty, "data": keys });
        stream.write_all(&frame(&typed)).unwrap();
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).contains("EACCES") {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&heard));
            heard.extend(&bytes[..count]);
        }
        String::from_utf8_lossy(&heard).into_owned()
    });
    assert!(heard.contains("welcome"), "{heard}");
    assert!(!proof.exists());
    daemon.api("DELETE", &format!("/terminals/{}", pty.as_str().unwrap()));
}
