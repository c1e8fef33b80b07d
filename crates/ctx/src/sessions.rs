//! Finds the session that the user names: `agent/name`, an agent (its current session), a name, an id or part of an id.

use ctx_agent::nearest::nearest;
use ctx_api::http::{List, Project, Session};
use ctx_session::name::IMPORT_AGENTS;
use ctx_session::{Code, Name, SessionId, Ulid};
use ctx_views::db::{Flawed, IndexReader, Viewer};
use ctx_views::read::{ID_PART_MIN, Place, ReadError, Reader, SessionRef, SessionsDir};
use serde::de::DeserializeOwned;

use crate::client::Api;
use crate::failure::Failure;
use crate::here;
use crate::root::{self, Root};

/// The agent of the project `default`.
pub const DEFAULT_AGENT: &str = "coder";
/// A word for the agent of this directory, where a command names none.
pub const HERE: &str = ".";
/// The name of an agent's first session.
pub const DEFAULT_SESSION: &str = "default";

/// The arguments that name a session, for the commands that read one.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// The agent (its current session), or a session: agent/name, an id or the beginning or end of an id [default: this
    /// directory's agent]
    #[arg(value_name = "SESSION", default_value = HERE, hide_default_value = true)]
    pub agent: String,
    /// The agent's session, by name or id [default: the current one, else `default`]
    #[arg(short, long, value_name = "SESSION")]
    pub session: Option<String>,
}

impl Which {
    /// Finds it in the tree.
    pub fn find(&self, reader: &Reader) -> Result<SessionRef, Failure> {
        match &self.session {
            None => find(reader, &self.agent),
            Some(session) if session.contains('/') => find(reader, session),
            Some(session) => {
                match reader.resolve(own_uid(), &format!("{}/{session}", of_here(reader, &self.agent))) {
                    // An id needs no agent.
                    Err(ReadError::NotFound { text }) => {
                        let by_id = reader.resolve(own_uid(), session);
                        by_id.map_err(|_| unknown(reader, &text))
                    }
                    found => Ok(found?),
                }
            }
        }
    }
}

/// The user at the keyboard.
pub fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// An agent's name, checked.
pub fn agent_name(text: &str) -> Result<Name, Failure> {
    Name::new(text)
        .map_err(|rule| Failure::new(Code::Einval, format!("`{text}` is not an agent's name: {rule}")))
}

/// The agent that a word names: itself, or where it means this directory, that one's.
fn of_here(reader: &Reader, word: &str) -> String {
    if word != HERE {
        return word.to_owned();
    }
    agent_here(reader).map_or_else(|| DEFAULT_AGENT.to_owned(), |agent| agent.to_string())
}

/// The agent of this directory. A directory that nobody has worked in has none.
fn agent_here(reader: &Reader) -> Option<Name> {
    here::agent(reader.root()).map(|agent| agent.name)
}

/// Finds the session that a word names. An agent's name means its current session.
pub fn find(reader: &Reader, word: &str) -> Result<SessionRef, Failure> {
    if word == HERE {
        let Some(agent) = agent_here(reader) else {
            return Err(Failure::new(Code::Enoent, "no session in this directory yet")
                .hint("`ctx chat` starts one; `ctx ls -A` lists those of other directories"));
        };
        return find(reader, agent.as_str());
    }
    if word.contains('/') {
        return reader.resolve(own_uid(), word).map_err(|error| match error {
            ReadError::NotFound { .. } => unknown(reader, word),
            other => other.into(),
        });
    }
    if let Ok(agent) = Name::new(word) {
        let last = || -> Result<_, Failure> {
            let sessions = SessionsDir::of_agent(own_uid(), agent.clone());
            Ok(reader.newest_of_all(&sessions, 1)?.pop())
        };
        if let Some(found) = current(reader, &agent)?.map_or_else(last, |found| Ok(Some(found)))? {
            return Ok(found);
        }
    }
    // A bare name is a session of this directory's agent. An agent, or a session of that name, comes before an id.
    if let Some(agent) = agent_here(reader)
        && let Ok(found) = reader.resolve(own_uid(), &format!("{agent}/{word}"))
    {
        return Ok(found);
    }
    reader.resolve(own_uid(), word).map_err(|error| match error {
        ReadError::NotFound { .. } | ReadError::BadName { .. } => unknown(reader, word),
        ReadError::Ambiguous { .. } | ReadError::View(_) => error.into(),
    })
}

