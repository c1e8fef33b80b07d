//! The command line: arguments and dispatch. Each command's arguments and work are in its own file.

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::root::Root;
use crate::{autostart, commands, help};

/// Durable sessions for coding agents
///
/// A daemon runs the agents and keeps their conversations; these commands talk to it. Sessions are also plain files
/// under the root, so `history`, `latest`, `ls`, `log`, `show`, `search` and `export` work while the daemon is down.
#[derive(Debug, Parser)]
#[command(name = "ctx", version, max_term_width = 100)]
#[command(after_help = "\
First steps:
  ctx chat                        talk with an agent; the daemon starts by itself
  ctx ls                          this directory's sessions, those that need you first
  ctx help COMMAND                options, examples and exit codes of a command

The directory decides: each has its own agent and sessions. Name a session by its name in this directory, as
agent/name, by its id, or by a unique beginning or end of the id. An agent's name alone means its current session.

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
    Stop(commands::stop::Args),
    Run(commands::run::Args),
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
    Wait(commands::wait::Args),
    Cancel(commands::cancel::Args),
    Retry(commands::retry::Args),
    Queue(commands::queue::Args),
    Pause(commands::pause::Args),
    Resume(commands::resume::Args),
    Checkpoints(commands::checkpoints::Args),
    Rollback(commands::rollback::Args),
    Diff(commands::diff::Args),
    Undo(commands::undo::Args),
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
    Import(commands::import::Args),
    Handoff(commands::handoff::Args),
    Archive(commands::archive::Args),
    Purge(commands::purge::Args),
    Restart(commands::restart::Args),
    Project(commands::project::Args),
    Space(commands::space::Args),
    Agent(commands::tree::agent::Args),
    Tool(commands::tree::tool::Args),
    Which(commands::tree::which::Args),
    Cat(commands::tree::cat::Args),
    Set(commands::tree::set::Args),
    ValidateName(commands::tree::validate_name::Args),
    Term(commands::term::Args),
    Mcp(commands::mcp::Args),
    McpServer(commands::mcp_server::Args),
    Shells(commands::shells::Args),
    Watch(commands::watch::Args),
    Cage(commands::cage::Args),
    Status(commands::status::Args),
    Token(commands::token::Args),
    Open(commands::open::Args),
    Doctor(commands::doctor::Args),
    Repair(commands::repair::Args),
    Snapshots(commands::snapshots::Args),
    Prune(commands::prune::Args),
    Reindex(commands::reindex::Args),
    Model(commands::model::Args),
    Config(commands::config::Args),
    Completions(commands::completions::Args),
    #[command(name = "__complete", hide = true)]
    Complete(commands::complete::Args),
    DelegateGuard(commands::guard::Args),
    Hold(commands::hold::Args),
}

/// The whole command line, as clap has it.
pub fn command() -> clap::Command {
    let mut cli = Cli::command();
    cli.build();
    cli
}

/// The root of a command that does nothing without a daemon.
fn with_daemon(root: Option<PathBuf>) -> Result<Root, Failure> {
    autostart::with_daemon(Root::of_client(root)?)
}

/// The same for a command that needs a model: the daemon is handed the keys that this shell has. A model without a key says so when it is
/// asked.
fn with_keys(root: Option<PathBuf>) -> Result<Root, Failure> {
    let root = with_daemon(root)?;
    let _ = crate::client::hand_over(&root);
    Ok(root)
}

