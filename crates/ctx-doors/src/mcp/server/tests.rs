//! The door from a host's side: raw JSON lines in and out.

use super::*;
use std::sync::Arc;

use ctx_host::{HostConfig, NoLog};
use rmcp::ServiceExt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, ReadHalf, WriteHalf, split};

/// A host that speaks raw JSON lines.
struct Caller {
    host: ShellHost,
    lines: Lines<BufReader<ReadHalf<tokio::io::DuplexStream>>>,
    out: WriteHalf<tokio::io::DuplexStream>,
    next: u64,
    _dir: tempfile::TempDir,
}

impl Caller {
    fn new() -> Caller {
        let dir = tempfile::tempdir().unwrap();
        let mut config = HostConfig::from_process(dir.path().join("spool"), "ctx test").without_screen();
        config.limits.shells_max = 1;
        config.cwd = dir.path().to_owned();
        let host = ShellHost::new(config, Arc::new(NoLog)).unwrap();
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let name = ServerName { name: "ctx".to_owned(), version: "1.2.3".to_owned() };
        let server = McpServer::new(host.clone(), name);
        tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
        let (read, out) = split(ours);
        Caller { host, lines: BufReader::new(read).lines(), out, next: 0, _dir: dir }
    }

    async fn say(&mut self, message: Value) {
        self.out.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        loop {
            let line = self.lines.next_line().await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    async fn hello(&mut self, version: &str) -> Value {
        let info = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info});
        let answer = self.ask("initialize", params).await["result"].clone();
        self.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        answer
    }

    async fn tool(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments})).await["result"].clone()
    }
}

#[tokio::test]
async fn the_older_protocol_is_spoken_and_the_server_has_its_own_name() {
    let mut caller = Caller::new();
    let hello = caller.hello("2025-06-18").await;
    assert_eq!(hello["protocolVersion"], "2025-06-18");
    assert_eq!(hello["serverInfo"], json!({"name": "ctx", "version": "1.2.3"}));
    let made = caller.tool("session_create", json!({})).await;
    assert_eq!(made["structuredContent"], json!({"session_id": "1_local"}));
    let ran = caller.tool("session_exec", json!({"session_id": "1_local", "command": "echo hi"})).await;
    assert_eq!(ran["structuredContent"]["stdout"], "hi\n");
    let text = ran["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("call: 1\nexit_code: 0\nduration_ms: ") && text.ends_with("\nstdout:\nhi\n"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 6, "what is as usual is left out: {text}");
    caller.host.shutdown().await;
}

#[tokio::test]
async fn a_protocol_with_batches_is_not_agreed_on() {
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        ("2029-01-01", "2025-11-25"),
    ] {
        let mut caller = Caller::new();
        assert_eq!(caller.hello(asked).await["protocolVersion"], agreed, "{asked}");
    }
}

#[tokio::test]
async fn what_a_tool_cannot_do_is_refused_and_limits_hold() {
    let mut caller = Caller::new();
    caller.hello("2025-11-25").await;
    caller.tool("session_create", json!({})).await;
    for (tool, arguments, code) in [
        ("session_create", json!({}), "EBUSY"),
        (
            "session_create",
            json!({"transport": "ssh", "host": "-oProxyCommand=x"}),
            "EINVAL: host `-oProxyCommand=x` is not a name",
        ),
        ("session_create", json!({"allow": []}), "EINVAL: the allow list is empty"),
        (
            "session_exec",
            json!({"session_id": "1_local", "command": "true", "budget": {"keep_all": 1}}),
            "EINVAL",
        ),
        ("session_exec", json!({"session_id": "1_local"}), "EINVAL"),
        ("session_exec", json!({"session_id": "1_local", "command": "x", "timeout_secs": 1e300}), "EINVAL"),
        ("session_exec", json!({"session_id": "1_local", "command": "x", "timeout_secs": -1}), "EINVAL"),
        ("session_exec", json!({"session_id": "9_local", "command": "true"}), "ENOENT"),
        ("session_output", json!({"session_id": "1_local", "call": 7}), "ENOENT"),
        ("session_output", json!({"session_id": "1_local", "call": 1, "grep": "("}), "EINVAL"),
        (
            "session_exec",
            json!({"session_id": "1_local", "command": "x".repeat((1 << 20) + 1)}),
            "EMSGSIZE: the command",
        ),
        (
            "session_output",
            json!({"session_id": "1_local", "call": 1, "line": 2, "tail": 3}),
            "EINVAL: give one of",
        ),
        (
            "session_output",
            json!({"session_id": "1_local", "call": 1, "tail": 3, "grep": "x"}),
            "EINVAL: tail and grep",
        ),
        (
            "session_output",
            json!({"session_id": "1_local", "call": 1, "context": 3}),
            "EINVAL: context needs grep",
        ),
    ] {
        let answer = caller.tool(tool, arguments.clone()).await;
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert_eq!(answer["isError"], true, "{tool} {text}");
        assert!(text.starts_with(code), "{tool}: {text}, not {code}");
    }
    let unknown = caller.ask("tools/call", json!({"name": "session_sudo", "arguments": {}})).await;
    assert!(unknown["error"]["code"].is_i64());
    caller.host.shutdown().await;
}

