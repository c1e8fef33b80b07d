//! The command line: arguments and dispatch. Each command's arguments and work are in its own file.

use std::path::PathBuf;

use clap::error::ErrorKind;
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

The directory decides: each has its own agent and sessions. Name a session by its name in this directory, as agent/name, by its id, or by six or more characters of the id's beginning or end. An agent's name alone means its current session.

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

/// The arguments of a command are described when it is called: to describe those of all takes a millisecond.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    Serve(commands::start::serve::Args),
    Stop(commands::start::stop::Args),
    Run(commands::start::run::Args),
    Send(commands::start::send::Args),
    Chat(commands::start::chat::Args),
    Attach(commands::start::attach::Args),
    History(commands::reading::history::Args),
    Latest(commands::reading::latest::Args),
    Ls(commands::reading::ls::Args),
    Log(commands::reading::log::Args),
    Search(commands::reading::search::Args),
    Stats(commands::reading::stats::Args),
    Audit(commands::files::audit::Args),
    Wait(commands::control::wait::Args),
    Cancel(commands::control::cancel::Args),
    Retry(commands::control::retry::Args),
    Queue(commands::control::queue::Args),
    Pause(commands::control::pause::Args),
    Resume(commands::control::resume::Args),
    Checkpoints(commands::revise::checkpoints::Args),
    Rollback(commands::revise::rollback::Args),
    Diff(commands::revise::diff::Args),
    Undo(commands::revise::undo::Args),
    Prompt(commands::revise::prompt::Args),
    Compact(commands::revise::compact::Args),
    Pin(commands::revise::pin::Args),
    Approve(commands::control::approve::Args),
    Issue(commands::issues::issue::Args),
    Todo(commands::issues::todo::Args),
    Bind(commands::issues::bind::Args),
    End(commands::sessions::end::Args),
    Rename(commands::sessions::rename::Args),
    Show(commands::reading::show::Args),
    Export(commands::reading::export::Args),
    Fork(commands::sessions::fork::Args),
    Import(commands::sessions::import::Args),
    Handoff(commands::sessions::handoff::Args),
    Archive(commands::sessions::archive::Args),
    Purge(commands::sessions::purge::Args),
    Restart(commands::sessions::restart::Args),
    Project(commands::setup::project::Args),
    Space(commands::setup::space::Args),
    Agent(commands::tree::agent::Args),
    Tool(commands::tree::tool::Args),
    Which(commands::tree::which::Args),
    Cat(commands::tree::cat::Args),
    Set(commands::tree::set::Args),
    ValidateName(commands::tree::validate_name::Args),
    Term(commands::shell::term::Args),
    Mcp(commands::shell::mcp::Args),
    McpServer(commands::setup::mcp_server::Args),
    Shells(commands::shell::shells::Args),
    Watch(commands::shell::watch::Args),
    Cage(commands::shell::cage::Args),
    Status(commands::start::status::Args),
    Token(commands::setup::token::Args),
    Open(commands::start::open::Args),
    Doctor(commands::files::doctor::Args),
    Repair(commands::files::repair::Args),
    Snapshots(commands::files::snapshots::Args),
    Prune(commands::files::prune::Args),
    Reindex(commands::files::reindex::Args),
    Model(commands::setup::model::Args),
    Config(commands::setup::config::Args),
    Completions(commands::setup::completions::Args),
    #[command(name = "__complete", hide = true)]
    Complete(commands::hidden::complete::Args),
    DelegateGuard(commands::hidden::guard::Args),
    Hold(commands::hidden::hold::Args),
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

/// Bad arguments and `--help` print and exit here.
fn parsed() -> Cli {
    let matches = Cli::command().try_get_matches().or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            help::grouped(Cli::command()).try_get_matches()
        }
        _ => Err(help::with_suggestion(Cli::command(), error)),
    });
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| error.exit())
}

