//! The fence: which programs a command may run, by name.
//!
//! `programs` finds the names in the text of a command, through the programs that run others. The operator's policy
//! decides first; the lists of the caller can only narrow it. What cannot be known before it runs is refused by an
//! allow list and passes a deny list. The fence is a guard against accidents, not a wall: a script or an interpreter
//! can run anything, and only the cage holds against that.

mod cursor;
mod programs;
mod read;
mod table;
mod variables;
mod word;
mod wrapper;

pub use programs::{Program, assignments, programs};
pub use word::Assignment;

use super::policy::{Pattern, PatternError, Policy};
use read::{TOO_DEEP, UNBALANCED};

/// The rules for the commands of one shell.
#[derive(Debug, Clone)]
pub struct Fence {
    policy: Policy,
    /// Empty means that there is no allow list.
    allow: Vec<Pattern>,
    deny: Vec<Pattern>,
}

/// Why a fence cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    #[error("the allow list is empty, so nothing could run: leave it out, or name the programs that may run")]
    AllowsNothing,
    #[error("the entry {entry:?} of the allow list is not a program name: {reason}")]
    Allow { entry: String, reason: PatternError },
    #[error("the entry {entry:?} of the deny list is not a program name: {reason}")]
    Deny { entry: String, reason: PatternError },
}

/// A command that may not run. Nothing of it was run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "`{program}` is denied by the operator's policy (line {line}); only the operator can change that"
    )]
    ByPolicy { program: String, line: usize },
    #[error(
        "`{program}` is in this shell's deny list; create a shell without that entry, or use another program"
    )]
    Denied { program: String },
    #[error(
        "`{program}` is not in this shell's allow list ({allow}); use one of these, or create another shell"
    )]
    NotAllowed { program: String, allow: String },
    #[error(
        "what `{text}` runs cannot be known before it runs, and this shell may run only named programs; write the name out"
    )]
    Unknown { text: String },
    #[error("the command has unbalanced quotes, brackets or here-documents; close them")]
    Unbalanced,
    #[error("the command nests commands too deeply to find the programs in it; split it")]
    TooDeep,
    #[error(
        "env: `{name}` can make a program run code that its command does not name, so it cannot be set while a policy, an allow list or a deny list is in force; leave it out"
    )]
    Variable { name: String },
}

impl Fence {
    /// A policy, narrowed by an allow list, where there is one, and a deny list.
    pub fn new(policy: Policy, allow: Option<&[String]>, deny: &[String]) -> Result<Fence, FenceError> {
        // An empty list read as no list would allow everything.
        let allow = match allow {
            Some([]) => return Err(FenceError::AllowsNothing),
            allow => allow.unwrap_or_default(),
        };
        let pattern = |entry: &String| Pattern::parse(entry).map_err(|reason| (entry.clone(), reason));
        let allow: Result<Vec<Pattern>, _> = allow.iter().map(pattern).collect();
        let deny: Result<Vec<Pattern>, _> = deny.iter().map(pattern).collect();
        Ok(Fence {
            policy,
            allow: allow.map_err(|(entry, reason)| FenceError::Allow { entry, reason })?,
            deny: deny.map_err(|(entry, reason)| FenceError::Deny { entry, reason })?,
        })
    }

    fn is_open(&self) -> bool {
        self.policy.is_open() && self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether a shell may begin with a variable of this name.
    pub fn check_variable(&self, name: &str) -> Result<(), Refused> {
        match !self.is_open() && variables::brings_code(name) {
            true => Err(Refused::Variable { name: name.to_owned() }),
            false => Ok(()),
        }
    }

    /// Whether the command may run.
    pub fn check(&self, command: &str) -> Result<(), Refused> {
        if self.is_open() {
            return Ok(());
        }
        programs(command).iter().try_for_each(|program| self.check_program(program))
    }

    fn check_program(&self, program: &Program) -> Result<(), Refused> {
        let name = program.name();
        let denied_by_policy = self.policy.denies(name);
        let is_denied = self.deny.iter().any(|pattern| pattern.matches(name));
        let is_allowed = self.allow.is_empty() || self.allow.iter().any(|pattern| pattern.matches(name));
        match program {
            Program::Unknown(text) if denied_by_policy.is_some() || is_denied || !is_allowed => {
                Err(match text.as_str() {
                    UNBALANCED => Refused::Unbalanced,
                    TOO_DEEP => Refused::TooDeep,
                    text => Refused::Unknown { text: text.to_owned() },
                })
            }
            Program::Named(name) => match denied_by_policy {
                Some(line) => Err(Refused::ByPolicy { program: name.clone(), line }),
                None if is_denied => Err(Refused::Denied { program: name.clone() }),
                None if is_allowed => Ok(()),
                None => {
                    let allow: Vec<&str> = self.allow.iter().map(Pattern::as_str).collect();
                    Err(Refused::NotAllowed { program: name.clone(), allow: allow.join(", ") })
                }
            },
            Program::Unknown(_) => Ok(()),
        }
    }
}
