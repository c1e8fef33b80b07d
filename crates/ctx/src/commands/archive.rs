//! `ctx archive`: puts a session away, or brings it back.

use ctx_api::http::{Session, SessionChange};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Put a session away
///
/// It is not listed any more unless asked for with `ctx ls --archived`; nothing else changes. It can be read, searched
/// and forked as before, and a message to it brings it back. Only a session that rests can be put away.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx archive coder/fix-tests
  ctx archive coder/fix-tests --undo")]
pub struct Args {
    /// agent/name, an id or the beginning of one
    #[arg(value_name = "SESSION")]
    session: String,
    /// Bring it back
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
        true => output::say(format_args!("archived {id}; `ctx ls --archived` still lists it")),
        false => output::say(format_args!("{id} is back")),
    }
    Ok(())
}
