//! MCP servers as sources of tools, as a user meets them: programs in the cage, programs and addresses made with the SDK that others
//! wrote, and servers that do not start, fall over or are cancelled.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::{DaemonBuilder, Outcome, TestDaemon, finish, until};

use crate::support::{build, json_lines, wait_state_of};

const TOKEN: &str = "letter-box-42";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The Python that has the SDK.
fn sdk() -> String {
    let python = repository().join("target/test-venv/bin/python");
    assert!(python.exists(), "{} is missing: run `scripts/setup test`", python.display());
    python.display().to_string()
}

/// Words that no other process of this machine has.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("mcp-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The command lines on this machine that have these words.
fn command_lines(words: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let read = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let read = read.map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
    read.filter(|line| line.contains(words)).collect()
}

/// A daemon and a project whose file says this besides.
struct Project {
    daemon: TestDaemon,
    dir: PathBuf,
}

impl Project {
    fn new(builder: DaemonBuilder, file: &str) -> Project {
        let dir = builder.place().path("proj");
        std::fs::create_dir_all(dir.join(".ctx")).unwrap();
        for name in ["mcp_plain.py", "mcp_tools.py"] {
            std::fs::copy(repository().join("tests/python").join(name), dir.join(name)).unwrap();
        }
        // A place that nobody in particular can write to, as the cage of root's project has it.
        std::fs::write(dir.join("marks"), "").unwrap();
        Command::new("chmod").arg("666").arg(dir.join("marks")).status().unwrap();
        let project = Project { daemon: builder.start(), dir };
        project.write(file);
        project
    }

