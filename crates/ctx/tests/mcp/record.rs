//! What an agent did can be listed, read, searched and watched, and no secret is in it.

use serde_json::{Value, json};
use testkit::{Place, until};

use crate::support::{Host, Running, place};

/// A token as a code host gives them out, put together here so that no scanner takes it for one.
fn secret() -> String {
    format!("ghp_{}", "a1B2".repeat(9))
}

/// Prints a secret on both streams and fails; the secret is in the command as well.
fn leaky() -> String {
    format!("echo out {0}; echo err {0} >&2; echo $DEPLOY_PASSWORD; false", secret())
}

/// The value of a variable whose name says that it is secret.
const PASSWORD: &str = "correct horse battery";

fn host(place: &Place) -> Host {
    Host::with(place.command(&["mcp"]).env("DEPLOY_PASSWORD", PASSWORD))
}

#[track_caller]
fn clean(text: &str) {
    assert!(!text.contains(&secret()) && !text.contains(PASSWORD), "{text}");
}

fn shells(place: &Place, args: &[&str]) -> String {
    let text = place.ctx(&[&["shells"], args].concat()).ok();
    clean(&text);
    text
}

#[test]
fn the_commands_of_a_shell_are_listed_shown_and_found() {
    let place = place();
    let mut host = host(&place);
    let shell = host.create();
    let answer = host.exec(&shell, &leaky());
    clean(&answer.to_string());
    assert_eq!(answer["exit_code"], 1);
    host.exec(&shell, "cd / && echo Needle");

    // While it lives.
    let listed: Value = serde_json::from_str(&shells(&place, &["list", "--json"])).unwrap();
    assert_eq!((&listed["session_id"], &listed["state"]), (&Value::from("1_local"), &Value::from("open")));
    assert_eq!((&listed["commands"], &listed["cwd"]), (&Value::from(2), &Value::from("/")));
    let log = listed["log"].as_str().unwrap();
    let table = shells(&place, &[]);
    assert!(table.contains(log) && table.contains("1_local"), "{table}");

    let shown = shells(&place, &["show", &log[..20]]);
    for wanted in
        ["$ echo out [REDACTED:", "\nout [REDACTED:", "\nerr [REDACTED:", "exit code 1", "\nNeedle\n"]
    {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    clean(&shells(&place, &["show", log, "--json"]));

    let found = shells(&place, &["search", "needle"]);
    assert_eq!(found, format!("{log} 2 command: cd / && echo Needle\n{log} 2 stdout: Needle\n"));
    let none = place.ctx(&["shells", "search", &secret()]).fails(1);
    assert!(none.contains("nothing found"), "there is no secret to be found: {none}");

    // And afterwards.
    host.call("session_destroy", serde_json::json!({"session_id": shell}));
    assert!(shells(&place, &["list"]).contains("destroyed"));
    assert!(shells(&place, &["show", log]).contains("destroyed after 2 commands"));
    assert!(place.ctx(&["shells", "show", "nothing"]).fails(1).contains("ctx shells"));
}

/// Reads lines up to one that holds a text.
fn up_to(watch: &Running, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        seen.push_str(&watch.line());
        seen.push('\n');
    }
    seen
}

/// Lets a shell work until the watcher is there to see it.
fn until_watched(host: &mut Host, shell: &str, watch: &Running) {
    until("the watcher", || {
        host.exec(shell, "echo beacon");
        watch.line_now()
    });
}

#[test]
fn what_shells_do_can_be_followed_as_lines_through_a_pipe() {
    let place = place();
    let mut host = host(&place);
    let shell = host.create();
    host.exec(&shell, "echo before");
    let watch = Running::start(&mut place.command(&["watch", "--follow"]));
    until_watched(&mut host, &shell, &watch);
    host.exec(&shell, &leaky());
    let seen = up_to(&watch, "exit code 1");
    clean(&seen);
    for wanted in ["$ echo out [REDACTED:", "\nout [REDACTED:", "\nerr [REDACTED:"] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    assert!(!seen.contains("before"), "what was before is left out: {seen}");

    // A shell that is opened later is followed too, under its own heading.
    let other = host.create();
    host.exec(&other, "echo from the other");
    let seen = up_to(&watch, "\nfrom the other\n");
    assert!(seen.contains("== 2_local 01") && seen.contains("2_local opened in "), "{seen}");
    // So is one that was there before, and of a command that prints nothing its end is told.
    host.exec(&shell, "true");
    let seen = up_to(&watch, "exit code 0");
    assert!(seen.contains("== 1_local 01") && seen.contains("$ true\n"), "{seen}");
}

