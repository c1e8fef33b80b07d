//! `ctx attach`: the chat on a session that exists, as its one operator or looking on.

use std::io::IsTerminal;

use ctx_session::Code;

use crate::chat::{self, Options};
use crate::client::As;
use crate::failure::Failure;
use crate::root::Root;
use crate::sessions;

/// Attach to a session and follow it live
///
/// The same as `ctx chat` on a session that exists. One terminal or browser can be attached at a time: a second one is
/// refused, unless it takes over. `ctx chat` joins in beside it. Any number can observe; an observer leaves with Ctrl-C.
///
/// If the daemon restarts, `attach` waits up to a minute for it, then shows what you missed and sends what you
/// typed in the meantime.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx attach                      coder's current session
  ctx attach coder/fix-tests
  ctx attach coder/fix-tests --takeover
  ctx attach 01K9ZZ3F --observe | tee seen.txt

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, a name, an agent (its current session), or part of an id
    #[arg(value_name = "SESSION", default_value = sessions::HERE, hide_default_value = true)]
    session: String,
    /// Watch only; whoever is attached stays attached
    #[arg(long, conflicts_with = "takeover")]
    observe: bool,
    /// Detach whoever is attached and take over
    #[arg(long)]
    takeover: bool,
    /// Number of past messages to show first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    tail: u16,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let opened = chat::Opened::existing(root, &args.session)?;
    if !args.observe && !std::io::stdin().is_terminal() {
        return Err(Failure::new(Code::Einval, "attach needs a terminal").hint(
            "use --observe to watch, `ctx chat` or `ctx send` to send messages, or `ctx log -f` to follow the log",
        ));
    }
    let who = if args.observe { As::Observer } else { As::Operator { takeover: args.takeover } };
    chat::run(
        root,
        opened,
        Options {
            who,
            joins: false,
            tail: usize::from(args.tail),
            model: None,
            consent: Default::default(),
            parts: Vec::new(),
        },
    )
}
