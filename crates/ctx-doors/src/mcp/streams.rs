//! The server's stdin and stdout as streams that wait without a thread of their own.
//!
//! Most hosts start a server over pipes; those on Node.js over sockets. Both are read and written here
//! without changing their flags, which belong to whoever else holds them. Anything else, a terminal or a
//! file, goes through tokio's blocking threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, fstat};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

pub(super) type Input = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// This process's stdin and stdout. `ended` is cancelled when stdin ends.
pub(super) fn stdio(ended: CancellationToken) -> io::Result<(Input, Output)> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let (input, output): (Input, Output) = if is_socket(stdin.as_fd()) && is_socket(stdout.as_fd()) {
        (Box::new(Socket::of(stdin.as_fd())?), Box::new(Socket::of(stdout.as_fd())?))
    } else {
        let (input, output) = rmcp::transport::io::stdio_pipes();
        (Box::new(input), Box::new(output))
    };
    Ok((Box::new(Watched { input, ended }), output))
}

fn is_socket(fd: impl AsFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

/// Says when its end was read.
struct Watched {
    input: Input,
    ended: CancellationToken,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.input).poll_read(cx, into));
        if read.is_err() || into.filled().len() == before {
            self.ended.cancel();
        }
        Poll::Ready(read)
    }
}

/// A socket that blocks for others and not for us.
struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    #[expect(
        deprecated,
        reason = "the successor is unsafe, for types that change their descriptor; this one owns it"
    )]
    fn of(fd: BorrowedFd<'_>) -> io::Result<Socket> {
        Ok(Socket(AsyncFd::new(fd.try_clone_to_owned()?)?))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let free = into.initialize_unfilled();
            match ready.try_io(|fd| recv(fd, &mut *free, RecvFlags::DONTWAIT).map_err(io::Error::from)) {
                Ok(read) => {
                    let (count, _) = read?;
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match ready.try_io(|fd| send(fd, bytes, flags).map_err(io::Error::from)) {
                Ok(sent) => return Poll::Ready(sent),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
