//! What session a log is: its id, name, agent, scope, owner, project, model and cwd. Pure.
//!
//! The first record says it. Where that record is missing, torn, or contradicts the path, the log's place, what
//! follows in the log, the files beside it and the index know most of it. Everyone who has to know asks here: the
//! start of the daemon, the loading of a session, the index, `doctor` and `repair`. So a damaged session is the same
//! session to all of them, with the id that it always had.
//!
//! A path is what people and sockets call a session by, so it wins over a record that says otherwise. A value that
//! fits its key and is not in the path (a project, a model) cannot be told from the true one; nobody tries.

use std::fmt;

use ctx_journal::{Entry, LogPath};
use ctx_session::record::{Context, Scope, SessionMeta};
use ctx_session::{Name, Object, SessionId, Ulid};
use serde_json::{Map, Value};

/// The project of a session that nothing else is known of: that of the agents which ship with ctx.
const DEFAULT_PROJECT: &str = "default";
/// The owner of a session whose owner is not known. No user has this number.
pub const NOBODY: u32 = u32::MAX;
/// What the first record of a session is called.
const KIND: &str = "session_meta";
/// The file name of a session's log.
const EVENTS: &str = "events.jsonl";
/// Ends the `app` of a first record that was made anew.
const REPAIRED: &str = "(repaired)";
/// Every key that a first record may have.
const KEYS: [&str; 18] = [
    "session_id",
    "name",
    "scope",
    "space",
    "owner",
    "agent",
    "project",
    "cwd",
    "provider",
    "model",
    "title",
    "client",
    "origin",
    "forked_from",
    "dsl_hash",
    "dsl_snapshot",
    "requested",
    "app",
];

/// What a log's path says of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// None in a shared space, whose paths name no owner.
    owner: Option<u32>,
    space: Option<Name>,
    object: Object,
    pub dir_name: String,
    /// The name, if the directory is called as a session may be.
    name: Option<Name>,
    /// The id that follows the name once that is free again.
    id: Option<SessionId>,
}

impl Place {
    /// Nothing for logs that are no session's.
    pub fn of(log: &LogPath) -> Option<Place> {
        let parts: Vec<&str> = log.as_str().split('/').collect();
        let (top, whose, object, dir_name) = match parts.as_slice() {
            [top, whose, "agent", agent, "session", dir_name, EVENTS] => {
                (top, whose, Object::Agent(Name::new(agent).ok()?), dir_name)
            }
            [top, whose, "model", provider, model, "session", dir_name, EVENTS] => {
                let (provider, model) =
                    (Name::new(provider).ok()?, Name::new(model.strip_suffix(".d")?).ok()?);
                (top, whose, Object::Model { provider, model }, dir_name)
            }
            _ => return None,
        };
        let (owner, space) = match *top {
            "home" => (Some(whose.parse().ok()?), None),
            "shared" => (None, Some(Name::new(whose).ok()?)),
            _ => return None,
        };
        let (name, id) = match dir_name.rsplit_once('+').map(|(name, id)| (name, id.parse::<Ulid>())) {
            Some((name, Ok(id))) => (name, Some(SessionId(id))),
            Some((_, Err(_))) | None => (*dir_name, None),
        };
        let name = Name::of_session(name).ok();
        Some(Place { owner, space, object, dir_name: (*dir_name).to_owned(), name, id })
    }

    /// The session was over when its directory got this name; also where the record that says so is lost.
    pub fn is_freed(&self) -> bool {
        self.id.is_some()
    }

    fn scope(&self) -> Scope {
        if self.space.is_some() { Scope::Shared } else { Scope::Private }
    }

    /// A session of which nothing is known but this. Its id follows from the place, so that it is the same every time.
    fn meta(&self) -> SessionMeta {
        let called: Option<Ulid> = self.dir_name.parse().ok();
        let id = self.id.or(called.map(SessionId)).unwrap_or_else(|| {
            let owner = self.owner.unwrap_or_default();
            SessionId(derived_id(&format!("{owner}/{}/{}", self.object, self.dir_name)))
        });
        let default = || Name::from(id);
        SessionMeta {
            session_id: id,
            name: self.name.clone().unwrap_or_else(default),
            scope: self.scope(),
            space: self.space.clone(),
            owner: self.owner.unwrap_or(NOBODY),
            agent: self.object.agent().cloned(),
            project: Name::new(DEFAULT_PROJECT).unwrap_or_else(|_| Name::from(id)),
            cwd: "/".to_owned(),
            dir: None,
            workspace: None,
            provider: None,
            model: match &self.object {
                Object::Agent(_) => String::new(),
                Object::Model { .. } => self.object.to_string(),
            },
            title: None,
            client: None,
            origin: None,
            forked_from: None,
            dsl_hash: None,
            dsl_snapshot: None,
            requested: None,
            app: String::new(),
        }
    }

