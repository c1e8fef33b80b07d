//! `ctx queue`: messages that wait because as many runs as may were going already.

use std::io::Write;

use clap::Subcommand;
use ctx_api::http::{List, Posted, Session};
use ctx_session::{Code, SessionId, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{sessions, table, words};

/// Show, start or drop queued messages
///
/// A message that came while as many runs as may were going is kept and waits. Nothing starts by itself:
/// `resume` starts it when there is room, `discard` drops it. Without a subcommand, `list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx queue                       what waits, and why
  ctx queue resume coder/build    start it
  ctx queue resume                start the only one that waits
  ctx queue discard coder/build   drop it; it shows as discarded in the history")]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List what waits
    List {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Start a queued message, if there is room now
    Resume {
        /// agent/name, an id or the beginning of one [default: the only one that waits]
        #[arg(value_name = "SESSION")]
        session: Option<String>,
        /// Print the run as JSON
        #[arg(long)]
        json: bool,
    },
    /// Drop a queued message
    Discard {
        /// agent/name, an id or the beginning of one [default: the only one that waits]
        #[arg(value_name = "SESSION")]
        session: Option<String>,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what.unwrap_or(What::List { json: false }) {
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
        What::Discard { session } => {
            let id = chosen(root, &api, session)?;
            api.delete(&format!("/sessions/{id}/queued-message"))?;
            output::say("discarded");
            Ok(())
        }
    }
}

/// Every queued session, page by page.
fn queued(api: &Api<'_>) -> Result<Vec<Session>, Failure> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/projects/default/sessions?state=queued&limit=1000{cursor}");
        let page: List<Session> = api.get(&path)?;
        all.extend(page.items);
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(all),
        }
    }
}

fn name_of(session: &Session) -> String {
    let agent = session.agent.as_ref().map_or("model".to_owned(), ToString::to_string);
    format!("{agent}/{}", session.name)
}

fn list(api: &Api<'_>, json: bool) -> Result<(), Failure> {
    let waiting = queued(api)?;
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
        output::say("nothing waits");
    }
    let now = words::now();
    let rows = waiting.iter().map(|session| {
        let why = session.limit.map_or("concurrency limit".to_owned(), |hit| {
            format!("{} of {} were running", hit.running, hit.limit)
        });
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
    let waiting = queued(api)?;
    match waiting.as_slice() {
        [] => Err(Failure::new(Code::Enoent, "nothing waits")),
        [one] => Ok(one.id),
        many => {
            let names: Vec<String> = many.iter().take(5).map(name_of).collect();
            Err(Failure::new(Code::Einval, format!("{} sessions wait: say which", many.len()))
                .hint(format!("for example {}", names.join(", "))))
        }
    }
}
