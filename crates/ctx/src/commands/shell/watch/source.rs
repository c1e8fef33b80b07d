//! Where the screen of `ctx watch` gets what it shows: the logs of shells and of sessions, read as they grow.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use ctx_journal::LogPath;
use ctx_session::command::UnderWay;
use ctx_session::{StateName, Timestamp};
use ctx_views::read::{Reader, SessionRef, Summary as SessionSummary};

use super::block::{Block, SessionBlocks, ShellBlocks};
use super::model::{Item, Mark};
use crate::commands::shell::shells::Summary;
use crate::failure::Failure;
use crate::output;
use crate::render::{Transcript, Wanted};
use crate::root::Root;
use crate::sessions::own_uid;
use crate::shell_logs::{Shelf, id_of};
use crate::words::{self, Clock};

/// Of each kind so many are listed, the newest; `ctx shells` and `ctx ls` list all.
const LISTED: usize = 200;
/// A long conversation is read again after so many times the time that it takes.
const PATIENCE: u32 = 10;

/// A shell's log as far as it was read.
struct Seen {
    size: u64,
    next: u64,
    summary: Summary,
}

/// Where an item is read from.
#[derive(Clone)]
enum Place {
    Shell(usize, LogPath),
    Session(SessionRef),
}

/// The transcript that is shown.
#[derive(Default)]
struct Shown {
    key: String,
    size: u64,
    next: u64,
    shell: ShellBlocks,
    session: SessionBlocks,
    answer: Option<String>,
    /// A shell's server is gone.
    is_lost: bool,
    /// A session's is not read again before this.
    not_before: Option<Instant>,
}

pub struct Source<'a> {
    root: &'a Root,
    shelves: Vec<Shelf>,
    seen: HashMap<String, Seen>,
    places: HashMap<String, Place>,
    shown: Shown,
    /// The directories in which something may change.
    dirs: Vec<PathBuf>,
}

