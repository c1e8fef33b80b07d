//! All shells of one server: made, found, listed and ended here, within the operator's limits.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctx_cage::rights::Rights;
use ctx_cage::{Cage, CageError, Limit};
use ctx_session::Ulid;
use ctx_snapshot::workspace::now;
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::HostConfig;
use super::error::ShellError;
use super::exec::driver::{Driver, Order, Settings};
use super::frame::Dialect;
use super::frame::exports::{Export, START_FILE, is_variable_name};
use super::limits::ShellLimits;
use super::local::caged::{CageSlot, INSIDE};
use super::local::guard::Guard;
use super::local::process_tree::MarkPrefix;
use super::local::random::random_bits;
use super::local::scratch::{ScratchDir, private_dir};
use super::local::{CAGE_PATH, LocalTransport};
use super::log::{NoLog, ShellLog, ShellRecord};
use super::output::bulk_reader::THREADS_MAX;
use super::output::pages::is_zero;
use super::output::spool::Spool;
use super::registry::{Entry, Registry, Slot};
use super::remote::{Destination, RemoteTransport, SshRequest, remove_left};
use super::request::{ExecRequest, ExecResult, Progress, RunningCommand};
use super::secret_values::SecretValues;
use super::state::{Seat, ShellState, Status};
use super::transport::{StartPlace, Transport};
use ctx_text::budget::{Budget, Plan};
use ctx_text::ends::Ends;
use ctx_text::fence::Fence;
use ctx_text::redact::{Secrets, redact_text};

/// What a new shell should be like.
#[derive(Debug, Clone, Default)]
pub struct CreateRequest {
    pub to: Destination,
    pub cwd: Option<String>,
    pub env: Vec<(String, String)>,
    /// Programs that may run; any, where there is no list.
    pub allow: Option<Vec<String>>,
    /// Programs that may not.
    pub deny: Vec<String>,
    pub output_budget: Option<Budget>,
    pub timeout: Option<Duration>,
    /// The directory that snapshots are taken of.
    pub workspace: Option<String>,
    /// Whether ignored files are part of its snapshots.
    pub with_ignored: bool,
}

/// One line of the list of shells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShellSummary {
    pub session_id: String,
    /// The ULID of the shell's log.
    pub log: Ulid,
    pub transport: &'static str,
    pub cwd: String,
    pub idle_secs: u64,
    pub commands: u64,
    /// The command that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningCommand>,
    /// Commands that wait for their turn.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting: usize,
}

/// What an interrupt met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Interrupted {
    /// Whether a command was running.
    pub interrupted: bool,
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
}

/// A cheap handle on all shells of a server.
#[derive(Clone)]
pub struct ShellHost {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub config: HostConfig,
    pub limits: Arc<ShellLimits>,
    pub log: Arc<dyn ShellLog>,
    local: LocalTransport,
    marks: MarkPrefix,
    scratch: ScratchDir,
    registry: Mutex<Registry>,
    guard: tokio::sync::Mutex<Option<Guard>>,
    /// Threads for shells that print much.
    threads: Arc<Semaphore>,
    /// Whether no command may begin.
    hold: Arc<watch::Sender<bool>>,
    /// What every shell inherits and must not be shown, whatever a caller sets instead.
    secret_values: SecretValues,
    secrets: Arc<Secrets>,
}

impl ShellHost {
    /// A host without shells. Nothing is started before the first one is made.
    pub fn new(config: HostConfig, log: Arc<dyn ShellLog>) -> Result<ShellHost, ShellError> {
        let bits = random_bits();
        let marks = MarkPrefix::new((bits >> 64) as u64);
        let inside = config.cage.as_ref().map(|_| PathBuf::from(INSIDE));
        let (dir, reader) = match &config.run_as {
            Some(user) => (user.scratch_dir.clone(), Some(user.uid)),
            // A frame is text, and names these files.
            None if config.spool_dir.to_str().is_none() => (std::env::temp_dir(), None),
            None => (config.spool_dir.clone(), None),
        };
        let scratch = ScratchDir { path: dir.join(format!("scratch-{bits:032x}")), reader, inside };
        let path = if config.cage.is_some() { CAGE_PATH.into() } else { config.path() };
        let user = config.run_as.as_ref();
        remove_left(&user.map_or_else(Rights::own, |user| user.rights.clone()));
        let local = LocalTransport::new(config.program.as_deref(), &path, user, marks, scratch.clone())?;
        let registry = Registry::new(bits as u64);
        let mut secret_values = SecretValues::default();
        secret_values.give(&config.exports());
        let inner = Inner {
            secrets: Arc::new(secret_values.secrets()),
            secret_values,
            limits: Arc::new(config.limits.clone()),
            scratch,
            config,
            log,
            local,
            marks,
            registry: Mutex::new(registry),
            guard: tokio::sync::Mutex::new(None),
            threads: Arc::new(Semaphore::new(THREADS_MAX)),
            hold: Arc::new(watch::Sender::new(false)),
        };
        Ok(ShellHost { inner: Arc::new(inner) })
    }

