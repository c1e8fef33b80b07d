//! The fence: which programs a command may run, by name.
//!
//! The programs of a command are found by reading it as a shell would (`parse`), through the programs that
//! run others (`wrap`). What a name may do is said by the operator's policy first, then narrowed by what the
//! caller asked for. It is a guard against accidents, not a wall: a script, an interpreter or a variable can
//! run anything, and only the cage holds against that.

mod braces;
mod containers;
mod given;
mod lex;
mod parse;
mod policy;
mod singular;
mod wrap;
mod wrapper;
mod wrappers;

pub use policy::{Pattern, PatternError, Policy, PolicyError};

/// A program that a command would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Known by its name, as it was written: `rm`, `/bin/rm`.
    Named(String),
    /// A function that the command itself defines: no program, but its name may be denied.
    Function(String),
    /// A name with a pattern in it, which becomes a file that is there: `/bin/r?`.
    Glob(String),
    /// Not known before it runs: `$X`, `eval "$code"`.
    Unknown(String),
}

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
        "`{text}` may become a program that is denied (`{denied}`); write the program's name out, without `*`, `?` and `[`"
    )]
    MayBeDenied { text: String, denied: String },
    #[error(
        "what `{text}` runs cannot be known before it runs, and this shell may run only named programs; write the name out"
    )]
    Unknown { text: String },
}

impl Fence {
    /// A policy, narrowed by an allow list, where there is one, and a deny list.
    pub fn new(policy: Policy, allow: Option<&[String]>, deny: &[String]) -> Result<Fence, FenceError> {
        // Taken for no list at all, it would open what it was to close.
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

    /// A fence that lets everything through.
    pub fn open() -> Fence {
        Fence { policy: Policy::open(), allow: Vec::new(), deny: Vec::new() }
    }

    /// Whether the command may run.
    pub fn check(&self, command: &str) -> Result<(), Refused> {
        if self.policy.is_open() && self.allow.is_empty() && self.deny.is_empty() {
            return Ok(());
        }
        programs(command).iter().try_for_each(|program| self.check_program(program))
    }

    fn check_program(&self, program: &Program) -> Result<(), Refused> {
        if let Some((line, pattern)) = self.policy.denies(program) {
            return Err(match program {
                Program::Named(name) | Program::Function(name) => {
                    Refused::ByPolicy { program: name.clone(), line }
                }
                Program::Glob(text) => may_be_denied(text, pattern),
                Program::Unknown(text) => Refused::Unknown { text: text.clone() },
            });
        }
        let denied = self.deny.iter().find(|pattern| pattern.may_match(program));
        let is_allowed =
            || self.allow.is_empty() || self.allow.iter().any(|pattern| pattern.matches(program));
        match (program, denied) {
            (Program::Named(name) | Program::Function(name), Some(_)) => {
                Err(Refused::Denied { program: name.clone() })
            }
            (Program::Glob(text), Some(pattern)) => Err(may_be_denied(text, pattern)),
            (Program::Function(_), None) => Ok(()),
            (Program::Named(_) | Program::Glob(_) | Program::Unknown(_), None) if is_allowed() => Ok(()),
            (Program::Named(name), None) => {
                let names: Vec<&str> = self.allow.iter().map(Pattern::as_str).collect();
                Err(Refused::NotAllowed { program: name.clone(), allow: names.join(", ") })
            }
            (Program::Glob(text), None) | (Program::Unknown(text), _) => {
                Err(Refused::Unknown { text: text.clone() })
            }
        }
    }
}

fn may_be_denied(text: &str, pattern: &Pattern) -> Refused {
    Refused::MayBeDenied { text: text.to_owned(), denied: pattern.as_str().to_owned() }
}

/// A variable that a command sets to a text that stands in it: `NAME=text`, also as an argument (`export`, `env`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    pub value: Vec<u8>,
}

/// The variables that a command sets, as far as their values can be told from its text.
pub fn assignments(command: &str) -> Vec<Assignment> {
    parse::assignments(command)
}

/// The programs that a command would run, as far as they can be told from its text.
pub fn programs(command: &str) -> Vec<Program> {
    parse::programs(command)
}
