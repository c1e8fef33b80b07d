//! `ctx attach`: the chat on a session that exists, taking part or looking on.

use crate::chat::{self, Opened, Options};
use crate::client::As;
use crate::failure::Failure;
use crate::root::Root;
use crate::sessions;

/// Talk in a session that exists, or watch it
///
/// The same as `ctx chat`, except that it creates no session. Any number of terminals can chat in a session, attach to it
/// and observe it at the same time, and all show the same. An observer sends nothing and leaves with Ctrl-C.
///
/// If the daemon restarts, `attach` waits up to a minute for it, then shows what you missed and sends what you
/// typed in the meantime.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx attach                      this directory's current session
  ctx attach coder/fix-tests
  ctx attach 01K9ZZ3F --observe | tee seen.txt

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, a name, an agent (its current session), or part of an id
    #[arg(value_name = "SESSION", default_value = sessions::HERE, hide_default_value = true)]
    session: String,
    /// Watch only
    #[arg(long)]
    observe: bool,
    /// Number of past messages to show first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    tail: u16,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let opened = Opened::existing(root, &args.session)?;
    let who = if args.observe { As::Observer } else { As::Operator };
    let tail = usize::from(args.tail);
    chat::run(
        root,
        opened,
        Options { who, tail, model: None, consent: Default::default(), parts: Vec::new() },
    )
}
