//! The overview that `ctx --help` prints: the commands in groups, from one table.
//!
//! clap lists subcommands under one heading only, so the list is made here and put into the help template. Everything
//! else of the help, and the help of each command, is clap's own.

use std::ffi::OsString;
use std::fmt::Write;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::ErrorKind;

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
            // Its description comes with its arguments, when it is built.
            let built = cli.find_subcommand(command).cloned().map(|mut command| {
                command.build();
                command
            });
            let about =
                built.as_ref().and_then(Command::get_about).map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name}{command:<width$}{name:#}  {about}");
        }
    }
    let _ = write!(text, "\n{heading}Options:{heading:#}\n{{options}}{{after-help}}");
    text
}

/// clap suggests the nearest command after `ctx chta`, but not after `ctx help chta`: there the first error takes the
/// place of the second.
pub fn with_suggestion(cli: Command, error: clap::Error) -> clap::Error {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if error.kind() != ErrorKind::InvalidSubcommand || words.get(1).is_none_or(|word| word != "help") {
        return error;
    }
    words.remove(1);
    match cli.try_get_matches_from(words) {
        Err(other) if other.kind() == ErrorKind::InvalidSubcommand => other,
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let cli = crate::cli::command();
        let shown = cli.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
        let mut real: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
        real.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, real);
    }

    /// The commands that have no object to print: they talk, show a picture, speak a protocol or write a file's own format.
    const WITHOUT_JSON: [&str; 15] = [
        "attach",
        "cage run",
        "chat",
        "completions",
        "export",
        "mcp",
        "mcp config",
        "open",
        "project schema",
        "serve",
        "term attach",
        "term export",
        "term replay",
        "term watch",
        "validate-name",
    ];

    /// Adds the commands below this one that have no `--json`, in the order of their names.
    fn add_without_json(command: &Command, path: &str, all: &mut Vec<String>) {
        let mut below: Vec<&Command> =
            command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help").collect();
        let can_be_run = below.is_empty() || !command.is_subcommand_required_set();
        if can_be_run && !command.get_arguments().any(|arg| arg.get_id() == "json") {
            all.push(path.to_owned());
        }
        below.sort_unstable_by_key(|one| one.get_name());
        for one in below {
            add_without_json(one, format!("{path} {}", one.get_name()).trim(), all);
        }
    }

    #[test]
    fn every_other_command_prints_json() {
        let mut without = Vec::new();
        add_without_json(&crate::cli::command(), "", &mut without);
        assert_eq!(without, WITHOUT_JSON);
    }

    #[test]
    fn every_about_starts_with_a_verb_and_fits_a_line() {
        const NO_VERB: [&str; 6] = ["the", "a", "an", "what", "how", "which"];
        for command in crate::cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
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
