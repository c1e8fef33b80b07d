//! Shells over HTTP and MCP's streamable HTTP: the same shells at both, each its owner's alone, none left behind.

use std::path::Path;

use serde_json::{Value, json};
use testkit::until;

use crate::support::{Http, builder};

/// `nobody`: a user that every Debian machine has.
pub const NOBODY: &str = "65534";

impl Http {
    pub fn shell(&self, body: &str) -> Value {
        self.call("POST", "/shells", Some(body)).json(201)
    }

    fn exec(&self, shell: &str, command: &str) -> Value {
        let body = json!({ "command": command }).to_string();
        self.call("POST", &format!("/shells/{shell}/exec"), Some(&body)).json(200)
    }

    /// One MCP message in a POST of its own; the answer.
    fn mcp(&self, token: &str, session: Option<&str>, message: &Value) -> crate::support::Response {
        let (auth, body) = (format!("Authorization: Bearer {token}"), message.to_string());
        let mut args = vec![
            "-X",
            "POST",
            "-H",
            &auth,
            "-H",
            "Content-Type: application/json",
            "-H",
            "Accept: application/json, text/event-stream",
            "--data-binary",
            &body,
        ];
        let header = session.map(|session| format!("Mcp-Session-Id: {session}"));
        if let Some(header) = &header {
            args.extend(["-H", header.as_str()]);
        }
        self.curl("/mcp", &args)
    }

    /// Begins an MCP session; its id.
    fn mcp_session(&self, token: &str) -> String {
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
        let answer = self.mcp(token, None, &hello);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let id =
            answer.headers.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.mcp(token, Some(id.trim()), &ready).status, 202);
        id.trim().to_owned()
    }
}

pub fn id(shell: &Value) -> String {
    shell["id"].as_str().expect("an id").to_owned()
}

pub fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub fn pid_in(path: &Path) -> i32 {
    until("a pid", || std::fs::read_to_string(path).ok()?.trim().parse().ok())
}

