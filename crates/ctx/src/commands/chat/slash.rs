//! Parses a line typed at the prompt of `ctx chat`. Pure.

pub const HELP: &str = "\
  /session [NAME]   show the session, or switch to another one
  /title TEXT       give the session a title
  /model MODEL      use provider:model from the next message on
  /cancel           cancel a run that another client started
  /quit             leave; the session is kept
  //…               a message that begins with /
  Ctrl-C            cancel the run; a second Ctrl-C leaves";

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Message(String),
    Help,
    Quit,
    Cancel,
    ShowSession,
    Session(String),
    Title(String),
    Model(String),
    /// Not a command of ours, or one that lacks its word.
    Unknown(String),
}

pub fn parse(line: &str) -> Line {
    let Some(command) = line.strip_prefix('/') else { return Line::Message(line.to_owned()) };
    if command.starts_with('/') {
        return Line::Message(command.to_owned());
    }
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim().to_owned();
    match (word, rest.is_empty()) {
        ("help" | "?", _) => Line::Help,
        ("quit" | "exit" | "q", _) => Line::Quit,
        ("cancel", _) => Line::Cancel,
        ("session", true) => Line::ShowSession,
        ("session", false) => Line::Session(rest),
        ("title", false) => Line::Title(rest),
        ("model", false) => Line::Model(rest),
        (word, _) => Line::Unknown(format!("/{word}{}", if rest.is_empty() { "" } else { " …" })),
    }
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
            ("/quit", Line::Quit),
            ("/session", Line::ShowSession),
            ("/session  build ", Line::Session("build".to_owned())),
            ("/title  the flaky build", Line::Title("the flaky build".to_owned())),
            ("/title", Line::Unknown("/title".to_owned())),
            ("/etc/passwd is odd", Line::Unknown("/etc/passwd …".to_owned())),
        ] {
            assert_eq!(parse(line), wanted, "{line}");
        }
    }

    #[test]
    fn every_command_in_the_help_is_known() {
        for word in HELP.lines().filter_map(|line| line.split_whitespace().next()) {
            if word.starts_with('/') && !word.starts_with("//") {
                assert!(!matches!(parse(&format!("{word} x")), Line::Unknown(_)), "{word}");
            }
        }
    }
}
