//! Reads a command as a POSIX shell or bash would, only to find the programs in it, and the variables that it sets.
//!
//! It is tolerant: what a shell would refuse is read as far as it makes sense, and no input makes it fail.
//! It expands nothing but braces. A word with an expansion in it is unknown, and the commands inside of
//! substitutions are read like any others.

use std::collections::HashSet;

use super::lex::{Redirect, Token, Word};
use super::singular::{self, Passed};
use super::{Assignment, Program};
use super::{braces, wrap};

/// Substitutions and strings of commands inside one another, at most.
pub(super) const DEPTH_MAX: usize = 32;
/// Programs that are told of one command, at most.
const PROGRAMS_MAX: usize = 10_000;
/// How much of a text is shown in a message.
const SHOWN_CHARS_MAX: usize = 60;

pub(super) fn programs(command: &str) -> Vec<Program> {
    let mut finds = Finds::new();
    read_commands(command.as_bytes(), 0, &mut finds);
    finds.into_programs()
}

pub(super) fn assignments(command: &str) -> Vec<Assignment> {
    let mut finds = Finds::new();
    read_commands(command.as_bytes(), 0, &mut finds);
    finds.assignments
}

/// Reads a text as commands of their own: the argument of `bash -c`, the inside of backticks. The answer is whether
/// one of them is a shell that reads its commands from standard input.
pub(super) fn read_commands(source: &[u8], depth: usize, finds: &mut Finds) -> bool {
    if depth >= DEPTH_MAX {
        finds.unknown(source);
        return false;
    }
    let mut parser = Parser::new(source, depth, finds);
    parser.list(End::Text);
    parser.reads_stdin
}

/// What was found so far.
pub(super) struct Finds {
    programs: Vec<Program>,
    functions: HashSet<String>,
    assignments: Vec<Assignment>,
    /// How much more the braces of the command may become.
    brace_bytes_left: usize,
}

impl Finds {
    fn new() -> Finds {
        Finds {
            programs: Vec::new(),
            functions: HashSet::new(),
            assignments: Vec::new(),
            brace_bytes_left: braces::BYTES_MAX,
        }
    }

    pub fn named(&mut self, name: &str) {
        self.add(Program::Named(name.to_owned()));
    }

    /// A word in the place of a program that is not what it will be.
    pub fn unknown_word(&mut self, word: &Word) {
        match word.globs {
            // Cut, it would be another pattern.
            true => self.add(Program::Glob(String::from_utf8_lossy(&word.text).into_owned())),
            false => self.unknown(&word.raw),
        }
    }

    pub fn unknown(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        self.add(Program::Unknown(shown));
    }

    /// How many programs were found.
    pub fn count(&self) -> usize {
        self.programs.len()
    }

    /// What was found since there were so many.
    pub fn since(&self, count: usize) -> &[Program] {
        self.programs.get(count..).unwrap_or_default()
    }

    fn add(&mut self, program: Program) {
        if self.programs.len() < PROGRAMS_MAX && self.programs.last() != Some(&program) {
            self.programs.push(program);
        }
    }

    fn into_programs(self) -> Vec<Program> {
        let functions = self.functions;
        let by_kind = |program| match program {
            Program::Named(name) if functions.contains(&name) => Program::Function(name),
            other => other,
        };
        self.programs.into_iter().map(by_kind).collect()
    }
}

/// Where a list of commands ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Text,
    /// The `)` of a substitution.
    Paren,
    /// `;;` or `esac`.
    CaseItem,
}

pub(super) struct HereDoc {
    delimiter: Vec<u8>,
    quoted: bool,
    strips_tabs: bool,
    /// Whether a shell will read it as commands.
    is_code: bool,
}

/// The simple command that is being read.
#[derive(Default)]
struct Command {
    words: Vec<Word>,
    /// Here-strings, which a shell would read as commands.
    strings: Vec<Word>,
    /// The first here-document of this command among the pending ones.
    here_docs: usize,
}

/// A text that is being read, and where.
pub(super) struct Parser<'a> {
    pub source: &'a [u8],
    pub pos: usize,
    pub depth: usize,
    here_docs: Vec<HereDoc>,
    /// Whether one of its commands is a shell that reads its commands from standard input.
    reads_stdin: bool,
    pub finds: &'a mut Finds,
}

