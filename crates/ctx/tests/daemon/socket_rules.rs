//! The rules of an agent's socket, each over a real one.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::support::{Daemon, ids, kinds, read_messages, text_of, until};

const FRAME: usize = 1024 * 1024;

/// A ping that is a line of so many bytes, without its line end.
fn ping_of(bytes: usize) -> Vec<u8> {
    let (before, after) = (r#"{"op":"ping","pad":""#, "\"}\n");
    let pad = "x".repeat(bytes + 1 - before.len() - after.len());
    format!("{before}{pad}{after}").into_bytes()
}

#[test]
fn a_message_is_started_streamed_finished_and_done() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.send("default", "m1", "good morning");
    let frames = client.until_done();
    assert_eq!(kinds(&frames), ["start", "delta", "delta", "message", "usage", "done"]);
    assert_eq!(text_of(&frames), "good morning");
    assert_eq!(frames[3]["content"], json!([{"type": "text", "text": "good morning"}]));
    assert_eq!(frames[0]["model"], "debug/echo");
    assert!(frames.iter().all(|frame| frame["session"] == "default" && frame["run"] == frames[0]["run"]));
    assert!(ids(&frames).is_sorted_by(|a, b| a < b), "{frames:?}");
}

#[test]
fn a_line_of_one_mebibyte_is_taken_and_a_longer_one_is_skipped() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.raw(&ping_of(FRAME)).unwrap();
    client.expect("pong");
    for bytes in [FRAME + 1, 9 * FRAME] {
        client.raw(&ping_of(bytes)).unwrap();
        assert_eq!(client.refused("EMSGSIZE")["request"], Value::Null);
        client.expect_silence();
    }
    client.say("default", "m1", "the connection goes on");
}

#[test]
fn a_message_has_at_most_512_kib() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.send("default", "long", &"x".repeat(512 * 1024 + 1));
    assert_eq!(client.refused("EMSGSIZE")["request"], "long");
    let longest = "y".repeat(512 * 1024);
    client.send("default", "just", &longest);
    assert_eq!(text_of(&client.until_done()), longest);
    let texts: Vec<Value> = read_messages(&daemon.session("default"))
        .iter()
        .map(|line| line["content"][0]["text"].clone())
        .collect();
    assert_eq!(texts, [json!(longest), json!(longest)], "only what was accepted, whole");
}

#[test]
fn a_message_that_does_not_fit_a_frame_says_where_the_whole_is() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    // Each of these is six bytes in JSON: the request just fits, the answer with its longer fields does not.
    let text = "\u{1}".repeat((FRAME - 80) / 6);
    client.send("default", "m", &text);
    let frames = client.until_done();
    let message = frames.iter().find(|frame| frame["type"] == "message").unwrap();
    assert_eq!(message["truncated"], true);
    let part = message["content"][0]["text"].as_str().unwrap();
    assert!(!part.is_empty() && text.starts_with(part) && part.len() < text.len());
    assert!(message["whole"].as_str().unwrap().contains("messages.jsonl"));
    assert_eq!(read_messages(&daemon.session("default"))[1]["content"][0]["text"], text);
}

