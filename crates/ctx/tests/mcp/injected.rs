//! A caller whose prompt was taken over: nothing that it says hides what it did or opens what was closed.

use serde_json::{Value, json};
use testkit::Place;

use crate::support::{Host, place};

/// The records of the one shell's ended commands.
fn finished(place: &Place) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&place.ctx(&["shells", "list", "--json"]).ok()).unwrap();
    let shown = place.ctx(&["shells", "show", listed["log"].as_str().unwrap(), "--json"]).ok();
    let records = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|record| record["type"] == "shell_exec_finished").collect()
}

#[test]
fn no_budget_empties_the_record() {
    let place = place();
    let mut host = Host::start(&place);
    let nothing = json!({"keep": {"mode": "tail", "n": 0}});
    let made = host.call("session_create", json!({"output_budget": nothing}));
    let shell = made["session_id"].as_str().unwrap();
    let command =
        "echo SECRETPLAN; printf 'token=%s\\n' ghp_a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2; echo err >&2";
    for budget in [
        Value::Null,
        nothing.clone(),
        json!({"keep": {"mode": "head", "n": 0}}),
        json!({"grep": {"pattern": "no such line"}}),
        json!({"max_chars": 1}),
    ] {
        host.call("session_exec", json!({"session_id": shell, "command": command, "budget": budget}));
    }
    for record in finished(&place) {
        let printed = record["stdout"].as_str().unwrap();
        assert!(printed.starts_with("SECRETPLAN\ntoken=[REDACTED:"), "{record}");
        assert_eq!((printed.lines().count(), &record["stderr"]), (2, &json!("err\n")), "{record}");
    }
    assert_eq!(finished(&place).len(), 5);
    let found = place.ctx(&["shells", "search", "secretplan"]).ok();
    assert_eq!(found.matches("stdout: SECRETPLAN").count(), 5, "{found}");
}

#[test]
fn the_record_of_much_output_has_both_ends_and_says_how_much_is_missing() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    let budget = json!({"keep": {"mode": "head", "n": 3}});
    let much = "seq 100000; seq 100000 >&2";
    host.call("session_exec", json!({"session_id": shell, "command": much, "budget": budget}));
    host.exec(&shell, much);
    let records = finished(&place);
    assert_eq!(records.len(), 2);
    for record in records {
        for stream in ["stdout", "stderr"] {
            let printed = record[stream].as_str().unwrap();
            assert!(printed.starts_with("1\n2\n3\n") && printed.ends_with("\n99999\n100000\n"), "{printed}");
            let (head, rest) = printed.split_once("\n[… ").unwrap();
            let (missing, tail) = rest.split_once(" bytes …]\n").unwrap();
            let told = head.len() + tail.len() + missing.parse::<usize>().unwrap();
            assert_eq!((told, &record[format!("{stream}_bytes")]), (588_895, &json!(588_895)), "{stream}");
            assert!(printed.len() < 10_000, "{} bytes", printed.len());
        }
    }
}

#[test]
fn an_empty_allow_list_opens_no_shell() {
    let place = place();
    let mut host = Host::start(&place);
    let said = host.refused("session_create", json!({"allow": []}));
    assert!(said.starts_with("EINVAL: ") && said.contains("nothing could run"), "{said}");
    assert_eq!(host.call("session_list", json!({}))["sessions"], json!([]));
    let made = host.call("session_create", json!({"allow": ["echo"], "deny": []}));
    let said = host.refused("session_exec", json!({"session_id": made["session_id"], "command": "ls"}));
    assert!(said.starts_with("EACCES: "), "{said}");
}

/// bash runs what `BASH_ENV` holds before any command: neither the fence nor a log would see it.
#[test]
fn of_all_start_files_only_the_operators_own_is_read() {
    let place = place();
    let file = place.path("operators");
    std::fs::write(&file, "START=operators\n").unwrap();
    let mut host = Host::with(place.command(&["mcp"]).env("BASH_ENV", &file));
    let own = host.create();
    assert_eq!(host.exec(&own, "echo $START")["stdout"], "operators\n");
    host.exec(&own, "exit");
    assert_eq!(host.exec(&own, "echo $START")["stdout"], "operators\n", "also by who comes after it");

    let run = |when: &str| format!("$(touch {})", place.path(when).display());
    let env = json!({"BASH_ENV": run("made")});
    let said = host.refused("session_create", json!({"env": env, "allow": ["echo", "export", "exit"]}));
    assert!(said.starts_with("EACCES: ") && said.contains("BASH_ENV"), "{said}");
    let made = host.call("session_create", json!({"env": env}));
    let shell = made["session_id"].as_str().unwrap();
    let told = host.exec(shell, "echo \"$BASH_ENV $START\"")["stdout"].clone();
    assert_eq!(told, format!("{} \n", run("made")), "who runs programs gave it to them");
    host.exec(shell, &format!("export BASH_ENV='{}'", run("again")));
    assert_eq!(host.exec(shell, "exit 3")["shell_restarted"], true);
    assert_eq!(host.exec(shell, "echo \"$BASH_ENV\"")["stdout"], format!("{}\n", run("again")));
    assert!(!place.path("made").exists() && !place.path("again").exists());
}
