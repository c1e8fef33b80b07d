//! `ctx end`: ends a session for good.

use ctx_api::http::Session;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{confirm, output, sessions};

/// End a session
///
/// A run that is going on is cancelled, and no message can be sent to it any more. Its history stays, and its
/// name is free for a new session. Asks first on a terminal; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx end coder/fix-tests
  ctx end --yes 01K9X")]
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
        confirm::ask("ending a session", || Ok(question(&api.get(&format!("/sessions/{id}"))?)))?;
    }
    api.delete(&format!("/sessions/{id}?confirm=true"))?;
    output::say(format_args!("ended {id}; `ctx history {id}` still shows it"));
    Ok(())
}

fn question(session: &Session) -> String {
    let name = session.agent.as_ref().map_or(String::new(), |agent| format!("{agent}/"));
    let running = session.current_run.map_or("", |_| " and cancel its run");
    format!("End {name}{} ({}){running}?", session.name, session.id)
}
