//! The socket of an agent or a model: a JSON line for every request and frame.

use std::io;
use std::path::Path;

use ctx_api::http::{List, Project, ProjectState};
use ctx_api::socket::{Frame, Request};
use ctx_session::{Code, Name, Object};
use hyper::Method;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::{Api, cannot_connect};
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
    pub async fn connect(root: &Root, with: &Object) -> Result<AgentSocket, Failure> {
        let kind = if with.agent().is_some() { "agent" } else { "model" };
        let path = root.path.join(kind).join(format!("{with}.sock"));
        let mut connected = connect(&path).await;
        if matches!(&connected, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            // A daemon that is starting opens its API first and answers there when the agents' sockets are open too.
            let up = Api::new(root).ask::<serde_json::Value>(Method::GET, "/status", None).await;
            if up.is_ok() {
                connected = connect(&path).await;
            }
        }
        let invalid = match &connected {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match with {
                Object::Agent(agent) => invalid_project(root, agent).await,
                Object::Model { .. } => None,
            },
            _ => None,
        };
        let stream = connected.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if invalid.is_some() => {
                invalid.unwrap_or_else(|| cannot_connect(root, error))
            }
            io::ErrorKind::NotFound if root.is_up() => no_object(root, with),
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

/// What is wrong with the project that an agent of this name would belong to, if that is why there is none.
async fn invalid_project(root: &Root, agent: &Name) -> Option<Failure> {
    let asked = Api::new(root).ask::<List<Project>>(Method::GET, "/projects?limit=1000", None).await;
    let project = asked.ok()?.items.into_iter().find(|project| {
        project.state == ProjectState::Invalid
            && (project.id == *agent || project.agent.as_ref() == Some(agent))
    })?;
    let error = project.errors.first()?;
    let place = format!("{}/{}:{}:{}", project.directory, error.file, error.line, error.column);
    let message = format!("project `{}` is invalid: {place}: {}", project.id, error.message);
    let hint = format!("fix it; `ctx project check {}` says whether it is right", project.directory);
    Some(Failure::new(Code::Ebadmsg, message).hint(hint))
}

async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (short, _dir) = ctx_doors::unix::short_path(path)?;
    UnixStream::connect(short).await
}

/// Nothing in the tree has this name. What cannot be read is not suggested.
fn no_object(root: &Root, with: &Object) -> Failure {
    let word = with.to_string();
    let agents = || ctx_agent::describe::agents(&root.path).unwrap_or_default();
    match with.agent() {
        Some(_) => Failure::new(Code::Enoent, format!("no agent `{word}`"))
            .did_you_mean(&word, agents().iter().map(Name::as_str))
            .hint("`ctx agent ls` lists the agents"),
        None => {
            Failure::new(Code::Enoent, format!("no model `{word}`")).hint("`ctx model ls` lists the models")
        }
    }
}
