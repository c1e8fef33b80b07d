//! `ctx ls`: lists sessions. The plain list comes from the session files, which are always current; filters that would need
//! to read every file use the index.

mod ask;
mod find;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use ctx_api::http::Session;
use ctx_api::model::in_api;
use ctx_session::project::DEFAULT_PROJECT;
use ctx_session::{Code, Name, StateName};

use crate::client::Api;
use crate::failure::Failure;
use crate::here;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};
use crate::{sessions, words};
use find::{Need, Row};

/// The last column is worth so many characters before another column gives way to it.
const TITLE_MIN: usize = 24;

/// Characters of a state with its reason.
const STATE_MAX: usize = 40;
/// Characters of an id in the list.
const ID_END: usize = 8;

/// List sessions
///
/// Lists the sessions of this directory's project; with -A all of yours and of the spaces you are in. First those that need you (an approval, a pause, a failure, a
/// queued message), then the newest; below them, what runs in terminals (`ctx term`). The ID is the end of the id, which every command accepts. It needs no daemon. Ended
/// sessions are listed with --all, archived ones with --archived; one that has failed is listed until it is ended or purged, and one whose last run failed says so until its next run. A session is `failing` while the failure of its
/// run cannot be written to disk, for example because the disk is full; `ctx show` prints the reason.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  ctx ls                          this directory's sessions
  ctx ls -A                       all sessions, this directory's first
  ctx ls --needs-me               sessions that wait for you
  ctx ls coder --all              all of coder's sessions, ended ones too
  ctx ls --state queued --sort created
  ctx ls --text 'flaky test' --project web
  ctx ls --json | jq -r 'select(.state == \"queued\") | .session'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// Only the sessions of this agent
    #[arg(value_name = "AGENT")]
    agent: Option<Name>,
    /// Also list ended sessions
    #[arg(short, long)]
    all: bool,
    /// Also list archived sessions
    #[arg(long)]
    archived: bool,
    /// Only sessions in this state (repeatable)
    #[arg(long = "state", value_name = "STATE")]
    states: Vec<StateWord>,
    /// Only sessions that wait for you, of all directories: an approval, a pause, a failure, a queued message
    #[arg(long, conflicts_with = "states")]
    needs_me: bool,
    /// Only sessions of this project
    #[arg(long, value_name = "PROJECT")]
    project: Option<Name>,
    /// Only sessions in this directory, as a path that the agent sees
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Only sessions that began in this directory or below it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Sessions of all directories; those of this one first
    #[arg(short = 'A', long)]
    all_dirs: bool,
    /// This directory's project, if it has one, whose sessions alone are listed
    #[arg(skip)]
    only: Option<Option<Name>>,
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

