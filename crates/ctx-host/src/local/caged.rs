//! The cage around a shell: started with its first interpreter, and again when it has ended.
//!
//! The command of the cage is a supervisor of a few lines. It starts an interpreter for each line that it reads and says
//! when that has ended. So a shell whose interpreter is replaced keeps its background jobs and its `/tmp`. What a cage is
//! and how it is started is the business of [`ctx_cage`].

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;

use super::process_tree::child_of;
use super::scratch::ScratchDir;
use crate::error::ShellError;
use crate::frame::exports::Export;
use crate::frame::quote::{quote, quote_bytes};
use crate::request::EXIT_KILLED;
use ctx_cage::{Cage, CageError, Io, Limit, Means, Mount, Net, RunningCage};

/// Where the files between us and a shell are in its cage.
pub(crate) const INSIDE: &str = "/run/ctx";

/// Each line is a file with an interpreter's start. The traps keep the supervisor, and are not inherited.
const SUPERVISOR: &str = r#"trap : TERM INT HUP QUIT PIPE
while IFS= read -r file; do
    /bin/sh "$file" 3>&1
    echo "e $?"
done"#;
/// What the start says when the streams are open.
const STARTED: &str = "s";
/// How long an interpreter may take to open its streams.
const START_MAX: Duration = Duration::from_secs(20);
/// A longer line is none of the supervisor's: what runs in the cage can write into its pipe.
const LINE_BYTES_MAX: usize = 256;
/// How long the end of a cage is waited for where its supervisor is gone. Its owner can keep `bwrap` from ending.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// What shells in cages are made with.
#[derive(Debug, Clone)]
pub struct CageSetup {
    pub cage: Cage,
    pub bwrap: PathBuf,
    pub means: Means,
    /// Who is responsible for the cages: see [`ctx_cage::sweep`].
    pub parent: String,
}

/// The place of one shell's cage: it may be empty, and there may be one cage after another in it.
pub(crate) struct CageSlot {
    setup: CageSetup,
    state: Mutex<State>,
    /// Held while a cage starts or ends.
    gate: tokio::sync::Mutex<()>,
}

struct State {
    cage: Cage,
    running: Option<Arc<RunningCage>>,
    /// All processes are stopped, and those of a new cage would be at once.
    frozen_since: Option<Instant>,
    /// For how long that was so before.
    frozen_for: Duration,
    is_ending: bool,
    /// What ended the last cage.
    limit: Option<Limit>,
    /// The last limit that ended one.
    ever: Option<Limit>,
}

