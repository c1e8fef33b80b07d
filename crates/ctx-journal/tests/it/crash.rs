//! Random workloads on the simulated disk, a crash at every operation, and what recovery must bring back.
//!
//! Every workload and everything that goes wrong in it comes from one seed; a failure prints it. By hand:
//! `CTX_SIM_WORKLOADS=1000000 cargo test -p ctx-journal --release crash`, and `CTX_SIM_SEED=<seed>` to replay one.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ctx_journal::sim::{Fault, Moment, Op, Rng, SimDisk};
use ctx_journal::{AppendError, DamageKind, Entry, FileJournal, Journal, JournalError, LogPath, LogWriter};
use serde::Deserialize;

use crate::support::{at, me};

const WORKLOADS: u64 = 10_000;

/// One command that was tried, and what became of it.
#[derive(Debug, Clone)]
struct Tried {
    id: u64,
    blob: bool,
    /// The disk's count of operations before it was tried.
    began: u64,
    fate: Fate,
}

/// What the one who tried a command knows of it, and since which operation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// It is on disk.
    Acknowledged(u64),
    /// It is not in the log.
    Refused(u64),
    /// The disk failed under it; opening the log again decides.
    Unknown,
}

/// Names from here on are deep in the tree, which takes many operations to make; the others are not.
const DEEP: u64 = 1000;

fn log(name: u64) -> LogPath {
    let dir = if name < DEEP { "" } else { "home/0/agent/coder/session/" };
    LogPath::new(format!("{dir}s{name}/events.jsonl")).unwrap()
}

