//! A model server on loopback that speaks the wire formats of OpenAI (responses and chat), Anthropic and Gemini.
//!
//! It plays replies in the order they were given, whole, cut off, slow or broken; it writes down what it was asked, and it refuses,
//! as the providers do, a request whose tool calls and results do not belong together.

mod rules;
mod wire;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

pub use wire::Wire;

/// One answer of the model.
#[derive(Debug, Clone)]
pub struct Reply {
    say: Say,
    end: End,
}

#[derive(Debug, Clone)]
enum Say {
    Parts(Vec<Part>),
    /// An answer that is no stream, or not one of ours.
    Raw {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
}

/// A piece of what the model says.
#[derive(Debug, Clone)]
pub enum Part {
    Text(String),
    Reasoning(String),
    Call { name: String, input: String },
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    /// The connection breaks after so many events.
    Broken(usize),
    /// The stream ends as if all were said after so many events.
    Short(usize),
    /// Nothing more comes after so many events, and the connection stays.
    Silent(usize),
    /// So long between two events.
    Slow(Duration),
}

impl Reply {
    pub fn text(text: &str) -> Reply {
        Reply::parts(vec![Part::Text(text.to_owned())])
    }

    pub fn call(name: &str, input: Value) -> Reply {
        Reply::parts(vec![Part::Call { name: name.to_owned(), input: input.to_string() }])
    }

    pub fn parts(parts: Vec<Part>) -> Reply {
        Reply { say: Say::Parts(parts), end: End::Whole }
    }

    #[must_use]
    pub fn ending(self, end: End) -> Reply {
        Reply { end, ..self }
    }

    pub fn raw(status: u16, content_type: &str, body: &str) -> Reply {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Reply { say: Say::Raw { status, headers, body: body.to_owned() }, end: End::Whole }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Reply {
        if let Say::Raw { headers, .. } = &mut self.say {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

/// What the server was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Default)]
struct State {
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<Asked>>,
    offered: Mutex<Vec<String>>,
    /// Answers under way whose client is still there.
    open: AtomicUsize,
    only_chat: AtomicBool,
    stopped: AtomicBool,
}

/// The server. Dropping it stops it.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    state: Arc<State>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelServer {
    pub fn start() -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State::default());
        lock(&state.offered).push("test-model".to_owned());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&shared);
                std::thread::spawn(move || {
                    // A client that went is no failure of the server.
                    let _ = serve(&stream, &state);
                });
            }
        });
        ModelServer { address, state }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it answers next, after what it was given before.
    pub fn reply(&self, reply: Reply) {
        lock(&self.state.replies).push_back(reply);
    }

    /// The models that it says it has.
    pub fn offer(&self, models: &[&str]) {
        *lock(&self.state.offered) = models.iter().map(|name| (*name).to_owned()).collect();
    }

    /// It does not know OpenAI's responses.
    pub fn only_chat(&self) {
        self.state.only_chat.store(true, Ordering::Relaxed);
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.state.asked).clone()
    }

    /// The bodies of the requests for an answer.
    pub fn bodies(&self) -> Vec<Value> {
        self.asked().into_iter().filter(|asked| asked.method == "POST").map(|asked| asked.body).collect()
    }

    /// Answers that are under way.
    pub fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        // Wakes the one that waits for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

/// Requests of one connection, one after the other.
fn serve(stream: &TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read_request(&mut reader)? {
        lock(&state.asked).push(asked.clone());
        if !answer(stream, state, &asked)? {
            return Ok(());
        }
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> std::io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (method, path) = (word(), word());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Some(Asked { method, path, headers, body }))
}

/// Answers, and says whether the connection stays.
fn answer(stream: &TcpStream, state: &State, asked: &Asked) -> std::io::Result<bool> {
    if asked.method == "GET" {
        let ids: Vec<Value> =
            lock(&state.offered).iter().map(|id| json!({ "id": id, "object": "model" })).collect();
        return whole(stream, 200, &[], "application/json", &json!({ "data": ids }).to_string());
    }
    let only_chat = state.only_chat.load(Ordering::Relaxed);
    let Some(wire) = Wire::of(&asked.path).filter(|wire| !(only_chat && *wire == Wire::Responses)) else {
        return whole(stream, 404, &[], "text/plain", "404 page not found");
    };
    if let Err(broken) = rules::check(wire, &asked.body) {
        let body = json!({ "error": { "message": broken, "type": "invalid_request_error", "code": 400 } });
        return whole(stream, 400, &[], "application/json", &body.to_string());
    }
    let reply = lock(&state.replies).pop_front().unwrap_or_else(|| Reply::text("nothing more in the script"));
    match reply.say {
        Say::Raw { status, headers, body } => whole(stream, status, &headers, "", &body),
        Say::Parts(parts) => {
            state.open.fetch_add(1, Ordering::SeqCst);
            let streamed = stream_events(stream, &wire::events(wire, &parts), reply.end);
            state.open.fetch_sub(1, Ordering::SeqCst);
            streamed
        }
    }
}

fn whole(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(String, String)],
    content_type: &str,
    body: &str,
) -> std::io::Result<bool> {
    let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
    if !content_type.is_empty() {
        head.push_str(&format!("content-type: {content_type}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    Ok(true)
}

fn stream_events(mut stream: &TcpStream, events: &[String], end: End) -> std::io::Result<bool> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    let count = match end {
        End::Broken(count) | End::Short(count) | End::Silent(count) => count,
        End::Whole | End::Slow(_) => events.len(),
    };
    for event in events.iter().take(count) {
        stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
        if let End::Slow(pause) = end {
            std::thread::sleep(pause);
        }
    }
    match end {
        End::Broken(_) => Ok(false),
        End::Silent(_) => {
            // Until the client goes.
            let mut byte = [0];
            let _ = stream.read(&mut byte);
            Ok(false)
        }
        End::Whole | End::Short(_) | End::Slow(_) => {
            stream.write_all(b"0\r\n\r\n")?;
            Ok(true)
        }
    }
}
