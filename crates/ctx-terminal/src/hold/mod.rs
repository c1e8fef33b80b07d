//! The holder of one terminal: a process that owns the PTY's master, the model and the transcript. It has one thread, and
//! with a cage that of the cage.
//!
//! It waits for the program's output, for clients and for the program's end. The program never waits for a client: one
//! that does not read loses output and gets the whole screen when it reads again. Everything that the program writes is in
//! the transcript before any client sees it. The holder ends after its program, when the end is on disk.

mod clients;
mod program;

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use ctx_session::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::clients::{Client, Clients};
use self::program::Program;
use super::boundary::Boundary;
use super::key_names::CursorKeys;
use super::model::Model;
use super::place::{self, End, EndReason, EndSpace, SOCKET, Spec};
use super::protocol::{FromHolder, Size, State, Status, ToHolder, VERSION, Waiting};
use super::transcript::Kept;

pub use self::program::{INSIDE, become_program};

/// What is read at most before clients are looked at again.
const TURN_BYTES_MAX: usize = 256 * 1024;
/// Input that the program has not taken yet; beyond it, clients that are attached are not read, and those that ask are refused.
const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// So long after being told to end, the program is killed.
const CLOSE_GRACE: Duration = Duration::from_secs(3);
/// A program that says nothing for so long waits for input.
const SILENCE: Duration = Duration::from_secs(2);
/// After so long without output, the model draws what it has put off.
const QUIET: Duration = Duration::from_millis(20);
/// How long clients have to read the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs a holder until its program has ended. `up` is called when clients can connect, `now` tells the time.
pub fn hold(spec: Spec, now: fn() -> Timestamp, up: impl FnOnce()) -> io::Result<()> {
    // Whoever started the holder may go, with its terminal.
    let _ = rustix::process::setsid();
    // It was started as /proc/self/exe, and is called `exe` where processes are listed.
    let _ = rustix::thread::set_name(c"ctx");
    // Control groups are made with the rights of whoever starts the holder, files with those of the user.
    let caged = spec.cage.as_ref().map(|cage| Program::start_caged(&spec, cage)).transpose()?;
    if let Some((uid, gid, groups)) = &spec.user {
        program::become_user(*uid, *gid, groups)?;
    }
    std::fs::DirBuilder::new().mode(0o700).create(&spec.dir)?;
    // A socket's path is short; a directory's may be long.
    std::env::set_current_dir(&spec.dir)?;
    let here = Path::new(".");
    let started = EndSpace::reserve(here).and_then(|space| Ok((Holder::start(&spec, here, caged)?, space)));
    let (mut holder, end_space) = started.inspect_err(|_| {
        // What never was a terminal leaves nothing.
        let _ = std::fs::remove_dir_all(&spec.dir);
    })?;
    up();
    let exit_code = holder.run()?;
    let kept = holder.transcript.finish(holder.started.elapsed());
    holder.note_gap(kept);
    let end = holder.end(exit_code, now());
    // An end that cannot be written can still be said.
    let written = end_space.fill(here, &end);
    holder.say_goodbye(end);
    std::fs::remove_file(SOCKET).and(written)
}

struct Holder {
    listener: UnixListener,
    program: Program,
    clients: Clients,
    model: Model,
    boundary: Boundary,
    transcript: Kept,
    transcript_error: Option<String>,
    started: Instant,
    last_output: Instant,
    /// The last output or input.
    last_io: Instant,
    /// After so long without output and input, attached clients get a notice.
    idle: Duration,
    is_idle_told: bool,
    /// The bell has rung since the last input.
    has_rung: bool,
    /// Output that was read, and how much of it was passed on.
    read: u64,
    shown: u64,
    lines: u64,
    /// What the program has not taken yet.
    input: Vec<u8>,
    /// Told to end the program, and when it is killed.
    closing: Option<Instant>,
}

