//! `ctx mcp`: the MCP server on stdio, and how to tell a host of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ctx_doors::mcp::hosts::Host;
use ctx_doors::mcp::{McpError, ServerName, serve_stdio};
use ctx_host::shell::HostConfig;
use ctx_host::shell::text::fence::Policy;
use ctx_session::Code;

use crate::failure::Failure;
use crate::output;
use crate::root::Root;
use crate::shell_logs::{JournalShellLog, Shelf};

/// Serve shells to an MCP host
///
/// An MCP server on stdin and stdout: shells that keep their state, with results apart, bounded and redacted. It
/// needs no daemon and no configuration. The options are the operator's; no tool argument changes them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx mcp config claude-code      what to run or paste, for this host
  ctx mcp --policy ~/.config/ctx/policy --max-shells 8
  ctx shells                      what the shells did")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
    /// Shells at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_shells: u32,
    /// Close a shell that had no command for so many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    idle: u32,
    /// A file with `allow` and `deny` lines: which programs may run
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The program to run as a shell [default: bash, else sh]
    #[arg(long, value_name = "PROGRAM")]
    shell: Option<PathBuf>,
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

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    match &args.command {
        Some(Sub::Config { host }) => config(host),
        None => serve(args, root),
    }
}

fn config(host: &str) -> Result<(), Failure> {
    use std::io::Write;
    let host = Host::parse(host).map_err(|error| Failure::new(Code::Einval, error.to_string()))?;
    let program = std::env::current_exe().map_err(|error| Failure::io("this program's path", error))?;
    let setup = host.setup(&program.to_string_lossy());
    let mut out = output::stdout();
    if let Some(command) = &setup.command {
        writeln!(out, "run:\n\n{command}\n\nor put this into {}:\n", setup.file)?;
    } else {
        writeln!(out, "put this into {}:\n", setup.file)?;
    }
    writeln!(out, "{}", setup.text.trim_end())?;
    out.flush()?;
    Ok(())
}

fn serve(args: Args, root: &Root) -> Result<(), Failure> {
    let shelf = Shelf::for_writing(root)?;
    let version = env!("CARGO_PKG_VERSION");
    let mut config = HostConfig::from_process(shelf.spool_dir(), &format!("ctx {version}"));
    config.limits.shells_max = usize::try_from(args.max_shells).unwrap_or(usize::MAX);
    config.limits.idle_max = Duration::from_secs(u64::from(args.idle) * 60);
    config.program = args.shell;
    if let Some(path) = &args.policy {
        config.policy = policy(path)?;
    }
    let name = ServerName { name: "ctx".to_owned(), version: version.to_owned() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve_stdio(config, name, Arc::new(JournalShellLog::new(shelf))));
    served.map_err(|error| {
        let code = match &error {
            McpError::Shell(error) => error.code(),
            McpError::Initialize { .. } => Code::Ebadmsg,
            McpError::Signal(_) => Code::Eio,
        };
        Failure::new(code, error.to_string())
    })
}

/// A policy that cannot be read stops the server: without it, commands would run that must not.
fn policy(path: &PathBuf) -> Result<Policy, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path.display(), error))?;
    Policy::parse(&text).map_err(|error| Failure::new(Code::Ebadmsg, format!("{}: {error}", path.display())))
}
