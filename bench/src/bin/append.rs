//! Durable appends at 1, 8 and 64 sessions writing: the journal with JSON and rules, beside the same
//! file-per-session scheme that writes ready bytes. Rounds alternate, so that both meet the same disk.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ctx_bench::{row, target};
use ctx_journal::{FileJournal, Journal, LogPath, Owner, RealDisk};
use ctx_session::command::{Admission, PostMessage, Progress, RunContext};
use ctx_session::record::{FinishReason, LimitHit, LimitScope, Scope, SessionBody};
use ctx_session::rules::{Create, Given, create};
use ctx_session::{
    Body, Command, IdSource, Limits, MessageId, Name, Record, Session, SessionId, Timestamp, Ulid,
};

const ROUND: Duration = Duration::from_millis(700);
const ROUNDS: usize = 5;
const TEXT: &str =
    "a line of an answer, about as long as such lines are, so that the record has some body to it";

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for sessions in [1, 8, 64] {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            ours.push(measure(sessions, &|n, stop| {
                ours_once(dir.path(), &format!("{sessions}-{round}-{n}"), stop)
            }));
            plain.push(measure(sessions, &|n, stop| {
                plain_once(dir.path(), &format!("p{sessions}-{round}-{n}"), stop)
            }));
        }
        let (ours, plain) = (median(ours), median(plain));
        row(
            &format!("durable appends, {sessions} sessions"),
            &format!("{ours:.0}/s"),
            &format!("{plain:.0}/s, same scheme without JSON and rules"),
            &format!("{:.2}", ours / plain),
            &target("≥ 0.80", ours / plain >= 0.8),
        );
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Appends a second, by as many threads as there are sessions.
fn measure(sessions: usize, once: &(dyn Fn(usize, &AtomicBool) -> u64 + Sync)) -> f64 {
    let stop = AtomicBool::new(false);
    let total = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for n in 0..sessions {
            let (stop, total) = (&stop, &total);
            scope.spawn(move || total.fetch_add(once(n, stop), Ordering::Relaxed));
        }
        std::thread::sleep(ROUND);
        stop.store(true, Ordering::Relaxed);
    });
    total.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

fn plain_once(dir: &Path, name: &str, stop: &AtomicBool) -> u64 {
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join(name)).expect("a file");
    let line = format!(
        "{{\"schema_version\":1,\"seq\":1,\"time\":\"2026-11-15T06:00:00.000Z\",\"type\":\"assistant_finished\",\"turn_id\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"message_id\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"text\":\"{TEXT}\",\"finish_reason\":\"stop\"}}\n"
    );
    let mut appends = 0;
    while !stop.load(Ordering::Relaxed) {
        file.write_all(line.as_bytes()).expect("a write");
        file.sync_data().expect("a sync");
        appends += 1;
    }
    appends
}

fn ours_once(dir: &Path, name: &str, stop: &AtomicBool) -> u64 {
    let journal = FileJournal::new(Arc::new(RealDisk::new(dir).expect("a root")));
    let log = LogPath::new(format!("{name}/events.jsonl")).expect("a path");
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let limits = Limits::default();
    let mut ids = IdSource::new(7);
    let now = Timestamp::from_millis(1_794_722_400_000);
    let meta = create(new_session(&mut ids, now)).records;
    let lines: Vec<String> = meta.iter().map(Body::to_json).collect();
    let writer = journal.create(&log, Owner::user(uid, gid), now, &lines).expect("a log");
    let Some(Body::Session(SessionBody::Meta(meta))) = meta.into_iter().next() else {
        panic!("a first record")
    };
    let mut session = Session::new(*meta, 0, now);
    let mut carry_out = |session: &mut Session, command: &Command| {
        let mut given = Given { now, ids: &mut ids, limits: &limits };
        let decision = session.decide(command, &mut given).expect("a decision");
        let lines: Vec<String> = decision.records.iter().map(Body::to_json).collect();
        let committed = writer.append(session.next_seq, now, &lines).expect("an append");
        for (seq, body) in (committed.first..).zip(decision.records) {
            session.apply(&Record { seq, time: now, body });
        }
    };
    carry_out(&mut session, &Command::PostMessage(message()));
    let run = session.current_run().expect("a run").id;
    let progress = Progress::AssistantFinished {
        message_id: MessageId(Ulid(9)),
        text: TEXT.to_owned(),
        finish_reason: FinishReason::Stop,
        usage: None,
    };
    let command = Command::Progress { run, caller: None, progress };
    let mut appends = 0;
    while !stop.load(Ordering::Relaxed) {
        carry_out(&mut session, &command);
        appends += 1;
    }
    appends
}

fn new_session(ids: &mut IdSource, now: Timestamp) -> Create {
    Create {
        id: SessionId(ids.next(now)),
        name: Name::new("bench").ok(),
        scope: Scope::Private,
        space: None,
        owner: 0,
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
    }
}

fn message() -> PostMessage {
    let context = RunContext {
        model: "debug/echo".to_owned(),
        cwd: "/work".to_owned(),
        policy: Vec::new(),
        cage: None,
        sources: Vec::new(),
        prompts: Vec::new(),
        redact: None,
        approvals: None,
    };
    let running = [LimitScope::PerProject, LimitScope::PerOperator];
    let running = running.map(|scope| LimitHit { scope, running: 1, limit: 4 });
    PostMessage {
        text: "go".to_owned(),
        images: Vec::new(),
        wishes: Default::default(),
        client_id: None,
        model_override: None,
        cwd: None,
        admission: Admission::Granted { context, running },
        by: 0,
    }
}
