//! Stores on disk: where each agent keeps its sessions, which there are, and reading one.
//!
//! Only this module and `sqlite` touch files, and they only read. What a file says is decided by the agent's own module.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ctx_session::Timestamp;
use serde_json::Value;

use crate::event::{Agent, Link, Transcript};
use crate::json::text;
use crate::rows::{directory, read_goose, read_opencode, read_tree};
use crate::{aider, claude, codex, gemini, sqlite};

/// How deep below its root a session may lie.
const DEPTH_MAX: usize = 8;
/// How deep below a home Aider's repositories are looked for.
const AIDER_DEPTH_MAX: usize = 5;
/// How many directories are looked into for them.
const AIDER_DIRECTORIES_MAX: usize = 20_000;
/// How many forks deep a history is followed.
const FORKS_MAX: usize = 32;
/// How long a record that is cut off is given to become whole.
const TAIL_WAIT: Duration = Duration::from_millis(100);
/// A file that was not written to for so long is not being written to.
const AT_REST: Duration = Duration::from_secs(2);
/// Within so long a program writes all of what belongs together.
const WRITTEN: Duration = Duration::from_secs(10);
/// The beginning of a file, in which its first records are.
const HEAD_BYTES: u64 = 256 * 1024;

/// A session in a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub agent: Agent,
    /// The file that has the session, or the database.
    pub path: PathBuf,
    pub size: u64,
    /// Changes whenever the source does.
    pub mark: String,
    place: Place,
}

#[derive(Debug, Clone, PartialEq)]
enum Place {
    File,
    /// In a database: its id there.
    Row(String),
    /// The root of a tree of JSON files, and the session's file in it.
    Tree(PathBuf),
    /// A fork of Claude, and the session that it comes from.
    Fork(String),
    /// A subagent of Claude: the session it belongs to, and its call.
    Subagent {
        session: String,
        call: Option<String>,
    },
}

/// The sessions of an agent below a directory, which is a home or the store itself.
pub struct Store {
    pub agent: Agent,
    pub root: PathBuf,
    pub entries: Vec<Entry>,
    /// What could not be listed, in words.
    pub failures: Vec<(PathBuf, String)>,
    now: Timestamp,
    titles: HashMap<String, String>,
    databases: HashMap<PathBuf, sqlite::Snapshot>,
}

/// Lists an agent's sessions below a directory. A directory without any gives an empty list. `now` tells what may still be written
/// to from what was cut off.
pub fn list(agent: Agent, dir: &Path, now: Timestamp) -> Store {
    let mut store = Store {
        agent,
        root: dir.to_owned(),
        entries: Vec::new(),
        failures: Vec::new(),
        now,
        titles: HashMap::new(),
        databases: HashMap::new(),
    };
    match agent {
        Agent::Codex => store.list_codex(dir),
        Agent::Claude => store.list_claude(dir),
        Agent::Opencode => store.list_opencode(dir),
        Agent::Goose => store.list_goose(dir),
        Agent::Gemini => store.list_gemini(dir),
        Agent::Aider => store.list_aider(dir),
    }
    store.entries.sort_by(|entry, other| entry.path.cmp(&other.path));
    store
}

/// A mark of a store that is one database, which is costly to list: as long as it is the same, nothing was written.
pub fn state(agent: Agent, dir: &Path) -> Option<String> {
    let database = match agent {
        Agent::Goose => goose_root(dir).join("sessions.db"),
        Agent::Opencode => opencode_root(dir).join("opencode.db"),
        Agent::Codex | Agent::Claude | Agent::Gemini | Agent::Aider => return None,
    };
    let has_tree = agent == Agent::Opencode && opencode_root(dir).join("storage/session").is_dir();
    (database.is_file() && !has_tree).then(|| format!("{:?}", sqlite::mark(&database)))
}

fn goose_root(dir: &Path) -> PathBuf {
    root_of(dir, &[".local/share/goose/sessions", "goose/sessions", "sessions"])
}

fn opencode_root(dir: &Path) -> PathBuf {
    root_of(dir, &[".local/share/opencode", "opencode"])
}

/// The first of some places below a directory that exists; the directory itself where none does.
fn root_of(dir: &Path, places: &[&str]) -> PathBuf {
    let below = places.iter().map(|place| dir.join(place)).find(|place| place.exists());
    below.unwrap_or_else(|| dir.to_owned())
}

