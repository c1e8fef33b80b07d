//! Models of providers as a user meets them: keys from the shell, `ctx model`, `ctx run`, a crash in the middle of an answer, and a
//! retry. The provider is a server of ours that speaks its wire format.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use testkit::models::{End, ModelServer, Part, Reply};
use testkit::{Outcome, Place, finish, until};

use crate::support::{build, place, wait_state};

const KEY: &str = "sk-a-key-that-nobody-may-see-42";

/// A command in a shell that has a key.
fn with_key(place: &Place, server: &ModelServer, args: &[&str]) -> Command {
    let mut command = place.command(args);
    command.env("OPENAI_API_KEY", KEY).env("OPENAI_BASE_URL", format!("{}/v1", server.url()));
    command.env("CTX_SERVE_LISTEN", "127.0.0.1:0").stdin(Stdio::null());
    command
}

fn ctx(place: &Place, server: &ModelServer, args: &[&str]) -> Outcome {
    finish(&mut with_key(place, server, args))
}

/// Every file below a directory that has the key in it.
fn with_the_key(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(with_the_key(&entry.path()));
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            if bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}

/// Stops the daemon that a command started.
struct Stops<'a>(&'a Place);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.ctx(&["stop"]);
    }
}

#[test]
fn a_key_in_the_shell_is_all_the_set_up_that_a_task_needs() {
    let (place, server) = (place(), ModelServer::start());
    let _stops = Stops(&place);
    std::fs::write(place.workspace().join("a.rs"), "fn a() {}\n").unwrap();
    server.reply(Reply::parts(vec![
        Part::Reasoning("I look first.".to_owned()),
        Part::Call { name: "fs_read".to_owned(), input: json!({ "path": "a.rs" }).to_string() },
    ]));
    server.reply(Reply::text("It has one function."));
    let done = finish(with_key(&place, &server, &["run", "what is in a.rs?"]).env("CTX_AUTOSTART", "true"));
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("It has one function."), "{}", done.stdout);
    let main = std::fs::read_link(place.root().join("model/main")).unwrap();
    assert_eq!(main, Path::new("openai/test-model"), "the server's only model");
    let bodies = server.bodies();
    assert!(bodies[1].to_string().contains("fn a() {}"), "{}", bodies[1]);
    let listed = ctx(&place, &server, &["model", "ls"]).ok();
    assert!(listed.contains("openai:test-model (main)") && listed.contains("from your shell"), "{listed}");
    server.reply(Reply::text("ok"));
    assert!(ctx(&place, &server, &["model", "test"]).ok().contains("openai:test-model answered"), "main");
    let key = format!("Bearer {KEY}");
    assert!(server.asked().iter().all(|asked| asked.header("authorization") == Some(&key)));
    assert!(!listed.contains(KEY) && !done.stderr.contains(KEY));
    assert_eq!(with_the_key(place.root()), [""; 0], "the key is written nowhere");
}

#[test]
fn of_several_models_the_user_chooses_and_every_failure_has_its_exit_code() {
    let (daemon, server) = (build().start(), ModelServer::start());
    server.offer(&["a", "b"]);
    let several = ctx(&daemon, &server, &["run", "hi"]);
    assert!(several.code == 2 && several.stderr.contains("openai:a, openai:b"), "{}", several.stderr);
    for (status, code, words) in [(401, 13, "EKEYREJECTED"), (402, 1, "EDQUOT"), (400, 2, "EINVAL")] {
        server.reply(Reply::raw(status, "application/json", "{\"error\":{\"message\":\"no\"}}"));
        let failed = ctx(&daemon, &server, &["run", "--model", "openai:a", "hi"]);
        assert_eq!(failed.code, code, "{status}: {}", failed.stderr);
        assert!(failed.stderr.contains(words), "{status}: {}", failed.stderr);
    }
    let gone = ctx(&daemon, &server, &["run", "--model", "anthropic:claude-x", "hi"]);
    assert!(gone.code == 1 && gone.stderr.contains("anthropic is not set up"), "{}", gone.stderr);
}

