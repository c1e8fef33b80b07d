//! Cages: the command line as data, and real cages seen from inside, started by root and by a plain user.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on stops")]

mod command_line;
mod escapes;
mod hijacked;
mod limits;
mod support;
