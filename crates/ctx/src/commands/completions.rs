//! `ctx completions`: prints a script that completes our commands in a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;

/// Print a completion script for your shell
///
/// Writes the script to stdout; save it where your shell looks for completions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx completions bash > ~/.local/share/bash-completion/completions/ctx
  ctx completions zsh > ~/.zfunc/_ctx
  ctx completions fish > ~/.config/fish/completions/ctx.fish

exit codes: 0 success, 1 failed, 2 bad input")]
pub struct Args {
    /// The shell to complete for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ctx", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(())
}
