//! Forks and removals: whole or not at all, whatever crash comes between, and nothing shared after.

use std::fs;
use std::sync::Arc;

use ctx_journal::sim::{Fault, Moment, Op, SimDisk};
use ctx_journal::{BlobRef, DamageKind, Entry, FileJournal, Fork, ForkEnds, Journal, JournalError, LogPath};

use crate::support::{at, body, command, create, log, me, over_every_journal, read, real, seqs};

fn other() -> LogPath {
    LogPath::new("home/0/agent/coder/session/other/events.jsonl").unwrap()
}

fn ends(seq: u64) -> ForkEnds {
    ForkEnds {
        first: format!(r#"{{"type":"session_meta","name":"other","forked_at":{seq}}}"#),
        last: body("forked", ""),
    }
}

fn fork_at(journal: &dyn Journal, place: Option<u64>) -> Result<u64, JournalError> {
    let (from, to) = (log(), other());
    journal.fork(&Fork { from: &from, at: place, to: &to, owner: me(), time: at(50) }, &ends)
}

fn entries(journal: &dyn Journal, log: &LogPath) -> Result<Vec<Entry>, JournalError> {
    let mut entries = Vec::new();
    let opened = journal.open(log, at(100), &mut |entry| entries.push(entry))?;
    assert_eq!(opened.damage, [], "{log}");
    Ok(entries)
}

fn lines(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.text.as_str()).collect()
}

/// A log of three commands, records 0, 1 to 2 and 3, with a blob.
fn filled(journal: &dyn Journal) -> BlobRef {
    let writer = create(journal);
    let blob = journal.put_blob(&log(), b"large output").unwrap();
    writer.append(1, at(1), &command(&["a", "b"])).unwrap();
    writer.append(3, at(2), &command(&["c"])).unwrap();
    blob
}

