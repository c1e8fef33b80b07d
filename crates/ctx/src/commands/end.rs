//! `ctx end`: ends a session for good.

use std::io::{BufRead, IsTerminal, Write};

use ctx_api::http::Session;
use ctx_session::Code;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// End a session
///
/// A run that is going on is cancelled, and no message can be sent to it any more. Its history stays, and its
/// name is free for a new session. Asks first on a terminal; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx end coder/fix-tests
  ctx end --yes 01K9X")]
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
            return Err(Failure::new(Code::Einval, "ending a session has to be confirmed").hint("give --yes"));
        }
        let session: Session = api.get(&format!("/sessions/{id}"))?;
        if !confirmed(&session)? {
            output::say("left as it is");
            return Err(Failure::Told { exit: 1 });
        }
    }
    api.delete(&format!("/sessions/{id}?confirm=true"))?;
    output::say(format_args!("ended {id}; `ctx history {id}` still shows it"));
    Ok(())
}

fn confirmed(session: &Session) -> Result<bool, Failure> {
    let name = session.agent.as_ref().map_or(String::new(), |agent| format!("{agent}/"));
    let running = session.current_run.map_or("", |_| " and cancel its run");
    let mut stderr = std::io::stderr();
    // Asked on stderr: stdout is for data.
    let _ = write!(stderr, "End {name}{} ({}){running}? [y/N] ", session.name, session.id);
    let _ = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::io("stdin", error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
