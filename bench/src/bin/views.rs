//! Measures the views on a generated root: `views DIR [SESSIONS] [MESSAGES]`. DIR is kept, so that a second run
//! measures without generating. Each figure is one line `name value unit`; what stands beside it (`wc -l`,
//! `sqlite3`) is run in the same breath.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_bench::history::{self, Outcome, START, Words};
use ctx_journal::{FileJournal, Journal, Owner};
use ctx_session::{IdSource, Record, Session, Timestamp};
use ctx_views::db::{IndexDb, ListQuery, Options, SearchQuery, Viewer};
use ctx_views::{RootDir, SessionFiles};

const HOUR: Duration = Duration::from_secs(3600);

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let dir = args.first().ok_or("a directory to work in is needed")?;
    let (sessions, messages) = (number(1, 10_000)?, number(2, 1_000_000)?);
    let root = Path::new(dir);
    let begun = Instant::now();
    if history::generate(root, sessions, messages / sessions)? {
        say("generate", begun.elapsed().as_secs_f64(), "s");
    }
    let journal: Arc<dyn Journal> = Arc::new(FileJournal::at(root)?);
    files(root)?;
    rebuild(root, &journal)?;
    start(root, &journal)?;
    queries(root, &journal)
}

fn say(name: &str, value: f64, unit: &str) {
    println!("{name:<44} {value:>12.3} {unit}");
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1_000.0
}

/// What the files of a session cost a run of `debug/echo`: four commits.
fn files(root: &Path) -> Outcome<()> {
    const RUNS: u32 = 500;
    let dir = root.join("files");
    std::fs::create_dir_all(&dir)?;
    let mut ids = IdSource::new(9);
    let now = Timestamp::from_millis(START);
    let mut session = Session::new(history::meta(&mut ids, 0, now)?, 0, now);
    let root = RootDir::open(root)?;
    let mut files = SessionFiles::open(&root, Path::new("files"), Owner::own())?;
    files.catch_up(&session, &[])?;
    let mut words = Words::new(1);
    let begun = Instant::now();
    for run in 0..RUNS {
        let now = Timestamp::from_millis(START + u64::from(run) * 10);
        for command in history::run(&mut ids, &mut words, now, 100) {
            let commit: Vec<Record> = (session.next_seq..)
                .zip(command)
                .map(|(seq, body)| Record { seq, time: now, body })
                .collect();
            for record in &commit {
                session.apply(record);
            }
            files.show(&session, &commit)?;
        }
    }
    say("session files, a run of four commits", ms(begun) / f64::from(RUNS), "ms");
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

fn open(root: &Path, journal: &Arc<dyn Journal>) -> Outcome<IndexDb> {
    let lister = Arc::clone(journal);
    let options = Options {
        session_logs: Arc::new(move || lister.list("home/*/agent/*/session")),
        meta_of: Arc::new(|_, first, _| first),
    };
    Ok(IndexDb::open(&RootDir::open(root)?, Path::new(".state/index.db"), Arc::clone(journal), options)?)
}

fn rebuild(root: &Path, journal: &Arc<dyn Journal>) -> Outcome<()> {
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(root.join(format!(".state/index.db{suffix}")));
    }
    let counting = Instant::now();
    let count =
        format!("find {} -name events.jsonl -print0 | xargs -0 cat | wc -l", root.join("home").display());
    Command::new("sh").args(["-c", &count]).output()?;
    say("wc -l of all logs", counting.elapsed().as_secs_f64(), "s");

    let begun = Instant::now();
    let db = open(root, journal)?;
    db.catch_up(|_| {});
    db.wait_lists(HOUR);
    say("rebuild, lists", begun.elapsed().as_secs_f64(), "s");
    db.wait_all(HOUR);
    say("rebuild, lists and full text", begun.elapsed().as_secs_f64(), "s");
    if let Some(error) = db.last_error() {
        return Err(error.into());
    }
    db.close();
    let size = std::fs::metadata(root.join(".state/index.db"))?.len();
    say("size of the database", size as f64 / 1e6, "MB");
    Ok(())
}

fn start(root: &Path, journal: &Arc<dyn Journal>) -> Outcome<()> {
    let begun = Instant::now();
    let db = open(root, journal)?;
    say("start, until the index answers", ms(begun), "ms");
    db.catch_up(|_| {});
    db.wait_all(HOUR);
    say("start, until nothing is known to be missing", ms(begun), "ms");
    Ok(())
}

/// The best of several, of ours and of `sqlite3` with the same question on the same file, by turns.
fn beside(name: &str, root: &Path, sql: &str, ours: impl Fn() -> Outcome<usize>) -> Outcome<()> {
    let path = root.join(".state/index.db");
    let (mut best, mut best_other) = (f64::MAX, f64::MAX);
    let begun = Instant::now();
    let mut rows = ours()?;
    let often = |once: f64| if once < 20.0 { 100 } else { 2 };
    let (times, other_times) = (often(ms(begun)), often(sqlite3(&path, sql, 1)?));
    for _ in 0..3 {
        let begun = Instant::now();
        for _ in 0..times {
            rows = ours()?;
        }
        best = best.min(ms(begun) / f64::from(times));
        best_other = best_other.min(sqlite3(&path, sql, other_times)?);
    }
    say(&format!("{name} ({rows} rows)"), best, "ms");
    say(&format!("{name}, sqlite3"), best_other, "ms");
    Ok(())
}

/// The time of one question to the program, without its start: that of many, less that of one.
fn sqlite3(path: &Path, sql: &str, times: u32) -> Outcome<f64> {
    let run = |times: u32| -> Outcome<f64> {
        let begun = Instant::now();
        let mut program =
            Command::new("sqlite3").arg(path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut stdin = program.stdin.take().ok_or("no pipe")?;
        write!(stdin, "{}", format!("{sql};\n").repeat(times as usize))?;
        drop(stdin);
        if !program.wait()?.success() {
            return Err("sqlite3 failed".into());
        }
        Ok(ms(begun))
    };
    let (one, many) = (run(1)?, run(times + 1)?);
    Ok((many - one) / f64::from(times))
}

fn queries(root: &Path, journal: &Arc<dyn Journal>) -> Outcome<()> {
    let db = open(root, journal)?;
    let uid = Owner::own().uid;
    let me = Viewer::User { uid, spaces: Vec::new() };
    let sql = format!(
        "SELECT * FROM sessions WHERE missing = 0 AND owner = {uid} ORDER BY updated_at DESC, id DESC LIMIT 51"
    );
    beside("list, a page of 50", root, &sql, || {
        Ok(db.ask(|q| q.list(&ListQuery::newest(me.clone(), 50)))?.items.len())
    })?;
    for (name, text, expression) in [
        ("search, a rare word", "w7abc", "\"w7abc\""),
        ("search, a common word", "w3f", "\"w3f\""),
        ("search, two words", "w7ab w3f", "\"w7ab\" AND \"w3f\""),
        ("search, in nearly every message", "w1", "\"w1\""),
    ] {
        let sql = format!(
            "SELECT s.id, m.seq, bm25(message_text) AS score, snippet(message_text, 0, '[', ']', '…', 24)
             FROM message_text JOIN messages AS m ON m.key = message_text.rowid JOIN sessions AS s ON s.key = m.session
             WHERE message_text MATCH '{expression}' AND s.owner = {uid} AND m.superseded = 0
             ORDER BY score LIMIT 20"
        );
        beside(name, root, &sql, || {
            Ok(db.ask(|q| q.search(&SearchQuery::new(me.clone(), text, 20)))?.items.len())
        })?;
    }
    Ok(())
}