struct World {
    disk: SimDisk,
    journal: FileJournal,
    writer: Option<Box<dyn LogWriter>>,
    rng: Rng,
    tried: Vec<Tried>,
    /// Where the log is; the number of its name.
    place: u64,
    /// The name it had or gets, and whether the move is known to be durable since when.
    moves: Vec<(u64, u64, u64)>,
    /// The value that the records so far add up to.
    sum: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new();
        disk.record();
        let journal = FileJournal::new(Arc::new(disk.clone()));
        let rng = Rng::new(seed);
        let place = if seed.is_multiple_of(8) { DEEP } else { 0 };
        World { disk, journal, writer: None, rng, tried: Vec::new(), place, moves: Vec::new(), sum: 0 }
    }

    /// The records of a command. Each adds a number and says what the sum is then, so that a replay can be checked.
    fn bodies(&mut self, id: u64, blob: Option<&str>) -> (Vec<String>, u64) {
        let count = 1 + self.rng.below(3);
        let mut sum = self.sum;
        let mut body = |rng: &mut Rng, part: u64| {
            let n = rng.below(1000);
            sum += n;
            let filling = "f".repeat(rng.below(40) as usize);
            let blob = blob.map(|blob| format!(r#","blob":"{blob}""#)).unwrap_or_default();
            format!(
                r#"{{"type":"add","id":{id},"part":{part},"of":{count},"n":{n},"sum":{sum},"filling":"{filling}"{blob}}}"#
            )
        };
        let bodies = (0..count).map(|part| body(&mut self.rng, part)).collect();
        (bodies, sum)
    }

    fn append(&mut self) {
        let id = self.tried.len() as u64;
        let blob = self.rng.one_in(12).then(|| format!("contents of {id}"));
        let began = self.disk.ops();
        let stored = blob.as_ref().map(|blob| self.journal.put_blob(&log(self.place), blob.as_bytes()));
        let hash = match stored.transpose() {
            Ok(stored) => stored.map(|blob| blob.sha256),
            // Without its blob the command is not tried.
            Err(_) => return,
        };
        let (bodies, sum) = self.bodies(id, hash.as_deref());
        let result = match &self.writer {
            Some(writer) => writer.append(writer.next_seq(), at(id), &bodies).map(|_| ()),
            None => match self.journal.create(&log(self.place), me(), at(id), &bodies) {
                Ok(writer) => {
                    self.writer = Some(writer);
                    Ok(())
                }
                Err(error) => {
                    let reason = error.to_string();
                    Err(AppendError::Poisoned { log: log(self.place), reason })
                }
            },
        };
        let fate = match result {
            Ok(()) => Fate::Acknowledged(self.disk.ops()),
            Err(AppendError::NoSpace { .. }) => Fate::Refused(self.disk.ops()),
            Err(AppendError::Poisoned { .. }) => Fate::Unknown,
            Err(other) => panic!("unexpected: {other}"),
        };
        if matches!(fate, Fate::Acknowledged(_)) {
            self.sum = sum;
        }
        self.tried.push(Tried { id, blob: hash.is_some(), began, fate });
        if fate == Fate::Unknown {
            self.reopen();
        }
    }

    /// Takes the log up again, in this process or, as far as the journal knows, in another.
    fn reopen(&mut self) {
        let restart = self.rng.one_in(2);
        // What is still to fail may fail in the recovery; that is tried again, without.
        for attempt in 0..3 {
            self.writer = None;
            if restart {
                self.journal = FileJournal::new(Arc::new(self.disk.clone()));
            }
            if attempt == 1 {
                self.disk.heal();
            }
            let mut entries = Vec::new();
            match self.journal.open(&log(self.place), at(1), &mut |entry| entries.push(entry)) {
                Ok(opened) => {
                    self.writer = Some(opened.writer);
                    self.learn(&entries);
                    return;
                }
                Err(JournalError::NotThere { .. }) => {
                    self.learn(&[]);
                    return;
                }
                Err(error) if attempt == 2 => panic!("cannot be opened again: {error}"),
                Err(_) => (),
            }
        }
    }

    /// What was unknown is known once the log was opened: what it holds is durable, what it does not is gone.
    fn learn(&mut self, entries: &[Entry]) {
        let (present, sum) = replay(entries);
        let now = self.disk.ops();
        for tried in self.tried.iter_mut().filter(|tried| tried.fate == Fate::Unknown) {
            let there = present.contains(&tried.id);
            tried.fate = if there { Fate::Acknowledged(now) } else { Fate::Refused(now) };
        }
        self.sum = sum;
        self.check(&present, now + 1);
    }

    fn rename(&mut self) {
        let to = self.place + 1;
        let began = self.disk.ops();
        if self.writer.is_some() && self.journal.rename(&log(self.place), &log(to)).is_ok() {
            self.moves.push((to, began, self.disk.ops()));
            self.place = to;
        }
    }

    fn break_something(&mut self) {
        let op = [Op::Write, Op::Write, Op::Sync, Op::Sync, Op::Truncate][self.rng.below(5) as usize];
        let fault = match (op, self.rng.below(3)) {
            (Op::Write, 0) => Fault::NoSpace,
            (Op::Write, 1) => Fault::Short(self.rng.below(150) as usize),
            _ => Fault::Io,
        };
        self.disk.fail(op, 0, fault);
        if self.rng.one_in(4) {
            // A second failure while the first is dealt with.
            self.disk.fail([Op::Truncate, Op::Sync][self.rng.below(2) as usize], 0, Fault::Io);
        }
    }

    fn step(&mut self) {
        match self.rng.below(12) {
            0..=7 => self.append(),
            8 if self.writer.is_some() => self.reopen(),
            9 => self.rename(),
            _ if self.writer.is_some() => {
                self.break_something();
                self.append();
                self.disk.heal();
            }
            _ => self.append(),
        }
    }

    /// Whether the commands that are there are those that must be, and none that must not.
    fn check(&self, present: &[u64], crashed_in: u64) {
        let mut due = present.iter().peekable();
        for tried in &self.tried {
            let there = due.next_if(|id| **id == tried.id).is_some();
            match tried.fate {
                Fate::Acknowledged(since) if since < crashed_in => assert!(there, "lost: {tried:?}"),
                Fate::Refused(since) if since < crashed_in => assert!(!there, "came back: {tried:?}"),
                Fate::Acknowledged(_) | Fate::Refused(_) | Fate::Unknown => {
                    assert!(!there || tried.began < crashed_in, "from the future: {tried:?}");
                }
            }
        }
        assert_eq!(due.next(), None, "out of order, or never tried: {present:?}");
    }

    /// Recovers a disk that a crash left; what was there.
    fn recover(&mut self, disk: &SimDisk, crashed_in: u64) -> Vec<u64> {
        let journal = FileJournal::new(Arc::new(disk.clone()));
        let places = journal.list("").unwrap();
        assert!(places.len() <= 1, "the log is in two places: {places:?}");
        let Some(place) = places.first() else {
            self.check(&[], crashed_in);
            return Vec::new();
        };
        let moved = self.moves.iter().rfind(|(_, _, since)| *since < crashed_in);
        if let Some((to, _, _)) = moved {
            assert!(*place >= log(*to), "a rename was lost: {place}");
        }
        let mut entries = Vec::new();
        let opened = journal.open(place, at(2), &mut |entry| entries.push(entry)).unwrap();
        for damage in &opened.damage {
            assert!(matches!(damage.kind, DamageKind::TornTail { .. }), "{damage}");
        }
        let (present, sum) = replay(&entries);
        self.check(&present, crashed_in);
        for id in &present {
            let tried = &self.tried[*id as usize];
            if tried.blob {
                let hash = entries.iter().find_map(|entry| blob_of(entry, *id)).unwrap();
                assert_eq!(journal.get_blob(place, &hash).unwrap(), format!("contents of {id}").as_bytes());
            }
        }
        if self.rng.one_in(2) {
            return present;
        }
        // Appending goes on, and readers see the same.
        let body = format!(r#"{{"type":"add","id":99999,"part":0,"of":1,"n":1,"sum":{}}}"#, sum + 1);
        opened.writer.append(entries.len() as u64, at(3), &[body]).unwrap();
        let mut read = Vec::new();
        let damage = journal
            .read(place, 0, &mut |entry| {
                read.push(entry);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(damage, []);
        assert_eq!(replay(&read).1, sum + 1);
        assert_eq!(read[..entries.len()], entries);
        present
    }

    /// Crashes at a moment in every way it can, recovers, and crashes once more during that.
    fn crash(&mut self, moment: &Moment, seed: u64, states: u64) {
        for disk in moment.crash(seed, states) {
            let again = self.rng.one_in(6);
            if again {
                disk.record();
            }
            let before = disk.files();
            let present = self.recover(&disk, moment.op);
            if !again || before.is_empty() {
                continue;
            }
            let moments = disk.take_moments();
            if let Some(second) = moments.get(self.rng.below(moments.len() as u64) as usize) {
                for disk in second.crash(seed, 2) {
                    let mut after = self.recover_twice(&disk, moment.op);
                    after.retain(|id| *id != 99_999);
                    assert_eq!(after, present, "a second crash changed what was recovered");
                }
            }
        }
    }

    /// Kills the process at a moment, recovers, and crashes the machine after that: what recovery handed out was durable.
    fn kill(&mut self, moment: &Moment, seed: u64) {
        let disk = moment.kill();
        let present = self.recover(&disk, moment.op);
        for left in disk.now().crash(seed, 4) {
            let mut after = self.recover_twice(&left, moment.op);
            after.retain(|id| *id != 99_999);
            assert_eq!(after, present, "what recovery handed out was not durable");
        }
    }

    /// What is there after a crash during or after a recovery.
    fn recover_twice(&self, disk: &SimDisk, crashed_in: u64) -> Vec<u64> {
        let journal = FileJournal::new(Arc::new(disk.clone()));
        let Some(place) = journal.list("").unwrap().pop() else {
            self.check(&[], crashed_in);
            return Vec::new();
        };
        let mut entries = Vec::new();
        journal.open(&place, at(2), &mut |entry| entries.push(entry)).unwrap();
        replay(&entries).0
    }
}

/// What a record of the workloads says.
#[derive(Deserialize)]
struct Add {
    id: u64,
    part: u64,
    of: u64,
    n: u64,
    sum: u64,
    blob: Option<String>,
}

fn blob_of(entry: &Entry, id: u64) -> Option<String> {
    let add: Add = serde_json::from_str(&entry.text).unwrap();
    add.blob.filter(|_| add.id == id)
}

/// The state that the records give: the commands that are there, each whole, and the sum. Fails on a gap, on half
/// a command, and on a sum that is not what the record says.
fn replay(entries: &[Entry]) -> (Vec<u64>, u64) {
    let (mut commands, mut sum, mut part) = (Vec::new(), 0, 0);
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!(entry.seq, index as u64, "a gap");
        let add: Add = serde_json::from_str(&entry.text).unwrap();
        assert_eq!(add.part, part, "half a command: {}", entry.text);
        sum += add.n;
        assert_eq!(add.sum, sum, "another state: {}", entry.text);
        part += 1;
        assert_eq!(entry.more, part < add.of);
        if !entry.more {
            commands.push(add.id);
            part = 0;
        }
    }
    assert_eq!(part, 0, "half a command at the end");
    (commands, sum)
}

fn run(seed: u64, states: u64) {
    let mut world = World::new(seed);
    let steps = 2 + world.rng.below(5);
    for _ in 0..steps {
        world.step();
    }
    world.writer = None;
    let mut moments = world.disk.take_moments();
    let mut end = world.disk.now();
    end.op += 1;
    moments.push(end);
    for moment in &moments {
        world.crash(moment, seed, states);
        if world.rng.one_in(6) {
            world.kill(moment, seed);
        }
    }
}

/// One unsynced operation is tried in every way in every workload, more of them in some.
fn states(seed: u64, long: bool) -> u64 {
    if long || seed.is_multiple_of(200) { 4096 } else { 4 }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn no_crash_loses_what_was_acknowledged_or_leaves_half_a_command() {
    if let Some(seed) = from_env("CTX_SIM_SEED") {
        return run(seed, states(seed, true));
    }
    let by_hand = from_env("CTX_SIM_WORKLOADS");
    let (workloads, long) = (by_hand.unwrap_or(WORKLOADS), by_hand.is_some());
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > workloads {
                        break;
                    }
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, states(seed, long)))) {
                        next.store(workloads + 1, Ordering::Relaxed);
                        eprintln!("to replay: CTX_SIM_SEED={seed} cargo test -p ctx-journal no_crash");
                        resume_unwind(panic);
                    }
                }
            });
        }
    });
}

