//! The shells of agents: one for each session, and one for each subagent at work, each in its cage; besides, one on each
//! machine that a project file lists, over the ssh of the session's owner.
//!
//! A shell is made when it is first used and lives between runs; one that is idle for long is closed by its host. What a
//! shell is, is the business of [`ctx_host`]; which cage it has is decided when a run is prepared.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctx_cage::rights::{self, Rights};
use ctx_cage::{Cage, CageError, Limit, Means, Owner, find_bwrap};
use ctx_host::{
    CageSetup, CreateRequest, Destination, ExecRequest, ExecResult, HostConfig, Interrupted, NoLog,
    OutputRequest, Page, RemoteConfig, RunAs, ShellError, ShellHost, ShellLimits, SshRequest,
};
use ctx_session::{Name, Refusal, SessionId, Ulid};
use ctx_text::policy::Policy;
use rustix::process::geteuid;

use crate::cage::make_home;

/// How long the processes of a shell may take to end when its cage becomes another one.
const CHANGE_PATIENCE: Duration = Duration::from_secs(1);
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whose a shell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShellKey {
    pub session: SessionId,
    /// The invocation of a subagent; None: the session's primary.
    pub subagent: Option<Ulid>,
}

/// What there is for cages around shells.
#[derive(Debug, Clone)]
pub struct CageGround {
    /// Where `bwrap` is looked for.
    pub path: std::ffi::OsString,
    pub means: Means,
    /// Who is responsible for the cages.
    pub parent: String,
    /// Where shells of other users read what is handed to them.
    pub scratch_dir: PathBuf,
}

impl CageGround {
    /// A host's configuration with a cage around each shell.
    pub fn around(&self, mut config: HostConfig, cage: &Cage) -> Result<HostConfig, Refusal> {
        let bwrap = find_bwrap(&self.path).map_err(no_cage)?;
        config.env =
            cage.env.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        config.run_as = self.run_as(cage.owner)?;
        make_home(cage).map_err(no_cage)?;
        let (cage, means, parent) = (cage.clone(), self.means.clone(), self.parent.clone());
        config.cage = Some(CageSetup { cage, bwrap, means, parent });
        Ok(config)
    }

    /// As whom a shell runs, where that is not us.
    fn run_as(&self, owner: Owner) -> Result<Option<RunAs>, Refusal> {
        if owner.uid() == geteuid().as_raw() {
            return Ok(None);
        }
        let rights = Rights::of(owner.uid())?;
        let dir = self.scratch_dir.clone();
        // What cannot be made there is made elsewhere.
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&dir);
        let is_reachable = rights.act(|| std::fs::metadata(dir.join(".")).is_ok()).unwrap_or(false);
        let scratch_dir = if is_reachable { dir } else { std::env::temp_dir() };
        Ok(Some(RunAs { uid: owner.uid(), gid: owner.gid(), rights, scratch_dir }))
    }
}

/// What the daemon has for the shells of agents.
#[derive(Debug, Clone)]
pub struct ShellGround {
    pub cages: CageGround,
    /// Where output is kept while its shell lives.
    pub spool_dir: PathBuf,
    pub app: String,
    /// What the operator allows on other machines, and which programs may run there.
    pub remote: RemoteConfig,
    pub policy: Policy,
}

/// In what a shell is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellWant {
    /// None: in no cage, because the operator wants none.
    pub cage: Option<Cage>,
    /// The session's owner.
    pub uid: u32,
    /// Where it starts: as the agent sees it in a cage, on the machine without one.
    pub cwd: PathBuf,
    /// The owner's home, for a shell without a cage.
    pub home: Option<PathBuf>,
    /// The machine that it runs on, by the name that the project file has for it; None: this one.
    pub host: Option<(Name, SshRequest)>,
}

/// Whose a shell is, and on which machine.
type PlaceKey = (ShellKey, Option<Name>);

/// All shells of all agents.
#[derive(Debug)]
pub struct AgentShells {
    ground: ShellGround,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    places: HashMap<PlaceKey, Arc<Place>>,
    /// Sessions that are paused: what starts in them is frozen.
    frozen: HashSet<SessionId>,
}

/// The place of one shell.
#[derive(Debug, Default)]
struct Place {
    /// Held while its shell is made.
    making: tokio::sync::Mutex<()>,
    shell: Mutex<Option<Shell>>,
}

#[derive(Clone)]
struct Shell {
    host: ShellHost,
    id: String,
    is_caged: bool,
    to: Option<SshRequest>,
}

impl std::fmt::Debug for Shell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shell").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Place {
    fn shell(&self) -> MutexGuard<'_, Option<Shell>> {
        self.shell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shell, if it is still there.
    fn living(&self) -> Option<Shell> {
        self.shell().clone().filter(|shell| !shell.host.list().is_empty())
    }
}

impl AgentShells {
    pub fn new(ground: ShellGround) -> AgentShells {
        AgentShells { ground, state: Mutex::default() }
    }

