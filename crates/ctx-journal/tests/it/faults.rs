//! A disk that is full, fails or is read-only: nothing acknowledged is lost, nothing refused comes back.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ctx_journal::sim::{Fault, Op, SimDisk};
use ctx_journal::{
    AppendError, DamageKind, DirEntry, Disk, DiskFile, FileJournal, JournalError, OpenMode, Owner, Replace,
};
use ctx_session::Code;

use crate::support::*;

fn sim() -> (SimDisk, FileJournal) {
    let disk = SimDisk::new();
    let journal = FileJournal::new(Arc::new(disk.clone()));
    (disk, journal)
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_full_disk_refuses_the_command_and_the_next_one_works() {
    for fault in [Fault::NoSpace, Fault::Short(0), Fault::Short(70), Fault::Short(250)] {
        let (disk, journal) = sim();
        let writer = create(&journal);
        let before = disk.contents(PATH).unwrap();
        disk.fail(Op::Write, 0, fault);
        let refused = writer.append(1, at(1), &command(&["a", "b", "c"])).unwrap_err();
        assert_eq!(refused, AppendError::NoSpace { log: log() });
        assert_eq!(refused.code(), Code::Enospc);
        assert_eq!(disk.contents(PATH).unwrap(), before);
        assert_eq!(disk.now().unsynced(), 0, "what was refused must not come back after a crash");
        assert!(writer.append(1, at(2), &command(&["d"])).is_ok());
        assert_eq!(seqs(&read(&journal, 0).0), [0, 1]);
    }
}

#[test]
fn a_disk_that_fills_up_loses_nothing_and_goes_on_when_there_is_room() {
    let (disk, journal) = sim();
    let writer = create(&journal);
    disk.set_room(Some(450));
    let mut next = 1;
    let refused = loop {
        match writer.append(next, at(next), &command(&["x"])) {
            Ok(committed) => next = committed.next,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::NoSpace { .. }), "{refused}");
    assert!(next > 2);
    disk.set_room(None);
    assert_eq!(writer.append(next, at(9), &command(&["x"])).unwrap().next, next + 1);
    drop(writer);
    assert_eq!(seqs(&open(&journal).unwrap().1), (0..=next).collect::<Vec<_>>());
}

#[test]
fn any_other_failure_poisons_the_log_until_it_is_opened_again() {
    for (op, fault) in [(Op::Write, Fault::Io), (Op::Sync, Fault::Io), (Op::Sync, Fault::NoSpace)] {
        let (disk, journal) = sim();
        let writer = create(&journal);
        disk.fail(op, 0, fault);
        let failed = writer.append(1, at(1), &command(&["a"])).unwrap_err();
        assert!(matches!(failed, AppendError::Poisoned { .. }), "{failed}");
        assert!(failed.to_string().starts_with(PATH), "{failed}");
        let ops = disk.ops();
        for _ in 0..3 {
            assert!(matches!(writer.append_next(at(2), &command(&["b"])), Err(AppendError::Poisoned { .. })));
        }
        assert_eq!(disk.ops(), ops, "nothing is tried again as if it had worked");
        assert_eq!(seqs(&read(&journal, 0).0), [0], "readers do not see what is in doubt");
        drop(writer);
        assert_eq!(seqs(&read(&journal, 0).0), [0]);
        let (opened, entries) = open(&journal).unwrap();
        let next = opened.writer.next_seq();
        assert_eq!(seqs(&entries), (0..next).collect::<Vec<_>>());
        assert!(opened.writer.append(next, at(3), &command(&["c"])).is_ok());
    }
}

#[test]
fn a_full_disk_that_cannot_be_cut_back_poisons_the_log() {
    for op in [Op::Truncate, Op::Sync] {
        let (disk, journal) = sim();
        let writer = create(&journal);
        disk.fail(Op::Write, 0, Fault::Short(50));
        disk.fail(op, 0, Fault::Io);
        let failed = writer.append(1, at(1), &command(&["a"])).unwrap_err();
        assert!(matches!(failed, AppendError::Poisoned { .. }), "{failed}");
        drop(writer);
        assert_eq!(seqs(&open(&journal).unwrap().1), [0]);
    }
}

#[test]
fn what_recovery_hands_out_after_a_failed_sync_is_really_on_disk() {
    for same_process in [true, false] {
        let (disk, mut journal) = sim();
        let writer = create(&journal);
        disk.fail(Op::Sync, 0, Fault::Io);
        assert!(writer.append(1, at(1), &command(&["a"])).is_err());
        drop(writer);
        if !same_process {
            journal = FileJournal::new(Arc::new(disk.clone()));
        }
        let (opened, entries) = open(&journal).unwrap();
        opened.writer.append_next(at(2), &command(&["b"])).unwrap();
        for left in disk.now().crash(7, 64) {
            let journal = FileJournal::new(Arc::new(left));
            let after = open(&journal).unwrap().1;
            assert_eq!(after[..entries.len()], entries);
            assert_eq!(after.len(), entries.len() + 1);
        }
    }
}

#[test]
fn a_log_that_cannot_be_synced_is_not_opened() {
    let (disk, journal) = sim();
    drop(create(&journal));
    disk.fail(Op::Sync, 0, Fault::Io);
    let failed = open(&journal).map(|_| ()).unwrap_err();
    assert!(failed.to_string().starts_with(&format!("{PATH}: cannot sync")), "{failed}");
    assert!(open(&journal).is_ok());
}

#[test]
fn a_torn_tail_on_a_full_disk_is_read_around_and_cut_when_there_is_room() {
    let (disk, journal) = sim();
    drop(create(&journal));
    let whole = disk.contents(PATH).unwrap();
    disk.put(PATH, &[&whole[..], b"{\"torn"].concat());
    disk.set_room(Some(0));
    let (opened, entries) = open(&journal).unwrap();
    assert_eq!(seqs(&entries), [0]);
    assert_eq!(opened.damage[0].kind, DamageKind::TornTailUncut { bytes: 6 });
    assert!(matches!(opened.writer.append(1, at(1), &command(&["a"])), Err(AppendError::NoSpace { .. })));
    disk.set_room(None);
    opened.writer.append(1, at(1), &command(&["a"])).unwrap();
    let torn: Vec<_> = disk.files().into_iter().filter(|path| path.contains(".torn-")).collect();
    assert_eq!(torn.len(), 1);
    assert_eq!(disk.contents(&torn[0]).unwrap(), b"{\"torn");
    drop(opened);
    assert_eq!(seqs(&open(&journal).unwrap().1), [0, 1]);
}

#[test]
fn a_log_is_not_half_made_when_the_disk_fails() {
    for (op, fault) in [
        (Op::Write, Fault::NoSpace),
        (Op::Write, Fault::Short(20)),
        (Op::Write, Fault::Io),
        (Op::Sync, Fault::Io),
        (Op::Name, Fault::NoSpace),
        (Op::SyncDir, Fault::Io),
    ] {
        for after in 0..8 {
            let (disk, journal) = sim();
            disk.fail(op, after, fault);
            let made = journal_create(&journal);
            disk.heal();
            match made {
                Ok(()) => assert_eq!(seqs(&read(&journal, 0).0), [0]),
                Err(error) => {
                    assert_eq!(error.code() == Code::Enospc, fault != Fault::Io, "{error}");
                    assert!(error.to_string().starts_with(PATH), "{error}");
                    journal_create(&journal).unwrap();
                }
            }
            assert_eq!(seqs(&open(&journal).unwrap().1), [0]);
        }
    }
}

fn journal_create(journal: &FileJournal) -> Result<(), JournalError> {
    use ctx_journal::Journal;
    journal.create(&log(), me(), at(0), &meta()).map(|_| ())
}

#[test]
fn a_read_only_disk_can_be_read_and_says_so_when_written_to() {
    let (disk, journal) = sim();
    drop(create(&journal));
    disk.set_read_only(true);
    assert_eq!(seqs(&read(&journal, 0).0), [0]);
    let refused = open(&journal).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("Read-only file system"), "{refused}");
    disk.set_read_only(false);
    let writer = open(&journal).unwrap().0.writer;
    disk.set_read_only(true);
    assert!(matches!(writer.append_next(at(1), &command(&["a"])), Err(AppendError::Poisoned { .. })));
}

