//! `ctx archive`: hides a session from lists, or lists it again.

use ctx_api::http::{Session, SessionChange};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Hide a session from lists
///
/// The session is listed only with `ctx ls --archived`. It can be read, searched and forked as before, and a new
/// message brings it back. A session that is running, queued or paused cannot be archived.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx archive coder/fix-tests
  ctx archive coder/fix-tests --undo

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// List the session again
    #[arg(long)]
    undo: bool,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let change = SessionChange { archived: Some(!args.undo), ..SessionChange::default() };
    let session: Session = Api::new(root).put(&format!("/sessions/{id}"), &change)?;
    if args.json {
        return output::json(&session);
    }
    match session.archived {
        true => output::say(format_args!("archived {id}; `ctx ls --archived` lists it")),
        false => output::say(format_args!("{id} is listed again")),
    }
    Ok(())
}
