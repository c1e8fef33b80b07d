//! The daemon: locks the root, connects the parts, opens the doors, and shuts everything down.
//!
//! `owner` locks the root, `layout` takes an old one over, `tree` creates its files, `doors` opens the sockets, `objects` those of agents and models, `listen` binds the TCP address, `imports` follows other agents' stores, `worker`
//! connects the engine with the agents, `projects` with the directories of projects. Rules about sessions are not here.

mod catalog;
mod doors;
mod imports;
mod layout;
mod listen;
mod log;
mod mcp;
mod memory;
mod models;
mod objects;
mod owner;
mod passwd;
mod projects;
mod providers;
mod shells;
mod spaces;
mod tree;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ctx_agent::run_files::Files;
use ctx_agent::{CageRules, Services};
use ctx_engine::start::Found;
use ctx_engine::{Clock, Engine, Fresh, Parts, SystemClock};
use ctx_journal::{FileJournal, RealDisk};
use ctx_session::{Code, Refusal};
use ctx_snapshot::runs::RunFiles;
use ctx_terminal::Terminals;
use ctx_views::RootDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::shell::cage::cage_wishes;
use crate::config::{CageMode, Config, FileArg};
use crate::detach;
use crate::failure::Failure;
use crate::snapshots;

pub use listen::Listen;

/// Threads that may wait for the disk at the same time: logs do not wait for each other.
const BLOCKING_THREADS: usize = 512;

/// Files and connections that may be open at the same time, where the system allows it.
const OPEN_FILES: u64 = 65_536;

/// What the daemon is started with.
#[derive(Debug)]
pub struct Settings {
    pub root: PathBuf,
    /// The directory of the project `default`, if it has one; absolute, and there.
    pub workspace: Option<PathBuf>,
    pub config: Config,
    /// Where the configuration came from, to look there again.
    pub config_file: FileArg,
    pub listen: Listen,
    /// It runs in the background, and whoever started it waits for its word.
    pub detached: bool,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::new(refusal.code, refusal.message)
    }
}

/// Runs the daemon until it is told to stop.
pub fn run(settings: Settings) -> Result<(), Failure> {
    if settings.detached {
        detach::leave_terminal();
    }
    log::start(&settings.config.log)?;
    raise_open_files();
    let owned = owner::take(&settings.root)?;
    tree::prepare(&settings.root, settings.workspace.as_deref())?;
    let layout = layout::prepare(&settings.root)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|error| Failure::io("cannot start the async runtime", error))?;
    let served = runtime.block_on(serve(&settings, &owned, &layout));
    // Whatever still hangs must not keep the daemon; everything durable is written.
    runtime.shutdown_background();
    served
}

/// Every connection and every shell takes descriptors; the usual soft limit is for programs that use `select`.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let held = getrlimit(Resource::Nofile);
    let wanted = held.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if held.current.is_some_and(|now| now < wanted) {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: held.maximum });
        if let Err(error) = raised {
            tracing::warn!(%error, "the number of open files stays limited");
        }
    }
}

async fn serve(settings: &Settings, owned: &owner::Owned, layout: &layout::Layout) -> Result<(), Failure> {
    let followed = imports::agents(&settings.config.import.follow)?;
    let mut stopped = Signals::new()?;
    let started = Instant::now();
    let started_at = SystemClock.now();
    let models = Arc::new(models::Root::new(settings));
    let servers = Arc::new(mcp::Servers::new(settings.config_file.clone(), settings.config.mcp.clone()));
    let terminals = Arc::new(Terminals::new(&settings.root, &settings.config.limits));
    let files = Arc::new(RunFiles::new(snapshots::of_root(&settings.root, &settings.config.snapshots)));
    recover_files(&files).await;
    let cut_off = Arc::clone(&files);
    tokio::task::spawn_blocking(move || cut_off.snapshots().end_cut_off(&cut_off));
    let services = Services {
        files: Files::new(Arc::clone(&files)),
        ..worker::services(&settings.root, Arc::clone(&servers), &terminals, &settings.config.shells)?
    };
    let engine = Engine::new(parts(
        settings,
        &models,
        services.clone(),
        Arc::clone(&servers),
        Arc::clone(&terminals),
        Arc::clone(&files),
    )?);
    let found = engine.start().await?;
    engine.root_taken_over(layout.layout, layout.taken_over, layout.at);
    let taken = listen::take(&settings.listen).await?;
    let about = ctx_doors::http::About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        root: settings.root.display().to_string(),
        address: Some(taken.address.to_string()),
        started_at,
        started,
        is_uncaged: settings.config.cage.mode == CageMode::Off,
    };
    owned.announce(started_at, taken.address)?;
    let address = taken.address;
    let tools = catalog::ToolSources { services: services.clone(), servers };
    let doors = doors::open(settings, &engine, models.clone(), tools, about, taken, terminals, files)?;
    // Who asks for an answer before it is known gets it from the model of a fresh root, as always.
    tokio::spawn(async move { models.choose_main_of_daemon().await });
    say_up(settings, address, &found, started);
    tokio::spawn(memory::keep_small());
    let following = imports::follow(&settings.root, &followed);
    stopped.wait().await;
    if let Some(following) = following {
        following.abort();
    }
    doors.let_nobody_in();
    tracing::info!("stopping; runs have {} ms to end", engine.limits().stop_grace_ms);
    tokio::select! {
        () = engine.shut_down() => {}
        () = stopped.wait() => tracing::warn!("second stop signal; runs that have not ended are marked as failed at the next start"),
    }
    doors.close().await;
    services.shut_down().await;
    owned.leave();
    tracing::info!("stopped");
    Ok(())
}

