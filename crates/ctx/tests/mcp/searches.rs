//! Searches of long outputs that take minutes: they hold up no page, and end when nobody wants them any more.

use serde_json::{Value, json};
use testkit::{Place, until};

use crate::support::{Host, place};

/// As many as are searched at once.
const SEARCHES: usize = 4;

/// What a pattern cannot be decided by at a glance: which `a` is the one that so many follow?
const HARD: &str = "a[ab]{900}[^ab]";

/// A host with a shell whose first command has printed what takes minutes to look through with the hard pattern.
fn with_output(place: &Place) -> (Host, String) {
    let mut host = Host::start(place);
    let shell = host.create();
    let print = "export LC_ALL=C; head -c 20000000 /dev/urandom | tr '\\000-\\177' a | tr '\\200-\\377' b | fold -w 3000";
    let printed = host.exec(&shell, print);
    assert_eq!(printed["exit_code"], 0, "{printed}");
    (host, shell)
}

fn search(shell: &str, pattern: &str) -> Value {
    json!({"session_id": shell, "call": 1, "grep": pattern})
}

/// Ticks of the processor that a process has used, of which a second has a hundred.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let behind_name = stat.rsplit(')').next().unwrap();
    let (utime, stime) = (11, 12);
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    [utime, stime].map(|at| fields[at].parse::<u64>().unwrap()).iter().sum()
}

/// Starts as many hard searches as there can be at once; they are under way when the server has worked for a while.
fn search_hard(host: &mut Host, shell: &str) -> Vec<u64> {
    let server = host.server.child.id();
    let before = ticks(server);
    let hard = (0..SEARCHES).map(|_| host.tool_soon("session_output", search(shell, HARD))).collect();
    until("work of the server", || (ticks(server) > before + 30).then_some(()));
    hard
}

#[test]
fn a_page_does_not_wait_for_searches() {
    let place = place();
    let (mut host, shell) = with_output(&place);
    search_hard(&mut host, &shell);
    for offset in [0, 9_000_000, 18_000_000] {
        let page = json!({"session_id": shell, "call": 1, "offset": offset, "limit": 1000});
        let page = host.tool_soon("session_output", page);
        let answer = host.answer();
        assert_eq!(answer["id"], page, "the page comes first: {answer}");
        assert_eq!(answer["result"]["structuredContent"]["offset"], offset);
    }
}

#[test]
fn a_cancelled_search_makes_room_for_another() {
    let place = place();
    let (mut host, shell) = with_output(&place);
    for hard in search_hard(&mut host, &shell) {
        host.cancel(hard);
    }
    let found = host.call("session_output", search(&shell, "^zz"));
    assert_eq!((&found["text"], &found["next_offset"]), (&json!(""), &Value::Null), "it has looked at all");
}

#[test]
fn a_search_in_a_shell_that_is_destroyed_ends_and_says_so() {
    let place = place();
    let (mut host, shell) = with_output(&place);
    let hard = host.tool_soon("session_output", search(&shell, HARD));
    let other = host.create();
    let destroy = host.tool_soon("session_destroy", json!({"session_id": shell}));
    let mut answers = [host.answer(), host.answer()];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!(hard), &json!(destroy)));
    let text = answers[0]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("EHOSTDOWN: ") && text.contains("destroyed"), "{text}");
    assert_eq!(host.exec(&other, "echo still here")["stdout"], "still here\n");
}

#[test]
fn a_host_that_is_gone_does_not_leave_its_searches_behind() {
    let place = place();
    let (mut host, shell) = with_output(&place);
    search_hard(&mut host, &shell);
    host.hang_up();
    host.ended();
}
