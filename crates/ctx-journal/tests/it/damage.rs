//! The damage table, one test a row, and damage at random: a session with damage opens.

use ctx_journal::sim::SimDisk;
use ctx_journal::{DamageKind, Entry, FileJournal, Journal as _, JournalError, LogWriter, RECORD_BYTES_MAX};
use proptest::prelude::*;

use crate::support::*;

/// Record `seq` as a line without LF.
fn line(seq: u64, rest: &str) -> String {
    format!(r#"{{"schema_version":1,"seq":{seq},"time":"2026-11-15T06:00:00.000Z","type":"note"{rest}}}"#)
}

fn lines(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}

/// A disk with this as the log.
fn disk_with(bytes: &[u8]) -> (SimDisk, FileJournal) {
    let disk = SimDisk::new();
    disk.put(PATH, bytes);
    let journal = FileJournal::new(std::sync::Arc::new(disk.clone()));
    (disk, journal)
}

/// Opens a log of these bytes; what is used, what is reported, and what is in the log then.
fn recover(bytes: &[u8]) -> (Vec<u64>, Vec<String>, SimDisk, Box<dyn LogWriter>) {
    let (disk, journal) = disk_with(bytes);
    let (opened, entries) = open(&journal).unwrap();
    let told = opened.damage.iter().map(|damage| damage.to_string().replace(PATH, "log")).collect();
    // Reading without opening gives the same records, and from the end as well.
    let (_, fresh) = disk_with(bytes);
    assert_eq!(read(&fresh, 0).0, entries);
    let back: Vec<u64> = read_back(&fresh).iter().rev().map(|entry| entry.seq).collect();
    assert_eq!(back, seqs(&entries));
    (seqs(&entries), told, disk, opened.writer)
}

fn torn_files(disk: &SimDisk) -> Vec<String> {
    disk.files().into_iter().filter(|path| path.contains(".torn-")).collect()
}

#[test]
fn a_torn_tail_is_cut_off_and_kept() {
    let whole = lines(&[&line(0, ""), &line(1, "")]);
    let tails = [
        b"{\"schema_ver".to_vec(),
        b"\0\0\0\0\0\0".to_vec(),
        b"garbage\nmore garbage\n".to_vec(),
        line(2, "").into_bytes(),
        lines(&[&line(2, r#","more":true"#)]),
        lines(&[&line(2, r#","more":true"#), &line(3, r#","more":true"#), "{"]),
    ];
    for tail in tails {
        let (seqs, told, disk, writer) = recover(&[&whole[..], &tail].concat());
        assert_eq!(seqs, [0, 1]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(&format!("log:3: {} bytes of a command", tail.len())), "{told:?}");
        assert_eq!(disk.contents(PATH).unwrap(), whole);
        let torn = torn_files(&disk);
        assert_eq!(torn, [format!("{PATH}.torn-20261115T060140.000Z")]);
        assert_eq!(disk.contents(&torn[0]).unwrap(), tail);
        assert_eq!(writer.append_next(at(0), &command(&["x"])).unwrap().first, 2);
    }
}

#[test]
fn two_torn_tails_of_one_moment_are_both_kept() {
    let (disk, journal) = disk_with(&[lines(&[&line(0, "")]), b"one".to_vec()].concat());
    drop(open(&journal).unwrap());
    let bytes = disk.contents(PATH).unwrap();
    disk.put(PATH, &[bytes, b"two".to_vec()].concat());
    drop(open(&journal).unwrap());
    let kept: Vec<_> = torn_files(&disk).iter().map(|path| disk.contents(path).unwrap()).collect();
    assert_eq!(kept, [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_bad_line_in_the_middle_is_skipped_and_named_and_the_records_around_it_are_used() {
    for (bad, reason) in [
        (&b"garbage"[..], "expected value"),
        (b"\0\0\0\0", "NUL bytes"),
        (b"{\"text\":\"\xff\"}", "not UTF-8"),
        (b"", "an empty line"),
        (&line(2, "").as_bytes()[..40], "cut off"),
        ([line(2, ""), line(3, "")].concat().as_bytes(), "two records run together"),
    ] {
        let after = if reason.starts_with("two") { 4 } else { 3 };
        let bytes = [
            lines(&[&line(0, ""), &line(1, "")]),
            bad.to_vec(),
            b"\n".to_vec(),
            lines(&[&line(after, ""), &line(after + 1, "")]),
        ]
        .concat();
        let (seqs, told, disk, _) = recover(&bytes);
        assert_eq!(seqs, [0, 1, after, after + 1]);
        assert_eq!(told[0], format!("log:3: skipped, not a record: {reason}"));
        assert_eq!(told.len(), 2, "and the gap: {told:?}");
        assert_eq!(disk.contents(PATH).unwrap(), bytes, "the original is not touched");
    }
}

#[test]
fn a_command_that_lost_a_record_in_the_middle_of_the_log_is_used_as_far_as_it_is_there() {
    let more = r#","more":true"#;
    let bytes = lines(&[&line(0, ""), &line(1, more), "garbage", &line(3, r#","batch":3"#), &line(4, "")]);
    let (seqs, told, ..) = recover(&bytes);
    assert_eq!(seqs, [0, 1, 3, 4]);
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn a_hole_in_the_last_write_is_the_work_of_a_crash_and_takes_the_whole_command() {
    let more = r#","more":true"#;
    let whole = lines(&[&line(0, ""), &line(1, "")]);
    for torn in [
        lines(&[&line(2, more), "\0\0\0\0", &line(4, r#","batch":3"#)]),
        lines(&["\0\0\0\0", &line(3, r#","batch":2"#)]),
        lines(&[&line(2, more), &line(4, r#","batch":3"#)]),
    ] {
        let (seqs, told, disk, _) = recover(&[whole.clone(), torn.clone()].concat());
        assert_eq!(seqs, [0, 1]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(disk.contents(&torn_files(&disk)[0]).unwrap(), torn);
    }
}

#[test]
fn whole_commands_before_the_hole_of_one_write_are_kept() {
    let bytes = lines(&[&line(0, ""), &line(1, ""), "\0\0", &line(3, r#","batch":3"#)]);
    assert_eq!(recover(&bytes).0, [0, 1]);
}

#[test]
fn a_gap_is_a_warning() {
    let (seqs, told, _, writer) = recover(&lines(&[&line(0, ""), &line(1, ""), &line(5, ""), &line(6, "")]));
    assert_eq!(seqs, [0, 1, 5, 6]);
    assert_eq!(told, ["log:3: records 2 to 4 are missing"]);
    assert_eq!(writer.next_seq(), 7);
}

#[test]
fn of_a_repeated_seq_the_first_wins() {
    let bytes = lines(&[&line(0, ""), &line(1, r#","text":"first""#), &line(1, r#","text":"second""#)]);
    let (_, journal) = disk_with(&bytes);
    let (opened, entries) = open(&journal).unwrap();
    assert_eq!(seqs(&entries), [0, 1]);
    assert!(entries[1].text.contains("first"));
    assert_eq!(opened.damage.len(), 1);
    assert_eq!(opened.damage[0].kind, DamageKind::Repeat { seq: 1 });
    assert_eq!(
        (opened.damage[0].line, opened.damage[0].offset),
        (3, (line(0, "").len() + line(1, r#","text":"first""#).len() + 2) as u64)
    );
    assert!(read_back(&journal)[0].text.contains("first"));
}

#[test]
fn one_wrong_seq_does_not_make_the_rest_look_old() {
    let (seqs, told, ..) =
        recover(&lines(&[&line(0, ""), &line(900_000, ""), &line(2, ""), &line(3, ""), &line(1, "")]));
    assert_eq!(seqs, [0, 2, 3]);
    assert_eq!(
        told,
        [
            "log:2: skipped, seq 900000 does not fit where 1 was due",
            "log:3: record 1 is missing",
            "log:5: skipped, record 1 is out of order"
        ]
    );
}

#[test]
fn a_missing_first_record_is_reported_and_the_rest_is_used() {
    let (seqs, told, ..) = recover(&lines(&["garbage", &line(1, ""), &line(2, "")]));
    assert_eq!(seqs, [1, 2]);
    assert_eq!(
        told,
        ["log:1: skipped, not a record: expected value", "log:2: the log does not begin with record 0"]
    );
    for nothing in [&b""[..], b"\0\0\0"] {
        let (_, journal) = disk_with(nothing);
        let (opened, entries) = open(&journal).unwrap();
        assert!(entries.is_empty());
        assert!(opened.damage.iter().any(|damage| damage.kind == DamageKind::MissingMeta));
        assert_eq!(opened.writer.append(0, at(0), &meta()).unwrap().next, 1);
    }
}

#[test]
fn a_line_that_is_too_long_is_skipped_without_being_kept() {
    let long = "x".repeat(RECORD_BYTES_MAX + 300_000);
    let (seqs, told, ..) = recover(&lines(&[&line(0, ""), &long, &line(2, ""), &line(3, "")]));
    assert_eq!(seqs, [0, 2, 3]);
    assert_eq!(told[0], format!("log:2: skipped, {} bytes are too long for a record", long.len() + 1));
    // One that is as long as a record may be is a record.
    let filling = "x".repeat(RECORD_BYTES_MAX - 200);
    let longest = line(1, &format!(r#","text":"{filling}""#));
    assert_eq!(recover(&lines(&[&line(0, ""), &longest, &line(2, "")])).0, [0, 1, 2]);
}

#[test]
fn unknown_types_and_fields_are_kept_as_they_stand() {
    let future = line(1, r#","later":{"deep":[1,2]}"#).replace("note", "from_the_future");
    let (_, journal) = disk_with(&lines(&[&line(0, ""), &future]));
    let (opened, entries) = open(&journal).unwrap();
    assert_eq!(opened.damage, []);
    assert_eq!((entries[1].kind.as_str(), entries[1].text.as_str()), ("from_the_future", future.as_str()));
}

#[test]
fn a_log_that_a_newer_ctx_wrote_to_last_is_read_but_never_written_to() {
    let newer = |seq| line(seq, "").replace(":1,", ":2,");
    let ours = [line(0, ""), line(1, "")];
    let ends: [&[&str]; 7] = [
        &[&newer(2), &newer(3)],
        // One record, as a rename by a newer ctx leaves it.
        &[&newer(2)],
        &["garbage", &newer(2)],
        &[&newer(2), "garbage"],
        // A repeat of ours behind it is no reason to write in its place.
        &[&newer(2), &line(1, "")],
        // Whatever a newer envelope looks like.
        &[r#"{"schema_version":2,"n":2,"at":1794722400}"#],
        &[&"\0\n".repeat(1100), &newer(2)],
    ];
    for end in ends {
        let bytes = lines(&[&[ours[0].as_str(), &ours[1]], end].concat());
        let (disk, journal) = disk_with(&bytes);
        let refused = open(&journal).map(|_| ()).unwrap_err();
        assert!(matches!(refused, JournalError::TooNew { version: 2, .. }), "{refused}");
        assert!(refused.to_string().contains("upgrade ctx"), "{refused}");
        assert_eq!((disk.files(), disk.contents(PATH).unwrap()), (vec![PATH.to_owned()], bytes), "{end:?}");
        assert_eq!(seqs(&read(&journal, 0).0), [0, 1]);
        assert_eq!(seqs(&read_back(&journal)), [1, 0]);
    }
    let (_, journal) = disk_with(&lines(&[&newer(0)]));
    assert!(open(&journal).is_err());
    // What a crash of the newer ctx cut off was never acknowledged.
    assert_eq!(recover(&[&lines(&[&ours[0], &ours[1]])[..], &newer(2).as_bytes()[..60]].concat()).0, [0, 1]);
}

#[test]
fn a_damaged_version_in_a_command_that_began_as_ours_costs_nothing() {
    let newer = |text: String| text.replacen(":1,", ":9,", 1);
    let more = r#","more":true"#;
    let (first, second) = (line(2, more), line(3, r#","batch":2"#));
    for after in [&[][..], &[line(4, "")], &["garbage".to_owned(), line(4, "")]] {
        let all = [&[line(0, ""), line(1, ""), first.clone(), newer(second.clone())], after].concat();
        let bytes = lines(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let (seqs_read, told, disk, writer) = recover(&bytes);
        let wanted: Vec<u64> = (0..4 + u64::from(!after.is_empty())).collect();
        assert_eq!(seqs_read, wanted);
        assert!(told[0].starts_with("log:4: format version 9 is damaged"), "{told:?}");
        writer.append_next(at(0), &command(&["x"])).unwrap();
        assert!(disk.contents(PATH).unwrap().starts_with(&bytes), "nothing is cut off or changed");
        drop(writer);
        let journal = FileJournal::new(std::sync::Arc::new(disk));
        let (_, entries) = open(&journal).unwrap();
        assert_eq!(entries[3].text, second, "it is read as it was");
        let back: Vec<u64> = seqs(&entries).into_iter().rev().collect();
        assert_eq!(seqs(&read_back(&journal)), back);
    }
    // Without an end, the command was never acknowledged.
    let torn = lines(&[&line(0, ""), &line(1, more), &newer(line(2, more))]);
    assert_eq!(recover(&torn).0, [0]);
    // Behind it, a newer ctx may have written.
    let bytes = lines(&[&line(0, ""), &line(1, more), &newer(line(2, "")), &newer(line(3, ""))]);
    let (disk, journal) = disk_with(&bytes);
    assert!(matches!(open(&journal).map(|_| ()).unwrap_err(), JournalError::TooNew { line: 4, .. }));
    assert_eq!(disk.contents(PATH).unwrap(), bytes);
}

#[test]
fn a_newer_record_at_the_end_is_seen_and_named_also_when_reading_begins_in_the_middle() {
    let filling = format!(r#","text":"{}""#, "y".repeat(1000));
    let mut all: Vec<String> = (0..1000).map(|seq| line(seq, &filling)).collect();
    all[999] = all[999].replace(":1,", ":2,");
    let bytes = lines(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let (disk, journal) = disk_with(&bytes);
    let refused = journal.open_from(&log(), at(100), 990, &mut |_| ()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, JournalError::TooNew { line: 1000, version: 2, .. }), "{refused}");
    assert_eq!(disk.contents(PATH).unwrap(), bytes);
}

#[test]
fn a_newer_record_among_later_ones_of_ours_is_passed_over_and_stays() {
    let newer = |seq| line(seq, "").replace(":1,", ":2,");
    let bytes = lines(&[&line(0, ""), &newer(1), &line(2, ""), &line(3, "")]);
    let (seqs, told, disk, writer) = recover(&bytes);
    assert_eq!(seqs, [0, 2, 3]);
    assert!(
        told[0].starts_with("log:2: skipped, format version 2") && told[0].ends_with("upgrade ctx to use it"),
        "{told:?}"
    );
    writer.append_next(at(0), &command(&["x"])).unwrap();
    assert!(disk.contents(PATH).unwrap().starts_with(&bytes));
}

#[test]
fn damage_is_named_by_its_line_also_when_reading_begins_in_the_middle() {
    let filling = format!(r#","text":"{}""#, "y".repeat(1000));
    let mut all: Vec<String> = (0..1000).map(|seq| line(seq, &filling)).collect();
    all[900] = "garbage".to_owned();
    let (_, journal) = disk_with(&lines(&all.iter().map(String::as_str).collect::<Vec<_>>()));
    let (entries, damage) = read(&journal, 850);
    assert_eq!(entries.len(), 149);
    assert_eq!(entries[0].line, 0, "it did not read from the start");
    assert_eq!(damage[0].line, 901);
}

/// Where a command begins and ends in the file, and its seqs.
type Placed = (usize, usize, Vec<u64>);

/// A log of commands of one to three records, as the journal writes it.
fn small_log() -> (Vec<u8>, Vec<Placed>) {
    let disk = SimDisk::new();
    let journal = FileJournal::new(std::sync::Arc::new(disk.clone()));
    let writer = create(&journal);
    let mut commands = vec![(0, disk.contents(PATH).unwrap().len(), vec![0])];
    for texts in [&["a"][..], &["b", "c"], &["d", "e", "f"], &["ü\\n"], &["g", "h"]] {
        let from = disk.contents(PATH).unwrap().len();
        let committed = writer.append_next(at(1), &command(texts)).unwrap();
        let to = disk.contents(PATH).unwrap().len();
        commands.push((from, to, (committed.first..committed.next).collect()));
    }
    (disk.contents(PATH).unwrap(), commands)
}

#[test]
fn a_log_cut_at_any_byte_gives_the_commands_that_are_whole() {
    let (bytes, commands) = small_log();
    for cut in 0..=bytes.len() {
        let whole: Vec<u64> =
            commands.iter().filter(|(_, to, _)| *to <= cut).flat_map(|(_, _, seqs)| seqs.clone()).collect();
        let (disk, journal) = disk_with(&bytes[..cut]);
        let (opened, entries) = open(&journal).unwrap();
        assert_eq!(seqs(&entries), whole, "cut at {cut}");
        assert_eq!(opened.writer.next_seq(), whole.len() as u64);
        let end = disk.contents(PATH).unwrap().len();
        assert!(commands.iter().any(|(_, to, _)| *to == end) || end == 0);
        let (_, fresh) = disk_with(&bytes[..cut]);
        assert_eq!(read_back(&fresh).len(), whole.len(), "cut at {cut}");
    }
}

/// Which records must be used when some bytes changed: those of commands that are as they were.
fn must_be_used(bytes: &[u8], damaged: &[u8], commands: &[Placed]) -> Vec<u64> {
    // The LF before a line is part of what makes it one.
    let intact = |(from, to, _): &Placed| {
        let from = from.saturating_sub(1);
        bytes[from..*to] == damaged[from..*to]
    };
    commands.iter().filter(|command| intact(command)).flat_map(|(_, _, seqs)| seqs.clone()).collect()
}

/// The seqs that a wrong digit may cost: those that damaged lines say, which come too late where they belong; the command
/// before such a line, whose seq may look like a jump then; and the last ones, behind a seq that is far too high.
fn outdone(bytes: &[u8], damaged: &[u8], commands: &[Placed]) -> Vec<u64> {
    let seq_of = |line: &[u8]| {
        serde_json::from_slice::<serde_json::Value>(line).ok().and_then(|record| record["seq"].as_u64())
    };
    let whole: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    let highest = whole.iter().filter_map(|line| seq_of(line)).max().unwrap_or(0);
    let (mut outdone, mut start) = (Vec::new(), 0);
    for line in damaged.split(|b| *b == b'\n') {
        if let Some(seq) = seq_of(line).filter(|_| !whole.contains(&line)) {
            outdone.push(seq);
            let before = commands.iter().filter(|(_, to, _)| *to == start);
            outdone.extend(before.flat_map(|(_, _, seqs)| seqs.clone()));
            if seq > highest {
                // One that jumps is told by the record after it; nothing follows the last two.
                outdone.extend(highest.saturating_sub(1)..=highest);
            }
        }
        start += line.len() + 1;
    }
    outdone
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_at_random_loses_no_command_that_is_intact(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (bytes, commands) = small_log();
        let mut damaged = bytes.clone();
        for (place, byte) in &places {
            damaged[place.index(bytes.len())] = *byte;
        }
        let (disk, journal) = disk_with(&damaged);
        let (opened, entries) = match open(&journal) {
            // The last command has a digit now as if a newer ctx had written it.
            Err(JournalError::TooNew { .. }) => {
                prop_assert_eq!(disk.contents(PATH).unwrap(), damaged);
                return Ok(());
            }
            opened => opened.unwrap(),
        };
        let got = seqs(&entries);
        let outdone = outdone(&bytes, &damaged, &commands);
        for seq in must_be_used(&bytes, &damaged, &commands) {
            prop_assert!(outdone.contains(&seq) || got.contains(&seq), "{seq} of {got:?}: {:?}", opened.damage);
        }
        prop_assert!(got.is_sorted_by(|a, b| a < b));
        let next = opened.writer.next_seq();
        prop_assert_eq!(opened.writer.append(next, at(9), &command(&["on"])).unwrap().first, next);
        drop(opened);
        let (again, entries) = open(&journal).unwrap();
        prop_assert_eq!(entries.last().map(|entry: &Entry| entry.seq), Some(next));
        let torn_again = again.damage.iter().any(|damage| matches!(damage.kind, DamageKind::TornTail { .. }));
        prop_assert!(!torn_again);
    }

    #[test]
    fn no_bytes_at_all_make_the_journal_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (_, journal) = disk_with(&bytes);
        read_back(&journal);
        read(&journal, 3);
        let (opened, _) = open(&journal).unwrap();
        prop_assert!(opened.writer.append_next(at(9), &command(&["on"])).is_ok());
    }

    #[test]
    fn no_lines_in_any_order_make_the_journal_panic(
        parts in prop::collection::vec((0u64..12, any::<bool>(), 0u64..5, 0u8..8), 0..24),
    ) {
        let all: Vec<String> = parts
            .iter()
            .map(|(seq, more, batch, form)| match form {
                0 => "garbage".to_owned(),
                1 => format!("{}{}", line(*seq, ""), line(seq + 1, "")),
                _ => line(*seq, &format!(r#","more":{more},"batch":{batch}"#)),
            })
            .collect();
        let bytes = lines(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let (_, journal) = disk_with(&bytes);
        let back = seqs(&read_back(&journal));
        prop_assert!(back.is_sorted_by(|a, b| a > b));
        let (opened, entries) = open(&journal).unwrap();
        prop_assert!(seqs(&entries).is_sorted_by(|a, b| a < b));
        let next = opened.writer.next_seq();
        prop_assert!(entries.iter().all(|entry| entry.seq < next));
        prop_assert!(opened.writer.append_next(at(9), &command(&["on"])).is_ok());
    }
}
