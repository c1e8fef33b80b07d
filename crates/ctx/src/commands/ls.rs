//! `ctx ls`: lists sessions. The plain list comes from the session files, which are always current; filters that would need
//! to read every file use the index.

mod ask;
mod find;

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use ctx_api::model::in_tree;
use ctx_session::project::DEFAULT_PROJECT;
use ctx_session::{Name, StateName};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};
use crate::words;
use find::Row;

/// The last column is worth so many characters before another column gives way to it.
const TITLE_MIN: usize = 24;

/// List sessions
///
/// Lists your sessions and those of the spaces you are in, newest first. It needs no daemon. Ended and failed
/// sessions are listed with --all, archived ones with --archived. A session is `failing` while the failure of its
/// run cannot be written to disk, for example because the disk is full; `ctx show` prints the reason.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  ctx ls                          sessions you can continue
  ctx ls coder --all              all of coder's sessions, ended ones too
  ctx ls --state queued --sort created
  ctx ls --text 'flaky test' --project web
  ctx ls --json | jq -r 'select(.state == \"queued\") | .session'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// Only the sessions of this agent
    #[arg(value_name = "AGENT")]
    agent: Option<Name>,
    /// Also list ended and failed sessions
    #[arg(short, long)]
    all: bool,
    /// Also list archived sessions
    #[arg(long)]
    archived: bool,
    /// Only sessions in this state (repeatable)
    #[arg(long = "state", value_name = "STATE")]
    states: Vec<StateWord>,
    /// Only sessions of this project
    #[arg(long, value_name = "PROJECT")]
    project: Option<Name>,
    /// Only sessions in this directory, as a path that the agent sees
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Only sessions with this text in their name, title or messages
    #[arg(short, long, value_name = "TEXT")]
    text: Option<String>,
    /// Sort by last change, by creation or by name
    #[arg(long, value_name = "ORDER", default_value = "updated")]
    sort: SortWord,
    /// At most N sessions; 0 for no limit
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The states, to be typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateWord {
    Idle,
    Running,
    Queued,
    Paused,
    Ended,
    Failed,
}