#[test]
fn what_is_written_soon_is_synced_behind_the_answer() {
    let (disk, journal) = sim();
    let writer = create(&journal);
    for n in 1..4 {
        writer.append_soon(at(n), &command(&["a"])).unwrap();
        assert_eq!(seqs(&read(&journal, n).0), [n], "seen at once");
        wait_for("the sync", || disk.now().unsynced() == 0);
    }
    writer.append_soon(at(5), &command(&["b"])).unwrap();
    writer.flush().unwrap();
    assert_eq!(disk.now().unsynced(), 0);
    writer.append_soon(at(6), &command(&["c"])).unwrap();
    drop(writer);
    assert_eq!(disk.now().unsynced(), 0);
}

#[test]
fn a_sync_that_fails_behind_the_answer_poisons_the_log() {
    let (disk, journal) = sim();
    let writer = create(&journal);
    disk.fail(Op::Sync, 0, Fault::Io);
    writer.append_soon(at(1), &command(&["a"])).unwrap();
    wait_for("the failure", || writer.flush().is_err());
    assert!(matches!(writer.append_next(at(2), &command(&["b"])), Err(AppendError::Poisoned { .. })));
}

/// A disk whose syncs wait until they are let through, and are counted.
#[derive(Clone, Default)]
struct SlowDisk {
    disk: SimDisk,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    syncs: u32,
}

