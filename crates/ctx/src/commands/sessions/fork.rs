//! `ctx fork`: copies a session into a new one.

use std::io::Write;

use ctx_api::http::{NewSession, ResumeAt, ResumeFrom, Session};

use crate::client::Api;
use crate::commands::revise::checkpoints;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Copy a session into a new one
///
/// Copies the conversation up to now, up to a checkpoint or up to a record of the log. After that the two
/// sessions share nothing. The new session is idle; the source does not change. Prints the new session's id.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx fork coder                  the current session as it is now
  ctx fork coder/fix-tests --name other-way
  ctx fork coder --at 42          up to record 42 of `ctx log coder`
  ctx send coder -s \"$(ctx fork coder)\" 'try it another way'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Copy up to this record of the log; it must be the last record of a command
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// Copy up to this checkpoint; an id or the beginning or end of an id
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "at")]
    checkpoint: Option<String>,
    /// Name of the new session [default: its id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = sessions::reader_of_daemon(root)?;
    let source = sessions::find(&reader, &args.session)?;
    let meta = reader.meta(&source)?;
    let api = Api::new(root);
    let checkpoint = args.checkpoint.map(|word| checkpoints::find(&api, meta.id, &word)).transpose()?;
    let checkpoint = checkpoint.map(|id| id.to_string());
    let place = ResumeAt { session: meta.id, seq: args.at, checkpoint };
    let new =
        NewSession { name: args.name, resume_from: Some(ResumeFrom::At(place)), ..NewSession::default() };
    let fork: Session = api.post_with(&format!("/projects/{}/sessions", meta.project), &new)?;
    if args.json {
        return output::json(&fork);
    }
    writeln!(std::io::stdout(), "{}", fork.id)?;
    let at = fork.forked_from.map_or(0, |from| from.seq);
    let object = &source.sessions.object;
    output::say(format_args!("{object}/{} was forked from {source} at record {at}", fork.name));
    Ok(())
}
