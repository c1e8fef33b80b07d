//! The guard: a tiny process that ends a server's shells when the server is gone, however it went.
//!
//! It is a POSIX shell that waits on a pipe whose other end only the server holds. When the pipe closes, it
//! ends every process that carries one of the server's marks, and what descends from those. It has a session
//! of its own and ignores the signals that a host sends to a whole group.

use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, ChildStdin, Command};

use super::family::MarkPrefix;

/// `$1` is the marks' prefix, `$2` the directory with the stdin of commands. All are stopped before any is
/// killed, so that none can start another in between.
const SCRIPT: &str = r#"
trap '' HUP INT TERM PIPE QUIT
read -r _
marked() {
    for file in $(grep -lE "^Max realtime timeout +$1[0-9]{6} " /proc/[0-9]*/limits 2>/dev/null); do
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
    found=$(below $(marked "$1"))
    [ -n "$found" ] || break
    kill -STOP $found 2>/dev/null
    kill -KILL $(below $(marked "$1")) $found 2>/dev/null
done
rm -rf -- "$2"
"#;

/// The guard of one server. Dropping it lets the guard do its work.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts a guard for the shells with these marks.
    pub fn start(setsid: Option<&Path>, marks: MarkPrefix, scratch: &Path) -> std::io::Result<Guard> {
        let mut command = match setsid {
            Some(setsid) => {
                let mut command = Command::new(setsid);
                command.arg("sh");
                command
            }
            None => {
                let mut command = Command::new("sh");
                command.process_group(0);
                command
            }
        };
        command.args(["-c", SCRIPT, "ctx-guard", &marks.digits()]).arg(scratch);
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().ok_or_else(|| std::io::Error::other("the guard has no stdin"))?;
        Ok(Guard { child, pipe })
    }

    /// Lets the guard look for what is left, and waits until it is done.
    pub async fn finish(mut self) {
        drop(self.pipe);
        if let Err(error) = self.child.wait().await {
            tracing::debug!(%error, "the guard was gone already");
        }
    }
}
