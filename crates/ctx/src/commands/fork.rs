//! `ctx fork`: a new session that begins as a copy of another.

use std::io::Write;

use ctx_api::http::{NewSession, ResumeAt, ResumeFrom, Session};

use super::checkpoints;
use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Begin a session as a copy of another
///
/// Everything that was said, up to now, a checkpoint or a record, is in both; from there on they share nothing. The fork is
/// idle, whatever the other is doing, and the other is not touched. Prints the new session's id.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx fork coder                  the current session as it is now
  ctx fork coder/fix-tests --name other-way
  ctx fork coder --at 42          up to record 42 of `ctx log coder`
  ctx send coder -s \"$(ctx fork coder)\" 'try it another way'")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION")]
    session: String,
    /// Up to this record of its log, which must end a command
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// Up to where it was paused at this checkpoint; an id or the beginning of one
    #[arg(long, value_name = "ID", conflicts_with = "at")]
    checkpoint: Option<String>,
    /// The fork's name [default: its id]
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
    output::say(format_args!("{object}/{} is a fork of {source} at record {at}", fork.name));
    Ok(())
}
