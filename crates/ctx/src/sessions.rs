//! Which session a person means: an agent's current one, `agent/name`, an id or the beginning of one.

use ctx_session::{Code, Name, SessionId, Ulid};
use ctx_views::read::{ReadError, Reader, SessionRef, SessionsDir};

use crate::failure::Failure;
use crate::root::Root;

/// The agent that is meant when none is named.
pub const DEFAULT_AGENT: &str = "coder";
/// The session that is meant when there is none yet.
pub const DEFAULT_SESSION: &str = "default";

/// Which session, for the commands that read one.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// The agent, or a session: agent/name, an id or the beginning of one
    #[arg(value_name = "AGENT", default_value = DEFAULT_AGENT)]
    pub agent: String,
    /// The agent's session, by name or id [default: the one last posted to, else `default`]
    #[arg(short, long, value_name = "SESSION")]
    pub session: Option<String>,
}

impl Which {
    /// Finds it in the tree.
    pub fn find(&self, reader: &Reader) -> Result<SessionRef, Failure> {
        match &self.session {
            None => find(reader, &self.agent),
            Some(session) if session.contains('/') => Ok(reader.resolve(own_uid(), session)?),
            Some(session) => match reader.resolve(own_uid(), &format!("{}/{session}", self.agent)) {
                // An id says all by itself.
                Err(ReadError::NotFound { text }) => {
                    let by_id = reader.resolve(own_uid(), session);
                    by_id.map_err(|_| ReadError::NotFound { text }.into())
                }
                found => Ok(found?),
            },
        }
    }
}

/// The user at the keyboard.
pub fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// An agent's name, checked.
pub fn agent_name(text: &str) -> Result<Name, Failure> {
    Name::new(text).map_err(|rule| Failure::new(Code::Einval, format!("`{text}` is no agent: {rule}")))
}

/// The session that a word means. An agent's name means its current session.
pub fn find(reader: &Reader, word: &str) -> Result<SessionRef, Failure> {
    if word.contains('/') {
        return Ok(reader.resolve(own_uid(), word)?);
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
    reader.resolve(own_uid(), word).map_err(|error| match error {
        ReadError::NotFound { .. } | ReadError::BadName { .. } => Failure::new(
            Code::Enoent,
            format!("there is no session with `{word}` yet, and none with that id"),
        )
        .hint("`ctx ls --all` shows what there is; `ctx send` begins one"),
        ReadError::Ambiguous { .. } | ReadError::View(_) => error.into(),
    })
}

/// An agent's current session: the one last posted to, else `default`, else the newest that can go on.
fn current(reader: &Reader, agent: &Name) -> Result<Option<SessionRef>, Failure> {
    let sessions = SessionsDir::of_agent(own_uid(), agent.clone());
    match reader.current(&sessions)? {
        Some(current) => Ok(Some(current)),
        None => Ok(reader.newest(&sessions, 1)?.pop()),
    }
}

/// The id of the session that a word means. A whole id needs no look at the tree: temp sessions are not in it.
pub fn find_id(root: &Root, word: &str) -> Result<SessionId, Failure> {
    if let Ok(id) = word.parse::<SessionId>() {
        return Ok(id);
    }
    let reader = reader_of_daemon(root)?;
    let session = find(&reader, word)?;
    Ok(reader.meta(&session)?.id)
}

/// The reader for what only a daemon can do: no root means no daemon either, and that is what the user has to know.
pub fn reader_of_daemon(root: &Root) -> Result<Reader, Failure> {
    root.reader().map_err(|failure| match failure.exit() {
        1 => root.daemon_down(),
        _ => failure,
    })
}

/// The name to post to when none was given: that of the current session, else `default`.
pub fn current_name(root: &Root, agent: &Name) -> Result<String, Failure> {
    // Without a root there is no session yet; posting says whether there is a daemon.
    let Ok(reader) = root.reader() else { return Ok(DEFAULT_SESSION.to_owned()) };
    Ok(current(&reader, agent)?
        .map_or_else(|| DEFAULT_SESSION.to_owned(), |session| plain_name(&session.dir_name).to_owned()))
}

/// A session as a person names it: agent/name.
pub fn label(session: &ctx_api::http::Session) -> String {
    let name = plain_name(session.name.as_str());
    session.agent.as_ref().map_or_else(|| name.to_owned(), |agent| format!("{agent}/{name}"))
}

/// A session whose name another has now keeps it in front of its id: `default+01K…`.
pub fn plain_name(dir_name: &str) -> &str {
    match dir_name.rsplit_once('+') {
        Some((name, id)) if id.parse::<Ulid>().is_ok() => name,
        Some(_) | None => dir_name,
    }
}