    /// A host whose program was named and has shown that it is a shell; the default ones are.
    pub async fn tried(config: HostConfig, log: Arc<dyn ShellLog>) -> Result<ShellHost, ShellError> {
        if let Some(path) = config.program.clone() {
            let trial = ShellHost::new(config.clone(), Arc::new(NoLog))?;
            let made = trial.create(CreateRequest::default()).await;
            trial.shutdown().await;
            made.map_err(|error| match error {
                ShellError::Closed { why, .. } => ShellError::NotAShell { path, why },
                other => other,
            })?;
        }
        ShellHost::new(config, log)
    }

    /// Text as it may leave us: an error repeats what a caller has said.
    pub fn shown(&self, text: &str) -> String {
        redact_text(&self.inner.secrets, text)
    }

    /// Whether commands are bash's, and not only those of a POSIX shell.
    pub fn is_bash(&self) -> bool {
        self.inner.local.dialect() == Dialect::Bash
    }

    pub fn limits(&self) -> &ShellLimits {
        &self.inner.limits
    }

    /// While this is true no shell begins a command; those that run go on. For whoever cannot take more results.
    pub fn hold(&self) -> Arc<watch::Sender<bool>> {
        Arc::clone(&self.inner.hold)
    }

    /// Makes a shell and returns its id.
    pub async fn create(&self, request: CreateRequest) -> Result<String, ShellError> {
        let settings = self.inner.settings(&request)?;
        let place = self.inner.place(&request)?;
        let fence = self.inner.fence(&request)?;
        let checked = request.env.iter().try_for_each(|(name, _)| fence.check_variable(name));
        checked.map_err(|refused| ShellError::Denied { message: refused.to_string() })?;
        let remote = RemoteTransport::new(&request.to, &self.inner.config).await?;
        let workspace = match (&request.workspace, &remote) {
            (None, _) => None,
            (Some(path), Some(remote)) => {
                let (path, remote) = (path.clone(), remote.clone());
                Some(Arc::new(self.inner.open_far_workspace(remote, path, request.with_ignored).await?))
            }
            (Some(path), None) => {
                let path = self.inner.config.cwd.join(self.inner.without_tilde(path)?);
                Some(Arc::new(self.inner.open_workspace(path, request.with_ignored).await?))
            }
        };
        self.inner.ready().await?;
        let (secret_values, secrets) = self.inner.secret_values_of(&place, &request.to);
        let slot = Slot::take(&self.inner, now())?;
        let (n, log) = (slot.n, slot.log);
        // A cage is around processes of this machine.
        let cage = self.inner.config.cage.clone().filter(|_| remote.is_none());
        let cage = cage.map(|setup| Arc::new(CageSlot::new(setup)));
        let transport: &dyn Transport = match &remote {
            Some(remote) => remote,
            None => &self.inner.local,
        };
        let shared = Arc::new(ShellState {
            id: format!("{n}_{}", transport.label()),
            log,
            transport: transport.name(),
            spool: Mutex::new(Spool::new(&self.inner.config.spool_dir, self.inner.limits.output_bytes_max)),
            status: Mutex::new(Status {
                cwd: place.cwd.to_string_lossy().into_owned(),
                secrets,
                used: Instant::now(),
                commands: 0,
                running: None,
                waiting: 0,
            }),
            interrupt: Notify::new(),
            cage: cage.clone(),
            closing: CancellationToken::new(),
            threads: Arc::clone(&self.inner.threads),
            hold: self.inner.hold.subscribe(),
        });
        let connection = transport.connect(n, cage)?;
        let shell_log = Arc::clone(&self.inner.log);
        let driver =
            Driver::start(Arc::clone(&shared), settings, shell_log, connection, place, secret_values).await?;
        let created = ShellRecord::Created {
            shell: shared.id.clone(),
            transport: shared.transport.to_owned(),
            cwd: shared.shown_cwd(),
            app: self.inner.config.app.clone(),
        };
        let logged = self.inner.log.record(log, &created);
        let id = shared.id.clone();
        let entry = slot.fill(driver, shared, fence, workspace);
        if let Err(error) = logged {
            // Whoever watches could not see what this shell does: better none than one unseen.
            entry.end().await;
            return Err(ShellError::Log { message: error.to_string() });
        }
        Ok(id)
    }

