//! `ctx purge`: deletes a session that is over.

use ctx_api::http::Session;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{confirm, output, sessions};

/// Delete a session for good
///
/// Its log, its files and what the index has of it go; the index overwrites it. The audit log stays: who did what in
/// the session and when, its name, the first 80 characters of each message that began a run, and what was asked and
/// noted where it was paused or asked for leave. Only a session that has ended or failed can be deleted. Asks first on a
/// terminal; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx purge coder/fix-tests
  ctx purge --yes 01K9X")]
pub struct Args {
    /// agent/name, an id or the beginning of one
    #[arg(value_name = "SESSION")]
    session: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    if !args.yes {
        confirm::ask("deleting a session", || Ok(question(&api.get(&format!("/sessions/{id}"))?)))?;
    }
    api.delete(&format!("/sessions/{id}?purge=true"))?;
    output::say(format_args!("purged {id}"));
    Ok(())
}

fn question(session: &Session) -> String {
    let name = session.agent.as_ref().map_or(String::new(), |agent| format!("{agent}/"));
    let title = session.title.as_deref().map(output::plain);
    let title = title.map_or(String::new(), |title| format!(" \"{title}\""));
    format!(
        "Delete {name}{}{title} ({}) and all that was said in it? This cannot be undone.",
        session.name, session.id
    )
}
