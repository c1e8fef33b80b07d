//! `ctx resume`: goes on with a session that is paused, or starts a message that waits.

use ctx_api::http::{Issue, Posted, Resume, Session, WentOn};
use ctx_session::{Code, SessionId, StateName};

use super::checkpoints;
use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Go on with a paused session
///
/// The run goes on where it was paused, under the prompts as they were edited there. A compaction that waits for
/// review is approved with it. Of a session whose message is queued, this starts the message, as `ctx queue resume`
/// does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx resume coder                the current session
  ctx resume coder/fix-tests --resolve
  ctx resume 01K9X --checkpoint 01K9Y3R6K2QW1B7E0S4N8M5T2A")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION")]
    session: String,
    /// Only if it is paused at this one; an id or the beginning of one
    #[arg(long, value_name = "ID")]
    checkpoint: Option<String>,
    /// The issue that the session works on is resolved
    #[arg(long)]
    resolve: bool,
    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    let session: Session = api.get(&format!("/sessions/{id}"))?;
    if session.state == StateName::Queued && args.checkpoint.is_none() {
        return start(&api, &args, id);
    }
    let checkpoint = match &args.checkpoint {
        Some(word) => checkpoints::find(&api, id, word)?,
        None => session.checkpoint.ok_or_else(|| {
            Failure::new(Code::Ebusy, format!("{} is not paused: it is {}", args.session, session.state))
                .hint("`ctx pause` pauses a run; `ctx ls` shows which sessions are paused")
        })?,
    };
    if args.resolve && session.bound_issue.is_none() {
        return Err(Failure::new(Code::Einval, format!("{} works on no issue", args.session))
            .hint("`ctx bind` says which; without --resolve the session only goes on"));
    }
    let path = format!("/sessions/{id}/checkpoints/{checkpoint}/resume");
    let done: WentOn = api.post_with(&path, &Resume { resolve: args.resolve })?;
    if args.json {
        return output::json(&done);
    }
    if let Some(issue) = session.bound_issue.filter(|_| args.resolve) {
        let issue: Issue = api.get(&format!("/issues/{issue}"))?;
        output::say(format_args!("#{} {} is resolved", issue.number, output::plain(&issue.title)));
    }
    match done.run_id.filter(|_| done.state == "running") {
        Some(run) => {
            output::say(format_args!("run {run} goes on; `ctx log -f {}` follows it", args.session));
        }
        None => output::say("nothing was left to do; the session is idle"),
    }
    Ok(())
}

/// A message that waits for a slot.
fn start(api: &Api<'_>, args: &Args, id: SessionId) -> Result<(), Failure> {
    if args.resolve {
        let message = "--resolve goes with a session that is paused; this one is queued";
        return Err(Failure::new(Code::Einval, message));
    }
    let posted: Posted = api.post(&format!("/sessions/{id}/resume"))?;
    if args.json {
        return output::json(&posted);
    }
    let (run, state, session) = (posted.run_id, posted.state, &args.session);
    output::say(format_args!("run {run} is {state}; `ctx log -f {session}` follows it"));
    Ok(())
}
