//! `ctx shells`: lists shells, prints and searches their logs.

use std::io::Write;

use ctx_host::ShellRecord;
use ctx_journal::{Entry, LogPath};
use ctx_session::{Code, Timestamp, Ulid};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::shell_logs::{Shelf, id_of};
use crate::shell_transcript::{ShellTranscript, parse};
use crate::table::{self, Cell};
use crate::words;

/// The columns' worth of a command in a list.
const COMMAND_CHARS: usize = 200;

/// List shells, print and search what they did
///
/// Every shell that `ctx mcp` or the daemon opens has a log with its commands, their output and exit codes. The
/// log can be read while the shell is open and after it has ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx shells                      all shells, newest last
  ctx shells show 01K9X           one shell's transcript, by the beginning of its id
  ctx shells show 1_local         the newest shell of that name
  ctx shells search 'permission denied'
  ctx watch --follow              what shells do from now on

exit codes: 0 success, 1 failed or nothing found, 2 bad input, 13 not allowed,
            70 internal error")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
    /// Print one JSON object per line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// List all shells
    #[command(alias = "ls")]
    List,
    /// Print a shell's transcript
    Show {
        /// Id of the shell's log or a unique beginning of it, or the shell's name (the newest of that name)
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Find commands and outputs that contain a text
    ///
    /// Searches commands, refused ones too, and the first and last 4 KiB of each output. Each line has the log, the
    /// number of the command (`-` if it has none) and where the text was found. Exits with 1 when nothing is found.
    Search {
        /// Text to search for; case is ignored
        #[arg(value_name = "TEXT")]
        text: String,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let shelves = Shelf::for_reading(root)?;
    match args.command.unwrap_or(Sub::List) {
        Sub::List => list(&shelves, args.json),
        Sub::Show { id } => show(&shelves, &id, args.json),
        Sub::Search { text } => search(&shelves, &text, args.json),
    }
}

/// What a list says of a shell, record by record.
#[derive(Default)]
pub struct Summary {
    pub shell: String,
    transport: String,
    cwd: String,
    commands: u64,
    pub state: &'static str,
    created: Timestamp,
    pub updated: Timestamp,
    /// A command has no end yet.
    pub is_busy: bool,
}

impl Summary {
    /// A log without a record was made when its id was.
    pub fn of_log(log: &LogPath) -> Summary {
        let made: Timestamp = id_of(log).parse::<Ulid>().map(Ulid::timestamp).unwrap_or_default();
        Summary { state: "open", created: made, updated: made, ..Summary::default() }
    }

    pub fn add(&mut self, entry: &Entry) {
        self.updated = entry.time;
        match parse(entry) {
            Some(ShellRecord::Created { shell, transport, cwd, .. }) => {
                self.created = entry.time;
                (self.shell, self.transport, self.cwd) = (shell, transport, cwd);
            }
            Some(ShellRecord::ExecStarted { call, .. }) => (self.commands, self.is_busy) = (call, true),
            Some(ShellRecord::ExecFinished { cwd, .. }) => (self.cwd, self.is_busy) = (cwd, false),
            Some(ShellRecord::ExecCut { .. }) => self.is_busy = false,
            Some(ShellRecord::Restarted { cwd, .. }) => self.cwd = cwd,
            Some(ShellRecord::Destroyed { .. }) => self.state = "destroyed",
            Some(ShellRecord::Reaped { .. }) => self.state = "reaped",
            Some(ShellRecord::Lost { .. }) => self.state = "lost",
            Some(
                ShellRecord::ExecRefused { .. }
                | ShellRecord::Interrupted { .. }
                | ShellRecord::Checkpointed { .. }
                | ShellRecord::Restored { .. }
                | ShellRecord::LateOutput { .. },
            )
            | None => (),
        }
    }
}

/// None where the log cannot be read, which is told.
fn summarise(shelf: &Shelf, log: &LogPath) -> Option<Summary> {
    let mut summary = Summary::of_log(log);
    shelf.read_or_tell(log, 0, &mut |entry| summary.add(entry))?;
    // A server that was killed has no last word.
    if summary.state == "open" && !shelf.has_writer(log) {
        summary.state = "lost";
    }
    Some(summary)
}

/// The logs of all shelves, oldest first: their ids are in the order of their time.
fn all_logs(shelves: &[Shelf]) -> Result<Vec<(&Shelf, LogPath)>, Failure> {
    let mut all = Vec::new();
    for shelf in shelves {
        all.extend(shelf.logs_or_tell()?.into_iter().map(|log| (shelf, log)));
    }
    all.sort_by(|a, b| id_of(&a.1).cmp(id_of(&b.1)));
    Ok(all)
}

fn list(shelves: &[Shelf], as_json: bool) -> Result<(), Failure> {
    let paint = Paint::for_stdout();
    let now = words::now();
    let mut rows = Vec::new();
    for (shelf, log) in all_logs(shelves)? {
        let Some(found) = summarise(shelf, &log) else { continue };
        if as_json {
            output::json(&json!({
                "log": id_of(&log), "session_id": found.shell, "transport": found.transport,
                "state": found.state, "cwd": found.cwd, "commands": found.commands,
                "created_at": found.created, "updated_at": found.updated,
            }))?;
        } else {
            rows.push(vec![
                Cell::new(id_of(&log)),
                Cell::new(found.shell),
                Cell::new(found.state),
                Cell::new(words::age(now, found.updated)),
                Cell::new(found.commands.to_string()),
                Cell::new(output::one_line(&found.cwd)),
            ]);
        }
    }
    if as_json {
        return Ok(());
    }
    if rows.is_empty() {
        output::say("no shells yet; `ctx mcp config HOST` prints how to set up a host");
        return Ok(());
    }
    let head = ["LOG", "SHELL", "STATE", "AGE", "COMMANDS", "CWD"];
    output::stdout().write_all(table::render(&head, rows, output::width(), paint).as_bytes())?;
    Ok(())
}

fn show(shelves: &[Shelf], id: &str, as_json: bool) -> Result<(), Failure> {
    let (shelf, log) = find(shelves, id)?;
    let paint = Paint::for_stdout();
    let mut out = output::stdout();
    let mut written = Ok(());
    let mut transcript = ShellTranscript::new(paint);
    // Asked for first: a log whose writer goes meanwhile is read to its end.
    let has_writer = shelf.has_writer(&log);
    shelf.read(&log, 0, &mut |entry| {
        if written.is_ok() {
            let text = if as_json { format!("{}\n", entry.text) } else { transcript.record(entry) };
            written = out.write_all(text.as_bytes());
        }
    })?;
    written?;
    if !as_json {
        out.write_all(transcript.end(has_writer).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn find<'a>(shelves: &'a [Shelf], id: &str) -> Result<(&'a Shelf, LogPath), Failure> {
    let mut found = all_logs(shelves)?;
    found.retain(|(_, log)| crate::ids::is_part(id_of(log), id));
    if found.is_empty()
        && let Some(newest) = named(shelves, id)?
    {
        return Ok(newest);
    }
    match found.len() {
        0 => Err(Failure::new(
            Code::Enoent,
            format!("no shell has a log or a name that begins with `{}`", output::plain(id)),
        )
        .hint("`ctx shells` lists them")),
        1 => found.pop().ok_or_else(|| Failure::new(Code::Eio, "the log disappeared while it was read")),
        many => {
            Err(Failure::new(Code::Einval, format!("{many} logs begin with `{id}`; write more of the id")))
        }
    }
}

/// The newest shell that had this name in its server.
fn named<'a>(shelves: &'a [Shelf], name: &str) -> Result<Option<(&'a Shelf, LogPath)>, Failure> {
    let is_named = |(shelf, log): &(&Shelf, LogPath)| {
        let created = shelf.first(log, |entry| match parse(entry) {
            Some(ShellRecord::Created { shell, .. }) => Some(shell),
            _ => None,
        });
        created.as_deref() == Some(name)
    };
    Ok(all_logs(shelves)?.into_iter().rfind(is_named))
}

fn search(shelves: &[Shelf], text: &str, as_json: bool) -> Result<(), Failure> {
    let wanted = text.to_lowercase();
    let paint = Paint::for_stdout();
    let mut out = output::stdout();
    let (mut written, mut hits) = (Ok(()), 0_usize);
    for (shelf, log) in all_logs(shelves)? {
        shelf.read_or_tell(&log, 0, &mut |entry| {
            for hit in matches(entry, &wanted) {
                hits += 1;
                if written.is_ok() {
                    written = out.write_all(hit.shown(id_of(&log), as_json, paint).as_bytes());
                }
            }
        });
    }
    written?;
    out.flush()?;
    if hits == 0 {
        output::say("nothing found");
        return Err(Failure::Told { exit: 1 });
    }
    Ok(())
}

/// A line that holds what was looked for.
struct Hit {
    /// The number of its command. What was refused, and what jobs printed in between, has none.
    call: Option<u64>,
    field: &'static str,
    line: String,
}

impl Hit {
    fn shown(&self, log: &str, as_json: bool, paint: Paint) -> String {
        let Hit { call, field, line } = self;
        if as_json {
            return format!("{}\n", json!({"log": log, "call": call, "field": field, "line": line}));
        }
        let call = call.map_or_else(|| "-".to_owned(), |call| call.to_string());
        let line = words::shorten(&output::plain(line.trim_end()), COMMAND_CHARS);
        format!("{} {line}\n", paint.dim(&format!("{log} {call} {field}:")))
    }
}

/// The lines of a record that hold a text.
fn matches(entry: &Entry, wanted: &str) -> Vec<Hit> {
    let (call, fields) = match parse(entry) {
        Some(ShellRecord::ExecStarted { call, command, .. }) => (Some(call), vec![("command", command)]),
        Some(
            ShellRecord::ExecFinished { call, stdout, stderr, .. }
            | ShellRecord::ExecCut { call, stdout, stderr, .. },
        ) => (Some(call), vec![("stdout", stdout), ("stderr", stderr)]),
        Some(ShellRecord::ExecRefused { command, .. }) => (None, vec![("refused", command)]),
        Some(ShellRecord::LateOutput { text }) => (None, vec![("late", text)]),
        Some(
            ShellRecord::Created { .. }
            | ShellRecord::Interrupted { .. }
            | ShellRecord::Restarted { .. }
            | ShellRecord::Checkpointed { .. }
            | ShellRecord::Restored { .. }
            | ShellRecord::Destroyed { .. }
            | ShellRecord::Reaped { .. }
            | ShellRecord::Lost { .. },
        )
        | None => (None, Vec::new()),
    };
    let holds = |line: &&str| line.to_lowercase().contains(wanted);
    let hit = |field, line: &str| Hit { call, field, line: line.to_owned() };
    fields
        .iter()
        .flat_map(|(field, text)| text.lines().filter(holds).map(move |line| hit(*field, line)))
        .collect()
}