/// Says that the daemon is up: in the log, and to whoever started it.
fn say_up(settings: &Settings, address: SocketAddr, found: &Found, started: Instant) {
    tracing::info!(
        root = %settings.root.display(),
        %address,
        sessions = found.sessions,
        recovered = found.recovered,
        unreadable = found.unreadable,
        foreign = found.foreign,
        took_ms = started.elapsed().as_millis() as u64,
        "ctx {} is up", env!("CARGO_PKG_VERSION")
    );
    if settings.detached {
        detach::say_up();
    }
    if settings.config.cage.mode == CageMode::Off {
        tracing::warn!(
            "cage.mode is off: commands of agents run without a cage, with all rights of the session's owner"
        );
    }
}

/// How long the doors wait for restores that were cut short.
const RECOVER_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// Restores that were cut short are finished or taken back before anyone sees the files.
async fn recover_files(files: &Arc<RunFiles>) {
    let files = Arc::clone(files);
    let recovering = tokio::task::spawn_blocking(move || files.snapshots().recover_all());
    match tokio::time::timeout(RECOVER_MAX, recovering).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => tracing::error!("finishing restores that were cut short broke"),
        // One user's directory that does not answer keeps nobody else out.
        Err(_) => tracing::warn!("restores that were cut short are finished later: a directory is slow"),
    }
}

fn parts(
    settings: &Settings,
    models: &models::Root,
    services: Services,
    servers: Arc<mcp::Servers>,
    terminals: Arc<Terminals>,
    files: Arc<RunFiles>,
) -> Result<Parts, Failure> {
    let root = &settings.root;
    let disk = RealDisk::new(root).map_err(|error| Failure::io(root.display(), error))?;
    let limits = settings.config.limits.clone();
    let shared = Arc::new(limits.clone());
    let cages = CageRules {
        is_off: settings.config.cage.mode == CageMode::Off,
        wishes: cage_wishes(&settings.config.cage)?,
    };
    Ok(Parts {
        journal: Arc::new(FileJournal::new(Arc::new(disk))),
        memory: Arc::new(FileJournal::new(Arc::new(ctx_journal::MemoryDisk::default()))),
        root: Some(RootDir::open(root)?),
        worker: Arc::new(worker::Agents::new(
            root,
            models.models(),
            cages,
            services,
            servers,
            terminals,
            shared.clone(),
            files,
        )),
        project_files: Arc::new(projects::Directories::new(root, shared)),
        spaces: Arc::new(spaces::Directory::new(root)),
        workspace: settings.workspace.as_ref().and_then(|dir| dir.to_str()).map(str::to_owned),
        limits,
        fresh: Fresh::new(SystemClock, random_seed()),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        app: concat!("ctx ", env!("CARGO_PKG_VERSION")).to_owned(),
    })
}

/// Ids are names, not secrets; the standard library's own random state is enough to keep daemons apart.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// SIGTERM and SIGINT. SIGHUP is taken and not heeded: a daemon outlives the terminal it was started from.
struct Signals {
    _hangup: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(Code::Eio, format!("cannot listen for signals: {error}")))
        };
        Ok(Signals {
            _hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
