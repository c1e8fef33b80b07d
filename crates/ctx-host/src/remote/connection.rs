//! One shell's way to its interpreter on another machine or in a container.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Way;
use super::control::{Control, finish, next_line};
use super::far::{self, INTERPRETER, Names, Start};
use super::private::{PASSWORD, PrivateDir};
use crate::error::ShellError;
use crate::frame::marker::END_TAG;
use crate::frame::stop::STOP_SIGNAL;
use crate::frame::{Dialect, Pipes};
use crate::local::random::random_bits;
use crate::local::scratch::Scratch;
use crate::transport::{BoxFuture, Connection, Force, Source, StartPlace, Stream, Streams};

/// The time in which a connection must be made and answer.
const CONNECT_MAX: Duration = Duration::from_secs(40);
/// The time in which an interpreter must start there, and a file must have arrived.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// A side that takes longer to say what a stop has come to does not answer any more.
const STOP_ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often the processes that are to end are counted.
const COUNT_EVERY: Duration = Duration::from_millis(25);
/// More than that is not kept of what was printed before the other side said that it is there.
const NOISE_MAX: usize = 64 << 10;

pub(super) struct RemoteConnection {
    way: Arc<Way>,
    dir: Arc<PrivateDir>,
    names: Names,
    pipes: Pipes,
    dialect: Dialect,
    link: Option<Link>,
    /// Whether the interpreter's directory is above the one that it was to start in.
    is_above: bool,
    /// Interpreters that were started.
    started: u64,
    /// The newest process there when the last command had ended.
    newest: Newest,
}

/// What is connected.
struct Link {
    control: Control,
    task: JoinHandle<()>,
    data: Child,
    /// Our ends of the data channel: each interpreter gets copies.
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// The directory on the other side.
    dir: String,
}

#[derive(Debug, Clone, Default)]
struct Newest(Arc<Mutex<NewestState>>);

#[derive(Debug, Default)]
struct NewestState {
    pid: u64,
    /// The tick in which it started.
    since: u64,
    /// It was asked for and has not been said yet.
    asked: Option<oneshot::Receiver<(u64, u64)>>,
}

impl RemoteConnection {
    pub fn new(way: Arc<Way>, dir: PrivateDir) -> RemoteConnection {
        let names = Names::new(random_bits());
        let pipes =
            Pipes { commands: PathBuf::new(), stdout: PathBuf::new(), stderr: PathBuf::new(), names: None };
        let dialect = Dialect::Posix;
        RemoteConnection {
            way,
            dir: Arc::new(dir),
            names,
            pipes,
            dialect,
            link: None,
            started: 0,
            is_above: false,
            newest: Newest::default(),
        }
    }

    async fn connect(&mut self) -> Result<(), ShellError> {
        let slow = || self.way.failure("it does not answer");
        let made = tokio::time::timeout(CONNECT_MAX, self.link()).await;
        let link = made.map_err(|_| slow())?;
        // It is needed for the login alone.
        self.dir.remove(PASSWORD);
        let (link, is_bash) = link?;
        let dir = PathBuf::from(&link.dir);
        self.dialect = if is_bash { Dialect::Bash } else { Dialect::Posix };
        self.pipes = Pipes {
            commands: dir.join(&self.names.commands),
            stdout: dir.join(&self.names.stdout),
            stderr: dir.join(&self.names.stderr),
            names: None,
        };
        self.link = Some(link);
        Ok(())
    }

