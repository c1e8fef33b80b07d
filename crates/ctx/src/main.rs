//! The one binary. A file per command under `commands`; `serve` is the daemon's wiring.

mod autostart;
mod chat;
mod cli;
mod client;
mod commands;
mod config;
mod confirm;
mod consent;
mod detach;
mod failure;
mod help;
mod here;
mod ids;
mod images;
mod index;
mod issues;
mod moment;
mod notices;
mod object;
mod output;
mod progress;
mod question;
mod render;
mod room;
mod root;
mod said;
mod serve;
mod sessions;
mod shell_host;
mod shell_logs;
mod shell_transcript;
mod snapshots;
mod table;
mod talk;
mod term;
mod waits;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match object::asked() {
        Some(words) => object::run(words),
        None => cli::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
