//! The overview that `ctx --help` prints: the commands in groups, from one table.
//!
//! clap lists subcommands under one heading only, so the list is made here and put into the help template. Everything
//! else of the help, and the help of each command, is clap's own.

use std::fmt::Write;

use clap::Command;
use clap::builder::StyledStr;

/// Each group with its commands, in the order in which the overview lists them. A test compares it with the real
/// subcommands.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["chat", "run", "send", "attach", "open", "serve", "stop", "status"]),
    (
        "Sessions",
        &[
            "ls", "show", "history", "latest", "log", "search", "stats", "export", "import", "handoff",
            "fork", "rename", "restart", "end", "archive", "purge",
        ],
    ),
    (
        "Control",
        &[
            "wait",
            "cancel",
            "retry",
            "queue",
            "pause",
            "resume",
            "checkpoints",
            "rollback",
            "diff",
            "undo",
            "prompt",
            "compact",
            "pin",
            "approve",
            "issue",
            "todo",
            "bind",
        ],
    ),
    ("Shells", &["term", "mcp", "shells", "watch", "cage"]),
    ("Files and repair", &["snapshots", "prune", "doctor", "repair", "reindex", "audit"]),
    ("Objects", &["agent", "tool", "which", "cat", "set", "validate-name"]),
    ("Set-up", &["model", "mcp-server", "project", "space", "token", "config", "completions"]),
];

/// The command line with its overview in groups. Shells complete the same commands as before: only the template of the
/// top-level help changes.
pub fn grouped(cli: Command) -> Command {
    let template = template(&cli);
    cli.help_template(template)
}

/// clap's default template with the groups in place of its list. clap removes the colours where the output is not a
/// terminal and where `NO_COLOR` is set.
fn template(cli: &Command) -> StyledStr {
    let (heading, name) = (cli.get_styles().get_header(), cli.get_styles().get_literal());
    let width =
        GROUPS.iter().flat_map(|(_, commands)| *commands).map(|name| name.len()).max().unwrap_or_default();
    let mut text = StyledStr::from("{before-help}{about-with-newline}\n{usage-heading} {usage}\n");
    for (group, commands) in GROUPS {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{heading}{group}:{heading:#}\n");
        for command in *commands {
            let about = cli.find_subcommand(command).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name}{command:<width$}{name:#}  {about}");
        }
    }
    let _ = write!(text, "\n{heading}Options:{heading:#}\n{{options}}{{after-help}}");
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let cli = Cli::command();
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set());
        let mut real: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
        real.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, real);
    }

    #[test]
    fn every_about_starts_with_a_verb_and_fits_a_line() {
        const NO_VERB: [&str; 6] = ["the", "a", "an", "what", "how", "which"];
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let first = about.split_whitespace().next().unwrap_or_default().to_lowercase();
            assert!(
                !first.is_empty() && !NO_VERB.contains(&first.as_str()),
                "{}: {about}",
                command.get_name()
            );
            assert!(about.chars().count() <= 60, "{}: {about}", command.get_name());
        }
    }
}
