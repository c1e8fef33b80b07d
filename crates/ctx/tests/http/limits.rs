//! What is bounded: connections, slow requests, what is kept for those who are away, and how long a token lets in.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::until;

use crate::support::{Http, builder};

fn raw(http: &Http) -> TcpStream {
    let stream = TcpStream::connect(http.address()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// All that comes until the other side closes.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// A connection that has shown its token, and is kept.
fn known(http: &Http) -> TcpStream {
    let mut stream = raw(http);
    let get = format!(
        "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        http.token
    );
    stream.write_all(get.as_bytes()).unwrap();
    let mut start = [0u8; 15];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    stream
}

#[test]
fn one_connection_too_many_is_told_so_and_room_comes_back() {
    let http = Http::of(builder().env("CTX_LIMITS_HTTP_CONNECTIONS", "3"));
    let mut held: Vec<TcpStream> = (0..3).map(|_| known(&http)).collect();
    let bearer = format!("Authorization: Bearer {}", http.token);
    let refused = http.curl("/status", &["-H", &bearer]);
    assert_eq!(refused.code(503), "EHOSTDOWN");
    assert!(refused.text.contains("connection limit"), "{}", refused.text);
    assert!(refused.headers.contains("x-content-type-options: nosniff"), "{}", refused.headers);
    assert!(refused.headers.contains("cache-control: no-store"), "{}", refused.headers);
    assert!(!refused.headers.contains("warning:"), "{}", refused.headers);
    // Who is nobody yet, and who comes over the owner's socket, has places of their own.
    assert_eq!(http.curl("/healthz", &[]).status, 200);
    http.daemon.ctx(&["status"]).ok();
    held.pop();
    until("room", || (http.curl("/status", &["-H", &bearer]).status == 200).then_some(()));
}

#[test]
fn strangers_who_hold_connections_keep_nobody_out() {
    let http = Http::start();
    let held: Vec<TcpStream> = (0..200).map(|_| raw(&http)).collect();
    assert_eq!(http.get("/status")["version"], env!("CARGO_PKG_VERSION"));
    known(&http);
    drop(held);
}

#[test]
fn a_stranger_may_send_little() {
    let http = Http::start();
    let body = format!(r#"{{"code":"{}"}}"#, "x".repeat(70_000));
    let refused = http.curl("/login", &["-H", "Content-Type: application/json", "-d", &body]);
    assert_eq!(refused.code(413), "EMSGSIZE");
    let body = format!(r#"{{"code":"{}"}}"#, "x".repeat(60_000));
    let refused = http.curl("/login", &["-H", "Content-Type: application/json", "-d", &body]);
    assert_eq!(refused.code(401), "EKEYREJECTED");
}

#[test]
fn who_dawdles_over_a_request_is_let_go() {
    let http = Http::of(builder().env("CTX_LIMITS_REQUEST_MS", "400"));
    let begun = Instant::now();
    let mut head = raw(&http);
    head.write_all(b"GET /api/v1/healthz HTTP/1.1\r\nHost: loc").unwrap();
    let mut silent = raw(&http);
    let mut body = raw(&http);
    let post = format!(
        "POST /api/v1/projects/default/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 100\r\n\r\n{{",
        http.token
    );
    body.write_all(post.as_bytes()).unwrap();
    assert!(!rest(&mut head).contains("200 OK"));
    rest(&mut silent);
    let answer = rest(&mut body);
    assert!(answer.contains("504") && answer.contains("ETIMEDOUT"), "{answer}");
    for headers in ["", "Idempotency-Key: slow\r\n"] {
        let mut mcp = raw(&http);
        let post = format!(
            "POST /api/v1/mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{headers}Content-Type: \
             application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{{",
            http.token
        );
        mcp.write_all(post.as_bytes()).unwrap();
        let answer = rest(&mut mcp);
        assert!(answer.contains("504") && answer.contains("ETIMEDOUT"), "{answer}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(http.get("/projects/default/sessions")["items"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_is_kept_for_all_who_are_away_is_bounded_and_who_left_first_goes_first() {
    let kept = builder().env("CTX_LIMITS_REATTACH_BYTES_TOTAL", "4000000");
    Http::of(kept).python("reattach.py", &["total"]).ok();
}

#[test]
fn sockets_close_when_their_token_is_revoked() {
    Http::of(builder().env("CTX_LIMITS_PING_MS", "500")).python("reattach.py", &["revoked"]).ok();
}

#[test]
fn the_daemon_may_open_as_many_files_as_the_system_allows() {
    let http = Http::start();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", http.daemon.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().skip(3).map(|word| word.parse::<u64>().unwrap_or(u64::MAX));
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert!(soft >= hard.min(65_536), "{line}");
}

#[test]
fn a_daemon_that_cannot_listen_does_not_say_that_it_is_up() {
    let http = Http::start();
    let taken = http.address();
    let said = http.daemon.ctx(&["serve", "--root", "other", "--listen", &taken]).fails(69);
    assert!(said.contains("cannot listen") && !said.contains("is up"), "{said}");
    assert!(http.daemon.log().contains("is up"));
}
