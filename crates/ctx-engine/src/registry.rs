//! The registry: every session the daemon knows, loaded or not. An idle session costs its place here and no more.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use ctx_session::record::{Failure, Scope, SessionMeta};
use ctx_session::{Code, Name, Object, Refusal, Session, SessionId, State, StateName, Timestamp};

use serde_json::value::RawValue;

use crate::details::Details;
use crate::paths::Shelf;

/// Keeps a session's directory where it is: whoever reads its log without its driver holds it shared, and whoever gives the
/// directory another name holds it alone. Otherwise a reader could find nothing there, or the log of the session that has
/// the name now.
pub type PlaceLock = Arc<RwLock<()>>;

/// Why a session cannot be worked with, where its log does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Its log is gone or unreadable: tried again whenever someone asks.
    Log,
    /// ctx panics on it, also when it is to write down that the session has failed: left alone until the next start.
    Driver,
}

/// What is known of a session without loading it.
#[derive(Debug, Clone)]
pub struct Summary {
    pub meta: Arc<SessionMeta>,
    pub state: StateName,
    pub cwd: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When a message was last posted; the newest of a shelf is its current session.
    pub posted_at: Option<Timestamp>,
    /// The directory's name in its shelf. Changes only under `place`.
    pub dir_name: String,
    pub place: PlaceLock,
    /// Put away: not listed unless asked for.
    pub archived: bool,
    /// It has failed, and its log does not say so.
    pub broken: Option<Broken>,
    /// A run that has failed, but whose end could not be written yet.
    pub failing: Option<Failure>,
    /// The seq of the log's next record, as far as it is known.
    pub next_seq: Option<u64>,
    /// What is shown besides; None until someone has asked or the session was loaded.
    pub details: Option<Arc<Details>>,
    /// The session as a door has shown it since it last changed: a long list would be serialized anew for every reader.
    pub shown: OnceLock<Arc<RawValue>>,
}

impl Summary {
    /// Whether a client that knows its name can go on with it: the index files name no other.
    pub fn can_be_resumed_by_name(&self) -> bool {
        !self.state.is_over() && !self.archived && self.dir_name == self.meta.name.as_str()
    }

    pub fn new(meta: Arc<SessionMeta>, created_at: Timestamp) -> Summary {
        Summary {
            state: StateName::Idle,
            cwd: meta.cwd.clone(),
            created_at,
            updated_at: created_at,
            posted_at: None,
            dir_name: meta.name.to_string(),
            place: PlaceLock::default(),
            archived: false,
            broken: None,
            failing: None,
            next_seq: None,
            details: None,
            shown: OnceLock::new(),
            meta,
        }
    }

    pub fn id(&self) -> SessionId {
        self.meta.session_id
    }

    /// Takes over what a commit changed.
    pub fn follow(&mut self, session: &Session) {
        self.state = session.state.name();
        self.updated_at = session.updated_at;
        if self.cwd != session.cwd {
            self.cwd.clone_from(&session.cwd);
        }
        self.archived = session.archived;
        self.broken = None;
        self.next_seq = Some(session.next_seq);
        if !self.details.as_ref().is_some_and(|details| details.are_of(session)) {
            self.details = Some(Arc::new(Details::of(session)));
        }
        // What was posted to the source of a fork was not posted here.
        let copied = session.meta.forked_from.map_or(0, |from| from.seq);
        let newest = session.runs().rfind(|run| run.kind.is_message()).filter(|run| run.first_seq > copied);
        self.posted_at = newest.map(|run| run.created_at).or(self.posted_at);
    }
}

impl Summary {
    /// Failed, whatever its log says.
    pub(crate) fn break_down(&mut self, broken: Broken, failure: Failure) {
        let mut details = match &self.details {
            Some(details) => (**details).clone(),
            None => Details::unread(&self.meta),
        };
        (details.state, details.current_run, details.approvals) = (State::Failed(failure), None, 0);
        self.details = Some(Arc::new(details));
        (self.state, self.failing, self.broken) = (StateName::Failed, None, Some(broken));
    }
}

/// Within what a session's name is unique.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NameSpace {
    Shelf(Shelf),
    Temp { owner: u32, object: Object },
}

impl NameSpace {
    /// Where names of this kind of session are unique. None for what cannot be named: a shared session without space.
    pub fn of(meta: &SessionMeta) -> Option<NameSpace> {
        match meta.scope {
            Scope::Temp => Some(NameSpace::Temp { owner: meta.owner, object: Object::of(meta)? }),
            Scope::Private | Scope::Shared => Shelf::of(meta).map(NameSpace::Shelf),
        }
    }
}

#[derive(Debug, Default)]
struct Tables {
    /// In the order of ids, which is that of creation.
    by_id: BTreeMap<SessionId, Arc<Summary>>,
    by_name: HashMap<(NameSpace, Name), SessionId>,
}

impl Tables {
    /// Takes a session's name for it. One that another session has is refused.
    fn take_name(&mut self, meta: &SessionMeta) -> Result<(), Refusal> {
        let Some(space) = NameSpace::of(meta) else { return Ok(()) };
        let holder = self.by_name.entry((space, meta.name.clone())).or_insert(meta.session_id);
        if *holder == meta.session_id {
            return Ok(());
        }
        let message = format!("session {holder} has the name {}", meta.name);
        Err(Refusal::new(Code::Eexist, message))
    }