impl CageSlot {
    pub fn new(setup: CageSetup) -> CageSlot {
        let state = State {
            cage: setup.cage.clone(),
            running: None,
            frozen_since: None,
            frozen_for: Duration::ZERO,
            is_ending: false,
            limit: None,
            ever: None,
        };
        CageSlot { setup, state: Mutex::new(state), gate: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cage that runs, if one does.
    fn living(&self) -> Option<Arc<RunningCage>> {
        self.state().running.clone().filter(|running| running.ended().is_none())
    }

    /// The name of the cage that runs.
    pub fn name(&self) -> Option<String> {
        self.living().map(|running| running.name().to_owned())
    }

    /// The limit that ended a cage of this shell, also if another one runs by now.
    pub fn limit_reached(&self) -> Option<Limit> {
        let state = self.state();
        state.ever.or_else(|| state.running.as_ref()?.ended()?.limit)
    }

    /// Starts a cage where none runs.
    async fn enter(self: &Arc<Self>, scratch: &ScratchDir) -> Result<Option<Control>, CageError> {
        let _gate = self.gate.lock().await;
        if self.living().is_some() {
            return Ok(None);
        }
        let (slot, dir) = (Arc::clone(self), scratch.path.clone());
        let started = tokio::task::spawn_blocking(move || slot.start(&dir)).await;
        let gone = |error| CageError::NotStarted { detail: format!(": {error}") };
        started.map_err(gone)?.map(Some)
    }

    fn start(&self, scratch: &Path) -> Result<Control, CageError> {
        let CageSetup { bwrap, means, parent, .. } = &self.setup;
        let mut cage = self.state().cage.clone();
        cage.mounts.push(Mount::rw(scratch, INSIDE));
        let command = ["/bin/sh", "-c", SUPERVISOR].map(OsString::from);
        let io = Io { stdin: Stdio::piped(), stdout: Stdio::piped(), stderr: Stdio::piped() };
        let mut running = RunningCage::start(bwrap, &cage, means, parent, &command, io)?;
        let (Some(orders), Some(said), stderr) =
            (running.stdin.take(), running.stdout.take(), running.stderr.take())
        else {
            return Err(CageError::NotStarted { detail: " with pipes".to_owned() });
        };
        let said = said_by(said).map_err(|error| CageError::NotStarted { detail: format!(": {error}") })?;
        let running = Arc::new(running);
        let mut state = self.state();
        // Whoever froze it meanwhile has found nothing to freeze.
        if state.frozen_since.is_some() {
            running.freeze()?;
        }
        (state.running, state.limit) = (Some(Arc::clone(&running)), None);
        drop(state);
        Ok(Control { running, orders, said, read: Vec::new(), is_over: false, _stderr: stderr })
    }

    /// Stops all processes where they are. What is started later is stopped too.
    pub fn freeze(&self) -> Result<(), CageError> {
        let mut state = self.state();
        state.frozen_since.get_or_insert_with(Instant::now);
        state.running.as_ref().map_or(Ok(()), |running| running.freeze())
    }

    pub fn thaw(&self) -> Result<(), CageError> {
        let mut state = self.state();
        if let Some(since) = state.frozen_since.take() {
            state.frozen_for += since.elapsed();
        }
        state.running.as_ref().map_or(Ok(()), |running| running.thaw())
    }

    pub fn is_frozen(&self) -> bool {
        self.state().frozen_since.is_some()
    }

    /// For how long the shell has been frozen in all.
    pub fn frozen_for(&self) -> Duration {
        let state = self.state();
        state.frozen_for + state.frozen_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Ends all processes: each may end by itself within this time. The next command starts a new cage.
    pub async fn end(self: &Arc<Self>, patience: Duration) {
        self.state().is_ending = true;
        let _gate = self.gate.lock().await;
        let running = self.state().running.take();
        if let Some(running) = running {
            let ended = tokio::task::spawn_blocking(move || running.end(patience)).await;
            if ended.is_err() {
                tracing::error!("the end of a cage broke");
            }
        }
        let mut state = self.state();
        if let Some(since) = state.frozen_since.take() {
            state.frozen_for += since.elapsed();
        }
        state.is_ending = false;
    }

    pub fn is_ending(&self) -> bool {
        self.state().is_ending
    }

    /// Makes the next cage another one, if it is; then this one ends.
    pub async fn change(self: &Arc<Self>, cage: &Cage, patience: Duration) {
        let is_same = std::mem::replace(&mut self.state().cage, cage.clone()) == *cage;
        if !is_same {
            self.end(patience).await;
        }
    }

    /// What the caller of a command that failed is to know of its cage.
    pub fn hint(&self, printed: &str) -> Option<String> {
        let state = self.state();
        let limits = &state.cage.limits;
        if let Some(limit) = state.limit {
            let most = match limit {
                Limit::Memory => format!(" ({} MiB)", limits.memory_bytes >> 20),
                Limit::Processes => format!(" ({})", limits.processes),
                Limit::Walltime => String::new(),
            };
            return Some(format!(
                "the cage was ended with all its processes: {limit}{most} reached; use less, or ask the operator for more"
            ));
        }
        if printed.contains("No space left on device")
            && state.running.as_ref().is_some_and(|it| it.is_tmp_full())
        {
            let size = limits.tmp_bytes >> 20;
            return Some(format!(
                "/tmp of the cage is full: its limit is {size} MiB; delete files there, or use /work"
            ));
        }
        (state.cage.net == Net::None && lacks_network(printed)).then(|| {
            "this cage has no network; the operator allows it for a run with `--net host`, or for good with `net: host` \
             in the project's `cage`"
                .to_owned()
        })
    }
}

/// Whether a program complains that it cannot reach anything.
fn lacks_network(printed: &str) -> bool {
    const SAYINGS: &[&str] = &[
        "could not resolve",
        "couldn't resolve",
        "name resolution",
        "name or service not known",
        "network is unreachable",
        "network unreachable",
        "enetunreach",
        "eai_again",
        "enotfound",
        "no such host",
        "getaddrinfo",
        "failed to lookup address",
        "connection refused",
        "dial tcp",
    ];
    let printed = printed.to_lowercase();
    SAYINGS.iter().any(|saying| printed.contains(saying))
}

/// The supervisor of a cage, as a connection holds it.
pub(super) struct Control {
    running: Arc<RunningCage>,
    orders: ChildStdin,
    said: Receiver,
    read: Vec<u8>,
    /// Nothing more will be said.
    is_over: bool,
    /// Held, so that `bwrap` has where to complain.
    _stderr: Option<ChildStderr>,
}

/// The stdout of a supervisor, as a part of the runtime.
fn said_by(stdout: std::process::ChildStdout) -> std::io::Result<Receiver> {
    let stdout = std::os::fd::OwnedFd::from(stdout);
    rustix::io::ioctl_fionbio(&stdout, true)?;
    Receiver::from_owned_fd(stdout)
}

impl Control {
    /// A line that is there already; None: not yet. An error: there will be none.
    fn try_line(&mut self) -> std::io::Result<Option<String>> {
        loop {
            if let Some(at) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=at).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            let mut bytes = [0; 64];
            match self.said.try_read(&mut bytes) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.read.extend(bytes.iter().take(count)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Nothing is lost when the wait is given up.
    async fn line(&mut self) -> std::io::Result<String> {
        loop {
            if let Some(line) = self.try_line()? {
                return Ok(line);
            }
            self.said.readable().await?;
        }
    }
}

/// A connection's way into its cage.
pub(super) struct Caged {
    pub slot: Arc<CageSlot>,
    control: Option<Control>,
}

impl Caged {
    pub fn new(slot: Arc<CageSlot>) -> Caged {
        Caged { slot, control: None }
    }

    /// Lets the supervisor start an interpreter, in a new cage where none runs.
    pub async fn start(&mut self, scratch: &ScratchDir, script: &[u8]) -> Result<CagedProcess, ShellError> {
        let broken = |why: String| ShellError::Cage(CageError::NotStarted { detail: format!(": {why}") });
        scratch.make().map_err(|source| ShellError::Spool { path: scratch.path.clone(), source })?;
        if let Some(control) = self.slot.enter(scratch).await.map_err(ShellError::Cage)? {
            self.control = Some(control);
        }
        let control = self.control.as_mut().ok_or_else(|| broken("it is gone".to_owned()))?;
        let file = scratch.put(script)?;
        let order = format!("{}\n", file.path().display());
        control.orders.write_all(order.as_bytes()).map_err(|error| broken(error.to_string()))?;
        let said = tokio::time::timeout(START_MAX, control.line()).await;
        match said {
            Ok(Ok(line)) if line == STARTED => {}
            Ok(Ok(line)) => return Err(broken(format!("its shell ended at once ({line})"))),
            Ok(Err(error)) => return Err(broken(format!("it ended at once ({error})"))),
            Err(_) => return Err(broken("its shell does not answer".to_owned())),
        }
        let first = control.running.first_process();
        let supervisor = child_of(first).ok_or_else(|| broken("its processes are not there".to_owned()))?;
        let shell = child_of(supervisor).ok_or_else(|| broken("its shell is not there".to_owned()))?;
        Ok(CagedProcess { first, supervisor, shell })
    }

    /// The exit code of the interpreter, when it ends: with the cage, that of a killed one.
    pub async fn wait(&mut self) -> i32 {
        let Some(control) = self.control.as_mut().filter(|control| !control.is_over) else {
            return std::future::pending().await;
        };
        match control.line().await {
            Ok(line) => code_of(&line),
            Err(_) => self.over(),
        }
    }

    /// The same where it has ended already.
    pub fn has_ended(&mut self) -> Option<i32> {
        let control = self.control.as_mut().filter(|control| !control.is_over)?;
        match control.try_line() {
            Ok(line) => line.as_deref().map(code_of),
            Err(_) => Some(self.over()),
        }
    }

    /// The supervisor is gone, and with it the cage.
    fn over(&mut self) -> i32 {
        if let Some(control) = &mut self.control {
            control.is_over = true;
        }
        self.note_limit();
        EXIT_KILLED
    }

    fn note_limit(&mut self) {
        let Some(control) = &self.control else { return };
        control.running.kill_at_limit();
        control.running.kill();
        // Its thread sees the end a moment later than we do.
        let ended = control.running.wait_at_most(END_PATIENCE);
        let mut state = self.slot.state();
        state.limit = ended.and_then(|ended| ended.limit);
        state.ever = state.limit.or(state.ever);
    }

    /// Whether the cage has reached a limit. Then it ends, and so does its interpreter.
    pub fn is_at_limit(&mut self) -> bool {
        let Some(control) = &self.control else { return false };
        let is_at = control.running.kill_at_limit();
        if is_at || control.running.ended().is_some() {
            self.note_limit();
        }
        is_at
    }

    pub async fn close(&mut self) {
        self.control = None;
        self.slot.end(Duration::ZERO).await;
    }
}

fn code_of(line: &str) -> i32 {
    line.strip_prefix("e ").and_then(|code| code.parse().ok()).unwrap_or(EXIT_KILLED)
}

/// An interpreter in a cage, as the host sees its processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CagedProcess {
    pub first: Pid,
    pub supervisor: Pid,
    pub shell: Pid,
}

/// The start of an interpreter, as a script for the supervisor: its streams, its directory or the nearest above it, its
/// variables.
pub(super) fn start_script(
    streams: [&Path; 3],
    cwd: &Path,
    env: &[&Export],
    command: &[OsString],
) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let [commands, stdout, stderr] = streams.map(|path| quote(&path.to_string_lossy()));
    let cwd = quote(&cwd.to_string_lossy());
    let mut script = format!(
        "exec <{commands} >{stdout} 2>{stderr}\nd={cwd}\nuntil cd -- \"$d\" 2>/dev/null; do d=${{d%/*}}; d=${{d:-/}}; done\n\
         echo {STARTED} >&3\nexec 3>&- env -i"
    )
    .into_bytes();
    let variables = env.iter().map(|Export { name, value }| [name.as_bytes(), b"=", value].concat());
    for word in variables.chain(command.iter().map(|part| part.as_bytes().to_vec())) {
        script.push(b' ');
        quote_bytes(&mut script, &word);
    }
    script.push(b'\n');
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_opens_the_streams_and_becomes_the_shell() {
        let env = [Export { name: "A".to_owned(), value: b"it's \xff".to_vec() }];
        let streams = ["/run/ctx/i", "/run/ctx/o", "/run/ctx/e"].map(Path::new);
        let script = start_script(streams, Path::new("/work/a b"), &[&env[0]], &["bash".into()]);
        let script = String::from_utf8_lossy(&script);
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!(lines[0], "exec <'/run/ctx/i' >'/run/ctx/o' 2>'/run/ctx/e'");
        assert_eq!(lines[1], "d='/work/a b'");
        assert_eq!(lines[4], "exec 3>&- env -i 'A=it'\\''s \u{fffd}' 'bash'");
    }

    #[test]
    fn only_a_complaint_about_the_network_is_one() {
        for printed in
            ["curl: (6) Could not resolve host: x", "getaddrinfo EAI_AGAIN", "Network is unreachable"]
        {
            assert!(lacks_network(printed), "{printed}");
        }
        assert!(!lacks_network("error: expected `;`"));
    }
}
