//! What a shell runs over: a POSIX shell somewhere with three byte streams.
//!
//! A [`Transport`] makes a [`Connection`], one per shell; a connection starts a command interpreter, and
//! starts it anew when it has died. Over a machine of its own it is pipes; over ssh or a container it is
//! whatever carries three streams. What the bytes mean is the frame's business, not the transport's.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe::Receiver;

use super::error::ShellError;
use super::frame::exports::Export;
use super::frame::{Dialect, Pipes};
use super::local::caged::CageSlot;
use super::local::scratch::Scratch;

/// A future of a trait that must stay usable as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where a command interpreter starts.
#[derive(Debug, Clone, Default)]
pub struct StartPlace {
    pub cwd: PathBuf,
    pub env: Vec<Export>,
}

/// The three byte streams of a running interpreter.
pub struct Streams {
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    pub stdout: Source,
    pub stderr: Source,
}

/// Where an interpreter's output comes from.
#[derive(Default)]
pub enum Source {
    /// A thread can read it without the runtime.
    Pipe(Receiver),
    #[default]
    Closed,
}

impl AsyncRead for Source {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Source::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buf),
            Source::Closed => Poll::Ready(Ok(())),
        }
    }
}

impl Streams {
    /// Streams of nothing, in the place of those that are closed.
    pub fn none() -> Streams {
        Streams { stdin: Box::new(tokio::io::sink()), stdout: Source::default(), stderr: Source::default() }
    }
}

/// One of the two streams that an interpreter and its commands print into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// How hard a running command is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// INT
    Ask,
    /// TERM
    Insist,
    /// KILL
    Kill,
}

/// Makes the connections of one kind.
pub trait Transport: Send + Sync {
    /// `local`, `ssh` or `docker`.
    fn name(&self) -> &'static str;

    /// What follows the number in a shell's id: `local`, `ssh_me@host`.
    fn label(&self) -> String;

    /// A connection for the n-th shell of this server; nothing runs yet.
    /// With a cage: what it runs, it runs in there.
    fn connect(&self, n: u64, cage: Option<Arc<CageSlot>>) -> Result<Box<dyn Connection>, ShellError>;
}

/// One shell's way to its interpreter. What only one of the two kinds has is nothing, or no, for the other.
pub trait Connection: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// The names of its streams, once it is started.
    fn pipes(&self) -> &Pipes;

    /// Starts the interpreter, again where one ran before. Streams of the one before must be dropped first.
    fn start<'a>(&'a mut self, place: &'a StartPlace) -> BoxFuture<'a, Result<Streams, ShellError>>;

    /// The interpreter's exit code, when it ends; 128 and the signal's number where a signal ended it.
    fn wait(&mut self) -> BoxFuture<'_, i32>;

    /// The same, where it has ended already.
    fn has_ended(&mut self) -> Option<i32>;

    /// Whether the frame itself marks the end of a command on stderr, because a mark of ours would come too late.
    fn marks_ends(&self) -> bool {
        false
    }

    /// Whether everything that was printed on a stream was read. Then it needs no mark.
    fn is_drained(&self, stream: Stream) -> bool;

    /// Puts a mark behind everything that was printed on a stream. Where there is no room for it now, what is returned
    /// does so later.
    fn mark(&self, stream: Stream, mark: Vec<u8>) -> Option<BoxFuture<'static, ()>>;

    /// Remembers what is alive: it is older than the command that starts now.
    fn command_starts(&mut self) {}

    /// Learns what is alive now that the command has ended, where that takes a while.
    fn command_ended(&mut self) {}

    /// Whether the interpreter waits for its next command and all that it has printed was read: if the end
    /// of the last one was not reported by then, it never will be.
    fn awaits_command(&self) -> bool;

    /// Whether something that was sent to the interpreter, which has ended, was not read by it.
    fn left_unread(&self) -> bool {
        false
    }

    /// Whether the interpreter may hold many more variables than when it started.
    fn holds_much(&mut self) -> bool {
        false
    }

    /// Where the interpreter is, by what it says of it; what it says may be wrong.
    fn cwd(&self, said: &Path) -> PathBuf;

    /// Asks the command, and every process that came of it, to stop; waits at most `patience` and
    /// returns how many processes are left. The interpreter itself lives on.
    fn stop(&self, force: Force, patience: Duration) -> BoxFuture<'static, usize>;

    /// Waits until the other side does not answer any more: its streams may then stay open without end.
    fn lost(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// The directory itself, or the nearest above it that an interpreter can start in.
    fn nearest_dir(&self, cwd: &Path) -> PathBuf;

    /// Whether the interpreter was started in a directory above the one that was asked for, by its start there.
    fn is_above(&self) -> bool {
        false
    }

    /// Whether an interpreter that has ended is replaced at once. If not, the next command does it.
    fn may_restart(&self) -> bool;

    /// Whether a limit was reached that ends all processes: then the interpreter has ended too.
    fn is_at_limit(&mut self) -> bool {
        false
    }

    /// What whoever gave a command that failed and printed this is to know.
    fn failure_hint(&self, _printed: &str) -> Option<String> {
        None
    }

    /// For how long all processes were stopped so far; a command has that time in addition.
    fn frozen_for(&self) -> Duration {
        Duration::ZERO
    }

    /// Puts bytes into a file that the interpreter can open.
    fn put(&self, bytes: Vec<u8>) -> BoxFuture<'static, Result<Scratch, ShellError>>;

    /// Ends the interpreter, not its background jobs.
    fn kill_interpreter(&self);

    /// Ends everything this connection ever started.
    fn close(&mut self) -> BoxFuture<'_, ()>;
}
