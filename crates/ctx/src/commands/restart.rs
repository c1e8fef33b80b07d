//! `ctx restart`: a new session in the place of an old one, with the project file as it is now.

use std::io::Write;

use ctx_api::http::Session;
use ctx_session::{Code, StateName};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// End a session and begin a new one in its place
///
/// The new one has the same agent and name, and the project file as it is now: the way to take up a change, for a
/// session that `ctx ls` shows as stale. What was said stays readable under the old id, and is not carried over.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx restart music/default
  ctx restart --yes 01K9X         also when it is busy: its run is cancelled")]
pub struct Args {
    /// agent/name, an id or the beginning of one
    #[arg(value_name = "SESSION")]
    session: String,
    /// Also when a run is going on or waits
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
        let message = format!("{} is {}; its run would be cancelled", args.session, old.state);
        return Err(Failure::new(Code::Ebusy, message).hint("wait for its end, or give --yes"));
    }
    let new: Session = api.post(&format!("/sessions/{id}/restart"))?;
    if args.json {
        return output::json(&new);
    }
    writeln!(std::io::stdout(), "{}", new.id)?;
    let agent = new.agent.as_ref().map_or(String::new(), |agent| format!("{agent}/"));
    output::say(format_args!(
        "{agent}{} begins anew; `ctx history {id}` shows what was said before",
        new.name
    ));
    Ok(())
}
