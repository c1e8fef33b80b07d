//! Runs with a model behind HTTP: what the loop costs for each step beside the bare exchange, how soon a client sees the first token,
//! 200 runs at once, and an answer that comes fast. The model is a server in this process that speaks OpenAI's chat format and
//! notes when it sends what.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ctx_bench::{Client, Daemon, millis, percentile, row, target};
use serde_json::{Value, json};

/// Steps with a tool call before the last one.
const STEPS: usize = 40;
const ROUNDS: usize = 5;
const ANSWERS: usize = 200;
const AT_ONCE: usize = 200;
const TOKENS: usize = 4_000;

/// What the server answers.
#[derive(Clone, Copy)]
enum Say {
    /// A tool call for every request but each one after so many.
    Calls(usize),
    /// So many tokens, so long apart.
    Tokens(usize, Duration),
}

struct Server {
    address: SocketAddr,
    say: Mutex<Say>,
    asked: AtomicUsize,
    bytes: AtomicUsize,
    first: Mutex<Option<Instant>>,
    last: Mutex<Option<Instant>>,
}

impl Server {
    fn start() -> Arc<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Arc::new(Server {
            address,
            say: Mutex::new(Say::Calls(0)),
            asked: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            first: Mutex::new(None),
            last: Mutex::new(None),
        });
        let shared = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&shared);
                std::thread::spawn(move || while server.answer(&stream).is_ok_and(|stays| stays) {});
            }
        });
        server
    }

    fn set(&self, say: Say) {
        *self.say.lock().expect("a lock") = say;
        self.asked.store(0, Ordering::SeqCst);
    }

    /// One request and its answer.
    fn answer(&self, mut stream: &TcpStream) -> std::io::Result<bool> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::with_capacity(64 * 1024, stream);
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(false);
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        self.bytes.store(length, Ordering::SeqCst);
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )?;
        let send = |mut stream: &TcpStream, event: &Value| {
            let text = format!("data: {event}\n\n");
            stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
        };
        let choice = |delta: Value, reason: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] });
        let say = *self.say.lock().expect("a lock");
        match say {
            Say::Calls(steps) if !number.is_multiple_of(steps + 1) => {
                let call = json!({ "index": 0, "id": format!("c{number}"), "type": "function",
                    "function": { "name": "fs_stat", "arguments": "{\"path\":\".\"}" } });
                send(stream, &choice(json!({ "tool_calls": [call] }), json!("tool_calls")))?;
            }
            Say::Calls(_) => send(stream, &choice(json!({ "content": "done" }), json!("stop")))?,
            Say::Tokens(count, apart) => {
                let begun = Instant::now();
                *self.first.lock().expect("a lock") = Some(begun);
                for n in 0..count {
                    let due = apart * u32::try_from(n).unwrap_or(u32::MAX);
                    std::thread::sleep(due.saturating_sub(begun.elapsed()));
                    send(stream, &choice(json!({ "content": "word " }), Value::Null))?;
                }
                *self.last.lock().expect("a lock") = Some(Instant::now());
                send(stream, &choice(json!({}), json!("stop")))?;
            }
        }
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 10 } });
        send(stream, &usage)?;
        let done = "data: [DONE]\n\n";
        stream.write_all(format!("{:x}\r\n{done}\r\n0\r\n\r\n", done.len()).as_bytes())?;
        Ok(true)
    }
}

fn main() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("config.toml");
    let text =
        format!("[models.bench]\nkind = \"openai-chat\"\nbase_url = \"http://{}/v1\"\n", server.address);
    std::fs::write(&config, text).expect("a config file");
    let config = config.to_str().expect("a plain path");
    let limits = [
        ("CTX_CONFIG", config),
        ("CTX_LIMITS_RUNNING_PER_PROJECT", "1000"),
        ("CTX_LIMITS_RUNNING_PER_OPERATOR", "1000"),
        ("CTX_SERVE_LISTEN", "127.0.0.1:0"),
    ];
    let daemon = Daemon::fresh(&limits);
    steps(&daemon, &server);
    first_token(&daemon, &server);
    fast(&daemon, &server);
    at_once(&daemon, &server);
}

fn send(client: &mut Client, session: &str, input: &str) {
    let model = "bench:m";
    client.ask(&json!({ "op": "send", "session": session, "input": input, "model_override": model }));
}