#[test]
fn a_fork_has_the_records_and_the_blobs_of_its_source_between_its_own_two_ends() {
    over_every_journal(|journal| {
        let blob = filled(journal);
        assert_eq!(fork_at(journal, None).unwrap(), 4);
        let (source, fork) = (entries(journal, &log()).unwrap(), entries(journal, &other()).unwrap());
        assert_eq!(seqs(&fork), [0, 1, 2, 3, 4]);
        assert_eq!(lines(&fork)[1..4], lines(&source)[1..4], "copied as they are");
        assert!(fork[0].text.contains(r#""forked_at":3"#), "{}", fork[0].text);
        assert_eq!((fork[4].kind.as_str(), fork[4].time), ("forked", at(50)));
        assert_eq!(journal.get_blob(&other(), &blob.sha256).unwrap(), b"large output");
    });
}

#[test]
fn a_fork_from_a_record_ends_with_it() {
    over_every_journal(|journal| {
        filled(journal);
        assert_eq!(fork_at(journal, Some(2)).unwrap(), 3);
        assert_eq!(seqs(&entries(journal, &other()).unwrap()), [0, 1, 2, 3]);
        journal.remove(&other()).unwrap();
        assert_eq!(fork_at(journal, Some(0)).unwrap(), 1);
        assert_eq!(seqs(&entries(journal, &other()).unwrap()), [0, 1]);
    });
}

#[test]
fn a_place_inside_a_command_or_beyond_the_end_is_refused_and_leaves_nothing() {
    over_every_journal(|journal| {
        filled(journal);
        let refused = fork_at(journal, Some(1));
        assert!(matches!(refused, Err(JournalError::InsideCommand { seq: 1, end: 2, .. })), "{refused:?}");
        assert!(matches!(fork_at(journal, Some(4)), Err(JournalError::NoRecord { seq: 4, .. })));
        assert!(matches!(journal.head(&other()), Err(JournalError::NotThere { .. })));
        assert_eq!(journal.list("").unwrap(), [log()]);
    });
}

#[test]
fn a_name_that_is_taken_and_a_source_that_is_not_there_are_refused() {
    over_every_journal(|journal| {
        assert!(matches!(fork_at(journal, None), Err(JournalError::NotThere { .. })));
        filled(journal);
        fork_at(journal, None).unwrap();
        assert!(matches!(fork_at(journal, Some(2)), Err(JournalError::AlreadyThere { .. })));
        assert_eq!(entries(journal, &other()).unwrap().len(), 5, "what was there stays");
    });
}

#[test]
fn a_log_that_is_written_to_is_forked_as_far_as_it_is_committed_and_both_go_on_alone() {
    over_every_journal(|journal| {
        let writer = create(journal);
        writer.append(1, at(1), &command(&["a"])).unwrap();
        fork_at(journal, None).unwrap();
        writer.append(2, at(2), &command(&["only here"])).unwrap();
        let opened = journal.open(&other(), at(3), &mut |_| {}).unwrap();
        opened.writer.append(3, at(3), &command(&["only there"])).unwrap();
        drop((writer, opened));
        let here = lines(&entries(journal, &log()).unwrap()).join("\n");
        let there = lines(&entries(journal, &other()).unwrap()).join("\n");
        assert!(here.contains("only here") && !here.contains("only there"));
        assert!(there.contains("only there") && !there.contains("only here"));
    });
}

#[test]
fn damaged_lines_are_copied_as_they_are_and_a_torn_tail_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    filled(&journal);
    let path = dir.path().join(log().as_str());
    let text = fs::read_to_string(&path).unwrap();
    let damaged =
        text.replacen("\"text\":\"a\"", "\"text\":\"\u{0}", 1) + "{\"schema_version\":1,\"seq\":4,\"ti";
    fs::write(&path, &damaged).unwrap();
    fork_at(&journal, None).unwrap();
    let fork = fs::read_to_string(dir.path().join(other().as_str())).unwrap();
    let own: Vec<&str> = fork.lines().collect();
    assert_eq!(own[1..4], damaged.lines().collect::<Vec<_>>()[1..4]);
    assert!(own[4].contains("forked") && own.len() == 5, "{fork}");
    let mut found = Vec::new();
    let opened = journal.open(&other(), at(9), &mut |entry| found.push(entry.seq)).unwrap();
    assert_eq!(found, [0, 2, 3, 4]);
    let kinds = opened.damage.iter().map(|damage| &damage.kind);
    assert!(kinds.clone().any(|kind| matches!(kind, DamageKind::BadLine { .. })), "{:?}", opened.damage);
    assert_eq!(fs::read_to_string(&path).unwrap(), damaged, "the source is not touched");
}

#[test]
fn a_source_without_its_first_record_is_forked_whole() {
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    filled(&journal);
    let path = dir.path().join(log().as_str());
    let text = fs::read_to_string(&path).unwrap();
    for headless in
        [text.split_once('\n').unwrap().1.to_owned(), format!("junk\n{}", text.split_once('\n').unwrap().1)]
    {
        fs::write(&path, &headless).unwrap();
        fork_at(&journal, None).unwrap();
        assert_eq!(seqs(&entries(&journal, &other()).unwrap()), [0, 1, 2, 3, 4]);
        journal.remove(&other()).unwrap();
    }
}

#[test]
fn a_long_log_is_forked_from_a_record_in_its_middle() {
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    let writer = create(&journal);
    let filling = "x".repeat(500);
    for seq in 1..2_000 {
        writer.append_soon(at(seq), &command(&[&filling])).unwrap();
    }
    drop(writer);
    assert_eq!(fork_at(&journal, Some(1_234)).unwrap(), 1_235);
    assert_eq!(seqs(&entries(&journal, &other()).unwrap()), (0..=1_235).collect::<Vec<_>>());
}

#[test]
fn neither_of_two_forks_reaches_into_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    let blob = filled(&journal);
    fork_at(&journal, None).unwrap();
    let before = fs::read(dir.path().join(other().as_str())).unwrap();
    let here = dir.path().join(log().as_str());
    let name = format!("blobs/sha256-{}", blob.sha256);
    // In place, as an editor or a failing disk would: a shared inode would show it in both.
    fs::write(&here, "garbage").unwrap();
    fs::write(here.with_file_name(&name), "garbage").unwrap();
    assert_eq!(fs::read(dir.path().join(other().as_str())).unwrap(), before);
    assert_eq!(journal.get_blob(&other(), &blob.sha256).unwrap(), b"large output");
    journal.remove(&log()).unwrap();
    assert_eq!(entries(&journal, &other()).unwrap().len(), 5);
    assert_eq!(journal.get_blob(&other(), &blob.sha256).unwrap(), b"large output");
}

#[test]
fn a_full_disk_refuses_a_fork_and_takes_back_what_it_wrote() {
    for after in 0..3 {
        let disk = SimDisk::new();
        let journal = FileJournal::new(Arc::new(disk.clone()));
        filled(&journal);
        disk.fail(Op::Write, after, Fault::NoSpace);
        assert!(matches!(fork_at(&journal, None), Err(JournalError::NoSpace { .. })));
        assert!(!disk.files().iter().any(|file| file.contains("forks")), "{:?}", disk.files());
        fork_at(&journal, None).unwrap();
    }
}

/// Every disk that a crash, or a killed process, at one of these moments could leave; swept, as a start does.
fn after_crashes(moments: &[Moment], check: impl Fn(&FileJournal, u64)) {
    for moment in moments {
        for disk in moment.crash(7, 256).into_iter().chain([moment.kill()]) {
            let journal = FileJournal::new(Arc::new(disk.clone()));
            journal.sweep().unwrap();
            let beside = |file: &String| file.contains("/forks/") || file.contains("/trash/");
            assert!(!disk.files().iter().any(beside), "{:?}", disk.files());
            check(&journal, moment.op);
        }
    }
}