#[test]
fn a_wait_before_another_attempt_is_shown_and_recorded() {
    let (daemon, server) = (build().env("CTX_LIMITS_MODEL_RETRY_MS", "1").start(), ModelServer::start());
    let slow_down = Reply::raw(429, "application/json", "{\"error\":{\"message\":\"slow down\"}}");
    server.reply(slow_down.header("retry-after-ms", "20"));
    server.reply(Reply::raw(503, "text/html", "<html>busy</html>"));
    server.reply(Reply::text("At last."));
    let done = ctx(&daemon, &server, &["run", "--session", "s", "--model", "openai:test-model", "hi"]);
    assert_eq!((done.code, done.stdout.trim()), (0, "At last."), "{}", done.stderr);
    for words in ["slow down", "trying again in 0.0 s (2 of 5)", "(3 of 5)"] {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    let log = daemon.ctx(&["log", "coder/s", "--json"]).ok();
    assert!(log.contains(r#""type":"retrying""#) && log.contains(r#""wait_ms":20"#), "{log}");
    assert!(!log.contains(KEY));
}

#[test]
fn a_provider_that_asks_for_a_longer_wait_than_ours_is_not_asked_again() {
    let (daemon, server) = (build().env("CTX_LIMITS_MODEL_RETRY_MS", "1").start(), ModelServer::start());
    for (status, code) in [(429, "EAGAIN"), (503, "EHOSTDOWN")] {
        let refused = Reply::raw(status, "application/json", "{\"error\":{\"message\":\"not now\"}}");
        server.reply(refused.header("retry-after", "3600"));
        let asked = server.bodies().len();
        let failed = ctx(&daemon, &server, &["run", "--model", "openai:test-model", "hi"]);
        for words in [code, "not now", "in 3600 s, as the provider asks"] {
            assert!(failed.code != 0 && failed.stderr.contains(words), "{words}: {}", failed.stderr);
        }
        assert!(!failed.stderr.contains("trying again"), "{}", failed.stderr);
        assert_eq!(server.bodies().len(), asked + 1);
    }
}

#[test]
fn a_daemon_killed_in_the_middle_of_an_answer_keeps_the_text_and_a_retry_goes_on() {
    for (kind, base, result) in [
        ("openai", "/v1", "function_call_output"),
        ("openai-chat", "/v1", "tool_call_id"),
        ("anthropic", "", "tool_result"),
        ("gemini", "", "functionResponse"),
    ] {
        let (mut daemon, server) = (build().start(), ModelServer::start());
        let base = server.url() + base;
        let add =
            ["model", "add", "own", "--kind", kind, "--base-url", &base, "--key-env", "MY_KEY", "--no-test"];
        let with = |daemon: &Place, args: &[&str]| {
            let mut command = daemon.command(args);
            command.env("MY_KEY", KEY).stdin(Stdio::null());
            command
        };
        finish(&mut with(&daemon, &add)).ok();
        server.reply(Reply::call("fs_list", json!({ "path": "." })));
        server.reply(Reply::text("The first half of an answer that is long enough.").ending(End::Silent(5)));
        let args = ["run", "--session", "s", "--model", "own:test-model", "what is here?"];
        let mut child = with(&daemon, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let answer = daemon.session_dir("s").join("context/answer.json");
        until("half an answer", || {
            std::fs::read_to_string(&answer).ok().filter(|kept| kept.contains("The first ha"))
        });
        daemon.kill();
        child.kill().unwrap();
        child.wait().unwrap();
        daemon.start_again();
        wait_state(&daemon, "s", "idle");
        let history = daemon.ctx(&["history", "coder", "--session", "s"]).ok();
        assert!(history.contains("The first ha"), "{kind}: {history}");
        server.reply(Reply::text("There is nothing here."));
        finish(&mut with(&daemon, &["retry", "coder/s"])).ok();
        daemon.ctx(&["wait", "coder/s"]);
        let history = daemon.ctx(&["history", "coder", "--session", "s"]).ok();
        assert!(history.contains("There is nothing here."), "{kind}: {history}");
        assert_eq!(history.matches("what is here?").count(), 1, "{kind}: no new message: {history}");
        let last = server.bodies().pop().unwrap().to_string();
        assert!(last.contains(result), "{kind}: the call came with its result: {last}");
        let again = finish(&mut with(&daemon, &["retry", "coder/s"]));
        assert!(again.code == 1 && again.stderr.contains("came to its end"), "{kind}: {}", again.stderr);
    }
}

#[test]
fn the_proxies_of_the_daemons_environment_are_used() {
    let proxy = ModelServer::start();
    let far = |daemon: &Place| {
        let mut run = daemon.command(&["run", "--model", "openai:test-model", "hi"]);
        run.env("OPENAI_API_KEY", KEY)
            .env("OPENAI_BASE_URL", "http://models.invalid/v1")
            .stdin(Stdio::null());
        finish(&mut run)
    };
    let daemon = build().env("HTTP_PROXY", &proxy.url()).start();
    proxy.reply(Reply::text("By proxy."));
    assert_eq!(far(&daemon).ok().trim(), "By proxy.");
    assert_eq!(proxy.asked().last().unwrap().path, "http://models.invalid/v1/responses");
    let before = proxy.asked().len();
    let daemon = build()
        .env("HTTP_PROXY", &proxy.url())
        .env("NO_PROXY", "models.invalid")
        .env("CTX_LIMITS_MODEL_ATTEMPTS", "1")
        .start();
    let failed = far(&daemon);
    assert!(failed.code == 69 && failed.stderr.contains("models.invalid"), "{}", failed.stderr);
    assert_eq!(proxy.asked().len(), before, "it was not asked");
}

#[test]
fn a_provider_is_added_to_the_config_file_with_its_key_apart() {
    let (daemon, server) = (build().start(), ModelServer::start());
    let key = daemon.path("key");
    std::fs::write(&key, format!("{KEY}\n")).unwrap();
    Command::new("chmod").arg("600").arg(&key).status().unwrap();
    let base = format!("{}/v1", server.url());
    let (key, add) = (key.to_str().unwrap(), ["model", "add", "own", "--kind", "openai-chat"]);
    let words = [&add[..], &["--base-url", &base, "--key-file", key, "--default", "test-model"]].concat();
    server.reply(Reply::text("ok"));
    let added = daemon.ctx(&words);
    assert!(added.code == 0 && added.stdout.contains("own:test-model answered"), "{}", added.stderr);
    assert_eq!(daemon.ctx(&words).code, 1, "once");
    assert_eq!(server.asked().last().unwrap().path, "/v1/chat/completions");
    let listed = daemon.ctx(&["model", "ls", "--json"]).ok();
    assert!(listed.contains("own:test-model") && !listed.contains(KEY), "{listed}");
    daemon.ctx(&["model", "add", "nope"]).fails(2);
    // What is set up can be taken away again, and what cannot work is not written.
    daemon.ctx(&["model", "rm", "own"]).ok();
    daemon.ctx(&["model", "rm", "own"]).fails(1);
    server.reply(Reply::text("ok"));
    daemon.ctx(&words).ok();
    let wrong = [&["model", "add", "far", "--kind", "openai"], &["--base-url", "ftp://far"][..]].concat();
    assert!(daemon.ctx(&wrong).fails(2).contains("is no address"));
    daemon.ctx(&["model", "add", "debug", "--kind", "openai"]).fails(2);
}

#[test]
fn a_provider_that_is_down_or_has_no_address_is_said_and_the_run_can_be_tried_again() {
    let place = place();
    let _stops = Stops(&place);
    let ctx = |address: &str, args: &[&str]| {
        let mut command = place.command(args);
        command.env("OPENAI_API_KEY", KEY).env("OPENAI_BASE_URL", address).stdin(Stdio::null());
        command.env("CTX_SERVE_LISTEN", "127.0.0.1:0").env("CTX_AUTOSTART", "true");
        finish(command.env("CTX_LIMITS_MODEL_RETRY_MS", "1"))
    };
    let nobody = "http://127.0.0.1:9/v1";
    for args in [&["run", "hi"][..], &["model", "test"]] {
        let told = ctx(nobody, args).fails(69);
        assert!(told.contains("openai cannot answer"), "{told}");
    }
    let told = ctx(nobody, &["run", "--model", "openai:m1", "hi"]).fails(69);
    assert!(told.contains("openai:m1 cannot answer") && told.contains("`ctx retry "), "{told}");
    let again = ctx(nobody, &["retry"]);
    assert!(again.code == 0 && again.stderr.contains("has begun"), "{}", again.stderr);
    let told = ctx("127.0.0.1:9/v1", &["run", "--model", "openai:m1", "hi"]).fails(2);
    assert!(told.contains("is no address") && !told.contains("attempt"), "{told}");
    let told = place.ctx(&["run", "--model", "gemini:x", "hi"]).fails(1);
    assert!(told.contains("set GEMINI_API_KEY"), "{told}");
}

#[test]
fn an_approval_of_a_task_is_answered_where_it_was_typed() {
    let daemon = build().start();
    let call =
        |file: &str| json!({ "tool": { "name": "fs.write", "input": { "path": file, "content": "x" } } });
    let script = json!({ "script": [call("/work/a"), call("/work/b"), { "text": "end" }] }).to_string();
    let mut pty = testkit::Pty::ctx(&daemon, &["run", "--model", "debug:script", &script]);
    pty.wait_for("approval needed: fs.write /work/a? y yes, n no");
    pty.type_keys("perhaps\r");
    pty.wait_for("answer with y, n, n REASON or a");
    pty.type_keys("y\r");
    pty.wait_for("approval needed: fs.write /work/b?");
    pty.type_keys("n not that\r");
    pty.wait_for("end");
    assert_eq!(pty.wait(), 0);
    assert!(daemon.workspace().join("a").exists() && !daemon.workspace().join("b").exists());
}

#[test]
fn the_commands_of_the_guide_do_what_it_says() {
    let (daemon, server) = (build().start(), ModelServer::start());
    let page = include_str!("../../../../docs/guides/models.md");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let script =
        format!("set -eu\nctx() {{ '{}' \"$@\"; }}\n{}", crate::support::CTX, blocks.collect::<String>());
    for text in ["Not much is here.", "ok", "ok", "Hello."] {
        server.reply(Reply::text(text));
    }
    let command = with_key(&daemon, &server, &[]);
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env_clear().stdin(Stdio::null()).current_dir(daemon.workspace());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = finish(&mut shell);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    for words in ["Not much is here.", "from your shell", "local:test-model answered", "Hello."] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
}

#[test]
fn main_leads_to_another_provider_when_its_own_is_gone_or_the_user_says_so() {
    let (mut daemon, server) = (build().start(), ModelServer::start());
    let base = format!("{}/v1", server.url());
    let add = |name: &str| {
        let words =
            ["model", "add", name, "--kind", "openai-chat", "--base-url", &base, "--default", "test-model"];
        daemon.ctx(&[&words[..], &["--key-env", "NO_KEY", "--no-test"]].concat()).ok()
    };
    let config = add("loc");
    let config = config.split_whitespace().find(|word| word.ends_with("config.toml")).map(str::to_owned);
    let main = |daemon: &Place| std::fs::read_link(daemon.root().join("model/main")).unwrap();
    daemon.ctx(&["model", "ls"]).ok();
    until("main", || (main(&daemon) == Path::new("loc/test-model")).then_some(()));
    let file =
        config.map(std::path::PathBuf::from).unwrap_or_else(|| daemon.home().join(".config/ctx/config.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("[models.loc]", "[models.local]")).unwrap();
    daemon.stop();
    daemon.start_again();
    daemon.ctx(&["model", "ls"]).ok();
    until("main", || (main(&daemon) == Path::new("local/test-model")).then_some(()));
    daemon.ctx(&["model", "use", "debug:script"]).ok();
    assert_eq!(main(&daemon), Path::new("debug/script"));
    let refused = daemon.ctx(&["model", "use", "debug:nothing"]);
    assert!(refused.code != 0 && refused.stderr.contains("ctx model ls"), "{}", refused.stderr);
    assert_eq!(main(&daemon), Path::new("debug/script"));
}
