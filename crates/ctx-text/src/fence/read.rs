//! Reads a text as a POSIX shell or bash would and reports every simple command in it, the commands of its
//! substitutions before the command around them.
//!
//! It reads in one pass, expands nothing and never fails: what a shell would refuse is read as far as it makes
//! sense. It does not know what a program does with its arguments; `programs` does.

use super::cursor::Cursor;
use super::word::{Draft, Word, variable_name};

/// Substitutions, and commands inside of arguments, may be nested this deeply. What is deeper is unknown.
pub(super) const DEPTH_MAX: usize = 16;

/// What is reported in the place of a part that cannot be read.
pub(super) const UNBALANCED: &str = "unbalanced quotes, brackets or here-documents";
pub(super) const TOO_DEEP: &str = "commands nested too deeply";

pub(super) enum Event {
    /// A simple command: its assignments, its name and its arguments.
    Command(Vec<Word>),
    /// A part that cannot be read.
    Unknown(String),
}

/// Reports the events of a text, each with its depth. The caller keeps the depth below `DEPTH_MAX`.
pub(super) fn read(text: &str, depth: usize, report: &mut dyn FnMut(Event, usize)) {
    Reader { source: Cursor::new(text.as_bytes()), depth, here_docs: Vec::new(), report }.list(false);
}

struct Reader<'a> {
    source: Cursor<'a>,
    depth: usize,
    /// The here-documents whose bodies begin after this line.
    here_docs: Vec<HereDoc>,
    report: &'a mut dyn FnMut(Event, usize),
}

struct HereDoc {
    delimiter: String,
    quoted: bool,
    strips_tabs: bool,
}

/// A list of commands that is being read.
#[derive(Default)]
struct List {
    /// The words of the current command.
    words: Vec<Word>,
    /// What was opened in this list and is not closed yet.
    open: Vec<Open>,
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Paren,
    Case,
}

/// What the next word is.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Mode {
    #[default]
    Command,
    /// Between `case` and its `in`.
    CaseSubject,
    /// A pattern of a `case`, before its `)`.
    CasePattern,
    /// A variable or a value of `for` and `select`.
    Loop,
    /// Inside of `[[ … ]]`.
    Test,
}

