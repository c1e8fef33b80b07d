//! Giving records to the daemon, batch by batch, and remembering which sources it has.
//!
//! What is remembered only saves work: the daemon leaves out what it has, and a session that is gone there is sent again.

use std::collections::{BTreeMap, HashMap};
use std::iter::Peekable;
use std::path::PathBuf;

use ctx_api::http::{ImportBatch, ImportDone, ImportedSession, List};
use ctx_interop::records::{Dated, Made, make, session_id};
use ctx_interop::store::Entry;
use ctx_interop::{Agent, Transcript};
use ctx_session::{Code, SessionId, Ulid};
use serde_json::json;
use serde_json::value::RawValue;

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

/// What each session's source was like when all of it had come in, and the newest import of it then: one that was taken back
/// is sent again.
type Marks = BTreeMap<String, (String, String)>;

pub struct Sender<'a> {
    api: &'a Api<'a>,
    import: Ulid,
    /// Nothing is to change: the daemon only says what would.
    is_dry: bool,
    /// The imported sessions that the daemon has, by agent and source: their ids there, which depend on the user too, and the
    /// newest import of each.
    there: HashMap<(String, String), (String, String)>,
    marks: Marks,
    all_marks: HashMap<String, Marks>,
    root: String,
    file: PathBuf,
}

impl<'a> Sender<'a> {
    pub fn new(api: &'a Api<'a>, root: &Root, is_dry: bool) -> Result<Sender<'a>, Failure> {
        let there: List<ImportedSession> = api.get("/imports")?;
        let file = xdg("XDG_STATE_HOME", ".local/state")?.join("ctx/imports.json");
        let mut all_marks: HashMap<String, Marks> = std::fs::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let root = root.api_socket().display().to_string();
        Ok(Sender {
            api,
            import: fresh_id()?,
            is_dry,
            there: there
                .items
                .into_iter()
                .map(|one| ((one.agent, one.native_id), (one.session, one.import_id)))
                .collect(),
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
        let there = self.there.get(&source);
        let is_same = |(mark, import): &(String, String)| {
            *mark == entry.mark && there.is_some_and(|(_, newest)| newest == import)
        };
        if self.marks.get(&key).is_some_and(is_same) {
            let session = there.and_then(|(session, _)| session.parse().ok());
            return Ok(Sent { session, created: false, added: 0 });
        }
        let Made { records: made, superseded } = make(entry.agent, found);
        if made.is_empty() {
            return Ok(Sent { session: None, created: false, added: 0 });
        }
        let mut sent = Sent { session: Some(id), created: false, added: 0 };
        // A batch is made when the one before is gone: a long session is not there as JSON as a whole.
        let mut made = made.into_iter().peekable();
        while made.peek().is_some() {
            let mut batch = self.batch(entry, found, id, next_batch(&mut made)?);
            // When all is there.
            if made.peek().is_none() {
                batch.superseded = superseded.iter().map(Ulid::to_string).collect();
            }
            let done: ImportDone = self.api.post_with("/imports", &batch)?;
            sent.session = done.session.parse().ok();
            sent.created |= done.created;
            sent.added += done.added;
        }
        if self.is_dry {
            return Ok(sent);
        }
        if sent.added > 0 || !self.there.contains_key(&source) {
            let session = sent.session.unwrap_or(id).to_string();
            self.there.insert(source.clone(), (session, self.import.to_string()));
        }
        let newest = self.there.get(&source).map(|(_, newest)| newest.clone()).unwrap_or_default();
        if found.waiting == 0 {
            self.marks.insert(key, (entry.mark.clone(), newest));
        }
        Ok(sent)
    }

    fn batch(
        &self,
        entry: &Entry,
        found: &Transcript,
        id: SessionId,
        records: Vec<Box<RawValue>>,
    ) -> ImportBatch {
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
            superseded: Vec::new(),
            dry_run: self.is_dry,
        }
    }

    /// Returns when searches and counts have what was sent.
    pub fn await_index(&self) -> Result<(), Failure> {
        self.api.get::<List<ImportedSession>>("/imports").map(drop)
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

/// The next records as JSON, each with its time, as many as go into a batch.
fn next_batch(made: &mut Peekable<impl Iterator<Item = Dated>>) -> Result<Vec<Box<RawValue>>, Failure> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while bytes < BATCH_BYTES && batch.len() < BATCH_RECORDS {
        let Some(Dated { time, body }) = made.next() else { break };
        let text = body.to_json();
        let rest = text.strip_prefix('{').unwrap_or_default();
        let text = format!("{{\"time\":{},{rest}", json!(time));
        bytes += text.len();
        let broken = |error: serde_json::Error| Failure::new(Code::Eio, error.to_string());
        batch.push(RawValue::from_string(text).map_err(broken)?);
    }
    Ok(batch)
}

/// An id of this moment.
fn fresh_id() -> Result<Ulid, Failure> {
    let mut random = [0u8; 10];
    let broken = |error: rustix::io::Errno| Failure::io("random numbers", error.into());
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(broken)?;
    let random = random.iter().fold(0u128, |all, byte| (all << 8) | u128::from(*byte));
    Ok(Ulid((u128::from(words::now().as_millis()) << 80) | random))
}
