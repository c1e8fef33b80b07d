//! `ctx resume`: continues a paused session, or starts a queued message.

use ctx_api::http::{Issue, Posted, Resume, Session, WentOn};
use ctx_session::{Code, SessionId, StateName};

use crate::client::Api;
use crate::commands::revise::checkpoints;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Continue a paused session
///
/// The run continues where it was paused, with the prompts as edited at the checkpoint. A compaction that waits
/// for review is approved. If the session has a queued message instead, the message is started, as with `ctx
/// queue resume`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx resume coder                the current session
  ctx resume coder --message 'SQLite'
  ctx resume coder/fix-tests --resolve
  ctx resume 01K9X --checkpoint 01K9Y3R6K2QW1B7E0S4N8M5T2A

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Resume only if paused at this checkpoint; an id or the beginning or end of an id
    #[arg(long, value_name = "CHECKPOINT")]
    checkpoint: Option<String>,
    /// Also mark the session's issue as resolved
    #[arg(long)]
    resolve: bool,
    /// Your answer to a model that paused to ask
    #[arg(short, long, value_name = "TEXT", conflicts_with = "resolve")]
    message: Option<String>,
    /// Print the result as JSON
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
                .hint("`ctx pause` pauses a run; `ctx ls --state paused` lists paused sessions")
        })?,
    };
    if args.resolve && session.bound_issue.is_none() {
        return Err(Failure::new(Code::Einval, format!("{} has no issue", args.session))
            .hint("`ctx bind` chooses one; without --resolve the session just continues"));
    }
    let path = format!("/sessions/{id}/checkpoints/{checkpoint}/resume");
    let done: WentOn =
        api.post_with(&path, &Resume { resolve: args.resolve, message: args.message.clone() })?;
    if args.json {
        return output::json(&done);
    }
    if let Some(issue) = session.bound_issue.filter(|_| args.resolve) {
        let issue: Issue = api.get(&format!("/issues/{issue}"))?;
        output::say(format_args!("#{} {} is resolved", issue.number, output::plain(&issue.title)));
    }
    match done.run_id.filter(|_| done.state == "running") {
        Some(run) => {
            output::say(format_args!("run {run} continues; `ctx log -f {}` follows it", args.session));
        }
        None => output::say("nothing is left to do; the session is idle"),
    }
    Ok(())
}

/// A message that waits for a slot.
fn start(api: &Api<'_>, args: &Args, id: SessionId) -> Result<(), Failure> {
    if args.resolve || args.message.is_some() {
        let message = "--resolve and --message need a paused session; this one is queued";
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
