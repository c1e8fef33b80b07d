//! A fork of 1,000 messages in 25 MB beside a plain `cp` of the log: by the journal, and as the whole command `ctx
//! fork` beside the whole command `cp`. A fork is on disk when it is done, a copy is not; `cp` with a sync is
//! shown too. Rounds alternate, so that all meet the same disk.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_bench::{Daemon, ctx, millis, percentile, row, target};
use ctx_journal::{FileJournal, Fork, ForkEnds, Journal, LogPath, Owner, RealDisk};
use ctx_session::record::{
    AssistantFinished, FinishReason, Forked, MessageBody, RunBody, RunCreated, RunFinished, RunKind, Scope,
    SessionBody, Usage, User,
};
use ctx_session::rules::{Create, create};
use ctx_session::{Body, IdSource, MessageId, Name, RunId, SessionId, Timestamp};
use ctx_views::db::IndexReader;

const MESSAGES: u64 = 1_000;
const BYTES: usize = 25 << 20;
const ROUNDS: u64 = 15;
const SOURCE: &str = "source";
/// Until what was written is on the disk.
const WRITTEN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("root");
    std::fs::create_dir(&root).expect("a root");
    let source = shelf_log(SOURCE);
    fill(&root, &source);
    let path = root.join(source.as_str());
    let size = std::fs::metadata(&path).expect("the log").len() >> 20;
    let (mut forks, mut copies, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    let journal = FileJournal::new(Arc::new(RealDisk::new(&root).expect("a root")));
    fork_once(&journal, &source, ROUNDS);
    for round in 0..ROUNDS {
        forks.push(fork_once(&journal, &source, round));
        copies.push(copied(&path, &dir.path().join(format!("copy{round}"))));
        synced.push(copied_and_synced(&path, &dir.path().join(format!("synced{round}"))));
    }
    report(&format!("fork of {MESSAGES} messages, {size} MB: the journal"), forks, &copies, &synced);
    let [commands, copies, synced] = whole_commands(&root, &path, dir.path());
    report(&format!("fork of {MESSAGES} messages, {size} MB: `ctx fork`"), commands, &copies, &synced);
}

fn copied(from: &Path, to: &Path) -> Duration {
    let took = timed(Command::new("cp").arg(from).arg(to));
    std::fs::remove_file(to).expect("the copy");
    took
}

fn copied_and_synced(from: &Path, to: &Path) -> Duration {
    let script = r#"cp "$1" "$2" && sync "$2""#;
    let took = timed(Command::new("sh").args(["-c", script, "sh"]).arg(from).arg(to));
    std::fs::remove_file(to).expect("the copy");
    took
}

fn report(work: &str, mut ours: Vec<Duration>, copies: &[Duration], synced: &[Duration]) {
    let (ours, mut copies, mut synced) = (percentile(&mut ours, 50), copies.to_vec(), synced.to_vec());
    let (copy, synced) = (percentile(&mut copies, 50), percentile(&mut synced, 50));
    let ratio = ours.as_secs_f64() / copy.as_secs_f64();
    row(
        work,
        &millis(ours),
        &format!("{} cp, {} cp and sync", millis(copy), millis(synced)),
        &format!("{ratio:.2}"),
        &target("≤ 3", ratio <= 3.0),
    );
}

fn shelf_log(name: &str) -> LogPath {
    let uid = rustix::process::geteuid().as_raw();
    LogPath::new(format!("home/{uid}/agent/coder/session/{name}/events.jsonl")).expect("a path")
}

fn timed(command: &mut Command) -> Duration {
    let begun = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("a command");
    assert!(status.success(), "{command:?}");
    begun.elapsed()
}