    /// Makes a cage ready to be started elsewhere; where `bwrap` is.
    pub fn ready(&self, cage: &Cage) -> Result<PathBuf, Refusal> {
        let bwrap = find_bwrap(&self.ground.cages.path).map_err(no_cage)?;
        make_home(cage).map_err(no_cage)?;
        Ok(bwrap)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command in a shell, which is made where there is none. The command goes on when nobody waits for it any more:
    /// whoever stops a run ends its processes with [`AgentShells::end`], which lets them end by themselves.
    pub async fn exec(
        &self,
        key: ShellKey,
        want: &ShellWant,
        request: ExecRequest,
    ) -> Result<ExecResult, Refusal> {
        let shell = self.shell(key, want).await?;
        let Shell { host, id, .. } = shell;
        let running = tokio::spawn(async move { host.exec(&id, request, None).await });
        match running.await {
            Ok(result) => result.map_err(|error| refusal(&error)),
            Err(error) => Err(Refusal::new(ctx_session::Code::Eio, format!("the shell broke: {error}"))),
        }
    }

    /// Makes a shell where there is none, so that its cage is there before its first command; the cage's name, if it has one.
    pub async fn open(&self, key: ShellKey, want: &ShellWant) -> Result<Option<String>, Refusal> {
        let shell = self.shell(key, want).await?;
        Ok(shell.host.cage_names().pop())
    }

    /// Whether there is a shell.
    pub fn is_open(&self, key: ShellKey) -> bool {
        self.known(key, None).is_ok()
    }

    /// The limit that ended the cage of a shell.
    pub fn limit_reached(&self, key: ShellKey) -> Option<Limit> {
        self.known(key, None).ok()?.host.limit_reached()
    }

    /// What an earlier command of the shell printed. Blocks on the disk.
    pub fn output(
        &self,
        key: ShellKey,
        host: Option<&Name>,
        request: &OutputRequest,
    ) -> Result<Page, Refusal> {
        let shell = self.known(key, host)?;
        shell.host.output(&shell.id, request).map_err(|error| refusal(&error))
    }

    /// Stops the command that runs in the shell.
    pub fn interrupt(&self, key: ShellKey, host: Option<&Name>) -> Result<Interrupted, Refusal> {
        let shell = self.known(key, host)?;
        shell.host.interrupt(&shell.id).map_err(|error| refusal(&error))
    }

    fn known(&self, key: ShellKey, host: Option<&Name>) -> Result<Shell, Refusal> {
        let place = self.state().places.get(&(key, host.cloned())).cloned();
        place.and_then(|place| place.living()).ok_or_else(|| {
            let message = "there is no shell: it has run no command, or was closed because it was idle";
            Refusal::new(ctx_session::Code::Enoent, message)
        })
    }

    /// The shell for a command. The lock `making` is held until it is there, so that two commands at once share one; a shell that is not caged
    /// as wanted, or whose host has another address now, is replaced.
    async fn shell(&self, key: ShellKey, want: &ShellWant) -> Result<Shell, Refusal> {
        let (host, to) = want.host.clone().unzip();
        let place = Arc::clone(self.state().places.entry((key, host)).or_default());
        let _making = place.making.lock().await;
        let is_wanted = |shell: &Shell| shell.is_caged == want.cage.is_some() && shell.to == to;
        if let Some(shell) = place.living().filter(is_wanted) {
            if let Some(cage) = &want.cage {
                shell.host.change_cage(cage, CHANGE_PATIENCE).await;
            }
            return Ok(shell);
        }
        let before = place.shell().take();
        if let Some(before) = before {
            // One on another machine is told of as lost; what ended one here says so itself.
            let was_lost = before.host.why_gone(&before.id).filter(is_lost).filter(|_| to.is_some());
            before.host.shutdown().await;
            if let Some(error) = was_lost {
                return Err(refusal(&error));
            }
        }
        let config = self.config(want)?;
        let host = ShellHost::new(config, Arc::new(NoLog)).map_err(|error| refusal(&error))?;
        // Frozen before anything runs in it, where the session is paused.
        let there = to.clone().map(Destination::Ssh).unwrap_or_default();
        let request = CreateRequest { to: there, ..CreateRequest::default() };
        let id = host.create(request).await.map_err(|error| refusal(&error))?;
        let shell = Shell { host, id, is_caged: want.cage.is_some(), to };
        *place.shell() = Some(shell.clone());
        if self.state().frozen.contains(&key.session) {
            self.freeze(key.session);
        }
        Ok(shell)
    }

    fn config(&self, want: &ShellWant) -> Result<HostConfig, Refusal> {
        let ShellGround { cages, spool_dir, app, remote, policy } = &self.ground;
        let mut config = HostConfig::from_process(spool_dir.clone(), app);
        config.limits = ShellLimits { shells_max: 1, ..ShellLimits::default() };
        config.cwd = want.cwd.clone();
        if let Some(cage) = &want.cage {
            return cages.around(config, cage);
        }
        // Nothing of the daemon's: it has keys.
        let home = want.home.as_deref().unwrap_or(Path::new("/"));
        let env = [("PATH", PATH), ("HOME", &home.to_string_lossy()), ("LANG", "C.UTF-8")];
        config.env = env.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).into();
        if want.host.is_some() {
            (config.remote, config.policy) = (remote.clone(), policy.clone());
            // The agent of ssh is the daemon's own user's.
            let agent = std::env::var("SSH_AUTH_SOCK").ok().filter(|_| want.uid == geteuid().as_raw());
            config.env.extend(agent.map(|socket| ("SSH_AUTH_SOCK".to_owned(), socket.into_bytes())));
        }
        if want.uid != geteuid().as_raw() {
            config.run_as = cages.run_as(owner_of(want.uid)?)?;
        }
        Ok(config)
    }

