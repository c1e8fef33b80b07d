//! Who makes a summary for the strategy `delegate`: a subagent's model and prompt, or a command of the operator's.
//!
//! A command is not caged. It runs with the rights of the session's owner and in a clean environment, with the
//! transcript on stdin, and gives the summary on stdout. It runs only if the project file that names it was written by
//! that owner or by root: nobody's rights are lent to what a stranger wrote.

use std::io::PipeWriter;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::shorten::{Bounds, Summary};
use crate::guard::Guarded;

/// Whether a command of a project file may run for a session. `by` is the owner of the file as it was when it was read.
pub(crate) fn may_run(owner: u32, by: Option<u32>) -> Result<(), String> {
    match by {
        Some(by) if by == owner || by == 0 => Ok(()),
        Some(by) => Err(format!(
            "the project file belongs to uid {by}, and the session to uid {owner}: its command is not run"
        )),
        None => {
            Err("this session does not know who wrote its project file; restart it with `ctx restart`"
                .to_owned())
        }
    }
}

/// A command, and where it runs.
pub(super) struct Delegated<'a> {
    pub command: &'a [String],
    pub cwd: Option<&'a Path>,
    pub guard: Guarded,
}

/// Runs a command over a transcript.
pub(super) async fn command(
    delegated: Delegated<'_>,
    transcript: &str,
    bounds: Bounds,
) -> Result<Summary, String> {
    let program = delegated.command.first().ok_or("the command is empty")?;
    let failed = |what: &str, error: std::io::Error| format!("{program} {what}: {error}");
    let Started { mut child, held } =
        start(&delegated).map_err(|error| failed("cannot be started", error))?;
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
            // One more than may be, to know that there was more.
            let most = u64::try_from(bounds.bytes).unwrap_or(u64::MAX).saturating_add(1);
            stdout.take(most).read_to_end(&mut bytes).await?;
        }
        Ok::<_, std::io::Error>(bytes)
    };
    let ((), bytes) = tokio::join!(write, read);
    let bytes = bytes.map_err(|error| failed("cannot be read", error))?;
    if bytes.len() > bounds.bytes {
        return Err(bounds.too_long());
    }
    let status = child.wait().await.map_err(|error| failed("cannot be waited for", error))?;
    drop(held);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if status.success() { Ok(Summary { text, cost: None }) } else { Err(ended_badly(program, status, &text)) }
}

/// Said with its last words, if it had some.
fn ended_badly(program: &str, status: ExitStatus, text: &str) -> String {
    let said = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let said = crate::cut(said, 200);
    format!("{program} ended with {status}{}{said}", if said.is_empty() { "" } else { ": " })
}

/// A command at work.
struct Started {
    child: tokio::process::Child,
    /// The guard ends all of the command's processes when this goes, with whoever holds it.
    held: PipeWriter,
}

fn start(delegated: &Delegated<'_>) -> std::io::Result<Started> {
    let (closing, held) = std::io::pipe()?;
    let Guarded { words, env } = &delegated.guard;
    let mut words = words.iter();
    let program = words.next().ok_or_else(|| std::io::Error::other("there is no guard to run it in"))?;
    let mut started = Command::new(program);
    // Where it runs is entered by the guard, with the owner's rights.
    let place = delegated.cwd.map(|cwd| ["--in".as_ref(), cwd.as_os_str()]);
    started.args(words).args(place.into_iter().flatten()).arg("--").args(delegated.command);
    started.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
    started.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(closing).current_dir("/");
    Ok(Started { child: started.spawn()?, held })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// In nobody's care; what a guard does is tested where there is one.
    async fn run(script: &str, transcript: &str) -> Result<String, String> {
        let command: Vec<String> = ["sh", "-c", script].map(str::to_owned).to_vec();
        let guard = Guarded { words: vec!["env".into()], env: vec![("PATH".into(), "/usr/bin:/bin".into())] };
        let bounds = Bounds { time: Duration::from_secs(60), bytes: 100 };
        let delegated = Delegated { command: &command, cwd: None, guard };
        super::command(delegated, transcript, bounds).await.map(|summary| summary.text)
    }

    #[tokio::test]
    async fn a_command_reads_the_transcript_and_prints_the_summary() {
        let said = run("grep -c user", "user: a\nassistant: b\nuser: c\n").await;
        assert_eq!(said.as_deref(), Ok("2\n"));
    }

    #[test]
    fn a_command_runs_for_whoever_wrote_it_and_roots_for_all() {
        for (owner, by) in [(7, 7), (7, 0), (0, 0)] {
            assert_eq!(may_run(owner, Some(by)), Ok(()));
        }
        for (owner, by) in [(0, 7), (7, 8)] {
            assert!(may_run(owner, Some(by)).unwrap_err().contains(&format!("belongs to uid {by}")));
        }
        assert!(may_run(7, None).unwrap_err().contains("ctx restart"));
    }

    #[tokio::test]
    async fn a_command_that_fails_says_how() {
        assert_eq!(run("exit 3", "").await.unwrap_err(), "sh ended with exit status: 3");
        let said = run("echo; echo 'no such model'; exit 1", "").await;
        assert_eq!(said.unwrap_err(), "sh ended with exit status: 1: no such model");
    }

    #[tokio::test]
    async fn a_summary_has_a_longest() {
        assert_eq!(run("printf %0100d 0", "").await.map(|text| text.len()), Ok(100));
        assert_eq!(run("printf %0101d 0", "").await.unwrap_err(), "the summary had more than 100 bytes");
    }
}