impl Args {
    /// Nothing is asked for that only sessions have.
    fn is_plain(&self) -> bool {
        let words = [&self.cwd, &self.text];
        let names = [&self.agent, &self.project];
        self.states.is_empty()
            && !self.needs_me
            && words.iter().all(|w| w.is_none())
            && names.iter().all(|n| n.is_none())
    }
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

pub fn run(mut args: Args, root: &Root) -> Result<(), Failure> {
    if root.is_new() {
        if !args.json {
            output::say("no sessions yet; `ctx chat` starts the first one");
        }
        return Ok(());
    }
    sessions::note_unknown_agent(&root.reader()?, args.agent.as_ref())?;
    let own = here::agent(&root.path).map(|agent| agent.project);
    // Whoever needs the user, and whatever else they name, may be anywhere.
    let is_wide = args.all_dirs || args.needs_me || args.agent.is_some() || args.project.is_some();
    if let Some(dir) = &mut args.dir {
        *dir = PathBuf::from(here::dir(Some(dir))?);
    } else if !is_wide {
        args.only = Some(own.clone());
    }
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    // Who needs the user is known only when all are looked at.
    let looked = if args.needs_me { usize::MAX } else { limit };
    let mut rows = match args.only {
        // A directory that nobody has worked in has no project yet, and no sessions.
        Some(None) => {
            root.reader()?;
            Vec::new()
        }
        Some(Some(_)) | None => find::rows(&args, root, looked)?,
    };
    if !matches!(args.only, Some(None)) {
        find::mark_flawed(&args, root, &mut rows);
    }
    ask::mark(root, &mut rows);
    find::wait_for_index(root, &rows);
    find::mark_failed_runs(root, &mut rows);
    if args.needs_me {
        rows.retain(|row| row.need() != Need::Nothing);
    }
    if args.sort == SortWord::Updated && !args.json {
        // The sort keeps the order of time within each group.
        rows.sort_by_key(|row| (row.need(), own.as_ref() != Some(&row.meta.project)));
    }
    let more = rows.len() > limit;
    rows.truncate(limit);
    ask::count(root, &mut rows);
    let mut out = output::stdout();
    if args.json {
        for row in &rows {
            writeln!(out, "{}", as_json(row)?)?;
        }
    } else {
        out.write_all(as_table(&rows, output::width(), Paint::for_stdout()).as_bytes())?;
        if args.is_plain() {
            let terminals = crate::commands::shell::term::ls::beside_sessions(root);
            let space = if rows.is_empty() || terminals.is_empty() { "" } else { "\n" };
            write!(out, "{space}{terminals}")?;
        }
    }
    out.flush()?;
    if std::io::stdout().is_terminal() && !args.json {
        talk(&args, root, &rows, more);
    }
    Ok(())
}

/// The API's object, with what a person calls the session and where its files are. Without a daemon it is made of the
/// session's files, which do not know the run of a session that runs.
fn as_json(row: &Row) -> Result<serde_json::Value, Failure> {
    let session = row.known.clone().unwrap_or_else(|| Box::new(from_files(row)));
    let broken = |error: serde_json::Error| Failure::new(Code::Eio, error.to_string());
    let mut line = serde_json::to_value(&*session).map_err(broken)?;
    if let Some(fields) = line.as_object_mut() {
        fields.insert("session".to_owned(), row.session.clone().into());
        fields.insert("path".to_owned(), row.dir.to_string_lossy().into());
        if row.need() != Need::Nothing {
            fields.insert("needs".to_owned(), needs(row).into());
        }
        // What no file describes is never stale; of the rest only the daemon knows.
        if row.known.is_none() && row.meta.project.as_str() != DEFAULT_PROJECT {
            fields.insert("stale".to_owned(), serde_json::Value::Null);
        }
    }
    Ok(line)
}

/// A session's line, also for other commands: as the daemon shows it, or from its files.
pub fn json_of(root: &Root, summary: ctx_views::read::Summary) -> Result<serde_json::Value, Failure> {
    let mut row = Row::of_summary(summary);
    if root.is_up() {
        // A daemon that stops meanwhile leaves the files.
        row.known = Api::new(root).get(&format!("/sessions/{}", row.meta.id)).ok();
    }
    as_json(&row)
}

fn from_files(row: &Row) -> Session {
    let meta = &row.meta;
    let name = row.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Session {
        id: meta.id,
        name: meta.name.clone(),
        dir_name: name,
        dir: meta.dir.clone(),
        workspace: None,
        scope: meta.scope,
        space: meta.space.clone(),
        owner: meta.owner,
        created_by: meta.owner,
        project: meta.project.clone(),
        agent: meta.agent.clone(),
        state: meta.state,
        damage: row.damage(),
        failure: meta.failure.clone(),
        failing: row.failing.clone(),
        cwd: row.cwd.clone(),
        title: meta.title.clone(),
        model: in_api(&meta.model),
        model_override: None,
        forked_from: meta.forked_from,
        archived: meta.archived,
        stale: false,
        dsl_hash: None,
        dsl_snapshot: None,
        pending_run: None,
        current_run: None,
        checkpoint: None,
        bound_issue: meta.bound_issue,
        pending_approvals: row.approvals,
        queued: meta.state == StateName::Queued,
        reason: (meta.state == StateName::Queued).then(|| "concurrency_limit".to_owned()),
        limit: None,
        tokens_in: row.usage.input,
        tokens_out: row.usage.output,
        tokens_cached: row.usage.cached,
        cost_usd: row.usage.cost().dollars(),
        created_at: row.created_at.as_millis(),
        updated_at: row.updated_at.as_millis(),
        ended_at: meta.state.is_over().then(|| row.updated_at.as_millis()),
    }
}

/// The columns, those that give way first at the end of `GIVE_WAY`.
const COLUMNS: [&str; 9] = ["SESSION", "STATE", "AGE", "ID", "MODEL", "TOKENS", "COST", "PROJECT", "TITLE"];
const GIVE_WAY: [usize; 5] = [7, 5, 6, 4, 3];

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
    let word = words::shorten(&needs(row), STATE_MAX);
    let state = match (row.need(), meta.state) {
        (Need::Approval | Need::Paused | Need::Queued, _) => paint.yellow(&word),
        (Need::Failed, _) => paint.red(&word),
        (Need::Nothing, StateName::Running) => paint.green(&word),
        (Need::Nothing, StateName::Ended) => paint.dim(&word),
        (Need::Nothing, _) => word.clone(),
    };
    vec![
        Cell::new(row.plain_name.clone()),
        marked(row, word, state, paint),
        Cell::new(words::age(now, row.updated_at)),
        Cell::new(end_of_id(&meta.id.to_string())),
        Cell::new(output::plain(&in_api(&meta.model))),
        Cell::new(words::short_count(row.usage.input.saturating_add(row.usage.output))),
        Cell::new(match row.usage.cost_nano_usd {
            0 => "-".to_owned(),
            _ => row.usage.cost().to_string(),
        }),
        Cell::new(meta.project.to_string()),
        Cell::new(output::plain(meta.title.as_deref().unwrap_or_default())),
    ]
}