/// A run of many steps, beside the same number of bare exchanges with bodies of the same size.
fn steps(daemon: &Daemon, server: &Server) {
    server.set(Say::Calls(STEPS));
    let mut client = daemon.client();
    let (mut ours, mut beside) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let started = Instant::now();
        send(&mut client, &format!("steps{round}"), "go");
        client.until("done");
        ours.push(started.elapsed() / (STEPS as u32 + 1));
        // The last body was the longest; half of it is the usual one.
        beside.push(bare(server, server.bytes.load(Ordering::SeqCst) / 2));
    }
    let (ours, beside) = (percentile(&mut ours, 50), percentile(&mut beside, 50));
    let on_top = ours.saturating_sub(beside);
    row(
        &format!("a step of a run with a tool call, of {STEPS}, p50"),
        &millis(ours),
        &format!("{}, the bare HTTP exchange", millis(beside)),
        &format!("{} on top", millis(on_top)),
        &target("< 2 ms on top", on_top < Duration::from_millis(2)),
    );
}

/// The time of one exchange over a kept connection.
fn bare(server: &Server, length: usize) -> Duration {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let body = "x".repeat(length);
    let request =
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
    let mut times = Vec::new();
    for _ in 0..=STEPS {
        let started = Instant::now();
        stream.write_all(request.as_bytes()).expect("a request");
        let mut line = String::new();
        while line != "0\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("an answer");
        }
        reader.read_line(&mut line).expect("its end");
        times.push(started.elapsed());
    }
    percentile(&mut times, 50)
}

/// From the server's first token to the client's first delta.
fn first_token(daemon: &Daemon, server: &Server) {
    server.set(Say::Tokens(3, Duration::ZERO));
    let mut client = daemon.client();
    let mut times = Vec::new();
    for n in 0..ANSWERS {
        send(&mut client, &format!("first{}", n % 10), "hello");
        client.until("delta");
        let seen = Instant::now();
        let sent = server.first.lock().expect("a lock").take().expect("a first token");
        times.push(seen.saturating_duration_since(sent));
        client.until("done");
    }
    let (half, most) = (percentile(&mut times, 50), percentile(&mut times, 99));
    row(
        "first token sent to first delta at a client, p50",
        &millis(half),
        &format!("p99 {}", millis(most)),
        "",
        &target("< 1 ms", half < Duration::from_millis(1)),
    );
}

/// One answer of 1,000 tokens a second: how far behind the client is at its end.
fn fast(daemon: &Daemon, server: &Server) {
    server.set(Say::Tokens(TOKENS, Duration::from_millis(1)));
    let mut client = daemon.client();
    let started = Instant::now();
    send(&mut client, "fast", "go");
    client.until("done");
    let (ended, took) = (Instant::now(), started.elapsed());
    let last = server.last.lock().expect("a lock").take().expect("a last token");
    let behind = ended.saturating_duration_since(last);
    let rate = TOKENS as f64 / took.as_secs_f64();
    row(
        &format!("{TOKENS} tokens at 1,000 a second: last token sent to the end at the client"),
        &millis(behind),
        &format!("{rate:.0} tokens/s through the whole run"),
        "",
        &target("as fast as they come", rate > 900.0),
    );
}

/// Many runs at the same time, each of 100 tokens in five seconds.
fn at_once(daemon: &Daemon, server: &Server) {
    server.set(Say::Tokens(100, Duration::from_millis(50)));
    let before = daemon.memory_kb();
    let mut clients: Vec<Client> = (0..AT_ONCE).map(|_| daemon.client()).collect();
    let started = Instant::now();
    for (n, client) in clients.iter_mut().enumerate() {
        send(client, &format!("many{n}"), "go");
    }
    let mut most = 0;
    let mut ended = 0;
    for client in &mut clients {
        client.until("done");
        ended += 1;
        most = most.max(daemon.memory_kb());
    }
    let took = started.elapsed();
    let each = most.saturating_sub(before) / AT_ONCE as u64;
    row(
        &format!("{AT_ONCE} runs at once, 100 tokens in 5 s each: most memory"),
        &format!("{:.0} MB, {ended} of {AT_ONCE} ended, {:.1} s", most as f64 / 1024.0, took.as_secs_f64()),
        &format!("{:.0} MB before", before as f64 / 1024.0),
        &format!("{each} KB a run"),
        &target("all end, < 200 MB", most < 200 << 10),
    );
}
