//! Every row of the damage table, made from real logs of ours: the session opens, goes on, `doctor` names file and
//! line, `repair` mends, and the original bytes are kept.

use std::path::PathBuf;

use serde_json::Value;
use testkit::{Place, TestDaemon, until};

use crate::support::{build, daemon, json_lines, place};

pub(crate) const DIR: &str = "agent/coder/session/default";

/// A daemon that lets idle sessions go soon, so that a repair need not wait long.
pub(crate) fn quick() -> TestDaemon {
    build().env("CTX_LIMITS_IDLE_UNLOAD_MS", "50").start()
}

pub(crate) fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

pub(crate) fn session_dir(place: &Place) -> PathBuf {
    place.root().join(format!("home/{}/{DIR}", uid()))
}

pub(crate) fn log_path(place: &Place) -> PathBuf {
    session_dir(place).join("events.jsonl")
}

pub(crate) fn log(place: &Place) -> Vec<u8> {
    std::fs::read(log_path(place)).unwrap()
}

/// The line, from 1, that has a text in it.
pub(crate) fn line_with(bytes: &[u8], text: &str) -> usize {
    let all = String::from_utf8_lossy(bytes).into_owned();
    all.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text} is not in {all}")) + 1
}

/// The log with one line made into another.
pub(crate) fn with_line(bytes: &[u8], number: usize, change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    lines[number - 1] = change(&lines[number - 1]);
    lines.join(&b'\n')
}

/// A session with three answers, whose daemon is gone.
pub(crate) fn left_behind() -> TestDaemon {
    let mut daemon = quick();
    for text in ["first", "second", "third"] {
        assert_eq!(daemon.ctx(&["send", text]).ok(), format!("{text}\n"));
    }
    assert_eq!(daemon.stop(), 0);
    daemon
}

pub(crate) fn problems(place: &Place) -> Vec<Value> {
    let told = place.ctx(&["doctor", "--json"]);
    assert_eq!(told.code, 1, "{} {}", told.stdout, told.stderr);
    json_lines(&told.stdout)[0]["problems"].as_array().unwrap().clone()
}

#[track_caller]
pub(crate) fn named(place: &Place, line: usize) {
    let found = problems(place);
    let path = format!("home/{}/{DIR}/events.jsonl", uid());
    let at = |problem: &Value| problem["path"] == path.as_str() && problem["line"] == line;
    assert!(found.iter().any(at), "line {line} is not among {found:?}");
}

/// The conversation, each message as `role: text`.
pub(crate) fn said(place: &Place) -> Vec<String> {
    let lines = json_lines(&place.ctx(&["history", "--json"]).ok());
    let text = |line: &Value| line["content"].as_str().unwrap_or_default().to_owned();
    let lines = lines.iter().filter(|line| line["metadata"]["damage"].is_null());
    lines.map(|line| format!("{}: {}", line["role"].as_str().unwrap(), text(line))).collect()
}

/// The three messages and their answers, but for those named.
pub(crate) fn all_but(missing: &[&str]) -> Vec<String> {
    let all = ["first", "second", "third"].iter();
    let all = all.flat_map(|text| [format!("user: {text}"), format!("assistant: {text}")]);
    all.filter(|message| !missing.contains(&message.as_str())).collect()
}

pub(crate) fn and_on(mut messages: Vec<String>, texts: &[&str]) -> Vec<String> {
    messages.extend(texts.iter().flat_map(|text| [format!("user: {text}"), format!("assistant: {text}")]));
    messages
}

/// What files beside the log keep.
fn kept(place: &Place, mark: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(session_dir(place)).unwrap().flatten().map(|entry| entry.path());
    let kept = entries.filter(|path| path.to_string_lossy().contains(mark));
    kept.map(|path| std::fs::read(path).unwrap()).filter(|bytes| !bytes.is_empty()).collect()
}

