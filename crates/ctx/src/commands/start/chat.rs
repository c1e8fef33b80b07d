//! `ctx chat`: a conversation at the terminal, or of a script.

use std::path::PathBuf;

use clap::FromArgMatches;
use ctx_session::{Code, SessionId};

use crate::chat::{self, Options};
use crate::client::As;
use crate::commands::start::send::session_for_socket;
use crate::consent::Consent;
use crate::failure::Failure;
use crate::images;
use crate::root::Root;
use crate::sessions;

/// Talk with an agent
///
/// Shows the end of the conversation and then everything that happens in it, whichever client it comes from. What you
/// type is a message; several lines with Alt-Enter or a paste. A message typed during a run waits for its end (/drop takes
/// it back), also if the terminal is closed meanwhile. If a tool
/// call needs your approval, answer with y, n, n and a reason, or a to allow such calls until the session ends. If the
/// model paused to ask, what you type is the answer. An image file that a message names as @FILE is shown with it. Type
/// /help for the commands.
///
/// The directory decides: the project is the nearest one with a .ctx/project.yaml, else the git work tree, else the
/// directory itself, and each has its own agent and sessions.
///
/// Esc or Ctrl-C cancels the run and keeps what you have typed; again, it leaves. Ctrl-D leaves. The session continues without you, and the same command
/// comes back to it. Without a terminal, every line of stdin is a message, and the answers go to stdout; a line is read
/// when the one before is answered. If a call needs your approval, the next line is the answer; any other line, or the end
/// of stdin, denies it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx chat                        continue where you left off in this directory
  ctx chat coder/fix-tests        a session; it is created if it does not exist
  ctx chat coder --model debug:script
  printf 'one\\ntwo\\n' | ctx chat   two messages, one after the other

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, a name, an agent (its current session), or part of an id [default: the current session of
    /// this directory]
    #[arg(value_name = "SESSION", default_value = sessions::HERE, hide_default_value = true)]
    agent: String,
    /// The agent's session, by name or id [default: the current one, else `default`]
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Working directory of a new session, as a path that the agent sees
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Directory to work in, in place of this one
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Model for the next message and later ones, as provider:model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Image to show with the first message (repeatable): PNG, JPEG, GIF or WebP
    #[arg(short, long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    consent: Consent,
    /// Number of past messages to show first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    tail: u16,
}

impl Args {
    /// As they would be on the command line, for those who begin a chat otherwise.
    pub fn of_words(words: &[&str]) -> Result<Args, Failure> {
        let command = <Args as clap::Args>::augment_args(clap::Command::new("chat"));
        let read = command.try_get_matches_from(words).and_then(|found| Args::from_arg_matches(&found));
        read.map_err(|error| Failure::new(Code::Einval, error.to_string()))
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let word = match (&args.session, args.agent.contains('/')) {
        (None, _) => args.agent,
        (Some(_), true) => {
            let message = "the session is given twice: as agent/name and with --session";
            return Err(Failure::new(Code::Einval, message));
        }
        (Some(session), false) if args.agent == sessions::HERE => session.clone(),
        (Some(session), false) => {
            let agent = sessions::agent_name(&args.agent)?;
            match session_for_socket(root, &agent, session.clone())? {
                id if id.parse::<SessionId>().is_ok() => id,
                name => format!("{agent}/{name}"),
            }
        }
    };
    let parts = images::read(&args.images)?;
    let opened = chat::found_or_new(root, &word, args.cwd, args.dir.as_deref())?;
    let (who, tail) = (As::Operator, usize::from(args.tail));
    chat::run(root, opened, Options { who, tail, model: args.model, consent: args.consent, parts })
}
