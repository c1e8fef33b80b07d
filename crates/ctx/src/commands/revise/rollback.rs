//! `ctx rollback`: goes back to a checkpoint.

use ctx_api::http::{Checkpoint, Rollback, Session};
use ctx_session::Code;

use super::{checkpoints, undo};
use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{confirm, output, sessions};

/// Go back to a checkpoint
///
/// Messages after the checkpoint are removed from context, and compactions after it are undone. Nothing is
/// deleted: `ctx history --all` still shows the messages. The next message continues from the checkpoint, with the
/// prompts it had then. With --files, what the session's runs have changed in files since goes back too: a file that
/// someone changed again is kept and named, and the current files are saved first, so you can reverse it. On a terminal the command asks for
/// confirmation; in a script, pass --yes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx rollback coder              to where it is paused, else to the newest checkpoint
  ctx checkpoints coder           list the checkpoints
  ctx rollback --files coder      the files too
  ctx rollback --yes coder 01K9Y3R6K2QW1B7E0S4N8M5T2A

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// The checkpoint: an id or the beginning or end of an id [default: where it is paused, else the newest]
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: Option<String>,
    /// Also take back what the runs since have changed in files
    #[arg(long)]
    files: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print the checkpoint as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    let to = match &args.checkpoint {
        Some(word) => checkpoints::find(&api, id, word)?,
        None => {
            let session: Session = api.get(&format!("/sessions/{id}"))?;
            let newest = || {
                let all = checkpoints::all(&api, id, false)?;
                let newest = all.iter().rev().find(|one| one.superseded_by.is_none());
                newest.map(|one| one.id).ok_or_else(|| {
                    Failure::new(Code::Enoent, format!("{} has no checkpoint", args.session))
                        .hint("`ctx pause` creates one while a run is in progress")
                })
            };
            session.checkpoint.map_or_else(newest, Ok)?
        }
    };
    let path = format!("/sessions/{id}/checkpoints/{to}");
    if !args.yes {
        confirm::ask("going back", || {
            let checkpoint: Checkpoint = api.get(&path)?;
            let reason = checkpoint.reason.as_deref().map(output::plain);
            let reason = reason.map_or(String::new(), |reason| format!(" \"{reason}\""));
            let files = if args.files { ", and files go back" } else { "" };
            Ok(format!("Go back to {to}{reason}? Later messages are removed from context{files}."))
        })?;
    }
    let done: Checkpoint = api.post_with(&format!("{path}/rollback"), &Rollback { files: args.files })?;
    if args.json {
        return output::json(&done);
    }
    output::say(format_args!(
        "{} is rolled back to {to}; the next message continues from there",
        args.session
    ));
    match (&done.files, args.files) {
        (Some(back), _) => undo::show(back),
        (None, true) => {
            output::say("no run has changed a file since");
            Ok(())
        }
        (None, false) => Ok(()),
    }
}
