//! `ctx ls`: the sessions, from their files.

use std::io::{IsTerminal, Write};

use ctx_session::{Name, StateName};
use ctx_views::read::{Object, Reader, SessionRef, SessionsDir, Summary};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::sessions::own_uid;
use crate::{table, words};

/// List sessions
///
/// Your own and those of the spaces you are in, newest first, read from their files: it works without a daemon
/// and shows what the last one left. Ended and failed sessions are shown with --all.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx ls                          what can be gone on with
  ctx ls coder --all              all of coder's sessions, also those that are over
  ctx ls --json | jq -r 'select(.state == \"queued\") | .session'")]
pub struct Args {
    /// Only the sessions of this agent
    #[arg(value_name = "AGENT")]
    agent: Option<Name>,
    /// Also sessions that have ended or failed
    #[arg(short, long)]
    all: bool,
    /// At most N sessions; 0 for no limit
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let mut found = Vec::new();
    for place in reader.places(own_uid())? {
        for sessions in reader.session_dirs(&place)? {
            if args.agent.as_ref().is_none_or(|agent| sessions.object == Object::Agent(agent.clone())) {
                found.extend(newest(&reader, &sessions, args.all, limit)?);
            }
        }
    }
    found.sort_by_key(|summary| std::cmp::Reverse(summary.updated_at));
    let more = found.len() > limit;
    found.truncate(limit);
    let mut out = output::stdout();
    if args.json {
        for summary in &found {
            writeln!(out, "{}", as_json(summary))?;
        }
    } else {
        out.write_all(as_table(&found).as_bytes())?;
    }
    out.flush()?;
    if std::io::stdout().is_terminal() && !args.json {
        talk(&args, root, &found, more);
    }
    Ok(())
}

/// The newest sessions of one directory, one more than `limit` so that it shows that there are more.
fn newest(reader: &Reader, sessions: &SessionsDir, all: bool, limit: usize) -> Result<Vec<Summary>, Failure> {
    let wanted = limit.saturating_add(1);
    let is_over = |session: &SessionRef| crate::sessions::plain_name(&session.dir_name) != session.dir_name;
    let mut asked = wanted;
    loop {
        let names = reader.newest(sessions, asked)?;
        let all_seen = names.len() < asked;
        let mut kept: Vec<_> = names.into_iter().filter(|session| all || !is_over(session)).collect();
        // Sessions that are over may crowd out the others: ask for more until there are enough.
        if kept.len() >= wanted || all_seen {
            kept.truncate(wanted);
            return Ok(summaries(reader, &kept, all));
        }
        asked = asked.saturating_mul(4);
    }
}

/// A session that cannot be read does not hide the others.
fn summaries(reader: &Reader, sessions: &[SessionRef], all: bool) -> Vec<Summary> {
    let mut found = Vec::new();
    for session in sessions {
        match reader.summary(session) {
            Ok(summary) if all || !summary.meta.state.is_over() => found.push(summary),
            Ok(_) => {}
            Err(error) => output::say(format_args!("{session}: {error}")),
        }
    }
    found
}

fn as_json(summary: &Summary) -> serde_json::Value {
    let meta = &summary.meta;
    json!({
        "id": meta.id, "session": summary.session.to_string(), "name": meta.name, "agent": meta.agent,
        "state": meta.state, "title": meta.title, "model": meta.model, "scope": meta.scope,
        "space": meta.space, "owner": meta.owner, "project": meta.project, "cwd": summary.cwd,
        "created_at": summary.created_at, "updated_at": summary.updated_at, "failure": meta.failure,
        "dir": summary.session.path(),
    })
}

fn as_table(found: &[Summary]) -> String {
    let (paint, now) = (Paint::for_stdout(), words::now());
    let rows = found.iter().map(|summary| {
        let meta = &summary.meta;
        let state = match meta.state {
            StateName::Running => paint.green("running"),
            StateName::Queued => paint.yellow("queued"),
            StateName::Failed => paint.red("failed"),
            StateName::Idle => "idle".to_owned(),
            StateName::Ended => paint.dim("ended"),
        };
        let object = &summary.session.sessions.object;
        vec![
            table::Cell::new(format!("{object}/{}", meta.name)),
            table::Cell::painted(meta.state.as_str(), state),
            table::Cell::new(words::age(now, summary.updated_at)),
            table::Cell::new(meta.id.to_string()),
            table::Cell::new(meta.model.clone()),
            table::Cell::new(output::plain(meta.title.as_deref().unwrap_or_default())),
        ]
    });
    let head = ["SESSION", "STATE", "AGE", "ID", "MODEL", "TITLE"];
    table::render(&head, rows.collect(), output::width(), paint)
}

fn talk(args: &Args, root: &Root, found: &[Summary], more: bool) {
    if found.is_empty() {
        output::say(
            "no sessions here; `ctx send hello` begins one, `ctx ls --all` also shows those that are over",
        );
    }
    if more {
        output::say(format_args!("more than {}; `ctx ls -n 0` shows all", args.limit));
    }
    let active = found.iter().any(|summary| summary.meta.state == StateName::Running);
    if active && !root.is_up() {
        output::say("the daemon is down: what runs here was running when it stopped");
    }
}
