//! `ctx bind`: sets the issue that a session works on.

use ctx_api::http::{Bind, Session};

use crate::client::Api;
use crate::failure::Failure;
use crate::issues;
use crate::root::Root;
use crate::{output, sessions};

/// Choose the issue that a session works on
///
/// The agent's `todo` tool then works on the todos of that issue, and the agent is reminded of the open ones.
/// Only one session at a time works on an issue. Binding changes no todo, and ending a session does not resolve
/// its issue: use `ctx resume --resolve` or `ctx issue resolve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx bind coder 1                the current session works on issue 1
  ctx bind coder/fix-tests 01K9X
  ctx bind coder --none           it works on no issue

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// An issue of the session's project: its number, its id or the beginning or end of the id
    #[arg(value_name = "ISSUE", required_unless_present = "none")]
    issue: Option<String>,
    /// Unbind the issue; its todos stay as they are
    #[arg(long, conflicts_with = "issue")]
    none: bool,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    let path = format!("/sessions/{id}");
    let Some(word) = &args.issue else {
        api.delete(&format!("{path}/bind"))?;
        let session: Session = api.get(&path)?;
        if args.json {
            return output::json(&session);
        }
        output::say(format_args!("{} has no issue now", sessions::label(&session)));
        return Ok(());
    };
    let project = api.get::<Session>(&path)?.project;
    let issue = issues::find(&api, &project, word)?;
    let bound: Session = api.put(&format!("{path}/bind"), &Bind { issue_id: issue.id.to_string() })?;
    if args.json {
        return output::json(&bound);
    }
    let title = output::plain(&issue.title);
    output::say(format_args!("{} works on #{} {title}", sessions::label(&bound), issue.number));
    Ok(())
}