/// A session of runs that each say their share of the bytes.
fn fill(root: &Path, log: &LogPath) {
    let journal = FileJournal::new(Arc::new(RealDisk::new(root).expect("a root")));
    let now = Timestamp::from_millis(1_794_722_400_000);
    let mut ids = IdSource::new(7);
    let meta = create(Create {
        id: SessionId(ids.next(now)),
        name: Name::new(SOURCE).ok(),
        scope: Scope::Private,
        space: None,
        owner: owner().uid,
        agent: Name::new("coder").ok(),
        project: Name::new("default").expect("a name"),
        cwd: "/work".to_owned(),
        dir: None,
        workspace: None,
        model: "debug/echo".to_owned(),
        dsl: None,
        client: None,
        origin: None,
        requested: None,
        app: "bench".to_owned(),
    });
    let first: Vec<String> = meta.records.iter().map(Body::to_json).collect();
    let writer = journal.create(log, owner(), now, &first).expect("a log");
    let text = "all work and no play ".repeat(BYTES / (MESSAGES as usize) / 21);
    for _ in 0..MESSAGES / 2 {
        let turn_id = RunId(ids.next(now));
        let mut message_id = || MessageId(ids.next(now));
        let usage = Usage::default();
        let records = [
            Body::Message(MessageBody::User(User {
                turn_id,
                message_id: message_id(),
                client_id: None,
                text: text.clone(),
                images: Vec::new(),
            })),
            Body::Run(RunBody::Created(RunCreated {
                turn_id,
                kind: RunKind::Message,
                continues: None,
                strategy: None,
                wishes: Default::default(),
            })),
            Body::Message(MessageBody::AssistantFinished(AssistantFinished {
                turn_id,
                message_id: message_id(),
                text: text.clone(),
                finish_reason: FinishReason::Stop,
                usage: None,
                caller: None,
            })),
            Body::Run(RunBody::Finished(RunFinished { turn_id, duration_ms: 1, usage, finish_reason: None })),
        ];
        let lines: Vec<String> = records.iter().map(Body::to_json).collect();
        writer.append_soon(now, &lines).expect("an append");
    }
    writer.flush().expect("a sync");
}

fn owner() -> Owner {
    Owner::own()
}

fn fork_once(journal: &FileJournal, source: &LogPath, round: u64) -> Duration {
    let to = shelf_log(&format!("fork{round}"));
    let time = Timestamp::from_millis(1_794_722_500_000);
    let fork = Fork { from: source, at: None, to: &to, owner: owner(), time };
    let head = journal.head(source).expect("a log").expect("a first record");
    let Some((_, body)) = head.text.split_once(r#","type":"#) else { panic!("{}", head.text) };
    let first = format!(r#"{{"type":{body}"#);
    let begun = Instant::now();
    let ends = |_: u64| ForkEnds {
        first: first.clone(),
        last: Body::Session(SessionBody::Forked(Forked { by: 0 })).to_json(),
    };
    journal.fork(&fork, &ends).expect("a fork");
    let took = begun.elapsed();
    // The next round and the daemon need not read it.
    journal.remove(&to).expect("a removal");
    took
}

/// Forks by the command, copies, and copies with a sync: each on a machine that has just waited.
fn whole_commands(root: &Path, log: &Path, dir: &Path) -> [Vec<Duration>; 3] {
    let daemon = Daemon::on(root, &[]);
    let fork = |name: &str| {
        let mut command = Command::new(ctx());
        command.arg("--root").arg(&daemon.root).args(["fork", "coder/source", "--name", name]);
        timed(&mut command)
    };
    fork("warm");
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    let [forks, copies, synced] = &mut all;
    for round in 0..ROUNDS {
        // What follows behind a fork, its files and its place in the index, belongs to no one's waiting.
        wait_until_indexed(&daemon.root, round + 2);
        forks.push(fork(&format!("command{round}")));
        wait_until_indexed(&daemon.root, round + 3);
        copies.push(copied(log, &dir.join(format!("copy-beside{round}"))));
        std::thread::sleep(WRITTEN);
        synced.push(copied_and_synced(log, &dir.join(format!("synced-beside{round}"))));
    }
    all
}

/// Until the index has all of so many sessions. Their files are written before that.
fn wait_until_indexed(root: &Path, sessions: u64) {
    let index = IndexReader::open(&root.join(".state/index.db")).expect("an index");
    let begun = Instant::now();
    let done = || {
        let queries = index.queries();
        let known = queries.known_logs().expect("the logs").len() as u64;
        known == sessions && queries.unread().expect("what is unread") == 0
    };
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "the index has not read {sessions} sessions");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(WRITTEN);
}
