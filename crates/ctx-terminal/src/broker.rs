//! The daemon's side of terminals: starts holders, and finds those that are there.
//!
//! What is there is asked of the disk and of the holders each time; nothing is kept, so a daemon that starts again knows
//! what the last one knew. Everything blocks. What lies in a user's directory is opened with that user's rights, because
//! the user can put anything there.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ctx_session::{IdSource, Limits, Ulid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::account::Account;
use super::checks::{NewTerminal, check, has_program};
use super::client::{ANSWER, Connection, Refused, connect_to};
use super::error::{TerminalError, failed};
use super::export::Chunked;
use super::key_names::{CursorKeys, typed};
use super::model::{Model, Screen};
use super::place::{self, About, Bounds, CageAround, End, EndReason, SOCKET, Spec, TRANSCRIPT};
use super::protocol::{FromHolder, Hello, Mode, Size, State, Status, ToHolder, VERSION};
use super::transcript::{ChunkKind, open_transcript};
use ctx_cage::Cage;
use ctx_cage::rights::{Rights, groups_of};

/// Enough for a thread that only waits.
const WAITING_STACK: usize = 64 * 1024;
/// Terminals that have ended, of those that are listed: the newest.
const ENDED_MAX: usize = 1_000;
/// Terminals without an end that are asked whether they live: more than a user can have, with those whose holders were killed.
const OPEN_MAX: usize = 10_000;
/// How long a holder may take to answer for a list, which does not depend on one that is stopped.
const LISTED: Duration = Duration::from_secs(1);
/// How long a holder may take to start, and what it may say of why it does not.
const START_MAX: Duration = Duration::from_secs(30);
const START_BYTES_MAX: usize = 4096;

/// A terminal as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    pub about: About,
    pub dir: PathBuf,
    pub state: State,
    /// What the holder says; None when it is closed.
    pub status: Option<Status>,
    /// How it ended, where that is known.
    pub end: Option<End>,
}

impl Terminal {
    pub fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    pub fn transcript(&self) -> PathBuf {
        self.dir.join(TRANSCRIPT)
    }

    /// What a person calls it.
    fn label(&self) -> String {
        self.about.name.clone().unwrap_or_else(|| self.about.id.to_string())
    }

    /// How its program wants the cursor keys.
    fn cursor_keys(&self) -> CursorKeys {
        let is_application = self.status.as_ref().is_some_and(|status| status.has_application_cursor);
        if is_application { CursorKeys::Application } else { CursorKeys::Normal }
    }

    /// What became of something that its holder was asked for.
    fn unanswered(&self, what: &'static str) -> impl FnOnce(io::Error) -> TerminalError {
        let label = self.label();
        move |error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => TerminalError::Silent(label),
            _ => match error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
                Some(Refused(message)) => TerminalError::Refused(message.clone()),
                None => TerminalError::Io { what, error },
            },
        }
    }

    /// Why it is closed.
    pub fn reason(&self) -> Option<EndReason> {
        let closed = self.state == State::Closed;
        closed.then(|| self.end.as_ref().map_or(EndReason::HolderLost, |end| end.reason))
    }
}

/// The terminals of a root.
pub struct Terminals {
    /// `.state/hold` of the root.
    pub(super) dir: PathBuf,
    bounds: Bounds,
    own_max: usize,
    /// A user's openings are one after the other: names and numbers are checked. Nobody waits for another user, whose holders
    /// may not answer.
    opening: Mutex<HashMap<u32, Arc<Mutex<()>>>>,
    ids: Mutex<IdSource>,
}

