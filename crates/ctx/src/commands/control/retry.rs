//! `ctx retry`: a new run after one that failed or was cancelled.

use ctx_api::http::WentOn;
use ctx_session::Code;

use crate::client::{Api, hand_over};
use crate::failure::Failure;
use crate::output;
use crate::root::Root;
use crate::sessions;

/// Try the last run of a session again
///
/// Begins a new run from the log after one that failed or was cancelled, without a new message: what was said and done so
/// far stays. The run goes on by itself; `ctx attach` shows it, and `ctx wait` waits for it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx retry
  ctx retry coder/build && ctx wait coder/build

exit codes: 0 success, 1 failed or nothing to try again, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session, or an agent for its current one [default: the current session of this directory's agent]
    #[arg(value_name = "SESSION", default_value = sessions::HERE, hide_default_value = true)]
    session: String,
    /// Print the run that has begun as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    hand_over(root)?;
    let id = sessions::find_id(root, &args.session)?;
    let begun: WentOn = Api::new(root).post(&format!("/sessions/{id}/retry"))?;
    if args.json {
        return output::json(&begun);
    }
    let run = begun.run_id.ok_or_else(|| Failure::new(Code::Eio, "the daemon named no run"))?;
    output::say(format_args!("run {run} has begun; `ctx attach {id}` shows it"));
    Ok(())
}