/// Nothing has this name. Suggests the session with that name, else the agent or session with the most similar name.
fn unknown(reader: &Reader, word: &str) -> Failure {
    if let Some(lost) = lost(reader, word) {
        let (label, id) = (label_of_lost(&lost), lost.item.id());
        let why = lost.broken.map_or_else(|| "its log is gone".to_owned(), |broken| broken.message);
        let message = format!("session {label} ({id}) has failed: {}", crate::output::one_line(&why));
        return Failure::new(Code::Eshutdown, message)
            .hint(format!("`ctx doctor` says more; `ctx purge {id}` forgets the session"));
    }
    let hint = "`ctx ls -A --all` lists your sessions; `ctx send` starts one";
    if Name::new(word).is_ok_and(|agent| reader.is_agent(&agent)) {
        let message = format!("the agent \"{word}\" has no session yet");
        return Failure::new(Code::Enoent, message).hint(format!("`ctx send -a {word} hello` starts one"));
    }
    let what = if word.contains('/') { "session" } else { "agent or session" };
    let shown = crate::output::one_line(word);
    // A suggestion is a courtesy: what cannot be read is not suggested.
    let here = crate::here::agent(reader.root()).map(|here| here.name.to_string());
    let mut all = named(reader).unwrap_or_default();
    let agents = ctx_agent::describe::agents(reader.root()).unwrap_or_default();
    all.extend(agents.iter().map(ToString::to_string));
    let suggestion = meant(word, &all, here.as_deref());
    let message = match suggestion {
        Some(near) => format!("no {what} \"{shown}\"; did you mean {near}?"),
        None => format!("no {what} \"{shown}\""),
    };
    Failure::new(Code::Enoent, message).hint(hint)
}

/// Says that nobody knows an agent: an empty list would look as if it had no sessions.
pub fn note_unknown_agent(reader: &Reader, agent: Option<&Name>) -> Result<(), Failure> {
    let Some(agent) =
        agent.filter(|agent| !reader.is_agent(agent) && !IMPORT_AGENTS.contains(&agent.as_str()))
    else {
        return Ok(());
    };
    let mut known: Vec<String> = Vec::new();
    for place in reader.places(own_uid())? {
        known.extend(reader.session_dirs(&place)?.iter().map(|dir| dir.object.to_string()));
    }
    if known.iter().any(|one| one == agent.as_str()) {
        return Ok(());
    }
    let agents = ctx_agent::describe::agents(reader.root()).unwrap_or_default();
    known.extend(agents.iter().map(ToString::to_string));
    let near = nearest(agent.as_str(), known.iter().map(String::as_str));
    let meant = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    crate::output::say(format_args!("no agent \"{agent}\"{meant}"));
    Ok(())
}

/// Every agent with sessions, and every `agent/name`, that the user can read.
pub fn named(reader: &Reader) -> Result<Vec<String>, ReadError> {
    /// Sessions of one agent among which a similar name is looked for.
    const NEWEST_MAX: usize = 1_000;
    let mut all = Vec::new();
    for place in reader.places(own_uid())? {
        for dir in reader.session_dirs(&place)? {
            all.push(dir.object.to_string());
            for session in reader.newest_of_all(&dir, NEWEST_MAX)? {
                all.push(format!("{}/{}", dir.object, plain_name(&session.dir_name)));
            }
        }
    }
    Ok(all)
}

/// The name in the list that the user probably meant: the same session name of some agent, else the nearest of the agent in
/// the word or that of this directory, else the nearest of all by edit distance, where a word without an agent is compared with the
/// session names too.
fn meant(word: &str, all: &[String], here: Option<&str>) -> Option<String> {
    let session_of = |name: &str| name.rsplit_once('/').map(|(_, session)| session.to_owned());
    let with_session =
        |session: &str| all.iter().find(|name| session_of(name).as_deref() == Some(session)).cloned();
    let (agent, typed) =
        word.rsplit_once('/').map_or((here, word), |(agent, session)| (Some(agent), session));
    let of_agent = |name: &&String| name.rsplit_once('/').map(|(of, _)| of) == agent;
    let own: Vec<String> = all.iter().filter(of_agent).filter_map(|name| session_of(name)).collect();
    if let Some(same) = with_session(typed) {
        return Some(same);
    }
    if let (Some(agent), Some(near)) = (agent, nearest(typed, own.iter().map(String::as_str))) {
        return Some(format!("{agent}/{near}"));
    }
    if let Some(near) = nearest(word, all.iter().map(String::as_str)) {
        return Some(near.to_owned());
    }
    let sessions: Vec<String> = all.iter().filter_map(|name| session_of(name)).collect();
    nearest(word, sessions.iter().map(String::as_str)).and_then(with_session)
}

