//! The programs that a command would run, and the variables that it sets: `read` finds the simple commands, `table`
//! the programs that run others.

use crate::policy::base_name;

use super::read::{DEPTH_MAX, Event, TOO_DEEP, read};
use super::table::rows;
use super::word::{Assignment, Word};
use super::wrapper::Inner;

/// How much of an unknown text is shown in a message.
const SHOWN_CHARS_MAX: usize = 60;

/// A program that a command would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Known by its name, as it was written: `rm`, `/bin/rm`.
    Named(String),
    /// Not known before it runs: `$X`, `/bin/r*`, `eval "$code"`.
    Unknown(String),
}

impl Program {
    /// Its name, where that is known.
    pub fn name(&self) -> Option<&str> {
        match self {
            Program::Named(name) => Some(name),
            Program::Unknown(_) => None,
        }
    }
}

/// The programs that a command would run, as far as its text shows them.
pub fn programs(command: &str) -> Vec<Program> {
    let mut finder = Finder::default();
    finder.text(command, 0);
    finder.programs
}

/// The variables that a command sets, as far as its text shows their values.
pub fn assignments(command: &str) -> Vec<Assignment> {
    let mut finder = Finder::default();
    finder.text(command, 0);
    finder.assignments
}

#[derive(Default)]
struct Finder {
    programs: Vec<Program>,
    assignments: Vec<Assignment>,
}

impl Finder {
    fn text(&mut self, text: &str, text_depth: usize) {
        read(text, text_depth, &mut |event, depth| match event {
            Event::Command(words) => {
                self.assignments.extend(words.iter().filter_map(Word::assignment));
                let name = words.iter().position(|word| !word.is_assignment()).unwrap_or(words.len());
                // A function's name counts as a program's: whether the function is there when the command runs cannot be seen.
                self.command(words.split_at(name).1, depth);
            }
            Event::Unknown(text) => self.unknown(&text),
        });
    }

    fn command(&mut self, words: &[Word], depth: usize) {
        let Some((first, args)) = words.split_first() else { return };
        if !first.is_known() {
            self.unknown(&first.raw);
        }
        let Some(name) = first.program_name() else { return };
        self.add(Program::Named(name.to_owned()));
        self.arguments(base_name(name), args, depth);
    }

    /// The programs that a program runs which is given these arguments.
    fn arguments(&mut self, name: &str, args: &[Word], depth: usize) {
        let inner = rows(name).iter().find_map(|row| row.inner(args)).unwrap_or_default();
        if depth + 1 >= DEPTH_MAX && !inner.is_empty() {
            return self.unknown(TOO_DEEP);
        }
        for inner in inner {
            match inner {
                Inner::Program(words) => self.command(words, depth + 1),
                Inner::Input(words) => self.command(&[words, &[Word::input()]].concat(), depth + 1),
                Inner::Package(words) => self.package(words, depth + 1),
                Inner::Unknown(word) => self.unknown(&word.raw),
                Inner::Text(word) => {
                    // What can be read of it is read all the same: `bash -c "rm $x"` runs rm.
                    if !word.is_known() {
                        self.unknown(&word.raw);
                    }
                    self.text(&word.text, depth + 1);
                }
            }
        }
    }

    /// A package runs the program of its name, without its version: `rimraf@5`, `black==24.1`, `nixpkgs#hello`.
    fn package(&mut self, words: &[Word], depth: usize) {
        let Some((package, args)) = words.split_first().filter(|(package, _)| package.is_known()) else {
            return self.command(words, depth);
        };
        let name = package.text.rsplit('#').next().unwrap_or_default();
        let scope = usize::from(name.starts_with('@'));
        let version = name.char_indices().skip(scope).find(|(_, char)| matches!(char, '@' | '='));
        let name = name.split_at(version.map_or(name.len(), |(at, _)| at)).0;
        self.add(Program::Named(name.to_owned()));
        self.arguments(base_name(name), args, depth);
    }

    fn unknown(&mut self, text: &str) {
        let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        self.add(Program::Unknown(shown));
    }

    fn add(&mut self, program: Program) {
        // A second unknown part in a row, or the same program again, changes nothing.
        let is_repeated = match (self.programs.last(), &program) {
            (Some(Program::Unknown(_)), Program::Unknown(_)) => true,
            (last, program) => last == Some(program),
        };
        if !is_repeated {
            self.programs.push(program);
        }
    }
}
