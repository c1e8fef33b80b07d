//! The guard: a tiny process that ends a server's shells when the server is gone, however it went.
//!
//! It is a POSIX shell that waits on a pipe whose other end only the server holds. When the pipe closes, it
//! ends every process that carries one of the server's marks, and what descends from those. It has a session
//! of its own and ignores the signals that a host sends to a whole group. One that is killed is replaced.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::process_tree::{MARK_DIGITS_BEHIND, MarkPrefix};
use super::program::in_own_session;

/// `$1` is the marks' prefix and `$3` how many digits follow, `$2` the directory with the stdin of commands. All are stopped before any is
/// killed, so that none can start another in between.
const SCRIPT: &str = r#"
trap '' HUP INT TERM PIPE QUIT
read -r _
marked() {
    for file in $(grep -lE "^Max file locks +$1[0-9]{$2} " /proc/[0-9]*/limits 2>/dev/null); do
        pid=${file#/proc/}
        echo "${pid%/limits}"
    done
}
below() {
    for pid in "$@"; do
        below $(cat "/proc/$pid/task/"*/children 2>/dev/null)
        echo "$pid"
    done
}
round=0
while [ "$round" -lt 50 ]; do
    round=$((round + 1))
    found=$(below $(marked "$1" "$3"))
    [ -n "$found" ] || break
    kill -STOP $found 2>/dev/null
    kill -KILL $(below $(marked "$1" "$3")) $found 2>/dev/null
done
rm -rf -- "$2"
"#;

/// A guard that lived for less than this is replaced after as long.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// The guard of one server. Dropping it, or the end of this process, lets the guard do its work.
#[derive(Debug)]
pub struct Guard {
    finish: DropGuard,
    watch: JoinHandle<()>,
}

/// What a guard is started with.
struct Recipe {
    setsid: Option<PathBuf>,
    prefix: String,
    scratch: PathBuf,
}

impl Guard {
    /// Starts a guard for the shells with these marks.
    pub fn start(setsid: Option<&Path>, marks: MarkPrefix, scratch: &Path) -> std::io::Result<Guard> {
        let recipe = Recipe {
            setsid: setsid.map(Path::to_owned),
            prefix: marks.digits(),
            scratch: scratch.to_owned(),
        };
        let child = recipe.spawn()?;
        let finish = CancellationToken::new();
        let watch = tokio::spawn(watch(recipe, child, finish.clone()));
        Ok(Guard { finish: finish.drop_guard(), watch })
    }

    /// Lets the guard look for what is left, and waits until it is done.
    pub async fn finish(self) {
        drop(self.finish);
        if self.watch.await.is_err() {
            tracing::debug!("the guard was gone already");
        }
    }
}

impl Recipe {
    fn spawn(&self) -> std::io::Result<Child> {
        let mut command = Command::from(in_own_session(self.setsid.as_deref(), vec!["sh".into()]));
        command.args(["-c", SCRIPT, "ctx-guard", &self.prefix]).arg(&self.scratch);
        command.arg(MARK_DIGITS_BEHIND.to_string());
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn()
    }
}

/// Holds the guard's pipe, and puts another in the place of one that is gone.
async fn watch(recipe: Recipe, mut child: Child, finish: CancellationToken) {
    loop {
        let started = Instant::now();
        tokio::select! {
            () = finish.cancelled() => break,
            // `wait` would close the pipe, which is the sign to act.
            () = gone(&mut child) => {}
        }
        tracing::warn!("the guard of the shells was killed; another one takes its place");
        tokio::select! {
            () = finish.cancelled() => return,
            () = tokio::time::sleep_until(started + LIFE_MIN) => {}
        }
        match recipe.spawn() {
            Ok(next) => child = next,
            Err(error) => {
                tracing::warn!(%error, "no guard could be started: a killed server would leave its shells");
                return;
            }
        }
    }
    drop(child.stdin.take());
    if let Err(error) = child.wait().await {
        tracing::debug!(%error, "the guard was gone already");
    }
}

/// Waits for the end of a child whose pipe stays open, for as long as somebody waits.
async fn gone(child: &mut Child) {
    let pipe = child.stdin.take();
    if let Err(error) = child.wait().await {
        tracing::debug!(%error, "the guard was gone already");
    }
    child.stdin = pipe;
}
