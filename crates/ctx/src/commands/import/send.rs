//! Giving records to the daemon, batch by batch, and remembering which sources it has.
//!
//! What is remembered only saves work: the daemon leaves out what it has, and a session that is gone there is sent again.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use ctx_api::http::{ImportBatch, ImportDone, ImportedSession, List};
use ctx_interop::records::{Dated, records, session_id};
use ctx_interop::store::Entry;
use ctx_interop::{Agent, Transcript};
use ctx_session::{Code, SessionId, Ulid};
use serde_json::{Value, json};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::{Root, xdg};
use crate::words;

/// A batch is closed when it has this many bytes or records.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_RECORDS: usize = 4_000;

/// What came of sending a session.
pub struct Sent {
    /// None: there was nothing in it.
    pub session: Option<SessionId>,
    pub created: bool,
    pub added: u64,
}

impl Sent {
    /// What would come of it where nothing is there yet.
    pub fn nothing(found: &Transcript, entry: &Entry) -> Sent {
        let made = records(entry.agent, found);
        let session = (!made.is_empty()).then(|| session_id(entry.agent, found));
        Sent { session, created: false, added: made.len() as u64 }
    }
}

pub struct Sender<'a> {
    api: &'a Api<'a>,
    import: Ulid,
    /// The imported sessions that the daemon has, by agent and source: their ids there, which depend on the user too.
    there: HashMap<(String, String), String>,
    /// What each session's source was like when all of it had come in.
    marks: BTreeMap<String, String>,
    all_marks: HashMap<String, BTreeMap<String, String>>,
    root: String,
    file: PathBuf,
}

impl<'a> Sender<'a> {
    pub fn new(api: &'a Api<'a>, root: &Root) -> Result<Sender<'a>, Failure> {
        let there: List<ImportedSession> = api.get("/imports")?;
        let file = xdg("XDG_STATE_HOME", ".local/state")?.join("ctx/imports.json");
        let mut all_marks: HashMap<String, BTreeMap<String, String>> = std::fs::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let root = root.api_socket().display().to_string();
        Ok(Sender {
            api,
            import: fresh_id()?,
            there: there.items.into_iter().map(|one| ((one.agent, one.native_id), one.session)).collect(),
            marks: all_marks.remove(&root).unwrap_or_default(),
            all_marks,
            root,
            file,
        })
    }

    /// Sends what is new of a session.
    pub fn send(&mut self, entry: &Entry, found: &Transcript) -> Result<Sent, Failure> {
        let id = session_id(entry.agent, found);
        let (key, source) = (id.to_string(), (entry.agent.to_string(), found.native_id.clone()));
        let there = self.there.get(&source).and_then(|there| there.parse().ok());
        if there.is_some() && self.marks.get(&key) == Some(&entry.mark) {
            return Ok(Sent { session: there, created: false, added: 0 });
        }
        let made = records(entry.agent, found);
        if made.is_empty() {
            return Ok(Sent { session: None, created: false, added: 0 });
        }
        let mut sent = Sent { session: Some(id), created: false, added: 0 };
        for batch in batches(made)? {
            let batch = self.batch(entry, found, id, batch);
            let done: ImportDone = self.api.post_with("/imports", &batch)?;
            sent.session = done.session.parse().ok();
            self.there.insert(source.clone(), done.session);
            sent.created |= done.created;
            sent.added += done.added;
        }
        self.marks.insert(key, entry.mark.clone());
        Ok(sent)
    }

    fn batch(&self, entry: &Entry, found: &Transcript, id: SessionId, records: Vec<Value>) -> ImportBatch {
        let mut origin = json!({
            "agent": entry.agent, "native_id": found.native_id, "path": entry.path, "version": found.version,
            "branch": found.branch, "model": found.model, "cost_usd": found.cost,
        });
        if let (Some(link), Some(origin)) = (&found.link, origin.as_object_mut()) {
            origin.insert("link".to_owned(), json!(link));
        }
        if let Some(origin) = origin.as_object_mut() {
            origin.retain(|_, value| !value.is_null());
        }
        ImportBatch {
            import_id: self.import.to_string(),
            agent: entry.agent.to_string(),
            session: id.to_string(),
            name: name_of(entry.agent, found, id),
            cwd: found.cwd.clone(),
            model: found.model.clone().unwrap_or_else(|| "unknown".to_owned()),
            title: found.title.clone(),
            created_at: found.created.unwrap_or_default().to_string(),
            origin,
            records,
        }
    }

    /// Remembers what came in.
    pub fn save(&mut self) -> Result<(), Failure> {
        let mut all = self.all_marks.clone();
        all.insert(self.root.clone(), self.marks.clone());
        let text = serde_json::to_vec(&all).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        let broken = |error| Failure::io(self.file.display(), error);
        if let Some(dir) = self.file.parent() {
            std::fs::create_dir_all(dir).map_err(broken)?;
        }
        let beside = self.file.with_extension(format!("json.{}", std::process::id()));
        std::fs::write(&beside, text).map_err(broken)?;
        std::fs::rename(&beside, &self.file).map_err(broken)
    }
}

/// The source's id as a name, or ours where it is none.
fn name_of(agent: Agent, found: &Transcript, id: SessionId) -> String {
    let text: String = found
        .native_id
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '.' })
        .collect();
    let text = if agent == Agent::Aider { text.chars().take(12).collect() } else { text };
    ctx_session::Name::of_session(&text).map_or_else(|_| id.to_string(), |name| name.to_string())
}

/// The records in batches, each as JSON with its time.
fn batches(made: Vec<Dated>) -> Result<Vec<Vec<Value>>, Failure> {
    let mut all = vec![Vec::new()];
    let mut bytes = 0;
    for Dated { time, body } in made {
        let text = body.to_json();
        let mut value: Value =
            serde_json::from_str(&text).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        if let Some(object) = value.as_object_mut() {
            object.insert("time".to_owned(), json!(time));
        }
        let is_full = all.last().is_some_and(|batch: &Vec<Value>| batch.len() >= BATCH_RECORDS);
        if bytes > 0 && (is_full || bytes + text.len() > BATCH_BYTES) {
            all.push(Vec::new());
            bytes = 0;
        }
        bytes += text.len();
        if let Some(last) = all.last_mut() {
            last.push(value);
        }
    }
    Ok(all)
}

/// An id of this moment.
fn fresh_id() -> Result<Ulid, Failure> {
    let mut random = [0u8; 10];
    let broken = |error: rustix::io::Errno| Failure::io("random numbers", error.into());
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(broken)?;
    let random = random.iter().fold(0u128, |all, byte| (all << 8) | u128::from(*byte));
    Ok(Ulid((u128::from(words::now().as_millis()) << 80) | random))
}