/// Which of the things that are waited for have happened.
struct Ready {
    listener: bool,
    program_ended: bool,
    output: bool,
    takes_input: bool,
    clients: Vec<PollFlags>,
}

impl Holder {
    fn start(spec: &Spec, here: &Path, caged: Option<Program>) -> io::Result<Holder> {
        let transcript = Kept::new(here, spec.bounds.transcript_bytes, spec.size)?;
        let listener = UnixListener::bind(SOCKET)?;
        listener.set_nonblocking(true)?;
        let program = caged.map_or_else(|| Program::start(spec), Ok)?;
        place::write_about(here, &spec.about)?;
        let now = Instant::now();
        Ok(Holder {
            listener,
            program,
            clients: Clients::default(),
            model: Model::with_scrollback(spec.size, spec.bounds.scrollback_lines),
            boundary: Boundary::default(),
            transcript,
            transcript_error: None,
            started: now,
            last_output: now,
            last_io: now,
            idle: Duration::from_millis(spec.bounds.idle_ms),
            is_idle_told: false,
            has_rung: false,
            read: 0,
            shown: 0,
            lines: 0,
            input: Vec::new(),
            closing: None,
        })
    }

    /// Until the program has ended and its output is read; its exit code.
    fn run(&mut self) -> io::Result<Option<i32>> {
        loop {
            let ready = self.wait()?;
            if ready.listener {
                self.accept();
            }
            self.read_clients(&ready.clients);
            if ready.takes_input || !self.input.is_empty() {
                self.type_input();
            }
            if ready.output {
                self.read_output(TURN_BYTES_MAX);
            }
            self.look_at_the_time();
            if ready.program_ended
                && let Some(exit_code) = self.program.exit_code()?
            {
                // What it wrote last is there already; what jobs of it go on to write is not waited for.
                while self.read_output(TURN_BYTES_MAX) > 0 {}
                let rest = self.boundary.finish();
                self.show(&rest);
                return Ok(exit_code);
            }
            self.clients.flush_all(|| self.model.repaint(0), self.shown);
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let output = PollFlags::IN | if self.input.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut fds = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::from_borrowed_fd(self.program.ended(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.program.master(), output),
        ];
        let is_full = self.input.len() >= INPUT_BYTES_MAX;
        fds.extend(self.clients.iter().map(|client| PollFd::new(client.stream(), client.wants(is_full))));
        let timeout = self.next_moment().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let flags: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let has =
            |index: usize, wanted: PollFlags| flags.get(index).is_some_and(|flags| flags.intersects(wanted));
        Ok(Ready {
            listener: has(0, PollFlags::IN),
            program_ended: has(1, PollFlags::IN),
            output: has(2, PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            takes_input: has(2, PollFlags::OUT),
            clients: flags.get(3..).unwrap_or_default().to_vec(),
        })
    }

    /// When something is to be done that nothing else announces.
    fn next_moment(&self) -> Option<Instant> {
        let idle = (!self.is_idle_told).then(|| self.last_io + self.idle);
        let undrawn = self.model.is_undrawn().then(|| self.last_output + QUIET);
        [idle, self.closing, self.model.held_until(), undrawn].into_iter().flatten().min()
    }

    fn look_at_the_time(&mut self) {
        let now = Instant::now();
        if self.closing.is_some_and(|at| at <= now) {
            self.program.kill();
            self.closing = Some(now + CLOSE_GRACE);
        }
        if self.model.held_until().is_some_and(|at| at <= now) {
            let heard = self.model.release();
            self.answer(&heard.answers);
        }
        if self.model.is_undrawn() && self.last_output + QUIET <= now {
            self.model.draw();
        }
        if !self.is_idle_told && self.last_io + self.idle <= now {
            self.is_idle_told = true;
            let idle_ms = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
            self.clients.tell_attached(&FromHolder::Idle { idle_ms });
        }
    }

    /// Reads output up to a limit; how much there was.
    fn read_output(&mut self, limit: usize) -> usize {
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 * 1024];
        while bytes.len() < limit {
            match self.program.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => bytes.extend_from_slice(buffer.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing more now, or (EIO) nothing more at all.
                Err(_) => break,
            }
        }
        if bytes.is_empty() {
            return 0;
        }
        self.last_output = Instant::now();
        self.last_io = self.last_output;
        self.is_idle_told = false;
        let kept = self.transcript.output(self.started.elapsed(), &bytes);
        self.note_gap(kept);
        self.read += bytes.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        let whole = self.boundary.push(&bytes);
        self.show(&whole);
        bytes.len()
    }

    /// The program goes on; whoever asks hears of the gap.
    fn note_gap(&mut self, kept: io::Result<()>) {
        if let Err(error) = kept {
            self.transcript_error.get_or_insert_with(|| error.to_string());
        }
    }

    /// Output that ends between characters and sequences goes to the model and to whoever is attached.
    fn show(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let heard = self.model.feed(bytes);
        self.has_rung |= heard.bell;
        self.clients.output(self.shown, bytes);
        if heard.bell {
            self.clients.tell_attached(&FromHolder::Bell);
        }
        self.shown += bytes.len() as u64;
        self.answer(&heard.answers);
    }

    /// Answers the program's questions, unless a client's terminal does.
    fn answer(&mut self, answers: &[u8]) {
        // A program that asks and does not read the answers gets no more of them.
        let has_room = self.input.len() < INPUT_BYTES_MAX;
        if !answers.is_empty() && has_room && !self.clients.has_reading_writer() {
            self.input.extend_from_slice(answers);
            self.type_input();
        }
    }

    fn type_input(&mut self) {
        while !self.input.is_empty() {
            match self.program.write(&self.input) {
                Ok(0) => break,
                Ok(n) => drop(self.input.drain(..n)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The program has closed its terminal; it will not read what is left.
                Err(_) => self.input.clear(),
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // The directory lets in only its user; the kernel is asked all the same.
            let own = rustix::process::geteuid();
            let is_let_in = rustix::net::sockopt::socket_peercred(&stream)
                .is_ok_and(|peer| peer.uid == own || peer.uid.is_root());
            if is_let_in && stream.set_nonblocking(true).is_ok() {
                self.clients.add(Client::new(stream));
            }
        }
    }

    fn read_clients(&mut self, ready: &[PollFlags]) {
        let now = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let with_news: Vec<usize> =
            ready.iter().enumerate().filter(|(_, flags)| flags.intersects(now)).map(|(at, _)| at).collect();
        for at in with_news {
            for said in self.clients.read(at) {
                self.heed(at, said);
            }
        }
        if self.clients.remove_gone() {
            self.follow_writer();
        }
    }

    fn heed(&mut self, at: usize, said: ToHolder) {
        match said {
            ToHolder::Hello(hello) => {
                if hello.version < VERSION {
                    let message = format!("this terminal's holder speaks version {VERSION}");
                    self.clients.tell(at, &FromHolder::Refused(message));
                    return;
                }
                self.clients.attach(at, hello);
                self.follow_writer();
                let status = self.status();
                self.clients.tell(at, &FromHolder::Welcome(status));
                self.repaint(at);
            }
            ToHolder::Input(bytes) => {
                self.clients.take_keyboard(at, Some(&bytes));
                self.follow_writer();
                if self.clients.may_type(at) {
                    self.take_input(at, &bytes);
                }
            }
            ToHolder::Resize(size) => {
                self.clients.take_keyboard(at, None);
                self.clients.resize(at, Size::new(size.cols, size.rows));
                self.follow_writer();
            }
            ToHolder::Repaint => self.repaint(at),
            ToHolder::Screen => {
                let screen = self.model.screen();
                self.clients.tell(at, &FromHolder::Screen(screen));
            }
            ToHolder::Status => {
                let status = self.status();
                self.clients.tell(at, &FromHolder::Status(status));
            }
            ToHolder::Close => {
                self.program.hang_up();
                self.closing = Some(Instant::now() + CLOSE_GRACE);
            }
            ToHolder::Freeze => self.program.freeze(),
            ToHolder::Thaw => self.program.thaw(),
            ToHolder::Unknown => {}
        }
    }

    /// What a client has typed is the program's, unless that takes nothing.
    fn take_input(&mut self, at: usize, bytes: &[u8]) {
        self.type_input();
        let waiting = self.input.len();
        if self.clients.asks(at) && waiting > 0 && waiting + bytes.len() > INPUT_BYTES_MAX {
            let message = format!("the program takes no input: {waiting} bytes of it wait already");
            self.clients.tell(at, &FromHolder::Refused(message));
            return;
        }
        self.input.extend_from_slice(bytes);
        self.last_io = Instant::now();
        self.is_idle_told = false;
        self.has_rung = false;
    }

    fn repaint(&mut self, at: usize) {
        if let Some(scrollback) = self.clients.scrollback(at) {
            let bytes = self.model.repaint(scrollback);
            self.clients.tell(at, &FromHolder::Repaint { offset: self.shown, bytes });
        }
    }

    /// The size is that of the client that writes.
    fn follow_writer(&mut self) {
        let Some(size) = self.clients.writers_size().filter(|size| *size != self.model.size()) else {
            return;
        };
        if self.program.resize(size).is_ok() {
            self.model.resize(size);
            self.clients.tell_attached(&FromHolder::Resized(size));
            let kept = self.transcript.resize(self.started.elapsed(), size);
            self.note_gap(kept);
        }
    }

    fn status(&mut self) -> Status {
        let attached = self.clients.attached();
        let waiting = match self.last_output.elapsed() {
            _ if self.has_rung => Some(Waiting::Bell),
            silent if silent >= SILENCE => Some(Waiting::Input),
            _ => None,
        };
        Status {
            version: VERSION,
            state: if attached > 0 { State::Active } else { State::Detached },
            size: self.model.size(),
            attached,
            waiting,
            title: self.model.title(),
            pid: self.program.pid(),
            bytes: self.read,
            lines: self.lines,
            scrollback: self.model.scrollback(),
            has_application_cursor: self.model.cursor_keys() == CursorKeys::Application,
            idle_ms: u64::try_from(self.last_io.elapsed().as_millis()).unwrap_or(u64::MAX),
            transcript_error: self.transcript_error.clone(),
        }
    }

    fn end(&mut self, exit_code: Option<i32>, ended_at: Timestamp) -> End {
        End {
            reason: if self.closing.is_some() { EndReason::Closed } else { EndReason::Exited },
            exit_code,
            ended_at,
            bytes: self.read,
            lines: self.lines,
            screen: self.model.screen(),
            transcript_error: self.transcript_error.clone(),
        }
    }

    /// Clients get the last output and the end, if they read within a moment.
    fn say_goodbye(&mut self, end: End) {
        // Who connected in the meantime gets an answer too.
        self.accept();
        self.clients.tell_all(&FromHolder::End(end));
        let until = Instant::now() + FAREWELL;
        while self.clients.is_sending() && Instant::now() < until {
            let mut fds: Vec<PollFd<'_>> =
                self.clients.iter().map(|client| PollFd::new(client.stream(), client.wants(true))).collect();
            let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            if poll(&mut fds, Some(&moment)).is_err() {
                break;
            }
            drop(fds);
            self.clients.flush_all(|| self.model.repaint(0), self.shown);
            self.clients.remove_gone();
        }
    }
}

/// The spec of a holder, as it comes on stdin.
pub fn read_spec(mut from: impl Read) -> io::Result<Spec> {
    let mut text = Vec::new();
    from.read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Gives up the descriptors of whoever started the holder.
pub fn leave_stdio() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    Ok(())
}
