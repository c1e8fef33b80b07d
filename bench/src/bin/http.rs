//! The HTTP API: reads beside a bare axum handler that returns the same bytes, a message to its first delta, and a
//! thousand sessions with a run each over sixteen clients.
//!
//! The rate limit and the limits of running sessions are raised in the daemon's environment: they would be measured
//! otherwise.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use ctx_bench::http::Http;
use ctx_bench::{Daemon, ctx, millis, percentile, row, target};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1_500);
const CONNECTIONS: usize = 8;
const PROJECTS: usize = 30;
const SESSIONS: usize = 1_000;
const CLIENTS: usize = 16;
const MESSAGES: usize = 300;

/// The row without a target: the messages come from the log.
const UNLOADED: &str = "GET a page of 50 messages of a session that is not loaded";

const RAISED: [(&str, &str); 3] = [
    ("CTX_LIMITS_REQUESTS_PER_SECOND", "100000000"),
    ("CTX_LIMITS_RUNNING_PER_PROJECT", "2000"),
    ("CTX_LIMITS_RUNNING_PER_OPERATOR", "2000"),
];

fn main() {
    if let Some(files) = std::env::args().nth(1) {
        return bare(&files);
    }
    reads();
    first_delta();
    crowd();
}

/// A daemon, where it listens, and a token.
fn daemon() -> (Daemon, String, String) {
    let daemon = Daemon::fresh(&[&RAISED[..], &[("CTX_SERVE_LISTEN", "127.0.0.1:0")]].concat());
    let file = std::fs::read_to_string(daemon.root.join(".state/daemon.json")).expect("daemon.json");
    let file: Value = serde_json::from_str(&file).expect("JSON");
    let made =
        Command::new(ctx()).args(["token", "new", "--root"]).arg(&daemon.root).output().expect("a token");
    let token = String::from_utf8(made.stdout).expect("a token").trim().to_owned();
    let address = file["address"].as_str().expect("an address").to_owned();
    (daemon, address, token)
}

/// A server that answers each path of a file with its bytes and does nothing else.
fn bare(files: &str) {
    let answers: HashMap<String, String> =
        serde_json::from_str(&std::fs::read_to_string(files).expect("answers")).expect("JSON");
    let answers: Arc<HashMap<String, Bytes>> =
        Arc::new(answers.into_iter().map(|(path, text)| (path, Bytes::from(text))).collect());
    let handler = move |uri: Uri| {
        let found = answers.get(&uri.to_string()).cloned().unwrap_or_default();
        async move { ([(CONTENT_TYPE, "application/json")], found) }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("an address");
        println!("{}", listener.local_addr().expect("an address"));
        let router = axum::Router::new().fallback(handler);
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.expect("serving");
    });
}

struct Bare(Child);

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reads() {
    let (daemon, address, token) = daemon();
    let mut http = Http::connect(&address, &token);
    let ids: Vec<String> = (0..200)
        .map(|n| {
            let name = json!({ "name": format!("s{n}") }).to_string();
            let made = http.call("POST", "/api/v1/projects/default/sessions", &name);
            made["id"].as_str().expect("an id").to_owned()
        })
        .collect();
    let (unloaded, last) = (&ids[0], &ids[199]);
    talk(&mut http, unloaded);
    // Someone follows this one, so that it stays loaded.
    let _follower = socket(&address, &token, last);
    talk(&mut http, last);
    let of_project = session_of_a_project(&mut http, &daemon);
    let paths = [
        ("GET a session", format!("/api/v1/sessions/{last}")),
        ("GET a session of one of 30 projects", format!("/api/v1/sessions/{of_project}")),
        (
            "GET a page of 50 messages of a session that is followed",
            format!("/api/v1/sessions/{last}/messages"),
        ),
        (UNLOADED, format!("/api/v1/sessions/{unloaded}/messages")),
        ("GET a page of 50 sessions of 200", "/api/v1/projects/default/sessions".to_owned()),
    ];
    let answers: HashMap<String, String> = paths
        .iter()
        .map(|(_, path)| {
            let request = http.request("GET", path, "");
            http.send(&request);
            let mut body = Vec::new();
            assert_eq!(http.answer(&mut body), 200);
            (path.clone(), String::from_utf8(body).expect("text"))
        })
        .collect();
    let file = daemon.root.with_extension("answers");
    std::fs::write(&file, serde_json::to_string(&answers).expect("JSON")).expect("a file");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the bare server");
    let mut beside = String::new();
    BufReader::new(child.stdout.take().expect("its stdout")).read_line(&mut beside).expect("its address");
    let _bare = Bare(child);
    for (name, path) in &paths {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            theirs.push(rate(beside.trim(), &token, path));
            ours.push(rate(&address, &token, path));
        }
        ours.sort_by(f64::total_cmp);
        theirs.sort_by(f64::total_cmp);
        let (ours, theirs) = (ours[ROUNDS / 2], theirs[ROUNDS / 2]);
        row(
            &format!("{name} over {CONNECTIONS} kept connections, {} bytes", answers[path].len()),
            &format!("{ours:.0}/s"),
            &format!("{theirs:.0}/s, a bare axum handler with the same bytes"),
            &format!("{:.2}", ours / theirs),
            &if *name == UNLOADED { String::new() } else { target("≥ 0.50", ours / theirs >= 0.5) },
        );
    }
}

/// 25 messages and their answers.
fn talk(http: &mut Http, id: &str) {
    for n in 0..25 {
        let text = json!({ "text": format!("message {n}: {}", "words ".repeat(20)) }).to_string();
        http.call("POST", &format!("/api/v1/sessions/{id}/messages"), &text);
        while http.call("GET", &format!("/api/v1/sessions/{id}"), "")["state"] != "idle" {}
    }
}

