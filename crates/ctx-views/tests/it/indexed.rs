//! What the tests of the index share: an index on a root, and sessions that grow under it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctx_journal::{LogPath, LogWriter};
use ctx_session::Record;
use ctx_views::db::{IndexDb, Options, SearchQuery, SessionItem};

use crate::world::{Life, Root, Step, append, own};

pub const START: u64 = 1_794_722_400_000;
pub const LONG: Duration = Duration::from_secs(60);
pub const DB: &str = "index.db";

pub fn open(root: &Root) -> IndexDb {
    let journal = root.journal.clone();
    let options =
        Options { session_logs: Arc::new(move || journal.list("home")), meta_of: Arc::new(|_| None) };
    IndexDb::open(&root.dir, Path::new(DB), root.journal.clone(), options).unwrap()
}

/// Opens the index as a daemon does, and waits until it shows everything.
pub fn started(root: &Root) -> IndexDb {
    let db = open(root);
    db.catch_up(|_| {});
    assert!(db.wait_all(LONG), "{:?}", db.last_error());
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
    writer: Box<dyn LogWriter>,
}

impl Grown {
    pub fn new(root: &Root, life: Life, agent: &str, dir_name: &str) -> Grown {
        let log = log_of(agent, dir_name);
        let writer = life.write(&*root.journal, &log);
        Grown { life, log, writer }
    }

    /// Takes a step and commits it; the index is told of it or not.
    pub fn step(&mut self, step: &Step, db: Option<&IndexDb>) {
        let Some(commit) = self.life.step(step).map(<[Record]>::to_vec) else { return };
        append(&*self.writer, &commit);
        if let Some(db) = db {
            db.committed(&self.log, &commit);
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