#[test]
fn a_shell_keeps_its_state_and_what_it_did_can_be_read() {
    let http = Http::start();
    let made = http.shell(r#"{"env":{"GREETING":"hello"}}"#);
    assert_eq!((made["session_id"].as_str(), made["transport"].as_str()), (Some("1_local"), Some("local")));
    assert_eq!(made["cwd"], http.daemon.workspace().to_str().unwrap(), "the project's directory");
    let shell = id(&made);
    let first = http.exec(&shell, "cd /; x=1; echo $GREETING; echo oops >&2; false");
    assert_eq!((&first["stdout"], &first["stderr"]), (&json!("hello\n"), &json!("oops\n")));
    assert_eq!((&first["exit_code"], &first["cwd"], &first["call"]), (&json!(1), &json!("/"), &json!(1)));
    let body = r#"{"command":"echo $x; cat","stdin":"typed","budget":{"keep":{"mode":"head","n":1}}}"#;
    let second = http.call("POST", &format!("/shells/{shell}/exec"), Some(body)).json(200);
    assert_eq!(
        (&second["stdout"], &second["truncated"]),
        (&json!("1\n[… 1 line …]\n"), &json!(true)),
        "{second}"
    );
    let listed = http.get("/shells");
    assert_eq!(
        (listed["items"].as_array().map(Vec::len), &listed["items"][0]["commands"]),
        (Some(1), &json!(2))
    );
    let records = http.call("GET", &format!("/shells/{shell}/records"), None);
    let kinds: Vec<String> = records
        .text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    let two = ["shell_exec_started", "shell_exec_finished"].repeat(2);
    assert_eq!(kinds, [&["shell_created"], two.as_slice()].concat());
    let later = http.call("GET", &format!("/shells/{shell}/records?from=3"), None).text;
    assert_eq!(later.lines().count(), 2);
    http.call("DELETE", &format!("/shells/{shell}"), None).json(204);
    assert_eq!(http.get("/shells")["items"], json!([]));
    for (method, path) in [("DELETE", format!("/shells/{shell}")), ("POST", format!("/shells/{shell}/exec"))]
    {
        assert_eq!(http.call(method, &path, Some(r#"{"command":"true"}"#)).code(404), "ENOENT");
    }
    let after = http.call("GET", &format!("/shells/{shell}/records"), None).text;
    assert!(after.contains("shell_destroyed"), "also of one that has ended: {after}");
}

#[test]
fn what_a_shell_cannot_take_is_refused_and_the_operators_limits_hold() {
    let policy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(policy.path(), "deny shred\n").unwrap();
    let http = Http::of(
        builder().env("CTX_SHELLS_MAX", "1").env("CTX_SHELLS_POLICY_FILE", policy.path().to_str().unwrap()),
    );
    for name in ["LD_PRELOAD", "BASH_ENV"] {
        let refused = http.call("POST", "/shells", Some(&json!({ "env": { name: "/tmp/x" } }).to_string()));
        assert_eq!(refused.code(403), "EACCES");
        assert!(refused.text.contains(name) && refused.text.contains("leave it out"), "{}", refused.text);
    }
    let shell = id(&http.shell(r#"{"env":{"PAGER":"cat"}}"#));
    assert_eq!(http.call("POST", "/shells", None).code(409), "EBUSY");
    let exec = format!("/shells/{shell}/exec");
    for (body, status, code) in [
        (r#"{"command":"shred x"}"#.to_owned(), 403, "EACCES"),
        (r#"{"command":"a\u0000b"}"#.to_owned(), 400, "EINVAL"),
        (r#"{"command":"true","timeout_secs":1e300}"#.to_owned(), 400, "EINVAL"),
        (r#"{"command":"true","shells_max":9}"#.to_owned(), 400, "EINVAL"),
        ("{}".to_owned(), 400, "EINVAL"),
        (json!({ "command": "#".repeat(2 << 20) }).to_string(), 413, "EMSGSIZE"),
    ] {
        let file = http.daemon.path("body");
        std::fs::write(&file, &body).unwrap();
        let (bearer, data) =
            (format!("Authorization: Bearer {}", http.token), format!("@{}", file.display()));
        let answer = http.curl(&exec, &["-X", "POST", "-H", &bearer, "--data-binary", &data]);
        assert_eq!(answer.code(status), code, "{}", body.chars().take(60).collect::<String>());
    }
    for path in ["/shells/x/exec", "/shells/1_local/exec", "/shells/..%2f/exec"] {
        assert_eq!(http.call("POST", path, Some(r#"{"command":"true"}"#)).code(404), "ENOENT", "{path}");
    }
    assert_eq!(http.exec(&shell, "echo fine")["stdout"], "fine\n");
}

#[test]
fn who_hangs_up_stops_the_command() {
    let http = Http::start();
    let shell = id(&http.shell("{}"));
    let marker = http.daemon.workspace().join("pid");
    let body = json!({ "command": "sh -c 'echo $$ >pid; exec sleep 300'" }).to_string();
    let url = http.url(&format!("/shells/{shell}/exec"));
    let auth = format!("Authorization: Bearer {}", http.token);
    let mut client = std::process::Command::new("curl")
        .args(["-sS", "-H", &auth, "--data-binary", &body, &url])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = pid_in(&marker);
    client.kill().unwrap();
    client.wait().unwrap();
    until("the command's end", || (!alive(pid)).then_some(()));
    assert_eq!(http.exec(&shell, "echo free")["stdout"], "free\n");
}

#[test]
fn the_official_sdk_for_python_lives_a_whole_life_over_http() {
    let http = Http::start();
    let said = http.python("mcp_shells.py", &[&http.url("/mcp")]).ok();
    assert!(said.contains("initialize: protocol ") && said.contains("discover: protocol "), "{said}");
}

#[test]
fn mcp_and_http_have_the_same_shells() {
    let http = Http::start();
    let session = http.mcp_session(&http.token);
    let call = |tool: &str, arguments: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments } });
        http.mcp(&http.token, Some(&session), &message).text
    };
    assert!(call("session_create", json!({})).contains("1_local"));
    let shell = id(&http.get("/shells")["items"][0]);
    http.exec(&shell, "x=shared");
    assert!(
        call("session_exec", json!({ "session_id": "1_local", "command": "echo $x" })).contains("shared")
    );
    let big = call("session_exec", json!({ "session_id": "1_local", "command": "seq 20000" }));
    assert!(big.len() > 60_000, "a long answer is whole: {}", big.len());
}

#[test]
fn an_mcp_session_outlives_a_long_call_and_a_quiet_one_ends_when_a_shell_would() {
    let http = Http::of(builder().env("CTX_SHELLS_IDLE_SECS", "1"));
    let session = http.mcp_session(&http.token);
    let call = |tool: &str, arguments: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments } });
        http.mcp(&http.token, Some(&session), &message)
    };
    assert!(call("session_create", json!({})).text.contains("1_local"));
    // Longer than anything may be idle.
    let done = call("session_exec", json!({ "session_id": "1_local", "command": "sleep 3; echo finished" }));
    assert_eq!(done.status, 200, "{}", done.text);
    assert!(done.text.contains("finished"), "the answer comes: {}", done.text);
    assert!(call("session_list", json!({})).text.contains("1_local"), "and the session goes on");
    // Every question is a use, so each comes after a silence that is long enough.
    let gone = until("a quiet session's end", || {
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        let answer = call("session_list", json!({}));
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(gone.code(404), "ENOENT", "never a 500");
    assert!(gone.text.contains("initialize"), "and what to do: {}", gone.text);
}

#[test]
fn mcp_has_the_same_gate_as_everything_else() {
    let http = Http::start();
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(http.mcp("ctx_wrong", None, &message).code(401), "EKEYREJECTED");
    let auth = format!("Authorization: Bearer {}", http.token);
    for header in ["Origin: http://evil.example", "Host: evil.example"] {
        let refused = http.curl("/mcp", &["-X", "POST", "-H", &auth, "-H", header, "--data-binary", "{}"]);
        assert_eq!(refused.code(403), "EACCES", "{header}");
    }
    for nonsense in ["{", "[]", "{\"jsonrpc\":\"2.0\"}", "\u{1}"] {
        let answer = http.curl(
            "/mcp",
            &[
                "-X",
                "POST",
                "-H",
                &auth,
                "-H",
                "Content-Type: application/json",
                "-H",
                "Accept: application/json, text/event-stream",
                "--data-binary",
                nonsense,
            ],
        );
        assert_eq!(answer.code(400), "EINVAL", "{nonsense}");
    }
    let plain =
        http.curl("/mcp", &["-X", "POST", "-H", &auth, "-H", "Accept: text/plain", "--data-binary", "{}"]);
    assert_eq!((plain.code(406).as_str(), plain.status), ("EINVAL", 406));
    // A session's id is worth nothing with another user's token.
    let session = http.mcp_session(&http.token);
    let theirs = http.daemon.ctx(&["token", "new", "--uid", NOBODY]).ok().trim().to_owned();
    assert_eq!(http.mcp(&theirs, Some(&session), &message).status, 404);
    let ended =
        http.curl("/mcp", &["-X", "DELETE", "-H", &auth, "-H", &format!("Mcp-Session-Id: {session}")]);
    assert!(ended.status < 300, "{}", ended.text);
}

#[test]
fn a_stream_ends_when_its_token_is_revoked() {
    let http = Http::start();
    let session = http.mcp_session(&http.token);
    let other = http.daemon.ctx(&["token", "new"]).ok().trim().to_owned();
    let listed = http.daemon.ctx(&["token", "list"]).ok();
    let id = listed.lines().last().and_then(|line| line.split_whitespace().next()).unwrap().to_owned();
    let mut stream = std::process::Command::new("curl")
        .args([
            "-isS",
            "-N",
            "-H",
            &format!("Authorization: Bearer {other}"),
            "-H",
            "Accept: text/event-stream",
        ])
        .args(["-H", &format!("Mcp-Session-Id: {session}"), &http.url("/mcp")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // It is open once its status line has come.
    let mut first = [0u8; 1];
    std::io::Read::read_exact(stream.stdout.as_mut().unwrap(), &mut first).unwrap();
    http.daemon.ctx(&["token", "revoke", &id]).ok();
    until("the stream's end", || stream.try_wait().unwrap());
}

#[test]
fn another_users_shell_runs_as_them_and_nobody_elses_is_theirs() {
    let http = Http::of(builder().env("CTX_SECRET_OF_ROOT", "hidden"));
    let mine = id(&http.shell("{}"));
    let theirs = http.daemon.ctx(&["token", "new", "--uid", NOBODY]).ok().trim().to_owned();
    let as_them = |method: &str, path: &str, body: Option<&str>| http.call_as(&theirs, method, path, body);
    let exec = |shell: &str, command: &str| {
        let body = json!({ "command": command, "stdin": "typed" }).to_string();
        as_them("POST", &format!("/shells/{shell}/exec"), Some(&body)).json(200)
    };
    assert_eq!(as_them("GET", "/shells", None).json(200)["items"], json!([]));
    for (method, path) in [
        ("DELETE", format!("/shells/{mine}")),
        ("POST", format!("/shells/{mine}/exec")),
        ("GET", format!("/shells/{mine}/records")),
    ] {
        assert_eq!(
            as_them(method, &path, Some(r#"{"command":"id"}"#)).code(404),
            "ENOENT",
            "{method} {path}"
        );
    }
    let shell = id(&as_them("POST", "/shells", None).json(201));
    let who =
        exec(&shell, "id -u; id -G; cat; echo; env | grep -c SECRET; cat /etc/shadow; echo > /dev/stderr");
    let lines: Vec<&str> = who["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(lines, [NOBODY, NOBODY, "typed", "0"], "{who}");
    assert!(who["stderr"].as_str().unwrap().contains("denied"), "{who}");
    // Also after the interpreter was replaced, and with a command too long to be typed.
    assert_eq!(exec(&shell, "exit 3")["shell_restarted"], true);
    assert_eq!(exec(&shell, &format!("id -u # {}", "x".repeat(100_000)))["stdout"], format!("{NOBODY}\n"));
    let cannot = as_them("POST", "/shells", Some(r#"{"cwd":"/root"}"#));
    assert_eq!(cannot.status, 500, "{}", cannot.text);
    // The owner sees it and may end it, but does not work in it.
    let seen = http.get("/shells")["items"].as_array().map(Vec::len);
    assert_eq!(seen, Some(2));
    assert_eq!(
        http.call("POST", &format!("/shells/{shell}/exec"), Some(r#"{"command":"id"}"#)).code(404),
        "ENOENT"
    );
    assert!(as_them("GET", &format!("/shells/{shell}/records"), None).text.contains("shell_exec_finished"));
    http.call("DELETE", &format!("/shells/{shell}"), None).json(204);
    let stranger = http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    let refused = http.call_as(&stranger, "POST", "/shells", None);
    assert_eq!(refused.code(403), "EACCES");
    assert!(refused.text.contains("not a user of this machine"), "{}", refused.text);
}

/// A shell with a job in the background and a command that runs; their pids.
fn busy(http: &Http) -> (Vec<i32>, std::process::Child) {
    let shell = id(&http.shell("{}"));
    http.exec(
        &shell,
        "rm -f shell job running; echo $$ >shell; (setsid sleep 300 >/dev/null 2>&1 & echo $! >job)",
    );
    let body = json!({ "command": "sh -c 'echo $$ >running; exec sleep 300'" }).to_string();
    let auth = format!("Authorization: Bearer {}", http.token);
    let client = std::process::Command::new("curl")
        .args(["-sS", "-H", &auth, "--data-binary", &body, &http.url(&format!("/shells/{shell}/exec"))])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let workspace = http.daemon.workspace();
    let pids = ["shell", "job", "running"].map(|name| pid_in(&workspace.join(name))).to_vec();
    assert!(pids.iter().all(|pid| alive(*pid)));
    (pids, client)
}

#[test]
fn no_process_of_a_shell_outlives_the_daemon() {
    let mut http = Http::start();
    let (pids, mut client) = busy(&http);
    assert_eq!(http.daemon.stop(), 0);
    client.wait().unwrap();
    assert!(pids.iter().all(|pid| !alive(*pid)), "gone when the daemon is");
    http.daemon.start_again();
    let (pids, mut client) = busy(&http);
    http.daemon.kill();
    client.wait().unwrap();
    until("the end of all processes", || pids.iter().all(|pid| !alive(*pid)).then_some(()));
}

#[test]
fn the_tools_of_agents_are_listed_with_their_schemas() {
    let http = Http::start();
    let tools = http.get("/tools")["items"].clone();
    let read = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "fs.read").expect("fs.read");
    assert_eq!(read["schema"]["type"], "object", "{read}");
}

/// Gemini CLI reads an event without data as a message, and gives up on the server.
#[test]
fn the_empty_event_goes_only_to_hosts_that_know_it_and_a_session_is_ended_for_good() {
    let http = Http::start();
    let token = http.token.clone();
    let hello = |version: &str| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } })
    };
    let is_empty = |line: &str| line.trim_end() == "data:";
    for (version, has_empty) in [("2024-11-05", false), ("2025-06-18", false), ("2025-11-25", true)] {
        let answer = http.mcp(&token, None, &hello(version));
        assert_eq!(answer.text.lines().any(is_empty), has_empty, "{version}: {}", answer.text);
        assert!(answer.text.contains("\"serverInfo\""), "{}", answer.text);
    }
    let session = http.mcp_session(&token);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let answer = http.mcp(&token, Some(&session), &list);
    assert!(answer.text.contains("session_exec") && !answer.text.lines().any(is_empty), "{}", answer.text);
    let (bearer, named) = (format!("Authorization: Bearer {token}"), format!("Mcp-Session-Id: {session}"));
    let prompts = json!({ "jsonrpc": "2.0", "id": 3, "method": "prompts/list" });
    let refused = http.mcp(&token, Some(&session), &prompts);
    assert!(refused.text.contains("-32601"), "{}", refused.text);
    let ended = http.curl("/mcp", &["-X", "DELETE", "-H", &bearer, "-H", &named]);
    assert_eq!(ended.status, 204, "{}", ended.text);
    assert_eq!(http.mcp(&token, Some(&session), &list).status, 404);
    // The newest protocol has no `initialize`.
    let body = hello("2026-07-28").to_string();
    let newest = [
        "-X",
        "POST",
        "-H",
        &bearer,
        "-H",
        "Content-Type: application/json",
        "-H",
        "Accept: application/json, text/event-stream",
        "-H",
        "MCP-Protocol-Version: 2026-07-28",
        "-H",
        "Mcp-Method: initialize",
        "--data-binary",
        &body,
    ];
    let answer = http.curl("/mcp", &newest);
    assert_eq!(answer.status, 404, "{}", answer.text);
    assert_eq!(
        serde_json::from_str::<Value>(&answer.text).unwrap()["error"]["code"],
        -32601,
        "{}",
        answer.text
    );
}
