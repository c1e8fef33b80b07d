//! The refusal of an invalid project: the same words in the API, on sockets and in a terminal.

pub use crate::code::Problem;
use crate::code::{Code, Refusal};

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