#[test]
fn a_crash_in_the_middle_of_a_fork_leaves_it_whole_or_not_there() {
    let disk = SimDisk::new();
    let journal = FileJournal::new(Arc::new(disk.clone()));
    let blob = filled(&journal);
    let source = read(&journal, 0).0;
    disk.record();
    fork_at(&journal, None).unwrap();
    let (moments, done) = (disk.take_moments(), disk.now());
    assert!(moments.len() > 10, "the fork was seen at work");
    let check = |journal: &FileJournal, must_be: bool| {
        assert_eq!(lines(&entries(journal, &log()).unwrap()), lines(&source), "the source is not touched");
        match entries(journal, &other()) {
            Ok(fork) => {
                assert_eq!(seqs(&fork), [0, 1, 2, 3, 4]);
                assert_eq!(journal.get_blob(&other(), &blob.sha256).unwrap(), b"large output");
            }
            Err(JournalError::NotThere { .. }) => assert!(!must_be, "an acknowledged fork is lost"),
            Err(error) => panic!("{error}"),
        }
    };
    after_crashes(&moments, |journal, _| check(journal, false));
    after_crashes(&[done], |journal, _| check(journal, true));
}

#[test]
fn a_crash_in_the_middle_of_a_removal_leaves_the_log_whole_or_gone() {
    let disk = SimDisk::new();
    let journal = FileJournal::new(Arc::new(disk.clone()));
    let blob = filled(&journal);
    disk.record();
    journal.remove(&log()).unwrap();
    let (moments, done) = (disk.take_moments(), disk.now());
    let check = |journal: &FileJournal, may_be: bool| match entries(journal, &log()) {
        Ok(found) => {
            assert!(may_be, "a removed log is back");
            assert_eq!(seqs(&found), [0, 1, 2, 3]);
            assert_eq!(journal.get_blob(&log(), &blob.sha256).unwrap(), b"large output");
        }
        Err(JournalError::NotThere { .. }) => assert_eq!(journal.list("").unwrap(), []),
        Err(error) => panic!("{error}"),
    };
    after_crashes(&moments, |journal, _| check(journal, true));
    after_crashes(&[done], |journal, _| check(journal, false));
}

#[test]
fn a_log_that_is_taken_away_is_told_of_whenever_it_crashes_and_one_that_stays_is_not() {
    let disk = SimDisk::new();
    let journal = FileJournal::new(Arc::new(disk.clone()));
    filled(&journal);
    disk.record();
    journal.move_to_trash(&log(), "it went").unwrap();
    let gone_since = disk.ops();
    let mut heard_at = None;
    journal
        .empty_trash(&mut |notice| {
            assert_eq!(notice, "it went");
            heard_at = Some(disk.ops());
            true
        })
        .unwrap();
    let heard_at = heard_at.unwrap();
    assert!(!disk.files().iter().any(|file| file.contains("/trash/")), "{:?}", disk.files());
    let (mut moments, done) = (disk.take_moments(), disk.now());
    moments.push(done);
    let (mut stayed, mut told) = (0, 0);
    for moment in &moments {
        for disk in moment.crash(7, 256).into_iter().chain([moment.kill()]) {
            let journal = FileJournal::new(Arc::new(disk.clone()));
            journal.sweep().unwrap();
            // First nobody hears it, then somebody does, and then there is nothing more to hear.
            let (mut before, mut after) = (Vec::new(), Vec::new());
            journal.empty_trash(&mut |notice| (before.push(notice.to_owned()), false).1).unwrap();
            journal.empty_trash(&mut |notice| (after.push(notice.to_owned()), true).1).unwrap();
            assert_eq!(before, after);
            let is_there = entries(&journal, &log()).is_ok();
            match is_there {
                true => assert!(moment.op <= gone_since && after.is_empty(), "at {}", moment.op),
                false => assert!(!after.is_empty() || moment.op > heard_at, "nobody heard, at {}", moment.op),
            }
            (stayed, told) = (stayed + usize::from(is_there), told + after.len());
            assert!(!disk.files().iter().any(|file| file.contains("/trash/")), "{:?}", disk.files());
            journal.empty_trash(&mut |notice| panic!("told again: {notice}")).unwrap();
        }
    }
    assert!(stayed > 2 && told > 2, "stayed {stayed} times, told {told} times");
}

#[test]
fn bytes_that_cannot_be_removed_keep_nobody_from_hearing_that_a_log_went() {
    let disk = SimDisk::new();
    let journal = FileJournal::new(Arc::new(disk.clone()));
    filled(&journal);
    fork_at(&journal, None).unwrap();
    journal.move_to_trash(&log(), "one went").unwrap();
    journal.move_to_trash(&other(), "another went").unwrap();
    // The first thing to be removed is a file of the first log.
    disk.fail(Op::Name, 0, Fault::Io);
    let mut heard = Vec::new();
    journal.empty_trash(&mut |notice| (heard.push(notice.to_owned()), true).1).unwrap_err();
    heard.sort_unstable();
    assert_eq!(heard, ["another went", "one went"]);
    // What is left goes the next time.
    disk.heal();
    heard.clear();
    journal.empty_trash(&mut |notice| (heard.push(notice.to_owned()), true).1).unwrap();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(!disk.files().iter().any(|file| file.contains("/trash/")), "{:?}", disk.files());
}
