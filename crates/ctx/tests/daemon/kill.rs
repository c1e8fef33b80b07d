//! `kill -9`, again and again, under clients that retry: nothing acknowledged is lost, nothing is there twice.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::rounds;

use super::support::{Client, Daemon, connect, read_messages, script, until};

const CLIENTS: usize = 8;

/// A message that the daemon has said is safe.
struct Acknowledged {
    session: String,
    id: String,
    input: String,
    run: String,
}

/// A client that does not give up on a message until it has its run.
struct Stubborn<'a> {
    socket: PathBuf,
    session: String,
    connection: Option<Client>,
    acknowledged: &'a AtomicU64,
}

impl Stubborn<'_> {
    fn connection(&mut self) -> &mut Client {
        if self.connection.is_none() {
            let deadline = Instant::now() + super::support::DEADLINE;
            let client = loop {
                match connect(&self.socket) {
                    Ok(client) => break client,
                    Err(error) => assert!(Instant::now() < deadline, "no daemon for too long: {error}"),
                }
                std::thread::sleep(Duration::from_millis(3));
            };
            self.connection = Some(client);
        }
        self.connection.as_mut().unwrap()
    }

    fn post(&mut self, id: &str, input: &str) -> String {
        let request = json!({
            "op": "send", "session": self.session, "id": id, "input": input, "model_override": "debug:script",
        });
        loop {
            if self.connection().try_ask(&request).is_err() {
                self.connection = None;
                continue;
            }
            match self.connection().try_frame() {
                Ok(Some(frame)) if frame["type"] == "start" => {
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                    return frame["run"].as_str().unwrap().to_owned();
                }
                Ok(Some(frame)) if frame["code"] == "EBUSY" => std::thread::sleep(Duration::from_millis(2)),
                Ok(Some(frame)) => panic!("neither a run nor busy: {frame}"),
                Ok(None) | Err(_) => self.connection = None,
            }
        }
    }

    /// Reads a run to its end, unless the daemon goes first.
    fn read_to_end(&mut self, run: &str) {
        while let Some(connection) = &mut self.connection {
            match connection.try_frame() {
                Ok(Some(frame)) => {
                    assert_eq!(frame["run"], run, "a frame of another run: {frame}");
                    if frame["type"] == "done" {
                        return;
                    }
                }
                Ok(None) | Err(_) => self.connection = None,
            }
        }
    }
}

fn message(client: usize, number: u64) -> String {
    let text = format!("message {number} of client {client}");
    match number % 3 {
        // A run of several commits, so that a kill meets it in the middle.
        0 => script(json!([
            {"text": text}, {"tool": {"name": "fs.list", "input": {"path": "/work"}}}, {"sleep_ms": 3}, {"text": "after"}
        ])),
        _ => text,
    }
}

fn work(client: usize, socket: PathBuf, stop: &AtomicBool, acknowledged: &AtomicU64) -> Vec<Acknowledged> {
    // Two pairs share a session: their messages must not mix either.
    let session = format!("s{}", if client < 4 { client / 2 } else { client });
    let mut stubborn = Stubborn { socket, session: session.clone(), connection: None, acknowledged };
    let mut all: Vec<Acknowledged> = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let (id, input) = (format!("c{client}-{number}"), message(client, number));
        let run = stubborn.post(&id, &input);
        match number % 4 {
            // Leaves in the middle.
            0 => stubborn.connection = None,
            // Asks again, as if it had not heard.
            1 => {
                stubborn.connection = None;
                assert_eq!(stubborn.post(&id, &input), run, "a retry returns the run of the first time");
                stubborn.read_to_end(&run);
            }
            _ => stubborn.read_to_end(&run),
        }
        all.push(Acknowledged { session: session.clone(), id, input, run });
    }
    for old in all.iter().rev().take(5) {
        stubborn.connection = None;
        assert_eq!(
            stubborn.post(&old.id, &old.input),
            old.run,
            "a retry after restarts returns the same run"
        );
    }
    all
}

/// Kills the daemon whenever it has got some work done since it came up, at a moment nobody has chosen.
fn kill_again_and_again(daemon: &mut Daemon, acknowledged: &AtomicU64, kills: Range<u64>) {
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    for kill in kills {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let until = acknowledged.load(Ordering::SeqCst) + 1 + seed % 12;
        let deadline = Instant::now() + super::support::DEADLINE;
        while acknowledged.load(Ordering::SeqCst) < until {
            assert!(Instant::now() < deadline, "no progress before kill {kill}: {}", daemon.stderr());
            std::thread::sleep(Duration::from_micros(200 + seed % 3_000));
        }
        daemon.kill();
        daemon.start_again();
    }
}

