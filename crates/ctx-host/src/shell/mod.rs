//! Stateful shells for agents: a live command interpreter with structured results.
//!
//! A shell is a POSIX shell somewhere with three byte streams. Commands go in between markers, and what
//! comes out between them is the result: stdout, stderr, exit code and cwd, redacted and bounded.
//!
//! ```text
//!  ShellHost ── create, exec, list, output, interrupt, destroy; the limits
//!     │ Order (bounded queue per shell)
//!  Driver ──── one task per shell: turns, restarts, late output, reaping
//!     │
//!  Run ─────── one command: frame in, markers out, stop when asked
//!     │            frame: the words around it    output::markers    output::stream: one stream
//!  Connection  a transport's way to its interpreter; local: processes and pipes of this machine
//! ```
//!
//! Markers protect against accident and against output that imitates them, not against a command that
//! inspects its own shell.

mod config;
mod error;
mod exec;
mod frame;
mod host;
mod limits;
mod local;
mod log;
mod output;
mod registry;
mod request;
mod secret_values;
mod state;
pub mod text;
mod transport;

pub use config::HostConfig;
pub use error::ShellError;
pub use host::{CreateRequest, Interrupted, ShellHost, ShellSummary};
pub use limits::ShellLimits;
pub use local::RunAs;
pub use log::{LogError, NoLog, ShellLog, ShellRecord, StopReason};
pub use output::markers::Stream;
pub use output::pages::{PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX, Page};
pub use output::read::OutputRequest;
pub use output::spool::Output;
pub use request::{BudgetReport, EXIT_INTERRUPTED, EXIT_TIMED_OUT, ExecRequest, ExecResult, Progress};
