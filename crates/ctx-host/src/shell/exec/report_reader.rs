//! What a shell says of itself after a command: traps, options and exported variables.
//!
//! The caller has its answer before that: it waits for the command, not for the shell's housekeeping. The
//! report is read before the next command, or a moment later where none comes.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::driver::Driver;
use super::run::RunError;
use crate::shell::error::ShellError;
use crate::shell::frame::Report;
use crate::shell::output::background::Late;
use crate::shell::output::markers::{Part, Scanner};

/// A shell without a next command is asked for its report after this long: by then it has told it all, and
/// one read takes it.
pub(crate) const SETTLE_AFTER: Duration = Duration::from_millis(2);
/// A shell that takes longer for its report than this will not end it.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// A report that has not come to its end.
pub(crate) struct Unsettled {
    pub scanner: Scanner,
    /// Whether the command was stopped.
    pub stopped: bool,
    /// When it is read where no command comes before.
    pub due: Instant,
}

impl Driver {
    /// Reads the rest of the last command's report and takes over what it says.
    pub(crate) async fn settle(&mut self) -> Result<(), ShellError> {
        let Some(mut unsettled) = self.unsettled.take() else { return Ok(()) };
        if let Err(error) = self.read_report(&mut unsettled.scanner).await {
            return Err(self.closed(&error));
        }
        let Unsettled { mut scanner, stopped, .. } = unsettled;
        if !scanner.done() {
            // It died in the middle of it: what held before still holds.
            let late = &mut self.late.0;
            scanner.finish(&mut |part| match part {
                Part::Late(bytes) | Part::Body(bytes) | Part::After(bytes) => late.push(bytes),
            });
            self.cut_report = true;
            return Ok(());
        }
        self.late.0.push(&scanner.rest());
        if let Some(Report { habits, exports }) = Report::parse(scanner.report()) {
            self.take_habits(habits, stopped);
            if !scanner.is_as_expected() {
                self.take_exports(&exports, scanner.spoilt());
            }
        }
        self.told = scanner.into_expected();
        Ok(())
    }

    /// The same while the command's output is not told: what jobs print into the report comes behind that.
    pub(crate) async fn settle_behind(&mut self, after: &mut Late) -> Result<(), ShellError> {
        std::mem::swap(&mut self.late.0, after);
        let settled = self.settle().await;
        std::mem::swap(&mut self.late.0, after);
        settled
    }

    async fn read_report(&mut self, scanner: &mut Scanner) -> Result<(), RunError> {
        let closing = self.shared.closing.clone();
        let give_up = Instant::now() + SETTLE_MAX;
        let mut killed = false;
        while !scanner.done() {
            let ended = self.ended.is_some();
            // What the shell has printed is read before its end is believed.
            tokio::select! {
                biased;
                read = self.streams.stdout.read(&mut self.buffers.0) => {
                    let count = read.map_err(RunError::Lost)?;
                    let late = &mut self.late.0;
                    let mut sink = |part: Part<'_>| match part {
                        Part::Late(bytes) | Part::Body(bytes) | Part::After(bytes) => late.push(bytes),
                    };
                    match self.buffers.0.get(..count) {
                        None | Some([]) => scanner.finish(&mut sink),
                        Some(bytes) => scanner.push(bytes, &mut sink),
                    }
                }
                () = closing.cancelled() => return Err(RunError::Closing),
                code = self.connection.wait(), if !ended => self.ended = Some(code),
                () = std::future::ready(()), if ended => return Ok(()),
                () = tokio::time::sleep_until(give_up), if !killed => {
                    killed = true;
                    self.connection.kill_interpreter();
                }
            }
        }
        Ok(())
    }
}
