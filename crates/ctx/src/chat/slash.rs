//! The commands of the chat: one table, from which the help, the completion and the dispatch are made. Pure.
//!
//! Most of them are commands of `ctx` with the session filled in, so that a person learns one set of words.

use ctx_agent::nearest::nearest;

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Help,
    Leave,
    Cancel,
    Switch,
    Model,
    Drop,
    /// Runs `ctx` with these words. `{session}` is the session's id, `{rest}` what was typed behind the command as one
    /// word; a word with a `{rest}` that is empty is left out, with the option before it.
    Run(&'static [&'static str]),
    /// The same, and the session's own frames tell of it: only a failure is printed.
    Told(&'static [&'static str]),
}

/// Whether something must stand behind the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Maybe(&'static str),
    Always(&'static str),
}

pub struct Row {
    pub word: &'static str,
    pub takes: Takes,
    pub about: &'static str,
    pub act: Act,
}

const fn row(word: &'static str, takes: Takes, about: &'static str, act: Act) -> Row {
    Row { word, takes, about, act }
}

use Takes::{Always, Maybe, Nothing};

pub const TABLE: &[Row] = &[
    row("/help", Nothing, "list these commands", Act::Help),
    row("/quit", Nothing, "leave; the session continues", Act::Leave),
    row("/cancel", Nothing, "cancel the run", Act::Cancel),
    row("/drop", Nothing, "take back the message that waits", Act::Drop),
    row("/session", Maybe("NAME"), "switch to another session, or show this one", Act::Switch),
    row("/model", Always("MODEL"), "use provider:model from the next message on", Act::Model),
    row("/title", Always("TEXT"), "give the session a title", Act::Told(&["rename", "{session}", "{rest}"])),
    row(
        "/pause",
        Maybe("REASON"),
        "pause the run at a checkpoint",
        Act::Run(&["pause", "{session}", "--reason", "{rest}"]),
    ),
    row(
        "/resume",
        Nothing,
        "continue a paused run, or start a queued one",
        Act::Run(&["resume", "{session}"]),
    ),
    row("/checkpoints", Nothing, "list the checkpoints", Act::Run(&["checkpoints", "{session}"])),
    row(
        "/rollback",
        Maybe("CHECKPOINT"),
        "go back to a checkpoint",
        Act::Told(&["rollback", "--yes", "{session}", "{rest}"]),
    ),
    row(
        "/compact",
        Nothing,
        "make the conversation shorter for the model",
        Act::Run(&["compact", "{session}"]),
    ),
    row(
        "/fork",
        Maybe("NAME"),
        "copy the session into a new one",
        Act::Run(&["fork", "{session}", "--name", "{rest}"]),
    ),
    row("/ls", Nothing, "list your sessions", Act::Run(&["ls"])),
    row("/search", Always("TEXT"), "search all sessions", Act::Run(&["search", "{rest}"])),
    row("/history", Nothing, "print the whole conversation", Act::Run(&["history", "{session}"])),
];

/// What a line that was typed means.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Message(String),
    Command {
        act: Act,
        rest: String,
    },
    /// Not a command, or one that lacks its word: why.
    Wrong(String),
}

pub fn parse(line: &str) -> Line {
    let Some(command) = line.strip_prefix('/') else { return Line::Message(line.to_owned()) };
    if command.starts_with('/') {
        return Line::Message(command.to_owned());
    }
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (word, rest) = (if matches!(word, "/exit" | "/q" | "/detach") { "/quit" } else { word }, rest.trim());
    let Some(row) = TABLE.iter().find(|row| row.word == word) else {
        let near = nearest(word, TABLE.iter().map(|row| row.word));
        let near = near.map_or_else(|| ".".to_owned(), |near| format!("; did you mean {near}?"));
        return Line::Wrong(format!(
            "unknown command {word}, not sent{near} /help lists the commands, // sends a text that begins with /"
        ));
    };
    match (row.takes, rest.is_empty()) {
        (Always(what), true) => Line::Wrong(format!("{word} needs {what}")),
        (Nothing, false) => Line::Wrong(format!("{word} takes nothing behind it")),
        (Always(_) | Maybe(_), false) | (Nothing | Maybe(_), true) => {
            Line::Command { act: row.act, rest: rest.to_owned() }
        }
    }
}

/// The words of `ctx` for a row that runs it.
pub fn arguments(template: &[&str], session: &str, rest: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in template {
        match *word {
            "{session}" => words.push(session.to_owned()),
            "{rest}" if !rest.is_empty() => words.push(rest.to_owned()),
            "{rest}" => {
                if words.last().is_some_and(|option| option.starts_with("--")) {
                    words.pop();
                }
            }
            word => words.push(word.to_owned()),
        }
    }
    words
}

/// Widest first column of the help, with what is left of it.
const HELP_WIDE: usize = 26;
/// Characters that what a command does may need.
const ABOUT_WIDE: usize = 46;

/// The commands and keys; on a narrow terminal, what each does is below it.
pub fn help(width: Option<usize>) -> Vec<String> {
    let shown = |row: &Row| match row.takes {
        Nothing => row.word.to_owned(),
        Maybe(what) => format!("{} [{what}]", row.word),
        Always(what) => format!("{} {what}", row.word),
    };
    let mut lines: Vec<(String, &str)> = TABLE.iter().map(|row| (shown(row), row.about)).collect();
    let keys = [
        ("//…", "a message that begins with /"),
        ("@path", "Tab completes the name of a file"),
        ("Alt-Enter", "a new line in the message"),
        ("Esc, Ctrl-C", "cancel the run; again: leave"),
    ];
    lines.extend(keys.map(|(key, about)| (key.to_owned(), about)));
    let is_narrow = width.is_some_and(|width| width < HELP_WIDE + ABOUT_WIDE);
    let line = |(what, about): (String, &str)| match is_narrow {
        true => vec![format!("  {what}"), format!("      {about}")],
        false => vec![format!("  {what:<24}{about}")],
    };
    lines.into_iter().flat_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_unless_it_begins_with_a_slash() {
        let message = |text: &str| Line::Message(text.to_owned());
        for (line, wanted) in [
            ("hello", message("hello")),
            (" /quit", message(" /quit")),
            ("//etc/passwd", message("/etc/passwd")),
            ("two\nlines", message("two\nlines")),
            ("/quit", Line::Command { act: Act::Leave, rest: String::new() }),
            ("/session  build ", Line::Command { act: Act::Switch, rest: "build".to_owned() }),
            ("/model", Line::Wrong("/model needs MODEL".to_owned())),
            ("/cancel now", Line::Wrong("/cancel takes nothing behind it".to_owned())),
        ] {
            assert_eq!(parse(line), wanted, "{line}");
        }
        let Line::Wrong(why) = parse("/rolback") else { panic!("sent") };
        assert!(why.contains("did you mean /rollback?") && why.contains("not sent"), "{why}");
    }

    #[test]
    fn the_help_fits_the_terminal() {
        for width in [50, 80] {
            let wide = |line: &String| line.chars().count();
            let lines = help(Some(width));
            assert!(lines.iter().map(wide).max() <= Some(width), "{width}: {lines:?}");
        }
        assert_eq!(help(None).len(), help(Some(80)).len());
        assert!(help(Some(50)).len() > help(None).len());
    }

    #[test]
    fn an_empty_rest_takes_its_option_along() {
        let pause = ["pause", "{session}", "--reason", "{rest}"];
        assert_eq!(arguments(&pause, "S", "have a look"), ["pause", "S", "--reason", "have a look"]);
        assert_eq!(arguments(&pause, "S", ""), ["pause", "S"]);
    }
}