fn check_session(dir: &Path, acknowledged: &[&Acknowledged], log: &super::support::Log) {
    log.every_run_ends_once();
    assert_eq!(log.state(), "idle", "{}", dir.display());
    log.agrees_with(&read_messages(dir));
    assert_eq!(std::fs::read_to_string(dir.join("state")).unwrap(), "idle\n");
    let mut by_id: HashMap<&str, &Value> = HashMap::new();
    for user in log.of_type("user") {
        let again = by_id.insert(user["client_id"].as_str().unwrap(), user);
        assert!(again.is_none(), "a message is there twice: {user}");
    }
    for message in acknowledged {
        let user = by_id.get(message.id.as_str()).unwrap_or_else(|| panic!("{} was lost", message.id));
        assert_eq!((&user["text"], &user["turn_id"]), (&json!(message.input), &json!(message.run)));
    }
}

#[test]
fn every_acknowledged_message_is_there_once_after_many_kills() {
    let kills = rounds(34);
    let mut daemon =
        Daemon::with(&[("CTX_LIMITS_RUNNING_PER_PROJECT", "64"), ("CTX_LIMITS_RUNNING_PER_OPERATOR", "64")]);
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let socket = daemon.socket();
    let messages: Vec<Acknowledged> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (socket, stop, acknowledged) = (socket.clone(), &stop, &acknowledged);
                scope.spawn(move || work(client, socket, stop, acknowledged))
            })
            .collect();
        kill_again_and_again(&mut daemon, &acknowledged, kills.clone());
        stop.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    daemon.kill();
    daemon.start_again();
    // Recovery leaves nothing running, and the files show it before anyone has asked.
    let sessions: HashSet<&str> = messages.iter().map(|message| message.session.as_str()).collect();
    for session in sessions {
        let of_session: Vec<&Acknowledged> =
            messages.iter().filter(|message| message.session == session).collect();
        check_session(&daemon.session(session), &of_session, &daemon.log(session));
        assert_eq!(daemon.shown(session)["state"], "idle");
    }
    assert!(messages.len() as u64 >= kills.end, "only {} messages", messages.len());
}

#[test]
fn what_was_on_the_screen_survives_kill_9() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "as far as it came"}, {"sleep_ms": 600_000}]));
    client.until("delta");
    let kept = daemon.session("default").join("context/answer.json");
    until("the text to be kept", || {
        std::fs::read_to_string(&kept).ok().filter(|text| text.contains("as far as it came"))
    });
    daemon.kill();
    daemon.start_again();
    let log = daemon.log("default");
    let texts: Vec<&str> =
        log.of_type("assistant_finished").iter().filter_map(|said| said["text"].as_str()).collect();
    assert_eq!(texts, ["as far as it came"]);
    assert_eq!(log.of_type("failed").len(), 1);
    assert!(daemon.said_by(&["history"]).contains("as far as it came"));
    // A second start has nothing to add.
    daemon.kill();
    daemon.start_again();
    assert_eq!(daemon.log("default").of_type("failed").len(), 1);
    log.every_run_ends_once();
}

/// The seed: "runs in `running` with a committed response" are done.
#[test]
fn a_run_with_a_committed_response_is_done_after_a_crash() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "the whole answer"}]));
    client.until_done();
    daemon.kill();
    // As if it had been killed between the answer and the end of its run.
    let path = daemon.session("default").join("events.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let answer = lines.iter().position(|line| line.contains("\"assistant_finished\"")).unwrap();
    assert!(lines[answer + 1..].iter().any(|line| line.contains("\"run_finished\"")), "{text}");
    std::fs::write(&path, lines[..=answer].join("\n") + "\n").unwrap();
    daemon.start_again();
    let log = daemon.log("default");
    assert_eq!((log.of_type("run_finished").len(), log.of_type("failed").len()), (1, 0), "{:?}", log.records);
    log.every_run_ends_once();
    assert_eq!((log.state(), log.of_type("assistant_finished").len()), ("idle", 1));
    let took = log.of_type("run_finished")[0]["duration_ms"].as_u64().unwrap();
    let (began, ended) = (time_of(&lines, "\"user\""), time_of(&lines, "\"assistant_finished\""));
    assert!(took <= ended - began, "{took} ms, for nobody worked on it after its last record");
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "the whole answer"}]));
    let again = client.until_done();
    assert!(super::support::text_of(&again).is_empty() || again.len() < 10, "not asked again: {again:?}");
    assert_eq!(daemon.log("default").of_type("run_created").len(), 1, "the same message is the same run");
}

/// When the first record of a type was written, in milliseconds of its day.
fn time_of(lines: &[&str], kind: &str) -> u64 {
    let line = lines.iter().find(|line| line.contains(&format!("\"type\":{kind}"))).unwrap();
    let record: serde_json::Value = serde_json::from_str(line).unwrap();
    let clock = record["time"].as_str().unwrap()[11..23].to_owned();
    let part = |range: std::ops::Range<usize>| clock[range].parse::<u64>().unwrap();
    ((part(0..2) * 60 + part(3..5)) * 60 + part(6..8)) * 1000 + part(9..12)
}