    /// Of a shared session only the first record says whose it is. Where that is lost it is nobody's: its space still
    /// reads it, and nothing runs in it with anyone's rights.
    fn disown(&self, meta: &mut SessionMeta) {
        if self.owner.is_none() {
            meta.owner = NOBODY;
        }
    }

    /// Makes a record say what the path does, and tells where it did not.
    pub fn correct(&self, meta: &mut SessionMeta) -> Vec<Flaw> {
        let mut flaws = Vec::new();
        let mut differs = |what: &'static str, says: String, place: String| {
            if says != place {
                flaws.push(Flaw::Contradicts { what, says, place });
            }
        };
        let or_none = |name: Option<&Name>| name.map_or_else(|| "nothing".to_owned(), Name::to_string);
        differs("scope", meta.scope.to_string(), self.scope().to_string());
        meta.scope = self.scope();
        differs("space", or_none(meta.space.as_ref()), or_none(self.space.as_ref()));
        meta.space.clone_from(&self.space);
        if let Some(owner) = self.owner {
            differs("owner", meta.owner.to_string(), owner.to_string());
            meta.owner = owner;
        }
        differs("agent", or_none(meta.agent.as_ref()), or_none(self.object.agent()));
        meta.agent = self.object.agent().cloned();
        if let Object::Model { .. } = &self.object {
            differs("model", meta.model.clone(), self.object.to_string());
            meta.model = self.object.to_string();
        }
        if let Some(id) = self.id {
            differs("session_id", meta.session_id.to_string(), id.to_string());
            meta.session_id = id;
        }
        if let Some(name) = &self.name {
            differs("name", meta.name.to_string(), name.to_string());
            meta.name = name.clone();
        }
        flaws
    }
}

/// What is wrong with a first record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// There is none.
    Missing,
    /// There is one, and its fields do not fit.
    Unreadable(String),
    /// A key, or its type, with one byte changed.
    Misspelt {
        found: String,
        meant: &'static str,
    },
    Contradicts {
        what: &'static str,
        says: String,
        place: String,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Missing => f.write_str("the first record does not say what session this is"),
            Flaw::Unreadable(why) => write!(f, "the first record does not fit its type: {why}"),
            Flaw::Misspelt { found, meant } => write!(f, "`{found}` in the first record was `{meant}`"),
            Flaw::Contradicts { what, says, place } => {
                write!(f, "the first record says {what} {says}, and the path {place}")
            }
        }
    }
}

/// How well the first record of a log says which session it is. The better one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fit {
    Sound,
    Damaged,
    /// It says another place than it is at, as a copy does.
    Elsewhere,
}

impl Fit {
    pub fn of(flaws: &[Flaw]) -> Fit {
        match flaws.iter().any(|flaw| matches!(flaw, Flaw::Contradicts { .. })) {
            true => Fit::Elsewhere,
            false if flaws.is_empty() => Fit::Sound,
            false => Fit::Damaged,
        }
    }
}

/// Which of the logs with one id is the session: the one that fits better than all others. Where two fit as well, nobody
/// can tell, and none is taken for it: whichever came first would get what is meant for the other.
pub fn original<T>(claims: &[(Fit, T)]) -> Option<&T> {
    let (best, session) = claims.iter().min_by_key(|(fit, _)| *fit)?;
    (claims.iter().filter(|(fit, _)| fit == best).count() == 1).then_some(session)
}

/// What the first record says, put right by the path, and what was wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct First {
    pub meta: Option<SessionMeta>,
    pub flaws: Vec<Flaw>,
    /// Record 0 is there, and is a whole record of another type: its place is its own.
    pub is_taken: bool,
}

/// Reads record 0 of a session's log.
pub fn first(place: &Place, entry: Option<&Entry>) -> First {
    let Some(entry) = entry else {
        return First { meta: None, flaws: vec![Flaw::Missing], is_taken: false };
    };
    let mut flaws = Vec::new();
    if entry.kind != KIND {
        if !is_one_off(&entry.kind, KIND) {
            return First { meta: None, flaws: vec![Flaw::Missing], is_taken: entry.seq == 0 };
        }
        flaws.push(Flaw::Misspelt { found: entry.kind.clone(), meant: KIND });
    }
    let read = serde_json::from_str(&entry.text).and_then(|mut fields: Map<String, Value>| {
        flaws.extend(respell(&mut fields));
        serde_json::from_value::<SessionMeta>(Value::Object(fields))
    });
    let meta = match read {
        Ok(mut meta) => {
            flaws.extend(place.correct(&mut meta));
            Some(meta)
        }
        Err(error) => {
            flaws.push(Flaw::Unreadable(error.to_string()));
            None
        }
    };
    First { meta, flaws, is_taken: false }
}

