//! What a root shows: the directories of the tree, `bin/ctx`, the first agent and models, and `status`.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use ctx_engine::Engine;
use ctx_journal::Owner;
use ctx_journal::access::Kind;
use ctx_session::Code;
use tokio_util::sync::CancellationToken;

use super::owner::{cannot, replace};
use crate::failure::Failure;

/// How often `status` may change.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// Makes what is missing; nothing that a person has changed is touched.
pub(super) fn prepare(root: &Path, workspace: Option<&Path>) -> Result<(), Failure> {
    for dir in ["bin", "model", "agent", "tool", "home", "shared"] {
        let path = root.join(dir);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&path);
        made.map_err(|error| cannot(&path, error))?;
        keep_own(&path)?;
    }
    ctx_agent::prepare_root(root, workspace)
        .map_err(|error| Failure::new(Code::Eio, format!("the root cannot be prepared: {error}")))?;
    prepare_home(root, Owner::own()).map_err(|error| cannot(&root.join("home"), error))?;
    link_binary(&root.join("bin/ctx"))
}

/// What a user keeps in the tree themselves: their tools, and links to models beside the daemon's own directories of
/// models that have sessions. Made where it is missing.
pub(super) fn prepare_home(root: &Path, user: Owner) -> std::io::Result<()> {
    use std::os::unix::fs::{PermissionsExt, chown};
    let home = root.join(format!("home/{}", user.uid));
    let make = |path: &Path, mode: u32| match std::fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    };
    if make(&home, 0o700)? {
        ctx_journal::access::let_read(std::fs::File::open(&home)?, Kind::Dir, user)?;
    }
    if user.uid == 0 {
        // Root's cages run as another user, who passes through to the tools and can list nothing here.
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o711))?;
    }
    let (tools, models) = (home.join("tool"), home.join("model"));
    if make(&tools, 0o755)? && user != Owner::own() {
        chown(&tools, Some(user.uid), Some(user.gid))?;
    }
    if make(&models, 0o755)? && user != Owner::own() {
        let dir = std::fs::File::open(&models)?;
        dir.set_permissions(std::fs::Permissions::from_mode(0o1700))?;
        ctx_journal::access::let_write(dir, user)?;
    }
    Ok(())
}

/// Refuses a directory in which others could put things that the daemon believes.
fn keep_own(path: &Path) -> Result<(), Failure> {
    let data = std::fs::symlink_metadata(path).map_err(|error| cannot(path, error))?;
    let own = rustix::process::geteuid().as_raw();
    match ctx_journal::access::foreign(data.uid(), data.mode(), 1, own) {
        None => Ok(()),
        Some(why) => Err(Failure::new(Code::Eacces, format!("{}: {why}", path.display())).hint(
            "give it to the daemon's user and take others' right to write away (`chown`, `chmod go-w`)",
        )),
    }
}

/// `bin/ctx` is this program, wherever it is installed.
fn link_binary(path: &Path) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::io("the path of this program", error))?;
    if std::fs::read_link(path).is_ok_and(|old| old == program) {
        return Ok(());
    }
    let beside = path.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    std::os::unix::fs::symlink(program, &beside).map_err(|error| cannot(&beside, error))?;
    std::fs::rename(&beside, path).map_err(|error| cannot(path, error))
}

/// Keeps `status` true until `stop`: one line a fact.
pub(super) async fn keep_status(root: std::path::PathBuf, engine: Engine, stop: CancellationToken) {
    let started = Instant::now();
    let path = root.join("status");
    let mut counts = engine.counts();
    loop {
        let running = counts.borrow_and_update().total;
        let mut text = format!(
            "version {}\npid {}\nuptime_s {}\n",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            started.elapsed().as_secs(),
        );
        // Everyone reads it. Where there are several users, `ctx status` counts what each of them may see.
        if !rustix::process::geteuid().is_root() {
            let (sessions, loaded) = (engine.session_count(), engine.loaded_count());
            text += &format!("sessions {sessions}\nloaded {loaded}\nrunning {running}\n");
        }
        if let Err(error) = replace(&path, text.as_bytes(), 0o644) {
            tracing::warn!(path = %path.display(), %error, "the status file is behind");
        }
        let due = async {
            tokio::select! {
                _ = counts.changed() => tokio::time::sleep(STATUS_PAUSE).await,
                () = tokio::time::sleep(STATUS_PAUSE * 60) => {}
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = due => {}
        }
    }
    // A daemon that is gone has no status.
    let _ = std::fs::remove_file(&path);
}