    fn write(&self, file: &str) {
        let text = format!("version: 1\nproject: proj\nprimary: {{model: \"debug:script\"}}\n{file}\n");
        std::fs::write(self.dir.join(".ctx/project.yaml"), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.daemon.command(args);
        command.current_dir(&self.dir).env("MY_TOKEN", TOKEN).stdin(Stdio::null());
        command
    }

    fn ctx(&self, args: &[&str]) -> Outcome {
        finish(&mut self.command(args))
    }

    fn trusted(self) -> Project {
        self.ctx(&["project", "add", "."]);
        self.ctx(&["project", "trust", "--yes"]).ok();
        self
    }

    /// Makes calls, one after the other, without questions; what each gave.
    fn call(&self, session: &str, calls: &[(&str, Value)]) -> Vec<Value> {
        let before = self.results(session).len();
        let steps: Vec<Value> =
            calls.iter().map(|(name, input)| json!({ "tool": { "name": name, "input": input } })).collect();
        let text = json!({ "script": steps }).to_string();
        self.ctx(&["send", "--yes", "--session", session, &text]).ok();
        self.results(session).split_off(before)
    }

    fn does(&self, session: &str, what: &str) -> String {
        let given = self.call(session, &[("plain.do", json!({ "what": what }))]);
        given[0]["output"].as_str().unwrap().to_owned()
    }

    fn log(&self, session: &str) -> Vec<Value> {
        let log = self.daemon.ctx(&["log", &format!("proj/{session}"), "--json"]);
        if log.stdout.is_empty() { Vec::new() } else { json_lines(&log.ok()) }
    }

    fn results(&self, session: &str) -> Vec<Value> {
        self.log(session).into_iter().filter(|record| record["type"] == "tool_finished").collect()
    }

    fn tools(&self) -> Vec<Value> {
        let socket = self.daemon.root().join(".state/api.sock");
        let mut curl = Command::new("curl");
        curl.arg("-s").arg("--unix-socket").arg(socket).arg("http://ctx/api/v1/tools");
        let said: Value = serde_json::from_str(&finish(&mut curl).ok()).unwrap();
        said["items"].as_array().unwrap().clone()
    }
}

fn plain(words: &str, more: &str) -> String {
    format!("mcp: {{plain: {{command: [/usr/bin/python3, /work/mcp_plain.py, {words}]{more}}}}}")
}

#[test]
fn a_server_in_the_cage_needs_trust_and_approval_and_keeps_its_token_to_itself() {
    let words = unique();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = port.local_addr().unwrap().port();
    let file = plain(&words, &format!(", env: {{TOKEN: {{from_env: MY_TOKEN}}, PORT: \"{number}\"}}"));
    let project = Project::new(build(), &file);
    let refused = project.ctx(&["send", "hello"]).fails(13);
    assert!(refused.contains("mcp: gives $MY_TOKEN of your shell to server plain, as TOKEN"), "{refused}");
    assert!(refused.contains("mcp: runs `/usr/bin/python3"), "{refused}");
    let project = project.trusted();

    // Nobody is there to be asked, whatever the server says of its tool.
    let call =
        json!({ "script": [{ "tool": { "name": "plain.do", "input": { "what": "hi" } } }] }).to_string();
    let denied = project.ctx(&["send", "--session", "no", &call]);
    assert!(denied.stderr.contains("plain.do on {\"what\":\"hi\"} needs an approval"), "{}", denied.stderr);
    // Who is asked sees the server, the tool and the input.
    project.ctx(&["send", "--detach", "--session", "ask", &call]).ok();
    wait_state_of(&project.daemon, "proj/ask", "running");
    let asked = until("a question", || {
        project.log("ask").into_iter().find(|record| record["type"] == "approval_requested")
    });
    assert_eq!((&asked["tool"], &asked["subject"]), (&json!("plain.do"), &json!("{\"what\":\"hi\"}")));
    let shown = project.ctx(&["approve"]).ok();
    assert!(shown.contains("plain.do") && shown.contains("{\"what\":\"hi\"}"), "{shown}");
    project.ctx(&["approve", "proj/ask"]).ok();
    until("what the call gave", || project.results("ask").pop().filter(|result| result["output"] == "hi"));

    // It lives between runs of its session, and no other session's is the same.
    assert_eq!(project.does("s", "marks"), "x");
    let own = command_lines(&words).len();
    assert_eq!(project.does("s", "marks"), "xx");
    assert_eq!(command_lines(&words).len(), own, "no second one");
    assert_eq!(project.does("s", "fail"), "EIO: fail");
    assert!(project.does("s", "net").starts_with("no connection"), "the cage has no network");
    let much = project.does("s", "much");
    assert!(much.len() < 100_000 && much.contains("output.read"), "{}", much.len());

    // What it was given is in its environment, and nowhere else.
    assert_eq!(project.does("s", "token"), "the token is [REDACTED:env:MY_TOKEN]");
    assert!(project.does("s", "names").contains("TOKEN"));
    let shell = project
        .call("s", &[("shell.exec", json!({ "command": "env; cat /proc/*/environ | tr '\\0' '\\n'" }))]);
    let shell = shell[0]["output"].as_str().unwrap();
    assert!(shell.contains("PATH=") && !shell.contains("TOKEN"), "{shell}");
    assert_eq!(command_lines(TOKEN), [""; 0]);
    let held = Command::new("grep").arg("-rl").arg(TOKEN).arg(project.daemon.root()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&held.stdout), "", "in no file");
    assert!(!project.daemon.log().contains(TOKEN));

    let tools = project.tools();
    let found = tools.iter().find(|tool| tool["name"] == "plain.do").expect("the tool of the server");
    assert_eq!((&found["server"], &found["schema"]["type"]), (&json!("plain"), &json!("object")));
    let context = project.ctx(&["show", "--context", "proj/s"]).ok();
    assert!(context.contains("mcp        plain (project)") && context.contains("tools      "), "{context}");
    assert!(context.contains("plain.do"), "{context}");

    // It ends with its session.
    for session in ["s", "ask", "no"] {
        project.ctx(&["end", "--yes", &format!("proj/{session}")]).ok();
    }
    until("its end", || command_lines(&words).is_empty().then_some(()));
}

