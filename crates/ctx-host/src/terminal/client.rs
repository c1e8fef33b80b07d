//! A client's side of a holder's socket, blocking; and how keys are called.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::protocol::{Decoder, FromHolder, Hello, ToHolder};

/// A holder answers at once; one that does not is stopped or broken.
const ANSWER: Duration = Duration::from_secs(5);

/// Connects to a holder's socket. The path may be longer than a socket's may be.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let no_name = || io::Error::other("a socket's path has a directory and a name");
    let (dir, name) = socket.parent().zip(socket.file_name()).ok_or_else(no_name)?;
    let dir = File::open(dir)?;
    UnixStream::connect(Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name))
}

/// A connection that asks and waits.
pub struct Connection {
    stream: UnixStream,
    decoder: Decoder,
}

impl Connection {
    pub fn new(stream: UnixStream, hello: Hello) -> io::Result<Connection> {
        stream.set_read_timeout(Some(ANSWER))?;
        let mut connection = Connection { stream, decoder: Decoder::default() };
        connection.send(&ToHolder::Hello(hello))?;
        Ok(connection)
    }

    pub fn send(&mut self, said: &ToHolder) -> io::Result<()> {
        self.stream.write_all(&said.encode())
    }

    /// The next frame; None when the holder is gone.
    pub fn hear(&mut self) -> io::Result<Option<FromHolder>> {
        loop {
            if let Some((kind, payload)) = self.decoder.take().map_err(io::Error::other)? {
                return Ok(Some(FromHolder::decode(kind, payload)));
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(n) => self.decoder.push(buffer.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a frame that fits; the holder may say other things before.
    pub fn wait_for<T>(&mut self, fits: impl Fn(FromHolder) -> Option<T>) -> io::Result<T> {
        loop {
            match self.hear()? {
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
    pub fn set_timeout(&self, longest: Option<Duration>) -> io::Result<()> {
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
