//! `ctx completions`: prints a script that completes our commands in a shell.

use clap_complete::Shell;

use crate::cli;
use crate::failure::Failure;

/// Asks `ctx __complete`; a line has no quotes that matter to it. What bash takes for a word ends at a colon or an
/// equals sign, so what stands before it is taken off. Where ctx offers nothing, bash offers files.
const BASH: &str = r#"_ctx() {
    local line=${COMP_LINE:0:COMP_POINT} cur
    cur=${line##*[[:space:]]}
    mapfile -t COMPREPLY < <(ctx __complete --line="$line" 2>/dev/null)
    if [[ $cur == *[:=]* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*[:=]}"}"}")
    fi
}
complete -o default -o bashdefault -F _ctx ctx
"#;

const ZSH: &str = r#"#compdef ctx
_ctx() {
    local -a found
    found=("${(@f)$(ctx __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( $#found )); then compadd -- $found; else _files; fi
}
if [[ $funcstack[1] == _ctx ]]; then _ctx "$@"; else compdef _ctx ctx; fi
"#;

const FISH: &str = r#"complete -c ctx -a '(ctx __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"#;

/// Print a completion script for your shell
///
/// Writes the script to stdout; save it where your shell looks for completions. In bash, zsh and fish it also completes
/// the names of your sessions, agents, models, projects and checkpoints.
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
    match args.shell {
        Shell::Bash => script.extend_from_slice(BASH.as_bytes()),
        Shell::Zsh => script.extend_from_slice(ZSH.as_bytes()),
        Shell::Fish => script.extend_from_slice(FISH.as_bytes()),
        other => clap_complete::generate(other, &mut cli::command(), "ctx", &mut script),
    }
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(())
}
