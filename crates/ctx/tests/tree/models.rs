//! Models as objects: run by themselves, and talked with over their sockets.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};
use testkit::until;

use super::support::{Tree, deltas, frames, own_uid, types};

#[test]
fn a_model_takes_words_or_stdin_as_text_or_json() {
    let tree = Tree::start();
    for script in [
        "$R/model/debug/echo hello",
        "echo hello | $R/model/debug/echo",
        r#"echo '{"messages":[{"role":"user","content":"hello"}]}' | $R/model/debug/echo"#,
        r#"$R/model/debug/echo '{"input":"hello"}'"#,
        "cd $R/model/debug && ./echo hello",
        "$R/model/main hello",
    ] {
        let frames = frames(&tree.sh(script).ok());
        assert_eq!(frames[0]["type"], "start", "{script}");
        assert_eq!(frames[0]["model"], "debug/echo", "{script}");
        assert_eq!(deltas(&frames).trim_end(), "hello", "{script}");
        let last = frames.last().unwrap();
        assert_eq!((&last["type"], &last["status"]), (&json!("done"), &json!("ok")), "{script}");
        assert!(frames.iter().all(|frame| frame["run"] == frames[0]["run"]), "{script}");
        let kinds = types(&frames);
        assert!(kinds.contains(&"message") && kinds.contains(&"usage"), "{kinds:?}");
    }
    let said = tree.sh("$R/model/debug/echo --text hello").ok();
    assert_eq!(said, "hello\n");
    assert!(!tree.root().join(format!("home/{}/model", own_uid())).join("debug/echo.d/session").exists());
}

#[test]
fn a_model_is_given_the_whole_conversation_it_is_asked_with() {
    let tree = Tree::start();
    let script = json!({"script": [{"dump": true}]}).to_string();
    let messages = json!({"messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": script},
    ]});
    std::fs::write(tree.path("in.json"), messages.to_string()).unwrap();
    let said = tree.sh(&format!("$R/model/debug/script --text < {}", tree.path("in.json").display())).ok();
    let request: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let roles: Vec<&str> =
        request["messages"].as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!((request["prompt"].as_str().unwrap(), roles), ("be brief", vec!["user", "assistant", "user"]));
    assert_eq!(request["tools"], json!([]), "it has no tools");
}

#[test]
fn a_model_executes_nothing_and_tells_what_it_wants_called() {
    let tree = Tree::start();
    let touch = tree.path("touched");
    let call = json!({"name": "shell.exec", "input": {"command": format!("touch {}", touch.display())}});
    let script = json!({"script": [{"tool": call}, {"text": "never"}]}).to_string();
    std::fs::write(tree.path("in.json"), &script).unwrap();
    let frames =
        frames(&tree.sh(&format!("$R/model/debug/script < {}", tree.path("in.json").display())).ok());
    let call = frames.iter().find(|frame| frame["type"] == "tool_call").expect("a tool_call");
    assert_eq!(call["name"], "shell.exec");
    assert!(!touch.exists() && !deltas(&frames).contains("never"), "{frames:?}");
}

/// One connection to a socket.
struct Line {
    reader: BufReader<std::os::unix::net::UnixStream>,
}

impl Line {
    fn to(tree: &Tree, socket: &str) -> Line {
        let stream = until("the socket", || testkit::connect(&tree.root().join(socket)).ok());
        Line { reader: BufReader::new(stream) }
    }

    fn send(&mut self, request: &Value) {
        writeln!(self.reader.get_mut(), "{request}").unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.reader.read_line(&mut line).unwrap() > 0, "the connection was closed");
        serde_json::from_str(&line).unwrap()
    }

    fn run(&mut self, request: &Value) -> Vec<Value> {
        self.send(request);
        let mut frames = Vec::new();
        loop {
            let frame = self.next();
            let is_end = ["done", "error"].iter().any(|end| frame["type"] == *end);
            frames.push(frame);
            if is_end {
                return frames;
            }
        }
    }
}

#[test]
fn the_socket_of_a_model_holds_a_conversation_that_outlives_its_daemon() {
    let mut tree = Tree::start();
    let mut line = Line::to(&tree, "model/debug/echo.sock");
    line.send(&json!({"op": "ping"}));
    assert_eq!(line.next(), json!({"type": "pong"}));
    let send = |id: &str, text: &str| json!({"op": "send", "id": id, "session": "talk", "cwd": "/work", "input": text});
    let first = line.run(&send("m1", "one"));
    assert_eq!(first[0]["model"], "debug/echo");
    line.run(&send("m2", "two"));
    let again = line.run(&send("m1", "one"));
    assert_eq!(again[0]["run"], first[0]["run"], "a retry is the same run");
    let refused =
        line.run(&json!({"op": "send", "session": "talk", "input": "x", "model_override": "debug:script"}));
    assert_eq!((&refused[0]["type"], &refused[0]["code"]), (&json!("error"), &json!("EINVAL")));
    drop(line);
    let dir = format!("home/{}/model/debug/echo.d/session", own_uid());
    for file in [
        "messages.jsonl",
        "events.jsonl",
        "latest.md",
        "state",
        "cwd",
        "created_at",
        "updated_at",
        "meta.json",
    ] {
        assert!(tree.root().join(&dir).join("talk").join(file).is_file(), "{file}");
    }
    until("the index", || tree.root().join(&dir).join("index/list").exists().then_some(()));
    assert_eq!(tree.read(&format!("{dir}/index/current")), "talk\n");
    tree.stop();
    tree.start_again();
    let mut line = Line::to(&tree, "model/debug/echo.sock");
    line.send(&json!({"op": "resume", "session": "talk"}));
    let replayed = std::iter::from_fn(|| Some(line.next()));
    let texts: Vec<Value> = replayed
        .filter(|frame| frame["type"] == "message")
        .take(2)
        .map(|frame| frame["content"][0]["text"].clone())
        .collect();
    assert_eq!(texts, [json!("one"), json!("two")]);
    let history = tree.ctx(&["show", "model/debug/echo/talk"]).ok();
    assert!(history.contains("one") && history.contains("two"), "{history}");
}

#[test]
fn a_copy_of_a_model_is_another_and_goes_with_its_directory() {
    let tree = Tree::start();
    tree.sh("cd $R/model/debug && cp echo twin && cp -r echo.d twin.d").ok();
    let socket = tree.root().join("model/debug/twin.sock");
    until("its socket", || socket.exists().then_some(()));
    let frames = frames(&tree.sh("$R/model/debug/twin hi").ok());
    assert_eq!((frames[0]["model"].as_str().unwrap(), deltas(&frames).as_str()), ("debug/twin", "hi"));
    until("its own name", || tree.read("model/debug/twin").contains("name: debug/twin").then_some(()));
    std::fs::remove_dir_all(tree.root().join("model/debug/twin.d")).unwrap();
    until("its end", || (!socket.exists() && !tree.root().join("model/debug/twin").exists()).then_some(()));
}

#[test]
fn an_alias_is_a_link_and_has_nothing_of_its_own() {
    let tree = Tree::start();
    let uid = own_uid();
    tree.sh(&format!("ln -s $R/model/debug/echo $R/home/{uid}/model/quick")).ok();
    let frames = frames(&tree.sh(&format!("echo hi | $R/home/{uid}/model/quick")).ok());
    assert_eq!(frames[0]["model"], "debug/echo");
    assert!(!tree.root().join("model/main.sock").exists() && !tree.root().join("model/main.d").exists());
    assert_eq!(tree.ctx(&["model", "test", "quick"]).code, 0, "a user's own alias is known by its name");
}
