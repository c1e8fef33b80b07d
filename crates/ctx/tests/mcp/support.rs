//! A host of `ctx mcp` in a place of its own, speaking JSON-RPC line by line.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use serde_json::{Value, json};
use testkit::{DEADLINE, Place, until};

pub const CTX: &str = env!("CARGO_BIN_EXE_ctx");

/// Lines that may wait to be looked at; more than any test here prints.
const LINES: usize = 10_000;

pub fn place() -> Place {
    Place::new(CTX)
}

/// A program whose lines can be waited for. It ends with the value.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = child.stdout.take().expect("a pipe from it");
        Running::reading(child, stdout)
    }

    /// A program over sockets, as Node.js starts one, and the way to its stdin.
    pub fn over_sockets(command: &mut Command) -> (Running, UnixStream) {
        let (stdin, to) = UnixStream::pair().expect("a socket for stdin");
        let (stdout, from) = UnixStream::pair().expect("a socket for stdout");
        let (stdin, stdout) = (OwnedFd::from(stdin), OwnedFd::from(stdout));
        let child = command.stdin(stdin).stdout(stdout).spawn().expect("it starts");
        // The command holds its ends until it goes, and the other side would never see an end.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        (Running::reading(child, from), to)
    }

    fn reading(child: Child, stdout: impl Read + Send + 'static) -> Running {
        let stdout = BufReader::new(stdout);
        let (to, lines) = sync_channel(LINES);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    break;
                }
            }
        });
        Running { child, lines }
    }

    /// Its next line, when it comes.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line")
    }

    /// Its next line, if it is there.
    pub fn line_now(&self) -> Option<String> {
        match self.lines.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the program ended"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An MCP host with its server.
pub struct Host {
    pub server: Running,
    /// What the server said of itself.
    pub info: Value,
    stdin: Option<Box<dyn Write>>,
    calls: u64,
}

impl Host {
    pub fn start(place: &Place) -> Host {
        Host::with(&mut place.command(&["mcp"]))
    }

    pub fn with(command: &mut Command) -> Host {
        let mut server = Running::start(command);
        let stdin = server.child.stdin.take().expect("a pipe to it");
        Host::greet(server, Box::new(stdin))
    }

    pub fn over_sockets(place: &Place) -> Host {
        let (server, stdin) = Running::over_sockets(&mut place.command(&["mcp"]));
        Host::greet(server, Box::new(stdin))
    }

    fn greet(server: Running, stdin: Box<dyn Write>) -> Host {
        let mut host = Host { server, info: Value::Null, stdin: Some(stdin), calls: 0 };
        let about = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about});
        let answer = host.request("initialize", hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "ctx", "{answer}");
        host.info = answer["result"].clone();
        host.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        host
    }

    fn say(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{message}").expect("the server reads");
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        loop {
            let line = self.server.line();
            let message: Value = serde_json::from_str(&line).expect("a line is JSON");
            if message["id"] == id {
                return message;
            }
        }
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.calls += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}));
        self.calls
    }

    /// What a tool answers, whether it did what was asked or not.
    pub fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        answer["result"].clone()
    }

    /// What a tool returns, if it does what was asked.
    #[track_caller]
    pub fn call(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.tool(name, arguments);
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }

    /// What a tool says when it does not.
    #[track_caller]
    pub fn refused(&mut self, name: &str, arguments: Value) -> String {
        let result = self.tool(name, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().expect("a text").to_owned()
    }

    /// Opens a shell.
    pub fn create(&mut self) -> String {
        let made = self.call("session_create", json!({}));
        made["session_id"].as_str().expect("an id").to_owned()
    }

    pub fn exec(&mut self, shell: &str, command: &str) -> Value {
        self.call("session_exec", json!({"session_id": shell, "command": command}))
    }

    /// Starts a command and does not wait for its end.
    pub fn exec_soon(&mut self, shell: &str, command: &str) {
        self.tool_soon("session_exec", json!({"session_id": shell, "command": command}));
    }

    /// Calls a tool and does not wait for its answer; returns the request's id.
    pub fn tool_soon(&mut self, name: &str, arguments: Value) -> u64 {
        self.send("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// Takes a request back.
    pub fn cancel(&mut self, request: u64) {
        let params = json!({"requestId": request, "reason": "not needed"});
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }

    /// The next answer, whichever it is.
    pub fn answer(&self) -> Value {
        serde_json::from_str(&self.server.line()).expect("a line is JSON")
    }

    /// How the server ended, when it has.
    pub fn ended(&mut self) -> ExitStatus {
        until("the server's end", || self.server.child.try_wait().expect("its status"))
    }

    /// The host is gone: nobody writes to the server any more.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }
}
