//! Who makes a summary for the strategy `delegate`: a subagent's model and prompt, or a command of the operator's.
//!
//! A command is not caged: the operator named it in a project file that they registered. It runs only as the daemon's
//! own user, with the transcript on stdin, and gives the summary on stdout.

use std::path::Path;
use std::process::Stdio;

use rustix::process::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::shorten::Summary;

/// The longest summary that is read from a command.
const SUMMARY_BYTES: u64 = 1024 * 1024;

/// Runs a command over a transcript.
pub(super) async fn command(
    command: &[String],
    cwd: Option<&Path>,
    transcript: &str,
) -> Result<Summary, String> {
    let [program, arguments @ ..] = command else { return Err("the command is empty".to_owned()) };
    let failed = |what: &str, error: std::io::Error| format!("{program} {what}: {error}");
    let mut started = Command::new(program);
    started.args(arguments).env_clear().envs(kept_environment());
    started.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    started.process_group(0);
    if let Some(cwd) = cwd {
        started.current_dir(cwd);
    }
    // The guard first: a daemon that is killed right after the command has started leaves none of it behind.
    let guard = Guard::start();
    let mut child = started.spawn().map_err(|error| failed("does not start", error))?;
    // Whoever gives up from here on ends its processes.
    let mut group = Group { leader: leader_of(&child), guard };
    group.tell_guard().await;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command that needs no more of it may close its end.
            let _ = stdin.write_all(transcript.as_bytes()).await;
        }
    };
    let read = async {
        let mut bytes = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(SUMMARY_BYTES).read_to_end(&mut bytes).await?;
        }
        Ok::<_, std::io::Error>(bytes)
    };
    let ((), bytes) = tokio::join!(write, read);
    let bytes = bytes.map_err(|error| failed("cannot be read", error))?;
    let status = child.wait().await.map_err(|error| failed("cannot be waited for", error))?;
    if !status.success() {
        return Err(format!("{program} ended with {status}"));
    }
    Ok(Summary { text: String::from_utf8_lossy(&bytes).into_owned(), cost: None })
}

/// Is told a group on its stdin, and ends it when that closes: then the daemon is gone, however it went.
const GUARD: &str =
    r#"trap '' HUP INT TERM; read -r group; read -r _; test -n "$group" && kill -s KILL -- "-$group""#;

/// A process that outlives the daemon just long enough. Killed before it can do its work when this is dropped.
struct Guard(Child);

impl Guard {
    /// Without one a delegate may outlive a daemon that was killed; it is no reason to do without a summary.
    fn start() -> Option<Guard> {
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "ctx-guard"]).env_clear().envs(kept_environment());
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        guard.current_dir("/").process_group(0).kill_on_drop(true).spawn().ok().map(Guard)
    }

    async fn watch(&mut self, leader: Pid) {
        if let Some(stdin) = &mut self.0.stdin {
            let told = format!("{}\n", leader.as_raw_nonzero());
            // A guard that is gone is as none.
            let _ = stdin.write_all(told.as_bytes()).await;
        }
    }
}

/// The processes of a command: none outlives it, also when it is given up on, nor the daemon.
struct Group {
    leader: Option<Pid>,
    guard: Option<Guard>,
}

impl Group {
    async fn tell_guard(&mut self) {
        if let (Some(leader), Some(guard)) = (self.leader, &mut self.guard) {
            guard.watch(leader).await;
        }
    }
}

fn leader_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

/// What a program needs to be found and to find its home; nothing of the daemon's own.
fn kept_environment() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    ["PATH", "HOME", "LANG", "LC_ALL", "TMPDIR"]
        .into_iter()
        .filter_map(|key| Some((key, std::env::var_os(key)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_command_reads_the_transcript_and_prints_the_summary() {
        let said =
            command(&words(&["sh", "-c", "grep -c user"]), None, "user: a\nassistant: b\nuser: c\n").await;
        assert_eq!(said.map(|summary| summary.text).as_deref(), Ok("2\n"));
    }

    /// Whether a process is there and not only waits to be reaped.
    fn lives(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    /// Waits a while for something that no event tells of.
    async fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
        for _ in 0..1_000 {
            if is_so() {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        false
    }

    /// Its time is over, or its run was cancelled: both drop what waits for it.
    #[tokio::test]
    async fn a_command_that_is_given_up_on_takes_its_children_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let script = "sleep 600 & echo $! > child; echo $$ > own; wait";
        let command = words(&["sh", "-c", script]);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let mut running = Box::pin(super::command(&command, Some(dir.path()), "transcript"));
        tokio::select! {
            _ = &mut running => panic!("it goes on until it is stopped"),
            is_there = eventually(|| read("own").ends_with('\n')) => assert!(is_there),
        }
        let (own, child) = (read("own").trim().to_owned(), read("child").trim().to_owned());
        assert!(lives(&own) && lives(&child));
        drop(running);
        assert!(eventually(|| !lives(&own) && !lives(&child)).await, "own {own}, child {child}");
    }

    /// What it left running is not waited for, and does not stay.
    #[tokio::test]
    async fn a_command_that_ends_leaves_no_child_behind() {
        let dir = tempfile::tempdir().unwrap();
        let script = "sleep 600 >/dev/null & echo $! > child; echo short";
        let said = super::command(&words(&["sh", "-c", script]), Some(dir.path()), "").await;
        assert_eq!(said.map(|summary| summary.text).as_deref(), Ok("short\n"));
        let child = std::fs::read_to_string(dir.path().join("child")).unwrap();
        assert!(eventually(|| !lives(child.trim())).await);
    }

    #[tokio::test]
    async fn a_command_that_fails_says_how() {
        let failed = command(&words(&["sh", "-c", "exit 3"]), None, "").await.map(|summary| summary.text);
        assert!(failed.is_err_and(|why| why.contains("exit status: 3")));
        let missing = command(&words(&["no-such-program-here"]), None, "").await.map(|summary| summary.text);
        assert!(missing.is_err_and(|why| why.contains("does not start")));
    }
}
