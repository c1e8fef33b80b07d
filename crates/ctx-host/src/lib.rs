//! Stateful shells for agents: a live command interpreter with structured results.
//!
//! A shell is a POSIX shell somewhere with three byte streams. Commands go in between markers, and what
//! comes out between them is the result: stdout, stderr, exit code and cwd, redacted and bounded.
//!
//! ```text
//!  host ────── create, exec, list, output, interrupt, destroy; the limits
//!     │ Order (bounded queue per shell)
//!  exec ────── one task per shell: commands in their order, restarts, the end
//!     │            frame: the words around a command     output: what commands print
//!  transport ─ the way to an interpreter                 local: processes and pipes of this machine
//!                                                        remote: ssh, and containers
//! ```
//!
//! Markers protect against accident and against output that imitates them, not against a command that
//! inspects its own shell. This crate knows neither the journal nor any door; what a shell did leaves it through a small
//! port ([`ShellLog`]).

mod config;
mod error;
mod exec;
mod frame;
mod host;
mod kept_output;
mod limits;
mod local;
mod log;
mod output;
mod registry;
mod remote;
mod request;
mod secret_values;
mod snapshots;
mod state;
mod transport;
mod workspace;

pub use config::HostConfig;
pub use error::ShellError;
pub use host::{CreateRequest, Interrupted, ShellHost, ShellSummary};
pub use kept_output::OutputRequest;
pub use limits::ShellLimits;
pub use local::caged::CageSetup;
pub use local::{RunAs, processes_found_by};
pub use log::{LogError, NoLog, ShellLog, ShellRecord, StopReason};
pub use output::pages::{PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX, Page};
pub use output::spool::Output;
pub use remote::{Destination, DestinationArgs, RemoteConfig, SshRequest};
pub use request::{
    BudgetReport, EXIT_INTERRUPTED, EXIT_KILLED, EXIT_TIMED_OUT, ExecRequest, ExecResult, Progress,
    RunningCommand,
};
pub use snapshots::{CheckpointLine, RestoreAnswer};
pub use transport::Stream;
pub use workspace::SnapshotSetup;
