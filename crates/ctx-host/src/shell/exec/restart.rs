//! A new interpreter in the place of one that has ended: what it is started with, and what it is told afterwards.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::driver::Driver;
use super::frame_run::Framing;
use super::hints::Anew;
use super::run::{Ended, RunError};
use crate::shell::error::ShellError;
use crate::shell::frame::exports::{self, Export};
use crate::shell::frame::{Dialect, Habits};
use crate::shell::log::ShellRecord;
use crate::shell::text::budget::Plan;
use crate::shell::transport::Place;

/// What a new interpreter gets to answer its first frame.
const HANDSHAKE_MAX: Duration = Duration::from_secs(20);

impl Driver {
    /// The interpreter had ended before it came to the command: another is to run it.
    pub(crate) async fn restart_after(&mut self, ended: Ended) -> Result<Anew, ShellError> {
        self.late.0.join(ended.stdout.after);
        self.late.1.join(ended.stderr.after);
        self.restart(ended.exit.unwrap_or(1)).await
    }

    /// A new interpreter in the same place, with the variables exported as of the last completed command.
    pub(crate) async fn restart(&mut self, exit_code: i32) -> Result<Anew, ShellError> {
        let (env, later) = exports::that_fit(self.restart_env(), self.settings.start_file());
        let place = Place { cwd: nearest_dir(&self.cwd), env };
        let anew = if place.cwd == self.cwd { Anew::Here } else { Anew::Elsewhere };
        self.ended = None;
        self.habits = Habits::default();
        (self.status, self.misread) = (0, false);
        let lost =
            |error: ShellError| ShellError::Closed { id: self.shared.id.clone(), why: error.to_string() };
        self.streams = self.connection.start(&place).map_err(lost)?;
        self.handshake().await?;
        self.export(&later).await?;
        let cwd = self.shared.shown_cwd();
        self.record(&ShellRecord::Restarted { exit_code, cwd });
        Ok(anew)
    }

    /// Exports what an interpreter could not be started with.
    pub(crate) async fn export(&mut self, exports: &[Export]) -> Result<(), ShellError> {
        if exports.is_empty() {
            return Ok(());
        }
        let script = self.put_scratch(&exports::script(exports))?;
        let source = self.connection.dialect().source(script.path());
        self.run_quietly(&format!("{source} 2>/dev/null")).await
    }

    /// bash counts its own depth up when it starts; the new one takes the place of the old.
    fn restart_env(&self) -> Vec<Export> {
        let mut env = self.exports.clone();
        let listed = |export: &&Export| !self.exports.iter().any(|other| other.name == export.name);
        env.extend(self.unlisted.iter().filter(listed).cloned());
        for export in env.iter_mut().filter(|export| export.name == "SHLVL") {
            let level: Option<i64> =
                std::str::from_utf8(&export.value).ok().and_then(|text| text.parse().ok());
            if let (Some(level), Dialect::Bash) = (level, self.connection.dialect()) {
                export.value = (level - 1).to_string().into_bytes();
            }
        }
        env
    }

    /// Sets a new interpreter up and runs an empty command in it.
    pub(crate) async fn handshake(&mut self) -> Result<(), ShellError> {
        let setup = self.connection.dialect().setup();
        let written = self.streams.stdin.write_all(setup.as_bytes()).await;
        written.map_err(|error| self.closed(&RunError::Lost(error)))?;
        self.run_quietly(":").await
    }

    /// Runs a command of our own, in a new interpreter.
    async fn run_quietly(&mut self, command: &str) -> Result<(), ShellError> {
        let deadline = Instant::now() + HANDSHAKE_MAX;
        let nobody = std::pin::pin!(std::future::pending());
        let ended = self.frame(Framing::of(command), None, &Plan::default(), deadline, nobody).await?;
        for (late, lane) in [(&mut self.late.0, ended.stdout), (&mut self.late.1, ended.stderr)] {
            // It prints nothing itself: what came meanwhile is a job's.
            late.push(lane.finished.kept.text.as_bytes());
            late.join(lane.after);
        }
        match (ended.answer, ended.stopped, ended.exit) {
            (Some(_), None, None) => self.settle().await,
            _ if ended.cut => Err(self.closed(&RunError::Closing)),
            (_, _, exit) => Err(ShellError::Closed {
                id: self.shared.id.clone(),
                why: match exit {
                    Some(code) => format!("its interpreter ended at once with exit code {code}"),
                    None => "its interpreter does not answer".to_owned(),
                },
            }),
        }
    }
}

/// The directory itself, or the nearest one above it that is still there.
fn nearest_dir(cwd: &Path) -> PathBuf {
    cwd.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_owned()
}
