//! An agent's socket: a JSON line for every request and frame.

use std::io;

use ctx_api::socket::{Frame, Request};
use ctx_session::{Code, Name};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::cannot_connect;
use crate::failure::Failure;
use crate::root::Root;

pub struct AgentSocket {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

/// A frame with the line it came in. `frame` is None for one of a later version.
#[derive(Debug)]
pub struct Received {
    pub frame: Option<Frame>,
    pub line: String,
}

impl AgentSocket {
    pub async fn connect(root: &Root, agent: &Name) -> Result<AgentSocket, Failure> {
        let path = root.path.join("agent").join(format!("{agent}.sock"));
        let connected = match ctx_doors::unix::short_path(&path) {
            Ok((short, _dir)) => UnixStream::connect(short).await,
            Err(error) => Err(error),
        };
        let stream = connected.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if root.is_up() => {
                Failure::new(Code::Enoent, format!("no agent `{agent}`"))
                    .hint(format!("the agents are described in {}", root.path.join("agent").display()))
            }
            _ => cannot_connect(root, error),
        })?;
        let (reader, writer) = stream.into_split();
        Ok(AgentSocket { lines: BufReader::new(reader).lines(), writer })
    }

    pub async fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.writer.write_all(&line).await
    }

    /// The next frame; None when the daemon has closed the connection. Nothing is lost if this is dropped.
    pub async fn next(&mut self) -> io::Result<Option<Received>> {
        let line = self.lines.next_line().await?;
        Ok(line.map(|line| Received { frame: serde_json::from_str(&line).ok(), line }))
    }
}
