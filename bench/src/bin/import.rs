//! Importing: a whole import with full text behind it. The store is made of copies of a real session, each with ids of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ctx_bench::history::Outcome;
use ctx_bench::{Daemon, ctx, row, target};
use ctx_interop::Agent;
use ctx_views::db::IndexReader;

/// What is imported.
const IMPORT_BYTES: usize = 100 << 20;
const PATIENCE: Duration = Duration::from_secs(600);

fn fixture(agent: Agent) -> Outcome<Vec<u8>> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../crates/ctx-interop/tests/fixtures/{agent}/large/files"));
    let store = ctx_interop::store::list(agent, &files, ctx_session::Timestamp::default());
    let entry = store.entries.first().ok_or("the fixture is not there")?;
    Ok(std::fs::read(&entry.path)?)
}

/// The session once more, with other ids: every copy is a session of its own.
fn copy(text: &str, number: usize) -> String {
    // Ids are hexadecimal: their beginnings are counted up, which leaves their form as it is.
    let mut known: HashMap<&str, String> = HashMap::new();
    let mut made = String::with_capacity(text.len());
    for part in text.split_inclusive('"') {
        let id = part.trim_end_matches('"');
        let is_id = id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if is_id {
            let other =
                known.entry(id).or_insert_with(|| format!("{number:08x}{}", id.get(8..).unwrap_or_default()));
            made.push_str(other);
            made.push('"');
        } else {
            made.push_str(part);
        }
    }
    made
}

/// Until everything of it is found.
fn main() -> Outcome<()> {
    let bytes = fixture(Agent::Codex)?;
    let text = std::str::from_utf8(&bytes)?;
    let dir = tempfile::tempdir()?;
    let sessions = dir.path().join(".codex/sessions/2026/11/15");
    std::fs::create_dir_all(&sessions)?;
    let mut written = 0;
    let mut count = 0;
    while written < IMPORT_BYTES {
        count += 1;
        let one = copy(text, count);
        let name = format!("rollout-2026-11-15T06-15-27-{count:08x}-afbf-7fa2-b5ac-be1be4e1856d.jsonl");
        std::fs::write(sessions.join(name), &one)?;
        written += one.len();
    }
    let daemon = Daemon::fresh(&[]);
    let begun = Instant::now();
    let mut import = Command::new(ctx())
        .args(["import", "--from", "codex", "--path"])
        .arg(dir.path())
        .env("CTX_ROOT", &daemon.root)
        .env("XDG_STATE_HOME", dir.path().join("state"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (mut client, mut server) = (0, 0);
    let ended = loop {
        client = client.max(ctx_bench::memory_kb(import.id()));
        server = server.max(daemon.memory_kb());
        if let Some(status) = import.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let imported = begun.elapsed();
    if !ended.success() {
        return Err("the import failed".into());
    }
    let index = IndexReader::open(&PathBuf::from(&daemon.root).join(".state/index.db"))?;
    while index.queries().known_logs()?.len() < count || index.queries().unread()? > 0 {
        server = server.max(daemon.memory_kb());
        if begun.elapsed() > PATIENCE {
            return Err("the full text did not come".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let (megabytes, whole) = (written as f64 / 1e6, begun.elapsed().as_secs_f64());
    let rate = megabytes / whole;
    row(
        &format!("import of {count} sessions of codex, {megabytes:.0} MB, until all of it is found"),
        &format!("{rate:.0} MB/s"),
        &format!("{:.0} MB/s until it is durable", megabytes / imported.as_secs_f64()),
        &format!("most memory: {} MB the command, {} MB the daemon", client / 1024, server / 1024),
        &target("≥ 20 MB/s, bounded", rate >= 20.0),
    );
    Ok(())
}
