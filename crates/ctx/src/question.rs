//! A question to the person at the terminal that is answered with yes or no.

use std::io::{BufRead, Write};

use crate::failure::Failure;

/// Asks the person at the terminal. Anything but a yes is a no.
pub fn is_yes(question: &str) -> Result<bool, Failure> {
    let mut stderr = std::io::stderr();
    // Asked on stderr: stdout is for data.
    let _ = write!(stderr, "{question} [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::io("stdin", error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
