//! A client of an agent's socket: a request a line, a frame a line.

use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::DEADLINE;

pub struct Client {
    reader: BufReader<UnixStream>,
}

pub fn connect(path: &Path) -> io::Result<Client> {
    let stream = testkit::connect(path)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(Client { reader: BufReader::new(stream) })
}

impl Client {
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Writes as much as is taken within half a second; whether that was all.
    pub fn raw_soon(&mut self, bytes: &[u8]) -> bool {
        self.reader.get_mut().set_write_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        self.raw(bytes).is_ok()
    }

    pub fn ask(&mut self, request: Value) {
        self.try_ask(&request).unwrap();
    }

    pub fn try_ask(&mut self, request: &Value) -> io::Result<()> {
        self.raw(format!("{request}\n").as_bytes())
    }

    /// Sends a message to a session.
    pub fn send(&mut self, session: &str, id: &str, input: &str) {
        self.ask(json!({"op": "send", "session": session, "id": id, "input": input}));
    }

    /// Sends a script to a session; its model plays it.
    pub fn play(&mut self, session: &str, id: &str, steps: Value) {
        let input = super::script(steps);
        self.ask(json!({"op": "send", "session": session, "id": id, "input": input, "model_override": "debug:script"}));
    }

    /// The next frame; None when the daemon has closed the connection.
    pub fn try_frame(&mut self) -> io::Result<Option<Value>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        assert!(line.ends_with('\n'), "half a frame: {line}");
        Ok(Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))))
    }

    #[track_caller]
    pub fn frame(&mut self) -> Value {
        self.try_frame().expect("a frame in time").expect("a frame, not the end of the connection")
    }

    /// The next frame, which is of this type.
    #[track_caller]
    pub fn expect(&mut self, kind: &str) -> Value {
        let frame = self.frame();
        assert_eq!(frame["type"], kind, "{frame}");
        frame
    }

    /// The next frame, which refuses with this code.
    #[track_caller]
    pub fn refused(&mut self, code: &str) -> Value {
        let frame = self.expect("error");
        assert_eq!((&frame["code"], &frame["run"]), (&json!(code), &Value::Null), "{frame}");
        frame
    }

    /// Frames until one of this type, with it.
    #[track_caller]
    pub fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut frames = vec![self.frame()];
        while frames.last().is_some_and(|frame| frame["type"] != kind) {
            frames.push(self.frame());
        }
        frames
    }

    /// The frames of a run to its end.
    #[track_caller]
    pub fn until_done(&mut self) -> Vec<Value> {
        self.until("done")
    }

    /// Sends a message and returns the run's id when it is done.
    #[track_caller]
    pub fn say(&mut self, session: &str, id: &str, input: &str) -> String {
        self.send(session, id, input);
        let frames = self.until_done();
        let done = frames.last().unwrap();
        assert_eq!(done["status"], "ok", "{frames:?}");
        done["run"].as_str().unwrap().to_owned()
    }

    /// Says that no more requests come, and still listens.
    pub fn end_requests(&mut self) {
        self.reader.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    /// Nothing comes that was not asked for: the answer to a ping is the next frame.
    #[track_caller]
    pub fn expect_silence(&mut self) {
        self.ask(json!({"op": "ping"}));
        self.expect("pong");
    }
}

/// The types of frames, in order.
pub fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

/// What the deltas among frames say together.
pub fn text_of(frames: &[Value]) -> String {
    frames
        .iter()
        .filter(|frame| frame["type"] == "delta")
        .map(|frame| frame["text"].as_str().unwrap())
        .collect()
}

/// The ids of the events among frames, as numbers that can be compared.
pub fn ids(frames: &[Value]) -> Vec<(u64, u64)> {
    let number = |id: &str| {
        let (seq, n) = id.split_once('.').unwrap();
        (seq.parse().unwrap(), n.parse().unwrap())
    };
    frames
        .iter()
        .map(|frame| number(frame["id"].as_str().unwrap_or_else(|| panic!("no id: {frame}"))))
        .collect()
}