impl StateWord {
    fn state(self) -> StateName {
        match self {
            StateWord::Idle => StateName::Idle,
            StateWord::Running => StateName::Running,
            StateWord::Queued => StateName::Queued,
            StateWord::Paused => StateName::Paused,
            StateWord::Ended => StateName::Ended,
            StateWord::Failed => StateName::Failed,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SortWord {
    Updated,
    Created,
    Name,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let mut rows = find::rows(&args, root, limit)?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    ask::mark(root, &mut rows);
    let mut out = output::stdout();
    if args.json {
        for row in &rows {
            writeln!(out, "{}", as_json(row))?;
        }
    } else {
        out.write_all(as_table(&rows, output::width(), Paint::for_stdout()).as_bytes())?;
    }
    out.flush()?;
    if std::io::stdout().is_terminal() && !args.json {
        talk(&args, root, &rows, more);
    }
    Ok(())
}

fn as_json(row: &Row) -> serde_json::Value {
    let meta = &row.meta;
    // What no file describes is never stale; of the rest only the daemon knows.
    let stale = row.stale.or_else(|| (meta.project.as_str() == DEFAULT_PROJECT).then_some(false));
    json!({
        "id": meta.id, "session": row.session, "name": meta.name, "agent": meta.agent,
        "state": meta.state, "title": meta.title, "model": meta.model, "scope": meta.scope,
        "space": meta.space, "owner": meta.owner, "project": meta.project, "cwd": row.cwd,
        "created_at": row.created_at, "updated_at": row.updated_at, "failure": meta.failure, "failing": row.failing,
        "archived": meta.archived, "stale": stale, "bound_issue": meta.bound_issue, "dir": row.dir,
    })
}

/// The columns, those that give way first at the end of `GIVE_WAY`.
const COLUMNS: [&str; 7] = ["SESSION", "STATE", "AGE", "ID", "MODEL", "PROJECT", "TITLE"];
const GIVE_WAY: [usize; 3] = [5, 4, 3];

fn as_table(rows: &[Row], width: Option<usize>, paint: Paint) -> String {
    let now = words::now();
    let cells: Vec<Vec<Cell>> = rows.iter().map(|row| cells_of(row, now, paint)).collect();
    let columns = fitting(&cells, width);
    let head: Vec<&str> = columns.iter().filter_map(|at| COLUMNS.get(*at).copied()).collect();
    let shown = cells.into_iter().map(|cells| {
        let kept = cells.into_iter().enumerate().filter(|(at, _)| columns.contains(at));
        kept.map(|(_, cell)| cell).collect()
    });
    table::render(&head, shown.collect(), width, paint)
}

fn cells_of(row: &Row, now: ctx_session::Timestamp, paint: Paint) -> Vec<Cell> {
    let meta = &row.meta;
    let word = if row.failing.is_some() { "failing" } else { meta.state.as_str() };
    let state = match meta.state {
        StateName::Running if row.failing.is_some() => paint.red(word),
        StateName::Running => paint.green("running"),
        StateName::Queued => paint.yellow("queued"),
        StateName::Paused => paint.yellow("paused"),
        StateName::Failed => paint.red("failed"),
        StateName::Idle => "idle".to_owned(),
        StateName::Ended => paint.dim("ended"),
    };
    vec![
        Cell::new(row.plain_name.clone()),
        match row.stale {
            Some(true) => {
                Cell::painted(format!("{word} stale"), format!("{state} {}", paint.yellow("stale")))
            }
            Some(false) | None => Cell::painted(word, state),
        },
        Cell::new(words::age(now, row.updated_at)),
        Cell::new(meta.id.to_string()),
        Cell::new(output::plain(&in_tree(&meta.model))),
        Cell::new(meta.project.to_string()),
        Cell::new(output::plain(meta.title.as_deref().unwrap_or_default())),
    ]
}

/// The columns that leave room for the title. Into a pipe all of them go.
fn fitting(cells: &[Vec<Cell>], width: Option<usize>) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..COLUMNS.len()).collect();
    let Some(width) = width else { return columns };
    let wide = |at: usize| {
        let head = COLUMNS.get(at).map_or(0, |word| word.len());
        cells.iter().filter_map(|row| row.get(at)).map(Cell::width).max().unwrap_or(0).max(head)
    };
    for gives_way in GIVE_WAY {
        let title = wide(COLUMNS.len() - 1).min(TITLE_MIN);
        let before: usize = columns.iter().take(columns.len() - 1).map(|at| wide(*at) + table::GAP).sum();
        if before + title <= width {
            break;
        }
        columns.retain(|at| *at != gives_way);
    }
    // Names as long as an id leave no room for a title, nor even for the age.
    let title = COLUMNS.len() - 1;
    let least = |at: usize| if at == title { wide(at).min(table::LAST_MIN) } else { wide(at) };
    for gives_way in [title, 2] {
        let whole: usize = columns.iter().map(|at| least(*at) + table::GAP).sum();
        if whole <= width + table::GAP {
            break;
        }
        columns.retain(|at| *at != gives_way);
    }
    columns
}

fn talk(args: &Args, root: &Root, rows: &[Row], more: bool) {
    let asks = !args.states.is_empty() || args.project.is_some() || args.cwd.is_some() || args.text.is_some();
    if rows.is_empty() && asks {
        output::say("no session matches; `ctx ls --all --archived` lists every session");
    } else if rows.is_empty() {
        output::say("no sessions; `ctx send hello` starts one, `ctx ls --all` also lists ended ones");
    }
    if more {
        output::say(format_args!("only {} are listed; `ctx ls -n 0` lists all", args.limit));
    }
    if rows.iter().any(|row| row.stale == Some(true)) {
        output::say("stale: the project file has changed; `ctx restart SESSION` uses the new one");
    }
    let active = rows.iter().any(|row| row.meta.state == StateName::Running);
    if active && !root.is_up() {
        output::say("the daemon is not running; sessions shown as running were running when it stopped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_give_way_to_a_narrow_terminal() {
        let row = |title: &str| {
            ["coder/default", "idle", "3m", "01K9ZZZZZZZZZZZZZZZZZZZZZZ", "debug:echo", "default", title]
                .map(Cell::new)
                .to_vec()
        };
        let rows = [row("a title of some length that takes more than a little")];
        assert_eq!(fitting(&rows, None).len(), 7);
        assert_eq!(fitting(&rows, Some(160)).len(), 7);
        assert_eq!(fitting(&rows, Some(100)).len(), 7, "the title has its least");
        assert_eq!(fitting(&rows, Some(99)), [0, 1, 2, 3, 4, 6]);
        assert_eq!(fitting(&rows, Some(80)), [0, 1, 2, 3, 6]);
        assert_eq!(fitting(&rows, Some(50)), [0, 1, 2, 6]);
        assert_eq!(fitting(&[row("")], Some(80)), [0, 1, 2, 3, 4, 6], "no title needs little room");
        let mut long = row("");
        long[0] = Cell::new("coder/01K9ZZZZZZZZZZZZZZZZZZZZZZ");
        assert_eq!(fitting(&[long.clone()], Some(51)), [0, 1, 2, 6]);
        assert_eq!(fitting(&[long.clone()], Some(50)), [0, 1, 2]);
        assert_eq!(fitting(&[long], Some(40)), [0, 1]);
    }
}
