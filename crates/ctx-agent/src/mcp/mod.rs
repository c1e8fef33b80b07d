//! MCP servers as sources of tools: each session has its own, started when a run first needs them.
//!
//! A server lives between runs and ends with its session, with a cancelled run, or when nobody has used it for long. One that
//! cannot be started, or ends, takes its tools away and nothing else: the model is told why. `start` makes a server's
//! process or connection, `server` speaks with it.

mod server;
mod start;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ctx_cage::Cage;
use ctx_session::{Code, Name, Refusal, RunId, SessionId};
use futures_util::future::join_all;
use serde_json::{Map, Value};

use crate::guard::Guard;
use crate::model::provider::setup::Secret;
use crate::project::McpServer;
use crate::shells::CageGround;
use crate::tool::{Output, ToolError};
pub use server::Offered;
use server::Server;

/// How often a server may be started in one run: one that ends again and again is left alone.
const STARTS_PER_RUN: u32 = 3;
/// How long a server that is not needed any more may take to end by itself.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How long a server lives that nobody uses, as the shell beside it.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// Where the values are that a server is given from its owner's shell.
pub trait Variables: Send + Sync {
    fn value(&self, uid: u32, name: &str) -> Option<Secret>;
}

/// What the daemon has for servers.
#[derive(Clone)]
pub struct McpGround {
    pub cages: CageGround,
    pub variables: Arc<dyn Variables>,
}

/// A server as a run wants it.
#[derive(Clone)]
pub struct ServerWant {
    pub server: McpServer,
    /// In what its program runs; None: in no cage, because the operator wants none.
    pub cage: Result<Option<Cage>, Refusal>,
    /// The session's owner.
    pub uid: u32,
    /// Where its program starts: as the agent sees it in a cage, on the machine without one.
    pub cwd: PathBuf,
    /// How its program is started without a cage.
    pub guard: Guard,
}

impl ServerWant {
    /// Whether a server that was started for another run is what this one wants.
    fn is_like(&self, other: &ServerWant) -> bool {
        self.server == other.server && self.cage == other.cage && self.uid == other.uid
    }
}

/// All servers of all sessions.
pub struct McpServers {
    ground: McpGround,
    state: Mutex<State>,
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServers").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    session: SessionId,
    server: Name,
}

#[derive(Default)]
struct State {
    places: HashMap<Key, Arc<Place>>,
    /// Sessions that are paused: what starts in them is frozen.
    frozen: HashSet<SessionId>,
}

/// The place of one server.
#[derive(Default)]
struct Place {
    /// Held while it is started.
    starting: tokio::sync::Mutex<()>,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    server: Option<Arc<Server>>,
    /// In which run it was started last, and how often.
    starts: Option<(RunId, u32)>,
    failed: Option<Refusal>,
}

impl Place {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn living(&self) -> Option<Arc<Server>> {
        self.now().server.clone().filter(|server| server.is_there())
    }

    /// Counts a start; the refusal is that of an earlier one of this run.
    fn may_start(&self, run: RunId) -> Result<(), Refusal> {
        let mut now = self.now();
        let before = now.starts.filter(|(of, _)| *of == run).map_or(0, |(_, starts)| starts);
        if before == 0 {
            now.failed = None;
        }
        if let Some(failed) = &now.failed {
            return Err(failed.clone());
        }
        if before >= STARTS_PER_RUN {
            let message = format!("it was started {before} times in this run and ended each time");
            return Err(Refusal::new(Code::Ehostdown, message));
        }
        now.starts = Some((run, before + 1));
        Ok(())
    }
}

/// A server of a session, asked for by a run.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub session: SessionId,
    pub run: RunId,
    pub server: &'a Name,
}

