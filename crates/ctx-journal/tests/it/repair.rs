//! Repair: what is whole stays as it is, what is bad is set aside, and a repaired log opens without damage.

use std::io;
use std::sync::Arc;

use ctx_journal::repair::{Anew, Judge, Plan, RepairError, Repaired, Unfit, Versions, Where, plan};
use ctx_journal::sim::{Fault, Op, SimDisk};
use ctx_journal::{Entry, FileJournal, JournalError, LOST};
use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::support::*;

fn line(seq: u64, rest: &str) -> String {
    format!(r#"{{"schema_version":1,"seq":{seq},"time":"2026-11-15T06:00:00.000Z","type":"note"{rest}}}"#)
}

fn lines(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}

/// Makes record 0 anew where there is none.
fn anew(there: Option<&Entry>) -> Option<Anew> {
    there.is_none().then(|| meta(Where::First))
}

fn meta(at: Where) -> Anew {
    let body = r#"{"type":"session_meta","name":"default"}"#.to_owned();
    Anew { body, why: "it does not say what it is".to_owned(), at }
}

const JUDGE: Judge<'static> = Judge { first: &anew, ..Judge::STRANGER };

fn planned(bytes: &[u8]) -> Plan {
    plan(&log(), bytes, at(100), JUDGE).unwrap()
}

fn disk_with(bytes: &[u8]) -> (SimDisk, FileJournal) {
    let disk = SimDisk::new();
    disk.put(PATH, bytes);
    (disk.clone(), FileJournal::new(Arc::new(disk)))
}

fn repair(journal: &FileJournal) -> Result<Repaired, RepairError> {
    journal.repair(&log(), at(100), JUDGE, &mut || Ok(()))
}

/// What a repair does to a log, as a person is shown it, and that the mended log is sound.
fn check(bytes: &[u8], expect: Expect) {
    let plan = planned(bytes);
    let mut shown = String::new();
    for change in &plan.changes {
        shown += &format!("line {}: {}\n", change.line, change.why.join("; "));
        change.was.iter().for_each(|was| shown += &format!("- {was}\n"));
        change.becomes.iter().for_each(|becomes| shown += &format!("+ {becomes}\n"));
    }
    let short = shown
        .replace(r#""schema_version":1,"#, "")
        .replace(r#""time":"2026-11-15T06:00:00.000Z","#, "")
        .replace(r#""type":"note""#, "note");
    expect.assert_eq(&short);
    let (disk, journal) = disk_with(bytes);
    let repaired = repair(&journal).unwrap();
    assert_eq!(disk.contents(PATH).unwrap(), plan.mended(bytes));
    assert_eq!(repaired.plan, plan);
    if !plan.is_sound() {
        assert_eq!(
            disk.contents(repaired.original.as_ref().unwrap()).unwrap(),
            bytes,
            "the original is kept"
        );
    }
    let (opened, entries) = open(&journal).unwrap();
    assert_eq!(opened.damage, []);
    assert_eq!(entries.len() as u64, plan.records);
    drop(opened);
    assert_eq!(seqs(&read_back(&journal)).iter().rev().copied().collect::<Vec<_>>(), seqs(&entries));
    assert!(planned(&disk.contents(PATH).unwrap()).is_sound(), "a second repair has nothing to do");
}

#[test]
fn a_sound_log_is_left_alone() {
    let bytes = lines(&[&line(0, ""), &line(1, r#","more":true"#), &line(2, r#","batch":2"#)]);
    check(&bytes, expect![""]);
    let (disk, journal) = disk_with(&bytes);
    assert_eq!(repair(&journal).unwrap().original, None);
    assert_eq!(disk.files(), [PATH]);
}

#[test]
fn two_records_run_together_are_parted() {
    let bytes = lines(&[&line(0, ""), &(line(1, "") + &line(2, "")), &line(3, ""), &line(4, "")]);
    check(
        &bytes,
        expect![[r#"
            line 2: not a record: two records run together
            - {"seq":1,note}{"seq":2,note}
            + {"seq":1,note}
            + {"seq":2,note}
        "#]],
    );
}

#[test]
fn garbage_is_set_aside_and_its_place_is_held() {
    let bytes = lines(&[&line(0, ""), "garbage", "\0\0", &line(3, ""), &line(4, "")]);
    check(
        &bytes,
        expect![[r#"
            line 2: not a record: expected value; not a record: NUL bytes; records 1 to 2 are missing
            - garbage
            - ��
            + {"seq":1,"type":"lost","through":2,"repaired_at":"2026-11-15T06:01:40.000Z"}
        "#]],
    );
    let (disk, journal) = disk_with(&bytes);
    let aside = repair(&journal).unwrap().set_aside.unwrap();
    assert_eq!(aside, format!("{PATH}.quarantine-20261115T060140.000Z"));
    assert_eq!(disk.contents(&aside).unwrap(), b"garbage\n\0\0\n");
}

#[test]
fn what_is_whole_in_a_bad_line_is_salvaged() {
    let bad = format!("{{\"schema_version\":1,\"seq\":1,\"ti{}rubbish", line(2, ""));
    check(
        &lines(&[&line(0, ""), &bad, &line(3, ""), &line(4, "")]),
        expect![[r#"
            line 2: not a record: expected `:`; record 1 is missing
            - {"seq":1,"ti{"seq":2,note}rubbish
            + {"seq":1,"type":"lost","through":1,"repaired_at":"2026-11-15T06:01:40.000Z"}
            + {"seq":2,note}
        "#]],
    );
}

#[test]
fn a_gap_is_held_by_one_record_however_wide_it_is() {
    let far = 90_000_000_000;
    check(
        &lines(&[&line(0, ""), &line(far, ""), &line(far + 1, "")]),
        expect![[r#"
            line 2: records 1 to 89999999999 are missing
            + {"seq":1,"type":"lost","through":89999999999,"repaired_at":"2026-11-15T06:01:40.000Z"}
        "#]],
    );
}

#[test]
fn a_repeat_goes_and_the_first_one_stays() {
    let again = line(1, r#","text":"again""#);
    check(
        &lines(&[&line(0, ""), &line(1, ""), &again, &line(2, "")]),
        expect![[r#"
            line 3: skipped, record 1 is a duplicate
            - {"seq":1,note,"text":"again"}
        "#]],
    );
}

#[test]
fn a_record_whose_seq_alone_is_wrong_gets_its_own_back() {
    check(
        &lines(&[&line(0, ""), &line(900_001, r#","text":"hi""#), &line(2, ""), &line(3, "")]),
        expect![[r#"
            line 2: skipped, seq 900001 does not fit where 1 was due; record 1 is missing
            - {"seq":900001,note,"text":"hi"}
            + {"seq":1,note,"text":"hi"}
        "#]],
    );
    // One that was copied from elsewhere does not.
    let (disk, journal) = disk_with(&lines(&[&line(0, ""), &line(3, ""), &line(2, ""), &line(3, "")]));
    repair(&journal).unwrap();
    assert!(
        String::from_utf8(disk.contents(PATH).unwrap())
            .unwrap()
            .contains(r#""seq":1,"time":"2026-11-15T06:00:00.000Z","type":"lost""#)
    );
}

#[test]
fn a_record_with_a_wrong_seq_behind_a_bad_line_does_not_become_the_last_one() {
    let mut text: Vec<String> = (0..=6).map(|seq| line(seq, "")).collect();
    text[2] = "garbage".to_owned();
    text[3] = line(93, r#","text":"old""#);
    let (disk, journal) = disk_with(&lines(&text.iter().map(String::as_str).collect::<Vec<_>>()));
    repair(&journal).unwrap();
    let (opened, entries) = open(&journal).unwrap();
    assert_eq!(opened.damage, []);
    assert_eq!(entries.last().map(|entry| entry.seq), Some(6), "{:?}", seqs(&entries));
    assert!(disk.files().iter().any(|file| file.contains(".before-repair-")));
}

#[test]
fn a_missing_first_record_is_made_anew() {
    check(
        &lines(&["garbage", &line(1, ""), &line(3, ""), &line(4, "")]),
        expect![[r#"
            line 1: the log does not begin with record 0; not a record: expected value
            - garbage
            + {"seq":0,"type":"session_meta","name":"default"}
            line 3: record 2 is missing
            + {"seq":2,"type":"lost","through":2,"repaired_at":"2026-11-15T06:01:40.000Z"}
        "#]],
    );
    check(
        b"",
        expect![[r#"
            line 1: the log does not begin with record 0
            + {"seq":0,"time":"2026-11-15T06:01:40.000Z","type":"session_meta","name":"default"}
        "#]],
    );
    let nothing = plan(&log(), b"garbage\n", at(100), Judge::STRANGER).unwrap_err();
    assert!(matches!(nothing, RepairError::NothingUsable { .. }), "{nothing}");
    let held = plan(&log(), &lines(&[&line(2, ""), &line(3, "")]), at(100), Judge::STRANGER).unwrap();
    assert!(held.changes[0].becomes[0].contains(r#""seq":0,"#), "{held:?}");
}

#[test]
fn a_whole_record_keeps_its_place_whatever_the_log_lacks() {
    for bytes in [
        lines(&[&line(0, ""), &line(1, "")]),
        lines(&[&line(0, ""), "garbage", &line(2, "")]),
        [lines(&[&line(0, "")]), line(1, "").as_bytes()[..40].to_vec()].concat(),
    ] {
        let (used, _) = before_and_after(&bytes).unwrap();
        let plan =
            plan(&log(), &bytes, at(100), Judge { first: &|_| Some(meta(Where::Last)), ..Judge::STRANGER })
                .unwrap();
        let (kept, _) = before_and_after(&plan.mended(&bytes)).unwrap();
        for entry in &used {
            assert!(kept.iter().any(|kept| kept.text == entry.text), "{entry:?} is lost: {kept:?}");
        }
        assert_eq!(kept.last().map(|entry| entry.kind.as_str()), Some("session_meta"));
        assert!(kept.iter().zip(0..).all(|(entry, seq)| entry.seq == seq), "{kept:?}");
    }
}

#[test]
fn an_unfinished_command_at_the_end_goes_as_a_whole() {
    let more = r#","more":true"#;
    check(
        &lines(&[&line(0, ""), &line(1, ""), &line(2, more), "{\"sche"]),
        expect![[r#"
            line 3: a command that was never finished; not a record: cut off
            - {"seq":2,note,"more":true}
            - {"sche
        "#]],
    );
}

#[test]
fn a_last_record_that_lost_only_its_line_end_stays() {
    let mut bytes = lines(&[&line(0, ""), &line(1, "")]);
    bytes.pop();
    check(
        &bytes,
        expect![[r#"
            line 2: the line is cut off
            - {"seq":1,note}
            + {"seq":1,note}
        "#]],
    );
}

#[test]
fn a_log_of_a_newer_ctx_is_not_touched() {
    let newer = |seq| line(seq, "").replace(":1,", ":2,");
    for (all, at) in [
        (vec![line(0, ""), newer(1), newer(2)], 2),
        (vec![line(0, ""), line(1, ""), newer(2)], 3),
        (vec![line(0, ""), line(1, r#","more":true"#), newer(2), newer(3)], 3),
        (vec![line(0, ""), newer(1), newer(2), line(3, "")], 2),
        (vec![line(0, ""), r#"{"schema_version":2,"n":1}"#.to_owned(), line(2, ""), line(3, "")], 2),
    ] {
        let bytes = lines(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let (disk, journal) = disk_with(&bytes);
        let refused = repair(&journal).unwrap_err();
        let RepairError::Journal(JournalError::TooNew { line, .. }) = refused else { panic!("{refused}") };
        assert_eq!((line, disk.files(), disk.contents(PATH).unwrap()), (at, vec![PATH.to_owned()], bytes));
    }
}

#[test]
fn a_record_that_is_out_of_its_place_goes_back_to_it() {
    let late = [0, 1, 3, 4, 5, 2, 6];
    check(
        &lines(&late.map(|seq| line(seq, "")).each_ref().map(String::as_str)),
        expect![[r#"
            line 3: record 2 belongs here, and stands in line 6
            + {"seq":2,note}
            line 6: record 2 is out of order
            - {"seq":2,note}
        "#]],
    );
    let whole: Vec<u64> = (0..=6).collect();
    let more = r#","more":true"#;
    for order in [
        // Too late, too early, neighbours, two of them, the first one, and the last two.
        [0, 1, 3, 4, 5, 2, 6],
        [0, 5, 1, 2, 3, 4, 6],
        [0, 1, 2, 4, 3, 5, 6],
        [0, 4, 2, 3, 1, 5, 6],
        [1, 2, 0, 3, 4, 5, 6],
        [0, 1, 2, 3, 4, 6, 5],
        [6, 0, 1, 2, 3, 4, 5],
    ] {
        // As commands of their own, and as one that is long.
        for rest in ["", more] {
            let of = |seq: u64| line(seq, if seq == 6 || seq == 0 { "" } else { rest });
            let bytes = lines(&order.map(of).each_ref().map(String::as_str));
            let (disk, journal) = disk_with(&bytes);
            repair(&journal).unwrap();
            let (opened, entries) = open(&journal).unwrap();
            assert_eq!((opened.damage, seqs(&entries)), (Vec::new(), whole.clone()), "{order:?} {rest}");
            assert_eq!(
                disk.contents(PATH).unwrap(),
                lines(
                    &whole
                        .iter()
                        .map(|seq| of(*seq))
                        .collect::<Vec<_>>()
                        .iter()
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                )
            );
        }
    }
}

#[test]
fn a_version_that_is_damaged_is_told_from_a_newer_one_by_the_lines_around_it() {
    let newer = |text: String| text.replacen(":1,", ":3,", 1);
    let more = r#","more":true"#;
    check(
        &lines(&[&line(0, ""), &newer(line(1, "")), &line(2, ""), &line(3, "")]),
        expect![[r#"
            line 2: its `schema_version` is damaged: the lines around it are ours
            - {"schema_version":3,"seq":1,note}
            + {"seq":1,note}
        "#]],
    );
    for damaged in [
        vec![newer(line(0, "")), line(1, ""), line(2, "")],
        vec![line(0, ""), "garbage".to_owned(), newer(line(2, "")), line(3, ""), line(4, "")],
        vec![line(0, ""), newer(line(1, "")), line(2, ""), newer(line(3, "")), line(4, "")],
        // A command is written by one ctx, and this one began as ours.
        vec![line(0, ""), line(1, more), newer(line(2, r#","batch":2"#))],
        vec![line(0, ""), line(1, "").replacen(":1,", ":12,", 1), line(2, "")],
    ] {
        let bytes = lines(&damaged.iter().map(String::as_str).collect::<Vec<_>>());
        let mended = planned(&bytes).mended(&bytes);
        let text = String::from_utf8(mended).unwrap();
        assert!(!text.contains("version\":3") && !text.contains("version\":12"), "{text}");
        assert_eq!(text.lines().count(), damaged.len(), "{text}");
    }
    // The last command alone could be a newer ctx's: someone has to say that none was here.
    let bytes = lines(&[&line(0, ""), &line(1, ""), &newer(line(2, ""))]);
    assert!(plan(&log(), &bytes, at(100), JUDGE).is_err());
    let told = plan(&log(), &bytes, at(100), Judge { versions: Versions::AreOurs, ..JUDGE }).unwrap();
    assert_eq!(told.mended(&bytes), lines(&[&line(0, ""), &line(1, ""), &line(2, "")]));
    // What is no record of ours with any version stays in every case.
    let other = lines(&[&line(0, ""), r#"{"schema_version":2,"n":1}"#]);
    assert!(plan(&log(), &other, at(100), Judge { versions: Versions::AreOurs, ..JUDGE }).is_err());
}

#[test]
fn a_record_that_does_not_fit_its_type_becomes_what_it_was_or_is_lost() {
    let fits = |entry: &Entry| {
        let why = "it does not fit".to_owned();
        let was = |was: &str| Some(Unfit { why: why.clone(), was: Some(entry.text.replace("texu", was)) });
        match &entry.text {
            text if text.contains("texu") => was("text"),
            text if text.contains("rubbish") => Some(Unfit { why: why.clone(), was: None }),
            _ => None,
        }
    };
    let judge = Judge { fits: &fits, ..JUDGE };
    let bytes = lines(&[
        &line(0, ""),
        &line(1, r#","texu":"a""#),
        &line(2, ""),
        &line(3, r#","rubbish":1,"more":true"#),
        &line(4, r#","batch":2"#),
        &line(5, r#","rubbish":2"#),
    ]);
    let (disk, journal) = disk_with(&bytes);
    let done = journal.repair(&log(), at(100), judge, &mut || Ok(())).unwrap();
    assert_eq!(disk.contents(&done.original.unwrap()).unwrap(), bytes);
    let aside = String::from_utf8(disk.contents(&done.set_aside.unwrap()).unwrap()).unwrap();
    assert_eq!(
        aside,
        format!("{}\n{}\n", line(3, r#","rubbish":1,"more":true"#), line(5, r#","rubbish":2"#))
    );
    assert_eq!(done.plan.changes.iter().map(|change| change.line).collect::<Vec<_>>(), [2, 4, 6]);
    let (opened, entries) = open(&journal).unwrap();
    assert_eq!(opened.damage, []);
    let kinds: Vec<(u64, &str)> = entries.iter().map(|entry| (entry.seq, entry.kind.as_str())).collect();
    assert_eq!(kinds, [(0, "note"), (1, "note"), (2, "note"), (3, LOST), (4, "note"), (5, LOST)]);
    assert_eq!(entries[1].text, line(1, r#","text":"a""#));
}

#[test]
fn a_log_that_is_open_is_not_repaired_and_none_is_opened_during_a_repair() {
    let (disk, journal) = disk_with(&lines(&[&line(0, ""), "garbage", &line(2, ""), &line(3, "")]));
    let (opened, _) = open(&journal).unwrap();
    let other = FileJournal::new(Arc::new(disk.clone()));
    let refused = repair(&other).unwrap_err();
    assert!(matches!(refused, RepairError::Journal(JournalError::Locked { .. })), "{refused}");
    drop(opened);
    let mut during = None;
    let repaired = other.repair(&log(), at(100), JUDGE, &mut || {
        during = open(&journal).err();
        Ok(())
    });
    repaired.unwrap();
    assert!(matches!(during, Some(JournalError::Locked { .. })));
    // Views that cannot be removed leave the log as it was.
    disk.put(PATH, b"garbage\n");
    let failed = other.repair(&log(), at(100), JUDGE, &mut || Err(io::ErrorKind::PermissionDenied.into()));
    assert!(matches!(failed, Err(RepairError::Views { .. })));
    assert_eq!(disk.contents(PATH).unwrap(), b"garbage\n");
}

#[test]
fn a_damaged_count_of_lost_records_hides_none() {
    let lost = |through: u64| line(1, &format!(r#","through":{through}"#)).replace("note", LOST);
    for through in [0, 1, 2, 3, 4, 9, 99, u64::MAX] {
        let bytes = lines(&[&line(0, ""), &lost(through), &line(4, ""), &line(5, "")]);
        let (_, journal) = disk_with(&bytes);
        assert_eq!(seqs(&open(&journal).unwrap().1), [0, 1, 4, 5], "through {through}");
    }
}

#[test]
fn a_failing_disk_leaves_the_log_as_it_was() {
    let bytes = lines(&[&line(0, ""), "garbage", &line(2, ""), &line(3, "")]);
    for op in [Op::Write, Op::Sync, Op::Truncate, Op::Name, Op::SyncDir] {
        for after in 0..6 {
            for fault in [Fault::Io, Fault::NoSpace, Fault::Short(3)] {
                let (disk, journal) = disk_with(&bytes);
                disk.fail(op, after, fault);
                let repaired = repair(&journal);
                let now = disk.contents(PATH).unwrap();
                if now != bytes {
                    assert_eq!(now, planned(&bytes).mended(&bytes));
                } else {
                    assert!(repaired.is_err());
                }
                disk.heal();
                repair(&journal).unwrap();
                assert_eq!(open(&journal).unwrap().0.damage, []);
            }
        }
    }
}

#[test]
fn a_crash_in_the_middle_leaves_the_old_log_or_the_new_one_and_the_old_bytes() {
    let bytes = lines(&[&line(0, ""), "garbage", &(line(2, "") + &line(3, "")), &line(4, ""), "torn"]);
    let mended = planned(&bytes).mended(&bytes);
    let (disk, journal) = disk_with(&bytes);
    disk.record();
    repair(&journal).unwrap();
    let moments = disk.take_moments();
    assert!(moments.len() > 8, "{}", moments.len());
    for moment in moments.iter().chain([&disk.now()]) {
        for after in moment.crash(7, 300).into_iter().chain([moment.kill()]) {
            let log = after.contents(PATH).unwrap();
            assert!(log == bytes || log == mended, "at {}", moment.op);
            let kept = after.files().into_iter().filter(|path| path.contains(".before-repair-"));
            let kept: Vec<_> = kept.map(|path| after.contents(&path).unwrap()).collect();
            assert!(kept.iter().all(|kept| *kept == bytes), "at {}", moment.op);
            assert!(log == bytes || !kept.is_empty(), "the old bytes are gone at {}", moment.op);
            // The next repair finishes what this one began.
            let journal = FileJournal::new(Arc::new(after.clone()));
            repair(&journal).unwrap();
            assert_eq!(after.contents(PATH).unwrap(), mended);
            assert_eq!(open(&journal).unwrap().0.damage, []);
        }
    }
}

/// A log of commands of one to three records, and its lines.
fn small_log() -> (Vec<u8>, Vec<String>) {
    let disk = SimDisk::new();
    let journal = FileJournal::new(Arc::new(disk.clone()));
    let writer = create(&journal);
    for texts in [&["a"][..], &["b", "c"], &["d", "e", "f"], &["ü\\n"], &["g", "h"], &["i"]] {
        writer.append_next(at(1), &command(texts)).unwrap();
    }
    let bytes = disk.contents(PATH).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    (bytes, text.lines().map(str::to_owned).collect())
}

/// The records that are used when the log is opened as it is, and those after a repair. None when a digit was
/// damaged so that it looks like a newer ctx's, and the log is left alone.
fn before_and_after(damaged: &[u8]) -> Option<(Vec<Entry>, Vec<Entry>)> {
    let (disk, journal) = disk_with(damaged);
    let before = read(&journal, 0).0;
    match repair(&journal) {
        Err(RepairError::Journal(JournalError::TooNew { .. })) => {
            assert_eq!(
                (disk.files(), disk.contents(PATH).unwrap()),
                (vec![PATH.to_owned()], damaged.to_vec())
            );
            return None;
        }
        repaired => repaired.map(drop).unwrap(),
    }
    let (opened, after) = open(&journal).unwrap();
    assert_eq!(opened.damage, []);
    Some((before, after))
}

#[test]
fn a_key_that_is_mended_costs_no_record_that_was_used() {
    // Three of eleven lines stand elsewhere, and two of those are damaged.
    let (_, lines) = small_log();
    let mut order: Vec<String> =
        [0, 1, 2, 3, 4, 8, 5, 6, 7, 10, 9].map(|at| lines[at].clone() + "\n").to_vec();
    order[5] = order[5].replacen(":1,", ": ,", 1);
    order[10] = order[10].replacen('"', " ", 1);
    let (before, after) = before_and_after(order.concat().as_bytes()).unwrap();
    let seqs = |entries: &[Entry]| entries.iter().map(|entry| entry.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&before).last(), Some(&10));
    assert!(seqs(&before).iter().all(|seq| seqs(&after).contains(seq)), "{:?}", seqs(&after));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_repair_after_any_damage_loses_no_record_that_was_used_and_leaves_no_damage(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in prop::option::of(any::<prop::sample::Index>()),
        moved in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..3),
    ) {
        let (mut damaged, lines) = small_log();
        let mut order: Vec<&[u8]> = damaged.split_inclusive(|b| *b == b'\n').collect();
        for (from, to) in &moved {
            let line = order.remove(from.index(order.len()));
            order.insert(to.index(order.len() + 1), line);
        }
        damaged = order.concat();
        for (place, byte) in &places {
            let at = place.index(damaged.len());
            damaged[at] = *byte;
        }
        if let Some(cut) = cut {
            damaged.truncate(cut.index(damaged.len()));
        }
        let Some((before, after)) = before_and_after(&damaged) else { return Ok(()) };
        for entry in &before {
            let of_its_number = || after.iter().filter(|other| other.seq == entry.seq);
            let kept = entry.seq == 0 || of_its_number().any(|other| other.text == entry.text);
            // One that was damaged itself gives its number to the one that was written with it.
            let is_other = || !lines.contains(&entry.text) && of_its_number().any(|other| lines.contains(&other.text));
            prop_assert!(kept || is_other(), "{entry:?} is gone from {}", String::from_utf8_lossy(&damaged));
        }
        // Nothing is made up.
        for entry in after.iter().filter(|entry| entry.kind != LOST && entry.seq > 0) {
            let intact = lines.contains(&entry.text) || before.iter().any(|other| other.text == entry.text);
            // One whose seq alone was wrong has its own again, and one wrong byte in a key of the envelope is mended.
            let (_, rest) = entry.text.split_once("\"time\":").unwrap_or_default();
            let differs = |there: &[u8]| there.iter().zip(rest.bytes()).filter(|(there, byte)| **there != *byte).count();
            let in_damaged = damaged.windows(rest.len().max(1)).any(|there| differs(there) <= 1);
            prop_assert!(intact || in_damaged, "{entry:?} came from nowhere");
        }
    }

    #[test]
    fn lines_that_are_moved_cost_nothing(
        moved in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4),
    ) {
        let (whole, _) = small_log();
        let mut order: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
        for (from, to) in &moved {
            let line = order.remove(from.index(order.len()));
            order.insert(to.index(order.len() + 1), line);
        }
        let (disk, journal) = disk_with(&order.concat());
        repair(&journal).unwrap();
        prop_assert_eq!(String::from_utf8(disk.contents(PATH).unwrap()), String::from_utf8(whole));
    }

    #[test]
    fn a_line_end_that_is_damaged_costs_nothing(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (mut damaged, lines) = small_log();
        let ends: Vec<usize> = damaged.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at).collect();
        // These three could begin a value inside a record.
        prop_assume!(!b":,[".contains(&byte));
        damaged[*at.get(&ends)] = byte;
        let (_, after) = before_and_after(&damaged).unwrap();
        let texts: Vec<&str> = after.iter().map(|entry| entry.text.as_str()).collect();
        prop_assert_eq!(texts, lines.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_at_all_make_a_repair_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (_, journal) = disk_with(&bytes);
        prop_assert!(repair(&journal).is_ok());
        prop_assert_eq!(open(&journal).unwrap().0.damage, []);
    }

    #[test]
    fn no_lines_in_any_order_make_a_repair_that_is_not_sound(
        parts in prop::collection::vec((0u64..12, any::<bool>(), 0u64..5, 0u8..8), 0..24),
    ) {
        let all: Vec<String> = parts
            .iter()
            .map(|(seq, more, batch, form)| match form {
                0 => "garbage".to_owned(),
                1 => format!("{}{}", line(*seq, ""), line(seq + 1, "")),
                2 => line(*seq, &format!(r#","through":{}"#, seq + batch)).replace("note", LOST),
                _ => line(*seq, &format!(r#","more":{more},"batch":{batch}"#)),
            })
            .collect();
        let bytes = lines(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let (disk, journal) = disk_with(&bytes);
        repair(&journal).unwrap();
        prop_assert_eq!(open(&journal).unwrap().0.damage, []);
        prop_assert!(planned(&disk.contents(PATH).unwrap()).is_sound());
    }
}
