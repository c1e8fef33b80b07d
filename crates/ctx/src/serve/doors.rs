//! The doors of a daemon: the API over TCP and on its socket, and one socket for each agent there is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ctx_doors::http::{About, Access, ApiParts, BODY_BYTES_MAX, Door};
use ctx_doors::seats::Seats;
use ctx_doors::shells::Shells;
use ctx_doors::unix::bind;
use ctx_doors::ws::Hub;
use ctx_engine::{Engine, SystemClock};
use ctx_host::snapshot::runs::RunFiles;
use ctx_host::terminal::Terminals;
use ctx_journal::Owner;
use ctx_journal::access::let_connect;
use ctx_session::Name;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Settings;
use super::catalog::Tree;
use super::listen::Taken;
use super::owner::cannot;
use crate::failure::Failure;
use crate::shell_host::server_name;

/// Anyone may connect to the API; who they are is asked of the kernel.
const SOCKET_MODE: u32 = 0o666;
/// How often the agents' directory is looked at for agents that came or went.
const AGENTS_PAUSE: Duration = Duration::from_secs(1);

/// Requests to look now that may wait; who comes when it is full waits too.
const ERRANDS: usize = 16;

/// A request to look at the agents now; told when that is done.
pub(super) type Errand = oneshot::Sender<()>;

/// Open doors.
pub(super) struct Doors {
    stop: CancellationToken,
    tasks: TaskTracker,
    hub: Hub,
    shells: Shells,
    api: PathBuf,
}

#[expect(clippy::too_many_arguments, reason = "each is a part of the daemon that the doors lead to")]
pub(super) fn open(
    settings: &Settings,
    engine: &Engine,
    models: Arc<super::models::Root>,
    tools: super::catalog::ToolSources,
    about: About,
    taken: Taken,
    terminals: Arc<Terminals>,
    files: Arc<RunFiles>,
) -> Result<Doors, Failure> {
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let hub = Hub::new(engine.clone(), stop.clone());
    let tokens = settings.root.join(".state/tokens");
    let access = Access::open(tokens, SystemClock, engine.limits().requests_per_second)
        .map_err(|error| Failure::new(ctx_session::Code::Eio, error.to_string()))?;
    let source = super::shells::Source::new(&settings.root, settings.workspace.as_deref(), &settings.config)?;
    let shells = Shells::new(Arc::new(source), server_name(), BODY_BYTES_MAX, stop.clone());
    let (to_agents, errands) = mpsc::channel(ERRANDS);
    let routes = ApiParts {
        engine: engine.clone(),
        about,
        access,
        catalog: Arc::new(Tree::new(&settings.root, engine.limits().clone(), models, tools, to_agents)),
        hub: hub.clone(),
        shells: shells.clone(),
        files: Some(files),
        terminals,
    };
    let api = settings.root.join(".state/api.sock");
    let listener = bind(&api, SOCKET_MODE).map_err(|error| cannot(&api, error))?;
    // The API's socket is there before those of the agents and answers after: who has found one finds the others.
    let mut agents = Agents {
        dir: settings.root.join("agent"),
        seats: Seats::new(engine.limits().socket_connections),
        engine: engine.clone(),
        open: HashMap::new(),
        seen: None,
        tasks: tasks.clone(),
    };
    agents.look(&settings.root)?;
    let door = Door::new(routes);
    tasks.spawn(door.clone().serve_unix(listener, stop.clone()));
    tasks.spawn(door.serve_tcp(taken.listener, taken.hosts, taken.is_remote, stop.clone()));
    let root = settings.root.clone();
    tasks.spawn(agents.keep(root.clone(), errands, stop.clone()));
    tasks.spawn(super::tree::keep_status(root, engine.clone(), stop.clone()));
    Ok(Doors { stop, tasks, hub, shells, api })
}

impl Doors {
    /// The daemon stops: clients that are attached are told what becomes of the runs, and no more come.
    pub(super) fn let_nobody_in(&self) {
        self.hub.let_nobody_in();
    }

