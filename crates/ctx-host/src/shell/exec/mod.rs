//! One command after the other in one shell: its frame is sent, it runs, and its result is put together.

pub(super) mod driver;
mod frame_run;
mod hints;
mod report_reader;
mod restart;
mod result;
mod run;
