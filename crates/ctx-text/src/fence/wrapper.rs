//! How a program that runs others is described, and where in its arguments the other program stands. Which programs
//! do is said in `table`.

use super::word::{HOLE, Word};

/// Names that are separated by blanks.
type List = &'static str;

/// A row of the table: one or several programs that take their arguments alike.
pub(super) struct Wrapper {
    pub names: List,
    /// The verbs after which it runs something, separated by `|`: `exec|compose exec`. Empty if it needs none.
    verbs: List,
    /// The letters of the short options that take a value.
    short: List,
    /// The long options that take a value as the next word. After `!`, those that take none.
    long: List,
    /// The options whose value is a command for a shell.
    text: List,
    /// The options with which it runs nothing.
    stops: List,
    /// How many words of its own stand before the program.
    operands: usize,
    runs: Runs,
}

/// What the words behind its options and operands are.
#[derive(Clone, Copy)]
pub(super) enum Runs {
    /// A program and its arguments.
    Program,
    /// A package, whose program has its name, and the arguments.
    Package,
    /// A program and its arguments; it reads more arguments.
    Input,
    /// A command for a shell, after all words are joined.
    Text,
    /// The same; it reads more of the command, or has it behind `:::`.
    TextInput,
    /// The first is a command for a shell if this flag was given; otherwise it is a file.
    TextIf(List),
    /// The first is a command for a shell, and others follow.
    TextBefore,
    /// A program and its arguments stand behind the first of these words.
    After(List),
    /// Each of these words is followed by a program and its arguments, up to `;` or `+`.
    Each(List),
}