/// An agent's current session: the one last posted to, else `default`, else the newest that can go on.
fn current(reader: &Reader, agent: &Name) -> Result<Option<SessionRef>, Failure> {
    let sessions = SessionsDir::of_agent(own_uid(), agent.clone());
    match reader.current(&sessions)? {
        Some(current) => Ok(Some(current)),
        None => Ok(reader.newest(&sessions, 1)?.pop()),
    }
}

/// The id of the session that a word names. A whole id is not looked up in the tree, because temp sessions are not in it.
pub fn find_id(root: &Root, word: &str) -> Result<SessionId, Failure> {
    if let Ok(id) = word.parse::<SessionId>() {
        return Ok(id);
    }
    let reader = reader_of_daemon(root)?;
    match find(&reader, word) {
        Ok(session) => Ok(reader.meta(&session)?.id),
        // The daemon knows what can be done with one whose log is gone.
        Err(failure) => lost(&reader, word).map(|lost| lost.item.id()).ok_or(failure),
    }
}

/// The session that a word names of those that have failed and that no directory shows: the index knows them.
fn lost(reader: &Reader, word: &str) -> Option<Flawed> {
    let index = IndexReader::open(&reader.root().join(root::INDEX)).ok()?;
    let spaces = reader.places(own_uid()).ok()?.into_iter().filter_map(|place| match place {
        Place::Shared { space } => Some(space),
        Place::Private { .. } => None,
    });
    let viewer = Viewer::User { uid: own_uid(), spaces: spaces.collect() };
    let part = word.to_ascii_uppercase();
    let is_it = |flawed: &Flawed| {
        let id = flawed.item.id().to_string();
        let is_part = part.len() >= ID_PART_MIN && (id.starts_with(&part) || id.ends_with(&part));
        (flawed.is_gone || flawed.broken.is_some()) && (is_part || label_of_lost(flawed) == word)
    };
    let mut found = index.queries().flawed(&viewer).ok()?.into_iter().filter(is_it);
    let one = found.next()?;
    found.next().is_none().then_some(one)
}

fn label_of_lost(flawed: &Flawed) -> String {
    let meta = &flawed.item.row.meta;
    meta.agent.as_ref().map_or_else(|| meta.name.to_string(), |agent| format!("{agent}/{}", meta.name))
}

/// The reader for commands that need the daemon: if there is no root, the message is that no daemon is running.
pub fn reader_of_daemon(root: &Root) -> Result<Reader, Failure> {
    root.reader().map_err(|failure| match failure.exit() {
        1 => root.daemon_down(),
        _ => failure,
    })
}

/// The session that a message without a session goes to: the current one, else `default`.
pub fn current_name(root: &Root, agent: &Name) -> Result<String, Failure> {
    // Without a root there is no session yet; the post then fails if there is no daemon.
    let Ok(reader) = root.reader() else { return Ok(DEFAULT_SESSION.to_owned()) };
    Ok(current(&reader, agent)?
        .map_or_else(|| DEFAULT_SESSION.to_owned(), |session| plain_name(&session.dir_name).to_owned()))
}

/// The caller's sessions in a state, over all projects.
pub fn in_state(api: &Api<'_>, state: &str) -> Result<Vec<Session>, Failure> {
    let mut found = Vec::new();
    for project in all::<Project>(api, "/projects?limit=1000")? {
        found.extend(all(api, &format!("/projects/{}/sessions?state={state}&limit=1000", project.id))?);
    }
    Ok(found)
}

/// The caller's sessions with a run.
pub fn running(api: &Api<'_>) -> Result<Vec<Session>, Failure> {
    let mut found = in_state(api, "running")?;
    found.extend(in_state(api, "paused")?);
    Ok(found)
}

/// A list of the API, page by page.
pub fn all<T: DeserializeOwned>(api: &Api<'_>, path: &str) -> Result<Vec<T>, Failure> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: List<T> = api.get(&format!("{path}{cursor}"))?;
        found.extend(page.items);
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(found),
        }
    }
}

/// A session as a person names it: agent/name.
pub fn label(session: &ctx_api::http::Session) -> String {
    let name = plain_name(session.name.as_str());
    session.agent.as_ref().map_or_else(|| name.to_owned(), |agent| format!("{agent}/{name}"))
}

/// The name without the id that the directory of an ended session gets when its name is used again: `default` of
/// `default+01K…`.
pub fn plain_name(dir_name: &str) -> &str {
    match dir_name.rsplit_once('+') {
        Some((name, id)) if id.parse::<Ulid>().is_ok() => name,
        Some(_) | None => dir_name,
    }
}