#[test]
fn what_makes_no_sense_is_einval_echoes_its_id_and_changes_nothing() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_field = format!(r#"{{"op":"send","id":"d","input":"x","future":{deep}}}"#);
    let no_id = Value::Null;
    let cases: Vec<(Vec<u8>, Value)> = vec![
        (b"".to_vec(), no_id.clone()),
        (b"nonsense".to_vec(), no_id.clone()),
        (br#"{"op":"send","id":"a","input":"x""#.to_vec(), no_id.clone()),
        (br#"{"op":"ping"}{"op":"ping"}"#.to_vec(), no_id.clone()),
        (b"[1,2]".to_vec(), no_id.clone()),
        (b"null".to_vec(), no_id.clone()),
        (b"{\"op\":\"send\",\"id\":\"a\",\"input\":\"\xff\xfe\"}".to_vec(), no_id.clone()),
        (b"\xff\x00\xfe".to_vec(), no_id.clone()),
        (deep.into_bytes(), no_id.clone()),
        (deep_field.into_bytes(), no_id.clone()),
        (br#"{"op":"fly","id":"a"}"#.to_vec(), json!("a")),
        (br#"{"op":"SEND","id":"a","input":"x"}"#.to_vec(), json!("a")),
        (br#"{"op":["send"],"id":"a","input":"x"}"#.to_vec(), json!("a")),
        (br#"{"id":"a"}"#.to_vec(), json!("a")),
        (br#"{"op":"send","id":"a"}"#.to_vec(), json!("a")),
        (br#"{"op":"send","id":"a","input":""}"#.to_vec(), json!("a")),
        (br#"{"op":"send","id":"a","input":7}"#.to_vec(), json!("a")),
        (br#"{"op":"send","id":"a","input":"x","session":7}"#.to_vec(), json!("a")),
        (br#"{"op":"send","id":"a","input":"x","cwd":["/"]}"#.to_vec(), json!("a")),
        (br#"{"op":"send","id":7,"input":"x"}"#.to_vec(), no_id.clone()),
        (br#"{"op":"send","id":"a","input":"x","scope":"public"}"#.to_vec(), json!("a")),
        (br#"{"op":"send","id":"a","input":"x","scope":"shared"}"#.to_vec(), json!("a")),
        (br#"{"op":"resume","id":"a","after":"yesterday"}"#.to_vec(), json!("a")),
        (br#"{"op":"cancel","id":"not-a-run"}"#.to_vec(), json!("not-a-run")),
        (br#"{"op":"cancel"}"#.to_vec(), no_id.clone()),
    ];
    for (mut line, id) in cases {
        let shown = String::from_utf8_lossy(&line).chars().take(90).collect::<String>();
        line.push(b'\n');
        client.raw(&line).unwrap();
        let frame = client.frame();
        assert_eq!(
            (&frame["type"], &frame["code"], &frame["request"]),
            (&json!("error"), &json!("EINVAL"), &id),
            "{shown}: {frame}"
        );
        assert!(!frame["message"].as_str().unwrap().is_empty());
    }
    client.expect_silence();
    assert!(!daemon.session("default").exists(), "nothing was begun");
}

#[test]
fn a_name_that_is_not_a_name_is_einval() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let long = "n".repeat(65);
    for name in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc",
        "-x",
        ".hidden",
        "index",
        "x.sock",
        "x.d",
        "a b",
        "a\nb",
        "a\0b",
        "ä",
        long.as_str(),
    ] {
        client.send(name, "m", "x");
        assert_eq!(client.refused("EINVAL")["request"], "m", "{name:?}");
        client.ask(json!({"op": "resume", "id": "r", "session": name}));
        assert_eq!(client.refused("EINVAL")["request"], "r", "{name:?}");
    }
    let longest = "n".repeat(64);
    for name in [longest.as_str(), "a.b+c-d_".trim_end_matches('_'), "0"] {
        client.say(name, "m", "x");
        assert_eq!(daemon.file(name, "latest.md"), "x\n");
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.ask(json!({"op": "send", "id": "m", "input": "x", "from": {"the": ["future"]}, "priority": 7}));
    assert_eq!(client.until_done().last().unwrap()["status"], "ok");
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_line_has_said_nothing() {
    let daemon = Daemon::start();
    for part in [r#"{"op":"send","id":"m","input":"x"#, r#"{"op":"send","id":"m","input":"x"}"#] {
        let mut client = daemon.client();
        client.raw(part.as_bytes()).unwrap();
        drop(client);
    }
    daemon.client().say("other", "m", "x");
    assert!(!daemon.session("default").exists());
}

#[test]
fn a_client_that_only_listens_is_shown_its_run_to_the_end() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "one "}, {"sleep_ms": 100}, {"text": "two"}]));
    client.end_requests();
    let frames = client.until_done();
    assert_eq!((text_of(&frames).as_str(), &frames.last().unwrap()["status"]), ("one two", &json!("ok")));
    assert_eq!(client.try_frame().unwrap(), None, "then the connection is closed");

    let mut again = daemon.client();
    again.ask(json!({"op": "resume", "session": "default"}));
    again.end_requests();
    assert_eq!(kinds(&again.until_done()).last(), Some(&"done"));
    assert_eq!(again.try_frame().unwrap(), None);
}

#[test]
fn many_sessions_share_one_connection() {
    let daemon =
        Daemon::with(&[("CTX_LIMITS_RUNNING_PER_PROJECT", "64"), ("CTX_LIMITS_RUNNING_PER_OPERATOR", "64")]);
    let mut client = daemon.client();
    let names: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
    for name in &names {
        client.play(name, "m", json!([{"text": name}, {"sleep_ms": 50}, {"text": "!"}]));
    }
    let mut frames: HashMap<String, Vec<Value>> = HashMap::new();
    let mut done = 0;
    while done < names.len() {
        let frame = client.frame();
        done += usize::from(frame["type"] == "done");
        frames.entry(frame["session"].as_str().unwrap().to_owned()).or_default().push(frame);
    }
    for name in &names {
        let frames = &frames[name];
        assert_eq!(kinds(frames)[0], "start");
        assert_eq!(text_of(frames), format!("{name}!"));
        assert!(ids(frames).is_sorted_by(|a, b| a < b));
    }
}

#[test]
fn a_socket_with_a_very_long_path_works() {
    let deep: String = (0..12).map(|number| format!("directory-number-{number:02}/")).collect();
    let mut daemon = Daemon(Daemon::build().root(&deep).start());
    assert!(daemon.socket().as_os_str().len() > 200);
    daemon.client().say("default", "m", "from far below");
    assert_eq!(daemon.file("default", "latest.md"), "from far below\n");
    daemon.restart();
    daemon.client().expect_silence();
}

#[test]
fn a_cwd_that_cannot_be_refuses_the_message_and_leaves_nothing() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.ask(json!({"op": "send", "id": "m", "input": "x", "cwd": "/work/not-there"}));
    assert_eq!(client.refused("ENOENT")["request"], "m");
    assert!(!daemon.session("default").exists());
}

#[test]
fn two_sends_at_once_to_a_new_name_make_one_session() {
    let daemon =
        Daemon::with(&[("CTX_LIMITS_RUNNING_PER_PROJECT", "64"), ("CTX_LIMITS_RUNNING_PER_OPERATOR", "64")]);
    for round in 0..20 {
        let name = format!("new{round}");
        let barrier = std::sync::Barrier::new(4);
        let ends: Vec<Value> = std::thread::scope(|scope| {
            let sends: Vec<_> = (0..4)
                .map(|number| {
                    let (mut client, name, barrier) = (daemon.client(), &name, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        client.send(name, &format!("m{number}"), "x");
                        let first = client.frame();
                        if first["type"] == "start" { client.until_done().pop().unwrap() } else { first }
                    })
                })
                .collect();
            sends.into_iter().map(|send| send.join().unwrap()).collect()
        });
        let ok = ends.iter().filter(|end| end["status"] == "ok").count();
        assert!(ok >= 1, "someone is first: {ends:?}");
        assert!(ends.iter().all(|end| end["status"] == "ok" || end["code"] == "EBUSY"), "{ends:?}");
        assert_eq!(daemon.log(&name).of_type("user").len(), ok);
    }
    let listed = until("the index", || {
        let list = std::fs::read_to_string(daemon.session("index/list")).ok()?;
        (list.lines().count() == 20).then_some(list)
    });
    assert!(listed.lines().all(|name| name.starts_with("new")), "{listed}");
}
