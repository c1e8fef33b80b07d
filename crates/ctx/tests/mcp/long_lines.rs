//! Lines that are longer than what may be held or shown of them: searched to the end, and shown in pieces that say so.

use serde_json::{Value, json};

use crate::support::{Host, place};

/// A line of 70006 bytes with the word at its end.
const PRINT: &str = "head -c 70000 /dev/zero | tr '\\0' x; echo NEEDLE";

fn exec(host: &mut Host, shell: &str, command: &str, budget: Value) -> Value {
    host.call("session_exec", json!({"session_id": shell, "command": command, "budget": budget}))
}

#[test]
fn a_pattern_is_found_at_the_end_of_a_long_line() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    let answer = exec(&mut host, &shell, PRINT, json!({"grep": {"pattern": "NEEDLE"}}));
    let stdout = answer["stdout"].as_str().unwrap();
    let mark =
        "[characters 67959 to 70006 of this line of 70006; session_output with grep tells the offset] xxx";
    assert!(stdout.starts_with(mark) && stdout.ends_with("xNEEDLE\n"), "{answer}");
    assert_eq!(answer["budget"]["stdout"]["lines_kept"], 1);
    assert_eq!(answer["budget"]["stdout"]["chars_total"], 70_007);
    assert_eq!(answer["truncated"], true);
    let search = json!({"session_id": shell, "call": 1, "grep": "NEEDLE", "limit": 100});
    let page = host.call("session_output", search);
    let text = page["text"].as_str().unwrap();
    assert!(text.len() <= 100 && text.ends_with("xNEEDLE\n"), "{page}");
    assert!(text.starts_with("1:[piece at offset 699"), "{page}");
    assert_eq!(page["next_offset"], Value::Null);
    let offset = text.split(' ').nth(3).unwrap().parse::<u64>().unwrap();
    let page = host.call("session_output", json!({"session_id": shell, "call": 1, "offset": offset}));
    assert_eq!(page["text"].as_str(), text.split_once("] ").map(|(_, piece)| piece), "the offset is right");
}

#[test]
fn a_wide_pattern_in_a_long_line_holds_nobody_up() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    let print = "head -c 250000 /dev/zero | tr '\\0' x; echo NEEDLE";
    for pattern in [".{0,300}NEEDLE", ".{0,80}NEEDLE.{0,80}"] {
        let run = json!({"session_id": shell, "command": print, "timeout_secs": 10, "budget": {"grep": {"pattern": pattern}}});
        let answer = host.call("session_exec", run);
        assert_eq!(
            (&answer["exit_code"], &answer["timed_out"]),
            (&json!(0), &json!(false)),
            "{pattern}: {answer}"
        );
        assert!(answer["stdout"].as_str().unwrap().ends_with("xNEEDLE\n"), "{pattern}");
    }
}

#[test]
fn no_line_is_shown_that_nobody_printed() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    let letters = "printf 'aaaaaaaaaaaaaaaaaaaaaaa\\nb\\nc\\nd\\n'";
    let two = json!({"mode": "head_tail", "n": 2});
    for (command, budget, shown) in [
        (letters, json!({"max_chars": 8}), "aaaa\n[… 1 line …]\nc\nd\n"),
        (letters, json!({"max_chars": 8, "keep": two}), "aaaa\n[… 1 line …]\nc\nd\n"),
        ("seq 10", json!({"max_chars": 5}), "1\n[… 9 lines …]\n"),
    ] {
        let answer = exec(&mut host, &shell, command, budget);
        assert_eq!(answer["stdout"], shown, "{command}");
    }
}

#[test]
fn both_patterns_may_be_equally_long() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    for (len, fits) in [(4096, true), (4097, false)] {
        let pattern = format!("yes|{}", "x".repeat(len - 4));
        let run =
            json!({"session_id": shell, "command": "echo yes", "budget": {"grep": {"pattern": pattern}}});
        let read = json!({"session_id": shell, "call": 1, "grep": pattern});
        for (tool, arguments) in [("session_exec", run), ("session_output", read)] {
            if fits {
                host.call(tool, arguments);
            } else {
                let why = host.refused(tool, arguments);
                assert!(why.starts_with("EINVAL") && why.contains("longer than 4096 bytes"), "{why}");
            }
        }
    }
}
