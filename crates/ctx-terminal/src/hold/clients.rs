//! The clients of a holder: who writes, who watches, and what is on its way to each.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use super::super::keyboard::is_typed;
use super::super::protocol::{Decoder, FromHolder, Hello, Mode, Size, ToHolder};

/// What may be on its way to a client; output beyond it is not sent, and the client gets a fresh screen later.
const SENDING_BYTES_MAX: usize = 1024 * 1024;

pub(super) struct Client {
    stream: UnixStream,
    decoder: Decoder,
    sending: Vec<u8>,
    sent: usize,
    hello: Option<Hello>,
    /// When it came in, or took the keyboard, in order: the last one has it.
    turn: u64,
    /// It has missed output.
    is_behind: bool,
    is_gone: bool,
}

impl Client {
    pub fn new(stream: UnixStream) -> Client {
        Client {
            stream,
            decoder: Decoder::default(),
            sending: Vec::new(),
            sent: 0,
            hello: None,
            turn: 0,
            is_behind: false,
            is_gone: false,
        }
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// What to wait for: its words, and room for ours. One that is attached waits with what it types while the program has
    /// too much to take already; who only asks is always heard.
    pub fn wants(&self, is_full: bool) -> PollFlags {
        let is_patient = self.is(Mode::Write) || self.is(Mode::Join);
        let words = if is_full && is_patient { PollFlags::empty() } else { PollFlags::IN };
        let room = if self.is_sending() { PollFlags::OUT } else { PollFlags::empty() };
        words | room
    }

    fn is_sending(&self) -> bool {
        self.sent < self.sending.len()
    }

    fn is_attached(&self) -> bool {
        self.hello.is_some_and(|hello| hello.mode != Mode::Ask)
    }

    fn is(&self, mode: Mode) -> bool {
        self.hello.is_some_and(|hello| hello.mode == mode)
    }

    fn scrollback(&self) -> usize {
        self.hello.map_or(0, |hello| hello.scrollback)
    }

    fn send(&mut self, frame: &[u8]) {
        self.sending.extend_from_slice(frame);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(rest) = self.sending.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => break,
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.is_gone = true;
                    break;
                }
            }
        }
        if !self.is_sending() {
            self.sending.clear();
            self.sent = 0;
        } else if self.sent > SENDING_BYTES_MAX {
            self.sending.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[derive(Default)]
pub(super) struct Clients {
    all: Vec<Client>,
    turns: u64,
}

impl Clients {
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    pub fn add(&mut self, client: Client) {
        self.all.push(client);
    }

    /// What a client said since the last time.
    pub fn read(&mut self, at: usize) -> Vec<ToHolder> {
        let Some(client) = self.all.get_mut(at) else { return Vec::new() };
        let mut buffer = [0; 16 * 1024];
        match client.stream.read(&mut buffer) {
            Ok(0) => client.is_gone = true,
            Ok(n) => client.decoder.push(buffer.get(..n).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => client.is_gone = true,
        }
        let mut said = Vec::new();
        loop {
            match client.decoder.take() {
                Ok(Some((kind, payload))) => said.push(ToHolder::decode(kind, payload)),
                Ok(None) => break,
                Err(_) => {
                    client.is_gone = true;
                    break;
                }
            }
        }
        said
    }

    /// True: one of those that left was attached.
    pub fn remove_gone(&mut self) -> bool {
        let before = self.attached();
        self.all.retain(|client| !client.is_gone);
        self.attached() < before
    }

    pub fn attach(&mut self, at: usize, mut hello: Hello) {
        self.turns += 1;
        hello.size = hello.size.map(|size| Size::new(size.cols, size.rows));
        if let Some(client) = self.all.get_mut(at) {
            client.turn = if hello.mode == Mode::Join { 0 } else { self.turns };
            client.hello = Some(hello);
        }
    }

    /// Whoever joined takes the keyboard with each key and each size, and a writer with each key and each paste. Answers are
    /// neither: all writers' terminals see the program's questions.
    pub fn take_keyboard(&mut self, at: usize, typed: Option<&[u8]>) {
        self.turns += 1;
        let is_key = typed.is_some_and(is_typed);
        let takes = |client: &&mut Client| client.is(Mode::Join) || (client.is(Mode::Write) && is_key);
        if let Some(client) = self.all.get_mut(at).filter(takes) {
            client.turn = self.turns;
        }
    }

    /// Notes the size of a client's own terminal.
    pub fn resize(&mut self, at: usize, size: Size) {
        if let Some(hello) = self.all.get_mut(at).and_then(|client| client.hello.as_mut()) {
            hello.size = Some(size);
        }
    }

    pub fn attached(&self) -> usize {
        self.all.iter().filter(|client| client.is_attached()).count()
    }

    fn writer(&self) -> Option<&Client> {
        let types = |client: &&Client| client.is(Mode::Write) || (client.is(Mode::Join) && client.turn > 0);
        let writers = self.all.iter().filter(types);
        writers.max_by_key(|client| client.turn)
    }

    pub fn writers_size(&self) -> Option<Size> {
        self.writer()?.hello?.size
    }

    /// Whether a client's terminal sees the program's questions, and so answers them.
    pub fn has_reading_writer(&self) -> bool {
        self.writer().is_some_and(|writer| !writer.is_behind && !writer.is_gone)
    }

    /// Whoever has the keyboard, and whoever sends single things.
    pub fn may_type(&self, at: usize) -> bool {
        let Some(client) = self.all.get(at) else { return false };
        match client.hello.map(|hello| hello.mode) {
            Some(Mode::Write | Mode::Join) => self.writer().is_some_and(|writer| writer.turn == client.turn),
            Some(Mode::Ask) => true,
            Some(Mode::Watch) | None => false,
        }
    }

    /// It sends single things, and is told what becomes of them.
    pub fn asks(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|client| client.is(Mode::Ask))
    }

    /// The lines that a client is shown with a fresh screen; None: it is not attached.
    pub fn scrollback(&self, at: usize) -> Option<usize> {
        self.all.get(at).filter(|client| client.is_attached()).map(Client::scrollback)
    }

    pub fn tell(&mut self, at: usize, said: &FromHolder) {
        if let Some(client) = self.all.get_mut(at) {
            client.send(&said.encode());
        }
    }

    pub fn tell_attached(&mut self, said: &FromHolder) {
        let frame = said.encode();
        self.all.iter_mut().filter(|client| client.is_attached()).for_each(|client| client.send(&frame));
    }

    pub fn tell_all(&mut self, said: &FromHolder) {
        let frame = said.encode();
        self.all.iter_mut().for_each(|client| client.send(&frame));
    }

    /// Output for whoever is attached and reads.
    pub fn output(&mut self, offset: u64, bytes: &[u8]) {
        if self.attached() == 0 {
            return;
        }
        let frame = FromHolder::Output { offset, bytes: bytes.to_vec() }.encode();
        for client in self.all.iter_mut().filter(|client| client.is_attached()) {
            if client.is_behind || client.sending.len() - client.sent + frame.len() > SENDING_BYTES_MAX {
                client.is_behind = true;
            } else {
                client.send(&frame);
            }
        }
    }

    /// Sends on. A client that had missed output and has read the rest gets a fresh screen.
    pub fn flush_all(&mut self, mut repaint: impl FnMut() -> Vec<u8>, offset: u64) {
        for client in &mut self.all {
            client.flush();
            if client.is_behind && !client.is_sending() {
                client.is_behind = false;
                let bytes = repaint();
                client.send(&FromHolder::Repaint { offset, bytes }.encode());
            }
        }
    }

    pub fn is_sending(&self) -> bool {
        self.all.iter().any(Client::is_sending)
    }
}
