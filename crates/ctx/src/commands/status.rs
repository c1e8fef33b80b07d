//! `ctx status`: whether the daemon is up, and how it is.

use std::io::Write;

use ctx_api::http::Status;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, words};

/// Say whether the daemon is up, and how it is
///
/// Leaves with 69 when no daemon answers at this root, and says how to start one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx status
  ctx status --json | jq .limits
  ctx status > /dev/null 2>&1 || ctx serve")]
pub struct Args {
    /// Print JSON, with every limit
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
    out.flush()?;
    Ok(())
}
