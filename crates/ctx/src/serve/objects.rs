//! The objects of the tree while the daemon runs: their files are kept true, and each agent and model has its socket.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ctx_agent::Models;
use ctx_agent::object::{Kept, Runner, Thing, keep};
use ctx_doors::seats::Seats;
use ctx_doors::unix::bind;
use ctx_engine::Engine;
use ctx_journal::Owner;
use ctx_journal::access::let_connect;
use ctx_session::Object;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::doors::Errand;
use super::owner::cannot;
use crate::failure::Failure;
use crate::words;

/// How often the tree is looked at for objects that came, went or changed.
const PAUSE: Duration = Duration::from_secs(1);
/// What the daemon writes into control directories itself.
const OWN_FILES: [&str; 4] = ["status", "log", "pid", "meta.json"];

/// The socket of an object.
struct Socket {
    stop: CancellationToken,
    /// Who alone may connect.
    only: Option<Owner>,
}

/// The objects that there are.
pub(super) struct Objects {
    root: PathBuf,
    runner: Option<Runner>,
    models: Arc<Models>,
    engine: Engine,
    /// Of each user, on all these sockets.
    seats: Seats,
    open: HashMap<Object, Socket>,
    /// What the tree was like, as far as we have looked.
    seen: Option<Looks>,
    /// What could not be written is said once.
    told: Vec<String>,
    tasks: TaskTracker,
}

impl Objects {
    pub(super) fn new(
        root: &Path,
        engine: Engine,
        models: Arc<Models>,
        seats: Seats,
        tasks: TaskTracker,
    ) -> Objects {
        let runner = std::env::current_exe().ok().and_then(|program| Runner::find(&program));
        if runner.is_none() {
            tracing::warn!(
                "the path of this program is too long for a first line, or has a space: the tree has no executables"
            );
        }
        let (root, open) = (root.to_owned(), HashMap::new());
        Objects { root, runner, models, engine, seats, open, seen: None, told: Vec::new(), tasks }
    }

    /// Writes what is not true, opens sockets for objects that came, closes those of objects that went.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        // Taken first: what comes while we look, and what we write ourselves, is looked at once more.
        self.seen = Looks::of(&self.root).ok();
        let limits = self.engine.limits();
        let kept = keep(&self.root, self.runner.as_ref(), &self.models, limits, words::now());
        let Kept { agents, models, problems } = kept.map_err(|error| cannot(&self.root, error))?;
        for problem in problems.iter().filter(|problem| !self.told.contains(problem)) {
            tracing::warn!(problem, "a file of an object could not be written");
        }
        self.told = problems;
        let there: Vec<Object> =
            agents.into_iter().map(Thing::Agent).chain(models).filter_map(|thing| thing.object()).collect();
        let gone: Vec<Object> = self.open.keys().filter(|object| !there.contains(object)).cloned().collect();
        for object in gone {
            if let Some(socket) = self.open.remove(&object) {
                socket.stop.cancel();
            }
        }
        for object in there {
            self.open_socket(object)?;
        }
        Ok(())
    }

    fn open_socket(&mut self, object: Object) -> Result<(), Failure> {
        let (dir, name, only) = match &object {
            Object::Agent(name) => (self.root.join("agent"), name, self.engine.owner_of_agent(name)),
            Object::Model { provider, model } => {
                (self.root.join("model").join(provider.as_str()), model, None)
            }
        };
        let path = dir.join(format!("{name}.sock"));
        if let Some(socket) = self.open.get_mut(&object) {
            if socket.only != only {
                let_connect(&path, only).map_err(|error| cannot(&path, error))?;
                socket.only = only;
            }
            return Ok(());
        }
        // Nobody may connect before it is known who may.
        let unnamed = dir.join(format!(".{name}.sock"));
        let listener = bind(&unnamed, 0o600).map_err(|error| cannot(&path, error))?;
        let named = let_connect(&unnamed, only).and_then(|()| std::fs::rename(&unnamed, &path));
        named.map_err(|error| cannot(&path, error))?;
        let stop = CancellationToken::new();
        let (engine, seats) = (self.engine.clone(), self.seats.clone());
        let serving = ctx_doors::socket::serve(listener, engine, object.clone(), seats, stop.clone());
        self.open.insert(object, Socket { stop, only });
        self.tasks.spawn(async move {
            serving.await;
            // A socket that nobody serves is bad ABI.
            let _ = std::fs::remove_file(path);
        });
        Ok(())
    }

    /// Looks again and again: at the files of projects, and at the tree; at once when someone asks.
    pub(super) async fn keep(mut self, mut errands: mpsc::Receiver<Errand>, stop: CancellationToken) {
        loop {
            let asked = tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(PAUSE) => None,
                errand = errands.recv() => errand,
            };
            if asked.is_none() {
                // A directory that does not answer holds up no socket.
                let looked = tokio::time::timeout(PAUSE, self.engine.look_at_projects()).await;
                if let Ok(Err(refusal)) = looked {
                    tracing::warn!(%refusal, "the projects cannot be read");
                }
            }
            if (asked.is_some() || Looks::of(&self.root).ok() != self.seen)
                && let Err(failure) = self.look()
            {
                tracing::warn!(?failure, "the objects of the tree cannot be served");
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

/// What tells whether something in the tree has changed: when directories did, and the control files of agents.
#[derive(Debug, PartialEq, Eq)]
struct Looks(Vec<(PathBuf, SystemTime)>);

impl Looks {
    fn of(root: &Path) -> std::io::Result<Looks> {
        let mut seen = Vec::new();
        let mut note = |path: PathBuf| -> std::io::Result<()> {
            let changed = std::fs::symlink_metadata(&path)?.modified()?;
            seen.push((path, changed));
            Ok(())
        };
        for dir in ["agent", "model", "tool"] {
            note(root.join(dir))?;
        }
        for entry in std::fs::read_dir(root.join("model"))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                note(entry.path())?;
            }
        }
        for entry in std::fs::read_dir(root.join("agent"))? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            for file in std::fs::read_dir(entry.path())?.flatten() {
                let name = file.file_name();
                let is_own =
                    name.to_str().is_some_and(|name| OWN_FILES.contains(&name) || name.starts_with('.'));
                if !is_own {
                    // It may be gone by now: then the next look finds that.
                    let _ = note(file.path());
                }
            }
        }
        seen.sort();
        Ok(Looks(seen))
    }
}
