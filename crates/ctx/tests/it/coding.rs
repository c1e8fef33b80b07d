//! A coding task from its beginning to its end, with the wire format of each provider: a file is read and repaired, the test runs in the
//! cage, the change is recorded and shown. And `ctx run`, which does it on a machine where nothing was set up.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::models::{End, ModelServer, Part, Reply};
use testkit::{Outcome, Place, Pty, finish, until};

use crate::support::{json_lines, place};

const KEY: &str = "sk-nobody-may-see-this-one-77";
const BROKEN: &str = "#!/bin/sh\necho $(( $1 - $2 ))\n";
const TEST: &str = "#!/bin/sh\n[ \"$(sh sum.sh 2 3)\" = 5 ] && echo the test passes\n";

/// A place with a broken program, and a model that repairs it.
fn task() -> (Place, ModelServer) {
    let (place, server) = (place(), ModelServer::start());
    std::fs::write(place.workspace().join("sum.sh"), BROKEN).unwrap();
    std::fs::write(place.workspace().join("test.sh"), TEST).unwrap();
    server.reply(Reply::parts(vec![
        Part::Text("I look at both files.".to_owned()),
        Part::Call { name: "fs_read".to_owned(), input: json!({ "path": "sum.sh" }).to_string() },
        Part::Call { name: "fs_read".to_owned(), input: json!({ "path": "test.sh" }).to_string() },
    ]));
    let edit = json!({ "path": "sum.sh", "edits": [{ "old": "$1 - $2", "new": "$1 + $2" }] });
    server.reply(Reply::call("fs_edit", edit));
    server.reply(Reply::call("shell_exec", json!({ "command": "sh test.sh" })));
    server.reply(Reply::text("sum.sh subtracted; now it adds, and the test passes."));
    (place, server)
}

/// In a shell that has these variables and nothing else.
fn command(place: &Place, variables: &[(&str, &str)], args: &[&str]) -> Command {
    let mut command = place.command(args);
    command.env("CTX_AUTOSTART", "true").env("CTX_SERVE_LISTEN", "127.0.0.1:0").stdin(Stdio::null());
    command.envs(variables.iter().copied());
    command
}

struct Stops<'a>(&'a Place);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.ctx(&["stop"]);
    }
}

/// That the task was done, in the files, on the screen, in the log, and in what the model was sent.
fn is_done(place: &Place, server: &ModelServer, done: &Outcome, what: &str) {
    assert_eq!(done.code, 0, "{what}: {}{}", done.stdout, done.stderr);
    let repaired = std::fs::read_to_string(place.workspace().join("sum.sh")).unwrap();
    assert_eq!(repaired, BROKEN.replace("$1 - $2", "$1 + $2"), "{what}");
    let shown = format!("{}{}", done.stdout, done.stderr);
    for words in ["now it adds", "-echo $(( $1 - $2 ))", "+echo $(( $1 + $2 ))", "sh test.sh"] {
        assert!(shown.contains(words), "{what}: {words}: {shown}");
    }
    let listed = json_lines(&place.ctx(&["ls", "-A", "--json"]).ok());
    let session = listed[0]["session"].as_str().unwrap();
    let records = json_lines(&place.ctx(&["log", session, "--json"]).ok());
    let results: Vec<&Value> = records.iter().filter(|record| record["type"] == "tool_finished").collect();
    assert_eq!(results.len(), 4, "{what}");
    assert!(results[2]["diff"].as_str().unwrap().contains("+echo $(( $1 + $2 ))"), "{what}: {}", results[2]);
    assert!(results[3]["output"].as_str().unwrap().contains("the test passes"), "{what}: {}", results[3]);
    assert_eq!(results[3]["summary"]["exit_code"], 0, "{what}");
    let cage = records.iter().find(|record| record["type"] == "context").unwrap()["cage"].as_str().unwrap();
    assert!(cage.contains("net=none"), "{what}: {cage}");
    // The server refuses what its provider would refuse, such as a call without its result.
    let last = server.bodies().pop().unwrap().to_string();
    assert!(last.contains("the test passes"), "{what}: {last}");
    assert!(last.contains("The project is the directory /work."), "{what}: the prompt of coder");
    assert!(!shown.contains(KEY), "{what}");
}

#[test]
fn with_a_key_and_an_address_alone_a_task_is_done_on_a_fresh_machine() {
    let (place, server) = task();
    let _stops = Stops(&place);
    let base = format!("{}/v1", server.url());
    let variables = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", base.as_str())];
    let done = finish(&mut command(&place, &variables, &["run", "--yes", "repair sum.sh"]));
    is_done(&place, &server, &done, "openai");
    assert!(server.asked().iter().any(|asked| asked.path == "/v1/responses"), "OpenAI's own format");
}

#[test]
fn the_task_is_done_with_the_other_formats_too() {
    for (kind, path) in [
        ("openai-chat", "/v1/chat/completions"),
        ("anthropic", "/v1/messages"),
        ("gemini", "streamGenerateContent"),
    ] {
        let (place, server) = task();
        let _stops = Stops(&place);
        let base = if kind == "openai-chat" { format!("{}/v1", server.url()) } else { server.url() };
        let variables = [("MY_KEY", KEY)];
        let add =
            ["model", "add", "own", "--kind", kind, "--base-url", &base, "--key-env", "MY_KEY", "--no-test"];
        finish(&mut command(&place, &variables, &add)).ok();
        let run = ["run", "--yes", "--model", "own:test-model", "repair sum.sh"];
        is_done(&place, &server, &finish(&mut command(&place, &variables, &run)), kind);
        assert!(server.asked().iter().any(|asked| asked.path.contains(path)), "{kind}: {path}");
    }
}

