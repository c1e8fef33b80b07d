//! `ctx pause`: pauses a run at a checkpoint.

use std::io::Write;

use ctx_api::http::{Checkpoint, NewCheckpoint};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Pause a run at a checkpoint
///
/// Tool calls that have started run to their end; nothing new starts. The session stays paused, also across a
/// restart of the daemon, until it is resumed or rolled back. Prints the checkpoint's id.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx pause coder                 the current session
  ctx pause coder/fix-tests --reason 'before it touches the database'
  ctx prompt edit coder           change its prompt, then
  ctx resume coder                continue, or
  ctx rollback coder              go back to the checkpoint

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Reason, shown with the checkpoint
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print the checkpoint as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let new = NewCheckpoint { reason: args.reason, files: false };
    let made: Checkpoint = Api::new(root).post_with(&format!("/sessions/{id}/checkpoints"), &new)?;
    if args.json {
        return output::json(&made);
    }
    writeln!(std::io::stdout(), "{}", made.id)?;
    let session = &args.session;
    output::say(format_args!(
        "paused; `ctx checkpoints {session} {}` shows the checkpoint, `ctx resume {session}` continues",
        made.id
    ));
    Ok(())
}