#[tokio::test]
async fn arguments_of_a_wrong_type_are_named_and_null_is_as_good_as_nothing() {
    let mut caller = Caller::new();
    caller.hello("2025-11-25").await;
    for (arguments, field) in [
        (json!({"timeout_secs": "5"}), "timeout_secs"),
        (json!({"env": {"A": 5}}), "env.A"),
        (json!({"deny": ["rm", 7]}), "deny[1]"),
        (json!({"output_budget": {"keep": {"mode": "tail", "n": -1}}}), "output_budget.keep.n"),
        (json!({"cwd": ""}), "cwd"),
    ] {
        let answer = caller.tool("session_create", arguments.clone()).await;
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(&format!("EINVAL: {field}: ")), "{arguments}: {text}");
    }
    let nulls = json!({"transport": null, "cwd": null, "env": null, "allow": null, "deny": null,
                       "output_budget": null, "timeout_secs": null});
    assert_eq!(caller.tool("session_create", nulls).await["structuredContent"]["session_id"], "1_local");
    let nulls = json!({"session_id": "1_local", "command": "echo hi", "stdin": null, "merge": null,
                       "timeout_secs": null, "budget": {"keep": null, "max_chars": null,
                       "grep": {"pattern": "hi", "context": null}}});
    assert_eq!(caller.tool("session_exec", nulls).await["structuredContent"]["stdout"], "hi\n");
    let mut page = json!({"session_id": "1_local", "call": 1, "stream": null, "offset": null,
                          "limit": null, "grep": null});
    assert_eq!(caller.tool("session_output", page.clone()).await["structuredContent"]["text"], "hi\n");
    for limit in [json!(0), json!(65_537), json!(1.5), json!("7")] {
        page["limit"] = limit;
        let refused = caller.tool("session_output", page.clone()).await["content"][0]["text"].to_string();
        assert!(refused.contains("EINVAL: limit"), "{refused}");
    }
    caller.host.shutdown().await;
}

#[tokio::test]
async fn a_whole_number_may_be_written_with_a_point() {
    let mut caller = Caller::new();
    caller.hello("2025-11-25").await;
    let budget = json!({"keep": {"mode": "head", "n": 3.0}, "max_chars": 1e3,
                        "grep": {"pattern": "2", "context": 1.0}});
    caller.tool("session_create", json!({"timeout_secs": 60.0, "output_budget": budget})).await;
    let ran = caller.tool("session_exec", json!({"session_id": "1_local", "command": "seq 9"})).await;
    assert_eq!(ran["structuredContent"]["stdout"], "1\n2\n3\n", "{ran}");
    let page = json!({"session_id": "1_local", "call": 1.0, "offset": 2.0, "limit": 4.0});
    let page = caller.tool("session_output", page).await;
    assert_eq!(page["structuredContent"]["text"], "2\n3\n", "{page}");
    let half = caller.tool("session_output", json!({"session_id": "1_local", "call": 1.5})).await;
    assert!(half["content"][0]["text"].as_str().unwrap().starts_with("EINVAL: call: "), "{half}");
    caller.host.shutdown().await;
}