    /// Opens both channels.
    async fn link(&self) -> Result<(Link, bool), ShellError> {
        let broken = |error: io::Error| self.way.failure(&error.to_string());
        let mut data = self.way.first(&self.dir)?.spawn().map_err(broken)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (data.stdin.take(), data.stdout.take(), data.stderr.take())
        else {
            return Err(self.way.failure("it has no streams"));
        };
        let stdin = stdin.into_owned_fd().and_then(nonblocking).map_err(broken)?;
        let stdout = stdout.into_owned_fd().and_then(nonblocking).map_err(broken)?;
        let stderr = stderr.into_owned_fd().and_then(nonblocking).map_err(broken)?;
        // ssh may end before it has read this; what it says is the reason then.
        let sent = write_all(&stdin, far::data(&self.names).as_bytes()).await;
        let hello = &self.names.hello;
        let (said, complaint) = tokio::join!(until_hello(&stdout, hello), until_hello(&stderr, hello));
        let (said, complaint) = (said.map_err(broken)?, complaint.map_err(broken)?);
        let (Some(line), Some(_)) = (&said.line, &complaint.line) else {
            return Err(match (complaint.noise.trim(), said.noise.trim()) {
                // ssh says so where it does not get in, and so does an engine.
                ("", told) => self.way.no_shell(told),
                (reason, _) => self.way.failure(reason),
            });
        };
        sent.map_err(broken)?;
        let (kind, dir) = line.split_once(' ').ok_or_else(|| self.way.failure("it has no POSIX shell"))?;
        let (control, task) = self.control(dir).await?;
        let (dir, is_bash) = (dir.to_owned(), kind == "bash");
        Ok((Link { control, task, data, stdin, stdout, stderr, dir }, is_bash))
    }

    async fn control(&self, dir: &str) -> Result<(Control, JoinHandle<()>), ShellError> {
        let broken = |error: io::Error| self.way.failure(&error.to_string());
        let mut command = self.way.further(&self.dir, INTERPRETER);
        let mut child = command.spawn().map_err(broken)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(mut stderr)) = streams else {
            return Err(self.way.failure("it has no streams"));
        };
        // ssh may end before it has read this; what it says is the reason then.
        let sent = stdin.write_all(far::control(&self.names, dir, self.way.beat).as_bytes()).await;
        let mut stdout = BufReader::new(stdout);
        while let Some(line) = next_line(&mut stdout).await.map_err(broken)? {
            if line.trim_end() == self.names.hello {
                sent.map_err(broken)?;
                // Nothing reads it from here on: it is drained, so that ssh is never held up.
                tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await });
                return Ok(Control::start(child, stdin, stdout, self.way.beat));
            }
        }
        let mut complaint = Vec::new();
        // One that breaks off has said what it has said.
        let _ = stderr.take(NOISE_MAX as u64).read_to_end(&mut complaint).await;
        Err(match String::from_utf8_lossy(&complaint).trim() {
            "" => self.way.failure("its second channel was closed"),
            said => self.way.failure(said),
        })
    }

    async fn try_start(&mut self, place: &StartPlace) -> Result<Streams, ShellError> {
        let again = self.link.is_some();
        if !again {
            self.connect().await?;
        }
        let Some(link) = &self.link else { return Err(ShellError::NoInterpreter) };
        let broken = |error: io::Error| self.way.failure(&error.to_string());
        let lost = || self.way.failure("the connection was lost");
        if again {
            // What the interpreter before has left unread is none of the next one's.
            let end = format!("{:032x}", random_bits());
            let line = format!("\n{end}\n");
            let (sent, drained) = tokio::join!(
                write_all(&link.stdin, line.as_bytes()),
                tokio::time::timeout(ANSWER_MAX, link.control.ask('d', format!("d {end}"))),
            );
            sent.map_err(broken)?;
            drained.ok().flatten().ok_or_else(lost)?;
        }
        self.started += 1;
        let start = Start {
            names: &self.names,
            dir: &link.dir,
            is_bash: self.dialect == Dialect::Bash,
            cwd: &place.cwd,
            env: &place.env,
            again,
        };
        let file = self.put_bytes(far::start(&start)).await?;
        let name = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let asked = link.control.ask('s', format!("s {name} {}", self.started));
        let said = tokio::time::timeout(ANSWER_MAX, asked).await.ok().flatten().ok_or_else(lost)?;
        let [pid, marked, above] = words(&said);
        self.is_above = above == "1";
        if pid == "0" {
            let cwd = place.cwd.display();
            return Err(ShellError::invalid("cwd", format!("cwd `{cwd}` is not a directory there")));
        }
        link.control.ask('g', format!("g {pid} {marked}")).await.ok_or_else(lost)?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(broken);
        let stdin = Sender::from_owned_fd(copy(&link.stdin)?).map_err(broken)?;
        let reader = |fd: &OwnedFd| copy(fd).and_then(|fd| Receiver::from_owned_fd(fd).map_err(broken));
        Ok(Streams {
            stdin: Box::new(Commands { stdin, newest: self.newest.clone() }),
            stdout: Source::Pipe(reader(&link.stdout)?),
            stderr: Source::Pipe(reader(&link.stderr)?),
        })
    }

    /// Brings bytes into a file on the other side, by a channel of their own.
    fn put_bytes(&self, bytes: Vec<u8>) -> BoxFuture<'static, Result<Scratch, ShellError>> {
        let Some(link) = &self.link else { return Box::pin(async { Err(ShellError::NoInterpreter) }) };
        let (way, dir, control) = (Arc::clone(&self.way), Arc::clone(&self.dir), link.control.clone());
        let name = format!("{:032x}", random_bits());
        let path = Path::new(&link.dir).join(&name);
        let mut command = self.way.further(&dir, &format!("exec cat >{}", path.display()));
        Box::pin(async move {
            let broken = |error: io::Error| way.failure(&error.to_string());
            let work = async {
                let mut child = command.stdout(std::process::Stdio::null()).spawn()?;
                if let Some(mut stdin) = child.stdin.take() {
                    stdin.write_all(&bytes).await?;
                }
                child.wait_with_output().await
            };
            let done = tokio::time::timeout(ANSWER_MAX, work).await;
            let done = done.map_err(|_| way.failure("a file was not taken in time"))?.map_err(broken)?;
            if !done.status.success() {
                return Err(way.failure(&String::from_utf8_lossy(&done.stderr)));
            }
            Ok(Scratch::elsewhere(path, move || control.order(format!("u {name}"))))
        })
    }
}

