//! `ctx mcp`: runs the MCP server on stdio, and prints how to set up a host.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use ctx_agent::shells::CageGround;
use ctx_cage::{Means, sweep};
use ctx_doors::mcp::hosts::Host;
use ctx_doors::mcp::{McpError, serve_stdio};
use ctx_session::Code;

use crate::config::{self, Environment, FileArg, Shells};
use crate::failure::Failure;
use crate::output;
use crate::root::Root;
use crate::shell_host::{check_policy_path, host_config, server_name};
use crate::shell_logs::{JournalShellLog, Shelf};
use crate::snapshots;

/// Serve shells to an MCP host
///
/// Runs an MCP server on stdin and stdout. It gives the host shells that keep their state; each result has
/// stdout, stderr and the exit code in separate fields, with secrets redacted and long output cut. It needs no
/// daemon and no configuration. The options below, or [shells] in the config file, are set by the operator; no
/// tool argument can change them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx mcp config claude-code      how to add the server to this host
  ctx mcp --policy ~/.config/ctx/policy --max-shells 8
  ctx shells                      what the shells did

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed,
            70 internal error")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
    /// Maximum number of open shells [default: shells.max of the config file, 64]
    #[arg(long, value_name = "N", global = true)]
    max_shells: Option<NonZeroU32>,
    /// Close a shell that ran no command for this long [default: shells.idle_secs, 1800]
    #[arg(long, value_name = "SECONDS", global = true)]
    idle_secs: Option<NonZeroU32>,
    /// File with `allow` and `deny` lines for programs [default: shells.policy_file]
    #[arg(long, value_name = "FILE", global = true)]
    policy: Option<PathBuf>,
    /// Shell program [default: shells.program; bash, else sh]
    #[arg(long, value_name = "PROGRAM", global = true)]
    shell: Option<PathBuf>,
    /// Run every shell in a cage: this directory is /work, everything else is read-only or hidden, without network
    #[arg(long, global = true)]
    cage: bool,
    #[command(flatten)]
    file: FileArg,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// Print how to add this server to a host
    ///
    /// Prints the command to run or the text to paste, with the path of this program and the options given here.
    Config {
        /// The MCP host
        #[arg(value_name = "HOST", ignore_case = true)]
        host: HostWord,
    },
}

/// A host as people name it.
#[derive(Debug, Clone, Copy)]
struct HostWord(Host);

impl ValueEnum for HostWord {
    fn value_variants<'a>() -> &'a [HostWord] {
        &[
            HostWord(Host::ClaudeCode),
            HostWord(Host::Codex),
            HostWord(Host::Cursor),
            HostWord(Host::VsCode),
            HostWord(Host::Gemini),
            HostWord(Host::Opencode),
            HostWord(Host::Goose),
            HostWord(Host::Qwen),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).aliases(self.0.other_names()))
    }
}

/// `given`: the root, where one was asked for.
pub fn run(args: Args, given: Option<PathBuf>) -> Result<(), Failure> {
    match &args.command {
        Some(Sub::Config { host }) => config(host.0, &args, given),
        None => serve(args, &Root::of_client(given)?),
    }
}

fn config(host: Host, args: &Args, root: Option<PathBuf>) -> Result<(), Failure> {
    use std::io::Write;
    let program = own_path()?;
    let setup = host.setup(&program.to_string_lossy(), &server_args(args, root)?);
    let mut out = output::stdout();
    write!(out, "{setup}")?;
    out.flush()?;
    Ok(())
}

/// This program as it was called: a link to it stays right when another version is installed behind it.
fn own_path() -> Result<PathBuf, Failure> {
    let real = std::env::current_exe()
        .map_err(|error| Failure::io("cannot find the path of this program", error))?;
    let called = std::env::args_os().next().map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(called.and_then(|called| as_called(&called, &path, &real)).unwrap_or(real))
}

/// The place of a program that was called by this name, where that leads to the file that runs.
fn as_called(called: &Path, path: &OsStr, real: &Path) -> Option<PathBuf> {
    let is_it =
        |place: &PathBuf| place.canonicalize().is_ok_and(|there| Some(there) == real.canonicalize().ok());
    if called.components().count() > 1 {
        return std::path::absolute(called).ok().filter(is_it);
    }
    std::env::split_paths(path).map(|dir| dir.join(called)).filter(|place| place.is_absolute()).find(is_it)
}

