//! `ctx latest`: prints the newest answer, read from the session's log.

use std::io::{IsTerminal, Write};

use ctx_api::http::{Message, Role};

use crate::failure::Failure;
use crate::output;
use crate::root::Root;
use crate::said;
use crate::sessions::Which;

/// Print the latest answer of an agent
///
/// Prints the text of the newest assistant message in the conversation. It needs no daemon. When there is no
/// answer yet, it prints nothing to stdout and exits with 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx latest                      this directory's current session
  ctx latest coder --session fix-tests
  ctx latest coder/fix-tests > answer.md
  ctx latest 01K9X                by the beginning of an id

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Print the message as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let session = args.which.find(&reader)?;
    if args.json {
        let of_model = |message: &Message| message.role == Role::Assistant && message.parts.is_empty();
        let mut latest = None;
        for message in said::messages(&reader, &session, false)? {
            latest = Some(message?).filter(of_model).or(latest);
        }
        return latest.map_or(Ok(()), |latest| output::json(&latest));
    }
    let text = reader.latest(&session)?;
    let mut out = std::io::stdout();
    if text.is_empty() {
        output::say(format_args!("{session} has no answer yet"));
        return Ok(());
    }
    let text = if out.is_terminal() { output::plain(&text) } else { text };
    writeln!(out, "{}", text.strip_suffix('\n').unwrap_or(&text))?;
    Ok(())
}