/// Where the commands are written to. Before the first bytes of a command it must be known which process there is the
/// newest: what is newer belongs to the command.
struct Commands {
    stdin: Sender,
    newest: Newest,
}

impl AsyncWrite for Commands {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        {
            let mut state = self.newest.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(asked) = &mut state.asked {
                match Pin::new(asked).poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(said) => {
                        state.asked = None;
                        (state.pid, state.since) = said.unwrap_or((state.pid, state.since));
                    }
                }
            }
        }
        Pin::new(&mut self.stdin).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_shutdown(cx)
    }
}

fn words<const N: usize>(said: &str) -> [&str; N] {
    let mut words = said.split(' ');
    std::array::from_fn(|_| words.next().unwrap_or("0"))
}

fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(fd.as_fd(), true)?;
    Ok(fd)
}

async fn write_all(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    Sender::from_owned_fd(fd.try_clone()?)?.write_all(bytes).await
}

/// What a stream has said up to the line of the other side's first words, if that came.
struct Hello {
    line: Option<String>,
    noise: String,
}

async fn until_hello(fd: &OwnedFd, hello: &str) -> io::Result<Hello> {
    let mut stream = Receiver::from_owned_fd(fd.try_clone()?)?;
    let mut said = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await?;
        said.extend(bytes.iter().take(count));
        let text = String::from_utf8_lossy(&said);
        let found = text.rfind(hello).and_then(|at| text.get(at + hello.len()..));
        if let Some(line) = found.and_then(|rest| rest.strip_suffix('\n')) {
            return Ok(Hello { line: Some(line.trim_start().to_owned()), noise: String::new() });
        }
        if count == 0 || said.len() > NOISE_MAX {
            return Ok(Hello { line: None, noise: text.into_owned() });
        }
    }
}

impl Connection for RemoteConnection {
    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn pipes(&self) -> &Pipes {
        &self.pipes
    }

    fn start<'a>(&'a mut self, place: &'a StartPlace) -> BoxFuture<'a, Result<Streams, ShellError>> {
        Box::pin(self.try_start(place))
    }