impl std::fmt::Debug for Terminals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminals").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Terminals {
    /// The terminals of the root of this path.
    pub fn new(root: &Path, limits: &Limits) -> Terminals {
        let dir = root.join(".state/hold");
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), &dir);
        let (bounds, own_max) = (Bounds::of(limits), limits.terminals_per_operator);
        Terminals { dir, bounds, own_max, opening: Mutex::default(), ids: Mutex::new(IdSource::new(seed)) }
    }

    pub(super) fn dir_of(&self, uid: u32) -> PathBuf {
        self.dir.join(uid.to_string())
    }

    /// Starts a program as a user in a terminal of its own; it runs when this returns.
    pub fn open(&self, uid: u32, new: NewTerminal) -> Result<Terminal, TerminalError> {
        let rights = Rights::of(uid)?;
        let opening = {
            let mut all = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(uid).or_default())
        };
        let _one = opening.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.check(uid, &new)?;
        let own = live.iter().filter(|terminal| terminal.about.session.is_none()).count();
        if new.of.is_none() && own >= self.own_max {
            return Err(TerminalError::TooMany(self.own_max));
        }
        let program = new.command.first().cloned().unwrap_or_default();
        let account = Account::of(uid);
        let cwd = new.cwd.unwrap_or_else(|| account.home.clone());
        let caged = new.of.as_ref().and_then(|of| of.cage.clone());
        // In a cage it is a place inside.
        if caged.is_none() && !rights.act(|| cwd.is_dir())? {
            let message = format!("{} is not a directory that you can open", cwd.display());
            return Err(TerminalError::Invalid { field: "cwd", message });
        }
        let is_own = rustix::process::geteuid().as_raw() == uid;
        let home = self.prepare(uid, (!is_own).then_some(account.gid))?;
        let created_at = new.created_at;
        let fresh = || self.ids.lock().unwrap_or_else(PoisonError::into_inner).next(created_at);
        let id = new.of.as_ref().map_or_else(fresh, |of| of.id);
        let dir = home.join(id.to_string());
        let about = About {
            id,
            name: new.name,
            command: new.command,
            cwd: cwd.clone(),
            created_at,
            session: new.of.as_ref().map(|of| of.session),
            is_agents: new.of.as_ref().is_some_and(|of| of.is_agents),
            is_caged: caged.is_some(),
        };
        let user = if is_own { None } else { Some((uid, account.gid, groups_of(uid)?)) };
        // A cage has variables of its own.
        let usual = || if caged.is_some() { term() } else { account.env() };
        let env = new.env.unwrap_or_else(usual);
        if caged.is_none() && !rights.act(|| has_program(&program, &cwd, &env))? {
            return Err(TerminalError::NoProgram(program));
        }
        let cage = caged.map(|(cage, bwrap)| {
            let parent = format!("{}{id}", self.cage_prefix());
            CageAround { cage: Cage { cwd, ..cage }, bwrap, parent }
        });
        start(&Spec { about, dir: dir.clone(), env, size: new.size, user, cage, bounds: self.bounds })?;
        rights.act(|| look(&dir, uid))?.ok_or_else(|| TerminalError::Ended(id.to_string()))
    }

    /// Whether a terminal can be opened, as far as is known before; those of the user that live.
    pub fn check(&self, uid: u32, new: &NewTerminal) -> Result<Vec<Terminal>, TerminalError> {
        check(new)?;
        let is_live = |terminal: &Terminal| terminal.state != State::Closed;
        let live: Vec<Terminal> = self.list(uid)?.into_iter().filter(is_live).collect();
        let is_taken = |name: &&String| live.iter().any(|one| one.about.name.as_ref() == Some(*name));
        if let Some(name) = new.name.as_ref().filter(is_taken) {
            return Err(TerminalError::NameTaken(name.clone()));
        }
        Ok(live)
    }

    /// The user's directory, which only they can open.
    fn prepare(&self, uid: u32, gid: Option<u32>) -> Result<PathBuf, TerminalError> {
        let home = self.dir_of(uid);
        let made = || -> io::Result<()> {
            std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&self.dir)?;
            if home.is_dir() {
                return Ok(());
            }
            std::fs::DirBuilder::new().mode(0o700).create(&home)?;
            std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700))?;
            if gid.is_some() {
                chown(&home, Some(uid), gid)?;
            }
            Ok(())
        };
        made().map_err(failed("create the directory of terminals"))?;
        Ok(home)
    }

    /// A user's terminals, oldest first, with those that have ended, of which the screens are left out.
    pub fn list(&self, uid: u32) -> Result<Vec<Terminal>, TerminalError> {
        let home = self.dir_of(uid);
        let mut found = Rights::of(uid)?.act(|| {
            let without_screen = |mut terminal: Terminal| {
                if let Some(end) = &mut terminal.end {
                    end.screen.text = String::new();
                }
                terminal
            };
            newest(&home)
                .filter_map(|dir| look_for(&dir, uid, LISTED).map(without_screen))
                .collect::<Vec<_>>()
        })?;
        found.sort_by_key(|terminal| terminal.about.id);
        Ok(found)
    }

    /// A terminal by its id, or by its name: a live one before those that have ended, and of these the newest.
    pub fn find(&self, uid: u32, word: &str) -> Result<Terminal, TerminalError> {
        let home = self.dir_of(uid);
        let found = Rights::of(uid)?.act(|| {
            if let Ok(id) = word.parse::<Ulid>() {
                return look(&home.join(id.to_string()), uid);
            }
            let is_named =
                |dir: &PathBuf| place::read_about(dir).is_ok_and(|about| about.name.as_deref() == Some(word));
            let mut ended: Option<Terminal> = None;
            for terminal in newest(&home).filter(is_named).filter_map(|dir| look(&dir, uid)) {
                if terminal.state != State::Closed {
                    return Some(terminal);
                }
                ended = ended.into_iter().chain([terminal]).max_by_key(|terminal| terminal.about.id);
            }
            ended
        })?;
        found.ok_or_else(|| TerminalError::NotFound(word.to_owned()))
    }

    /// A connection to the holder of a terminal.
    pub fn connect(&self, uid: u32, terminal: &Terminal) -> Result<UnixStream, TerminalError> {
        let socket = terminal.socket();
        let connected = Rights::of(uid)?.act(|| connect_to(&socket, uid))?;
        connected.map_err(|_| TerminalError::Ended(terminal.label()))
    }

    /// Ends the program of a terminal, and waits until it has.
    pub fn close(&self, uid: u32, word: &str) -> Result<Terminal, TerminalError> {
        let terminal = self.find(uid, word)?;
        if terminal.state == State::Closed {
            return Ok(terminal);
        }
        if let Ok(stream) = self.connect(uid, &terminal) {
            let asked = Connection::new(stream, ASK).and_then(|mut holder| {
                holder.send(&ToHolder::Close)?;
                holder.wait_for(|said| matches!(said, FromHolder::End(_)).then_some(()))
            });
            if let Err(error) = asked.map_err(terminal.unanswered("close the terminal")) {
                // A holder that ends closes its socket; one that does not answer is an error.
                let now = self.find(uid, word)?;
                return if now.state == State::Closed { Ok(now) } else { Err(error) };
            }
        }
        self.find(uid, &terminal.about.id.to_string())
    }

    /// The screen of a terminal; of one that has ended, its last.
    pub fn screen(&self, uid: u32, terminal: &Terminal) -> Result<Screen, TerminalError> {
        if terminal.state != State::Closed {
            let asked = self.ask(uid, terminal).and_then(|mut holder| {
                let asked = holder.send(&ToHolder::Screen).and_then(|()| {
                    holder.wait_for(|said| match said {
                        FromHolder::Screen(screen) => Some(screen),
                        FromHolder::End(end) => Some(end.screen),
                        _ => None,
                    })
                });
                asked.map_err(terminal.unanswered("read the screen"))
            });
            let now = self.find(uid, &terminal.about.id.to_string())?;
            return if now.state == State::Closed { self.screen(uid, &now) } else { asked };
        }
        match &terminal.end {
            Some(end) if end.screen.cols > 0 => Ok(end.screen.clone()),
            // Its holder did not live to tell, or had no room for it.
            Some(_) | None => {
                last_screen(self.transcript(uid, terminal)?).map_err(failed("read the transcript"))
            }
        }
    }

    /// Types some text and then some keys into a terminal; the holder has it when this returns.
    pub fn send(
        &self,
        uid: u32,
        terminal: &Terminal,
        text: &str,
        keys: &[String],
    ) -> Result<(), TerminalError> {
        let bytes = typed(text, keys, terminal.cursor_keys())?;
        let mut holder = self.ask(uid, terminal)?;
        let sent = holder.send(&ToHolder::Input(bytes)).map_err(terminal.unanswered("type"));
        if let Err(TerminalError::Io { .. }) = sent {
            return Err(TerminalError::Ended(terminal.label()));
        }
        sent?;
        let answered = holder
            .send(&ToHolder::Status)
            .and_then(|()| holder.wait_for(|said| matches!(said, FromHolder::Status(_)).then_some(())));
        match answered.map_err(terminal.unanswered("type")) {
            // The program may end by what was typed, and its holder with it, before it answers.
            Ok(()) | Err(TerminalError::Io { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn ask(&self, uid: u32, terminal: &Terminal) -> Result<Connection, TerminalError> {
        let stream = self.connect(uid, terminal)?;
        Connection::new(stream, ASK).map_err(terminal.unanswered("ask the terminal"))
    }

    /// What a terminal has shown.
    pub fn transcript(
        &self,
        uid: u32,
        terminal: &Terminal,
    ) -> Result<impl Chunked + Send + use<>, TerminalError> {
        let path = terminal.transcript();
        Rights::of(uid)?.act(|| open_transcript(&path))?.map_err(failed("open the transcript"))
    }
}

/// The variables of a terminal in a cage.
fn term() -> Vec<(String, String)> {
    vec![("TERM".to_owned(), "xterm-256color".to_owned())]
}

pub const ASK: Hello = Hello { version: VERSION, mode: Mode::Ask, size: None, scrollback: 0 };

/// The directories of all terminals that may live, and of the newest that have ended; of both the newest first.
fn newest(home: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(home).into_iter().flatten().flatten();
    let mut ids: Vec<Ulid> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    let dirs = ids.into_iter().map(|id| home.join(id.to_string()));
    let (ended, open): (Vec<PathBuf>, Vec<PathBuf>) = dirs.partition(|dir| place::has_end(dir));
    open.into_iter().take(OPEN_MAX).chain(ended.into_iter().take(ENDED_MAX))
}

/// What is in a directory; None: no terminal, or one that is being made.
pub(super) fn look(dir: &Path, uid: u32) -> Option<Terminal> {
    look_for(dir, uid, ANSWER)
}

/// The same, given how long its holder may take to answer.
fn look_for(dir: &Path, uid: u32, longest: Duration) -> Option<Terminal> {
    let mut about = place::read_about(dir).ok()?;
    // Which one it is follows from where it lies.
    about.id = dir.file_name()?.to_str()?.parse().ok()?;
    let ended = |end: Option<End>| Terminal {
        about: about.clone(),
        dir: dir.to_owned(),
        state: State::Closed,
        status: None,
        end,
    };
    if let Some(end) = place::read_end(dir) {
        return Some(ended(Some(end)));
    }
    let status = connect_to(&dir.join(SOCKET), uid).and_then(|stream| {
        let mut holder = Connection::new(stream, ASK)?;
        holder.set_timeout(Some(longest))?;
        holder.wait_for(|said| match said {
            FromHolder::Welcome(status) => Some(status),
            _ => None,
        })
    });
    match status {
        Ok(status) => {
            let state = status.state;
            Some(Terminal { about, dir: dir.to_owned(), state, status: Some(status), end: None })
        }
        // A holder that takes connections and does not answer is stopped, or its machine is very busy.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Some(Terminal { about, dir: dir.to_owned(), state: State::Detached, status: None, end: None })
        }
        // It may have ended just now.
        Err(_) => Some(ended(place::read_end(dir))),
    }
}

/// The screen that a transcript ends with.
fn last_screen(transcript: impl Chunked) -> io::Result<Screen> {
    let mut model = Model::with_scrollback(Size::new(80, 24), 0);
    for chunk in transcript {
        match chunk?.kind {
            ChunkKind::Dropped(_) | ChunkKind::Missing(_) | ChunkKind::Damaged => {}
            ChunkKind::Output(bytes) => drop(model.feed(&bytes)),
            ChunkKind::Resize(size) => model.resize(Size::new(size.cols, size.rows)),
        }
    }
    Ok(model.screen())
}

/// Starts a holder and waits until clients can connect to it.
fn start(spec: &Spec) -> Result<(), TerminalError> {
    let what = "start the terminal";
    // What this daemon was started with is not for holders and their programs.
    ctx_cage::keep_descriptors();
    let mut child = Command::new("/proc/self/exe")
        .arg0("ctx")
        .arg("hold")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed(what))?;
    let text = serde_json::to_vec(spec).map_err(|error| failed(what)(error.into()))?;
    let sent = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&text));
    let said = child.stdout.take().map_or_else(|| Some(String::new()), first_line);
    if said.is_none() {
        let _ = child.kill();
    }
    // The holder outlives this daemon, or ends before it; somebody must take note of its end.
    let _ = std::thread::Builder::new().stack_size(WAITING_STACK).spawn(move || child.wait());
    let Some(said) = said else {
        return Err(failed(what)(io::Error::new(io::ErrorKind::TimedOut, "its holder does not answer")));
    };
    match said.trim() {
        "up" => Ok(()),
        "" => Err(failed(what)(sent.err().unwrap_or_else(|| io::Error::other("its holder ended at once")))),
        reason => Err(failed(what)(io::Error::other(reason.to_owned()))),
    }
}

/// What a holder says first; None: it takes too long. It is a process of its user, who can stop it.
fn first_line(mut stdout: ChildStdout) -> Option<String> {
    let until = Instant::now() + START_MAX;
    let mut said = Vec::new();
    while !said.contains(&b'\n') && said.len() < START_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        let mut ready = [PollFd::new(&stdout, PollFlags::IN)];
        if left.is_zero() || poll(&mut ready, Timespec::try_from(left).ok().as_ref()) == Ok(0) {
            return None;
        }
        let mut buffer = [0; 256];
        match stdout.read(&mut buffer) {
            // A pipe that breaks says the same as one that ends: the holder is gone.
            Ok(0) | Err(_) => break,
            Ok(n) => said.extend_from_slice(buffer.get(..n).unwrap_or_default()),
        }
    }
    Some(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests;
