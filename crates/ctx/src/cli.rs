//! The command line: arguments and dispatch. Each command's arguments and work are in its own file.

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::root::Root;
use crate::{commands, help};

/// Durable sessions for coding agents
///
/// A daemon runs the agents and keeps their conversations; these commands talk to it. Sessions are also plain files
/// under the root, so `history`, `latest`, `ls`, `log`, `show`, `search` and `export` work while the daemon is down.
#[derive(Debug, Parser)]
#[command(name = "ctx", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "\
First steps:
  ctx serve                       in one terminal
  ctx chat                        in another
  ctx COMMAND --help              options, examples and exit codes of a command

Name a session as agent/name (coder/default), by its id, or by a unique beginning of the id.
An agent's name alone means its current session: the one you last sent a message to.

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Cli {
    /// Directory that holds the sessions [default: /ctx if usable, else $XDG_DATA_HOME/ctx]
    #[arg(
        long,
        value_name = "DIR",
        env = "CTX_ROOT",
        global = true,
        hide_env_values = true,
        display_order = 900
    )]
    root: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(commands::serve::Args),
    Send(commands::send::Args),
    Chat(commands::chat::Args),
    Attach(commands::attach::Args),
    History(commands::history::Args),
    Latest(commands::latest::Args),
    Ls(commands::ls::Args),
    Log(commands::log::Args),
    Search(commands::search::Args),
    Stats(commands::stats::Args),
    Audit(commands::audit::Args),
    Cancel(commands::cancel::Args),
    Queue(commands::queue::Args),
    Pause(commands::pause::Args),
    Resume(commands::resume::Args),
    Checkpoints(commands::checkpoints::Args),
    Rollback(commands::rollback::Args),
    Prompt(commands::prompt::Args),
    Compact(commands::compact::Args),
    Pin(commands::pin::Args),
    Approve(commands::approve::Args),
    Issue(commands::issue::Args),
    Todo(commands::todo::Args),
    Bind(commands::bind::Args),
    End(commands::end::Args),
    Rename(commands::rename::Args),
    Show(commands::show::Args),
    Export(commands::export::Args),
    Fork(commands::fork::Args),
    Archive(commands::archive::Args),
    Purge(commands::purge::Args),
    Restart(commands::restart::Args),
    Project(commands::project::Args),
    Mcp(commands::mcp::Args),
    Shells(commands::shells::Args),
    Watch(commands::watch::Args),
    Status(commands::status::Args),
    Token(commands::token::Args),
    Open(commands::open::Args),
    Doctor(commands::doctor::Args),
    Repair(commands::repair::Args),
    Reindex(commands::reindex::Args),
    Config(commands::config::Args),
    Completions(commands::completions::Args),
    DelegateGuard(commands::guard::Args),
}

/// Parses the arguments and runs the command. Bad arguments and `--help` print and exit here.
pub fn run() -> Result<(), Failure> {
    let matches = help::grouped(Cli::command()).get_matches();
    let Cli { root, command } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match command {
        Command::Serve(args) => commands::serve::run(args, Root::of_daemon(root)?),
        Command::Send(args) => commands::send::run(args, &Root::of_client(root)?),
        Command::Chat(args) => commands::chat::run(args, &Root::of_client(root)?),
        Command::Attach(args) => commands::attach::run(args, &Root::of_client(root)?),
        Command::History(args) => commands::history::run(args, &Root::of_client(root)?),
        Command::Latest(args) => commands::latest::run(args, &Root::of_client(root)?),
        Command::Ls(args) => commands::ls::run(args, &Root::of_client(root)?),
        Command::Log(args) => commands::log::run(args, &Root::of_client(root)?),
        Command::Search(args) => commands::search::run(args, &Root::of_client(root)?),
        Command::Stats(args) => commands::stats::run(args, &Root::of_client(root)?),
        Command::Audit(args) => commands::audit::run(args, &Root::of_client(root)?),
        Command::Cancel(args) => commands::cancel::run(args, &Root::of_client(root)?),
        Command::Queue(args) => commands::queue::run(args, &Root::of_client(root)?),
        Command::Pause(args) => commands::pause::run(args, &Root::of_client(root)?),
        Command::Resume(args) => commands::resume::run(args, &Root::of_client(root)?),
        Command::Checkpoints(args) => commands::checkpoints::run(args, &Root::of_client(root)?),
        Command::Rollback(args) => commands::rollback::run(args, &Root::of_client(root)?),
        Command::Prompt(args) => commands::prompt::run(args, &Root::of_client(root)?),
        Command::Compact(args) => commands::compact::run(args, &Root::of_client(root)?),
        Command::Pin(args) => commands::pin::run(args, &Root::of_client(root)?),
        Command::Approve(args) => commands::approve::run(args, &Root::of_client(root)?),
        Command::Issue(args) => commands::issue::run(args, &Root::of_client(root)?),
        Command::Todo(args) => commands::todo::run(args, &Root::of_client(root)?),
        Command::Bind(args) => commands::bind::run(args, &Root::of_client(root)?),
        Command::End(args) => commands::end::run(args, &Root::of_client(root)?),
        Command::Rename(args) => commands::rename::run(args, &Root::of_client(root)?),
        Command::Show(args) => commands::show::run(args, &Root::of_client(root)?),
        Command::Export(args) => commands::export::run(args, &Root::of_client(root)?),
        Command::Fork(args) => commands::fork::run(args, &Root::of_client(root)?),
        Command::Archive(args) => commands::archive::run(args, &Root::of_client(root)?),
        Command::Purge(args) => commands::purge::run(args, &Root::of_client(root)?),
        Command::Restart(args) => commands::restart::run(args, &Root::of_client(root)?),
        Command::Project(args) => commands::project::run(args, || Root::of_client(root)),
        Command::Mcp(args) => commands::mcp::run(args, root),
        Command::Shells(args) => commands::shells::run(args, &Root::of_client(root)?),
        Command::Watch(args) => commands::watch::run(args, &Root::of_client(root)?),
        Command::Status(args) => commands::status::run(args, &Root::of_client(root)?),
        Command::Token(args) => commands::token::run(args, &Root::of_client(root)?),
        Command::Open(args) => commands::open::run(args, &Root::of_client(root)?),
        Command::Doctor(args) => commands::doctor::run(args, &Root::of_client(root)?),
        Command::Repair(args) => commands::repair::run(args, &Root::of_client(root)?),
        Command::Reindex(args) => commands::reindex::run(args, &Root::of_client(root)?),
        Command::Config(args) => commands::config::run(args),
        Command::Completions(args) => commands::completions::run(args),
        Command::DelegateGuard(args) => commands::guard::run(&args),
    }
}
