//! `ctx serve`: settles what holds and hands it to the daemon.

use std::path::PathBuf;

use crate::config::{self, LogFormat};
use crate::failure::Failure;
use crate::root::Root;
use crate::serve::{Listen, Settings};

/// Run the daemon
///
/// Keeps the sessions of one root, runs their agents and answers on the root's sockets and over HTTP, in the foreground
/// until it is told to stop (SIGTERM or Ctrl-C). A root has one daemon; a second one says so and leaves with 69.
/// What it logs goes to stderr.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx serve                                    the default root, this directory as workspace
  ctx serve --root ~/.ctx --workspace ~/src/app
  ctx serve --log-format json --log-level debug 2> ctx.log
  CTX_LIMITS_RUNNING_PER_PROJECT=16 ctx serve  any key of the config file")]
pub struct Args {
    /// The directory the agents of project `default` work in [default: this directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Where the HTTP API listens; port 0: any free one [default: 127.0.0.1:7300, or a free port]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Listen on an address that others can reach, without TLS
    #[arg(long)]
    allow_remote: bool,
    /// A name that clients may call the daemon by, as of a proxy in front of it (can be repeated)
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,
    #[command(flatten)]
    file: config::FileArg,
    /// How log lines are written
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// What is logged: a level, or a filter such as `info,ctx_engine=debug`
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
        None => std::env::current_dir().map_err(|error| Failure::io("the current directory", error))?,
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