    fn of_session(&self, session: SessionId) -> Vec<Shell> {
        let places: Vec<Arc<Place>> = {
            let state = self.state();
            let of_it = state.places.iter().filter(|((key, _), _)| key.session == session);
            of_it.map(|(_, place)| Arc::clone(place)).collect()
        };
        places.iter().filter_map(|place| place.living()).collect()
    }

    /// Stops all processes of a session where they are, and those that it would start. Blocks until they are.
    pub fn freeze(&self, session: SessionId) {
        self.state().frozen.insert(session);
        for shell in self.of_session(session) {
            if let Err(error) = shell.host.freeze() {
                tracing::warn!(%session, %error, "a shell could not be frozen");
            }
        }
    }

    /// Lets them go on.
    pub fn thaw(&self, session: SessionId) {
        self.state().frozen.remove(&session);
        for shell in self.of_session(session) {
            if let Err(error) = shell.host.thaw() {
                tracing::warn!(%session, %error, "a shell could not be thawed");
            }
        }
    }

    /// Ends all processes of a session; each may end by itself within this time. The session's own shell is there again with
    /// its next command, in the same directory and with the same variables.
    pub async fn end(&self, session: SessionId, patience: Duration) {
        self.state().frozen.remove(&session);
        let end = |shell: Shell| {
            tokio::spawn(async move {
                match shell.is_caged {
                    true => shell.host.end_processes(patience).await,
                    false => shell.host.shutdown().await,
                }
            })
        };
        let ends: Vec<_> = self.of_session(session).into_iter().map(end).collect();
        for end in ends {
            let _ = end.await;
        }
        self.drop_places(|key| key.session == session && key.subagent.is_some()).await;
    }

    /// Ends one shell for good.
    pub async fn forget(&self, key: ShellKey) {
        self.drop_places(|other| *other == key).await;
    }

    /// Ends all shells of a session for good.
    pub async fn forget_session(&self, session: SessionId) {
        self.state().frozen.remove(&session);
        self.drop_places(|key| key.session == session).await;
    }

    /// Ends all shells.
    pub async fn shut_down(&self) {
        self.drop_places(|_| true).await;
    }

    async fn drop_places(&self, is_dropped: impl Fn(&ShellKey) -> bool) {
        let dropped: Vec<Arc<Place>> =
            self.state().places.extract_if(|(key, _), _| is_dropped(key)).map(|(_, place)| place).collect();
        for place in dropped {
            let shell = place.shell().take();
            if let Some(shell) = shell {
                shell.host.shutdown().await;
            }
        }
    }
}

/// Without a cage a command runs as the session's owner.
fn owner_of(uid: u32) -> Result<Owner, Refusal> {
    let groups = rights::groups_of(uid)?;
    // Who has no account is in no group: the number may be that of a group of others.
    Ok(Owner::new(uid, groups.first().copied().unwrap_or(Owner::NOBODY.gid())))
}

fn no_cage(error: CageError) -> Refusal {
    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    Refusal::new(error.code(), format!("{error}{hint}"))
}

/// Whether a shell has gone without having been ended.
fn is_lost(error: &ShellError) -> bool {
    matches!(error, ShellError::Closed { .. } | ShellError::Reaped { .. })
}

fn refusal(error: &ShellError) -> Refusal {
    // An agent makes no shell: its next command does.
    let next = "its directory and variables are gone, and the next command starts a new one";
    match error {
        ShellError::Closed { why, .. } => {
            return Refusal::new(error.code(), format!("the shell was closed: {why}; {next}"));
        }
        ShellError::Reaped { idle_secs, .. } => {
            let message = format!("the shell was closed after {idle_secs} seconds without a command; {next}");
            return Refusal::new(error.code(), message);
        }
        _ => {}
    }
    let hint = match error {
        ShellError::Cage(error) => error.hint().map(|hint| format!("; {hint}")),
        _ => None,
    };
    Refusal::new(error.code(), format!("{error}{}", hint.unwrap_or_default()))
}
