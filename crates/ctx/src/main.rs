//! The one binary. A file per command under `commands`; `serve` is the daemon's wiring.

mod cli;
mod client;
mod commands;
mod config;
mod confirm;
mod failure;
mod help;
mod index;
mod issues;
mod moment;
mod notices;
mod output;
mod progress;
mod render;
mod root;
mod serve;
mod sessions;
mod shell_host;
mod shell_logs;
mod shell_transcript;
mod table;
mod talk;
mod waits;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
