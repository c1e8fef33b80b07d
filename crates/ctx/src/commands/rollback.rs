//! `ctx rollback`: goes back to a checkpoint.

use ctx_api::http::{Checkpoint, Session};
use ctx_session::Code;

use super::checkpoints;
use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{confirm, output, sessions};

/// Go back to a checkpoint
///
/// What was said after it no longer counts, and compactions after it are undone; nothing is deleted, and files that
/// tools have changed stay as they are. The next message begins from there, under the prompts of then. Asks first on
/// a terminal; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx rollback coder              to where it is paused, else to the newest checkpoint
  ctx checkpoints coder           which there are
  ctx rollback --yes coder 01K9Y3R6K2QW1B7E0S4N8M5T2A")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION")]
    session: String,
    /// An id or the beginning of one [default: where it is paused, else the newest]
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: Option<String>,
    /// Do not ask
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
                        .hint("`ctx pause` makes one while a run goes on")
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
            Ok(format!("Go back to {to}{reason}? What was said after it no longer counts."))
        })?;
    }
    let done: Checkpoint = api.post(&format!("{path}/rollback"))?;
    if args.json {
        return output::json(&done);
    }
    output::say(format_args!("{} is as it was at {to}; send a message to go on from there", args.session));
    Ok(())
}
