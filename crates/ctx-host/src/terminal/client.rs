//! A client's side of a holder's socket, blocking; and how keys are called.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode as FileMode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::protocol::{Decoder, FromHolder, Hello, Mode, ToHolder};

/// A holder answers at once; one that does not is stopped or broken.
const ANSWER: Duration = Duration::from_secs(5);
/// What is asked for is answered in less: the text of the largest screen.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

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
                Some(FromHolder::Refused(message)) => return Err(io::Error::other(message)),
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

/// Keys that have a name of their own.
const NAMED: &[(&str, &[u8])] = &[
    ("Enter", b"\r"),
    ("Tab", b"\t"),
    ("Escape", b"\x1b"),
    ("Space", b" "),
    ("Backspace", b"\x7f"),
    ("Delete", b"\x1b[3~"),
    ("Up", b"\x1b[A"),
    ("Down", b"\x1b[B"),
    ("Right", b"\x1b[C"),
    ("Left", b"\x1b[D"),
    ("Home", b"\x1b[H"),
    ("End", b"\x1b[F"),
    ("PageUp", b"\x1b[5~"),
    ("PageDown", b"\x1b[6~"),
];

/// What a key sends: `Enter`, `C-c` (Ctrl), `M-x` (Alt), or a single character. None: there is no such key.
pub fn keys(name: &str) -> Option<Vec<u8>> {
    if let Some((_, bytes)) = NAMED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Some(bytes.to_vec());
    }
    if let Some(key) = name.strip_prefix("M-") {
        return keys(key).map(|bytes| [b"\x1b".as_slice(), &bytes].concat());
    }
    if let Some(key) = name.strip_prefix("C-") {
        return match key.as_bytes() {
            [b'?'] => Some(vec![0x7f]),
            [b' '] => Some(vec![0]),
            [byte @ (b'@'..=b'_' | b'a'..=b'z')] => Some(vec![byte & 0x1f]),
            _ => None,
        };
    }
    let mut characters = name.chars();
    characters.next().filter(|_| characters.next().is_none()).map(|only| only.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_names_that_people_know() {
        for (name, bytes) in [
            ("Enter", b"\r".as_slice()),
            ("up", b"\x1b[A"),
            ("C-c", b"\x03"),
            ("C-\\", b"\x1c"),
            ("C-?", b"\x7f"),
            ("M-x", b"\x1bx"),
            ("M-C-x", b"\x1b\x18"),
            ("q", b"q"),
            ("ü", "ü".as_bytes()),
        ] {
            assert_eq!(keys(name).as_deref(), Some(bytes), "{name}");
        }
        for name in ["", "Entr", "C-", "C-1", "C-cc"] {
            assert_eq!(keys(name), None, "{name}");
        }
    }
}
