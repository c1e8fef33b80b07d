//! `ctx serve`: reads the settings and starts the daemon.

use std::path::PathBuf;

use crate::config::{self, LogFormat};
use crate::failure::Failure;
use crate::root::Root;
use crate::serve::{Listen, Settings};

/// Start the daemon
///
/// Keeps the sessions of one root, runs their agents, and listens on the root's sockets and over HTTP. It stays
/// in the foreground until SIGTERM or Ctrl-C and logs to stderr. A root has one daemon: a second `ctx serve` on
/// the same root exits with 69.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx serve                                    the default root, this directory as workspace
  ctx serve --root ~/.ctx --workspace ~/src/app
  ctx serve --log-format json --log-level debug 2> ctx.log
  CTX_LIMITS_RUNNING_PER_PROJECT=16 ctx serve  any key of the config file

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed,
            69 the root has a daemon already, 70 internal error")]
pub struct Args {
    /// Directory of the project `default`, which its agents see as /work [default: this directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Address of the HTTP API; port 0 means any free port [default: 127.0.0.1:7300, or a free port]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Allow an address that other machines can reach, without TLS
    #[arg(long)]
    allow_remote: bool,
    /// Host name that clients may use, such as that of a proxy (repeatable)
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,
    #[command(flatten)]
    file: config::FileArg,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Log level, or a filter such as `info,ctx_engine=debug`
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

pub fn run(args: Args, root: Root) -> Result<(), Failure> {
    let mut config = config::load(&args.file, &config::Environment::of_process())?.config;
    if let Some(format) = args.log_format {
        config.log.format = format;
    }
    if let Some(level) = args.log_level {
        config.log.level = level;
    }
    let workspace = match args.workspace.or_else(|| config.serve.workspace.clone()) {
        Some(dir) => dir,
        None => std::env::current_dir()
            .map_err(|error| Failure::io("cannot find the current directory", error))?,
    };
    let workspace =
        std::fs::canonicalize(&workspace).map_err(|error| Failure::io(workspace.display(), error))?;
    let listen = Listen {
        address: args.listen.or_else(|| config.serve.listen.clone()),
        allow_remote: args.allow_remote,
        host_names: args.host_name,
    };
    crate::serve::run(Settings { root: root.path, workspace, config, listen })
}
