//! Names: the one function that says what an agent, tool, provider, model or session may be called.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, Ulid};

/// Longest name, in characters.
pub const NAME_LEN_MAX: usize = 64;

/// A checked name: `[a-zA-Z0-9][a-zA-Z0-9._+-]{0,63}`, without the suffixes `.sock` and `.d`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(Arc<str>);

/// The rule that a name breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("a name must not be empty")]
    Empty,
    #[error("a name has at most {NAME_LEN_MAX} characters")]
    TooLong,
    #[error("a name begins with a letter or a digit")]
    BadStart,
    #[error("a name holds only letters, digits and the characters . _ + -")]
    BadCharacter,
    #[error("a name must not end in .sock or .d: those are the socket and the control directory")]
    ReservedSuffix,
    #[error(
        "a session's name must not end in + and an id: that is what the directory of an ended session is called"
    )]
    LooksEnded,
    #[error("a session must not be called index: the session index lives there")]
    ReservedWord,
}

impl Name {
    /// Checks a name of an agent, a tool, a provider or a model.
    pub fn new(text: &str) -> Result<Name, BadName> {
        let first = text.bytes().next().ok_or(BadName::Empty)?;
        if !first.is_ascii_alphanumeric() {
            return Err(BadName::BadStart);
        }
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'+' | b'-')) {
            return Err(BadName::BadCharacter);
        }
        if text.len() > NAME_LEN_MAX {
            return Err(BadName::TooLong);
        }
        if text.ends_with(".sock") || text.ends_with(".d") {
            return Err(BadName::ReservedSuffix);
        }
        Ok(Name(text.into()))
    }

    /// Checks a session's name: the same, and `index` is taken.
    pub fn of_session(text: &str) -> Result<Name, BadName> {
        match Name::new(text)? {
            name if name.as_str() == "index" => Err(BadName::ReservedWord),
            name if name.as_str().rsplit_once('+').is_some_and(|(_, id)| id.parse::<Ulid>().is_ok()) => {
                Err(BadName::LooksEnded)
            }
            name => Ok(name),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for Name {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        Name::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        Name::new(&text)
    }
}

/// The agents that imported sessions belong to. Nothing else may be called so.
pub const IMPORT_AGENTS: [&str; 6] = ["codex", "claude", "opencode", "goose", "gemini", "aider"];

/// The characters of an id are those of a name.
impl From<SessionId> for Name {
    fn from(id: SessionId) -> Name {
        Name(id.to_string().into())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        (*name.0).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_names_pass() {
        for good in
            ["a", "coder", "gpt-4o", "fs.read", "A_b+c-d.e", "0", "x.docs", "sock", "d", &"n".repeat(64)]
        {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn each_rule_refuses_what_breaks_it() {
        let long = "n".repeat(65);
        for (bad, rule) in [
            ("", BadName::Empty),
            (long.as_str(), BadName::TooLong),
            (".", BadName::BadStart),
            ("..", BadName::BadStart),
            ("-rf", BadName::BadStart),
            ("a/b", BadName::BadCharacter),
            ("a\0", BadName::BadCharacter),
            ("a\n", BadName::BadCharacter),
            ("ä", BadName::BadStart),
            ("a b", BadName::BadCharacter),
            ("coder.sock", BadName::ReservedSuffix),
            ("coder.d", BadName::ReservedSuffix),
        ] {
            assert_eq!(Name::new(bad).unwrap_err(), rule, "{bad:?}");
        }
        assert_eq!(Name::of_session("index").unwrap_err(), BadName::ReservedWord);
        let ended = "default+01ARZ3NDEKTSV4RRFFQ69G5FAV";
        assert_eq!(Name::of_session(ended).unwrap_err(), BadName::LooksEnded);
        assert!(Name::of_session("c++").is_ok() && Name::of_session("a+b").is_ok());
        assert!(Name::new("index").is_ok(), "only sessions give way to the index");
    }

    proptest! {
        #[test]
        fn a_name_that_passes_is_one_safe_path_component(text in "\\PC{0,70}") {
            if let Ok(name) = Name::new(&text) {
                let path = std::path::Path::new(name.as_str());
                prop_assert_eq!(path.components().count(), 1);
                prop_assert!(matches!(path.components().next(), Some(std::path::Component::Normal(_))));
            }
        }
    }
}