impl Store {
    fn list_codex(&mut self, dir: &Path) {
        let root = root_of(dir, &[".codex"]);
        self.read_titles(&root.join("session_index.jsonl"));
        let lists = ["sessions", "archived_sessions"].map(|name| root.join(name));
        let lists: Vec<PathBuf> = lists.into_iter().filter(|list| list.is_dir()).collect();
        for list in if lists.is_empty() { vec![root] } else { lists } {
            self.files(&list, DEPTH_MAX, &|name| name.starts_with("rollout-") && name.ends_with(".jsonl"));
        }
    }

    fn read_titles(&mut self, index: &Path) {
        let Ok(bytes) = fs::read(index) else { return };
        for (_, line) in crate::json::lines(&bytes) {
            let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
            if let (Some(id), Some(name)) = (text(&line, "/id"), text(&line, "/thread_name")) {
                self.titles.insert(id.to_owned(), name.to_owned());
            }
        }
    }

    fn list_claude(&mut self, dir: &Path) {
        let root = root_of(dir, &[".claude/projects", "projects"]);
        self.files(&root, 2, &|name| is_uuid(name.strip_suffix(".jsonl").unwrap_or_default()));
        self.link_forks();
        let mut subagents = Vec::new();
        let is_agent =
            |path: &PathBuf| name_of(path).starts_with("agent-") && name_of(path).ends_with(".jsonl");
        let mut folders = BTreeSet::new();
        for entry in &self.entries {
            let session = entry.id();
            folders.extend(entry.path.parent().map(Path::to_owned));
            let own = directory(&entry.path.with_extension("").join("subagents"));
            for path in own.into_iter().filter(is_agent) {
                let meta = fs::read(path.with_extension("meta.json")).unwrap_or_default();
                let meta: Value = serde_json::from_slice(&meta).unwrap_or(Value::Null);
                let call = text(&meta, "/toolUseId").map(str::to_owned);
                subagents.push((path, session.clone(), call));
            }
        }
        // Version 2.0 has them beside the sessions, also those that nobody asked for.
        for path in folders.iter().flat_map(|folder| directory(folder)).filter(is_agent) {
            let agent = agent_of(&path);
            let head: Value = first_line(&path).unwrap_or(Value::Null);
            let Some(session) = text(&head, "/sessionId").filter(|session| is_uuid(session)) else {
                continue;
            };
            let bytes = fs::read(path.with_file_name(format!("{session}.jsonl"))).unwrap_or_default();
            if let Some(call) = claude::call_of(&agent, &bytes) {
                subagents.push((path, session.to_owned(), Some(call)));
            }
        }
        for (path, session, call) in subagents {
            self.add(path, Place::Subagent { session, call });
        }
    }

    /// A fork begins with a copy of the session that it comes from, and its file begins later.
    fn link_forks(&mut self) {
        let mut first: HashMap<String, (Timestamp, String)> = HashMap::new();
        let heads: Vec<_> = self.entries.iter().map(|entry| claude::beginning(&head(&entry.path))).collect();
        for (entry, (begins, record)) in
            self.entries.iter().zip(&heads).filter_map(|(e, h)| Some((e, h.as_ref()?)))
        {
            let known = first.entry(record.clone()).or_insert_with(|| (*begins, entry.id()));
            if *begins < known.0 {
                *known = (*begins, entry.id());
            }
        }
        for (entry, head) in self.entries.iter_mut().zip(heads) {
            let source = head.and_then(|(_, record)| first.get(&record)).map(|(_, source)| source.clone());
            if let Some(source) = source.filter(|source| *source != entry.id()) {
                entry.place = Place::Fork(source);
            }
        }
    }

    fn list_opencode(&mut self, dir: &Path) {
        let root = opencode_root(dir);
        let database = root.join("opencode.db");
        if database.is_file() {
            self.rows(&database, "SELECT id FROM session ORDER BY time_created, id");
        }
        let storage = root_of(&root, &["storage"]);
        for project in directory(&storage.join("session")) {
            for path in directory(&project).into_iter().filter(|path| name_of(path).ends_with(".json")) {
                self.add(path, Place::Tree(storage.clone()));
            }
        }
        // What was moved into the database is in both.
        let rows: Vec<String> = self.entries.iter().filter_map(Entry::row).map(str::to_owned).collect();
        self.entries.retain(|entry| {
            let stem = entry.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            entry.row().is_some() || !rows.iter().any(|row| row == stem)
        });
    }

    fn list_goose(&mut self, dir: &Path) {
        let root = goose_root(dir);
        let database = root.join("sessions.db");
        if database.is_file() {
            self.rows(&database, "SELECT id FROM sessions ORDER BY created_at, id");
        }
    }

