//! A terminal that is to be opened, and what is wrong with it, as far as that is known before.

use std::path::{Path, PathBuf};

use ctx_cage::Cage;
use ctx_session::{SessionId, Timestamp, Ulid};

use super::error::TerminalError;
use super::protocol::Size;

/// A name is a word.
const NAME_CHARS_MAX: usize = 64;
/// Where programs are looked for without a PATH.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// A terminal to open.
#[derive(Debug, Clone)]
pub struct NewTerminal {
    pub name: Option<String>,
    pub command: Vec<String>,
    /// Where the program starts; None: at home.
    pub cwd: Option<PathBuf>,
    /// All of the program's environment; None: what a login has.
    pub env: Option<Vec<(String, String)>>,
    pub size: Size,
    pub created_at: Timestamp,
    /// Of a session; None: the user's own.
    pub of: Option<OfSession>,
}

/// A terminal that belongs to a session.
#[derive(Debug, Clone)]
pub struct OfSession {
    pub id: Ulid,
    pub session: SessionId,
    /// The session's agent opens it.
    pub is_agents: bool,
    /// The cage and where `bwrap` is; None: no cage.
    pub cage: Option<(Cage, PathBuf)>,
}

pub(super) fn check(new: &NewTerminal) -> Result<(), TerminalError> {
    let invalid = |field, message: &str| Err(TerminalError::Invalid { field, message: message.to_owned() });
    if new.command.first().is_none_or(String::is_empty) {
        return invalid("command", "name a program to run");
    }
    let variables = new.env.iter().flatten();
    let texts = new.command.iter().chain(variables.clone().flat_map(|(name, value)| [name, value]));
    if texts.into_iter().any(|text| text.contains('\0')) {
        return invalid("command", "a NUL byte cannot be passed to a program");
    }
    if variables.into_iter().any(|(name, _)| name.is_empty() || name.contains('=')) {
        return invalid("env", "the name of a variable is not empty and has no `=`");
    }
    if new.cwd.as_ref().is_some_and(|cwd| !cwd.is_absolute()) {
        return invalid("cwd", "the directory must be absolute");
    }
    let Some(name) = &new.name else { return Ok(()) };
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits =
        (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_word) && !name.starts_with('-');
    if !fits || name.parse::<Ulid>().is_ok() {
        return invalid(
            "name",
            "a name has up to 64 of a-z, A-Z, 0-9, `-`, `_` and `.`, does not begin with `-`, and is no id",
        );
    }
    Ok(())
}

/// Whether there is a program of this name, in a directory and with an environment. Whether it can be run shows when it is.
pub(super) fn has_program(name: &str, cwd: &Path, env: &[(String, String)]) -> bool {
    if name.contains('/') {
        return cwd.join(name).exists();
    }
    let path = env.iter().rfind(|(name, _)| name == "PATH").map_or(USUAL_PATH, |(_, path)| path);
    std::env::split_paths(path).any(|dir| cwd.join(dir).join(name).exists())
}
