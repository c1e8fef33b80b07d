//! Records that are whole as lines and wrong all the same: out of their place, with fields that do not fit, with the version of
//! another ctx. And blobs, which no record can bring back.

use std::fs;

use crate::damage::{
    DIR, SECOND, all_but, and_on, left_behind, line_with, log, log_path, named, newer, problems, row, said,
    session_dir, uid, with_line,
};
use crate::support::{build, json_lines};

/// The line of the message that is damaged.
fn second(bytes: &[u8]) -> usize {
    line_with(bytes, "\"text\":\"second\"")
}

/// The log with something in that line made into something else.
fn second_with(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    with_line(bytes, second(bytes), |line| {
        let text = String::from_utf8(line.to_vec()).unwrap();
        assert!(text.contains(from), "{from} is not in {text}");
        text.replacen(from, to, 1).into_bytes()
    })
}

#[test]
fn a_record_with_a_wrong_byte_in_a_key_or_its_type_is_mended() {
    for (from, to) in [
        ("\"text\":", "\"texu\":"),
        ("\"turn_id\":", "\"turn_ie\":"),
        ("\"user\"", "\"usfr\""),
        ("\"schema_version\":", "\"schema_versiom\":"),
        ("\"type\":", "\"tyqe\":"),
    ] {
        row(|bytes| second_with(bytes, from, to), second, &[SECOND], &[]);
    }
}

#[test]
fn a_record_whose_fields_cannot_be_told_is_set_aside_and_its_place_is_held() {
    row(|bytes| second_with(bytes, "\"turn_id\":\"01", "\"turn_id\":\"!!"), second, &[SECOND], &[SECOND]);
}

#[test]
fn a_state_with_a_wrong_byte_is_mended() {
    let last = |bytes: &[u8]| {
        let all = String::from_utf8_lossy(bytes).into_owned();
        all.lines().collect::<Vec<_>>().iter().rposition(|line| line.contains("\"to\":\"idle\"")).unwrap() + 1
    };
    let damage = |bytes: &[u8]| {
        with_line(bytes, last(bytes), |line| {
            String::from_utf8(line.to_vec()).unwrap().replacen("\"to\":\"idle\"", "\"to\":\"idlf\"", 1).into()
        })
    };
    row(damage, last, &[], &[]);
}

#[test]
fn a_word_that_a_newer_ctx_may_have_added_is_left_and_told_of() {
    let mut daemon = left_behind();
    let whole = log(&daemon);
    let line = line_with(&whole, "\"to\":\"running\"");
    let newer = with_line(&whole, line, |line| {
        let text = String::from_utf8(line.to_vec()).unwrap();
        text.replacen("\"to\":\"running\"", "\"to\":\"hibernating\"", 1).into_bytes()
    });
    fs::write(log_path(&daemon), &newer).unwrap();
    named(&daemon, line);
    for args in [&["repair", "coder/default", "--apply"][..], &["repair", "--all", "--apply"]] {
        let done = daemon.ctx(args);
        assert_eq!((done.code, log(&daemon) == newer), (0, true), "{done:?}");
        for words in [&format!("line {line}: "), "`hibernating`", "--not-newer"] {
            assert!(done.stderr.contains(words), "{words} is not in {}", done.stderr);
        }
    }
    daemon.start_again();
    assert_eq!(daemon.ctx(&["send", "--session", "default", "goes on"]).ok(), "goes on\n");
    assert_eq!(daemon.stop(), 0);
    // Whoever knows that no newer ctx was here has it set aside.
    daemon.ctx(&["repair", "coder/default", "--not-newer", "--apply"]).ok();
    daemon.ctx(&["doctor"]).ok();
    assert!(!String::from_utf8(log(&daemon)).unwrap().contains("hibernating"));
}

#[test]
fn a_record_that_was_moved_goes_back_to_its_place() {
    // Behind everything of its run, and to the neighbour's place.
    for by in [4, 1] {
        let moved = |bytes: &[u8]| {
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
            let line = lines.remove(second(bytes) - 1);
            lines.insert(second(bytes) - 1 + by, line);
            lines.concat()
        };
        // Of two neighbours, which one is out of place is anyone's guess; the message is the later line.
        let lost: &[&str] = if by == 1 { &[] } else { &[SECOND] };
        row(moved, second, lost, &[]);
    }
}

#[test]
fn a_version_that_is_damaged_among_lines_of_ours_is_mended() {
    row(|bytes| newer(bytes, second(bytes)), second, &[SECOND], &[]);
}

/// The log with the version of its last record damaged; its number too.
fn damaged_end(whole: &[u8]) -> (Vec<u8>, usize) {
    let last = whole.iter().filter(|b| **b == b'\n').count();
    (newer(whole, last), last)
}