    fn list_gemini(&mut self, dir: &Path) {
        let root = root_of(dir, &[".gemini/tmp", "tmp"]);
        self.files(&root, 4, &|name| {
            name.starts_with("session-") && (name.ends_with(".jsonl") || name.ends_with(".json"))
        });
    }

    fn list_aider(&mut self, dir: &Path) {
        let mut left = vec![(dir.to_owned(), 0)];
        let mut looked = 0;
        while let Some((dir, depth)) = left.pop() {
            looked += 1;
            if looked > AIDER_DIRECTORIES_MAX {
                return;
            }
            for path in directory(&dir) {
                let name = name_of(&path);
                if name == ".aider.chat.history.md" {
                    self.add(path, Place::File);
                } else if depth < AIDER_DEPTH_MAX
                    && !name.starts_with('.')
                    && name != "node_modules"
                    && is_directory(&path)
                {
                    left.push((path, depth + 1));
                }
            }
        }
    }

    /// Adds the files below a directory whose names fit.
    fn files(&mut self, dir: &Path, depth: usize, fits: &dyn Fn(&str) -> bool) {
        for path in directory(dir) {
            if is_directory(&path) {
                if depth > 0 {
                    self.files(&path, depth - 1, fits);
                }
            } else if fits(&name_of(&path)) {
                self.add(path, Place::File);
            }
        }
    }

    fn add(&mut self, path: PathBuf, place: Place) {
        let metadata = fs::metadata(&path);
        let size = metadata.as_ref().map_or(0, fs::Metadata::len);
        let changed = metadata.and_then(|metadata| metadata.modified()).ok();
        let changed = changed.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let mark = format!("{size}-{}", changed.unwrap_or_default().as_nanos());
        let mark = if let Place::Tree(root) = &place { tree_mark(root, &path, mark) } else { mark };
        self.entries.push(Entry { agent: self.agent, path, size, mark, place });
    }

    /// Adds the sessions of a database.
    fn rows(&mut self, path: &Path, query: &str) {
        let mark = format!("{:?}", sqlite::mark(path));
        let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
        let snapshot = match sqlite::open(path) {
            Ok(snapshot) => snapshot,
            Err(error) => return self.failures.push((path.to_owned(), error.to_string())),
        };
        let listed = snapshot.db.prepare(query).and_then(|mut statement| {
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            Ok(rows.flatten().collect::<Vec<_>>())
        });
        match listed {
            Ok(ids) => {
                let share = size / (ids.len() as u64).max(1);
                for id in ids {
                    let (path, place) = (path.to_owned(), Place::Row(id));
                    self.entries.push(Entry {
                        agent: self.agent,
                        path,
                        size: share,
                        mark: mark.clone(),
                        place,
                    });
                }
                self.databases.insert(path.to_owned(), snapshot);
            }
            Err(error) => self.failures.push((path.to_owned(), error.to_string())),
        }
    }

    /// Reads a session.
    pub fn read(&self, entry: &Entry) -> io::Result<Transcript> {
        let file = entry.path.display().to_string();
        match (&entry.place, self.agent) {
            (Place::Row(id), agent) => {
                let snapshot =
                    self.databases.get(&entry.path).ok_or_else(|| io::Error::other("not listed"))?;
                let read = match agent {
                    Agent::Goose => read_goose(&snapshot.db, id, &file),
                    _ => read_opencode(&snapshot.db, id, &file, self.now),
                };
                read.map_err(io::Error::other)
            }
            (Place::Tree(root), _) => read_tree(root, &entry.path, self.now),
            (Place::Subagent { session, call }, _) => {
                let mut found = read_claude(&entry.path)?;
                found.native_id = format!("{session}/{}", agent_of(&entry.path));
                found.link = Some(Link::SubagentOf { native_id: session.clone(), call: call.clone() });
                Ok(found)
            }
            (Place::File, Agent::Codex) => self.read_codex(&entry.path, u64::MAX, FORKS_MAX),
            (Place::File, Agent::Gemini) => Ok(read_gemini(&entry.path, &whole(&entry.path)?)),
            (Place::File, Agent::Aider) => {
                let typed = fs::read(entry.path.with_file_name(".aider.input.history")).ok();
                let mut found = aider::read(&fs::read(&entry.path)?, typed.as_deref(), &file);
                found.cwd = entry.path.parent().map(|dir| dir.display().to_string());
                Ok(found)
            }
            (Place::Fork(source), _) => {
                let mut found = read_claude(&entry.path)?;
                found.link = found.link.or(Some(Link::ForkOf { native_id: source.clone() }));
                Ok(found)
            }
            (Place::File, _) => read_claude(&entry.path),
        }
    }