/// What a wrapper runs.
pub(super) enum Inner<'a> {
    Program(&'a [Word]),
    Package(&'a [Word]),
    Input(&'a [Word]),
    Text(Word),
    Unknown(&'a Word),
}

/// What was found in the arguments before the program.
struct Scan<'a> {
    flags: Vec<&'a str>,
    text: Option<Word>,
    /// An operand that may become options or several words.
    unknown: Option<&'a Word>,
    rest: &'a [Word],
}

/// All words that are not options are the wrapper's own.
pub(super) const ALL: usize = usize::MAX;

/// A program that has options without values, and then the other program.
pub(super) const fn row(names: List) -> Wrapper {
    let (verbs, short, long, text, stops) = ("", "", "", "", "");
    Wrapper { names, verbs, short, long, text, stops, operands: 0, runs: Runs::Program }
}

/// Functions that set a column of a row, so that a row names only the columns that it needs.
macro_rules! columns {
    ($($name:ident: $kind:ty),*) => {
        impl Wrapper {
            $(pub const fn $name(self, $name: $kind) -> Wrapper {
                Wrapper { $name, ..self }
            })*
        }
    };
}

columns!(verbs: List, short: List, long: List, text: List, stops: List, operands: usize, runs: Runs);

impl Wrapper {
    /// What it runs when it is given these arguments; `None` if this row does not describe them.
    pub fn inner<'a>(&self, args: &'a [Word]) -> Option<Vec<Inner<'a>>> {
        let args = self.after_verb(args)?;
        Some(match self.runs {
            Runs::After(marks) => {
                let mark = args.iter().position(|word| has(marks, &word.text)).unwrap_or(args.len());
                let (own, program) = args.split_at(mark);
                splits(own).chain(program.get(1..).map(Inner::Program)).collect()
            }
            Runs::Each(marks) => splits(args).chain(each(args, marks)).collect(),
            _ => self.behind_options(self.scan(args, self.operands)),
        })
    }

    fn behind_options<'a>(&self, mut found: Scan<'a>) -> Vec<Inner<'a>> {
        let has_flag = |flags: &str| found.flags.iter().any(|flag| has(flags, flag));
        let inner = match (self.runs, found.rest) {
            _ if has_flag(self.stops) => None,
            _ if found.text.is_some() => found.text.take().map(Inner::Text),
            (Runs::TextInput, words) => {
                let end = words.iter().position(|word| word.text.starts_with(":::")).unwrap_or(words.len());
                let word = Word::joined(words.split_at(end).0);
                // What is read replaces `{}`, or follows the command where that has none.
                let input = if word.text.contains('{') { "" } else { HOLE };
                Some(Inner::Text(Word { text: format!("{} {input}", word.text), ..word }))
            }
            (_, []) => None,
            (Runs::TextIf(flag), [text, ..]) if has_flag(flag) => Some(Inner::Text(text.clone())),
            // What an unquoted variable becomes may be an option.
            (Runs::TextIf(_), [file, ..]) => file.may_be_options().then_some(Inner::Unknown(file)),
            (Runs::TextBefore, [text, _, ..]) => Some(Inner::Text(text.clone())),
            (Runs::TextBefore, _) => None,
            (Runs::Text, words) => Some(Inner::Text(Word::joined(words))),
            // With `xargs -I` what is read replaces a part of a word and adds none.
            (Runs::Input, words) if !has_flag("I i replace") => Some(Inner::Input(words)),
            (Runs::Package, words) => Some(Inner::Package(words)),
            (_, words) => Some(Inner::Program(words)),
        };
        found.unknown.map(Inner::Unknown).into_iter().chain(inner).collect()
    }

    /// The arguments behind a verb.
    fn after_verb<'a>(&self, args: &'a [Word]) -> Option<&'a [Word]> {
        let behind = |verb: &str| {
            verb.split_whitespace().try_fold(args, |args, step| {
                let (word, behind) = self.scan(args, 0).rest.split_first()?;
                (word.text == step).then_some(behind)
            })
        };
        self.verbs.split('|').find_map(behind)
    }

    /// Reads options and variables, which may also stand between and behind the operands.
    fn scan<'a>(&self, args: &'a [Word], mut operands: usize) -> Scan<'a> {
        let mut scan = Scan { flags: Vec::new(), text: None, unknown: None, rest: args };
        let mut takes_options = true;
        while let Some((word, behind)) = scan.rest.split_first() {
            if takes_options && word.text.starts_with(['-', '+']) {
                takes_options = word.text != "--";
                self.option(word, behind, &mut scan);
            } else if word.sets_variable() && matches!(self.runs, Runs::Program) {
                scan.rest = behind;
            } else if operands > 0 {
                operands -= 1;
                scan.unknown = scan.unknown.or(Some(word).filter(|word| word.may_be_options()));
                scan.rest = behind;
            } else {
                break;
            }
        }
        scan
    }

    /// Reads one option, with its value if it takes one.
    fn option<'a>(&self, word: &'a Word, behind: &'a [Word], scan: &mut Scan<'a>) {
        let option = word.text.as_str();
        let (flag, value) = match option.strip_prefix("--") {
            Some(long) => match long.split_once('=') {
                Some((flag, value)) => (flag, Some(value).filter(|value| !value.is_empty())),
                None => (long, self.takes_value(long).then_some("")),
            },
            None if option == "-" => (option, None),
            None => {
                let letters = option.trim_start_matches(['-', '+']);
                let at = letters.find(|letter| self.short.contains(letter));
                let (flags, rest) = letters.split_at(at.unwrap_or(letters.len()));
                scan.flags.extend(flags.split("").filter(|letter| !letter.is_empty()));
                let letter_len = rest.chars().next().map_or(0, char::len_utf8);
                let (flag, value) = rest.split_at(letter_len);
                (flag, at.map(|_| value))
            }
        };
        scan.flags.push(flag);
        scan.rest = behind;
        let value = match value {
            Some("") => {
                let value = scan.rest.split_first();
                scan.rest = value.map_or(&[], |(_, behind)| behind);
                value.map(|(value, _)| value.clone())
            }
            value => value.map(|value| word.part(value)),
        };
        if has(self.text, flag) {
            scan.text = scan.text.take().or(value);
        }
    }

    /// Whether the next word is the value of this long option.
    fn takes_value(&self, long: &str) -> bool {
        match self.long.strip_prefix('!') {
            Some(flags) => !long.is_empty() && !has(flags, long),
            None => has(self.long, long) || has(self.text, long),
        }
    }
}

/// The first word that may become several, and so also an option with a program.
fn splits(words: &[Word]) -> impl Iterator<Item = Inner<'_>> {
    words.iter().find(|word| word.may_split()).map(Inner::Unknown).into_iter()
}

fn each<'a>(args: &'a [Word], marks: &str) -> Vec<Inner<'a>> {
    let mut found = Vec::new();
    let mut rest = args.iter();
    while rest.any(|word| has(marks, &word.text)) {
        let words = rest.as_slice();
        let end = words.iter().position(|word| matches!(word.text.as_str(), ";" | "+"));
        let (program, behind) = words.split_at(end.unwrap_or(words.len()));
        found.push(Inner::Program(program));
        rest = behind.iter();
    }
    found
}

/// Whether a list that is separated by blanks has this entry.
fn has(list: &str, entry: &str) -> bool {
    list.split_ascii_whitespace().any(|name| name == entry)
}
