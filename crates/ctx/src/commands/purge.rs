//! `ctx purge`: deletes a session that is over.

use std::io::{BufRead, IsTerminal, Write};

use ctx_api::http::Session;
use ctx_session::Code;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Delete a session for good
///
/// Its log, its files and everything that was said in it go; the audit log keeps that it was there. Only a session
/// that has ended or failed can be deleted. Asks first on a terminal; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx purge coder/fix-tests
  ctx purge --yes 01K9X")]
pub struct Args {
    /// agent/name, an id or the beginning of one
    #[arg(value_name = "SESSION")]
    session: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            let failure = Failure::new(Code::Einval, "deleting a session has to be confirmed");
            return Err(failure.hint("give --yes"));
        }
        let session: Session = api.get(&format!("/sessions/{id}"))?;
        if !confirmed(&session)? {
            output::say("left as it is");
            return Err(Failure::Told { exit: 1 });
        }
    }
    api.delete(&format!("/sessions/{id}?purge=true"))?;
    output::say(format_args!("purged {id}"));
    Ok(())
}

fn confirmed(session: &Session) -> Result<bool, Failure> {
    let name = session.agent.as_ref().map_or(String::new(), |agent| format!("{agent}/"));
    let title = session.title.as_deref().map(output::plain);
    let title = title.map_or(String::new(), |title| format!(" \"{title}\""));
    let mut stderr = std::io::stderr();
    // Asked on stderr: stdout is for data.
    let _ = write!(
        stderr,
        "Delete {name}{}{title} ({}) and all that was said in it? This cannot be undone. [y/N] ",
        session.name, session.id
    );
    let _ = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::io("stdin", error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