/// Parses the arguments and runs the command.
pub fn run() -> Result<(), Failure> {
    let Cli { root, command } = parsed();
    match command {
        Command::Serve(args) => commands::start::serve::run(args, Root::of_daemon(root)?),
        Command::Stop(args) => commands::start::stop::run(args, &Root::of_client(root)?),
        Command::Run(args) => commands::start::run::run(args, &with_daemon(root)?),
        Command::Send(args) => commands::start::send::run(args, &with_keys(root)?),
        Command::Chat(args) => commands::start::chat::run(args, &with_keys(root)?),
        Command::Attach(args) => commands::start::attach::run(args, &with_daemon(root)?),
        Command::History(args) => commands::reading::history::run(args, &Root::of_client(root)?),
        Command::Latest(args) => commands::reading::latest::run(args, &Root::of_client(root)?),
        Command::Ls(args) => commands::reading::ls::run(args, &Root::of_client(root)?),
        Command::Log(args) => commands::reading::log::run(args, &Root::of_client(root)?),
        Command::Search(args) => commands::reading::search::run(args, &Root::of_client(root)?),
        Command::Stats(args) => commands::reading::stats::run(args, &Root::of_client(root)?),
        Command::Audit(args) => commands::files::audit::run(args, &Root::of_client(root)?),
        Command::Wait(args) => commands::control::wait::run(args, &with_daemon(root)?),
        Command::Cancel(args) => commands::control::cancel::run(args, &with_daemon(root)?),
        Command::Retry(args) => commands::control::retry::run(args, &with_daemon(root)?),
        Command::Queue(args) => commands::control::queue::run(args, &with_daemon(root)?),
        Command::Pause(args) => commands::control::pause::run(args, &with_daemon(root)?),
        Command::Resume(args) => commands::control::resume::run(args, &with_daemon(root)?),
        Command::Checkpoints(args) => commands::revise::checkpoints::run(args, &with_daemon(root)?),
        Command::Rollback(args) => commands::revise::rollback::run(args, &with_daemon(root)?),
        Command::Diff(args) => commands::revise::diff::run(args, &with_daemon(root)?),
        Command::Undo(args) => commands::revise::undo::run(args, &with_daemon(root)?),
        Command::Snapshots(args) => commands::files::snapshots::run(args, &Root::of_client(root)?),
        Command::Prune(args) => commands::files::prune::run(args, &Root::of_client(root)?),
        Command::Prompt(args) => commands::revise::prompt::run(args, &with_daemon(root)?),
        Command::Compact(args) => commands::revise::compact::run(args, &with_daemon(root)?),
        Command::Pin(args) => commands::revise::pin::run(args, &with_daemon(root)?),
        Command::Approve(args) => commands::control::approve::run(args, &with_daemon(root)?),
        Command::Issue(args) => commands::issues::issue::run(args, &with_daemon(root)?),
        Command::Todo(args) => commands::issues::todo::run(args, &with_daemon(root)?),
        Command::Bind(args) => commands::issues::bind::run(args, &with_daemon(root)?),
        Command::End(args) => commands::sessions::end::run(args, &with_daemon(root)?),
        Command::Rename(args) => commands::sessions::rename::run(args, &with_daemon(root)?),
        Command::Show(args) => commands::reading::show::run(args, &Root::of_client(root)?),
        Command::Export(args) => commands::reading::export::run(args, &Root::of_client(root)?),
        Command::Fork(args) => commands::sessions::fork::run(args, &with_daemon(root)?),
        Command::Import(args) => commands::sessions::import::run(args, || with_daemon(root)),
        Command::Handoff(args) => commands::sessions::handoff::run(args, &Root::of_client(root)?),
        Command::Archive(args) => commands::sessions::archive::run(args, &with_daemon(root)?),
        Command::Purge(args) => commands::sessions::purge::run(args, &with_daemon(root)?),
        Command::Restart(args) => commands::sessions::restart::run(args, &with_daemon(root)?),
        Command::Project(args) => commands::setup::project::run(args, || Root::of_client(root)),
        Command::Space(args) => commands::setup::space::run(args, &with_daemon(root)?),
        Command::Agent(args) => commands::tree::agent::run(args, &Root::of_client(root)?),
        Command::Tool(args) => commands::tree::tool::run(args, &Root::of_client(root)?),
        Command::Which(args) => commands::tree::which::run(&args, &Root::of_client(root)?),
        Command::Cat(args) => commands::tree::cat::run(&args, &Root::of_client(root)?),
        Command::Set(args) => commands::tree::set::run(args, &Root::of_client(root)?),
        Command::ValidateName(args) => commands::tree::validate_name::run(&args),
        Command::Term(args) => commands::shell::term::run(args, &with_daemon(root)?),
        Command::Mcp(args) => commands::shell::mcp::run(args, root),
        Command::McpServer(args) => commands::setup::mcp_server::run(args, Root::of_client(root)?),
        Command::Shells(args) => commands::shell::shells::run(args, &Root::of_client(root)?),
        Command::Watch(args) => commands::shell::watch::run(args, &Root::of_client(root)?),
        Command::Cage(args) => commands::shell::cage::run(args, &Root::of_client(root)?),
        Command::Status(args) => commands::start::status::run(args, &Root::of_client(root)?),
        Command::Token(args) => commands::setup::token::run(args, &with_daemon(root)?),
        Command::Open(args) => commands::start::open::run(args, &with_daemon(root)?),
        Command::Doctor(args) => commands::files::doctor::run(args, &Root::of_client(root)?),
        Command::Repair(args) => commands::files::repair::run(args, &Root::of_client(root)?),
        Command::Reindex(args) => commands::files::reindex::run(args, &Root::of_client(root)?),
        Command::Model(args) => commands::setup::model::run(args, || with_daemon(root)),
        Command::Config(args) => commands::setup::config::run(args),
        Command::Completions(args) => commands::setup::completions::run(args),
        Command::Complete(args) => commands::hidden::complete::run(args, root),
        Command::DelegateGuard(args) => commands::hidden::guard::run(&args),
        Command::Hold(args) => commands::hidden::hold::run(&args),
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
