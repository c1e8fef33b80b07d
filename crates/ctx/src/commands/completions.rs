//! `ctx completions`: what a shell needs to complete our commands.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;

/// Print completions for a shell
///
/// The script goes to stdout; put it where your shell looks for completions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx completions bash > ~/.local/share/bash-completion/completions/ctx
  ctx completions zsh > ~/.zfunc/_ctx
  ctx completions fish > ~/.config/fish/completions/ctx.fish")]
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
