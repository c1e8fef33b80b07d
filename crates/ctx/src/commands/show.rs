//! `ctx show`: a conversation to read in a terminal.

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

/// Show a conversation
///
/// Markdown is laid out, long tool output is folded, and on a terminal it comes in a pager ($PAGER, or less). Piped
/// on, it is plain text. Works without a daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx show coder                  the current session
  ctx show coder/fix-tests --full
  PAGER=cat ctx show 01K9X")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION", default_value = sessions::DEFAULT_AGENT)]
    session: String,
    /// Tool output in full, and what no longer counts
    #[arg(long)]
    full: bool,
    /// Print it all at once
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
