//! What is wrong with a project's files, with its place: the same words in the API, on sockets and in a terminal.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::code::{Code, Refusal};

/// Something in a file that cannot stay as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// Relative to the project's directory.
    pub file: String,
    /// From 1.
    pub line: u64,
    /// In characters, from 1.
    pub column: u64,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// Why an invalid project does nothing: its first problem, and how many more there are.
pub fn invalid(project: &str, problems: &[Problem]) -> Refusal {
    let first = problems.first().map(|problem| format!(": {problem}")).unwrap_or_default();
    let more = match problems.len().saturating_sub(1) {
        0 => String::new(),
        1 => " (and one more problem)".to_owned(),
        more => format!(" (and {more} more problems)"),
    };
    let message = format!("the project {project} is invalid{first}{more}");
    Refusal { problems: problems.to_vec(), ..Refusal::new(Code::Ebadmsg, message) }
}