impl SlowDisk {
    fn set_closed(&self, closed: bool) {
        self.gate.0.lock().unwrap().closed = closed;
        self.gate.1.notify_all();
    }

    fn syncs(&self) -> u32 {
        self.gate.0.lock().unwrap().syncs
    }
}

impl Disk for SlowDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SlowFile { file: self.disk.open(path, mode)?, gate: Arc::clone(&self.gate) }))
    }
    fn make_dir(&self, path: &str, owner: Owner) -> io::Result<bool> {
        self.disk.make_dir(path, owner)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn rename(&self, from: &str, to: &str, replace: Replace) -> io::Result<()> {
        self.disk.rename(from, to, replace)
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        self.disk.remove_file(path)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }
}

struct SlowFile {
    file: Box<dyn DiskFile>,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

impl DiskFile for SlowFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
    fn sync(&self) -> io::Result<()> {
        let mut gate = self.gate.0.lock().unwrap();
        gate.syncs += 1;
        while gate.closed {
            gate = self.gate.1.wait(gate).unwrap();
        }
        drop(gate);
        self.file.sync()
    }
    fn forget_cached(&self, offset: u64) -> io::Result<()> {
        self.file.forget_cached(offset)
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
    fn unlock(&self) {
        self.file.unlock();
    }
    fn id(&self) -> std::io::Result<u64> {
        self.file.id()
    }

    fn owner(&self) -> io::Result<Owner> {
        self.file.owner()
    }
}

/// Opens the gate also when a test fails, so that no thread waits for ever.
struct OpenAtEnd<'s>(&'s SlowDisk);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.set_closed(false);
    }
}

/// Has one append wait in its sync and `count` more behind it, then runs `then` and lets them through.
fn appends_behind_a_sync(
    slow: &SlowDisk,
    journal: &FileJournal,
    count: u64,
    then: impl FnOnce(),
) -> Vec<Result<u64, AppendError>> {
    let writer = create(journal);
    let writer = &*writer;
    let before = slow.syncs();
    slow.set_closed(true);
    std::thread::scope(|scope| {
        let gate = OpenAtEnd(slow);
        let append = move |n| writer.append_next(at(n), &command(&["a"])).map(|committed| committed.first);
        let mut threads = vec![scope.spawn(move || append(0))];
        wait_for("the first sync", || slow.syncs() == before + 1);
        threads.extend((1..=count).map(|n| scope.spawn(move || append(n))));
        wait_for("all appends", || writer.next_seq() == count + 2);
        assert_eq!(seqs(&read(journal, 0).0), [0], "nobody sees what is not durable");
        then();
        drop(gate);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn appends_that_wait_for_a_sync_share_the_next() {
    let slow = SlowDisk::default();
    let journal = FileJournal::new(Arc::new(slow.clone()));
    let mut got: Vec<u64> =
        appends_behind_a_sync(&slow, &journal, 20, || ()).into_iter().map(Result::unwrap).collect();
    got.sort_unstable();
    assert_eq!(got, (1..=21).collect::<Vec<_>>());
    assert_eq!(slow.syncs(), 3, "one to make the log, one for the first append, one for all the others");
    assert_eq!(seqs(&open(&journal).unwrap().1), (0..=21).collect::<Vec<_>>());
}

#[test]
fn appends_behind_a_sync_that_fails_fail_with_it() {
    let slow = SlowDisk::default();
    let journal = FileJournal::new(Arc::new(slow.clone()));
    let got = appends_behind_a_sync(&slow, &journal, 5, || slow.disk.fail(Op::Sync, 0, Fault::Io));
    assert!(got.iter().all(|result| matches!(result, Err(AppendError::Poisoned { .. }))), "{got:?}");
}
