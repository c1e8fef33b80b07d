//! `ctx cancel`: stops a run.

use ctx_api::http::{Run, Session};
use ctx_session::{Code, RunId};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Cancel a run
///
/// The run of the session that is going on or queued, unless another is named. What was said so far is kept.
/// Returns when the run is over.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx cancel coder                the run of coder's current session
  ctx cancel coder/fix-tests
  ctx cancel 01K9X 01K9Y3R6K2QW1B7E0S4N8M5T2A")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION")]
    session: String,
    /// The run [default: the one that is going on]
    #[arg(value_name = "RUN")]
    run: Option<RunId>,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    let run = match args.run {
        Some(run) => run,
        None => api.get::<Session>(&format!("/sessions/{id}"))?.current_run.ok_or_else(|| {
            Failure::new(Code::Enoent, format!("nothing runs in {}", args.session))
                .hint("`ctx ls` shows which sessions are running")
        })?,
    };
    let ended: Run = api.post(&format!("/sessions/{id}/runs/{run}/cancel"))?;
    if args.json {
        return output::json(&ended);
    }
    match ended.state.as_str() {
        "cancelled" => output::say(format_args!("cancelled run {run}")),
        other => output::say(format_args!("run {run} was over already: {other}")),
    }
    Ok(())
}
