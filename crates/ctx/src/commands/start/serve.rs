//! `ctx serve`: reads the settings and starts the daemon.

mod install;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::config::{self, LogFormat};
use crate::failure::Failure;
use crate::root::Root;
use crate::serve::{Listen, Settings};

/// Start the daemon
///
/// Keeps the sessions of one root, runs their agents, and listens on the root's sockets and over HTTP. It stays
/// in the foreground until SIGTERM or Ctrl-C and logs to stderr; with --detach it runs in the background and logs to
/// .state/daemon.log. A root has one daemon: a second `ctx serve` on the same root exits with 69.
///
/// Commands that need a daemon start one themselves, unless the config file says `autostart = false`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx serve                                    the default root
  ctx serve --root ~/.ctx --workspace ~/src/app
  ctx serve --detach                           in the background; `ctx stop` ends it
  ctx serve --install                          by systemd, with every login
  ctx serve --log-format json --log-level debug 2> ctx.log
  CTX_LIMITS_RUNNING_PER_PROJECT=16 ctx serve  any key of the config file

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed,
            69 the root has a daemon already, 70 internal error")]
pub struct Args {
    /// Directory of the project `default`, which its agents see as /work [default: none]
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
    /// Run commands of agents without a cage, with all rights of the session's owner (cage.mode = off)
    #[arg(long)]
    no_cage: bool,
    /// Run in the background; the command ends when the daemon serves
    #[arg(long, conflicts_with = "install")]
    detach: bool,
    /// Write a systemd user unit that starts the daemon with your login and these options, and enable it
    #[arg(long)]
    install: bool,
    /// This process is the one in the background
    #[arg(long, hide = true)]
    detached: bool,
}

pub fn run(args: Args, root: Root) -> Result<(), Failure> {
    if args.detach {
        return detach(&root);
    }
    if args.install {
        return install::run(&root, &installed(&args)?);
    }
    let mut config = config::load(&args.file, &config::Environment::of_process())?.config;
    if args.no_cage {
        config.cage.mode = config::CageMode::Off;
    }
    if let Some(format) = args.log_format {
        config.log.format = format;
    }
    if let Some(level) = args.log_level {
        config.log.level = level;
    }
    let workspace = args.workspace.or_else(|| config.serve.workspace.clone());
    let whole = |dir: PathBuf| dir.canonicalize().map_err(|error| Failure::io(dir.display(), error));
    let workspace = workspace.map(whole).transpose()?;
    let listen = Listen {
        address: args.listen.or_else(|| config.serve.listen.clone()),
        allow_remote: args.allow_remote,
        host_names: args.host_name,
    };
    crate::serve::run(Settings {
        root: root.path,
        workspace,
        config,
        config_file: args.file,
        listen,
        detached: args.detached,
    })
}

/// The options that the daemon of the unit is started with: those of this command. Paths are whole, because systemd starts it
/// elsewhere.
fn installed(args: &Args) -> Result<Vec<OsString>, Failure> {
    let whole = |path: &PathBuf| path.canonicalize().map_err(|error| Failure::io(path.display(), error));
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| words.extend([OsString::from(name), value]);
    for (name, path) in [("--workspace", &args.workspace), ("--config", &args.file.file)] {
        if let Some(path) = path {
            add(name, whole(path)?.into_os_string());
        }
    }
    let format = args.log_format.and_then(|format| Some(format.to_possible_value()?.get_name().to_owned()));
    for (name, value) in
        [("--listen", &args.listen), ("--log-format", &format), ("--log-level", &args.log_level)]
    {
        if let Some(value) = value {
            add(name, value.into());
        }
    }
    for name in &args.host_name {
        add("--host-name", name.into());
    }
    let flags = [("--allow-remote", args.allow_remote), ("--no-cage", args.no_cage)];
    words.extend(flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.into()));
    Ok(words)
}

/// Starts this command again in the background, with the same arguments.
fn detach(root: &Root) -> Result<(), Failure> {
    let after = std::env::args_os().skip_while(|arg| arg != "serve").skip(1);
    let args: Vec<_> = after.filter(|arg| arg != "--detach").collect();
    let pid = crate::detach::start(&root.path, &args)?.up()?;
    let log = crate::detach::log_path(&root.path);
    crate::output::say(format_args!("the daemon is up (pid {pid}); it logs to {}", log.display()));
    Ok(())
}
