//! `ctx queue`: messages that wait because the limit of concurrent runs is reached.

use std::io::Write;

use clap::Subcommand;
use ctx_api::http::{Posted, Session};
use ctx_session::{Code, SessionId, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{sessions, table, waits, words};

/// List, start or discard queued messages
///
/// A message is queued when the limit of concurrent runs is reached. While `ctx send` or `ctx chat` waits for its answer, it
/// starts when a run has ended. Otherwise `resume` starts it then; `discard` drops it. Without a subcommand, `list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx queue                       queued messages, and why they wait
  ctx queue resume coder/build    start the queued message
  ctx queue resume                start the only queued message
  ctx queue discard coder/build   drop it; `ctx history --all` still shows it

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Print one JSON object per queued message
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List queued messages
    #[command(alias = "ls")]
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Start a queued message, if the limit allows it now
    Resume {
        /// The session: agent/name, an id or the beginning or end of an id [default: the only queued one]
        #[arg(value_name = "SESSION")]
        session: Option<String>,
        /// Print the run as JSON
        #[arg(long)]
        json: bool,
    },
    /// Discard a queued message
    Discard {
        /// The session: agent/name, an id or the beginning or end of an id [default: the only queued one]
        #[arg(value_name = "SESSION")]
        session: Option<String>,
        /// Print the session as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what.unwrap_or(What::List { json: args.json }) {
        What::List { json } => list(&api, json),
        What::Resume { session, json } => {
            let id = chosen(root, &api, session)?;
            let posted: Posted = api.post(&format!("/sessions/{id}/resume"))?;
            if json {
                return output::json(&posted);
            }
            output::say(format_args!(
                "run {} is {}; `ctx log -f {id}` follows it",
                posted.run_id, posted.state
            ));
            Ok(())
        }
        What::Discard { session, json } => {
            let id = chosen(root, &api, session)?;
            api.delete(&format!("/sessions/{id}/queued-message"))?;
            if json {
                return output::json(&api.get::<Session>(&format!("/sessions/{id}"))?);
            }
            output::say("discarded");
            Ok(())
        }
    }
}

fn name_of(session: &Session) -> String {
    let agent = session.agent.as_ref().map_or("model".to_owned(), ToString::to_string);
    format!("{agent}/{}", session.name)
}

fn list(api: &Api<'_>, json: bool) -> Result<(), Failure> {
    let mut waiting = sessions::in_state(api, "queued")?;
    // As a waiting `ctx send` counts: the one that has waited longest is the first.
    waiting.sort_by_key(|session| session.updated_at);
    let mut out = output::stdout();
    if json {
        for session in &waiting {
            let line =
                serde_json::to_string(session).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        return Ok(());
    }
    if waiting.is_empty() {
        output::say("no queued messages");
    }
    let now = words::now();
    let rows = waiting.iter().map(|session| {
        let why = session.limit.map_or("concurrency limit".to_owned(), waits::was_busy);
        vec![
            table::Cell::new(name_of(session)),
            table::Cell::new(words::age(now, Timestamp::from_millis(session.updated_at))),
            table::Cell::new(session.id.to_string()),
            table::Cell::new(why),
        ]
    });
    let head = ["SESSION", "WAITS", "ID", "WHY"];
    let text = table::render(&head, rows.collect(), output::width(), Paint::for_stdout());
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The session that was named, or the only one that waits.
fn chosen(root: &Root, api: &Api<'_>, session: Option<String>) -> Result<SessionId, Failure> {
    if let Some(word) = session {
        return sessions::find_id(root, &word);
    }
    let waiting = sessions::in_state(api, "queued")?;
    match waiting.as_slice() {
        [] => Err(Failure::new(Code::Enoent, "no queued messages")),
        [one] => Ok(one.id),
        many => {
            let names: Vec<String> = many.iter().take(5).map(name_of).collect();
            Err(Failure::new(
                Code::Einval,
                format!("{} sessions have a queued message; choose one", many.len()),
            )
            .hint(format!("for example {}", names.join(", "))))
        }
    }
}
