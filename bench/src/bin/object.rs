//! What the object runner adds to a call: an object of each kind run by itself, beside `/bin/true` and, for a model, beside
//! the same request on a socket that is open already.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ctx_bench::history::Outcome;
use ctx_bench::{Daemon, millis, percentile, row, target};

const ROUNDS: usize = 200;
const ADDS_MAX: Duration = Duration::from_millis(10);

fn main() -> Outcome<()> {
    let daemon = Daemon::fresh(&[]);
    let object = |path: &str| daemon.root.join(path).display().to_string();
    // The sockets of models come after those of agents.
    let deadline = Instant::now() + Duration::from_secs(10);
    let socket = loop {
        match UnixStream::connect(object("model/debug/echo.sock")) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            connected => break connected?,
        }
    };
    let mut socket = BufReader::new(socket);
    let work = daemon.root.with_extension("work");
    std::fs::write(work.join("a.txt"), "a\n")?;
    let path = serde_json::json!({"path": work.join("a.txt")}).to_string();
    let (mut nothing, mut asked, mut model, mut tool) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        nothing.push(run(&["/bin/true"])?);
        asked.push(ask(&mut socket, round)?);
        model.push(run(&[&object("model/debug/echo"), "hello"])?);
        tool.push(run(&[&object("tool/fs.read"), &path])?);
    }
    let nothing = percentile(&mut nothing, 50);
    let asked = percentile(&mut asked, 50);
    for (what, times, work) in [
        ("model/debug/echo hello", &mut model, asked),
        ("tool/fs.read of a small file", &mut tool, Duration::ZERO),
    ] {
        let ours = percentile(times, 50);
        let adds = ours.saturating_sub(nothing).saturating_sub(work);
        row(
            &format!("object runner: {what}, p50"),
            &millis(ours),
            &format!("{} /bin/true; {} the request on an open socket", millis(nothing), millis(work)),
            &format!("{} added", millis(adds)),
            &target("< 10 ms added", adds < ADDS_MAX),
        );
    }
    Ok(())
}

fn run(words: &[&str]) -> Outcome<Duration> {
    let (program, arguments) = words.split_first().ok_or("no program")?;
    let begun = Instant::now();
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let took = begun.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{program} ended with {status}").into()) }
}

/// One message in a temp session of its own, until it is done.
fn ask(socket: &mut BufReader<UnixStream>, round: usize) -> Outcome<Duration> {
    let begun = Instant::now();
    let request = serde_json::json!({"op": "send", "scope": "temp", "session": format!("s{}", round % 32), "input": "hello"});
    writeln!(socket.get_mut(), "{request}")?;
    let mut line = String::new();
    loop {
        line.clear();
        if socket.read_line(&mut line)? == 0 {
            return Err("the daemon closed the connection".into());
        }
        if line.contains("\"type\":\"done\"") {
            return Ok(begun.elapsed());
        }
    }
}