    /// Runs a command in its turn. Dropping the future stops the command.
    pub async fn exec(
        &self,
        id: &str,
        request: ExecRequest,
        progress: Option<watch::Sender<Progress>>,
    ) -> Result<ExecResult, ShellError> {
        let entry = self.inner.entry(id)?;
        let plan = self.inner.check(&request)?;
        self.inner.admit(&entry, &request.command)?;
        let seat = Seat::take(&entry.shared, self.inner.limits.waiting_max)
            .map_err(|waiting| ShellError::Crowded { id: id.to_owned(), waiting })?;
        let seat = Arc::new(seat);
        let (reply, answer) = oneshot::channel();
        // The shell has ended meanwhile; why is known when it is off the list.
        let closed = async || {
            entry.done.cancelled().await;
            match self.why_gone(id) {
                Some(ShellError::NoShell { .. }) | None => ShellError::destroyed(id),
                Some(why) => why,
            }
        };
        let (asked, behind) = (Instant::now(), entry.shared.running());
        let order = Order { request, plan, progress, reply, seat: Arc::downgrade(&seat), asked, behind };
        // There is room, unless commands that were given up are still in the way.
        if entry.orders.send(order).await.is_err() {
            return Err(closed().await);
        }
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(closed().await),
        }
    }

    /// The shells there are, in the order in which they were made.
    pub fn list(&self) -> Vec<ShellSummary> {
        let mut entries: Vec<Entry> = self.inner.registry().shells.values().cloned().collect();
        entries.sort_by_key(|entry| entry.n);
        entries.iter().map(Entry::summary).collect()
    }

    /// Why a shell is not there any more; None: it is.
    pub fn why_gone(&self, id: &str) -> Option<ShellError> {
        self.inner.entry(id).err()
    }

    /// The command that runs in a shell.
    pub fn running(&self, id: &str) -> Option<RunningCommand> {
        self.inner.entry(id).ok()?.shared.running()
    }

    /// Ends a shell and every process it started.
    pub async fn destroy(&self, id: &str) -> Result<(), ShellError> {
        self.inner.entry(id)?.end().await;
        Ok(())
    }

    /// Stops the command that runs in a shell; the shell lives on.
    pub fn interrupt(&self, id: &str) -> Result<Interrupted, ShellError> {
        let entry = self.inner.entry(id)?;
        let call = entry.shared.status().running.as_ref().map(|running| running.call);
        entry.shared.interrupt.notify_waiters();
        Ok(Interrupted { interrupted: call.is_some(), call })
    }

    /// Ends all shells, and makes no more.
    pub async fn shutdown(&self) {
        let entries: Vec<Entry> = {
            let mut registry = self.inner.registry();
            registry.closed = true;
            registry.shells.values().cloned().collect()
        };
        for entry in &entries {
            entry.shared.closing.cancel();
        }
        for entry in entries {
            entry.done.cancelled().await;
        }
        if let Some(guard) = self.inner.guard.lock().await.take() {
            guard.finish().await;
        } else if self.inner.config.cage.is_some()
            && let Err(error) = std::fs::remove_dir_all(&self.inner.scratch.path)
        {
            tracing::debug!(%error, "the files of shells in cages were gone already");
        }
    }
}