#[test]
fn run_takes_its_task_from_a_pipe_too_and_goes_on_without_its_terminal() {
    let (place, server) = (place(), ModelServer::start());
    let _stops = Stops(&place);
    let base = format!("{}/v1", server.url());
    let variables = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", base.as_str())];
    let ctx = |args: &[&str]| finish(&mut command(&place, &variables, args));

    // What is piped in is part of the task; frames are JSON, and end with the end of the run.
    server.reply(Reply::text("A change of one line."));
    let mut piped = command(&place, &variables, &["run", "--json", "--session", "s", "sum this up"]);
    let mut child =
        piped.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"+one line\n").unwrap();
    let done = child.wait_with_output().unwrap();
    let frames = json_lines(&String::from_utf8(done.stdout).unwrap());
    assert!(done.status.success() && frames.iter().any(|frame| frame["type"] == "delta"), "{frames:?}");
    let asked = server.bodies().pop().unwrap().to_string();
    assert!(asked.contains("sum this up\\n\\n+one line"), "{asked}");

    // The same session goes on, and only what is allowed is done without a question.
    server.reply(Reply::call("fs_write", json!({ "path": "a", "content": "x" })));
    server.reply(Reply::call("fs_write", json!({ "path": "b", "content": "x" })));
    server.reply(Reply::text("One of them."));
    ctx(&["run", "--session", "s", "--allow", "fs.write *a", "write both"]).ok();
    assert!(place.workspace().join("a").exists() && !place.workspace().join("b").exists());
    let bodies = server.bodies();
    assert!(bodies.last().unwrap().to_string().contains("A change of one line."), "the same conversation");

    // Detached, it says how to look; a wrong model is bad input.
    server.reply(Reply::text("Later."));
    let detached = ctx(&["run", "--detach", "do it later"]);
    assert!(detached.code == 0 && detached.stderr.contains("ctx attach "), "{}", detached.stderr);
    ctx(&["run", ""]).fails(2);
    ctx(&["run", "--model", "no such model", "x"]).fails(2);

    // A terminal that closes ends nothing.
    server.reply(
        Reply::text("The first of many words that come slowly, one after the other.")
            .ending(End::Slow(std::time::Duration::from_millis(50))),
    );
    let mut terminal = Pty::ctx_with(&place, &["run", "--session", "slow", "take your time"], &variables);
    until("the beginning of an answer", || (server.open() > 0).then_some(()));
    terminal.signal(Signal::HUP);
    terminal.wait();
    let ended = |line: &Value| {
        line["session"].as_str().is_some_and(|name| name.ends_with("/slow")) && line["state"] == "idle"
    };
    until("the end of the run", || {
        json_lines(&place.ctx(&["ls", "-A", "--json"]).ok()).iter().any(ended).then_some(())
    });
    let listed = json_lines(&place.ctx(&["ls", "-A", "--json"]).ok());
    let name = listed.iter().find(|line| ended(line)).unwrap()["session"].as_str().unwrap().to_owned();
    assert!(place.ctx(&["show", &name]).ok().contains("one after the other."));
}

#[test]
fn a_conversation_is_summed_up_by_the_model_itself_in_every_format() {
    for (kind, is_v1) in [("openai", true), ("openai-chat", true), ("anthropic", false), ("gemini", false)] {
        let (place, server) = (place(), ModelServer::start());
        let _stops = Stops(&place);
        let base = if is_v1 { format!("{}/v1", server.url()) } else { server.url() };
        let variables = [("MY_KEY", KEY)];
        let add =
            ["model", "add", "own", "--kind", kind, "--base-url", &base, "--key-env", "MY_KEY", "--no-test"];
        finish(&mut command(&place, &variables, &add)).ok();
        let say = |text: &str| {
            let run = ["run", "--model", "own:test-model", "--session", "s", text];
            finish(&mut command(&place, &variables, &run)).ok()
        };
        server.reply(Reply::call("fs_list", json!({ "path": "." })));
        server.reply(Reply::text("The first answer, which is long enough to be worth a summary."));
        server.reply(Reply::text("The second answer."));
        say("the first question, with many words that nobody has to hear again later");
        say("the second question");
        server.reply(Reply::text("They looked around."));
        let listed = json_lines(&place.ctx(&["ls", "-A", "--json"]).ok());
        let session = listed[0]["session"].as_str().unwrap();
        finish(&mut command(&place, &variables, &["compact", "--strategy", "summarize", session])).ok();
        place.ctx(&["wait", session]).ok();
        let asked = server.bodies().pop().unwrap().to_string();
        assert!(asked.contains("Sum up this part") && asked.contains("many words"), "{kind}: {asked}");
        server.reply(Reply::text("The third answer."));
        say("the third question");
        let last = server.bodies().pop().unwrap().to_string();
        assert!(
            last.contains("They looked around.") && last.contains("the second question"),
            "{kind}: {last}"
        );
        assert!(!last.contains("many words"), "{kind}: {last}");
    }
}
