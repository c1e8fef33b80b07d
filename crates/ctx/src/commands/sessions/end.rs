//! `ctx end`: ends a session.

use ctx_api::http::Session;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{confirm, output, sessions};

/// End a session
///
/// Cancels its run, if there is one, and accepts no more messages. The history stays readable, and the name is
/// free for a new session. On a terminal the command asks for confirmation; in a script, pass --yes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx end coder/fix-tests
  ctx end --yes 01K9X

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    if !args.yes {
        confirm::ask_of("ending a session", &api, id, |session, named| {
            let running = session.current_run.map_or("", |_| " and cancel its run");
            format!("End {named} ({id}){running}?")
        })?;
    }
    api.delete(&format!("/sessions/{id}?confirm=true"))?;
    if args.json {
        return output::json(&api.get::<Session>(&format!("/sessions/{id}"))?);
    }
    output::say(format_args!("ended {id}; `ctx history {id}` shows its messages"));
    Ok(())
}
