//! `ctx hold`: not for people. The daemon starts itself by this name to hold a terminal, and the holder starts itself to
//! become the terminal's program.

use std::ffi::OsString;
use std::io::Write;

use ctx_terminal::{become_program, hold, leave_stdio, read_spec};

use crate::failure::Failure;
use crate::words;

/// Hold a terminal
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// Become the program: its directory, its name and its arguments
    #[arg(long = "become", num_args = 1.., allow_hyphen_values = true)]
    program: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.program.is_empty() {
        return Err(Failure::Told { exit: become_program(&args.program) });
    }
    let up = || {
        // Whoever started the holder may be gone; it holds the terminal all the same.
        let _ = writeln!(std::io::stdout(), "up");
        let _ = leave_stdio();
    };
    let held = read_spec(std::io::stdin()).and_then(|spec| hold(spec, words::now, up));
    held.map_err(|error| {
        let _ = writeln!(std::io::stdout(), "{error}");
        Failure::Told { exit: 70 }
    })
}