    /// Frees a session's name, if it is still its own.
    fn free_name(&mut self, meta: &SessionMeta) {
        let Some(space) = NameSpace::of(meta) else { return };
        let key = (space, meta.name.clone());
        if self.by_name.get(&key) == Some(&meta.session_id) {
            self.by_name.remove(&key);
        }
    }
}

/// Every known session.
#[derive(Debug, Default)]
pub struct Registry {
    tables: Mutex<Tables>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session. A live name that is taken is refused.
    pub fn add(&self, summary: impl Into<Arc<Summary>>) -> Result<(), Refusal> {
        let summary = summary.into();
        let mut tables = self.lock();
        if let Some(known) = tables.by_id.get(&summary.id()) {
            let message = format!("{} is a copy of {}, with the same id", summary.dir_name, known.dir_name);
            return Err(Refusal::new(Code::Eexist, message));
        }
        if !summary.state.is_over() {
            tables.take_name(&summary.meta)?;
        }
        tables.by_id.insert(summary.id(), summary);
        Ok(())
    }

    /// Keeps a name for a session that is being made and cannot be asked anything yet.
    pub fn reserve(&self, meta: &SessionMeta) -> Result<(), Refusal> {
        self.lock().take_name(meta)
    }

    /// Whether a session of this shelf is being made.
    pub fn is_making(&self, shelf: &Shelf) -> bool {
        let tables = self.lock();
        let here = |space: &NameSpace| matches!(space, NameSpace::Shelf(of) if of == shelf);
        tables.by_name.iter().any(|((space, _), id)| !tables.by_id.contains_key(id) && here(space))
    }

    /// Gives a name back whose session did not come to be.
    pub fn release(&self, meta: &SessionMeta) {
        self.lock().free_name(meta);
    }

    pub fn remove(&self, id: SessionId) {
        let mut tables = self.lock();
        let Some(summary) = tables.by_id.remove(&id) else { return };
        tables.free_name(&summary.meta);
    }

    pub fn get(&self, id: SessionId) -> Option<Arc<Summary>> {
        self.lock().by_id.get(&id).cloned()
    }

    pub fn named(&self, space: &NameSpace, name: &Name) -> Option<SessionId> {
        let tables = self.lock();
        let found = tables.by_name.get(&(space.clone(), name.clone())).copied();
        found.filter(|id| tables.by_id.contains_key(id))
    }

    /// The session that is over and whose directory still has this name.
    pub fn over_in(&self, shelf: &Shelf, dir_name: &str) -> Option<SessionId> {
        let tables = self.lock();
        let is_it = |summary: &&Arc<Summary>| {
            summary.dir_name == dir_name
                && summary.state.is_over()
                && Shelf::of(&summary.meta).as_ref() == Some(shelf)
        };
        tables.by_id.values().find(is_it).map(|summary| summary.id())
    }

    /// The directory of the session last posted to that can go on.
    pub fn current_of(&self, shelf: &Shelf) -> Option<String> {
        let tables = self.lock();
        let here = tables.by_id.values().filter(|summary| {
            summary.posted_at.is_some()
                && summary.can_be_resumed_by_name()
                && Shelf::of(&summary.meta).as_ref() == Some(shelf)
        });
        here.max_by_key(|summary| (summary.posted_at, &summary.dir_name)).map(|found| found.dir_name.clone())
    }

    /// Changes what is known of a session; its name is free again once it is over. Whoever reads it meanwhile keeps what
    /// they have.
    pub fn update(&self, id: SessionId, change: impl FnOnce(&mut Summary)) {
        let mut tables = self.lock();
        let Some(summary) = tables.by_id.get_mut(&id).map(Arc::make_mut) else { return };
        let was_over = summary.state.is_over();
        change(summary);
        summary.shown = OnceLock::new();
        let (is_over, meta) = (summary.state.is_over(), summary.meta.clone());
        if is_over {
            tables.free_name(&meta);
        } else if was_over && let Err(refusal) = tables.take_name(&meta) {
            // A log that was gone is back, and another session has its name by now.
            tracing::warn!(session = %id, %refusal, "a session is found by its id alone");
        }
    }

    /// The sessions that pass, in no particular order.
    pub fn select(&self, keep: impl Fn(&Summary) -> bool) -> Vec<Arc<Summary>> {
        self.lock().by_id.values().filter(|summary| keep(summary)).cloned().collect()
    }

    /// The newest sessions that pass, at most `max`, from behind a place on.
    pub fn newest(
        &self,
        before: Option<SessionId>,
        max: usize,
        keep: impl Fn(&Summary) -> bool,
    ) -> Vec<Arc<Summary>> {
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.lock();
        let newest = tables.by_id.range((Bound::Unbounded, end)).rev().map(|(_, summary)| summary);
        newest.filter(|summary| keep(summary)).take(max).cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.lock().by_id.len()
    }
}