    pub(super) async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.hub.tasks().close();
        // Commands that run are stopped first: their clients hear of it before they are let go.
        self.shells.shut_down().await;
        let gone = async { tokio::join!(self.tasks.wait(), self.hub.tasks().wait()) };
        let done = tokio::time::timeout(Duration::from_secs(2), gone).await;
        if done.is_err() {
            tracing::warn!("a client did not disconnect in time; its connection is closed");
        }
        let _ = std::fs::remove_file(&self.api);
    }
}

/// The socket of an agent.
struct Socket {
    stop: CancellationToken,
    /// Who alone may connect.
    only: Option<Owner>,
}

/// The sockets of the agents that exist.
struct Agents {
    dir: PathBuf,
    engine: Engine,
    /// Of each user, on all these sockets.
    seats: Seats,
    open: HashMap<Name, Socket>,
    /// When the directory last changed, as far as we have looked.
    seen: Option<SystemTime>,
    tasks: TaskTracker,
}

impl Agents {
    /// Opens sockets for agents that came, closes those of agents that went.
    fn look(&mut self, root: &Path) -> Result<(), Failure> {
        let agents = ctx_agent::describe::agents(root).map_err(|error| cannot(&self.dir, error))?;
        let gone: Vec<Name> = self.open.keys().filter(|name| !agents.contains(name)).cloned().collect();
        for name in gone {
            if let Some(socket) = self.open.remove(&name) {
                socket.stop.cancel();
            }
        }
        for name in agents {
            let path = self.dir.join(format!("{name}.sock"));
            let only = self.engine.owner_of_agent(&name);
            if let Some(socket) = self.open.get_mut(&name) {
                if socket.only != only {
                    let_connect(&path, only).map_err(|error| cannot(&path, error))?;
                    socket.only = only;
                }
                continue;
            }
            // Nobody may connect before it is known who may.
            let unnamed = self.dir.join(format!(".{name}.sock"));
            let listener = bind(&unnamed, 0o600).map_err(|error| cannot(&path, error))?;
            let named = let_connect(&unnamed, only).and_then(|()| std::fs::rename(&unnamed, &path));
            named.map_err(|error| cannot(&path, error))?;
            let stop = CancellationToken::new();
            let (engine, seats) = (self.engine.clone(), self.seats.clone());
            let serving = ctx_doors::socket::serve(listener, engine, name.clone(), seats, stop.clone());
            self.open.insert(name, Socket { stop, only });
            self.tasks.spawn(async move {
                serving.await;
                // A socket that nobody serves is bad ABI.
                let _ = std::fs::remove_file(path);
            });
        }
        // Our own sockets change the directory too, so the time is taken after they are made.
        self.seen = changed_at(&self.dir);
        Ok(())
    }

    /// Looks again and again: at the files of projects, and at which agents there are; at once when someone asks.
    async fn keep(mut self, root: PathBuf, mut errands: mpsc::Receiver<Errand>, stop: CancellationToken) {
        loop {
            let asked = tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(AGENTS_PAUSE) => None,
                errand = errands.recv() => errand,
            };
            if asked.is_none() {
                // A directory that does not answer holds up no socket.
                let looked = tokio::time::timeout(AGENTS_PAUSE, self.engine.look_at_projects()).await;
                if let Ok(Err(refusal)) = looked {
                    tracing::warn!(%refusal, "the projects cannot be read");
                }
            }
            if (asked.is_some() || changed_at(&self.dir) != self.seen)
                && let Err(failure) = self.look(&root)
            {
                tracing::warn!(?failure, "an agent's socket cannot be opened");
                self.seen = changed_at(&self.dir);
            }
            if let Some(asked) = asked {
                // Who asked may have gone.
                let _ = asked.send(());
            }
        }
        for socket in self.open.values() {
            socket.stop.cancel();
        }
    }
}

fn changed_at(dir: &Path) -> Option<SystemTime> {
    std::fs::metadata(dir).and_then(|data| data.modified()).ok()
}