    fn wait(&mut self) -> BoxFuture<'_, i32> {
        let (control, number) = (self.link.as_ref().map(|link| link.control.clone()), self.started);
        Box::pin(async move {
            match control {
                Some(control) => control.ended(number).await,
                None => std::future::pending().await,
            }
        })
    }

    fn has_ended(&mut self) -> Option<i32> {
        self.link.as_ref()?.control.has_ended(self.started)
    }

    fn marks_ends(&self) -> bool {
        true
    }

    fn is_drained(&self, _stream: Stream) -> bool {
        false
    }

    fn mark(&self, stream: Stream, mark: Vec<u8>) -> Option<BoxFuture<'static, ()>> {
        // The frame itself marks where stderr ends.
        if mark.last() == Some(&END_TAG) {
            return None;
        }
        let control = self.link.as_ref()?.control.clone();
        let pipe = match stream {
            Stream::Stdout => &self.names.stdout,
            Stream::Stderr => &self.names.stderr,
        };
        let text = String::from_utf8_lossy(mark.get(1..).unwrap_or_default()).into_owned();
        let line = format!("m {pipe} {text}");
        // Not before somebody waits for it: a mark of the start could come behind the command's first words.
        Some(Box::pin(async move { control.order(line) }))
    }

    fn command_ended(&mut self) {
        let Some(link) = &self.link else { return };
        let (answer, asked) = oneshot::channel();
        let control = link.control.clone();
        tokio::spawn(async move {
            let said = control.ask('b', "b".to_owned()).await.unwrap_or_default();
            let [pid, since] = words(&said).map(str::parse);
            if let (Ok(pid), Ok(since)) = (pid, since) {
                // Nobody waits for it where the shell ends.
                let _ = answer.send((pid, since));
            }
        });
        self.newest.0.lock().unwrap_or_else(PoisonError::into_inner).asked = Some(asked);
    }

    fn awaits_command(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.control.waits())
    }

    fn cwd(&self, said: &Path) -> PathBuf {
        said.to_owned()
    }

    fn stop(&self, force: Force, patience: Duration) -> BoxFuture<'static, usize> {
        let Some(link) = &self.link else { return Box::pin(std::future::ready(0)) };
        let control = link.control.clone();
        let newest = {
            let state = self.newest.0.lock().unwrap_or_else(PoisonError::into_inner);
            format!("{} {}", state.pid, state.since)
        };
        let (signal, again) = match force {
            Force::Ask => ("INT", "0"),
            Force::Insist => ("TERM", "0"),
            // What has come since the last look must end too.
            Force::Kill => ("KILL", "KILL"),
        };
        Box::pin(async move {
            let until = Instant::now() + patience;
            let count = async |order: String| {
                let said = tokio::time::timeout(STOP_ANSWER_MAX, control.ask('k', order)).await;
                let said = said.unwrap_or_else(|_| {
                    control.give_up();
                    None
                });
                said.and_then(|said| said.parse().ok()).unwrap_or(0)
            };
            let mut left = count(format!("k {signal} {newest}")).await;
            while left > 0 && Instant::now() < until {
                tokio::time::sleep(COUNT_EVERY).await;
                left = count(format!("c {again} {newest}")).await;
            }
            left
        })
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        match self.link.as_ref().map(|link| link.control.clone()) {
            Some(control) => Box::pin(async move { control.lost().await }),
            None => Box::pin(std::future::pending()),
        }
    }

    fn nearest_dir(&self, cwd: &Path) -> PathBuf {
        // The start looks for it there.
        cwd.to_owned()
    }

    fn is_above(&self) -> bool {
        self.is_above
    }

    fn may_restart(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.control.is_lost())
    }

    fn put(&self, bytes: Vec<u8>) -> BoxFuture<'static, Result<Scratch, ShellError>> {
        self.put_bytes(bytes)
    }

    fn kill_interpreter(&self) {
        if let Some(link) = &self.link {
            link.control.order("i".to_owned());
        }
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Some(Link { control, task, mut data, stdin, .. }) = self.link.take() else { return };
            finish(control, task).await;
            drop(stdin);
            if let Err(error) = data.start_kill() {
                tracing::debug!(%error, "the data channel was closed already");
            }
            let _ = data.wait().await;
        })
    }
}

const _: () = assert!(STOP_SIGNAL.as_raw() == 16, "the control script sends it by its number");