impl Source<'_> {
    pub fn new(root: &Root) -> Source<'_> {
        let (seen, places) = (HashMap::new(), HashMap::new());
        Source { root, shelves: Vec::new(), seen, places, shown: Shown::default(), dirs: Vec::new() }
    }

    /// Everything that there is to choose from, the newest first.
    pub fn items(&mut self) -> Result<Vec<Item>, Failure> {
        self.places.clear();
        self.dirs.clear();
        let mut items: Vec<(Timestamp, Item)> = Vec::new();
        self.shells(&mut items)?;
        // Without a root there are no sessions, and shells all the same.
        if let Ok(reader) = self.root.reader() {
            self.sessions(&reader, &mut items);
        }
        items.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.key.cmp(&other.key)));
        Ok(items.into_iter().map(|(_, item)| item).collect())
    }

    fn shells(&mut self, items: &mut Vec<(Timestamp, Item)>) -> Result<(), Failure> {
        self.shelves = Shelf::for_reading(self.root)?;
        let mut logs = Vec::new();
        for (at, shelf) in self.shelves.iter().enumerate() {
            logs.extend(shelf.logs()?.into_iter().map(|log| (at, log)));
        }
        logs.sort_by(|(_, a), (_, b)| id_of(b).cmp(id_of(a)));
        for (at, log) in logs.into_iter().take(LISTED) {
            let Some(shelf) = self.shelves.get(at) else { continue };
            let key = id_of(&log).to_owned();
            let seen = self.seen.entry(key.clone()).or_insert_with(|| Seen {
                size: 0,
                next: 0,
                summary: Summary::of_log(&log),
            });
            let size = shelf.size(&log);
            if size != seen.size {
                // One that cannot be read is shown as far as it was: `ctx shells` says why.
                let read = shelf.entries(&log, seen.next, &mut |entry| seen.summary.add(entry));
                (seen.next, seen.size) = (read.unwrap_or(seen.next), size);
            }
            let summary = &seen.summary;
            let (state, mark) = match (summary.state, shelf.has_writer(&log)) {
                ("open", true) if summary.is_busy => ("running", Mark::Busy),
                ("open", true) => ("open", Mark::Open),
                ("open", false) | ("lost", _) => ("lost", Mark::Bad),
                (state, _) => (state, Mark::Over),
            };
            let name = if summary.shell.is_empty() { &key } else { &summary.shell };
            items.push((summary.updated, item(&key, name, state, summary.updated, mark)));
            self.places.insert(key, Place::Shell(at, log));
        }
        Ok(())
    }

    fn sessions(&mut self, reader: &Reader, items: &mut Vec<(Timestamp, Item)>) {
        let mut found: Vec<SessionSummary> = Vec::new();
        // What is gone by the time it is read, or may not be read, is left out.
        for place in reader.places(own_uid()).unwrap_or_default() {
            self.dirs.push(self.root.path.join(place.path()).join("agent"));
            for sessions in reader.session_dirs(&place).unwrap_or_default() {
                self.dirs.push(self.root.path.join(sessions.path()));
                let newest = reader.newest(&sessions, LISTED).unwrap_or_default();
                found.extend(newest.iter().filter_map(|session| reader.summary(session).ok()));
            }
        }
        found.sort_by_key(|summary| std::cmp::Reverse(summary.updated_at));
        for summary in found.into_iter().take(LISTED) {
            let key = summary.meta.id.to_string();
            let mark = match summary.meta.state {
                StateName::Running => Mark::Busy,
                StateName::Failed => Mark::Bad,
                StateName::Ended => Mark::Over,
                StateName::Idle | StateName::Queued | StateName::Paused => Mark::Open,
            };
            let name = format!("{}/{}", summary.session.sessions.object, summary.meta.name);
            let state = summary.meta.state.to_string();
            items.push((summary.updated_at, item(&key, &name, &state, summary.updated_at, mark)));
            let dir = self.root.path.join(summary.session.path());
            self.dirs.extend([dir.join("context"), dir]);
            self.places.insert(key, Place::Session(summary.session));
        }
    }

    /// The transcript of an item; None where it is the same as before.
    pub fn blocks(&mut self, key: &str) -> Option<&[Block]> {
        let is_new = self.shown.key != key;
        if is_new {
            self.shown = Shown { key: key.to_owned(), ..Shown::default() };
        }
        let changed = match self.places.get(key).cloned()? {
            Place::Shell(at, log) => self.read_shell(at, &log),
            Place::Session(session) => self.read_session(&session),
        };
        let blocks = match self.shown.shell.blocks.as_slice() {
            [] => &self.shown.session.blocks,
            blocks => blocks,
        };
        (changed || is_new).then_some(blocks)
    }

    fn read_shell(&mut self, at: usize, log: &LogPath) -> bool {
        let Some(shelf) = self.shelves.get(at) else { return false };
        let (size, shown) = (shelf.size(log), &mut self.shown);
        let is_lost = !shelf.has_writer(log);
        if (size, is_lost) == (shown.size, shown.is_lost) {
            return false;
        }
        let read = shelf.entries(log, shown.next, &mut |entry| shown.shell.add(entry));
        (shown.next, shown.size, shown.is_lost) = (read.unwrap_or(shown.next), size, is_lost);
        if is_lost {
            shown.shell.lost();
        }
        true
    }

    fn read_session(&mut self, session: &SessionRef) -> bool {
        let dir = self.root.path.join(session.path());
        let size = std::fs::metadata(dir.join("events.jsonl")).map_or(0, |meta| meta.len());
        let answer = std::fs::read(dir.join("context/answer.json")).ok();
        let answer = answer.and_then(|bytes| serde_json::from_slice::<UnderWay>(&bytes).ok());
        let shown = &mut self.shown;
        let answer = answer.map(|answer| answer.text);
        let is_early = shown.not_before.is_some_and(|then| Instant::now() < then);
        if (size, &answer) == (shown.size, &shown.answer) || is_early {
            return false;
        }
        let begun = Instant::now();
        shown.session = conversation(self.root, session).unwrap_or_else(|error| {
            let mut blocks = SessionBlocks::default();
            blocks.under_way(&output::one_line(&error_text(&error)));
            blocks
        });
        if let Some(text) = &answer {
            shown.session.under_way(text);
        }
        (shown.size, shown.answer) = (size, answer);
        shown.not_before = Some(Instant::now() + begun.elapsed() * PATIENCE);
        true
    }

    /// The directories of sessions in which something may change.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }
}

fn error_text(error: &Failure) -> String {
    match error {
        Failure::Said { message, .. } => format!("it cannot be read: {message}"),
        Failure::Told { .. } | Failure::ReaderGone => "it cannot be read".to_owned(),
    }
}

fn conversation(root: &Root, session: &SessionRef) -> Result<SessionBlocks, Failure> {
    let reader = root.reader()?;
    let mut blocks = SessionBlocks::default();
    for said in Transcript::open(&reader, session)?.messages(Wanted::Counting)? {
        blocks.add(&said?, Clock::new(false));
    }
    Ok(blocks)
}

fn item(key: &str, name: &str, state: &str, updated: Timestamp, mark: Mark) -> Item {
    Item {
        key: key.to_owned(),
        name: output::one_line(name),
        state: state.to_owned(),
        age: words::age(words::now(), updated),
        mark,
    }
}
