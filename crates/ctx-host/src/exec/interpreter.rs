//! A shell's interpreter, as the driver holds it: the connection, the streams, and what came from them between commands.

#![expect(clippy::indexing_slicing, reason = "a read returns at most as many bytes as its buffer has")]

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use crate::output::background::LateOutput;
use crate::output::markers::Scanner;
use crate::output::stream::READ_BYTES_MIN;
use crate::state::ShellState;
use crate::transport::{Connection, Streams};

/// How long the last output of a shell is read: a program may print without end.
const LAST_OUTPUT_MAX: Duration = Duration::from_millis(100);

pub(crate) struct Interpreter {
    pub shared: Arc<ShellState>,
    pub connection: Box<dyn Connection>,
    pub streams: Streams,
    /// What stdout and stderr are read into.
    pub buffers: (Vec<u8>, Vec<u8>),
    /// The exit code, where the interpreter ended while no command ran.
    pub exit: Option<i32>,
    /// What background jobs printed on stdout and stderr since the last command.
    pub late: (LateOutput, LateOutput),
    /// The last command's report, where it has not been read to its end.
    pub pending_report: Option<PendingReport>,
    /// A report broke off: the rest of it may still be in the pipe, and is nobody's output.
    pub has_cut_report: bool,
}

/// A report that has not been read to its end.
pub(crate) struct PendingReport {
    pub scanner: Scanner,
    /// Whether the command was stopped.
    pub was_stopped: bool,
    /// When it is read if no command comes before.
    pub due: Instant,
}

/// What ends the wait for a command.
pub(crate) enum Idle {
    ReportDue,
    /// The shell cannot go on, for this reason.
    Lost(&'static str),
}

impl Interpreter {
    pub fn new(shared: Arc<ShellState>, connection: Box<dyn Connection>, streams: Streams) -> Interpreter {
        Interpreter {
            late: (LateOutput::new(&shared), LateOutput::new(&shared)),
            shared,
            connection,
            streams,
            buffers: (vec![0; READ_BYTES_MIN], vec![0; READ_BYTES_MIN]),
            exit: None,
            pending_report: None,
            has_cut_report: false,
        }
    }

    /// Keeps what background jobs print while no command runs. Nothing is lost when the wait is given up.
    pub async fn idle(&mut self) -> Idle {
        let mut lost = self.connection.lost();
        loop {
            let due = self.pending_report.as_ref().map(|report| report.due);
            let (out, err) = &mut self.buffers;
            tokio::select! {
                biased;
                read = self.streams.stdout.read(out), if due.is_none() => match read {
                    Ok(count @ 1..) => self.late.0.push(&out[..count]),
                    Ok(0) | Err(_) => return Idle::Lost("its stdout was closed"),
                },
                read = self.streams.stderr.read(err) => match read {
                    Ok(count @ 1..) => self.late.1.push(&err[..count]),
                    Ok(0) | Err(_) => return Idle::Lost("its stderr was closed"),
                },
                code = self.connection.wait(), if self.exit.is_none() => self.exit = Some(code),
                () = &mut lost => return Idle::Lost("the other side does not answer"),
                () = sleep_until(due), if due.is_some() => return Idle::ReportDue,
            }
        }
    }

    /// Takes what is still in the pipes of a shell that ends.
    pub async fn take_last_output(&mut self) {
        let give_up = Instant::now() + LAST_OUTPUT_MAX;
        // The rest of a report is nobody's output.
        let (mut out_open, mut err_open) = (self.pending_report.is_none() && !self.has_cut_report, true);
        let (out, err) = &mut self.buffers;
        while Instant::now() < give_up {
            tokio::select! {
                biased;
                read = self.streams.stdout.read(out), if out_open => match read {
                    Ok(count @ 1..) => self.late.0.push(&out[..count]),
                    Ok(0) | Err(_) => out_open = false,
                },
                read = self.streams.stderr.read(err), if err_open => match read {
                    Ok(count @ 1..) => self.late.1.push(&err[..count]),
                    Ok(0) | Err(_) => err_open = false,
                },
                () = std::future::ready(()) => break,
            }
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
