//! `ctx __complete`: what can stand where the cursor is, one candidate a line. The scripts of `ctx completions` run it.
//!
//! The place is found in the table of clap; the name of a value (`SESSION`, `MODEL`) says what it can be. Sessions, agents
//! and models are read from the tree, so most of it needs no daemon.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};
use ctx_agent::Models;
use ctx_api::http::{Checkpoint, List};
use ctx_api::model::in_api;
use ctx_session::Limits;

use crate::client::Api;
use crate::commands::tree::known;
use crate::failure::Failure;
use crate::root::Root;
use crate::{cli, here, sessions};

/// The words before the cursor, the last one being typed
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The line up to the cursor, to be split at white space
    #[arg(long, allow_hyphen_values = true)]
    line: Option<String>,
    /// The words, without the program's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub fn run(args: Args, root: Option<PathBuf>) -> Result<(), Failure> {
    let words = match args.line {
        Some(line) => split(&line),
        None => args.words,
    };
    let found = offered(&words, Root::of_client(root).ok().as_ref());
    let mut out = crate::output::stdout();
    for candidate in found {
        writeln!(out, "{candidate}")?;
    }
    out.flush()?;
    Ok(())
}

fn offered(words: &[String], root: Option<&Root>) -> Vec<String> {
    let cli = cli::command();
    // `ctx help COMMAND` takes the names of commands alone.
    match words {
        [help, rest @ ..] if help == "help" && !rest.is_empty() => {
            at(&cli, rest).map(|place| subcommands(&place)).unwrap_or_default()
        }
        words => at(&cli, words).map(|place| candidates(&place, root)).unwrap_or_default(),
    }
}

/// The words of a line without the program's; a line that ends with white space begins a new word.
fn split(line: &str) -> Vec<String> {
    let mut words: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
    if line.ends_with(char::is_whitespace) {
        words.push(String::new());
    }
    words
}

/// Where the cursor is.
struct Place<'a> {
    command: &'a Command,
    /// What its value is for, if it is one.
    value: Option<&'a Arg>,
    /// Positional words of the command before it.
    before: Vec<&'a str>,
    /// What stands before the value in its word: `--model=`.
    prefix: &'a str,
    typed: &'a str,
}

fn at<'a>(cli: &'a Command, words: &'a [String]) -> Option<Place<'a>> {
    let (typed, earlier) = words.split_last()?;
    let (mut command, mut before) = (cli, Vec::new());
    let (mut value, mut only_values) = (None, false);
    for word in earlier {
        if value.take().is_some() {
            continue;
        }
        match word.as_str() {
            "--" => only_values = true,
            word if !only_values && word.len() > 1 && word.starts_with('-') => {
                value = option(cli, command, word)
            }
            word => match command.find_subcommand(word).filter(|_| before.is_empty() && !only_values) {
                Some(found) => command = found,
                None => before.push(word),
            },
        }
    }
    let (mut prefix, mut typed) = ("", typed.as_str());
    if let Some((name, begun)) = typed.split_once('=')
        && value.is_none()
        && !only_values
        && name.starts_with("--")
    {
        value = option(cli, command, name);
        (prefix, typed) = typed.split_at(typed.len() - begun.len());
    }
    let is_option = value.is_none() && !only_values && typed.starts_with('-');
    if value.is_none() && !is_option {
        // The last one takes all that follow.
        let positionals: Vec<&Arg> = command.get_positionals().collect();
        value = positionals.get(before.len()).or_else(|| positionals.last()).copied();
    }
    Some(Place { command, value, before, prefix, typed })
}

/// The option that takes the next word as its value.
fn option<'a>(cli: &'a Command, command: &'a Command, word: &str) -> Option<&'a Arg> {
    let all = || command.get_arguments().chain(cli.get_arguments());
    let found = match word.strip_prefix("--") {
        Some(long) => all().find(|arg| arg.get_long() == Some(long)),
        None => all().find(|arg| arg.get_short().is_some() && arg.get_short() == word.chars().next_back()),
    };
    found.filter(|arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append))
}

fn subcommands(place: &Place<'_>) -> Vec<String> {
    let shown = place.command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut names: Vec<String> = shown.map(|command| command.get_name().to_owned()).collect();
    names.retain(|name| place.before.is_empty() && name.starts_with(place.typed));
    names.sort();
    names
}

