//! Asking before something is done that a person may not have meant.

use std::io::{BufRead, IsTerminal, Write};

use ctx_session::Code;

use crate::failure::Failure;
use crate::output;

/// Refuses where nobody can be asked.
pub fn possible(what: &str) -> Result<(), Failure> {
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(Code::Einval, format!("{what} has to be confirmed")).hint("give --yes"))
}

/// Asks, and ends the command when the answer is no.
pub fn ask(question: &str) -> Result<(), Failure> {
    let mut stderr = std::io::stderr();
    // Asked on stderr: stdout is for data.
    let _ = write!(stderr, "{question} [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::io("stdin", error))?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    output::say("left as it is");
    Err(Failure::Told { exit: 1 })
}