/// The cages of all shells.
impl ShellHost {
    fn cages(&self) -> Vec<Arc<CageSlot>> {
        self.inner.registry().shells.values().filter_map(|entry| entry.shared.cage.clone()).collect()
    }

    /// The names of the cages that run.
    pub fn cage_names(&self) -> Vec<String> {
        self.cages().iter().filter_map(|cage| cage.name()).collect()
    }

    /// The limit that ended a cage of a shell, also if another one runs by now.
    pub fn limit_reached(&self) -> Option<Limit> {
        self.cages().iter().find_map(|cage| cage.limit_reached())
    }

    /// Stops all processes where they are; what is started later is stopped too. Blocks until they are.
    pub fn freeze(&self) -> Result<(), CageError> {
        self.cages().iter().map(|cage| cage.freeze()).collect::<Result<Vec<()>, _>>().map(drop)
    }

    pub fn thaw(&self) -> Result<(), CageError> {
        self.cages().iter().map(|cage| cage.thaw()).collect::<Result<Vec<()>, _>>().map(drop)
    }

    /// Ends all processes, which may end by themselves within this time. The shells stay: the next command of each runs in a
    /// new cage, in the same directory and with the same exported variables.
    pub async fn end_processes(&self, patience: Duration) {
        let cages = self.cages();
        // Tasks of their own: an end that was begun is finished, also if nobody waits for it.
        let ends: Vec<_> =
            cages.into_iter().map(|cage| tokio::spawn(async move { cage.end(patience).await })).collect();
        for end in ends {
            let _ = end.await;
        }
    }

    /// Gives the shells another cage. One that is different already ends.
    pub async fn change_cage(&self, cage: &Cage, patience: Duration) {
        for slot in self.cages() {
            slot.change(cage, patience).await;
        }
    }
}

impl Inner {
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn entry(&self, id: &str) -> Result<Entry, ShellError> {
        let registry = self.registry();
        registry.shells.get(id).cloned().ok_or_else(|| registry.missing(id))
    }

    /// Makes the directory for output and starts the guard, once.
    async fn ready(&self) -> Result<(), ShellError> {
        let dir = &self.config.spool_dir;
        let failed = |source| ShellError::Spool { path: dir.clone(), source };
        private_dir(dir).map_err(failed)?;
        let mut guard = self.guard.lock().await;
        // Nothing outlives a cage, and no cage outlives us.
        if guard.is_none() && self.config.cage.is_none() {
            let started = Guard::start(self.local.setsid(), self.marks, &self.scratch.path);
            *guard = Some(started.map_err(|source| ShellError::Start { cwd: dir.clone(), source })?);
        }
        Ok(())
    }

    fn settings(&self, request: &CreateRequest) -> Result<Settings, ShellError> {
        Ok(Settings {
            plan: request.output_budget.as_ref().map(compile).transpose()?,
            timeout: self.timeout(request.timeout)?.unwrap_or(self.limits.timeout_default),
            limits: Arc::clone(&self.limits),
            start_file: self.config.variable(START_FILE).map(<[u8]>::to_vec),
        })
    }

    fn timeout(&self, timeout: Option<Duration>) -> Result<Option<Duration>, ShellError> {
        match timeout {
            Some(timeout) if timeout.is_zero() || timeout > self.limits.timeout_max => {
                let max = self.limits.timeout_max.as_secs();
                Err(ShellError::invalid(
                    "timeout_secs",
                    format!("timeout_secs must be more than 0 and at most {max}"),
                ))
            }
            timeout => Ok(timeout),
        }
    }

    fn place(&self, request: &CreateRequest) -> Result<StartPlace, ShellError> {
        let is_local = request.to == Destination::Local;
        let cwd = match is_local {
            true => self.local_cwd(request)?,
            // The other side knows its directories.
            false => request.cwd.clone().unwrap_or_default().into(),
        };
        let mut env = if is_local { self.config.exports() } else { HostConfig::screenless() };
        for (name, value) in &request.env {
            if !is_variable_name(name) || value.contains('\0') {
                return Err(ShellError::invalid(
                    "env",
                    format!(
                        "env: `{}` cannot be set; a name has letters, digits and _, and a value has no NUL",
                        name.escape_debug()
                    ),
                ));
            }
            env.retain(|export| export.name != *name);
            env.push(Export { name: name.clone(), value: value.clone().into_bytes() });
        }
        Ok(StartPlace { cwd, env })
    }