#[test]
fn a_command_that_is_followed_is_seen_when_it_starts() {
    let place = place();
    let mut host = host(&place);
    let shell = host.create();
    let watch = Running::start(&mut place.command(&["watch", "--follow"]));
    until_watched(&mut host, &shell, &watch);
    let go = place.path("go");
    host.exec_soon(&shell, &format!("echo slow; until [ -e '{}' ]; do sleep 0.01; done", go.display()));
    let seen = up_to(&watch, "$ echo slow;");
    assert!(!seen.contains("\nslow\n"), "it has not ended: {seen}");
    std::fs::write(go, "").unwrap();
    up_to(&watch, "slow\n");
}

#[test]
fn what_shells_do_can_be_followed_by_programs() {
    let place = place();
    let mut host = host(&place);
    let shell = host.create();
    let watch = Running::start(&mut place.command(&["watch", "--follow", "--json"]));
    until_watched(&mut host, &shell, &watch);
    host.exec(&shell, &leaky());
    let finished = until("the failed command", || {
        let line = watch.line();
        clean(&line);
        let record: Value = serde_json::from_str(&line).unwrap();
        (record["exit_code"] == 1).then_some(record)
    });
    assert_eq!(finished["type"], "shell_exec_finished");
    assert!(finished["stdout"].as_str().unwrap().starts_with("out [REDACTED:"), "{finished}");
}

#[test]
fn a_program_that_follows_several_shells_can_tell_them_apart() {
    let place = place();
    let mut host = host(&place);
    let shell = host.create();
    let watch = Running::start(&mut place.command(&["watch", "--follow", "--json"]));
    until_watched(&mut host, &shell, &watch);
    let other = host.create();
    let listed = host.call("session_list", json!({}));
    // One after another: what two shells did meanwhile comes in no order.
    for (row, shell, command) in [(1, &other, "echo of the second"), (0, &shell, "echo of the first")] {
        host.exec(shell, command);
        let record: Value = serde_json::from_str(up_to(&watch, command).lines().last().unwrap()).unwrap();
        assert_eq!(record["log"], listed["sessions"][row]["log"], "{record}");
    }
}