/// What the session is, as everyone is told: with a daemon and without one.
fn who(place: &Place) -> Value {
    let listed = json_lines(&place.ctx(&["ls", "--json"]).ok());
    let [session] = listed.as_slice() else { panic!("not one session: {listed:?}") };
    let keys = ["id", "session", "agent", "scope", "owner", "project", "model", "cwd"];
    keys.iter()
        .map(|key| ((*key).to_owned(), session[*key].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Damages a log, then does everything that must hold. `lost` is what the conversation lacks while the log is
/// damaged and its files are made anew, `lost_for_good` what it lacks after the repair.
#[track_caller]
pub(crate) fn row(
    damage: impl Fn(&[u8]) -> Vec<u8>,
    line: impl Fn(&[u8]) -> usize,
    lost: &[&str],
    lost_for_good: &[&str],
) {
    let mut daemon = left_behind();
    let whole = log(&daemon);
    let it = who(&daemon);
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
    assert_eq!(who(&daemon), it, "while its log is damaged");
    assert_eq!(daemon.stop(), 0);
    assert_eq!(said(&daemon), and_on(all_but(lost), &["goes on"]));
    // It is mended, and the original is kept.
    let before = log(&daemon);
    let done = daemon.ctx(&["repair", "coder/default", "--apply", "--json"]).ok();
    match json_lines(&done).first() {
        Some(done) => {
            let original = daemon.root().join(done["original"].as_str().unwrap());
            assert_eq!(std::fs::read(original).unwrap(), before);
        }
        // The daemon has cut it off itself.
        None => assert!(kept(&daemon, ".torn-").iter().any(|torn| damaged.ends_with(torn)), "not kept"),
    }
    daemon.ctx(&["doctor"]).ok();
    assert_eq!(said(&daemon), and_on(all_but(lost_for_good), &["goes on"]), "read from the log");
    daemon.start_again();
    assert_eq!(daemon.ctx(&["send", "--session", "default", "on and on"]).ok(), "on and on\n");
    assert_eq!(who(&daemon), it, "after the repair");
    assert_eq!(said(&daemon), and_on(all_but(lost_for_good), &["goes on", "on and on"]));
    until("the index to have read the repaired log", || {
        let hits = json_lines(&daemon.ctx(&["search", "--json", "second"]).stdout);
        let wanted = all_but(lost_for_good).iter().filter(|message| message.ends_with("second")).count();
        (hits.len() == wanted).then_some(())
    });
    assert_eq!(daemon.stop(), 0);
    let since_repair = daemon.log().rsplit("sessions were looked after").next().unwrap().to_owned();
    for words in ["the log is damaged here", "does not fit its type"] {
        assert!(!since_repair.contains(words), "{since_repair}");
    }
    daemon.ctx(&["doctor"]).ok();
}

pub(crate) const SECOND: &str = "user: second";

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
    let without =
        |bytes: &[u8]| bytes.split_inclusive(|b| *b == b'\n').skip(1).flatten().copied().collect::<Vec<u8>>();
    row(without, |_| 1, &[], &[]);
}

/// The log with something in its first line made into something else.
fn first_with(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    with_line(bytes, 1, |line| {
        let text = String::from_utf8(line.to_vec()).unwrap();
        assert!(text.contains(from), "{from} is not in {text}");
        text.replacen(from, to, 1).into_bytes()
    })
}

#[test]
fn a_first_record_with_a_flipped_bit_is_mended_and_the_session_is_the_same() {
    let owner = format!("\"owner\":{}", uid());
    let flips = [
        ("\"agent\":", "\"agenT\":"),
        ("\"project\":", "\"projEct\":"),
        ("\"session_id\":", "\"sessioN_id\":"),
        ("\"session_meta\"", "\"session_metA\""),
        ("\"agent\":\"coder\"", "\"agent\":\"codes\""),
        ("\"name\":\"default\"", "\"name\":\"defaulu\""),
        ("\"scope\":\"private\"", "\"scope\":\"temp\""),
        (&owner, "\"owner\":7777"),
    ];
    for (from, to) in flips {
        row(|bytes| first_with(bytes, from, to), |_| 1, &[], &[]);
    }
}

#[test]
fn a_log_that_lost_everything_is_the_same_session_and_a_repair_keeps_what_was_said_since() {
    for keep in [0, 100] {
        let mut daemon = left_behind();
        let it = who(&daemon);
        std::fs::write(log_path(&daemon), &log(&daemon)[..keep]).unwrap();
        named(&daemon, 1);
        daemon.start_again();
        assert_eq!(who(&daemon), it);
        assert_eq!(daemon.ctx(&["send", "--session", "default", "precious"]).ok(), "precious\n");
        assert_eq!(who(&daemon), it);
        assert_eq!(daemon.stop(), 0);
        // Nothing but the log is left to know it by.
        daemon.ctx(&["reindex", "--quiet"]).ok();
        std::fs::remove_file(session_dir(&daemon).join("meta.json")).unwrap();
        daemon.ctx(&["repair", "--all", "--apply"]).ok();
        assert_eq!(said(&daemon), ["user: precious", "assistant: precious"]);
        daemon.ctx(&["doctor"]).ok();
        daemon.start_again();
        assert_eq!(who(&daemon), it);
        assert_eq!(said(&daemon), ["user: precious", "assistant: precious"]);
    }
}

/// A line of the log as a newer ctx would have written it.
pub(crate) fn newer(bytes: &[u8], number: usize) -> Vec<u8> {
    with_line(bytes, number, |line| {
        String::from_utf8(line.to_vec())
            .unwrap()
            .replacen("\"schema_version\":1", "\"schema_version\":2", 1)
            .into()
    })
}

#[test]
fn a_log_that_a_newer_ctx_wrote_to_last_is_read_and_left_as_it_is() {
    // The last record alone, and the last exchange: its run is open as far as this ctx can tell.
    for first_newer in ["last", "\"type\":\"run_finished\""] {
        let mut daemon = left_behind();
        if first_newer == "last" {
            // A command of one record.
            daemon.start_again();
            daemon.ctx(&["rename", "coder/default", "a title"]).ok();
            assert_eq!(daemon.stop(), 0);
        }
        let whole = log(&daemon);
        let lines = whole.iter().filter(|b| **b == b'\n').count();
        let from = match first_newer {
            "last" => lines,
            text => {
                String::from_utf8_lossy(&whole)
                    .lines()
                    .collect::<Vec<_>>()
                    .iter()
                    .rposition(|line| line.contains(text))
                    .unwrap()
                    + 1
            }
        };
        let bytes = (from..=lines).fold(whole, |bytes, number| newer(&bytes, number));
        std::fs::write(log_path(&daemon), &bytes).unwrap();
        let beside = || std::fs::read_dir(session_dir(&daemon)).unwrap().count();
        let files = beside();
        named(&daemon, from);
        let told = daemon.ctx(&["doctor"]);
        assert!(told.stdout.contains("upgrade ctx") && told.stdout.contains("format version 2"), "{told:?}");
        for args in [&["repair", "coder/default"][..], &["repair", "--all", "--apply"]] {
            let refused = daemon.ctx(args).fails(1);
            assert!(refused.contains("upgrade ctx") && refused.contains("ctx fork"), "{refused}");
            assert!(refused.contains("ctx repair coder/default --not-newer"), "{refused}");
        }
        daemon.ctx(&["reindex", "--quiet"]).ok();
        assert_eq!(beside(), files, "nothing was cut off");
        daemon.start_again();
        assert_eq!(json_lines(&daemon.ctx(&["ls", "--json"]).ok()).len(), 1);
        assert_eq!(said(&daemon), all_but(&[]));
        let refused = daemon.ctx(&["send", "--session", "default", "too much"]);
        assert!(refused.code != 0 && refused.stderr.contains("upgrade ctx"), "{refused:?}");
        finds(&daemon, "second", &["second"]);
        // What this ctx knows can be gone on from elsewhere, and others are as they were.
        daemon.ctx(&["fork", "coder/default", "--name", "on"]).ok();
        assert_eq!(daemon.ctx(&["send", "--session", "on", "goes on"]).ok(), "goes on\n");
        assert_eq!(daemon.stop(), 0);
        assert_eq!(log(&daemon), bytes);
    }
}

#[test]
fn a_message_in_the_first_place_stays_there() {
    // As an older daemon left it: the first record is the user's.
    let mut daemon = left_behind();
    let it = who(&daemon);
    let whole = String::from_utf8(log(&daemon)).unwrap();
    let shifted: String = whole
        .lines()
        .skip(1)
        .enumerate()
        .map(|(at, line)| line.replacen(&format!("\"seq\":{},", at + 1), &format!("\"seq\":{at},"), 1) + "\n")
        .collect();
    std::fs::write(log_path(&daemon), &shifted).unwrap();
    assert_eq!(problems(&daemon)[0]["path"], format!("home/{}/{DIR}/events.jsonl", uid()));
    daemon.ctx(&["repair", "coder/default", "--apply"]).ok();
    assert!(String::from_utf8(log(&daemon)).unwrap().starts_with(&shifted), "whole records keep their place");
    daemon.ctx(&["doctor"]).ok();
    daemon.start_again();
    assert_eq!(who(&daemon), it);
    assert_eq!(said(&daemon), all_but(&[]));
}

/// The texts that search finds, once it finds as many as there must be.
#[track_caller]
fn finds(place: &Place, word: &str, wanted: &[&str]) {
    let mut last = Vec::new();
    until(&format!("search to find {wanted:?} for {word}"), || {
        let hits = json_lines(&place.ctx(&["search", "--json", word]).stdout);
        let piece = |piece: &Value| piece["text"].as_str().unwrap().to_owned();
        let text = |hit: &Value| hit["snippet"].as_array().unwrap().iter().map(piece).collect::<String>();
        last = hits.iter().map(text).collect();
        let all = wanted.iter().all(|wanted| last.iter().any(|text| text.contains(wanted)));
        // Each message and its answer.
        (all && last.len() == 2 * wanted.len()).then_some(())
    });
}

/// Cuts the log behind the first exchange.
fn cut(place: &Place) {
    let whole = log(place);
    let second = line_with(&whole, "\"text\":\"second\"");
    let kept: usize = whole.split_inclusive(|b| *b == b'\n').take(second - 1).map(<[u8]>::len).sum();
    let file = std::fs::File::options().write(true).open(log_path(place)).unwrap();
    file.set_len(kept as u64).unwrap();
}

#[test]
fn a_log_that_becomes_shorter_and_goes_on_is_what_search_finds() {
    // With the daemon down, up and the session let go of, and up and the session loaded.
    for (down, unload) in [(true, "50"), (false, "50"), (false, "60000")] {
        let mut daemon = build().env("CTX_LIMITS_IDLE_UNLOAD_MS", unload).start();
        for text in ["first", "second", "third"] {
            daemon.ctx(&["send", text]).ok();
        }
        if down {
            assert_eq!(daemon.stop(), 0);
        }
        cut(&daemon);
        // A daemon that is up may have noticed already.
        if down {
            let found = problems(&daemon);
            let said =
                |problem: &Value| problem["what"].as_str().unwrap().contains("the index has read it up to");
            assert!(found.iter().any(|problem| said(problem) && problem["line"].is_number()), "{found:?}");
        }
        if down {
            daemon.start_again();
        }
        for text in ["new one", "new two", "new three"] {
            // A session that was loaded is taken up again first.
            until("the message to be taken", || {
                (daemon.ctx(&["send", "--session", "default", text]).code == 0).then_some(())
            });
        }
        finds(&daemon, "new", &["new one", "new two", "new three"]);
        finds(&daemon, "first", &["first"]);
        finds(&daemon, "third", &[]);
        daemon.ctx(&["doctor"]).ok();
        assert_eq!(daemon.stop(), 0);
        daemon.start_again();
        finds(&daemon, "new", &["new one", "new two", "new three"]);
        finds(&daemon, "second", &[]);
        // Everyone who looks into the audit log finds what happened before and after, once. What the last daemon had no
        // time for is told a moment after the start.
        for event in ["run.created", "run.completed"] {
            let told = until(event, || {
                let told = daemon.ctx(&["audit", "--json", "-n", "0", "--event", event]).ok().lines().count();
                (told >= 6).then_some(told)
            });
            assert_eq!(told, 6, "{event}, down {down}, unload {unload}");
        }
    }
}

#[test]
fn a_new_session_in_the_place_of_one_that_is_gone_is_found_under_its_own_id() {
    for (down, whole_dir) in [(true, true), (true, false), (false, true)] {
        let mut daemon = quick();
        for text in ["old first", "old second", "old third"] {
            daemon.ctx(&["send", text]).ok();
        }
        let old = who(&daemon)["id"].clone();
        if down {
            assert_eq!(daemon.stop(), 0);
        } else {
            until("the session to be let go of", || {
                std::fs::File::open(log_path(&daemon)).unwrap().try_lock().is_ok().then_some(())
            });
        }
        if whole_dir {
            std::fs::remove_dir_all(session_dir(&daemon)).unwrap();
        } else {
            std::fs::remove_file(log_path(&daemon)).unwrap();
        }
        // The index knows a moment later. It forgets the old session if another takes the place before that.
        let of_state = |daemon: &TestDaemon, state: &str| {
            let listed = json_lines(&daemon.ctx(&["ls", "--json"]).ok());
            listed.iter().find(|row| row["state"] == state).map(|row| row["id"].clone())
        };
        if down {
            daemon.start_again();
            if whole_dir {
                until("the old session to be missed", || of_state(&daemon, "failed"));
            }
        }
        for text in ["new one", "new two"] {
            until("the message to be taken", || {
                (daemon.ctx(&["send", "--session", "default", text]).code == 0).then_some(())
            });
        }
        // The old one is failed until it is purged.
        assert_eq!(until("the old session to be listed", || of_state(&daemon, "failed")), old);
        let new = of_state(&daemon, "idle").unwrap();
        finds(&daemon, "new", &["new one", "new two"]);
        finds(&daemon, "old", &[]);
        for hit in json_lines(&daemon.ctx(&["search", "--json", "new"]).ok()) {
            assert!(hit.to_string().contains(new.as_str().unwrap()), "{hit}");
        }
        assert_eq!(daemon.stop(), 0);
        daemon.start_again();
        finds(&daemon, "new", &["new one", "new two"]);
        finds(&daemon, "old", &[]);
        assert!(daemon.ctx(&["doctor"]).stdout.contains(old.as_str().unwrap()), "it is told of");
        // The daemon takes in what is gone a moment after its start.
        until("the old session to be purged", || {
            (daemon.ctx(&["purge", old.as_str().unwrap(), "--yes"]).code == 0).then_some(())
        });
        daemon.ctx(&["doctor"]).ok();
    }
}

#[test]
fn a_copy_of_a_session_is_named_by_doctor_and_never_becomes_the_session() {
    let mut daemon = left_behind();
    let copy = session_dir(&daemon).with_file_name("a-copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(session_dir(&daemon)).arg(&copy).status();
    assert!(copied.unwrap().success());
    let found = problems(&daemon);
    let wanted = format!("home/{}/agent/coder/session/a-copy", uid());
    let told = |problem: &Value| problem["path"] == wanted && problem["what"].to_string().contains("same id");
    assert!(found.iter().any(told), "{found:?}");
    let path = format!("{wanted}/events.jsonl");
    assert!(
        found.iter().all(|problem| problem["path"] != path.as_str()),
        "nothing to repair in it: {found:?}"
    );
    // A repair of everything does not make it as good as the session.
    let before = std::fs::read(copy.join("events.jsonl")).unwrap();
    let told = daemon.ctx(&["repair", "--all", "--apply"]);
    assert!(told.code == 0 && told.stderr.contains("move it out of the root"), "{told:?}");
    daemon.ctx(&["repair", "coder/a-copy", "--apply"]).fails(1);
    assert_eq!(std::fs::read(copy.join("events.jsonl")).unwrap(), before);
    daemon.start_again();
    assert_eq!(daemon.ctx(&["send", "--session", "default", "goes on"]).ok(), "goes on\n");
    assert_eq!(daemon.stop(), 0);
    assert_eq!(said(&daemon), and_on(all_but(&[]), &["goes on"]), "the original is the session");
    std::fs::remove_dir_all(copy).unwrap();
    daemon.ctx(&["doctor"]).ok();
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
    until("the index to have read what is left", || {
        daemon.ctx(&["search", "second"]).stdout.contains("second").then_some(())
    });
    assert_eq!(daemon.stop(), 0);
    std::fs::remove_dir_all(session_dir(&daemon)).unwrap();
    let found = problems(&daemon);
    assert!(
        found.iter().any(|problem| problem["what"].as_str().unwrap().contains("is missing")),
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
    let sound = daemon.ctx(&["repair", "coder/default", "--apply"]);
    assert!(
        sound.code == 0 && sound.stderr.contains("nothing to repair"),
        "what is sound is let be: {sound:?}"
    );
    let begin = whole.split_inclusive(|b| *b == b'\n').take(hello - 1).map(<[u8]>::len).sum::<usize>();
    let file = std::fs::File::options().write(true).open(log_path(&daemon)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"garbage", begin as u64).unwrap();
    let refused = daemon.ctx(&["repair", "coder/default", "--apply"]).fails(1);
    assert!(
        refused.contains("another process has it open") && refused.contains("stop the daemon"),
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
    let told = daemon.ctx(&["doctor", "--settings"]).ok();
    for words in
        ["root ", "daemon    up", "index     version", "limits.running_per_project", "no problems found"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    let told = &json_lines(&daemon.ctx(&["doctor", "--deep", "--json"]).ok())[0];
    assert_eq!((&told["well"], &told["problems"]), (&true.into(), &Value::Array(Vec::new())));
    // The tests themselves say that no daemon is to be started.
    let mut settings = told["settings"].as_array().unwrap().iter().filter(|one| one["key"] != "autostart");
    assert!(settings.all(|setting| setting["origin"] == "default"));
    use std::os::unix::fs::PermissionsExt;
    let audit = daemon.root().join(".state/index.db");
    std::fs::set_permissions(&audit, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(daemon.ctx(&["doctor"]).fails(1).is_empty());
    assert_eq!(problems(&daemon)[0]["path"], ".state/index.db");
}

#[test]
fn doctor_works_without_a_root_and_with_a_broken_index() {
    let nothing = place();
    for command in ["fork", "archive", "end"] {
        assert!(
            nothing.ctx(&[command, "coder/default"]).fails(69).contains("ctx serve"),
            "only a daemon can {command}"
        );
    }
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
fn what_the_messages_still_say_of_a_lost_record_is_kept_by_a_repair() {
    let daemon = left_behind();
    let whole = log(&daemon);
    let second = line_with(&whole, "\"text\":\"second\"");
    std::fs::write(log_path(&daemon), with_line(&whole, second, |line| vec![0; line.len()])).unwrap();
    daemon.ctx(&["repair", "coder/default", "--apply"]).ok();
    let entries = std::fs::read_dir(session_dir(&daemon)).unwrap().flatten().map(|entry| entry.path());
    let kept: Vec<PathBuf> =
        entries.filter(|path| path.to_string_lossy().contains("/messages.jsonl.before-repair-")).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(std::fs::read_to_string(&kept[0]).unwrap().contains("second"));
    daemon.ctx(&["doctor"]).ok();
}

#[test]
fn a_repair_or_a_reindex_that_is_killed_leaves_everything_sound() {
    let mut daemon = left_behind();
    let whole = log(&daemon);
    let second = line_with(&whole, "\"text\":\"second\"");
    let damaged = with_line(&whole, second, |_| b"garbage".to_vec());
    let kept = |daemon: &TestDaemon| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(session_dir(daemon)).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.to_string_lossy().contains(".before-repair-")).collect()
    };
    for pause in [1, 3, 6, 10, 15, 25] {
        // What an earlier repair kept says nothing about this one.
        kept(&daemon).iter().for_each(|path| std::fs::remove_file(path).unwrap());
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
        let is_kept = || kept(&daemon).iter().any(|path| std::fs::read(path).unwrap() == damaged);
        assert!(log(&daemon) == damaged || is_kept(), "killed after {pause} ms");
        daemon.ctx(&["repair", "--all", "--apply"]).ok();
        assert!(is_kept(), "the original is kept");
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

/// A file of 8 TB that takes no room.
fn grow(path: &std::path::Path) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.set_len(8 << 40).unwrap();
}

#[test]
fn files_of_terabytes_are_damage_and_the_daemon_starts() {
    let mut daemon = left_behind();
    let default = session_dir(&daemon);
    daemon.start_again();
    for name in ["view", "blob", "log"] {
        assert_eq!(daemon.ctx(&["send", "--session", name, "hello"]).ok(), "hello\n");
    }
    assert_eq!(daemon.stop(), 0);
    let dir = |name: &str| default.with_file_name(name);
    grow(&dir("view").join("messages.jsonl"));
    grow(&dir("view").join("meta.json"));
    grow(&dir("log").join("events.jsonl"));
    let blobs = dir("blob").join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    grow(&blobs.join(format!("sha256-{}", "0".repeat(64))));
    daemon.start_again();
    assert_eq!(daemon.ctx(&["send", "--session", "default", "still here"]).ok(), "still here\n");
    for name in ["view", "blob"] {
        assert_eq!(daemon.ctx(&["send", "--session", name, "again"]).ok(), "again\n");
    }
    let shown = until("the view", || {
        let text = std::fs::read(dir("view").join("messages.jsonl")).ok()?;
        (text.len() < 1 << 20).then_some(String::from_utf8_lossy(&text).into_owned())
    });
    assert!(shown.contains("hello") && shown.contains("again"), "{shown}");
    let listed = json_lines(&daemon.ctx(&["ls", "--json"]).ok());
    let failed: Vec<_> = listed.iter().filter(|session| session["state"] == "failed").collect();
    assert_eq!((failed.len(), &failed[0]["name"]), (1, &"log".into()), "{listed:?}");
    assert_eq!(daemon.stop(), 0);
    let found = problems(&daemon);
    let names_it = |problem: &Value| {
        let text = problem.to_string();
        text.contains("session/log/events.jsonl") && text.contains("8796093022208 bytes")
    };
    assert!(found.iter().any(names_it), "{found:?}");
}