/// The state with what else is to be known: the log has lost something, the project file is another.
fn marked(row: &Row, mut plain: String, mut painted: String, paint: Paint) -> Cell {
    let marks = [("damaged", row.damage().is_some()), ("stale", row.stale == Some(true))];
    for (word, _) in marks.iter().filter(|(_, holds)| *holds) {
        plain = format!("{plain} {word}");
        painted = format!("{painted} {}", paint.yellow(word));
    }
    Cell::painted(plain, painted)
}

/// The state, and for a session that waits, what it waits for.
fn needs(row: &Row) -> String {
    let with = |word: &str, reason: Option<&str>| match reason {
        Some(reason) => format!("{word}: {reason}"),
        None => word.to_owned(),
    };
    let failure = row.failing.as_ref().or(row.meta.failure.as_ref()).or(row.run_failure.as_ref());
    match row.need() {
        Need::Approval => "needs approval".to_owned(),
        Need::Paused => with("paused", row.pause_reason.as_deref()),
        Need::Failed => {
            let word = if row.failing.is_some() { "failing" } else { "failed" };
            with(word, failure.map(|failure| failure.reason.as_str()))
        }
        Need::Queued | Need::Nothing => row.meta.state.as_str().to_owned(),
    }
}

/// The end of an id names a session in every command; the beginning is the same for all sessions of an hour.
fn end_of_id(id: &str) -> String {
    id.get(id.len().saturating_sub(ID_END)..).unwrap_or(id).to_owned()
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
    let asks = !args.states.is_empty()
        || args.project.is_some()
        || args.cwd.is_some()
        || args.dir.is_some()
        || args.text.is_some();
    if rows.is_empty() && asks {
        output::say("no session matches; `ctx ls --all --archived` lists every session");
    } else if rows.is_empty() {
        output::say("no sessions; `ctx send hello` starts one, `ctx ls --all` also lists ended ones");
    }
    if args.only.is_some() && find::is_more_elsewhere(args, root) {
        output::say("there are sessions of other directories; `ctx ls -A` lists them");
    }
    if more {
        output::say(format_args!("only {} are listed; `ctx ls -n 0` lists all", args.limit));
    }
    if rows.iter().any(|row| row.stale == Some(true)) {
        output::say("stale: the project file has changed; `ctx restart SESSION` uses the new one");
    }
    if rows.iter().any(|row| row.damage().is_some()) {
        output::say(
            "damaged: records of the log are lost; `ctx doctor` names the places, `ctx repair` saves what it can",
        );
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
            let cells =
                ["coder/default", "idle", "3m", "01K9ZZZZZZZZZZZZZZZZZZZZZZ", "debug:echo", "12.3k", "$0.04"];
            cells.into_iter().chain(["default", title]).map(Cell::new).collect::<Vec<Cell>>()
        };
        let rows = [row("a title of some length that takes more than a little")];
        assert_eq!(fitting(&rows, None).len(), 9);
        assert_eq!(fitting(&rows, Some(160)).len(), 9);
        assert_eq!(fitting(&rows, Some(115)).len(), 9, "the title has its least");
        assert_eq!(fitting(&rows, Some(114)), [0, 1, 2, 3, 4, 5, 6, 8]);
        assert_eq!(fitting(&rows, Some(91)), [0, 1, 2, 3, 4, 8]);
        assert_eq!(fitting(&rows, Some(80)), [0, 1, 2, 3, 8]);
        assert_eq!(fitting(&rows, Some(50)), [0, 1, 2, 8]);
        assert_eq!(fitting(&[row("")], Some(80)), [0, 1, 2, 3, 4, 6, 8], "no title needs little room");
        let mut long = row("");
        long[0] = Cell::new("coder/01K9ZZZZZZZZZZZZZZZZZZZZZZ");
        assert_eq!(fitting(&[long.clone()], Some(51)), [0, 1, 2, 8]);
        assert_eq!(fitting(&[long.clone()], Some(50)), [0, 1, 2]);
        assert_eq!(fitting(&[long], Some(40)), [0, 1]);
    }
}