/// Gives keys with one wrong byte their name back, where nothing else has it.
fn respell(fields: &mut Map<String, Value>) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    for meant in KEYS {
        if fields.contains_key(meant) {
            continue;
        }
        let found =
            fields.keys().find(|key| is_one_off(key, meant) && !KEYS.contains(&key.as_str())).cloned();
        if let Some((found, value)) = found.and_then(|key| fields.remove_entry(&key)) {
            fields.insert(meant.to_owned(), value);
            flaws.push(Flaw::Misspelt { found, meant });
        }
    }
    flaws
}

/// Whether two words differ in one byte, none missing and none more.
pub fn is_one_off(word: &str, meant: &str) -> bool {
    word.len() == meant.len() && word.bytes().zip(meant.bytes()).filter(|(a, b)| a != b).count() == 1
}

/// What else knows of a session whose first record is of no use.
#[derive(Debug, Clone, Default)]
pub struct Witnesses {
    /// A later record of the log that says what session it is; the daemon writes one when the first is lost.
    pub log: Option<SessionMeta>,
    /// The id in what is left of the first line.
    pub remains: Option<SessionId>,
    /// `meta.json` and `cwd`.
    pub files: Option<SessionMeta>,
    pub index: Option<SessionMeta>,
    /// Under what the first run worked.
    pub context: Option<Context>,
}

/// What a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub meta: SessionMeta,
    /// What is wrong with the first record; nothing when all is well.
    pub flaws: Vec<Flaw>,
    /// The log and its path say all of it. If not, the log has yet to be told.
    pub is_in_log: bool,
    /// See [`First::is_taken`].
    pub is_taken: bool,
}

/// Decides it. The witnesses are asked for only where the first record is of no use.
pub fn identify(place: &Place, first: First, witnesses: impl FnOnce() -> Witnesses) -> Identity {
    let First { meta, flaws, is_taken } = first;
    if let Some(meta) = meta {
        return Identity { meta, flaws, is_in_log: true, is_taken };
    }
    let mut found = witnesses();
    if let Some(mut meta) = found.log.take() {
        place.correct(&mut meta);
        place.disown(&mut meta);
        // Nothing is missing where the place of the first record is another's.
        let flaws = if is_taken { Vec::new() } else { flaws };
        return Identity { meta, flaws, is_in_log: true, is_taken };
    }
    let id = believed_id(&found);
    let Witnesses { files, index, context, .. } = found;
    // One that knows no model was made up.
    let knows = |meta: &SessionMeta| !meta.model.is_empty();
    let mut meta = index.filter(knows).or(files.filter(knows)).unwrap_or_else(|| place.meta());
    if let Some(id) = id {
        meta.session_id = id;
    }
    if let Some(context) = context.filter(|_| meta.model.is_empty()) {
        (meta.model, meta.cwd) = (context.model, context.cwd);
    }
    place.correct(&mut meta);
    place.disown(&mut meta);
    Identity { meta: repaired(meta), flaws, is_in_log: false, is_taken }
}

/// A first record that was made anew says so.
pub fn repaired(mut meta: SessionMeta) -> SessionMeta {
    meta.app = format!("ctx {} {REPAIRED}", env!("CARGO_PKG_VERSION"));
    meta
}

/// Whether a record tells that a session was created, and not what a damaged one was.
pub fn records_creation(meta: &SessionMeta) -> bool {
    !meta.app.ends_with(REPAIRED)
}

/// What two witnesses agree on; else what the nearest to the log says.
fn believed_id(found: &Witnesses) -> Option<SessionId> {
    let id_of = |meta: &Option<SessionMeta>| meta.as_ref().map(|meta| meta.session_id);
    let said: Vec<SessionId> =
        [found.remains, id_of(&found.files), id_of(&found.index)].into_iter().flatten().collect();
    let agreed = said.iter().find(|id| said.iter().filter(|other| other == id).count() > 1);
    agreed.or(said.first()).copied()
}

/// A ULID made of a text: FNV-1a over 128 bits, enough to keep a handful of damaged sessions apart.
fn derived_id(text: &str) -> Ulid {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    const BASIS: u128 = 0x6C62_272E_07BB_0142_62B8_2175_6295_C58D;
    Ulid(text.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)))
}
