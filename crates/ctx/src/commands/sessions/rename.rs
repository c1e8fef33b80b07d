//! `ctx rename`: sets the title of a session.

use ctx_api::http::{Session, SessionChange};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Set the title of a session
///
/// The title is shown in lists. The session's name, which is part of its path, does not change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx rename coder \"the flaky build\"
  ctx rename coder/fix-tests Tests on ARM

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// The title
    #[arg(value_name = "TITLE", required = true)]
    title: Vec<String>,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let change = SessionChange { title: Some(args.title.join(" ")), ..SessionChange::default() };
    let session: Session = Api::new(root).put(&format!("/sessions/{id}"), &change)?;
    if args.json {
        return output::json(&session);
    }
    output::say(format_args!("{id} is now \"{}\"", output::one_line(&session.title.unwrap_or_default())));
    Ok(())
}