impl Reader<'_> {
    /// Reads commands up to the end of the text, or up to the `)` that closes a substitution.
    fn list(&mut self, in_parens: bool) {
        let mut list = List::default();
        loop {
            self.source.skip_blanks();
            // Where a command begins, this is a subshell; elsewhere it is a pattern.
            if list.words.is_empty() && list.mode == Mode::Command && self.source.looking_at(b"!(") {
                self.source.advance(1);
            }
            let Some(byte) = self.source.peek(0) else { break };
            match byte {
                _ if self.redirection() => {}
                b'\n' | b';' | b'&' | b'|' => self.operator(byte, &mut list),
                b'(' => self.open_paren(&mut list),
                b')' => {
                    self.source.advance(1);
                    self.end_command(&mut list);
                    match list.open.last() {
                        Some(Open::Paren) => drop(list.open.pop()),
                        Some(Open::Case) => list.mode = Mode::Command,
                        None if in_parens => return,
                        None => {}
                    }
                }
                _ => {
                    let word = self.word();
                    self.add_word(word, &mut list);
                }
            }
        }
        self.end_command(&mut list);
        if in_parens || !list.open.is_empty() || list.mode == Mode::Test {
            self.unbalanced();
        }
    }

    fn end_command(&mut self, list: &mut List) {
        if list.mode == Mode::Loop {
            list.mode = Mode::Command;
        }
        if !list.words.is_empty() {
            self.report(Event::Command(std::mem::take(&mut list.words)));
        }
    }

    fn operator(&mut self, byte: u8, list: &mut List) {
        // A shell that has no `[[` ends a command here.
        if list.mode == Mode::Test && matches!(byte, b'\n' | b';') {
            self.unbalanced();
        }
        // A line may end behind `&&`, and the command stand on the next.
        self.end_command(list);
        let ends_case_item = self.source.looking_at(b";;") || self.source.looking_at(b";&");
        if ends_case_item && list.open.last() == Some(&Open::Case) {
            list.mode = Mode::CasePattern;
            // `;;`, `;&` or `;;&`.
            self.source.advance(if self.source.looking_at(b";;&") { 3 } else { 2 });
        } else {
            // The second character of `&&`, `||` and `|&` ends an empty command.
            self.source.advance(1);
        }
        if byte == b'\n' {
            self.here_doc_bodies();
        }
    }

    /// `(` begins a subshell, an arithmetic command, the `()` of a function or a pattern of a `case`.
    fn open_paren(&mut self, list: &mut List) {
        self.source.advance(1);
        if list.mode == Mode::CasePattern {
            return;
        }
        if list.words.len() == 1 {
            self.source.skip_blanks();
            if self.source.peek(0) == Some(b')') {
                self.source.advance(1);
                return list.words.clear();
            }
        }
        let may_be_arithmetic = list.words.is_empty() && self.source.peek(0) == Some(b'(');
        self.end_command(list);
        if !(may_be_arithmetic && self.arithmetic()) {
            list.open.push(Open::Paren);
        }
    }

    fn add_word(&mut self, word: Word, list: &mut List) {
        // `{fd}>file` gives the number of the redirection a name.
        let is_redirected = matches!(self.source.peek(0), Some(b'<' | b'>'));
        if is_redirected && word.raw.starts_with('{') && word.raw.ends_with('}') {
            return;
        }
        match list.mode {
            Mode::Command if list.words.is_empty() => self.first_word(word, list),
            Mode::Command => list.words.push(word),
            Mode::CaseSubject if word.is_bare("in") => list.mode = Mode::CasePattern,
            Mode::CasePattern if word.is_bare("esac") => {
                list.open.pop();
                list.mode = Mode::Command;
            }
            Mode::Loop if word.is_bare("do") => list.mode = Mode::Command,
            Mode::Test if word.is_bare("]]") => list.mode = Mode::Command,
            Mode::CaseSubject | Mode::CasePattern | Mode::Loop | Mode::Test => {}
        }
    }

    /// A word where a command may begin: a reserved word, or the first of a command.
    fn first_word(&mut self, word: Word, list: &mut List) {
        let reserved = if word.quoted || !word.is_known() { "" } else { word.text.as_str() };
        match reserved {
            "then" | "else" | "elif" | "do" | "!" => {}
            "{" | "if" | "while" | "until" | "}" | "fi" | "done" => {}
            "for" | "select" => list.mode = Mode::Loop,
            "case" => {
                list.open.push(Open::Case);
                list.mode = Mode::CaseSubject;
            }
            "esac" => drop(list.open.pop_if(|open| *open == Open::Case)),
            "function" => {
                self.source.skip_blanks();
                self.word();
                self.source.advance(if self.source.looking_at(b"()") { 2 } else { 0 });
            }
            "[[" => list.mode = Mode::Test,
            // It may be followed by a name for the process or by the command.
            "coproc" => self.report(Event::Unknown("coproc".to_owned())),
            "time" => {
                self.source.skip_blanks();
                if self.source.looking_at(b"-p") {
                    self.source.advance(2);
                } else if self.source.peek(0) == Some(b'-') {
                    // With other options it is the program, not the reserved word.
                    list.words.push(word);
                }
            }
            _ => list.words.push(word),
        }
    }

    /// Reads a redirection with its target, which is not an argument. `<(…)` is a word.
    fn redirection(&mut self) -> bool {
        let digits = self.source.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (len, here_doc) = match self.source.rest().split_at(digits).1 {
            [b'<' | b'>', b'(', ..] => return false,
            [b'<', b'<', b'<', ..] => (3, None),
            [b'<', b'<', b'-', ..] => (3, Some(true)),
            [b'<', b'<', ..] => (2, Some(false)),
            [b'&', b'>', b'>', ..] if digits == 0 => (3, None),
            [b'&', b'>', ..] if digits == 0 => (2, None),
            [b'>', b'>' | b'&' | b'|', ..] | [b'<', b'&' | b'>', ..] => (2, None),
            [b'<' | b'>', ..] => (1, None),
            _ => return false,
        };
        self.source.advance(digits + len);
        self.source.skip_blanks();
        let target = self.word();
        if let Some(strips_tabs) = here_doc {
            // The delimiter is not expanded. Shells differ on quotes and substitutions beside a dollar sign in it.
            let (is_raw, quoted) = (target.raw.contains(['$', '`']), target.quoted);
            if is_raw && target.raw.contains(['\'', '"', '\\', '(']) || self.source.peek(0) == Some(b'\r') {
                self.unbalanced();
            }
            let delimiter = if is_raw { target.raw.replace(['\'', '"', '\\'], "") } else { target.text };
            self.here_docs.push(HereDoc { delimiter, quoted, strips_tabs });
        }
        true
    }

    /// Reads the bodies of the here-documents of the line before: only their substitutions run.
    fn here_doc_bodies(&mut self) {
        for doc in std::mem::take(&mut self.here_docs) {
            let start = self.source.pos();
            let mut body: &[u8] = &[];
            loop {
                if self.source.peek(0).is_none() {
                    break self.unbalanced();
                }
                let line = self.source.line();
                let tabs = line.iter().take_while(|byte| doc.strips_tabs && **byte == b'\t').count();
                if line.split_at(tabs).1 == doc.delimiter.as_bytes() {
                    break;
                }
                body = self.source.since(start);
            }
            if !doc.quoted {
                self.expansions(body);
            }
        }
    }

    /// Reads the expansions of a text, as in a here-document or an arithmetic expression.
    fn expansions(&mut self, text: &[u8]) {
        let (source, depth, here_docs) = (Cursor::new(text), self.depth, Vec::new());
        let mut reader = Reader { source, depth, here_docs, report: &mut *self.report };
        let mut ignored = Draft::default();
        while let Some(byte) = reader.source.peek(0) {
            match byte {
                b'\\' => reader.source.advance(2),
                b'$' => reader.dollar(&mut ignored, true),
                b'`' => reader.backquotes(&mut ignored, true),
                _ => reader.source.advance(1),
            }
        }
    }

    /// Reads a word up to a blank or an operator. It is empty where none begins.
    fn word(&mut self) -> Word {
        let start = self.source.pos();
        let mut draft = Draft::default();
        while let Some(byte) = self.source.peek(0) {
            match byte {
                b'<' | b'>' if self.source.peek(1) == Some(b'(') => {
                    self.source.advance(2);
                    self.nested(|reader| reader.list(true));
                    draft.push_hole();
                }
                b'(' if draft.is_known() && self.is_array(start) => self.words_in_parens(1, &mut draft),
                b'?' | b'*' | b'+' | b'@' | b'!' if self.source.peek(1) == Some(b'(') => {
                    self.words_in_parens(2, &mut draft);
                }
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                _ => self.word_part(byte, &mut draft),
            }
        }
        draft.finish(self.source.since(start))
    }

    fn word_part(&mut self, byte: u8, draft: &mut Draft) {
        match byte {
            b'\'' => self.single_quotes(draft),
            b'"' => self.double_quotes(draft),
            b'\\' if self.source.peek(1) == Some(b'\n') => self.source.advance(2),
            b'\\' => {
                draft.quoted = true;
                self.source.advance(1);
                draft.push(self.source.take());
            }
            b'$' => self.dollar(draft, false),
            b'`' => self.backquotes(draft, false),
            // `[`, `[[` and `{` are names where they stand alone, and `{}` is the placeholder of `find` and `xargs`.
            b'[' | b'{' if matches!(self.source.peek(1), None | Some(b' ' | b'\t' | b'\n' | b'[' | b'}')) => {
                draft.push(self.source.take());
            }
            // Patterns and braces are not expanded.
            b'*' | b'?' | b'[' | b'{' => {
                draft.push(self.source.take());
                draft.make_unknown();
            }
            _ => draft.push(self.source.take()),
        }
    }

    /// Whether the word so far is the `NAME=` of `NAME=( words )`.
    fn is_array(&self, start: usize) -> bool {
        let word = self.source.since(start);
        word.ends_with(b"=") && variable_name(&String::from_utf8_lossy(word)).is_some()
    }

    /// Reads an array or a pattern such as `@(a|b)`: its words are not commands, but their substitutions run.
    fn words_in_parens(&mut self, opening: usize, draft: &mut Draft) {
        self.source.advance(opening);
        draft.push_hole();
        self.nested(|reader| {
            let mut open = 1usize;
            while open > 0 {
                reader.source.skip_blanks();
                match reader.source.peek(0) {
                    None => return reader.unbalanced(),
                    Some(b'(') => open += 1,
                    Some(b')') => open -= 1,
                    Some(b'\n' | b';' | b'&' | b'|') => {}
                    Some(b'<' | b'>') if reader.source.peek(1) != Some(b'(') => {}
                    Some(_) => {
                        reader.word();
                        continue;
                    }
                }
                reader.source.advance(1);
            }
        });
    }

    fn single_quotes(&mut self, draft: &mut Draft) {
        draft.quoted = true;
        self.source.advance(1);
        let start = self.source.pos();
        self.source.advance_while(|byte| byte != b'\'');
        draft.push(self.source.since(start).iter().copied());
        if self.source.take().is_none() {
            self.unbalanced();
        }
    }

    fn double_quotes(&mut self, draft: &mut Draft) {
        draft.quoted = true;
        self.source.advance(1);
        while let Some(byte) = self.source.peek(0) {
            match byte {
                b'"' => return self.source.advance(1),
                b'\\' => {
                    match self.source.peek(1) {
                        Some(b'\n') | None => {}
                        Some(next @ (b'"' | b'\\' | b'$' | b'`')) => draft.push([next]),
                        Some(next) => draft.push([b'\\', next]),
                    }
                    self.source.advance(2);
                }
                b'$' => self.dollar(draft, true),
                b'`' => self.backquotes(draft, true),
                _ => draft.push(self.source.take()),
            }
        }
        self.unbalanced();
    }

    /// `$(…)`, `$((…))`, `${…}`, `$'…'`, `$"…"`, `$name`, or a dollar sign.
    fn dollar(&mut self, draft: &mut Draft, in_quotes: bool) {
        match self.source.peek(1) {
            Some(b'(') => {
                self.source.advance(2);
                if self.source.peek(0) != Some(b'(') || !self.arithmetic() {
                    self.nested(|reader| reader.list(true));
                }
                draft.push_hole();
            }
            Some(b'{') => {
                self.source.advance(2);
                self.parameter(in_quotes);
                draft.push_hole();
            }
            Some(b'\'') if !in_quotes => self.ansi_quotes(draft),
            Some(b'"') if !in_quotes => self.source.advance(1),
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                self.source.advance(1);
                self.source.advance_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                draft.push_hole();
            }
            Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => {
                self.source.advance(2);
                draft.push_hole();
            }
            _ => draft.push(self.source.take()),
        }
    }

    /// Reads `$'…'`. Its escapes are not decoded, so a text with one is unknown.
    fn ansi_quotes(&mut self, draft: &mut Draft) {
        draft.quoted = true;
        self.source.advance(2);
        while let Some(byte) = self.source.peek(0) {
            match byte {
                b'\'' => return self.source.advance(1),
                b'\\' => {
                    self.source.advance(2);
                    draft.push_hole();
                }
                _ => draft.push(self.source.take()),
            }
        }
        self.unbalanced();
    }

    /// Reads the inside of `${…}`.
    fn parameter(&mut self, in_quotes: bool) {
        let mut ignored = Draft::default();
        let mut open = 1usize;
        while let Some(byte) = self.source.peek(0) {
            match byte {
                b'}' => {
                    self.source.advance(1);
                    open -= 1;
                    if open == 0 {
                        return;
                    }
                }
                b'\\' => self.source.advance(2),
                b'\'' if !in_quotes => self.single_quotes(&mut ignored),
                // Counted here rather than read by `dollar`, so that nesting costs no stack.
                b'$' if self.source.peek(1) == Some(b'{') => {
                    self.source.advance(2);
                    open += 1;
                }
                b'$' => self.dollar(&mut ignored, true),
                b'`' => self.backquotes(&mut ignored, in_quotes),
                _ => self.source.advance(1),
            }
        }
        self.unbalanced();
    }

    /// Reads `(…))` of an arithmetic expression; `false` if it is none.
    fn arithmetic(&mut self) -> bool {
        let Some(inside) = self.source.arithmetic() else { return false };
        self.nested(|reader| reader.expansions(inside));
        true
    }

    fn backquotes(&mut self, draft: &mut Draft, in_quotes: bool) {
        self.source.advance(1);
        draft.push_hole();
        let mut inside = Vec::new();
        loop {
            match (self.source.peek(0), self.source.peek(1)) {
                (None, _) => break self.unbalanced(),
                (Some(b'`'), _) => break self.source.advance(1),
                (Some(b'\\'), Some(next @ (b'`' | b'\\' | b'$'))) => inside.push(next),
                (Some(b'\\'), Some(b'"')) if in_quotes => inside.push(b'"'),
                (Some(byte), _) => {
                    inside.push(byte);
                    self.source.advance(1);
                    continue;
                }
            }
            self.source.advance(2);
        }
        self.nested(|reader| read(&String::from_utf8_lossy(&inside), reader.depth, reader.report));
    }

    /// Reads something that may contain itself.
    fn nested(&mut self, read: impl FnOnce(&mut Self)) {
        if self.depth + 1 >= DEPTH_MAX {
            self.source.advance(usize::MAX);
            return self.report(Event::Unknown(TOO_DEEP.to_owned()));
        }
        self.depth += 1;
        read(self);
        self.depth -= 1;
    }

    fn unbalanced(&mut self) {
        self.report(Event::Unknown(UNBALANCED.to_owned()));
    }

    fn report(&mut self, event: Event) {
        (self.report)(event, self.depth);
    }
}
