//! `ctx stop`: asks the daemon of this root to end, and waits until it has.

use ctx_api::http::Status;
use ctx_session::Code;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::client::Api;
use crate::failure::Failure;
use crate::output;
use crate::root::Root;

/// Stop the daemon
///
/// Runs get 5 seconds to end; one that does not is recorded as failed, with the text that had arrived. Sessions, queued
/// messages and paused runs are kept. The next command that needs a daemon starts it again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx stop
  ctx stop && ctx serve --detach

exit codes: 0 success, 1 failed, 13 not allowed, 70 internal error")]
pub struct Args {
    /// Print the status that the daemon had as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let Some(peer) = root.daemon()? else {
        output::say(format_args!("no daemon is running at {}", root.path.display()));
        return Ok(());
    };
    let status = args.json.then(|| Api::new(root).get::<Status>("/status")).transpose()?;
    let failed = |error: Errno| match error {
        Errno::PERM => {
            Failure::new(Code::Eacces, format!("the daemon belongs to user {}", peer.uid.as_raw()))
        }
        error => Failure::io("cannot stop the daemon", error.into()),
    };
    let daemon = pidfd_open(peer.pid, PidfdFlags::empty()).map_err(failed)?;
    pidfd_send_signal(&daemon, Signal::TERM).map_err(failed)?;
    // A process's descriptor becomes readable when the process has ended.
    while let Err(error) = poll(&mut [PollFd::new(&daemon, PollFlags::IN)], None) {
        if error != Errno::INTR {
            return Err(failed(error));
        }
    }
    if let Some(status) = status {
        return output::json(&status);
    }
    output::say(format_args!("stopped the daemon (pid {})", peer.pid));
    Ok(())
}