#[test]
fn a_crash_takes_no_more_than_what_was_written_without_a_sync() {
    for seed in 0..20 {
        let disk = SimDisk::new();
        let journal = FileJournal::new(Arc::new(disk.clone()));
        let mut rng = Rng::new(seed);
        let note = |n: u64| vec![format!(r#"{{"type":"note","n":{n}}}"#)];
        let writer = journal.create(&log(0), me(), at(0), &note(0)).unwrap();
        let synced = 1 + rng.below(3);
        for n in 1..=synced {
            writer.append_soon(at(n), &note(n)).unwrap();
        }
        writer.flush().unwrap();
        for n in 1..=rng.below(6) {
            writer.append_soon(at(n), &note(synced + n)).unwrap();
        }
        // All that was written and not synced may be lost, in any way, while the writer is still there.
        for disk in disk.now().crash(seed, 1024) {
            let journal = FileJournal::new(Arc::new(disk));
            let mut seqs = Vec::new();
            let opened = journal.open(&log(0), at(9), &mut |entry| seqs.push(entry.seq)).unwrap();
            assert_eq!(seqs[..=synced as usize], (0..=synced).collect::<Vec<_>>());
            assert!(seqs.is_sorted());
            assert!(opened.writer.append_next(at(9), &note(9)).is_ok());
        }
    }
}
