//! Starts the daemon for a command that needs one, and waits for a daemon that is starting or stopping.
//!
//! An `flock` on the root's directory decides which client starts it; the others wait for that lock and then find the
//! daemon. The daemon itself holds another lock, `.state/lock`, for its whole life.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use ctx_session::Code;
use rustix::fs::{FlockOperation, flock};

use crate::client::Api;
use crate::config::{self, Environment, FileArg};
use crate::detach::{self, Started};
use crate::failure::Failure;
use crate::output;
use crate::root::Root;

/// How often a daemon that is starting or stopping is looked at: it belongs to someone else and tells us nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// How long it is waited for in silence, and in all: a daemon whose socket was removed never answers.
const SILENT: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(120);

/// The same root with a daemon, which is started where none runs.
pub fn with_daemon(root: Root) -> Result<Root, Failure> {
    if let Some(pid) = ensure(&root)? {
        output::say(started(pid));
    }
    Ok(root)
}

/// What is said of a daemon that was started.
pub fn started(pid: u32) -> String {
    format!("started the daemon (pid {pid}); `ctx stop` stops it")
}

/// Returns when a daemon takes connections at this root; starts one if there is none and the configuration allows it.
/// The process that was started, if one was.
pub fn ensure(root: &Root) -> Result<Option<u32>, Failure> {
    if root.is_up() {
        return Ok(None);
    }
    if !is_wanted()? || !is_ours(root) {
        return Err(root.daemon_down());
    }
    let _turn = take_turn(root)?;
    loop {
        let was_held = wait_for_holder(root)?;
        if root.is_up() {
            // Its first answer comes when all of its sockets are open.
            let _: serde_json::Value = Api::new(root).get("/status")?;
            return Ok(None);
        }
        match detach::start(&root.path, &[])? {
            // A person has started one at the same moment. Who waited for it and still cannot start must say why.
            Started::Ended { exit: 69, .. } if !was_held => {}
            started => return started.up().map(Some),
        }
    }
}

fn is_wanted() -> Result<bool, Failure> {
    Ok(config::load(&FileArg::of_environment(), &Environment::of_process())?.config.autostart)
}

/// Whether a daemon of this user belongs there: not in a root that another user keeps.
fn is_ours(root: &Root) -> bool {
    let owner = std::fs::metadata(&root.path).map(|data| data.uid());
    owner.map_or(true, |uid| uid == rustix::process::geteuid().as_raw())
}

/// Waits until no other client is starting a daemon here. The turn ends when the file is dropped.
fn take_turn(root: &Root) -> Result<File, Failure> {
    let failed = |error| Failure::io(root.path.display(), error);
    std::fs::create_dir_all(&root.path).map_err(failed)?;
    let dir = File::open(&root.path).map_err(failed)?;
    flock(&dir, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    Ok(dir)
}

/// Waits while a daemon holds the root and does not answer: it is starting or stopping, or `ctx reindex` runs.
/// Whether there was something to wait for.
fn wait_for_holder(root: &Root) -> Result<bool, Failure> {
    let Ok(lock) = File::open(root.path.join(".state/lock")) else { return Ok(false) };
    let (begun, mut waited, mut said) = (Instant::now(), false, false);
    while !root.is_up() && flock(&lock, FlockOperation::NonBlockingLockShared).is_err() {
        waited = true;
        if begun.elapsed() > LONGEST {
            let message = format!("a process holds {} and does not answer", root.path.display());
            return Err(Failure::new(Code::Ehostdown, message)
                .hint("its pid is in .state/daemon.json: end it (kill PID), and run the command again"));
        }
        if begun.elapsed() > SILENT && !said {
            said = true;
            output::say(
                "waiting for the process that holds this root: a daemon that starts or stops, or a reindex",
            );
        }
        std::thread::sleep(PAUSE);
    }
    Ok(waited)
}
