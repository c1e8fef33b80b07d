//! Every row of the damage table, made from real logs of ours: the session opens, goes on, `doctor` names file and
//! line, `repair` mends, and the original bytes are kept.

use std::path::PathBuf;

use serde_json::Value;
use testkit::{Place, TestDaemon, until};

use crate::support::{build, daemon, json_lines, place};

const DIR: &str = "agent/coder/session/default";

/// A daemon that lets idle sessions go soon, so that a repair need not wait long.
fn quick() -> TestDaemon {
    build().env("CTX_LIMITS_IDLE_UNLOAD_MS", "50").start()
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn session_dir(place: &Place) -> PathBuf {
    place.root().join(format!("home/{}/{DIR}", uid()))
}

fn log_path(place: &Place) -> PathBuf {
    session_dir(place).join("events.jsonl")
}

fn log(place: &Place) -> Vec<u8> {
    std::fs::read(log_path(place)).unwrap()
}

/// The line, from 1, that has a text in it.
fn line_with(bytes: &[u8], text: &str) -> usize {
    let all = String::from_utf8_lossy(bytes).into_owned();
    all.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text} is not in {all}")) + 1
}

/// The log with one line made into another.
fn with_line(bytes: &[u8], number: usize, change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    lines[number - 1] = change(&lines[number - 1]);
    lines.join(&b'\n')
}

/// A session with three answers, whose daemon is gone.
fn left_behind() -> TestDaemon {
    let mut daemon = quick();
    for text in ["first", "second", "third"] {
        assert_eq!(daemon.ctx(&["send", text]).ok(), format!("{text}\n"));
    }
    assert_eq!(daemon.stop(), 0);
    daemon
}

fn problems(place: &Place) -> Vec<Value> {
    let told = place.ctx(&["doctor", "--json"]);
    assert_eq!(told.code, 1, "{} {}", told.stdout, told.stderr);
    json_lines(&told.stdout)[0]["problems"].as_array().unwrap().clone()
}

#[track_caller]
fn named(place: &Place, line: usize) {
    let found = problems(place);
    let path = format!("home/{}/{DIR}/events.jsonl", uid());
    let at = |problem: &Value| problem["path"] == path.as_str() && problem["line"] == line;
    assert!(found.iter().any(at), "line {line} is not among {found:?}");
}

