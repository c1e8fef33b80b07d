//! A client's side of a holder's socket: blocking, for async tasks, and for a loop that polls.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode as FileMode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::protocol::{Decoder, FromHolder, Hello, Mode, ToHolder};

/// A holder answers at once; one that does not is stopped or broken.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// What is asked for is answered in less: the text of the largest screen.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// So is a screen with all of its scrollback, painted.
const PAINT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Connects to the socket of a holder of our own. The path may be longer than a socket's may be.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    connect_to(socket, rustix::process::geteuid().as_raw())
}

/// Connects to the socket of a holder that runs as this user. In the place of the socket there may be a link to any other,
/// whose owner would take what we send for our own words: nobody but this user is spoken to, and nobody is waited for.
pub(super) fn connect_to(socket: &Path, uid: u32) -> io::Result<UnixStream> {
    let no_name = || io::Error::other("a socket's path has a directory and a name");
    let (dir, name) = socket.parent().zip(socket.file_name()).ok_or_else(no_name)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, FileMode::empty())?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let opened = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&opened, &SocketAddrUnix::new(short)?)?;
    let stream = UnixStream::from(opened);
    if rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw() != uid {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the socket is not that of the terminal",
        ));
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// What the holder says that does not do what it was told.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A connection that asks and waits.
pub struct Connection {
    stream: UnixStream,
    decoder: Decoder,
    /// How long an answer may take.
    longest: Option<Duration>,
    /// How many bytes of a frame may have come before its last; None: any.
    frame_max: Option<usize>,
}

impl Connection {
    pub fn new(stream: UnixStream, hello: Hello) -> io::Result<Connection> {
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let frame_max = (hello.mode == Mode::Ask).then_some(ANSWER_BYTES_MAX);
        let mut connection =
            Connection { stream, decoder: Decoder::default(), longest: Some(ANSWER), frame_max };
        connection.send(&ToHolder::Hello(hello))?;
        Ok(connection)
    }

    pub fn send(&mut self, said: &ToHolder) -> io::Result<()> {
        self.stream.write_all(&said.encode())
    }

    /// The next frame; None when the holder is gone.
    pub fn hear(&mut self) -> io::Result<Option<FromHolder>> {
        self.hear_since(Instant::now())
    }

    /// A holder that sends a byte now and then has not answered either.
    fn hear_since(&mut self, asked: Instant) -> io::Result<Option<FromHolder>> {
        let mut unread = 0;
        loop {
            if let Some((kind, payload)) = self.decoder.take().map_err(io::Error::other)? {
                return Ok(Some(FromHolder::decode(kind, payload)));
            }
            if self.longest.is_some_and(|longest| asked.elapsed() > longest) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.frame_max.is_some_and(|most| unread > most) {
                return Err(io::Error::other("the terminal says too much"));
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(n) => {
                    unread += n;
                    self.decoder.push(buffer.get(..n).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a frame that fits; the holder may say other things before.
    pub fn wait_for<T>(&mut self, fits: impl Fn(FromHolder) -> Option<T>) -> io::Result<T> {
        let asked = Instant::now();
        loop {
            match self.hear_since(asked)? {
                Some(FromHolder::Refused(message)) => return Err(io::Error::other(Refused(message))),
                Some(said) => {
                    if let Some(found) = fits(said) {
                        return Ok(found);
                    }
                }
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal has ended")),
            }
        }
    }

    /// How long an answer may take.
    pub fn set_timeout(&mut self, longest: Option<Duration>) -> io::Result<()> {
        self.longest = longest;
        self.stream.set_read_timeout(longest)
    }
}

/// A connection for a loop that polls: nothing here waits.
pub struct Polled {
    stream: UnixStream,
    decoder: Decoder,
    /// What the holder has not taken yet.
    sending: Vec<u8>,
}

impl Polled {
    pub fn new(stream: UnixStream, hello: Hello) -> io::Result<Polled> {
        stream.set_nonblocking(true)?;
        let mut polled = Polled { stream, decoder: Decoder::default(), sending: Vec::new() };
        polled.tell(&ToHolder::Hello(hello));
        Ok(polled)
    }

    pub fn tell(&mut self, said: &ToHolder) {
        self.sending.extend_from_slice(&said.encode());
        self.send();
    }

    /// Bytes that are still to be sent.
    pub fn sending(&self) -> usize {
        self.sending.len()
    }

    pub fn send(&mut self) {
        while !self.sending.is_empty() {
            match self.stream.write(&self.sending) {
                Ok(0) => break,
                Ok(n) => drop(self.sending.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A holder that is gone shows when its end is read.
                Err(_) => self.sending.clear(),
            }
        }
    }

    /// Reads what has come; false: the holder is gone.
    pub fn read(&mut self) -> bool {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(n @ 1..) => self.decoder.push(buffer.get(..n).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            // A holder that ends with something of ours unread resets the connection.
            Ok(_) | Err(_) => return false,
        }
        true
    }

    /// The next of the frames that have come whole.
    pub fn hear(&mut self) -> io::Result<Option<FromHolder>> {
        let frame = self.decoder.take().map_err(io::Error::other)?;
        Ok(frame.map(|(kind, payload)| FromHolder::decode(kind, payload)))
    }
}

impl AsFd for Polled {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What a holder says.
pub struct FromHolderStream {
    stream: OwnedReadHalf,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// How many bytes of a frame may have come before its last.
    frame_max: usize,
}

/// What it is told.
pub struct ToHolderStream(OwnedWriteHalf);

/// Begins to speak with a holder over a connection to it.
pub async fn speak(stream: UnixStream, hello: Hello) -> io::Result<(FromHolderStream, ToHolderStream)> {
    stream.set_nonblocking(true)?;
    let (read, write) = tokio::net::UnixStream::from_std(stream)?.into_split();
    let mut to = ToHolderStream(write);
    to.tell(&ToHolder::Hello(hello)).await?;
    let frame_max = if hello.mode == Mode::Ask { ANSWER_BYTES_MAX } else { PAINT_BYTES_MAX };
    let (decoder, buffer) = (Decoder::default(), vec![0; 64 * 1024]);
    Ok((FromHolderStream { stream: read, decoder, buffer, frame_max }, to))
}

impl FromHolderStream {
    /// The next frame; None when the holder is gone. Cancelling it loses nothing.
    pub async fn hear(&mut self) -> io::Result<Option<FromHolder>> {
        loop {
            if let Some((kind, payload)) = self.decoder.take().map_err(io::Error::other)? {
                return Ok(Some(FromHolder::decode(kind, payload)));
            }
            match self.stream.read(&mut self.buffer).await {
                // A holder that ends with something of ours unread resets the connection.
                Ok(0) | Err(_) => return Ok(None),
                Ok(n) => self.decoder.push(self.buffer.get(..n).unwrap_or_default()),
            }
            if self.decoder.waiting() > self.frame_max {
                return Err(io::Error::other("the terminal says too much"));
            }
        }
    }
}

impl ToHolderStream {
    pub async fn tell(&mut self, said: &ToHolder) -> io::Result<()> {
        self.0.write_all(&said.encode()).await
    }
}