/// How often a program has gone to sleep.
fn sleeps(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn who_watches_sleeps_while_nothing_happens() {
    let place = place();
    let watch = Running::start(&mut place.command(&["watch", "--follow"]));
    // There is no place for logs yet, and then there is.
    let mut host = host(&place);
    let shell = host.create();
    until_watched(&mut host, &shell, &watch);
    host.exec(&shell, "echo the last");
    up_to(&watch, "the last");
    // What is still to be looked at is looked at; then nothing is.
    let pid = watch.child.id();
    until("rest", || {
        let before = sleeps(pid);
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        (sleeps(pid) == before).then_some(())
    });
    host.exec(&shell, "echo and on");
    up_to(&watch, "and on");
}

#[test]
fn a_shell_cannot_draw_on_the_terminal_of_who_looks_at_it() {
    let place = place();
    let mut host = host(&place);
    let shell = host.create();
    host.exec(&shell, "mkdir \"$(printf 'd\\033]0;evil\\007\\nx')\" && cd d*");
    host.exec(&shell, "exit 3");
    let log = place.ctx(&["shells", "--json"]).ok();
    let log: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    let id = log["log"].as_str().unwrap();
    assert!(log["cwd"].as_str().unwrap().contains("evil"), "{log}");
    for args in [&["shells"][..], &["shells", "show", id], &["shells", "search", "evil"]] {
        let shown = place.ctx(args).ok();
        assert!(shown.contains("evil") && !shown.contains(['\u{1b}', '\u{7}']), "{args:?}: {shown:?}");
        assert!(!shown.lines().any(|line| line.starts_with('x')), "{shown:?}");
    }
}

#[test]
fn errors_do_not_repeat_a_secret() {
    let place = place();
    let mut host = Host::with(place.command(&["mcp"]).env("DEPLOY_PASSWORD", "correct-horse-battery-9"));
    let shell = host.create();
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    for secret in [token.as_str(), "correct-horse-battery-9"] {
        for (tool, arguments) in [
            ("session_exec", json!({"session_id": secret, "command": "true"})),
            ("session_create", json!({"transport": secret})),
            ("session_create", json!({"cwd": format!("/nowhere/{secret}")})),
            ("session_create", json!({"env": {format!("{secret} x"): "1"}})),
            ("session_output", json!({"session_id": shell, "call": 1, "grep": format!("({secret}")})),
        ] {
            let said = host.refused(tool, arguments);
            assert!(!said.contains(secret) && said.contains("[REDACTED:"), "{tool}: {said}");
        }
        let ignored = host.tool("session_exec", json!({"session_id": shell, "command": "true", secret: 1}));
        assert!(
            !ignored.to_string().contains(secret) && ignored.to_string().contains("[REDACTED:"),
            "{ignored}"
        );
        let unknown = host.request("tools/call", json!({"name": secret, "arguments": {}}));
        assert!(unknown["error"].is_object() && !unknown.to_string().contains(secret), "{unknown}");
    }
}

#[test]
fn a_request_is_answered_however_long_its_input_is() {
    let place = place();
    let mut host = host(&place);
    let shell = host.create();
    // Twice as long in JSON.
    let most = "\n".repeat(9 << 20);
    let counted = host.call("session_exec", json!({"session_id": shell, "command": "wc -c", "stdin": most}));
    assert_eq!(counted["stdout"], "9437184\n");
    let said = host.refused(
        "session_exec",
        json!({"session_id": shell, "command": "wc -c", "stdin": "x".repeat((16 << 20) + 1)}),
    );
    assert!(said.starts_with("EMSGSIZE: stdin is 16777217 bytes long"), "{said}");
    let null = host.call("session_exec", json!({"session_id": shell, "command": "echo x", "merge": null}));
    assert_eq!(null["stdout"], "x\n");
}

#[test]
fn what_was_printed_before_a_shell_s_end_is_in_its_log() {
    for program in ["bash", "dash"] {
        for ends in ["destroy", "hang up"] {
            let place = place();
            let mut host =
                Host::with(place.command(&["mcp", "--shell", program]).env("DEPLOY_PASSWORD", PASSWORD));
            let shell = host.create();
            let (go, seen) = (place.path("go"), place.path("seen"));
            // A job prints after its command has ended, and no other command comes to tell of it.
            let job = format!("(echo LATELY {}; touch {}) & wait", secret(), seen.display());
            let wait = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
            host.exec(&shell, &format!("{wait} | {{ cat; {job}; }} & echo x"));
            std::fs::write(&go, "").unwrap();
            until("the job's end", || seen.exists().then_some(()));
            let busy = host.create();
            let printed = place.path("printed");
            host.exec_soon(
                &busy,
                &format!(
                    "echo important $DEPLOY_PASSWORD; echo bad >&2; touch {}; sleep 300",
                    printed.display()
                ),
            );
            until("the command's output", || printed.exists().then_some(()));
            let shelf = |of: usize| {
                shells(&place, &["list"]).lines().nth(of).unwrap().split(' ').next().unwrap().to_owned()
            };
            let (first, second) = (shelf(1), shelf(2));
            assert!(shells(&place, &["show", &second]).contains("[it is still running]"));
            if ends == "destroy" {
                for id in [&shell, &busy] {
                    host.call("session_destroy", json!({"session_id": id}));
                }
            } else {
                host.hang_up();
                host.ended();
            }
            let late = shells(&place, &["show", &first]);
            assert!(late.contains("late output]\nLATELY [REDACTED:"), "{program}, {ends}: {late}");
            let cut = shells(&place, &["show", &second]);
            assert!(cut.contains("\nimportant [REDACTED:"), "{program}, {ends}: {cut}");
            assert!(cut.contains("\nbad\n") && cut.contains(" cut off after "), "{program}, {ends}: {cut}");
        }
    }
}

#[test]
fn a_command_without_an_end_is_not_shown_as_one_that_was_silent() {
    let place = place();
    let mut host = host(&place);
    let shell = host.create();
    host.exec(&shell, ":");
    let started = place.path("started");
    host.exec_soon(&shell, &format!("touch {}; sleep 300", started.display()));
    until("the command's start", || started.exists().then_some(()));
    // SIGKILL: the server has no last word.
    host.server.child.kill().unwrap();
    host.server.child.wait().unwrap();
    let log = shells(&place, &["list"]).lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    for shown in [shells(&place, &["show", &log]), place.ctx(&["watch"]).ok()] {
        assert!(
            shown.ends_with("[the end of command 2 was not recorded: its server was killed]\n"),
            "{shown}"
        );
        assert_eq!(shown.matches("was not recorded").count(), 1, "the first one has ended: {shown}");
    }
    assert_eq!(shells(&place, &["show", "1_local"]), shells(&place, &["show", &log]));

    // A line that cannot be read is not left out without a word.
    let shelves = [place.root().join(".state/shell"), place.home().join(".local/state/ctx/shell")];
    let file = shelves
        .map(|dir| dir.join(&log).join("events.jsonl"))
        .into_iter()
        .find(|file| file.exists())
        .unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let spoilt: Vec<&str> =
        text.lines().enumerate().map(|(n, line)| if n == 2 { "spoilt" } else { line }).collect();
    std::fs::write(&file, spoilt.join("\n") + "\n").unwrap();
    let shown = place.ctx(&["shells", "show", &log]);
    assert!(shown.stderr.contains("line 3 is damaged"), "{shown:?}");
    let shown = place.ctx(&["shells", "show", "1_local"]);
    assert_eq!(shown.stderr.matches("damaged").count(), 1, "{shown:?}");
}

#[test]
fn the_newest_shell_is_listed_last_wherever_its_log_is() {
    let place = place();
    // Without a root of its own, a server keeps its logs in the user's state directory.
    let own = place.home().join("no-root");
    let mut elsewhere = Host::with(place.command(&["mcp"]).env("CTX_ROOT", &own));
    elsewhere.create();
    std::fs::create_dir_all(place.root()).unwrap();
    let mut in_root = Host::start(&place);
    in_root.create();
    elsewhere.create();
    in_root.create();
    let listed = place.ctx(&["shells", "list", "--json"]).ok();
    let listed: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = listed.iter().map(|shell| shell["session_id"].as_str().unwrap()).collect();
    assert_eq!(names, ["1_local", "1_local", "2_local", "2_local"]);
    let logs: Vec<&str> = listed.iter().map(|shell| shell["log"].as_str().unwrap()).collect();
    assert!(logs.is_sorted(), "{logs:?}");
    let table = place.ctx(&["shells"]).ok();
    let in_table: Vec<&str> = table.lines().skip(1).filter_map(|row| row.split_whitespace().next()).collect();
    assert_eq!(in_table, logs);
}

#[test]
fn a_refused_command_is_found_and_has_no_number() {
    let place = place();
    let mut host = host(&place);
    let made = host.call("session_create", json!({"deny": ["shred"]}));
    host.refused("session_exec", json!({"session_id": made["session_id"], "command": "shred plans"}));
    let found = place.ctx(&["shells", "search", "shred"]).ok();
    let (log, rest) = found.split_once(' ').unwrap();
    assert_eq!((log.len(), rest), (26, "- refused: shred plans\n"), "{found}");
    let found: Value =
        serde_json::from_str(&place.ctx(&["shells", "search", "shred", "--json"]).ok()).unwrap();
    assert_eq!((&found["call"], &found["field"]), (&Value::Null, &json!("refused")));
}

#[test]
fn watch_shows_the_last_commands_and_not_everything_there_ever_was() {
    let place = place();
    let mut host = host(&place);
    let (first, second) = (host.create(), host.create());
    for n in 1..=15 {
        host.exec(&first, &format!("echo first-$(({n}+0))"));
        host.exec(&second, &format!("echo second-$(({n}+0))"));
    }
    let shown = place.ctx(&["watch"]).ok();
    // One that began in the same millisecond as the first of them is shown too.
    let count = shown.lines().filter(|line| line.starts_with("$ echo ")).count();
    assert!((20..=21).contains(&count), "{shown}");
    assert!(shown.contains("\nfirst-15\n") && shown.contains("\nsecond-6\n"), "{shown}");
    assert!(!shown.contains("first-5\n") && !shown.contains(" opened in "), "{shown}");
    let one = place.ctx(&["watch", "-n", "1"]).ok();
    assert!(one.ends_with("$ echo second-$((15+0))\nsecond-15\n") && one.lines().count() <= 6, "{one}");
    let json = place.ctx(&["watch", "-n", "2", "--json"]).ok();
    assert!((2..=3).contains(&json.matches("\"shell_exec_started\"").count()), "{json}");
    let all = place.ctx(&["watch", "-n", "0"]).ok();
    assert!(all.contains("\nfirst-1\n") && all.contains(" opened in "), "{all}");
}