#[test]
fn a_damaged_version_in_the_last_record_of_a_run_keeps_nobody_from_going_on() {
    let mut daemon = left_behind();
    let whole = log(&daemon);
    let (damaged, last) = damaged_end(&whole);
    fs::write(log_path(&daemon), &damaged).unwrap();
    named(&daemon, last);
    daemon.start_again();
    assert_eq!(said(&daemon), all_but(&[]));
    assert_eq!(daemon.ctx(&["send", "--session", "default", "goes on"]).ok(), "goes on\n");
    let wanted = and_on(all_but(&[]), &["goes on"]);
    assert_eq!(said(&daemon), wanted);
    assert_eq!(daemon.stop(), 0);
    assert!(log(&daemon).starts_with(&damaged), "nothing was cut off or changed");
    let rest = log(&daemon)[damaged.len()..].to_vec();
    named(&daemon, last);
    daemon.ctx(&["repair", "coder/default", "--apply"]).ok();
    assert_eq!(log(&daemon), [whole, rest].concat(), "as it was, and what came after");
    daemon.ctx(&["doctor"]).ok();
    daemon.start_again();
    assert_eq!(said(&daemon), wanted);
}

#[test]
fn a_version_that_is_damaged_in_a_last_command_of_one_record_is_mended_when_someone_says_so() {
    let mut daemon = left_behind();
    daemon.start_again();
    daemon.ctx(&["rename", "coder/default", "a title"]).ok();
    assert_eq!(daemon.stop(), 0);
    let whole = log(&daemon);
    let (damaged, last) = damaged_end(&whole);
    fs::write(log_path(&daemon), &damaged).unwrap();
    named(&daemon, last);
    // Until then nothing is written behind it, and nothing is cut off.
    daemon.start_again();
    assert_ne!(daemon.ctx(&["send", "--session", "default", "too early"]).code, 0);
    assert_eq!(said(&daemon), all_but(&[]));
    assert_eq!(daemon.stop(), 0);
    assert_eq!(log(&daemon), damaged);
    daemon.ctx(&["repair", "coder/default", "--not-newer", "--apply"]).ok();
    assert_eq!(log(&daemon), whole, "as it was");
    let kept = fs::read_dir(session_dir(&daemon)).unwrap().flatten().map(|entry| entry.path());
    let mut kept = kept.filter(|path| path.to_string_lossy().contains(".before-repair-"));
    assert!(kept.any(|path| fs::read(path).unwrap() == damaged), "the original is kept");
    daemon.ctx(&["doctor"]).ok();
    daemon.start_again();
    assert_eq!(daemon.ctx(&["send", "--session", "default", "goes on"]).ok(), "goes on\n");
    assert_eq!(said(&daemon), and_on(all_but(&[]), &["goes on"]));
}

#[test]
fn a_diff_shows_what_changes_wherever_it_stands() {
    let daemon = left_behind();
    let bytes = second_with(&log(&daemon), "\"text\":", "\"texu\":");
    fs::write(log_path(&daemon), bytes).unwrap();
    let shown = daemon.ctx(&["repair", "coder/default"]).stdout;
    for part in ["\n- …", "\"texu\":\"second\"", "\n+ …", "\"text\":\"second\""] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[test]
fn a_blob_that_is_gone_or_changed_is_named_by_doctor() {
    let mut daemon = build().start();
    fs::write(daemon.workspace().join("long.txt"), "line of text\n".repeat(20_000)).unwrap();
    let script =
        r#"{"script":[{"tool":{"name":"fs.read","input":{"path":"/work/long.txt"}}},{"text":"done"}]}"#;
    daemon.ctx(&["send", "--model", "debug:script", "--session", "default", script]).ok();
    assert_eq!(daemon.stop(), 0);
    daemon.ctx(&["doctor", "--deep"]).ok();
    let text = String::from_utf8(log(&daemon)).unwrap();
    let record = text.lines().find(|line| line.contains("\"blob\":{")).unwrap();
    let record: serde_json::Value = serde_json::from_str(record).unwrap();
    let name = format!("blobs/sha256-{}", record["blob"]["sha256"].as_str().unwrap());
    let path = session_dir(&daemon).join(&name);
    let whole = fs::read(&path).unwrap();
    let wanted = format!("home/{}/{DIR}/{name}", uid());
    let is_named =
        |found: &[serde_json::Value]| found.iter().any(|problem| problem["path"] == wanted.as_str());

    let mut changed = whole.clone();
    changed[7] ^= 1;
    fs::write(&path, &changed).unwrap();
    daemon.ctx(&["doctor"]).ok();
    let deep = daemon.ctx(&["doctor", "--deep", "--json"]);
    assert!(is_named(json_lines(&deep.stdout)[0]["problems"].as_array().unwrap()), "{deep:?}");
    for bytes in [Some(&whole[..9]), None] {
        fs::remove_file(&path).unwrap();
        bytes.iter().for_each(|bytes| fs::write(&path, bytes).unwrap());
        assert!(is_named(&problems(&daemon)), "{:?}", problems(&daemon));
    }
}

#[test]
fn a_projects_log_in_which_nothing_can_be_used_is_named_with_advice_for_it() {
    let daemon = left_behind();
    let dir = daemon.root().join(".state/project/lost");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("events.jsonl"), "garbage\n").unwrap();
    let found = problems(&daemon);
    let one = found.iter().find(|problem| problem["path"] == ".state/project/lost/events.jsonl");
    let fix = one.unwrap_or_else(|| panic!("{found:?}"))["fix"].as_str().unwrap().to_owned();
    let told = daemon.ctx(&["repair", "--all"]).fails(1);
    for text in [fix, told] {
        assert!(text.contains("backup") && !text.contains("ctx purge"), "{text}");
    }
}
