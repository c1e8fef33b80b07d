//! Reads a command as a POSIX shell or bash would, only to find the programs in it.
//!
//! It is tolerant: what a shell would refuse is read as far as it makes sense, and no input makes it fail.
//! It expands nothing. A word with an expansion in it is unknown, and the commands inside of
//! substitutions are read like any others.

use super::Program;
use super::wrap;

/// Substitutions and strings of commands inside one another, at most.
pub(super) const DEPTH_MAX: usize = 32;
/// Programs that are told of one command, at most.
const PROGRAMS_MAX: usize = 10_000;
/// How much of a text is shown in a message.
const SHOWN_CHARS_MAX: usize = 60;

pub(super) fn programs(command: &str) -> Vec<Program> {
    let mut finds = Finds::default();
    read_commands(command.as_bytes(), 0, &mut finds);
    finds.into_programs()
}

/// Reads a text as commands of their own: the argument of `bash -c`, the inside of backticks.
pub(super) fn read_commands(source: &[u8], depth: usize, finds: &mut Finds) {
    if depth >= DEPTH_MAX {
        return finds.unknown(source);
    }
    let mut parser = Parser { source, pos: 0, depth, here_docs: Vec::new(), finds };
    parser.list(End::Text);
}

/// What was found so far.
#[derive(Default)]
pub(super) struct Finds {
    programs: Vec<Program>,
    functions: Vec<String>,
}

impl Finds {
    pub fn named(&mut self, name: &str) {
        self.add(Program::Named(name.to_owned()));
    }

    pub fn unknown(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        self.add(Program::Unknown(shown));
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

/// A word after the quotes are gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Word {
    pub text: Vec<u8>,
    /// The word as it was written.
    pub raw: Vec<u8>,
    /// Whether an expansion may change the text.
    pub expands: bool,
    /// Whether any part was quoted: then it is no reserved word.
    pub quoted: bool,
}

impl Word {
    /// The text, if it is what the program will see.
    pub fn known(&self) -> Option<&[u8]> {
        (!self.expands).then_some(&self.text)
    }

    fn is_reserved(&self, text: &[u8]) -> bool {
        !self.quoted && !self.expands && self.text == text
    }

    /// `NAME=…`, `NAME+=…` or `NAME[…]=…`, with the name outside of quotes.
    pub fn is_assignment(&self) -> bool {
        let Some(at) = self.raw.iter().position(|byte| *byte == b'=') else { return false };
        let name = self.raw.get(..at).unwrap_or_default();
        let name = name.strip_suffix(b"+").unwrap_or(name);
        let name = name.split(|byte| *byte == b'[').next().unwrap_or(name);
        name.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
            && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
    }
}

/// Where a list of commands ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Text,
    /// The `)` of a substitution.
    Paren,
    /// `;;` or `esac`.
    CaseItem,
}

enum Token {
    End,
    Newline,
    Word(Word),
    /// A separator or operator between commands.
    Operator(&'static str),
    Redirect(Redirect),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Redirect {
    File,
    HereString,
    HereDoc { strips_tabs: bool },
}

struct HereDoc {
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

struct Parser<'a> {
    source: &'a [u8],
    pos: usize,
    depth: usize,
    here_docs: Vec<HereDoc>,
    finds: &'a mut Finds,
}

impl Parser<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.source.get(self.pos + ahead).copied()
    }

    fn looking_at(&self, text: &[u8]) -> bool {
        self.source.get(self.pos..).is_some_and(|rest| rest.starts_with(text))
    }