#[test]
fn a_server_that_falls_over_or_never_starts_is_an_error_of_its_tool() {
    let words = unique();
    let file = format!(
        "mcp:\n  plain: {{command: [/usr/bin/python3, /work/mcp_plain.py, {words}], env: {{TOKEN: {{from_env: MY_TOKEN}}}}}}\n  \
         gone: {{command: [/work/no-such-program]}}\n  wants: {{command: [cat], env: {{A: {{from_env: NOBODY_HAS_THIS}}}}}}\n"
    );
    let project = Project::new(build(), &file).trusted();
    let one = |what: &str| ("plain.do", json!({ "what": what }));
    let given = project.call(
        "s",
        &[
            one("die"),
            one("here again"),
            ("gone.find", json!({})),
            ("gone.start", json!({})),
            ("wants.start", json!({})),
        ],
    );
    let said: Vec<&str> = given.iter().map(|result| result["output"].as_str().unwrap()).collect();
    assert!(said[0].starts_with("EPIPE: the MCP server plain ended"), "{}", said[0]);
    assert!(
        said[0].contains("I fell over with [REDACTED"),
        "its last words, without what it was given: {}",
        said[0]
    );
    assert_eq!(said[1], "here again");
    assert!(
        said[2].contains("the MCP server gone did not start") && said[2].contains("gone.start"),
        "{}",
        said[2]
    );
    assert!(said[3].contains("the MCP server gone did not start"), "{}", said[3]);
    assert!(said[4].contains("$NOBODY_HAS_THIS is not known"), "{}", said[4]);
    // The run itself came to its end.
    let ends = ["run_finished", "run_failed", "run_cancelled"];
    let ended = project.log("s").into_iter().rfind(|record| ends.contains(&record["type"].as_str().unwrap()));
    assert_eq!(ended.unwrap()["type"], "run_finished");
    // One that ends again and again is left alone.
    let dies: Vec<_> = (0..5).map(|_| one("die")).collect();
    let given = project.call("t", &dies);
    assert!(
        given[4]["output"].as_str().unwrap().contains("started 3 times in this run"),
        "{}",
        given[4]["output"]
    );
}

#[test]
fn a_cancel_and_the_daemons_death_end_a_servers_program() {
    let words = unique();
    let mut project = Project::new(build(), &plain(&words, "")).trusted();
    let call = json!({ "script": [{ "tool": { "name": "plain.do", "input": { "what": "sleep" } } }, { "text": "never" }] });
    let send = |project: &Project| {
        project.ctx(&["send", "--yes", "--detach", "--session", "s", &call.to_string()]).ok();
        until("the call", || {
            project.log("s").iter().rfind(|record| record["type"] == "tool_started").cloned()
        });
        until("the server", || (!command_lines(&words).is_empty()).then_some(()));
    };
    send(&project);
    project.ctx(&["pause", "proj/s"]).ok();
    project.ctx(&["cancel", "proj/s"]);
    wait_state_of(&project.daemon, "proj/s", "idle");
    until("no process of it", || command_lines(&words).is_empty().then_some(()));
    send(&project);
    project.daemon.kill();
    project.daemon.start_again();
    until("no process of it", || command_lines(&words).is_empty().then_some(()));
    wait_state_of(&project.daemon, "proj/s", "idle");
    assert_eq!(project.does("s", "hello"), "hello", "the next run has it again");
}

/// A server of the SDK behind an address, until it is dropped.
struct AtAddress(Child, u16);

impl AtAddress {
    fn start() -> AtAddress {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(sdk());
        command.arg(repository().join("tests/python/mcp_tools.py")).arg(port.to_string());
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        until("the server at its address", || TcpStream::connect(("127.0.0.1", port)).ok());
        AtAddress(child, port)
    }
}