/// The conversation, each message as `role: text`.
fn said(place: &Place) -> Vec<String> {
    let lines = json_lines(&place.ctx(&["history", "--json"]).ok());
    let text = |line: &Value| line["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    lines.iter().map(|line| format!("{}: {}", line["role"].as_str().unwrap(), text(line))).collect()
}

/// The three messages and their answers, but for those named.
fn all_but(missing: &[&str]) -> Vec<String> {
    let all = ["first", "second", "third"].iter();
    let all = all.flat_map(|text| [format!("user: {text}"), format!("assistant: {text}")]);
    all.filter(|message| !missing.contains(&message.as_str())).collect()
}

fn and_on(mut messages: Vec<String>, texts: &[&str]) -> Vec<String> {
    messages.extend(texts.iter().flat_map(|text| [format!("user: {text}"), format!("assistant: {text}")]));
    messages
}

/// Damages a log, then does everything that must hold. `lost` is what the conversation lacks while the log is
/// damaged and its files are made anew, `lost_for_good` what it lacks after the repair.
#[track_caller]
fn row(
    damage: impl Fn(&[u8]) -> Vec<u8>,
    line: impl Fn(&[u8]) -> usize,
    lost: &[&str],
    lost_for_good: &[&str],
) {
    let mut daemon = left_behind();
    let whole = log(&daemon);
    let damaged = damage(&whole);
    assert_ne!(whole, damaged);
    std::fs::write(log_path(&daemon), &damaged).unwrap();
    std::fs::remove_file(session_dir(&daemon).join("messages.jsonl")).unwrap();
    named(&daemon, line(&whole));
    // A dry run changes nothing.
    let shown = daemon.ctx(&["repair", "coder/default"]);
    assert!(shown.stdout.contains("@@ line") && shown.stderr.contains("nothing was changed"), "{shown:?}");
    assert_eq!(log(&daemon), damaged);
    // It opens, and goes on.
    daemon.start_again();
    assert_eq!(daemon.ctx(&["send", "--session", "default", "goes on"]).ok(), "goes on\n");
    assert_eq!(daemon.stop(), 0);
    assert_eq!(said(&daemon), and_on(all_but(lost), &["goes on"]));
    // It is mended, and the original is kept.
    let before = log(&daemon);
    let done = daemon.ctx(&["repair", "coder/default", "--apply", "--json"]).ok();
    if let Some(done) = json_lines(&done).first() {
        let original = daemon.root().join(done["original"].as_str().unwrap());
        assert_eq!(std::fs::read(original).unwrap(), before);
    }
    daemon.ctx(&["doctor"]).ok();
    assert_eq!(said(&daemon), and_on(all_but(lost_for_good), &["goes on"]), "read from the log");
    daemon.start_again();
    assert_eq!(daemon.ctx(&["send", "--session", "default", "on and on"]).ok(), "on and on\n");
    assert_eq!(said(&daemon), and_on(all_but(lost_for_good), &["goes on", "on and on"]));
    until("the index to have read the repaired log", || {
        let hits = json_lines(&daemon.ctx(&["search", "--json", "second"]).stdout);
        let wanted = all_but(lost_for_good).iter().filter(|message| message.ends_with("second")).count();
        (hits.len() == wanted).then_some(())
    });
    assert_eq!(daemon.stop(), 0);
    let since_repair = daemon.log().rsplit("sessions were looked after").next().unwrap().to_owned();
    assert!(!since_repair.contains("the log is damaged here"), "{since_repair}");
    daemon.ctx(&["doctor"]).ok();
}

const SECOND: &str = "user: second";

#[test]
fn a_torn_tail() {
    let torn = |bytes: &[u8]| [bytes, b"{\"schema_version\":1,\"seq\":99,\"ti"].concat();
    let line = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count() + 1;
    row(torn, line, &[], &[]);
}

#[test]
fn garbage_nuls_and_bytes_that_are_not_text_in_the_middle() {
    for bad in [&b"garbage"[..], b"\0\0\0\0\0\0", b"{\"text\":\"\xff\xfe\"}"] {
        let second = |bytes: &[u8]| line_with(bytes, "\"text\":\"second\"");
        row(|bytes| with_line(bytes, second(bytes), |_| bad.to_vec()), second, &[SECOND], &[SECOND]);
    }
}

#[test]
fn two_records_run_together() {
    let second = |bytes: &[u8]| line_with(bytes, "\"text\":\"second\"");
    let joined = |bytes: &[u8]| {
        let number = second(bytes);
        let at = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(number - 1).unwrap().0;
        [&bytes[..at], &bytes[at + 1..]].concat()
    };
    row(joined, second, &[SECOND], &[]);
}

#[test]
fn a_gap_and_a_repeat() {
    let second = |bytes: &[u8]| line_with(bytes, "\"text\":\"second\"");
    let without = |bytes: &[u8]| {
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
        lines.remove(second(bytes) - 1);
        lines.concat()
    };
    row(without, second, &[SECOND], &[SECOND]);
    let twice = |bytes: &[u8]| with_line(bytes, second(bytes), |line| [line, b"\n", line].concat());
    row(twice, |bytes| second(bytes) + 1, &[], &[]);
}

#[test]
fn a_first_record_that_is_gone_is_made_anew_with_its_id() {
    let daemon = left_behind();
    let id = json_lines(&daemon.ctx(&["ls", "--json"]).ok())[0]["id"].clone();
    let whole = log(&daemon);
    for damage in [&b"garbage"[..], b"{\"schema_version\":1,\"se"] {
        std::fs::write(log_path(&daemon), with_line(&whole, 1, |_| damage.to_vec())).unwrap();
        named(&daemon, 1);
        daemon.ctx(&["repair", "coder/default", "--apply"]).ok();
        let first: Value =
            serde_json::from_slice(log(&daemon).split(|b| *b == b'\n').next().unwrap()).unwrap();
        assert_eq!((&first["type"], &first["session_id"]), (&"session_meta".into(), &id));
        assert_eq!((&first["name"], &first["agent"]), (&"default".into(), &"coder".into()));
        daemon.ctx(&["doctor"]).ok();
    }
    row(|bytes| with_line(bytes, 1, |_| b"garbage".to_vec()), |_| 1, &[], &[]);
}

#[test]
fn a_file_shorter_than_the_index_says_and_a_directory_that_is_gone() {
    let mut daemon = left_behind();
    let whole = log(&daemon);
    let third = line_with(&whole, "\"text\":\"third\"");
    let shorter: Vec<u8> =
        whole.split_inclusive(|b| *b == b'\n').take(third - 1).flatten().copied().collect();
    std::fs::write(log_path(&daemon), &shorter).unwrap();
    daemon.start_again();
    until("the index to forget what is gone", || (daemon.ctx(&["search", "third"]).code == 1).then_some(()));
    assert!(daemon.ctx(&["search", "second"]).ok().contains("second"));
    assert_eq!(daemon.stop(), 0);
    std::fs::remove_dir_all(session_dir(&daemon)).unwrap();
    let found = problems(&daemon);
    assert!(
        found.iter().any(|problem| problem["what"].as_str().unwrap().contains("is not there")),
        "{found:?}"
    );
    daemon.ctx(&["reindex", "--quiet"]).ok();
    daemon.ctx(&["doctor"]).ok();
}

#[test]
fn a_session_that_is_in_use_is_waited_for_or_left_alone() {
    let daemon = quick();
    daemon.ctx(&["send", "hello"]).ok();
    let whole = log(&daemon);
    let hello = line_with(&whole, "\"text\":\"hello\"");
    crate::support::start_slow(&daemon, "default");
    let refused = daemon.ctx(&["repair", "coder/default", "--apply"]).fails(1);
    assert!(
        refused.contains("another writer has it open") && refused.contains("stop the daemon"),
        "{refused}"
    );
    daemon.ctx(&["cancel", "coder"]).ok();
    // Idle, it is let go of; the daemon goes on with the repaired log.
    let bytes = with_line(&log(&daemon), hello, |_| b"garbage".to_vec());
    until("the daemon to let go", || {
        std::fs::write(log_path(&daemon), &bytes).unwrap();
        let done = daemon.ctx(&["repair", "coder/default", "--apply"]);
        (done.code == 0 && done.stdout.contains("before-repair")).then_some(())
    });
    assert_eq!(daemon.ctx(&["send", "--session", "default", "on"]).ok(), "on\n");
    daemon.ctx(&["doctor"]).ok();
}

#[test]
fn doctor_says_what_holds_and_finds_nothing_wrong_with_what_is_well() {
    let daemon = build().env("CTX_LIMITS_RUNNING_PER_PROJECT", "7").start();
    daemon.ctx(&["send", "hello"]).ok();
    let told = daemon.ctx(&["doctor"]).ok();
    for words in ["root ", "daemon    up", "index     version", "limits.running_per_project", "all is well"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let told = &json_lines(&daemon.ctx(&["doctor", "--deep", "--json"]).ok())[0];
    assert_eq!((&told["well"], &told["problems"]), (&true.into(), &Value::Array(Vec::new())));
    assert!(told["settings"].as_array().unwrap().iter().all(|setting| setting["origin"] == "default"));
    use std::os::unix::fs::PermissionsExt;
    let audit = daemon.root().join(".state/index.db");
    std::fs::set_permissions(&audit, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(daemon.ctx(&["doctor"]).fails(1).is_empty());
    assert_eq!(problems(&daemon)[0]["path"], ".state/index.db");
}

#[test]
fn doctor_works_without_a_root_and_with_a_broken_index() {
    let nothing = place();
    let told = nothing.ctx(&["doctor"]);
    assert!(told.code == 1 && told.stdout.contains("ctx serve"), "{told:?}");
    let daemon = left_behind();
    std::fs::write(
        daemon.root().join(".state/index.db"),
        "this is no database, and long enough to be looked at",
    )
    .unwrap();
    let found = problems(&daemon);
    assert_eq!(found[0]["path"], ".state/index.db");
    assert!(found[0]["fix"].as_str().unwrap().contains("reindex"), "{found:?}");
    daemon.ctx(&["reindex"]).ok();
    daemon.ctx(&["doctor", "--deep"]).ok();
    assert!(daemon.ctx(&["search", "second"]).ok().contains("second"));
}

#[test]
fn repair_needs_to_be_told_what_and_has_nothing_to_do_with_sound_logs() {
    let daemon = daemon();
    daemon.ctx(&["send", "hello"]).ok();
    daemon.ctx(&["repair", "--apply"]).fails(2);
    let told = daemon.ctx(&["repair", "--all"]);
    assert!(told.code == 0 && told.stderr.contains("nothing to repair"), "{told:?}");
    assert!(daemon.ctx(&["reindex"]).fails(1).contains("stop the daemon"));
}

#[test]
fn a_repair_or_a_reindex_that_is_killed_leaves_everything_sound() {
    let mut daemon = left_behind();
    let whole = log(&daemon);
    let second = line_with(&whole, "\"text\":\"second\"");
    let damaged = with_line(&whole, second, |_| b"garbage".to_vec());
    for pause in [1, 3, 6, 10, 15, 25] {
        std::fs::write(log_path(&daemon), &damaged).unwrap();
        for args in [&["repair", "--all", "--apply"][..], &["reindex"]] {
            let mut command = daemon.command(args);
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            let mut child = command.spawn().unwrap();
            // Not to wait for something: to be killed at another moment each time.
            std::thread::sleep(std::time::Duration::from_millis(pause));
            let _ = child.kill();
            child.wait().unwrap();
        }
        let now = log(&daemon);
        let kept = std::fs::read_dir(session_dir(&daemon)).unwrap().flatten();
        let kept = kept.filter(|entry| entry.file_name().to_string_lossy().contains(".before-repair-"));
        assert!(
            now == damaged || kept.into_iter().all(|entry| std::fs::read(entry.path()).unwrap() == damaged)
        );
        daemon.ctx(&["repair", "--all", "--apply"]).ok();
        assert_eq!(said(&daemon), all_but(&[SECOND]));
    }
    daemon.start_again();
    until("the index to be complete", || {
        let hits = json_lines(&daemon.ctx(&["search", "--json", "third"]).stdout);
        (hits.len() == 2).then_some(())
    });
    assert_eq!(daemon.ctx(&["send", "--session", "default", "on"]).ok(), "on\n");
    assert_eq!(daemon.stop(), 0);
    daemon.ctx(&["doctor", "--deep"]).ok();
}