    /// Reads commands up to the end; tells whether a case item ended with `esac`.
    fn list(&mut self, end: End) -> bool {
        if self.depth >= DEPTH_MAX {
            self.finds.unknown(b"(nested too deeply)");
            self.pos = self.source.len();
            return true;
        }
        self.depth += 1;
        let mut command = self.new_command();
        let mut saw_esac = true;
        loop {
            match self.token() {
                Token::End => break,
                Token::Operator(")") if end == End::Paren => break,
                Token::Operator(";;") if end == End::CaseItem => {
                    saw_esac = false;
                    break;
                }
                Token::Operator("(") => self.open_paren(&mut command),
                Token::Operator(_) => self.finish(&mut command),
                Token::Newline => {
                    self.finish(&mut command);
                    self.read_here_docs();
                    command.here_docs = 0;
                }
                Token::Redirect(kind) => self.redirect(kind, &mut command),
                Token::Word(word) if command.words.is_empty() => {
                    if end == End::CaseItem && word.is_reserved(b"esac") {
                        break;
                    }
                    self.first_word(word, &mut command);
                }
                Token::Word(word) => command.words.push(word),
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

    /// The end of a simple command: its programs are told.
    fn finish(&mut self, command: &mut Command) {
        let reads_stdin = wrap::run(&command.words, self.depth, self.finds);
        if reads_stdin {
            for doc in self.here_docs.iter_mut().skip(command.here_docs) {
                doc.is_code = true;
            }
            for word in &command.strings {
                match word.known() {
                    Some(text) => read_commands(text, self.depth, self.finds),
                    None => self.finds.unknown(&word.raw),
                }
            }
        }
        *command = self.new_command();
    }

    /// `(` begins a subshell, an arithmetic command, or the `()` of a function.
    fn open_paren(&mut self, command: &mut Command) {
        let names_function = command.words.len() == 1;
        if names_function {
            self.skip_blanks();
            if self.peek(0) == Some(b')') {
                self.pos += 1;
                let name = command.words.first().map(|word| String::from_utf8_lossy(&word.text).into_owned());
                self.finds.functions.extend(name);
                *command = self.new_command();
                return;
            }
        }
        self.finish(command);
        if self.peek(0) == Some(b'(') {
            let start = self.pos;
            self.pos += 1;
            if !self.arithmetic() {
                self.pos = start;
            }
        }
    }

    /// A word where a command may begin: reserved words, assignments, or the command's name.
    fn first_word(&mut self, word: Word, command: &mut Command) {
        const BETWEEN: &[&[u8]] = &[
            b"if", b"then", b"else", b"elif", b"fi", b"while", b"until", b"do", b"done", b"{", b"}", b"!",
            b"esac", b"coproc",
        ];
        if BETWEEN.iter().any(|reserved| word.is_reserved(reserved)) {
            return;
        }
        if word.is_reserved(b"time") {
            self.skip_blanks();
            if self.looking_at(b"-p") {
                self.pos += 2;
            }
        } else if word.is_reserved(b"for") || word.is_reserved(b"select") {
            self.for_words();
        } else if word.is_reserved(b"case") {
            self.case_items();
        } else if word.is_reserved(b"function") {
            if let Token::Word(name) = self.token() {
                self.finds.functions.push(String::from_utf8_lossy(&name.text).into_owned());
            }
        } else if word.is_reserved(b"[[") {
            self.condition();
        } else if word.is_assignment() {
            if word.raw.ends_with(b"=") && self.peek(0) == Some(b'(') {
                self.array();
            }
        } else {
            command.words.push(word);
        }
    }

    /// `for NAME in words` or `for ((…))`, up to the separator.
    fn for_words(&mut self) {
        self.skip_blanks();
        if self.looking_at(b"((") {
            self.pos += 2;
            self.arithmetic();
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

    /// `NAME=( words )`.
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
                let mut parser = Parser {
                    source: &body,
                    pos: 0,
                    depth: self.depth,
                    here_docs: Vec::new(),
                    finds: self.finds,
                };
                parser.expansions();
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
    fn expansions(&mut self) {
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

    /// Blanks, escaped line ends and comments.
    fn skip_blanks(&mut self) {
        loop {
            match self.peek(0) {
                Some(b' ' | b'\t' | b'\r') => self.pos += 1,
                Some(b'\\') if self.peek(1) == Some(b'\n') => self.pos += 2,
                Some(b'#') => {
                    while self.peek(0).is_some_and(|byte| byte != b'\n') {
                        self.pos += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn token(&mut self) -> Token {
        self.skip_blanks();
        const OPERATORS: &[&[u8]] = &[b";;&", b";;", b";&", b"&&", b"||", b"|&", b";", b"|", b"(", b")"];
        match self.peek(0) {
            None => return Token::End,
            Some(b'\n') => {
                self.pos += 1;
                return Token::Newline;
            }
            _ => {}
        }
        if let Some(kind) = self.redirection() {
            return Token::Redirect(kind);
        }
        if let Some(operator) = OPERATORS.iter().find(|operator| self.looking_at(operator)) {
            self.pos += operator.len();
            return Token::Operator(match *operator {
                b"(" => "(",
                b")" => ")",
                b";;" | b";&" | b";;&" => ";;",
                _ => ";",
            });
        }
        if self.peek(0) == Some(b'&') {
            self.pos += 1;
            return Token::Operator(";");
        }
        match self.word() {
            Some(word) => Token::Word(word),
            None => Token::End,
        }
    }

    /// A redirection operator, with the number before it. `<(…)` is a word.
    fn redirection(&mut self) -> Option<Redirect> {
        let rest = self.source.get(self.pos..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rest = rest.get(digits..)?;
        let (kind, len) = match rest {
            [b'<' | b'>', b'(', ..] => return None,
            [b'<', b'<', b'<', ..] => (Redirect::HereString, 3),
            [b'<', b'<', b'-', ..] => (Redirect::HereDoc { strips_tabs: true }, 3),
            [b'<', b'<', ..] => (Redirect::HereDoc { strips_tabs: false }, 2),
            [b'&', b'>', b'>', ..] if digits == 0 => (Redirect::File, 3),
            [b'&', b'>', ..] if digits == 0 => (Redirect::File, 2),
            [b'>', b'>' | b'&' | b'|', ..] | [b'<', b'&' | b'>', ..] => (Redirect::File, 2),
            [b'<' | b'>', ..] => (Redirect::File, 1),
            _ => return None,
        };
        self.pos += digits + len;
        Some(kind)
    }

    /// A word, with everything that may stand in one.
    fn word(&mut self) -> Option<Word> {
        let start = self.pos;
        let mut word = Word::default();
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                b'<' | b'>' if self.peek(1) == Some(b'(') => {
                    self.pos += 2;
                    word.expands = true;
                    self.list(End::Paren);
                }
                b'<' | b'>' => break,
                b'\'' => self.single_quotes(&mut word),
                b'"' => self.double_quotes(&mut word),
                b'\\' => self.escape(&mut word),
                b'$' => self.dollar(&mut word, false),
                b'`' => self.backticks(&mut word, false),
                b'*' | b'?' | b'[' => {
                    // A pattern may become any name; `[` alone is a program.
                    word.expands |=
                        !(byte == b'[' && matches!(self.peek(1), None | Some(b' ' | b'\t' | b'[')));
                    self.take(&mut word);
                }
                b'{' if self.is_brace_list() => {
                    word.expands = true;
                    self.take(&mut word);
                }
                _ => self.take(&mut word),
            }
        }
        word.raw = self.source.get(start..self.pos.min(self.source.len())).unwrap_or_default().to_vec();
        // A stray byte that begins no word is skipped, so that every call moves on.
        if self.pos == start {
            self.pos += 1;
        }
        (self.pos <= self.source.len()).then_some(word)
    }

    fn take(&mut self, word: &mut Word) {
        word.text.extend(self.peek(0));
        self.pos += 1;
    }

    /// `{a,b}` or `{1..3}`.
    fn is_brace_list(&self) -> bool {
        let rest = self.source.get(self.pos..).unwrap_or_default();
        let inside = rest.iter().take(256).take_while(|byte| !byte.is_ascii_whitespace() && **byte != b'}');
        let inside: Vec<u8> = inside.copied().collect();
        inside.contains(&b',') || inside.windows(2).any(|two| two == b"..")
    }

    fn escape(&mut self, word: &mut Word) {
        self.pos += 1;
        if self.peek(0) != Some(b'\n') {
            word.quoted = true;
            word.text.extend(self.peek(0));
        }
        self.pos += 1;
    }

    fn single_quotes(&mut self, word: &mut Word) {
        word.quoted = true;
        self.pos += 1;
        while let Some(byte) = self.peek(0) {
            self.pos += 1;
            if byte == b'\'' {
                return;
            }
            word.text.push(byte);
        }
    }

    fn double_quotes(&mut self, word: &mut Word) {
        word.quoted = true;
        self.pos += 1;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'"' => {
                    self.pos += 1;
                    return;
                }
                b'\\' => {
                    match self.peek(1) {
                        Some(b'\n') => {}
                        Some(next @ (b'"' | b'\\' | b'$' | b'`')) => word.text.push(next),
                        Some(next) => word.text.extend([b'\\', next]),
                        None => {}
                    }
                    self.pos += 2;
                }
                b'$' => self.dollar(word, true),
                b'`' => self.backticks(word, true),
                _ => self.take(word),
            }
        }
    }

    /// `$(…)`, `$((…))`, `${…}`, `$'…'`, `$"…"`, `$name`.
    fn dollar(&mut self, word: &mut Word, in_quotes: bool) {
        match self.peek(1) {
            Some(b'(') => {
                word.expands = true;
                self.pos += 2;
                let start = self.pos;
                if self.peek(0) == Some(b'(') {
                    self.pos += 1;
                    if self.arithmetic() {
                        return;
                    }
                    self.pos = start;
                }
                self.list(End::Paren);
            }
            Some(b'{') => {
                word.expands = true;
                self.pos += 2;
                self.parameter();
            }
            Some(b'\'') if !in_quotes => {
                self.pos += 2;
                self.ansi_quotes(word);
            }
            Some(b'"') if !in_quotes => self.pos += 1,
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => {
                word.expands = true;
                self.pos += 1;
                while self.peek(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
                    self.pos += 1;
                }
            }
            Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => {
                word.expands = true;
                self.pos += 2;
            }
            _ => self.take(word),
        }
    }

    /// The inside of `${…}`, up to its brace.
    fn parameter(&mut self) {
        let mut ignored = Word::default();
        let mut open = 1usize;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'}' => {
                    self.pos += 1;
                    open -= 1;
                    if open == 0 {
                        return;
                    }
                }
                b'\\' => self.pos += 2,
                b'\'' => self.single_quotes(&mut ignored),
                // Nested quotes and braces do not recurse into one another without a `$`.
                b'"' => self.pos += 1,
                b'$' if self.peek(1) == Some(b'{') => {
                    self.pos += 2;
                    open += 1;
                }
                b'$' => self.dollar(&mut ignored, true),
                b'`' => self.backticks(&mut ignored, false),
                _ => self.pos += 1,
            }
        }
    }

    /// The inside of `((…))`; `false` when it does not end with `))` and so was a subshell in a subshell.
    fn arithmetic(&mut self) -> bool {
        let mut ignored = Word::default();
        let mut open = 2usize;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'(' => {
                    open += 1;
                    self.pos += 1;
                }
                b')' if open == 2 => {
                    let is_end = self.peek(1) == Some(b')');
                    self.pos += 2;
                    return is_end;
                }
                b')' => {
                    open -= 1;
                    self.pos += 1;
                }
                b'\\' => self.pos += 2,
                b'\'' => self.single_quotes(&mut ignored),
                b'"' => self.double_quotes(&mut ignored),
                b'$' => self.dollar(&mut ignored, false),
                b'`' => self.backticks(&mut ignored, false),
                _ => self.pos += 1,
            }
        }
        false
    }

    fn backticks(&mut self, word: &mut Word, in_quotes: bool) {
        word.expands = true;
        self.pos += 1;
        let mut inside = Vec::new();
        while let Some(byte) = self.peek(0) {
            self.pos += 1;
            match (byte, self.peek(0)) {
                (b'`', _) => break,
                (b'\\', Some(next @ (b'`' | b'\\' | b'$'))) => {
                    inside.push(next);
                    self.pos += 1;
                }
                (b'\\', Some(b'"')) if in_quotes => {
                    inside.push(b'"');
                    self.pos += 1;
                }
                _ => inside.push(byte),
            }
        }
        read_commands(&inside, self.depth, self.finds);
    }

    /// The inside of `$'…'`.
    fn ansi_quotes(&mut self, word: &mut Word) {
        word.quoted = true;
        while let Some(byte) = self.peek(0) {
            self.pos += 1;
            match byte {
                b'\'' => return,
                b'\\' => self.ansi_escape(word),
                _ => word.text.push(byte),
            }
        }
    }

    fn ansi_escape(&mut self, word: &mut Word) {
        let Some(byte) = self.peek(0) else { return };
        self.pos += 1;
        let (radix, digits_max) = match byte {
            b'x' => (16, 2),
            b'u' => (16, 4),
            b'U' => (16, 8),
            b'0'..=b'7' => {
                self.pos -= 1;
                (8, 3)
            }
            b'n' => return word.text.push(b'\n'),
            b't' => return word.text.push(b'\t'),
            other => return word.text.push(other),
        };
        let mut value = 0u32;
        for _ in 0..digits_max {
            let Some(digit) = self.peek(0).and_then(|b| char::from(b).to_digit(radix)) else { break };
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.pos += 1;
        }
        let char = char::from_u32(value).unwrap_or('\u{fffd}');
        word.text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
