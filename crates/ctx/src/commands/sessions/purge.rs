//! `ctx purge`: deletes an ended or failed session.

use ctx_api::http::Session;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{confirm, output, sessions};

/// Delete a session permanently
///
/// Deletes the session's log, its files and its entries in the index, and overwrites the index entries. Only an
/// ended or failed session can be purged. On a terminal the command asks for confirmation; in a script, pass
/// --yes.
///
/// The audit log is kept. It holds who did what and when, the session's name, the first 80 characters of each
/// message that started a run, and the reasons and notes given at checkpoints and approvals.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx purge coder/fix-tests
  ctx purge --yes 01K9X

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print the session that was purged as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    if !args.yes {
        confirm::ask_of("purging a session", &api, id, |session, named| {
            let title = session.title.as_deref().map(output::plain);
            let title = title.map_or(String::new(), |title| format!(" \"{title}\""));
            format!("Delete {named}{title} ({id}) and its whole conversation? This cannot be undone.")
        })?;
    }
    let was = args.json.then(|| api.get::<Session>(&format!("/sessions/{id}"))).transpose()?;
    api.delete(&format!("/sessions/{id}?purge=true"))?;
    if let Some(session) = was {
        return output::json(&session);
    }
    output::say(format_args!("purged {id}"));
    Ok(())
}