/// Parses the arguments and runs the command. Bad arguments and `--help` print and exit here.
pub fn run() -> Result<(), Failure> {
    let matches = help::grouped(Cli::command()).get_matches();
    let Cli { root, command } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match command {
        Command::Serve(args) => commands::serve::run(args, Root::of_daemon(root)?),
        Command::Stop(args) => commands::stop::run(args, &Root::of_client(root)?),
        Command::Run(args) => commands::run::run(args, &with_daemon(root)?),
        Command::Send(args) => commands::send::run(args, &with_keys(root)?),
        Command::Chat(args) => commands::chat::run(args, &with_keys(root)?),
        Command::Attach(args) => commands::attach::run(args, &with_daemon(root)?),
        Command::History(args) => commands::history::run(args, &Root::of_client(root)?),
        Command::Latest(args) => commands::latest::run(args, &Root::of_client(root)?),
        Command::Ls(args) => commands::ls::run(args, &Root::of_client(root)?),
        Command::Log(args) => commands::log::run(args, &Root::of_client(root)?),
        Command::Search(args) => commands::search::run(args, &Root::of_client(root)?),
        Command::Stats(args) => commands::stats::run(args, &Root::of_client(root)?),
        Command::Audit(args) => commands::audit::run(args, &Root::of_client(root)?),
        Command::Wait(args) => commands::wait::run(args, &with_daemon(root)?),
        Command::Cancel(args) => commands::cancel::run(args, &with_daemon(root)?),
        Command::Retry(args) => commands::retry::run(args, &with_daemon(root)?),
        Command::Queue(args) => commands::queue::run(args, &with_daemon(root)?),
        Command::Pause(args) => commands::pause::run(args, &with_daemon(root)?),
        Command::Resume(args) => commands::resume::run(args, &with_daemon(root)?),
        Command::Checkpoints(args) => commands::checkpoints::run(args, &with_daemon(root)?),
        Command::Rollback(args) => commands::rollback::run(args, &with_daemon(root)?),
        Command::Diff(args) => commands::diff::run(args, &with_daemon(root)?),
        Command::Undo(args) => commands::undo::run(args, &with_daemon(root)?),
        Command::Snapshots(args) => commands::snapshots::run(args, &Root::of_client(root)?),
        Command::Prune(args) => commands::prune::run(args, &Root::of_client(root)?),
        Command::Prompt(args) => commands::prompt::run(args, &with_daemon(root)?),
        Command::Compact(args) => commands::compact::run(args, &with_daemon(root)?),
        Command::Pin(args) => commands::pin::run(args, &with_daemon(root)?),
        Command::Approve(args) => commands::approve::run(args, &with_daemon(root)?),
        Command::Issue(args) => commands::issue::run(args, &with_daemon(root)?),
        Command::Todo(args) => commands::todo::run(args, &with_daemon(root)?),
        Command::Bind(args) => commands::bind::run(args, &with_daemon(root)?),
        Command::End(args) => commands::end::run(args, &with_daemon(root)?),
        Command::Rename(args) => commands::rename::run(args, &with_daemon(root)?),
        Command::Show(args) => commands::show::run(args, &Root::of_client(root)?),
        Command::Export(args) => commands::export::run(args, &Root::of_client(root)?),
        Command::Fork(args) => commands::fork::run(args, &with_daemon(root)?),
        Command::Import(args) => commands::import::run(args, || with_daemon(root)),
        Command::Handoff(args) => commands::handoff::run(args, &Root::of_client(root)?),
        Command::Archive(args) => commands::archive::run(args, &with_daemon(root)?),
        Command::Purge(args) => commands::purge::run(args, &with_daemon(root)?),
        Command::Restart(args) => commands::restart::run(args, &with_daemon(root)?),
        Command::Project(args) => commands::project::run(args, || Root::of_client(root)),
        Command::Space(args) => commands::space::run(args, &Root::of_client(root)?),
        Command::Agent(args) => commands::tree::agent::run(args, &Root::of_client(root)?),
        Command::Tool(args) => commands::tree::tool::run(args, &Root::of_client(root)?),
        Command::Which(args) => commands::tree::which::run(&args, &Root::of_client(root)?),
        Command::Cat(args) => commands::tree::cat::run(&args, &Root::of_client(root)?),
        Command::Set(args) => commands::tree::set::run(args, &Root::of_client(root)?),
        Command::ValidateName(args) => commands::tree::validate_name::run(&args),
        Command::Term(args) => commands::term::run(args, &with_daemon(root)?),
        Command::Mcp(args) => commands::mcp::run(args, root),
        Command::McpServer(args) => commands::mcp_server::run(args, Root::of_client(root)?),
        Command::Shells(args) => commands::shells::run(args, &Root::of_client(root)?),
        Command::Watch(args) => commands::watch::run(args, &Root::of_client(root)?),
        Command::Cage(args) => commands::cage::run(args, &Root::of_client(root)?),
        Command::Status(args) => commands::status::run(args, &Root::of_client(root)?),
        Command::Token(args) => commands::token::run(args, &with_daemon(root)?),
        Command::Open(args) => commands::open::run(args, &with_daemon(root)?),
        Command::Doctor(args) => commands::doctor::run(args, &Root::of_client(root)?),
        Command::Repair(args) => commands::repair::run(args, &Root::of_client(root)?),
        Command::Reindex(args) => commands::reindex::run(args, &Root::of_client(root)?),
        Command::Model(args) => commands::model::run(args, || with_daemon(root)),
        Command::Config(args) => commands::config::run(args),
        Command::Completions(args) => commands::completions::run(args),
        Command::Complete(args) => commands::complete::run(args, root),
        Command::DelegateGuard(args) => commands::guard::run(&args),
        Command::Hold(args) => commands::hold::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::slash::{Act, TABLE, Takes, arguments};

    #[test]
    fn every_command_that_runs_ctx_is_one_that_clap_takes() {
        for row in TABLE {
            let Act::Run(template) = row.act else { continue };
            for rest in ["", "word"] {
                if rest.is_empty() && matches!(row.takes, Takes::Always(_)) {
                    continue;
                }
                let mut words = vec!["ctx".to_owned()];
                words.extend(arguments(template, "coder/default", rest));
                let parsed = Cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{} {rest}: {}", row.word, parsed.unwrap_err());
            }
        }
    }
}
