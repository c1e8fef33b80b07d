//! `ctx term ls`.

use std::io::Write;

use ctx_api::http::{List, Terminal};
use ctx_doors::http::shown_terminal;
use ctx_session::Timestamp;
use ctx_terminal::{State, Terminals};
use ctx_views::read::Reader;

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::sessions;
use crate::table::{self, Cell};
use crate::words;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also those that have ended
    #[arg(long)]
    all: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(root: &Root, api: &Api<'_>, args: &Args) -> Result<(), Failure> {
    let listed: List<Terminal> = api.get(&format!("/terminals?all={}", args.all))?;
    if args.json {
        return listed.items.iter().try_for_each(output::json);
    }
    Ok(write!(output::stdout(), "{}", table_of(root, &listed.items))?)
}

/// What runs in terminals, for the list of sessions; empty where there is nothing. Holders are asked and not the daemon,
/// which that list does not need either.
pub fn beside_sessions(root: &Root) -> String {
    let terminals = Terminals::new(&root.path, &ctx_session::Limits::default());
    let found = terminals.list(rustix::process::geteuid().as_raw()).unwrap_or_default();
    let live: Vec<Terminal> =
        found.iter().filter(|one| one.state != State::Closed).map(shown_terminal).collect();
    if live.is_empty() { String::new() } else { table_of(root, &live) }
}

fn table_of(root: &Root, terminals: &[Terminal]) -> String {
    let (paint, reader) = (Paint::for_stdout(), root.reader().ok());
    let rows = terminals.iter().map(|terminal| row(terminal, reader.as_ref(), paint)).collect();
    let heads = ["TERMINAL", "NAME", "STATE", "AGE", "SESSION", "COMMAND"];
    table::render(&heads, rows, output::width(), paint)
}

/// The session of a terminal as people name it; its id where that cannot be read.
fn session_of(terminal: &Terminal, reader: Option<&Reader>) -> String {
    let Some(id) = &terminal.session else { return "-".to_owned() };
    let found = reader.and_then(|reader| reader.resolve(sessions::own_uid(), id).ok());
    found.map_or_else(
        || id.clone(),
        |found| format!("{}/{}", found.sessions.object, sessions::plain_name(&found.dir_name)),
    )
}

fn row(terminal: &Terminal, reader: Option<&Reader>, paint: Paint) -> Vec<Cell> {
    let state = state(terminal);
    let painted = match terminal.waiting {
        Some(_) => paint.yellow(&state),
        None if terminal.state == "closed" => paint.dim(&state),
        None => paint.green(&state),
    };
    vec![
        Cell::new(terminal.id.to_string()),
        Cell::new(terminal.name.clone().unwrap_or_else(|| "-".to_owned())),
        Cell::painted(state, painted),
        Cell::new(words::age(words::now(), Timestamp::from_millis(terminal.created_at))),
        Cell::new(session_of(terminal, reader)),
        Cell::new(output::one_line(&terminal.command.join(" "))),
    ]
}

/// What a person wants to know first: does it work, does it wait, how did it end.
fn state(terminal: &Terminal) -> String {
    let attached = if terminal.attached > 0 { ", attached" } else { "" };
    let gaps = if terminal.transcript_error.is_some() { ", output not kept" } else { "" };
    let state = match (terminal.state.as_str(), terminal.waiting.as_deref()) {
        ("closed", _) => match (terminal.exit_code, terminal.reason.as_deref()) {
            (_, Some("holder_lost")) => "lost".to_owned(),
            (Some(code), Some("exited")) => format!("exited {code}"),
            _ => "closed".to_owned(),
        },
        (_, Some("bell")) => format!("rings{attached}"),
        (_, Some(_)) => format!("waits{attached}"),
        (_, None) => format!("busy{attached}"),
    };
    state + gaps
}
