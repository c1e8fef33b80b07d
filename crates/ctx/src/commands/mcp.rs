//! `ctx mcp`: the MCP server on stdio, and how to tell a host of it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use ctx_doors::mcp::hosts::Host;
use ctx_doors::mcp::{McpError, serve_stdio};
use ctx_session::Code;

use crate::config::{self, Environment, FileArg, Shells};
use crate::failure::Failure;
use crate::output;
use crate::root::Root;
use crate::shell_host::{check_policy_path, host_config, server_name};
use crate::shell_logs::{JournalShellLog, Shelf};

/// Serve shells to an MCP host
///
/// An MCP server on stdin and stdout: shells that keep their state, with results apart, bounded and redacted. It
/// needs no daemon and no configuration. The options are the operator's, here or under [shells] in the config file;
/// no tool argument changes them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx mcp config claude-code      what to run or paste, for this host
  ctx mcp --policy ~/.config/ctx/policy --max-shells 8
  ctx shells                      what the shells did")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
    /// Shells at once [default: shells.max of the config file, 64]
    #[arg(long, value_name = "N")]
    max_shells: Option<NonZeroU32>,
    /// Close a shell that had no command for so long [default: shells.idle_secs, 1800]
    #[arg(long, value_name = "SECONDS")]
    idle_secs: Option<NonZeroU32>,
    /// A file with `allow` and `deny` lines: which programs may run [default: shells.policy_file]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The program to run as a shell [default: shells.program; bash, else sh]
    #[arg(long, value_name = "PROGRAM")]
    shell: Option<PathBuf>,
    #[command(flatten)]
    file: FileArg,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// Print how to add this server to a host
    Config {
        /// claude-code, codex, cursor, vscode, gemini or opencode
        #[arg(value_name = "HOST")]
        host: String,
    },
}

/// `given`: the root, where one was asked for.
pub fn run(args: Args, given: Option<PathBuf>) -> Result<(), Failure> {
    match &args.command {
        Some(Sub::Config { host }) => config(host, &args, given),
        None => serve(args, &Root::of_client(given)?),
    }
}

fn config(host: &str, args: &Args, root: Option<PathBuf>) -> Result<(), Failure> {
    use std::io::Write;
    let host = Host::parse(host).map_err(|error| Failure::new(Code::Einval, error.to_string()))?;
    let program = std::env::current_exe().map_err(|error| Failure::io("this program's path", error))?;
    let setup = host.setup(&program.to_string_lossy(), &server_args(args, root)?);
    let mut out = output::stdout();
    write!(out, "{setup}")?;
    out.flush()?;
    Ok(())
}

/// What the server is to be started with: the options that were given here. A host starts it in another directory.
fn server_args(args: &Args, root: Option<PathBuf>) -> Result<Vec<String>, Failure> {
    let mut all = vec!["mcp".to_owned()];
    let mut put = |option: &str, value: String| all.extend([option.to_owned(), value]);
    let whole = |path: &PathBuf| {
        let path = std::path::absolute(path).map_err(|error| Failure::io(path.display(), error))?;
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            Failure::new(Code::Einval, format!("{}: a host needs a path in UTF-8", path.display()))
        })
    };
    if root.is_some() {
        put("--root", whole(&Root::of_client(root)?.path)?);
    }
    if let Some(file) = &args.file.file {
        put("--config", whole(file)?);
    }
    if let Some(max) = args.max_shells {
        put("--max-shells", max.to_string());
    }
    if let Some(secs) = args.idle_secs {
        put("--idle-secs", secs.to_string());
    }
    if let Some(policy) = &args.policy {
        put("--policy", whole(policy)?);
    }
    match &args.shell {
        // A plain name is looked for in PATH.
        Some(shell) if shell.components().count() == 1 => {
            put("--shell", shell.to_string_lossy().into_owned())
        }
        Some(shell) => put("--shell", whole(shell)?),
        None => {}
    }
    Ok(all)
}

fn serve(args: Args, root: &Root) -> Result<(), Failure> {
    let settings = settings(args)?;
    let shelf = Shelf::for_writing(root)?;
    let config = host_config(shelf.spool_dir(), &settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served =
        runtime.block_on(serve_stdio(config, server_name(), Arc::new(JournalShellLog::new(Arc::new(shelf)))));
    served.map_err(|error| {
        let code = match &error {
            McpError::Shell(error) => error.code(),
            McpError::Initialize { .. } => Code::Ebadmsg,
            McpError::Signal(_) => Code::Eio,
        };
        Failure::new(code, error.to_string())
    })
}

/// What holds: the config file and the environment, and the options before them.
fn settings(args: Args) -> Result<Shells, Failure> {
    let set = config::load(&args.file, &Environment::of_process())?.config.shells;
    if args.policy.is_none() {
        check_policy_path(&set)?;
    }
    Ok(Shells {
        max: args.max_shells.unwrap_or(set.max),
        idle_secs: args.idle_secs.unwrap_or(set.idle_secs),
        policy_file: args.policy.or(set.policy_file),
        program: args.shell.or(set.program),
    })
}

#[cfg(test)]
mod tests {
    use ctx_host::shell::ShellLimits;

    use super::*;

    #[test]
    fn the_config_and_the_host_have_the_same_defaults() {
        let (config, host) = (Shells::default(), ShellLimits::default());
        assert_eq!(usize::try_from(config.max.get()).unwrap(), host.shells_max);
        assert_eq!(u64::from(config.idle_secs.get()), host.idle_max.as_secs());
    }
}
