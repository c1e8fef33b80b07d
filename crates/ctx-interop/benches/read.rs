//! Throughput of readers beside `jq -c .`: `cargo bench -p ctx-interop --bench read`.
//!
//! In MB for each second of CPU time, because other work on the machine must not count, on copies of a real session, each with ids of
//! its own. The lines are rows of the table in docs/performance.md.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ctx_interop::{Agent, claude, codex};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 5;
/// What a reader reads at once.
const READ_BYTES: usize = 50 << 20;

fn main() -> Outcome<()> {
    for agent in [Agent::Codex, Agent::Claude] {
        reader(agent)?;
    }
    Ok(())
}

fn fixture(agent: Agent) -> Outcome<Vec<u8>> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{agent}/large/files"));
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

fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
}

/// The children's time of the processor so far.
fn children() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok(Duration::from_millis((ticks(13) + ticks(14)) * 10))
}

/// MB of a file per second of one core, in the best of several rounds by turns.
fn reader(agent: Agent) -> Outcome<()> {
    let bytes = fixture(agent)?;
    let mut whole = Vec::with_capacity(READ_BYTES + bytes.len());
    while whole.len() < READ_BYTES {
        let text = copy(std::str::from_utf8(&bytes)?, whole.len() / bytes.len());
        whole.extend_from_slice(text.as_bytes());
    }
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("all.jsonl");
    std::fs::write(&path, &whole)?;
    let megabytes = whole.len() as f64 / 1e6;
    let (mut ours, mut jq) = (f64::MAX, f64::MAX);
    let mut events = 0;
    for _ in 0..ROUNDS {
        let begun = cpu();
        events = match agent {
            Agent::Codex => codex::read(&whole, "all.jsonl").0.events.len(),
            _ => claude::read(&whole, "all.jsonl").events.len(),
        };
        ours = ours.min((cpu() - begun).as_secs_f64());
        let begun = children()?;
        let done = Command::new("jq").args(["-c", "."]).arg(&path).stdout(Stdio::null()).status()?;
        if !done.success() {
            return Err("jq failed".into());
        }
        jq = jq.min((children()? - begun).as_secs_f64());
    }
    let (ours, jq) = (megabytes / ours, megabytes / jq);
    let missed = if ours < 100.0 { ", missed" } else { "" };
    println!(
        "| reading {megabytes:.0} MB of {agent}, {events} events, of one core | {ours:.0} MB/s | jq -c . {jq:.0} MB/s | {:.1}× faster | ≥ 100 MB/s{missed} |",
        ours / jq
    );
    Ok(())
}
