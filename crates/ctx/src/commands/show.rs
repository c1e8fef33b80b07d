//! `ctx show`: formats a conversation for reading in a terminal.

use std::io::{IsTerminal, Write};

use ctx_api::http::Session;
use ctx_session::project::DEFAULT_PROJECT;

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::render::Transcript;
use crate::render::pager::{Paged, Pager};
use crate::render::terminal::{Look, show};
use crate::root::Root;
use crate::sessions;

/// Width of lines where the terminal does not say, and at most: longer ones are hard to read.
const WIDTH: usize = 80;
const WIDTH_MAX: usize = 100;

/// Show a conversation, formatted for reading
///
/// Formats Markdown, folds long tool output and, on a terminal, opens a pager ($PAGER, or less). In a pipe the
/// output is plain text. It needs no daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx show coder                  the current session
  ctx show coder/fix-tests --full
  PAGER=cat ctx show 01K9X

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning of an id
    #[arg(value_name = "SESSION", default_value = sessions::DEFAULT_AGENT)]
    session: String,
    /// Show tool output in full, and messages removed from context
    #[arg(long)]
    full: bool,
    /// Print without a pager
    #[arg(long)]
    no_pager: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let session = sessions::find(&reader, &args.session)?;
    let transcript = Transcript::open(&reader, &session)?;
    let on_terminal = std::io::stdout().is_terminal();
    let look = Look {
        paint: Paint::for_stdout(),
        width: on_terminal.then(|| output::width().unwrap_or(WIDTH).min(WIDTH_MAX)),
        full: args.full,
        stale: is_stale(root, &transcript),
    };
    let pager = if on_terminal && !args.no_pager { Pager::open() } else { None };
    if let Some(mut pager) = pager {
        let shown = show(&transcript, look, &mut pager);
        match (pager.close()?, shown) {
            // Whoever has read enough quits, and the rest is not wanted.
            (Paged::Shown, Err(Failure::ReaderGone)) => return Ok(()),
            (Paged::Shown, shown) => return shown,
            (Paged::NotRun, _) => {}
        }
    }
    let mut out = output::stdout();
    show(&transcript, look, &mut out)?;
    out.flush()?;
    Ok(())
}

/// Only the daemon knows: it reads the project's file.
fn is_stale(root: &Root, transcript: &Transcript<'_>) -> bool {
    let meta = &transcript.summary.meta;
    if meta.project.as_str() == DEFAULT_PROJECT || !root.is_up() {
        return false;
    }
    let session = Api::new(root).get::<Session>(&format!("/sessions/{}", meta.id));
    session.is_ok_and(|session| session.stale)
}
