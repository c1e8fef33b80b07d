//! What the tests of the index share: an index on a root, and sessions that grow under it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctx_journal::{LogPath, LogWriter};
use ctx_session::Record;
use ctx_views::db::{IndexDb, Options, SearchQuery, SessionItem, SessionLogs};

use crate::world::{Life, Root, Step, append, own};

pub const START: u64 = 1_794_722_400_000;
pub const LONG: Duration = Duration::from_secs(60);
pub const DB: &str = "index.db";

pub fn open(root: &Root) -> IndexDb {
    let journal = root.journal.clone();
    open_with(root, Arc::new(move || journal.list("home")))
}

pub fn open_with(root: &Root, session_logs: SessionLogs) -> IndexDb {
    let options = Options { session_logs, meta_of: Arc::new(|_, first, _| first) };
    IndexDb::open(&root.dir, Path::new(DB), root.journal.clone(), options).unwrap()
}

/// Opens the index as a daemon does, and waits until it shows everything.
pub fn started(root: &Root) -> IndexDb {
    let db = open(root);
    db.catch_up(|_| {});
    assert!(db.wait_all(LONG), "{:?}", db.last_error());
    // What there is nothing to read for is written too, so that nothing is under way any more.
    db.flush();
    assert_eq!(db.last_error(), None);
    db
}

pub fn log_of(agent: &str, dir_name: &str) -> LogPath {
    LogPath::new(format!("home/{}/agent/{agent}/session/{dir_name}/events.jsonl", own().uid)).unwrap()
}

/// A session with its log, that grows on disk and in the index.
pub struct Grown {
    pub life: Life,
    pub log: LogPath,
    /// None while something is done to the log behind everyone's back.
    writer: Option<Box<dyn LogWriter>>,
}

/// How a log becomes shorter.
#[derive(Debug, Clone, Copy)]
pub enum Shorter {
    /// The file is cut.
    Cut,
    /// An older copy is put in its place.
    Replaced,
}

impl Grown {
    pub fn new(root: &Root, life: Life, agent: &str, dir_name: &str) -> Grown {
        let log = log_of(agent, dir_name);
        let writer = life.write(&*root.journal, &log);
        Grown { life, log, writer: Some(writer) }
    }

    /// Takes the log back to its first commits, while nobody has it open.
    pub fn shorten(&mut self, root: &Root, commits: usize, how: Shorter) {
        self.writer = None;
        self.life.forget_after(commits);
        let path = root.path(self.log.as_str());
        let bytes = std::fs::read(&path).unwrap();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').take(self.life.records().len());
        let kept: Vec<u8> = lines.flatten().copied().collect();
        match how {
            Shorter::Cut => {
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_len(kept.len() as u64).unwrap();
            }
            Shorter::Replaced => {
                std::fs::write(path.with_extension("old"), kept).unwrap();
                std::fs::rename(path.with_extension("old"), &path).unwrap();
            }
        }
    }

    /// Takes the log up as the engine does when it loads a session.
    pub fn take_up(&mut self, root: &Root, db: Option<&IndexDb>) {
        self.writer = None;
        let mut last = None;
        let now = self.life.session.updated_at;
        let opened = root.journal.open(&self.log, now, &mut |entry| last = Some(entry)).unwrap();
        self.writer = Some(opened.writer);
        if let Some(db) = db {
            db.opened(&self.log, self.life.session.id(), last.as_ref());
        }
    }

    /// The directory is removed, and another session begins in its place.
    pub fn replace(&mut self, root: &Root, seed: u64, db: Option<&IndexDb>) {
        self.writer = None;
        std::fs::remove_dir_all(root.path(self.log.dir())).unwrap();
        let life = Life::begin_as(seed, None, "coder", START + seed);
        self.writer = Some(life.write(&*root.journal, &self.log));
        self.life = life;
        if let Some(db) = db {
            db.committed(&self.log, self.life.session.id(), &self.life.records());
        }
    }

    /// Takes a step and commits it; the index is told of it or not.
    pub fn step(&mut self, step: &Step, db: Option<&IndexDb>) {
        let Some(commit) = self.life.step(step).map(<[Record]>::to_vec) else { return };
        append(&**self.writer.as_ref().unwrap(), &commit);
        if let Some(db) = db {
            db.committed(&self.log, self.life.session.id(), &commit);
        }
    }
}

pub fn post(text: &str) -> Step {
    Step::Post { text: text.to_owned(), slot: true, cwd: None }
}

pub fn say(text: &str) -> Step {
    Step::Say { text: text.to_owned() }
}

pub fn done() -> Step {
    Step::Finish { how: 0, partial: None }
}

pub fn tool(output: &str) -> [Step; 2] {
    let call = |finish| Step::Tool { input: "README".to_owned(), output: output.to_owned(), finish };
    [call(false), call(true)]
}

pub fn talk(question: &str, answer: &str) -> Vec<Step> {
    vec![post(question), say(answer), done()]
}

pub fn put(root: &Root, seed: u64, agent: &str, dir_name: &str, steps: &[Step]) -> Grown {
    put_at(root, (seed, seed), agent, dir_name, steps)
}

/// The same, with ids from a seed and begun at a minute.
pub fn put_at(root: &Root, (seed, minute): (u64, u64), agent: &str, dir_name: &str, steps: &[Step]) -> Grown {
    let mut life = Life::begin_as(seed, Some(dir_name), agent, START + minute * 60_000);
    life.live(steps);
    Grown::new(root, life, agent, dir_name)
}

pub fn names(items: &[SessionItem]) -> Vec<&str> {
    items.iter().map(|item| item.row.meta.name.as_str()).collect()
}

pub fn found(db: &IndexDb, query: &SearchQuery) -> Vec<String> {
    let page = db.ask(|q| q.search(query)).unwrap();
    page.items.iter().map(|hit| hit.snippet.iter().map(|piece| piece.text.as_str()).collect()).collect()
}