fn candidates(place: &Place<'_>, root: Option<&Root>) -> Vec<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    if place.typed.starts_with('-') && place.value.is_none() {
        let shown = place.command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_positional());
        found.extend(shown.filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")));
        found.extend(["--help".to_owned(), "--root".to_owned()]);
    } else {
        if place.value.is_none_or(Arg::is_positional) {
            found.extend(subcommands(place));
        }
        if let Some(value) = place.value {
            let possible = value.get_possible_values();
            found.extend(
                possible.iter().filter(|one| !one.is_hide_set()).map(|one| one.get_name().to_owned()),
            );
            if let (true, Some(root)) = (possible.is_empty(), root) {
                found.extend(named(value, &place.before, root));
            }
        }
    }
    found.retain(|candidate| candidate.starts_with(place.typed));
    found.into_iter().map(|candidate| format!("{}{candidate}", place.prefix)).collect()
}

/// What the name of a value stands for. Whatever cannot be read is not offered.
fn named(value: &Arg, before: &[&str], root: &Root) -> Vec<String> {
    let name = value.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    match name {
        "SESSION" => {
            let Ok(reader) = root.reader() else { return Vec::new() };
            let mut found = sessions::named(&reader).unwrap_or_default();
            if let Some(own) = here::agent(&root.path) {
                let prefix = format!("{}/", own.name);
                let bare: Vec<String> =
                    found.iter().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect();
                found.extend(bare);
            }
            found
        }
        "AGENT" | "AGENT TEXT" => {
            let agents = ctx_agent::describe::agents(&root.path).unwrap_or_default();
            agents.iter().map(ToString::to_string).collect()
        }
        "MODEL" => {
            let models = Models::new(&root.path, Limits::default().into()).list().unwrap_or_default();
            models.iter().map(|model| in_api(&model.to_string())).collect()
        }
        "CHECKPOINT" => {
            checkpoints(before.first().copied().unwrap_or(sessions::HERE), root).unwrap_or_default()
        }
        "PROJECT" => {
            let agents = ctx_agent::describe::agents(&root.path).unwrap_or_default();
            let shown = agents.iter().filter_map(|agent| ctx_agent::project::shown_for(&root.path, agent));
            shown.map(|project| project.to_string()).chain(["default".to_owned()]).collect()
        }
        "PROVIDER" => {
            let models = Models::new(&root.path, Limits::default().into()).list().unwrap_or_default();
            let named = models.iter().map(|model| in_api(&model.to_string()));
            named.filter_map(|model| Some(model.split_once(':')?.0.to_owned())).collect()
        }
        "OBJECT" | "OBJECT[/FILE]" => known(root).collect(),
        _ => Vec::new(),
    }
}

/// The checkpoints of the session that was named before; the daemon has them.
fn checkpoints(session: &str, root: &Root) -> Result<Vec<String>, Failure> {
    let id = sessions::find_id(root, session)?;
    let list: List<Checkpoint> = Api::new(root).get(&format!("/sessions/{id}/checkpoints"))?;
    Ok(list.items.iter().map(|checkpoint| checkpoint.id.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &str) -> Vec<String> {
        super::offered(&split(line), None)
    }

    #[test]
    fn commands_options_and_words_of_a_list_are_offered_where_they_fit() {
        assert_eq!(offered("ctx che"), ["checkpoints"]);
        assert_eq!(offered("ctx project tr"), ["trust"]);
        assert_eq!(offered("ctx ls --sor"), ["--sort"]);
        assert_eq!(offered("ctx ls --sort "), ["created", "name", "updated"]);
        assert_eq!(offered("ctx wait one two --for ap"), ["approval"]);
        assert_eq!(offered("ctx help che"), ["checkpoints"]);
        assert_eq!(offered("ctx help queue "), ["discard", "help", "list", "resume"]);
        assert_eq!(offered("ctx ls --sort=na"), ["--sort=name"]);
        assert_eq!(offered("ctx import --from c"), ["claude", "codex"]);
        assert_eq!(offered("ctx --root /x com"), ["compact", "completions"]);
        assert!(!offered("ctx ").contains(&"__complete".to_owned()), "what is hidden is not offered");
    }
}