impl Drop for AtAddress {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn servers_made_with_the_sdk_work_on_stdio_and_at_an_address() {
    let address = AtAddress::start();
    let url = format!("http://127.0.0.1:{}/mcp", address.1);
    let file = format!(
        "mcp:\n  local: {{command: [\"{}\", mcp_tools.py], env: {{TOKEN: {{from_env: MY_TOKEN}}}}}}\n  \
         web: {{url: \"{url}\", headers: {{X-Token: {{from_env: MY_TOKEN}}}}}}\n  \
         shut: {{url: \"{url}\", headers: {{X-Token: wrong}}}}\n",
        sdk()
    );
    // Without a cage, because the SDK is where no cage looks.
    let project = Project::new(build().env("CTX_CAGE_MODE", "off"), &file).trusted();
    let numbers = json!({ "a": 2, "b": 40 });
    let given = project.call(
        "s",
        &[
            ("local.add", numbers.clone()),
            ("web.add", numbers),
            ("web.fail", json!({})),
            ("web.add", json!({ "a": "two" })),
            ("local.env.names", json!({})),
            ("shut.start", json!({})),
        ],
    );
    let said: Vec<&str> = given.iter().map(|result| result["output"].as_str().unwrap()).collect();
    assert_eq!((said[0], said[1]), ("42", "42"));
    assert_eq!(said[2], "EIO: Error executing tool fail");
    assert!(said[3].contains("EIO") || said[3].contains("EINVAL"), "{}", said[3]);
    let names: Vec<&str> = said[4].split(' ').collect();
    assert!(names.contains(&"TOKEN") && names.contains(&"PATH") && !names.contains(&"CTX_ROOT"), "{names:?}");
    assert!(said[5].contains("the MCP server shut did not start") && said[5].contains("401"), "{}", said[5]);
    // Both at once, in one answer; and a name that a policy cannot write has no tool.
    let both = json!([{ "name": "local.add", "input": { "a": 1, "b": 1 } }, { "name": "web.add", "input": { "a": 1, "b": 2 } }]);
    project
        .ctx(&["send", "--yes", "--session", "s", &json!({ "script": [{ "tools": both }] }).to_string()])
        .ok();
    let last: Vec<String> =
        project.results("s").iter().rev().take(2).map(|r| r["output"].to_string()).collect();
    assert_eq!(last, ["\"3\"", "\"2\""]);
    let names: Vec<String> =
        project.tools().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    assert!(
        names.contains(&"web.add".to_owned()) && !names.iter().any(|name| name.contains("odd")),
        "{names:?}"
    );
    // The address goes away in the middle of a session.
    drop(address);
    let given = project
        .call("s", &[("web.add", json!({ "a": 1, "b": 1 })), ("local.add", json!({ "a": 1, "b": 1 }))]);
    assert!(given[0]["output"].as_str().unwrap().starts_with('E'), "{}", given[0]["output"]);
    assert_eq!(given[1]["output"], "2");
}

#[test]
fn servers_of_ones_own_are_added_listed_and_removed() {
    let project = Project::new(build(), "mcp: {web: {url: \"http://127.0.0.1:1/mcp\"}}");
    let project = project.trusted();
    let ctx = |args: &[&str]| project.ctx(args);
    let script = "/work/mcp_plain.py";
    ctx(&["mcp-server", "add", "plain", "--env", "TOKEN=MY_TOKEN", "--", "/usr/bin/python3", script]).ok();
    assert_eq!(ctx(&["mcp-server", "add", "plain", "--", "x"]).code, 1, "once");
    ctx(&["mcp-server", "add", "fs", "--", "x"]).fails(2);
    ctx(&["mcp-server", "add", "x", "--url", "ftp://x"]).fails(2);
    ctx(&["mcp-server", "add", "docs", "--url", "https://x.test/mcp", "--header-env", "Authorization=T"])
        .ok();
    let listed = ctx(&["mcp-server", "ls"]).ok();
    for words in ["plain", "TOKEN=$MY_TOKEN", "docs", "https://x.test/mcp", "project"] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    assert_eq!(json_lines(&ctx(&["mcp-server", "ls", "--json"]).ok()).len(), 3);
    ctx(&["mcp-server", "rm", "docs"]).ok();
    ctx(&["mcp-server", "rm", "docs"]).fails(1);
    assert!(ctx(&["config", "show"]).code == 0, "the file stays right");
    // It holds in every project of this user, at once.
    assert_eq!(project.does("s", "token"), "the token is [REDACTED:env:MY_TOKEN]");
    let context = ctx(&["show", "--context", "proj/s"]).ok();
    assert!(
        context.contains("mcp        plain (operator)") && context.contains("mcp        web (project)"),
        "{context}"
    );
    ctx(&["mcp-server", "rm", "plain"]).ok();
    let gone = project.call("t", &[("plain.do", json!({ "what": "hi" }))]);
    assert!(gone[0]["output"].as_str().unwrap().contains("unknown tool"), "{}", gone[0]["output"]);
    // What is wrong with an entry is said where it is.
    project.write("mcp: {a: {command: [x], url: \"http://x\"}, shell: {command: [x]}}");
    let said = ctx(&["project", "check"]);
    assert!(
        said.code != 0 && said.stdout.contains("`command` or `url`, not both"),
        "{}{}",
        said.stdout,
        said.stderr
    );
    assert!(said.stdout.contains("`shell` cannot be a server"), "{}", said.stdout);
}