#[tokio::test]
async fn params_that_do_not_fit_are_told_from_a_method_that_is_not_there() {
    let mut caller = Caller::new();
    caller.hello("2025-11-25").await;
    for (method, params, code) in [
        ("tools/call", json!({}), -32602),
        ("tools/call", json!({"name": 7}), -32602),
        ("tools/call", json!({"name": "session_list", "arguments": 7}), -32602),
        ("tools/call", json!({"name": "session_sudo"}), -32602),
        ("tools/sell", json!({}), -32601),
        ("prompts/list", json!({}), -32601),
        ("resources/list", json!({}), -32601),
        ("resources/templates/list", json!({}), -32601),
    ] {
        let answer = caller.ask(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    caller.host.shutdown().await;
}

/// Gemini CLI adds `wait_for_previous` to the arguments of every tool.
#[tokio::test]
async fn an_argument_that_a_host_adds_is_ignored_and_the_answer_says_so() {
    let mut caller = Caller::new();
    caller.hello("2025-06-18").await;
    for (tool, arguments) in [
        ("session_create", json!({"shells_max": 99})),
        ("session_exec", json!({"session_id": "1_local", "command": "echo hi"})),
        ("session_output", json!({"session_id": "1_local", "call": 1})),
        ("session_list", json!({})),
        ("session_interrupt", json!({"session_id": "1_local"})),
        ("session_destroy", json!({"session_id": "1_local"})),
    ] {
        let mut arguments = arguments;
        arguments["wait_for_previous"] = json!(true);
        let answer = caller.tool(tool, arguments).await;
        assert_ne!(answer["isError"], true, "{tool}: {answer}");
        let hint = answer["structuredContent"]["hint"].as_str().unwrap();
        assert!(hint.contains("ignored: `") && hint.contains("`wait_for_previous`"), "{tool}: {hint}");
        assert!(answer["content"][0]["text"].as_str().unwrap().contains("wait_for_previous"), "{tool}");
    }
    assert_eq!(caller.host.limits().shells_max, 1);
    caller.host.shutdown().await;
}

#[tokio::test]
async fn a_result_fits_its_host() {
    let mut caller = Caller::new();
    caller.hello("2025-06-18").await;
    caller.tool("session_create", json!({})).await;
    let mut run = async |command: &str, budget: Value| {
        let arguments = json!({"session_id": "1_local", "command": command, "budget": budget});
        let answer = caller.tool("session_exec", arguments).await;
        assert_ne!(answer["isError"], true, "{answer}");
        (answer["content"][0]["text"].as_str().unwrap().to_owned(), answer)
    };
    let (text, answer) = run("seq 100000; seq 100000 >&2; ".repeat(20).as_str(), Value::Null).await;
    assert!((28_000..=30_000).contains(&text.chars().count()), "{}", text.chars().count());
    assert!(text.lines().any(|line| line.starts_with("[… ") && line.ends_with(" lines …]")), "{text:.300}");
    let command = answer["structuredContent"]["command"].as_str().unwrap();
    assert!(command.len() < 300 && command.ends_with(" characters …]"), "{command}");
    let (text, _) = run("printf '%s\\n' err >&2; seq 3", Value::Null).await;
    assert!(text.ends_with("\nstdout:\n1\n2\n3\nstderr:\nerr\n"), "{text}");
    let (text, answer) = run("head -c 300000 /dev/zero", Value::Null).await;
    assert!(
        text.ends_with("\nstdout:\n[binary output: 300000 bytes; session_output has them as base64]\n"),
        "{text}"
    );
    assert_eq!(answer["structuredContent"]["truncated"], true);
    // The longest that can be asked for, in characters of four bytes, on both streams.
    let flood = "yes 😀😀😀😀😀😀😀😀😀😀😀😀 | head -c 5000000 | tee /dev/stderr";
    let (text, answer) = run(flood, json!({"max_chars": 1_000_000})).await;
    assert!(answer.to_string().len() < (1 << 20) && text.len() > 100_000, "{}", answer.to_string().len());
    assert!(text.contains("too long to send"), "{text:.500}");
    caller.host.shutdown().await;
}

#[tokio::test]
async fn output_is_read_from_a_line_by_its_tail_and_around_matches_also_while_it_is_printed() {
    let mut caller = Caller::new();
    caller.hello("2025-06-18").await;
    caller.tool("session_create", json!({})).await;
    let command = "seq 1000; until [ -e go ]; do sleep 0.02; done";
    let call = json!({"name": "session_exec", "arguments": {"session_id": "1_local", "command": command}});
    caller.say(json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": call})).await;
    let listed = loop {
        let listed = caller.tool("session_list", json!({})).await["structuredContent"]["sessions"][0].clone();
        let read = json!({"session_id": "1_local", "call": 1});
        let page = caller.tool("session_output", read).await;
        if page["structuredContent"]["total_bytes"] == 3893 && !listed["running"].is_null() {
            break listed;
        }
    };
    assert_eq!((&listed["running"]["call"], &listed["running"]["command"]), (&json!(1), &json!(command)));
    for (arguments, want) in [
        (json!({"tail": 2}), "999\n1000\n"),
        (json!({"line": 998, "limit": 8}), "998\n999\n"),
        (json!({"line": 5000}), ""),
        (json!({"grep": "^(7|20)$", "context": 1}), "6-6\n7:7\n8-8\n--\n19-19\n20:20\n21-21\n"),
        (json!({"grep": "^9", "line": 990, "limit": 8}), "990:990\n"),
    ] {
        let mut read = json!({"session_id": "1_local", "call": 1});
        read.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        let page = caller.tool("session_output", read).await;
        assert_eq!(page["structuredContent"]["text"], want, "{arguments}: {page}");
        assert!(page["content"][0]["text"].as_str().unwrap().ends_with(want), "{page}");
    }
    std::fs::write(caller._dir.path().join("go"), "").unwrap();
    let next = caller.tool("session_exec", json!({"session_id": "1_local", "command": "true"})).await;
    assert_eq!(next["structuredContent"]["exit_code"], 0);
    caller.host.shutdown().await;
}

#[tokio::test]
async fn a_call_that_waits_for_another_says_so() {
    let mut caller = Caller::new();
    caller.hello("2025-06-18").await;
    caller.tool("session_create", json!({})).await;
    let call =
        json!({"name": "session_exec", "arguments": {"session_id": "1_local", "command": "sleep 300"}});
    caller.say(json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": call})).await;
    let arguments = json!({"session_id": "1_local", "command": "echo free"});
    let call = json!({"name": "session_exec", "arguments": arguments, "_meta": {"progressToken": 5}});
    caller.say(json!({"jsonrpc": "2.0", "id": 78, "method": "tools/call", "params": call})).await;
    let mut told = Vec::new();
    let answer = loop {
        let line = caller.lines.next_line().await.unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["method"] == "notifications/progress" {
            let params = &message["params"];
            told.push((params["progress"].as_f64().unwrap(), params["message"].as_str().unwrap().to_owned()));
            if told.len() == 1 {
                let stop = json!({"name": "session_interrupt", "arguments": {"session_id": "1_local"}});
                caller.say(json!({"jsonrpc": "2.0", "id": 79, "method": "tools/call", "params": stop})).await;
            }
        } else if message["id"] == 78 {
            break message["result"].clone();
        }
    };
    let (secs, said) = &told[0];
    assert!(*secs >= 1.0 && secs.fract() == 0.0, "the first after a second, in whole ones: {told:?}");
    assert!(said.ends_with(" s, waiting for command 1 (`sleep 300`)"), "{said}");
    let hint = answer["structuredContent"]["hint"].as_str().unwrap();
    assert!(hint.contains("s for command 1 (`sleep 300`), which ran in this shell"), "{hint}");
    assert_eq!(answer["structuredContent"]["stdout"], "free\n");
    // One that takes no second tells nothing, also not right before its result.
    let call = json!({"name": "session_exec", "arguments": arguments, "_meta": {"progressToken": 6}});
    caller.say(json!({"jsonrpc": "2.0", "id": 80, "method": "tools/call", "params": call})).await;
    loop {
        let line = caller.lines.next_line().await.unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == 80 {
            break;
        }
        let secs = message["params"]["progress"].as_f64();
        assert!(secs.is_none_or(|secs| secs >= 1.0), "{message}");
    }
    caller.host.shutdown().await;
}

#[tokio::test]
async fn a_redacted_result_says_so_and_a_placeholder_in_a_command_is_warned_about() {
    let mut caller = Caller::new();
    caller.hello("2025-06-18").await;
    caller
        .tool("session_create", json!({"env": {"DEPLOY_TOKEN": "s3cretvalue99", "EDITOR": "ed"}, "cwd": "~"}))
        .await;
    let mut hint = async |command: &str| {
        let ran = caller.tool("session_exec", json!({"session_id": "1_local", "command": command})).await;
        (ran["structuredContent"]["stdout"].clone(), ran["structuredContent"]["hint"].to_string())
    };
    let (stdout, said) = hint("echo $DEPLOY_TOKEN").await;
    assert_eq!(stdout, "[REDACTED:env:DEPLOY_TOKEN]\n");
    assert!(said.contains("secrets in the output were replaced"), "{said}");
    let (_, said) = hint("echo 'Bearer [REDACTED:env:DEPLOY_TOKEN]' | wc -c").await;
    assert!(said.contains("the command has a [REDACTED:…] in it"), "{said}");
    let (stdout, said) = hint("echo $EDITOR $GIT_EDITOR $PAGER; [ \"$PWD\" -ef ~ ] && echo home").await;
    assert_eq!((stdout, said.as_str()), (json!("ed true cat\nhome\n"), "null"), "a caller's own are its own");
    caller.host.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_request_stops_its_command() {
    let mut caller = Caller::new();
    caller.hello("2025-06-18").await;
    caller.tool("session_create", json!({})).await;
    let arguments = json!({"session_id": "1_local", "command": "sleep 300"});
    let call = json!({"name": "session_exec", "arguments": arguments});
    caller.say(json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": call})).await;
    caller
        .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}))
        .await;
    let after = caller.tool("session_exec", json!({"session_id": "1_local", "command": "echo free"})).await;
    assert_eq!(after["structuredContent"]["stdout"], "free\n");
    caller.host.shutdown().await;
}