impl<'a> Parser<'a> {
    pub fn new(source: &'a [u8], depth: usize, finds: &'a mut Finds) -> Parser<'a> {
        Parser { source, pos: 0, depth, here_docs: Vec::new(), reads_stdin: false, finds }
    }

    pub fn peek(&self, ahead: usize) -> Option<u8> {
        self.source.get(self.pos + ahead).copied()
    }

    pub fn looking_at(&self, text: &[u8]) -> bool {
        self.source.get(self.pos..).is_some_and(|rest| rest.starts_with(text))
    }

    /// Reads commands up to the end; tells whether a case item ended with `esac`.
    pub fn list(&mut self, end: End) -> bool {
        if self.depth >= DEPTH_MAX {
            self.finds.unknown(b"(nested too deeply)");
            self.pos = self.source.len();
            return true;
        }
        self.depth += 1;
        let mut command = self.new_command();
        let mut saw_esac = true;
        let mut subshells = 0usize;
        loop {
            if command.words.is_empty() {
                self.skip_not();
            }
            match self.token() {
                Token::End => break,
                Token::Operator(")") if end == End::Paren && subshells == 0 => break,
                Token::Operator(")") => {
                    subshells = subshells.saturating_sub(1);
                    self.finish(&mut command);
                }
                Token::Operator(";;") if end == End::CaseItem => {
                    saw_esac = false;
                    break;
                }
                Token::Operator("|") => self.pipe(&mut command),
                Token::Operator("(") => subshells += usize::from(self.opens_subshell(&mut command)),
                Token::Operator(_) => self.finish(&mut command),
                Token::Newline => {
                    // Behind a pipe the command is still to come.
                    let piped = command.words.is_empty().then(|| std::mem::take(&mut command.strings));
                    self.finish(&mut command);
                    self.read_here_docs();
                    command.here_docs = 0;
                    command.strings = piped.unwrap_or_default();
                }
                Token::Redirect(kind) => self.redirect(kind, &mut command),
                Token::Word(word) if command.words.is_empty() => {
                    if end == End::CaseItem && word.is_reserved(b"esac") {
                        break;
                    }
                    self.first_word(word, &mut command);
                }
                Token::Word(word) => {
                    let begins_array = self.begins_array(&word);
                    self.push(word, &mut command);
                    // Where no array may stand, a shell refuses the text.
                    if begins_array {
                        self.array();
                    }
                }
            }
        }
        self.finish(&mut command);
        if end == End::Text {
            self.read_here_docs();
        }
        self.depth -= 1;
        saw_esac
    }

    fn new_command(&self) -> Command {
        Command { here_docs: self.here_docs.len(), ..Command::default() }
    }

    fn push(&mut self, word: Word, command: &mut Command) {
        self.finds.assignments.extend(word.assignment());
        command.words.extend(word.braced(&mut self.finds.brace_bytes_left));
    }

    /// The end of a simple command: its programs are told.
    fn finish(&mut self, command: &mut Command) {
        let reads_stdin = wrap::run(&command.words, self.depth, self.finds);
        self.reads_stdin |= reads_stdin;
        if reads_stdin {
            for doc in self.here_docs.iter_mut().skip(command.here_docs) {
                doc.is_code = true;
            }
            for word in &command.strings {
                wrap::run_word(Some(word), self.depth, self.finds);
            }
        }
        *command = self.new_command();
    }

    /// The end of a command whose output the next one gets: as far as it is known, it is like a here-string of that.
    fn pipe(&mut self, command: &mut Command) {
        match singular::passed_on(&command.words) {
            Passed::Input => {
                let (strings, here_docs) = (std::mem::take(&mut command.strings), command.here_docs);
                self.finish(command);
                (command.strings, command.here_docs) = (strings, here_docs);
            }
            Passed::Words(words) => {
                self.finish(command);
                command.strings = words;
            }
            Passed::Unknown => self.finish(command),
        }
    }

    /// `(` begins a subshell, an arithmetic command, or the `()` of a function.
    fn opens_subshell(&mut self, command: &mut Command) -> bool {
        if command.words.len() == 1 {
            self.skip_blanks();
            if self.peek(0) == Some(b')') {
                self.pos += 1;
                let name = command.words.first().map(|word| String::from_utf8_lossy(&word.text).into_owned());
                self.finds.functions.extend(name);
                *command = self.new_command();
                return false;
            }
        }
        self.finish(command);
        self.peek(0) != Some(b'(') || !self.arithmetic(1)
    }

    /// A word where a command may begin: reserved words, assignments, or the command's name.
    fn first_word(&mut self, word: Word, command: &mut Command) {
        const BETWEEN: &[&[u8]] = &[
            b"if", b"then", b"else", b"elif", b"fi", b"while", b"until", b"do", b"done", b"{", b"}", b"!",
            b"esac",
        ];
        if BETWEEN.iter().any(|reserved| word.is_reserved(reserved)) {
            return;
        }
        if word.is_reserved(b"time") {
            self.skip_blanks();
            if self.looking_at(b"-p") {
                self.pos += 2;
            } else if self.peek(0) == Some(b'-') {
                // Where it is no reserved word, it is the program: `time -v rm`.
                self.push(word, command);
            }
        } else if word.is_reserved(b"coproc") {
            self.coproc_name();
        } else if word.is_reserved(b"for") || word.is_reserved(b"select") {
            self.for_words();
        } else if word.is_reserved(b"case") {
            self.case_items();
        } else if word.is_reserved(b"function") {
            if let Token::Word(name) = self.token() {
                self.finds.functions.insert(String::from_utf8_lossy(&name.text).into_owned());
            }
        } else if word.is_reserved(b"[[") {
            self.condition();
        } else if word.is_assignment() {
            self.finds.assignments.extend(word.assignment());
            if self.begins_array(&word) {
                self.array();
            }
        } else {
            self.push(word, command);
        }
    }

    /// `coproc NAME { …; }`; without a group the first word is the command's.
    fn coproc_name(&mut self) {
        self.skip_blanks();
        let start = self.pos;
        let named = self.word().is_some_and(|word| !word.expands && !word.quoted && !word.text.is_empty());
        self.skip_blanks();
        if !(named && (self.looking_at(b"{ ") || self.looking_at(b"{\n") || self.peek(0) == Some(b'('))) {
            self.pos = start;
        }
    }

    /// `for NAME in words` or `for ((…))`, up to the separator.
    fn for_words(&mut self) {
        self.skip_blanks();
        if self.looking_at(b"((") && self.arithmetic(2) {
            return;
        }
        loop {
            match self.token() {
                Token::Word(word) if word.is_reserved(b"do") => return,
                Token::Word(_) | Token::Redirect(_) => {}
                Token::End | Token::Newline | Token::Operator(_) => return,
            }
        }
    }

    /// `case WORD in pattern) commands;; … esac`.
    fn case_items(&mut self) {
        let _subject = self.token();
        loop {
            match self.token() {
                Token::Word(word) if word.is_reserved(b"in") => break,
                Token::Newline => {}
                _ => return,
            }
        }
        loop {
            // The patterns of one item.
            loop {
                match self.token() {
                    Token::End => return,
                    Token::Word(word) if word.is_reserved(b"esac") => return,
                    Token::Operator(")") => break,
                    Token::Word(_) | Token::Newline | Token::Operator(_) | Token::Redirect(_) => {}
                }
            }
            if self.list(End::CaseItem) {
                return;
            }
        }
    }

    /// `[[ … ]]`: words and substitutions, no commands of its own.
    fn condition(&mut self) {
        loop {
            match self.token() {
                Token::End => return,
                Token::Word(word) if word.is_reserved(b"]]") => return,
                Token::Word(_) | Token::Newline | Token::Operator(_) | Token::Redirect(_) => {}
            }
        }
    }

    /// `!(rm x)` where a command begins is a subshell. Elsewhere it is a pattern.
    fn skip_not(&mut self) {
        self.skip_blanks();
        self.pos += usize::from(self.looking_at(b"!("));
    }

    /// Whether the word was the beginning of `NAME=( words )`, also as an argument of `declare` and its like.
    fn begins_array(&self, word: &Word) -> bool {
        self.peek(0) == Some(b'(') && word.raw.ends_with(b"=") && word.is_assignment()
    }

    /// The words of `NAME=( words )`.
    fn array(&mut self) {
        self.pos += 1;
        loop {
            match self.token() {
                Token::End | Token::Operator(")") => return,
                Token::Word(_) | Token::Newline | Token::Operator(_) | Token::Redirect(_) => {}
            }
        }
    }

    fn redirect(&mut self, kind: Redirect, command: &mut Command) {
        self.skip_blanks();
        let Some(target) = self.word() else { return };
        match kind {
            Redirect::File => {}
            Redirect::HereString => command.strings.push(target),
            Redirect::HereDoc { strips_tabs } => self.here_docs.push(HereDoc {
                delimiter: target.text,
                quoted: target.quoted,
                strips_tabs,
                is_code: false,
            }),
        }
    }

    fn read_here_docs(&mut self) {
        for doc in std::mem::take(&mut self.here_docs) {
            let body = self.here_doc_body(&doc);
            if doc.is_code {
                read_commands(&body, self.depth, self.finds);
            } else if !doc.quoted {
                Parser::new(&body, self.depth, self.finds).expansions();
            }
        }
    }

    fn here_doc_body(&mut self, doc: &HereDoc) -> Vec<u8> {
        let mut body = Vec::new();
        while self.pos < self.source.len() {
            let rest = self.source.get(self.pos..).unwrap_or_default();
            let len = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            let line = rest.get(..len).unwrap_or_default();
            self.pos += len;
            let bare = line.strip_suffix(b"\n").unwrap_or(line);
            let tabs =
                if doc.strips_tabs { bare.iter().take_while(|byte| **byte == b'\t').count() } else { 0 };
            if bare.get(tabs..) == Some(&doc.delimiter) {
                break;
            }
            body.extend_from_slice(line);
        }
        body
    }

    /// Only the substitutions of a text, as in a here-document.
    pub fn expansions(&mut self) {
        let mut ignored = Word::default();
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.pos += 2,
                b'$' => self.dollar(&mut ignored, true),
                b'`' => self.backticks(&mut ignored, true),
                _ => self.pos += 1,
            }
        }
    }
}
