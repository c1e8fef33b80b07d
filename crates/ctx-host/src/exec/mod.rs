//! Runs commands in one shell, one after the other.
//!
//! A [`command`] goes one way: `frame_run` builds its frame, `run` sends it and waits for the end, `report_reader`
//! reads what the shell says of itself behind that, and `result` makes the answer and the records. `memory` is what
//! the shell keeps between commands, `interpreter` the process and its streams.

mod command;
pub(super) mod driver;
mod frame_run;
mod hints;
mod interpreter;
mod memory;
mod recorder;
mod report_reader;
mod restart;
mod result;
mod run;