/// A session of a registered project, among others; its id. Whether its file has changed is asked of the disk.
fn session_of_a_project(http: &mut Http, daemon: &Daemon) -> String {
    let mut last = String::new();
    for n in 0..PROJECTS {
        let dir = daemon.root.with_extension("projects").join(format!("p{n}"));
        std::fs::create_dir_all(dir.join(".ctx")).expect("a directory");
        let file = format!("version: 1\nproject: p{n}\nprimary: {{model: \"debug:echo\"}}\n");
        std::fs::write(dir.join(".ctx/project.yaml"), file).expect("a project file");
        http.call("POST", "/api/v1/projects", &json!({ "directory": dir }).to_string());
        let made = http.call("POST", &format!("/api/v1/projects/p{n}/sessions"), "{}");
        last = made["id"].as_str().expect("an id").to_owned();
    }
    last
}

/// Requests a second over several kept connections.
fn rate(address: &str, token: &str, path: &str) -> f64 {
    let begun = Instant::now();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                scope.spawn(|| {
                    let mut http = Http::connect(address, token);
                    let request = http.request("GET", path, "");
                    let (mut body, mut count) = (Vec::new(), 0);
                    while begun.elapsed() < ROUND {
                        http.send(&request);
                        assert_eq!(http.answer(&mut body), 200);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    counts.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64()
}

/// The same message again and again, each to its first delta on the session's WebSocket.
fn first_delta() {
    let (daemon, address, token) = daemon();
    let mut http = Http::connect(&address, &token);
    let made = http.call("POST", "/api/v1/projects/default/sessions", "{}");
    let id = made["id"].as_str().expect("an id").to_owned();
    let mut socket = socket(&address, &token, &id);
    let mut file =
        OpenOptions::new().create(true).append(true).open(daemon.root.join("plain")).expect("a file");
    let (mut ours, mut append) = (Vec::new(), Vec::new());
    let mut body = Vec::new();
    for n in 0..MESSAGES {
        let started = Instant::now();
        file.write_all(&[b'x'; 900]).expect("a write");
        file.sync_data().expect("a sync");
        append.push(started.elapsed());
        let text = json!({ "text": format!("message {n}") }).to_string();
        let post = http.request("POST", &format!("/api/v1/sessions/{id}/messages"), &text);
        let started = Instant::now();
        http.send(&post);
        until(&mut socket, "delta");
        ours.push(started.elapsed());
        assert_eq!(http.answer(&mut body), 202);
        until(&mut socket, "run.completed");
        while http.call("GET", &format!("/api/v1/sessions/{id}"), "")["state"] != "idle" {}
    }
    let (ours, append) = (percentile(&mut ours, 50), percentile(&mut append, 50));
    let on_top = ours.saturating_sub(append);
    row(
        "post over HTTP to first delta on the WebSocket, p50",
        &millis(ours),
        &format!("{}, the append alone", millis(append)),
        &format!("{} on top", millis(on_top)),
        &target("< 3 ms on top", on_top < Duration::from_millis(3)),
    );
}

type Socket = WebSocket<TcpStream>;

fn socket(address: &str, token: &str, id: &str) -> Socket {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let mut request =
        format!("ws://{address}/api/v1/sessions/{id}/socket").into_client_request().expect("a request");
    let bearer = format!("Bearer {token}").parse().expect("a header");
    request.headers_mut().insert("Authorization", bearer);
    let (mut socket, _) = client(request, stream).expect("a WebSocket");
    socket.send(Message::text(r#"{"channel":"control","type":"hello","payload":{}}"#)).expect("hello");
    until(&mut socket, "welcome");
    socket
}

fn until(socket: &mut Socket, kind: &str) {
    loop {
        if let Message::Text(text) = socket.read().expect("a frame") {
            let frame: Value = serde_json::from_str(&text).expect("JSON");
            if frame["type"] == kind {
                return;
            }
        }
    }
}

/// A thousand sessions with a run each, side by side, and every answer looked at.
fn crowd() {
    let (daemon, address, token) = daemon();
    let begun = Instant::now();
    let ids: Vec<(String, usize)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (address, token) = (&address, &token);
                scope.spawn(move || {
                    let mut http = Http::connect(address, token);
                    let mut ids = Vec::new();
                    for n in (client..SESSIONS).step_by(CLIENTS) {
                        let made = http.call("POST", "/api/v1/projects/default/sessions", "{}");
                        let id = made["id"].as_str().expect("an id").to_owned();
                        let text = json!({ "text": format!("hello {n}") }).to_string();
                        http.call("POST", &format!("/api/v1/sessions/{id}/messages"), &text);
                        ids.push((id, n));
                    }
                    ids
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    let mut http = Http::connect(&address, &token);
    for (id, n) in &ids {
        let path = format!("/api/v1/sessions/{id}/messages");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let said = http.call("GET", &path, "");
            let texts: Vec<&str> = said["items"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(|m| m["content"].as_str())
                .collect();
            if texts.len() == 2 {
                assert_eq!(texts, [format!("hello {n}"), format!("hello {n}")]);
                break;
            }
            assert!(Instant::now() < deadline, "session {id} has no answer: {said}");
        }
    }
    let took = begun.elapsed();
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("its status");
    let most = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .and_then(|line| line.split_whitespace().nth(1));
    let most: f64 = most.and_then(|kb| kb.parse().ok()).expect("its memory");
    row(
        &format!("{SESSIONS} sessions with a run each over {CLIENTS} HTTP clients, most memory"),
        &format!("{:.0} MB, {} of {SESSIONS} ended, {:.1} s", most / 1024.0, ids.len(), took.as_secs_f64()),
        "",
        "",
        &target("all end, < 200 MB", most < 200.0 * 1024.0),
    );
}
