//! `ctx pause`: a checkpoint in the middle of a run.

use std::io::Write;

use ctx_api::http::{Checkpoint, NewCheckpoint};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Pause a run at a checkpoint
///
/// Tools that are under way come to their end; nothing new is started. The session waits, also over a restart of
/// the daemon, until it is resumed or rolled back. Prints the checkpoint's id.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx pause coder                 the current session
  ctx pause coder/fix-tests --reason 'before it touches the database'
  ctx prompt edit coder           change what it is told, then
  ctx resume coder                go on, or
  ctx rollback coder              go back to where it was paused")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION")]
    session: String,
    /// Why, to find it again
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print the checkpoint as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let new = NewCheckpoint { reason: args.reason };
    let made: Checkpoint = Api::new(root).post_with(&format!("/sessions/{id}/checkpoints"), &new)?;
    if args.json {
        return output::json(&made);
    }
    writeln!(std::io::stdout(), "{}", made.id)?;
    let session = &args.session;
    output::say(format_args!(
        "paused; `ctx checkpoints {session} {}` shows where, `ctx resume {session}` goes on",
        made.id
    ));
    Ok(())
}
