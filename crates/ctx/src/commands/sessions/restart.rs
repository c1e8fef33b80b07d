//! `ctx restart`: replaces a session with a new one that uses the current project file.

use std::io::Write;

use ctx_api::http::Session;
use ctx_session::{Code, StateName};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// End a session and start a new one with its name
///
/// The new session has the same agent and name and uses the project file as it is now. Use it for a session that
/// `ctx ls` shows as stale. The old conversation stays readable under its id; it is not copied.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx restart music/default
  ctx restart --yes 01K9X         also when it is busy: its run is cancelled

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Restart even if a run is running, queued or paused
    #[arg(short, long)]
    yes: bool,
    /// Print the new session as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    let old: Session = api.get(&format!("/sessions/{id}"))?;
    let is_busy = old.state != StateName::Idle && !old.state.is_over();
    if is_busy && !args.yes {
        let message = format!("{} is {}; a restart cancels its run", args.session, old.state);
        return Err(Failure::new(Code::Ebusy, message).hint("wait until it has ended, or pass --yes"));
    }
    let new: Session = api.post(&format!("/sessions/{id}/restart"))?;
    if args.json {
        return output::json(&new);
    }
    writeln!(std::io::stdout(), "{}", new.id)?;
    let agent = new.agent.as_ref().map_or(String::new(), |agent| format!("{agent}/"));
    output::say(format_args!(
        "{agent}{} was restarted; `ctx history {id}` shows the old conversation",
        new.name
    ));
    Ok(())
}