    fn local_cwd(&self, request: &CreateRequest) -> Result<PathBuf, ShellError> {
        // Joined with nothing, a path would end in a slash.
        let cwd = request.cwd.as_ref().filter(|cwd| !cwd.is_empty());
        let cwd = match cwd {
            None => self.config.cwd.clone(),
            Some(cwd) => self.config.cwd.join(self.without_tilde(cwd)?),
        };
        // As the shell will say it: without `.` and needless slashes, with `..` and links as they are.
        let cwd: std::path::PathBuf = cwd.components().collect();
        // Whether another user's directory is there is theirs to find out, when their shell starts in it.
        if self.config.run_as.is_none() && self.config.cage.is_none() && !cwd.is_dir() {
            return Err(ShellError::invalid("cwd", format!("cwd `{}` is not a directory", cwd.display())));
        }
        Ok(cwd)
    }

    /// A path whose `~` is the home directory, as a shell would read it.
    fn without_tilde(&self, cwd: &str) -> Result<std::path::PathBuf, ShellError> {
        let rest = match cwd.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
            _ => return Ok(cwd.into()),
        };
        let home = self.config.variable("HOME").filter(|home| home.starts_with(b"/")).ok_or_else(|| {
            ShellError::invalid("cwd", format!("cwd `{cwd}`: HOME is not set; give an absolute path"))
        })?;
        Ok(std::path::Path::new(std::ffi::OsStr::from_bytes(home)).join(rest))
    }

    /// What must not be shown of a shell that is made here. Most are made with nothing new.
    fn secret_values_of(&self, place: &StartPlace, to: &Destination) -> (SecretValues, Arc<Secrets>) {
        let mut secret_values = self.secret_values.clone();
        let mut given = place.env.clone();
        if let Destination::Ssh(SshRequest { password: Some(password), .. }) = to {
            given.push(Export { name: "PASSWORD".to_owned(), value: password.clone().into_bytes() });
        }
        let secrets = match secret_values.give(&given) {
            true => Arc::new(secret_values.secrets()),
            false => Arc::clone(&self.secrets),
        };
        (secret_values, secrets)
    }

    fn fence(&self, request: &CreateRequest) -> Result<Fence, ShellError> {
        Fence::new(self.config.policy.clone(), request.allow.as_deref(), &request.deny)
            .map_err(|error| ShellError::invalid("allow, deny", error.to_string()))
    }

    /// Asks the fence, and records what it refuses.
    fn admit(&self, entry: &Entry, command: &str) -> Result<(), ShellError> {
        let Err(refused) = entry.fence.check(command) else { return Ok(()) };
        let reason = entry.shared.shown(&refused.to_string());
        let command = Ends::of(&entry.shared.shown(command)).text();
        let record = ShellRecord::ExecRefused { command, reason: reason.clone() };
        if let Err(error) = self.log.record(entry.shared.log, &record) {
            tracing::warn!(shell = %entry.shared.id, %error, "a refused command was not recorded");
        }
        Err(ShellError::Denied { message: reason })
    }

    /// Checks a command before it waits for its turn.
    fn check(&self, request: &ExecRequest) -> Result<Option<Plan>, ShellError> {
        if request.command.contains('\0') {
            return Err(ShellError::invalid(
                "command",
                "the command holds a NUL byte, which no shell can take",
            ));
        }
        let max = self.limits.command_bytes_max;
        if request.command.len() > max {
            return Err(ShellError::TooLong { what: "the command", bytes: request.command.len(), max });
        }
        let (stdin, max) = (request.stdin.as_ref().map_or(0, Vec::len), self.limits.stdin_bytes_max);
        if stdin > max {
            return Err(ShellError::TooLong { what: "stdin", bytes: stdin, max });
        }
        self.timeout(request.timeout)?;
        request.budget.as_ref().map(compile).transpose()
    }
}

fn compile(budget: &Budget) -> Result<Plan, ShellError> {
    budget.plan().map_err(|error| ShellError::invalid("budget", error.to_string()))
}
