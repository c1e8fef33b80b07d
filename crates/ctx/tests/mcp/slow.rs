//! A host that does not read: the server waits for it and does not grow, and everything comes when it reads again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::until;

use crate::support::place;

/// A server whose stdout is read only when the test wants to.
struct Slow {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Slow {
    fn start(place: &testkit::Place) -> Slow {
        let mut command = place.command(&["mcp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let mut slow = Slow { child, stdin, stdout };
        let about = json!({"name": "slow", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about});
        slow.say(request(1, "initialize", hello).as_bytes());
        slow.hear();
        slow
    }

    fn with_shell(place: &testkit::Place) -> Slow {
        let mut slow = Slow::start(place);
        slow.say(call(2, "session_create", json!({})).as_bytes());
        slow.hear();
        slow
    }

    /// With a shell whose first command has printed more than a page.
    fn with_output(place: &testkit::Place) -> Slow {
        let mut slow = Slow::with_shell(place);
        let print = "head -c 300000 /dev/zero | tr '\\0' 'x' | fold";
        slow.say(call(3, "session_exec", json!({"session_id": "1_local", "command": print})).as_bytes());
        slow.hear();
        slow
    }

    fn say(&mut self, line: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(line).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Ready when the server has ended by itself.
    fn ended(&mut self) {
        until("the end of the server", || self.child.try_wait().unwrap());
    }

    /// What it holds in memory, in MiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    /// Writes lines as fast as they are taken. Stdin stays open until what is returned goes.
    fn say_all(&mut self, lines: Vec<String>) -> mpsc::Sender<()> {
        let mut stdin = self.stdin.take().unwrap();
        let (keep, gone) = mpsc::channel();
        std::thread::spawn(move || {
            let said = lines.iter().try_for_each(|line| stdin.write_all(line.as_bytes()));
            // Nothing is sent: it ends with the test, or with a server that reads no more.
            let _ = said.map(|()| gone.recv());
        });
        keep
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(id: usize, method: &str, params: Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

fn call(id: usize, tool: &str, arguments: Value) -> String {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

/// Waits until a number has not changed for a moment.
fn settled<N: PartialEq + Copy>(mut number: impl FnMut() -> N) -> N {
    let (mut last, mut since) = (number(), Instant::now());
    until("a moment of rest", || {
        let now = number();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() > Duration::from_millis(700)).then_some(())
    });
    last
}

#[test]
fn a_host_that_reads_nothing_is_not_read_and_gets_every_answer_when_it_reads_again() {
    let place = place();
    let mut slow = Slow::with_output(&place);
    let before = slow.memory();
    let page = |id| call(id, "session_output", json!({"session_id": "1_local", "call": 1, "limit": 65_536}));
    let all = 900;
    let _open = slow.say_all((0..all).map(|n| page(100 + n)).collect());
    settled(|| slow.memory());
    let after = slow.memory();
    assert!(after < before + 64, "it grew from {before} to {after} MiB");

    let mut ids: Vec<u64> = (0..all).map(|_| slow.hear()["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (100..100 + all as u64).collect::<Vec<_>>());
    assert!(slow.memory() < before + 64, "{} MiB after {before}", slow.memory());
}

#[test]
fn commands_of_a_host_that_reads_nothing_wait_and_all_run_when_it_reads() {
    let place = place();
    let mut slow = Slow::with_shell(&place);
    let marks = place.path("marks");
    let print = format!("echo x >> {}; head -c 900000 /dev/zero | tr '\\0' 'x' | fold", marks.display());
    let budget = json!({"max_chars": 1_000_000});
    let exec =
        |id| call(id, "session_exec", json!({"session_id": "1_local", "command": print, "budget": budget}));
    let all = 60;
    let _open = slow.say_all((0..all).map(|n| exec(10 + n)).collect());
    let ran = || std::fs::read_to_string(&marks).map_or(0, |text| text.lines().count());
    until("the first command", || (ran() > 0).then_some(()));
    let some = settled(ran);
    assert!((1..50).contains(&some), "{some} commands ran for a host that reads nothing");
    for n in 0..all {
        let answer = slow.hear();
        assert_eq!(answer["id"], 10 + n, "in their order");
        assert_eq!(answer["result"]["structuredContent"]["exit_code"], 0);
    }
    assert_eq!(ran(), all);
}

#[test]
fn a_host_that_closes_stdin_and_reads_nothing_does_not_keep_the_server() {
    let place = place();
    let mut slow = Slow::with_output(&place);
    for n in 0..240 {
        let page = json!({"session_id": "1_local", "call": 1, "limit": 65_536});
        slow.say(call(10 + n, "session_output", page).as_bytes());
    }
    // The server has stopped reading when it takes no more; its stdin has no end that it could come to.
    let blanks = [b' '; 1 << 16];
    let stdin = slow.stdin.as_mut().unwrap();
    rustix::fs::fcntl_setfl(&*stdin, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut taken = 0;
    settled(|| {
        taken += stdin.write(&blanks).unwrap_or(0);
        taken
    });
    slow.stdin = None;
    slow.ended();
}

/// The process whose pid a command writes to a file.
fn written_pid(path: &Path) -> String {
    until("a pid", || {
        let text = std::fs::read_to_string(path).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    })
}

fn is_gone(pid: &str) -> bool {
    !Path::new("/proc").join(pid).exists()
}

#[test]
fn a_cancelled_command_is_stopped_though_its_progress_is_not_read() {
    let place = place();
    let mut slow = Slow::with_shell(&place);
    // More than the pipe holds, and far less than makes the server stop reading.
    let (third, pid) = (place.path("third"), place.path("pid"));
    let print = "head -c 90000 /dev/zero | tr '\\0' 'x' | fold";
    for (id, command) in [(3, print), (4, print), (5, &format!("touch {}", third.display()))] {
        slow.say(call(id, "session_exec", json!({"session_id": "1_local", "command": command})).as_bytes());
    }
    until("the third command", || third.exists().then_some(()));
    let command = format!("sh -c 'echo $$ >{}; exec sleep 600'", pid.display());
    let arguments = json!({"session_id": "1_local", "command": command});
    let exec = json!({"name": "session_exec", "arguments": arguments, "_meta": {"progressToken": "p"}});
    slow.say(request(9, "tools/call", exec).as_bytes());
    let pid = written_pid(&pid);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    slow.say(format!("{cancel}\n").as_bytes());
    until("the command's end", || is_gone(&pid).then_some(()));
}

#[test]
fn a_host_that_reads_no_more_does_not_keep_the_server_with_its_stdin() {
    let place = place();
    let mut slow = Slow::with_shell(&place);
    let pid = place.path("pid");
    let command = format!("sleep 300 & echo $! >{}; wait", pid.display());
    slow.say(call(3, "session_exec", json!({"session_id": "1_local", "command": command})).as_bytes());
    let pid = written_pid(&pid);
    slow.stdout = None;
    slow.ended();
    until("the end of its job", || is_gone(&pid).then_some(()));
    assert!(slow.stdin.is_some(), "its stdin was open");
}
