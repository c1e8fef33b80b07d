//! The doors of a daemon: the API over TCP and on its socket, and those of the objects of the tree.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ctx_doors::http::{About, Access, ApiParts, BODY_BYTES_MAX, Door};
use ctx_doors::seats::Seats;
use ctx_doors::shells::Shells;
use ctx_doors::unix::bind;
use ctx_doors::ws::Hub;
use ctx_engine::{Engine, SystemClock};
use ctx_snapshot::runs::RunFiles;
use ctx_terminal::Terminals;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Settings;
use super::catalog::Tree;
use super::listen::Taken;
use super::objects::Objects;
use super::owner::cannot;
use crate::failure::Failure;
use crate::shell_host::server_name;

/// Anyone may connect to the API; who they are is asked of the kernel.
const SOCKET_MODE: u32 = 0o666;
/// Requests to look now that may wait; who comes when it is full waits too.
const ERRANDS: usize = 16;

/// A request to look at the tree now; told when that is done.
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
    let (to_objects, errands) = mpsc::channel(ERRANDS);
    let routes = ApiParts {
        engine: engine.clone(),
        about,
        access,
        catalog: Arc::new(Tree::new(
            &settings.root,
            engine.limits().clone(),
            models.clone(),
            tools,
            to_objects,
        )),
        hub: hub.clone(),
        shells: shells.clone(),
        files: Some(files),
        terminals,
    };
    let api = settings.root.join(".state/api.sock");
    let listener = bind(&api, SOCKET_MODE).map_err(|error| cannot(&api, error))?;
    // The API's socket is there before those of the objects and answers after: who has found one finds the others.
    let seats = Seats::new(engine.limits().socket_connections);
    let mut objects = Objects::new(&settings.root, engine.clone(), models.models(), seats, tasks.clone());
    objects.look()?;
    let door = Door::new(routes);
    tasks.spawn(door.clone().serve_unix(listener, stop.clone()));
    tasks.spawn(door.serve_tcp(taken.listener, taken.hosts, taken.is_remote, stop.clone()));
    let root = settings.root.clone();
    tasks.spawn(objects.keep(errands, stop.clone()));
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
