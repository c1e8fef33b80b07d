//! `ctx rename`: gives a session a title.

use ctx_api::http::{Session, SessionChange};

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Give a session a title
///
/// The title is for people and shows in lists. The session's name, which is part of its path, stays.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx rename coder \"the flaky build\"
  ctx rename coder/fix-tests Tests on ARM")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
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
    output::say(format_args!("{id} is now \"{}\"", session.title.unwrap_or_default()));
    Ok(())
}