impl McpServers {
    pub fn new(ground: McpGround) -> McpServers {
        McpServers { ground, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the servers of a session offer. Those that are not there are started, all at once; of one that cannot be, why.
    pub async fn offers(
        &self,
        session: SessionId,
        run: RunId,
        wants: &BTreeMap<Name, ServerWant>,
    ) -> Vec<(Name, Result<Arc<[Offered]>, Refusal>)> {
        let one = async |(name, want): (&Name, &ServerWant)| {
            let asked = Asked { session, run, server: name };
            let offers = match self.server(asked, want).await {
                Ok(server) => server.offers().await,
                Err(refusal) => Err(refusal),
            };
            (name.clone(), offers)
        };
        join_all(wants.iter().map(one)).await
    }

    /// Starts a server that could not be started before.
    pub async fn start_again(&self, asked: Asked<'_>, want: &ServerWant) -> Result<usize, Refusal> {
        let place =
            self.state().places.get(&Key { session: asked.session, server: asked.server.clone() }).cloned();
        if let Some(place) = place {
            place.now().failed = None;
        }
        Ok(self.server(asked, want).await?.offers().await?.len())
    }

    /// Calls a tool. A server that ended meanwhile is started for it.
    pub async fn call(
        &self,
        asked: Asked<'_>,
        want: &ServerWant,
        tool: &str,
        input: Map<String, Value>,
    ) -> Result<Output, ToolError> {
        let server = self.server(asked, want).await.map_err(|refusal| {
            let message = format!("the MCP server {} is not there: {}", asked.server, refusal.message);
            ToolError::new(refusal.code, message)
        })?;
        server.call(tool, input).await
    }

    /// The running server for a call. The lock `starting` is held until it runs, so that two calls at once start one process; one with
    /// another entry, cage or owner is ended first, and one of a paused session is frozen.
    async fn server(&self, asked: Asked<'_>, want: &ServerWant) -> Result<Arc<Server>, Refusal> {
        let key = Key { session: asked.session, server: asked.server.clone() };
        let place = Arc::clone(self.state().places.entry(key).or_default());
        let _starting = place.starting.lock().await;
        if let Some(server) = place.living().filter(|server| server.want.is_like(want)) {
            return Ok(server);
        }
        place.may_start(asked.run)?;
        let before = place.now().server.take();
        if let Some(before) = before {
            before.end(END_PATIENCE).await;
        }
        let started = start::start(asked.server, want, &self.ground).await.inspect_err(|refusal| {
            tracing::warn!(session = %asked.session, server = %asked.server, %refusal, "an MCP server did not start");
            place.now().failed = Some(refusal.clone());
        })?;
        let server = Arc::new(started);
        place.now().server = Some(Arc::clone(&server));
        if self.state().frozen.contains(&asked.session) {
            self.freeze(asked.session);
        }
        tokio::spawn(end_when_idle(Arc::downgrade(&place), Arc::downgrade(&server)));
        Ok(server)
    }

    fn of_session(&self, session: SessionId) -> Vec<Arc<Server>> {
        let places: Vec<Arc<Place>> = {
            let state = self.state();
            let of_it = state.places.iter().filter(|(key, _)| key.session == session);
            of_it.map(|(_, place)| Arc::clone(place)).collect()
        };
        places.iter().filter_map(|place| place.living()).collect()
    }

    /// Stops the programs of a session's servers where they are, and those that start. Blocks until they are.
    pub fn freeze(&self, session: SessionId) {
        self.state().frozen.insert(session);
        for server in self.of_session(session) {
            server.freeze();
        }
    }

    /// Lets them go on.
    pub fn thaw(&self, session: SessionId) {
        self.state().frozen.remove(&session);
        for server in self.of_session(session) {
            server.thaw();
        }
    }

    /// Ends a session's servers; each may end by itself within this time. They are there again when they are needed.
    pub async fn end(&self, session: SessionId, patience: Duration) {
        let ended: Vec<Arc<Place>> = {
            let mut state = self.state();
            state.frozen.remove(&session);
            state.places.extract_if(|key, _| key.session == session).map(|(_, place)| place).collect()
        };
        end_all(ended, patience).await;
    }

    /// Ends all servers.
    pub async fn shut_down(&self) {
        let all = self.state().places.drain().map(|(_, place)| place).collect();
        end_all(all, END_PATIENCE).await;
    }

    /// The tools of a user's servers that are there now, each once.
    pub fn known(&self, uid: u32) -> Vec<(Name, Offered)> {
        let places: Vec<(Name, Arc<Place>)> =
            self.state().places.iter().map(|(key, place)| (key.server.clone(), Arc::clone(place))).collect();
        let mut found: BTreeMap<String, (Name, Offered)> = BTreeMap::new();
        for (name, place) in places {
            let server = place.living().filter(|server| server.want.uid == uid);
            for offered in server.iter().flat_map(|server| server.offered().to_vec()) {
                found.entry(format!("{name}.{}", offered.name)).or_insert((name.clone(), offered));
            }
        }
        found.into_values().collect()
    }
}

async fn end_all(places: Vec<Arc<Place>>, patience: Duration) {
    let servers: Vec<Arc<Server>> = places.iter().filter_map(|place| place.now().server.take()).collect();
    join_all(servers.iter().map(|server| server.end(patience))).await;
}

/// Ends a server that nobody uses any more.
async fn end_when_idle(place: Weak<Place>, server: Weak<Server>) {
    loop {
        let Some(idle) = server.upgrade().filter(|server| server.is_there()).map(|server| server.idle_for())
        else {
            return;
        };
        if idle >= IDLE_MAX {
            break;
        }
        tokio::time::sleep(IDLE_MAX - idle).await;
    }
    if let (Some(place), Some(server)) = (place.upgrade(), server.upgrade()) {
        let own = {
            let mut now = place.now();
            let is_own = now.server.as_ref().is_some_and(|there| Arc::ptr_eq(there, &server));
            if is_own { now.server.take() } else { None }
        };
        if let Some(own) = own {
            own.end(END_PATIENCE).await;
        }
    }
}
