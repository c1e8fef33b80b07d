//! Stateful shells for agents: a live command interpreter with structured results.
//!
//! A shell is a POSIX shell somewhere with three byte streams. Commands go in between markers, and what
//! comes out between them is the result: stdout, stderr, exit code and cwd, redacted and bounded.

pub mod text;
