//! `ctx delegate-guard`: not for people. The daemon starts itself by this name to look after a command that it delegates to.

use std::ffi::OsString;

use crate::failure::Failure;

/// How the daemon calls it.
pub const NAME: &str = "delegate-guard";

/// Run a command whose processes end with it, and with the daemon
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    std::process::exit(i32::from(ctx_agent::guard(&args.command)))
}
