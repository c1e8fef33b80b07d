//! `ctx cancel`: stops a run.

use ctx_api::http::{Run, Session};
use ctx_session::{Code, RunId, SessionId};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{ids, output, sessions};

/// Cancel a run
///
/// Cancels the run that is running or queued in the session, or the run with the given id. What the agent said so
/// far is kept. Returns when the run has ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx cancel coder                the run of coder's current session
  ctx cancel coder/fix-tests
  ctx cancel 01K9X 01K9Y3R6K2QW1B7E0S4N8M5T2A

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// The run: an id, or the beginning or end of an id [default: the run that is running or queued]
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    let run = match &args.run {
        Some(word) => find(&api, id, word)?,
        None => api.get::<Session>(&format!("/sessions/{id}"))?.current_run.ok_or_else(|| {
            Failure::new(Code::Enoent, format!("nothing is running in {}", args.session))
                .hint("`ctx ls --state running` lists running sessions")
        })?,
    };
    let ended: Run = api.post(&format!("/sessions/{id}/runs/{run}/cancel"))?;
    if args.json {
        return output::json(&ended);
    }
    match ended.state.as_str() {
        "cancelled" => output::say(format_args!("cancelled run {run}")),
        other => output::say(format_args!("run {run} had already ended: {other}")),
    }
    Ok(())
}

/// The run that a word names.
fn find(api: &Api<'_>, id: SessionId, word: &str) -> Result<RunId, Failure> {
    if let Ok(whole) = word.parse() {
        return Ok(whole);
    }
    let runs = sessions::all::<Run>(api, &format!("/sessions/{id}/runs?limit=1000"))?;
    let hint = "`ctx history SESSION --json` shows their ids";
    Ok(ids::one(runs, |run| run.id.to_string(), word, ("run", hint))?.id)
}