/// What the server is to be started with: the options that were given here. A host starts it in another directory.
fn server_args(args: &Args, root: Option<PathBuf>) -> Result<Vec<String>, Failure> {
    let mut all = vec!["mcp".to_owned()];
    let mut put = |option: &str, value: String| all.extend([option.to_owned(), value]);
    let whole = |path: &PathBuf| {
        let path = std::path::absolute(path).map_err(|error| Failure::io(path.display(), error))?;
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            Failure::new(
                Code::Einval,
                format!("{}: the path is not UTF-8, which MCP hosts need", path.display()),
            )
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
    if args.cage {
        all.push("--cage".to_owned());
    }
    let mut put = |option: &str, value: String| all.extend([option.to_owned(), value]);
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
    let is_caged = args.cage;
    let whole = config::load(&args.file, &Environment::of_process())?.config;
    let cages = whole.cage;
    let settings = settings(args)?;
    let shelf = Shelf::for_writing(root)?;
    let mut config = host_config(shelf.spool_dir(), &settings)?;
    config.snapshots = Some(snapshots::of_shells(&shelf.state_dir(), root, &whole.snapshots, &settings));
    if is_caged {
        let cage = super::cage::cage_of("coder", &ctx_agent::project::Cage::default(), &cages, root)?;
        let ground = CageGround {
            path: std::env::var_os("PATH").unwrap_or_default(),
            means: Means::detect(),
            parent: super::cage::own_parent(),
            scratch_dir: std::env::temp_dir(),
        };
        sweep(&ground.means, super::cage::is_ended_run);
        config = ground.around(config, &cage).map_err(Failure::from)?;
        config.cwd = cage.cwd;
    }
    let say_at_a_terminal = || {
        if std::io::stdin().is_terminal() {
            output::say(
                "ctx mcp: waiting for an MCP host on stdin; `ctx mcp config HOST` prints how to set one up",
            );
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let log = Arc::new(JournalShellLog::new(Arc::new(shelf)));
    let served = runtime.block_on(serve_stdio(config, server_name(), log, say_at_a_terminal));
    // A thread may sit in a read from a terminal, which nothing but a key ends. All shells are ended already.
    runtime.shutdown_background();
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
        workspace_roots: set.workspace_roots,
        remote_workspace_roots: set.remote_workspace_roots,
        key_dir: set.key_dir,
        containers: set.containers,
        container_engine: set.container_engine,
        ssh: set.ssh,
    })
}

#[cfg(test)]
mod tests {
    use ctx_host::ShellLimits;

    use super::*;

    #[test]
    fn every_host_can_be_named() {
        assert!(HostWord::value_variants().iter().map(|word| word.0).eq(Host::ALL));
        for (name, host) in
            [("Claude", Host::ClaudeCode), ("VS Code", Host::VsCode), ("gemini-cli", Host::Gemini)]
        {
            assert_eq!(HostWord::from_str(name, true).unwrap().0, host, "{name}");
        }
    }

    #[test]
    fn a_program_keeps_the_name_it_was_called_by_where_that_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("v1")).unwrap();
        std::fs::create_dir_all(at("bin")).unwrap();
        std::fs::write(at("v1/ctx"), "").unwrap();
        std::fs::write(at("ctx"), "another").unwrap();
        std::os::unix::fs::symlink(at("v1/ctx"), at("bin/ctx")).unwrap();
        let path = std::env::join_paths([PathBuf::from("relative"), at(""), at("bin")]).unwrap();
        let called = |name: PathBuf| as_called(&name, &path, &at("v1/ctx"));
        assert_eq!(called("ctx".into()), Some(at("bin/ctx")), "found in PATH, behind another of that name");
        assert_eq!(called(at("bin/ctx")), Some(at("bin/ctx")));
        assert_eq!(called(at("ctx")), None, "another program");
        assert_eq!(called("nothing".into()), None);
    }

    #[test]
    fn the_config_and_the_host_have_the_same_defaults() {
        let (config, host) = (Shells::default(), ShellLimits::default());
        assert_eq!(usize::try_from(config.max.get()).unwrap(), host.shells_max);
        assert_eq!(u64::from(config.idle_secs.get()), host.idle_max.as_secs());
    }
}
