//! `ctx status`: shows whether the daemon is running, and its counts.

use std::io::Write;

use ctx_api::http::Status;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, words};

/// Show whether the daemon is running, and its state
///
/// Prints version, uptime and counts of sessions and runs. If no daemon listens at this root, it prints how to
/// start one and exits with 69.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx status
  ctx status --json | jq .limits
  ctx status > /dev/null 2>&1 || ctx serve

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// Print JSON, with all limits
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let status: Status = Api::new(root).get("/status")?;
    if args.json {
        return output::json(&status);
    }
    let mut out = output::stdout();
    writeln!(out, "version   {}", status.version)?;
    writeln!(out, "root      {}", status.root)?;
    if let Some(address) = &status.address {
        writeln!(out, "address   http://{address}")?;
    }
    writeln!(out, "pid       {}", status.pid)?;
    writeln!(out, "uptime    {}", words::duration(status.uptime_ms))?;
    writeln!(out, "sessions  {} ({} in memory)", status.sessions, status.loaded)?;
    writeln!(out, "running   {} of {} in a project", status.running, status.limits.running_per_project)?;
    if status.cage.is_some() {
        writeln!(out, "cages     off: commands of agents have all rights of the session's owner")?;
    }
    out.flush()?;
    Ok(())
}