    /// Reads a thread with the history that it was forked from.
    fn read_codex(&self, path: &Path, end_ordinal: u64, forks: usize) -> io::Result<Transcript> {
        let (mut found, base) = codex::read_until(&whole(path)?, &path.display().to_string(), end_ordinal);
        if found.title.is_none() {
            found.title = self.titles.get(&found.native_id).cloned();
        }
        let Some(base) = base.filter(|_| forks > 0) else { return Ok(found) };
        let is_parent =
            |entry: &&Entry| codex::id_of_file(&name_of(&entry.path)).as_ref() == Some(&base.thread);
        match self.entries.iter().find(is_parent) {
            Some(parent) => {
                let parent = self.read_codex(&parent.path, base.end_ordinal, forks - 1)?;
                codex::inherit(&mut found, parent);
            }
            None => {
                let why =
                    format!("the history before the fork is in thread {}, which is not here", base.thread);
                found.note_damage(&path.display().to_string(), 1, why);
            }
        }
        Ok(found)
    }
}

impl Entry {
    fn row(&self) -> Option<&str> {
        match &self.place {
            Place::Row(id) => Some(id),
            _ => None,
        }
    }

    /// The source's id of the session, where it is known without reading it.
    pub fn id(&self) -> String {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        match &self.place {
            Place::Row(id) => id.clone(),
            _ => codex::id_of_file(&name_of(&self.path)).unwrap_or_else(|| stem.to_owned()),
        }
    }
}

/// A file as a whole. One that ends within a record is being written to, and is given a moment.
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    let is_cut = |bytes: &[u8]| {
        !bytes.is_empty() && !bytes.ends_with(b"\n") && path.extension().is_some_and(|e| e == "jsonl")
    };
    if !is_cut(&bytes) || !changed_within(path, AT_REST)? {
        return Ok(bytes);
    }
    std::thread::sleep(TAIL_WAIT);
    fs::read(path)
}

fn changed_within(path: &Path, time: Duration) -> io::Result<bool> {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified())?;
    Ok(changed.elapsed().map_or(true, |age| age <= time))
}

fn read_claude(path: &Path) -> io::Result<Transcript> {
    let is_written = changed_within(path, WRITTEN)?;
    Ok(claude::read_some(&whole(path)?, &path.display().to_string(), is_written))
}

fn head(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut bytes));
    if read.is_err() {
        bytes.clear();
    }
    bytes
}

fn first_line(path: &Path) -> Option<Value> {
    let bytes = head(path);
    let (_, line) = crate::json::lines(&bytes).next()?;
    serde_json::from_slice(line).ok()
}

/// The id of a subagent of Claude, by its file.
fn agent_of(path: &Path) -> String {
    name_of(path).trim_start_matches("agent-").trim_end_matches(".jsonl").to_owned()
}

fn read_gemini(path: &Path, bytes: &[u8]) -> Transcript {
    let file = path.display().to_string();
    let mut found = match path.extension() {
        Some(extension) if extension == "jsonl" => gemini::read_log(bytes, &file),
        _ => gemini::read_json(bytes, &file),
    };
    if found.native_id.is_empty() {
        found.native_id =
            path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    }
    let project = path.parent().and_then(Path::parent).map(|dir| dir.join(".project_root"));
    let known = project.and_then(|path| fs::read_to_string(path).ok()).map(|text| text.trim().to_owned());
    found.cwd = known.filter(|dir| !dir.is_empty()).or(found.cwd);
    found
}

/// The newest change below a session of a tree.
fn tree_mark(root: &Path, session: &Path, mark: String) -> String {
    let id = session.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let messages = directory(&root.join("message").join(id));
    let mut newest = SystemTime::UNIX_EPOCH;
    let mut count = messages.len();
    for message in &messages {
        let stem = message.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let parts = root.join("part").join(stem);
        for path in directory(&parts).iter().chain([message, &parts]) {
            count += 1;
            newest = newest.max(fs::metadata(path).and_then(|found| found.modified()).unwrap_or(newest));
        }
    }
    let newest = newest.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{mark}-{count}-{newest}")
}

fn is_uuid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| if dashes.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() })
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A directory that is no link: links may go in circles.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}
