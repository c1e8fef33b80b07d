//! What every journal promises, on the real disk, on the simulated one and in memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use ctx_journal::{AppendError, Committed, Journal, JournalError, LogPath};
use ctx_session::Code;

use crate::support::*;

#[test]
fn a_log_is_made_with_its_first_command_and_only_once() {
    over_every_journal(|journal| {
        let writer = create(journal);
        assert_eq!(writer.next_seq(), 1);
        drop(writer);
        let again = journal.create(&log(), me(), at(1), &meta());
        assert!(matches!(again.map(|_| ()), Err(JournalError::AlreadyThere { .. })));
        assert_eq!(read(journal, 0).0[0].kind, "session_meta");
    });
}

#[test]
fn what_was_appended_is_there_after_opening_again_and_appending_goes_on() {
    over_every_journal(|journal| {
        let writer = create(journal);
        assert_eq!(writer.append(1, at(1), &command(&["a", "b"])), Ok(Committed { first: 1, next: 3 }));
        assert_eq!(writer.append_next(at(2), &command(&["c"])), Ok(Committed { first: 3, next: 4 }));
        drop(writer);
        let (opened, entries) = open(journal).unwrap();
        assert_eq!(opened.damage, []);
        assert_eq!(seqs(&entries), [0, 1, 2, 3]);
        assert_eq!(entries.iter().map(|e| e.more).collect::<Vec<_>>(), [false, true, false, false]);
        assert_eq!(entries.iter().map(|e| e.line).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(entries[3].time, at(2));
        assert_eq!(
            entries[1].text,
            r#"{"schema_version":1,"seq":1,"time":"2026-11-15T06:00:01.000Z","type":"note","text":"a","more":true}"#
        );
        assert_eq!(opened.writer.append(4, at(3), &command(&["d"])), Ok(Committed { first: 4, next: 5 }));
        assert_eq!(seqs(&read(journal, 0).0), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn a_log_can_be_taken_up_where_it_was_left() {
    over_every_journal(|journal| {
        let writer = create(journal);
        let text = "x".repeat(10_000);
        for second in 1..=100 {
            writer.append_next(at(second), &command(&[&text, "end"])).unwrap();
        }
        drop(writer);
        // The first, some in between, the last, and one that is not there: what follows is handed out.
        for (from, first) in [(0, 0), (1, 1), (100, 100), (180, 180), (200, 200), (201, 201), (500, 201)] {
            let mut entries = Vec::new();
            let opened = journal.open_from(&log(), at(101), from, &mut |entry| entries.push(entry)).unwrap();
            assert_eq!(opened.damage, []);
            assert_eq!(seqs(&entries), (first..201).collect::<Vec<u64>>(), "from {from}");
            assert_eq!(opened.writer.next_seq(), 201, "from {from}");
        }
    });
}

#[test]
fn a_torn_tail_is_cut_also_where_the_beginning_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    let writer = create(&journal);
    for second in 1..=100 {
        writer.append_next(at(second), &command(&[&"x".repeat(10_000)])).unwrap();
    }
    drop(writer);
    let path = dir.path().join(PATH);
    let mut bytes = std::fs::read(&path).unwrap();
    // Damage that is not read is not reported.
    bytes[20_000..20_010].fill(b'\n');
    let whole = bytes.clone();
    bytes.extend_from_slice(b"{\"schema_version\":1,\"seq\":101,\"ti");
    std::fs::write(&path, &bytes).unwrap();
    let mut entries = Vec::new();
    let opened = journal.open_from(&log(), at(101), 90, &mut |entry| entries.push(entry)).unwrap();
    assert_eq!(seqs(&entries), (90..=100).collect::<Vec<u64>>());
    assert_eq!(opened.writer.next_seq(), 101);
    let [damage] = opened.damage.as_slice() else { panic!("{:?}", opened.damage) };
    let lines = whole.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!((damage.line, damage.offset), (lines + 1, whole.len() as u64), "{damage}");
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == whole, "the tail is cut off");
    // Who reads all of it hears of the damage.
    assert!(!open(&journal).unwrap().0.damage.is_empty());
}

#[test]
fn an_append_at_another_seq_than_the_next_is_a_conflict_and_writes_nothing() {
    over_every_journal(|journal| {
        let writer = create(journal);
        let refused = writer.append(5, at(1), &command(&["a"])).unwrap_err();
        assert_eq!(refused, AppendError::Conflict { log: log(), expected: 5, next: 1 });
        assert_eq!(refused.code(), Code::Ebusy);
        assert!(refused.to_string().contains(PATH));
        assert_eq!(seqs(&read(journal, 0).0), [0]);
        assert!(writer.append(1, at(1), &command(&["a"])).is_ok());
    });
}

#[test]
fn a_body_that_could_not_be_read_back_is_refused_and_writes_nothing() {
    over_every_journal(|journal| {
        let writer = create(journal);
        for bad in ["", "{}", "[1]", r#"{"a":1}"#, r#"{"type":"x","seq":9}"#, "{\"type\":\"x\"}\n{}"] {
            let refused = writer.append_next(at(1), &[body("note", "good"), bad.to_owned()]);
            assert!(matches!(refused, Err(AppendError::BadBody { index: 1, .. })), "{bad}: {refused:?}");
        }
        assert!(matches!(writer.append_next(at(1), &[]), Err(AppendError::BadBody { .. })));
        let large = vec![body("note", &"x".repeat(7 << 20)); 5];
        assert!(matches!(writer.append_next(at(1), &large), Err(AppendError::TooLarge { .. })));
        assert_eq!(seqs(&read(journal, 0).0), [0]);
    });
}

#[test]
fn a_second_writer_is_refused_until_the_first_lets_go() {
    over_every_journal(|journal| {
        let writer = create(journal);
        let second = open(journal).map(|_| ()).unwrap_err();
        assert!(matches!(second, JournalError::Locked { .. }), "{second}");
        drop(writer);
        let (opened, _) = open(journal).unwrap();
        assert!(matches!(open(journal).map(|_| ()), Err(JournalError::Locked { .. })));
        drop(opened);
        assert!(open(journal).is_ok());
    });
}

#[test]
fn a_log_that_is_not_there_is_said_to_be_not_there() {
    over_every_journal(|journal| {
        let missing = open(journal).map(|_| ()).unwrap_err();
        assert_eq!(missing.code(), Code::Enoent);
        assert!(missing.to_string().starts_with(PATH));
        assert!(matches!(journal.head(&log()), Err(JournalError::NotThere { .. })));
        assert!(matches!(journal.remove(&log()), Err(JournalError::NotThere { .. })));
    });
}

#[test]
fn reading_begins_at_a_seq_and_stops_when_told() {
    over_every_journal(|journal| {
        let writer = create(journal);
        for n in 1..50 {
            writer.append(n, at(n), &command(&["x"])).unwrap();
        }
        assert_eq!(seqs(&read(journal, 47).0), [47, 48, 49]);
        assert!(read(journal, 50).0.is_empty());
        let mut seen = Vec::new();
        let stopped = journal.read(&log(), 10, &mut |entry| {
            seen.push(entry.seq);
            if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(stopped.unwrap(), []);
        assert_eq!(seen, [10, 11, 12]);
    });
}

#[test]
fn a_long_log_is_read_from_any_seq_and_from_its_end() {
    over_every_journal(|journal| {
        let writer = create(journal);
        let filling = "y".repeat(2000);
        let mut next = 1;
        while next < 600 {
            next = writer.append_soon(at(next), &command(&[&filling, "x", &filling])).unwrap().next;
        }
        for from in [0, 1, 2, 300, 301, 302, next - 1] {
            let (entries, damage) = read(journal, from);
            assert_eq!(damage, []);
            assert_eq!(seqs(&entries), (from..next).collect::<Vec<_>>());
        }
        assert_eq!(seqs(&read_back(journal)), (0..next).rev().collect::<Vec<_>>());
        let mut last = None;
        let one = journal.read_back(&log(), &mut |entry| {
            last = Some(entry.seq);
            ControlFlow::Break(())
        });
        assert!(one.is_ok());
        assert_eq!(last, Some(next - 1));
    });
}

#[test]
fn the_head_is_the_first_record() {
    over_every_journal(|journal| {
        let writer = create(journal);
        writer.append_next(at(1), &command(&["a"])).unwrap();
        let head = journal.head(&log()).unwrap().unwrap();
        assert_eq!((head.seq, head.kind.as_str(), head.line), (0, "session_meta", 1));
    });
}

#[test]
fn one_look_at_both_ends_says_what_two_looks_say() {
    over_every_journal(|journal| {
        let writer = create(journal);
        for text in ["a", "b", "c"] {
            writer.append_next(at(1), &command(&[text, "more"])).unwrap();
        }
        let mut back = Vec::new();
        let first = journal.ends(&log(), &mut |first, entry| {
            assert_eq!(first.map(|first| first.seq), Some(0));
            back.push(entry);
            if back.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert_eq!(first.unwrap(), journal.head(&log()).unwrap());
        assert_eq!(back, read_back(journal)[..3]);
    });
}

#[test]
fn a_renamed_log_takes_everything_along_and_its_writer_goes_on() {
    over_every_journal(|journal| {
        let to = LogPath::new("home/0/agent/coder/session/other/events.jsonl").unwrap();
        let writer = create(journal);
        let blob = journal.put_blob(&log(), b"large").unwrap();
        journal.rename(&log(), &to).unwrap();
        writer.append(1, at(1), &command(&["after"])).unwrap();
        let conflict = writer.append(1, at(1), &command(&["after"])).unwrap_err();
        assert!(conflict.to_string().starts_with(to.as_str()), "{conflict}");
        drop(writer);
        assert!(matches!(journal.head(&log()), Err(JournalError::NotThere { .. })));
        let mut count = 0;
        journal.open(&to, at(9), &mut |_| count += 1).unwrap();
        assert_eq!(count, 2);
        assert_eq!(journal.get_blob(&to, &blob.sha256).unwrap(), b"large");
    });
}

#[test]
fn a_log_is_not_renamed_onto_another() {
    over_every_journal(|journal| {
        let to = LogPath::new("home/0/agent/coder/session/other/events.jsonl").unwrap();
        create(journal);
        journal.create(&to, me(), at(0), &meta()).unwrap();
        assert!(matches!(journal.rename(&log(), &to), Err(JournalError::AlreadyThere { .. })));
        assert!(journal.head(&log()).unwrap().is_some());
    });
}

#[test]
fn logs_are_listed_and_removed() {
    over_every_journal(|journal| {
        let other = LogPath::new(".state/project/demo/events.jsonl").unwrap();
        drop(create(journal));
        drop(journal.create(&other, me(), at(0), &meta()).unwrap());
        journal.put_blob(&log(), b"x").unwrap();
        let mut listed = journal.list("").unwrap();
        listed.sort();
        assert_eq!(listed, [other.clone(), log()]);
        assert_eq!(journal.list("home").unwrap(), [log()]);
        assert_eq!(journal.list("nowhere").unwrap(), []);
        assert_eq!(journal.list("home/*/agent/*/session").unwrap(), [log()]);
        assert_eq!(journal.list("home/*/model/*/session").unwrap(), []);
        journal.remove(&log()).unwrap();
        assert_eq!(journal.list("").unwrap(), [other]);
        assert!(matches!(journal.head(&log()), Err(JournalError::NotThere { .. })));
        drop(create(journal));
    });
}

#[test]
fn a_blob_is_stored_once_under_its_hash_and_checked_when_read() {
    over_every_journal(|journal| {
        drop(create(journal));
        let blob = journal.put_blob(&log(), b"hello").unwrap();
        assert_eq!(blob.sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert_eq!(blob.size, 5);
        assert_eq!(journal.put_blob(&log(), b"hello").unwrap(), blob);
        assert_eq!(journal.get_blob(&log(), &blob.sha256).unwrap(), b"hello");
        for wrong in ["", "../../x", &"0".repeat(64), &"A".repeat(64)] {
            assert!(matches!(journal.get_blob(&log(), wrong), Err(JournalError::NoBlob { .. })), "{wrong}");
        }
    });
}

#[test]
fn threads_that_share_a_writer_get_every_seq_once() {
    over_every_journal(|journal| {
        let writer = Arc::new(create(journal));
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let writer = Arc::clone(&writer);
                std::thread::spawn(move || {
                    let append = |n: u64| {
                        let text = format!("{thread}-{n}");
                        if n.is_multiple_of(3) {
                            writer.append_soon(at(n), &command(&[&text])).unwrap()
                        } else {
                            writer.append_next(at(n), &command(&[&text, "second"])).unwrap()
                        }
                    };
                    (0..25).map(append).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut got: Vec<Committed> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        got.sort_by_key(|committed| committed.first);
        let mut next = 1;
        for committed in got {
            assert_eq!(committed.first, next);
            next = committed.next;
        }
        drop(writer);
        let (opened, entries) = open(journal).unwrap();
        assert_eq!(opened.damage, []);
        assert_eq!(seqs(&entries), (0..next).collect::<Vec<_>>());
    });
}
