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
//!     │            dialect: the words of the frame      scan: the markers      lane: one stream
//!  Connection  a transport's way to its interpreter; local: named_pipe, family (its processes), probe
//! ```
//!
//! Markers protect against accident and against output that imitates them, not against a command that
//! inspects its own shell.

mod answer;
mod away;
mod bash_frame;
mod blocked;
mod broken;
mod config;
mod dialect;
mod driver;
mod entropy;
mod error;
mod exec;
mod exports;
mod family;
mod framing;
mod guard;
mod host;
mod keep;
mod known;
mod lane;
mod late;
mod limits;
mod local;
mod log;
mod named_pipe;
mod output;
mod pages;
mod probe;
mod quote;
mod readable;
mod registry;
mod report;
mod restart;
mod run;
mod scan;
mod scratch;
mod search;
mod settle;
mod shared;
mod spool;
mod stop;
pub mod text;
mod told;
mod transport;
mod work;

pub use config::HostConfig;
pub use error::ShellError;
pub use exec::{BudgetReport, EXIT_INTERRUPTED, EXIT_TIMED_OUT, ExecRequest, ExecResult, Progress};
pub use host::{CreateRequest, Interrupted, ShellHost, ShellSummary};
pub use limits::ShellLimits;
pub use local::RunAs;
pub use log::{LogError, NoLog, ShellLog, ShellRecord, StopReason};
pub use output::OutputRequest;
pub use pages::{PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX, Page};
pub use scan::Stream;
pub use spool::Output;
