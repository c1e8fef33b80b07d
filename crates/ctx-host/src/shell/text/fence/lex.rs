//! The words and operators of a command: quotes, escapes, expansions, redirections.
//!
//! A word knows whether its text is final. The commands inside of its substitutions are read on the way.

use super::Assignment;
use super::braces::Mark;
use super::parse::{DEPTH_MAX, End, Parser, read_commands};

/// A longer arithmetic expression is read as commands.
const ARITHMETIC_BYTES_MAX: usize = 1024;
/// A longer choice, `@(a|b)`, is none.
const CHOICE_BYTES_MAX: usize = 1024;

/// A word after the quotes are gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Word {
    pub text: Vec<u8>,
    /// The word as it was written.
    pub raw: Vec<u8>,
    /// Whether an expansion may change the text.
    pub expands: bool,
    /// Whether that can only be one to the names of files.
    pub globs: bool,
    /// Whether any part was quoted: then it is no reserved word.
    pub quoted: bool,
    /// The braces outside of quotes and the expansions, each at its place in the text.
    pub marks: Vec<(usize, Mark)>,
}

impl Word {
    /// The text, if it is what the program will see.
    pub fn known(&self) -> Option<&[u8]> {
        (!self.expands).then_some(&self.text)
    }

    /// What stands behind the last slash, where nothing is put in there: `rm` of `"$HOME"/bin/rm`.
    pub fn literal_base(&self) -> Option<&[u8]> {
        let from = self.text.iter().rposition(|byte| *byte == b'/')? + 1;
        let unknown = |(at, mark): &(usize, Mark)| *mark == Mark::Unknown && *at >= from;
        let is_known = !self.marks.is_empty() && !self.marks.iter().any(unknown);
        self.text.get(from..).filter(|base| is_known && !base.is_empty() && !self.text.starts_with(b"-"))
    }

    pub fn is_reserved(&self, text: &[u8]) -> bool {
        !self.quoted && !self.expands && self.text == text
    }

    /// The word as if it were only this part of its text; nothing where that is empty and will stay so.
    pub fn cut_to(&self, part: &[u8]) -> Option<Word> {
        let raw = if self.expands { &self.raw } else { part };
        let is_there = self.expands || !part.is_empty();
        let cut = || Word { raw: raw.to_vec(), text: part.to_vec(), marks: Vec::new(), ..self.clone() };
        is_there.then(cut)
    }

    /// `NAME=…`, `NAME+=…` or `NAME[…]=…`, with the name outside of quotes.
    pub fn is_assignment(&self) -> bool {
        self.assigned_name().is_some()
    }

    /// `{NAME}`, outside of quotes.
    fn is_in_braces(&self) -> bool {
        let name = self.raw.strip_prefix(b"{").and_then(|raw| raw.strip_suffix(b"}"));
        name.is_some_and(|name| {
            !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
        })
    }

    /// The variable and its value, where both are known.
    pub fn assignment(&self) -> Option<Assignment> {
        let name = String::from_utf8_lossy(self.assigned_name()?).into_owned();
        let text = self.known()?;
        let at = text.iter().position(|byte| *byte == b'=')?;
        Some(Assignment { name, value: text.get(at + 1..)?.to_vec() })
    }

    /// `NAME=…` as a program sees it, also with the name in quotes: `env "A=b c" rm`.
    pub fn names_variable(&self) -> bool {
        assigned_name(&self.text).is_some()
    }

    fn assigned_name(&self) -> Option<&[u8]> {
        assigned_name(&self.raw)
    }
}

/// One step of a command.
pub(super) enum Token {
    End,
    Newline,
    Word(Word),
    /// A separator or operator between commands.
    Operator(&'static str),
    Redirect(Redirect),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redirect {
    File,
    HereString,
    HereDoc { strips_tabs: bool },
}

impl Parser<'_> {
    /// Blanks, escaped line ends and comments.
    pub fn skip_blanks(&mut self) {
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

    pub fn token(&mut self) -> Token {
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
                b"|" | b"|&" => "|",
                _ => ";",
            });
        }
        if self.peek(0) == Some(b'&') {
            self.pos += 1;
            return Token::Operator(";");
        }
        match self.word() {
            // `{fd}>file`: the number of the redirection gets a name.
            Some(word) if word.is_in_braces() && matches!(self.peek(0), Some(b'<' | b'>')) => self.token(),
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
    pub fn word(&mut self) -> Option<Word> {
        let start = self.pos;
        let mut word = Word::default();
        let (mut expands, mut globs) = (false, true);
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                b'<' | b'>' if self.peek(1) == Some(b'(') => {
                    self.pos += 2;
                    word.expands = true;
                    self.list(End::Paren);
                }
                b'<' | b'>' => break,
                b'?' | b'*' | b'+' | b'@' | b'!' if self.choice(&mut word) => {}
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
                b'{' => self.mark(Mark::Open, &mut word),
                b',' => self.mark(Mark::Comma, &mut word),
                b'}' => self.mark(Mark::Close, &mut word),
                b'.' if self.peek(1) == Some(b'.') && self.peek(2) != Some(b'}') => {
                    self.mark(Mark::Dots, &mut word);
                }
                _ => self.take(&mut word),
            }
            if std::mem::take(&mut word.expands) {
                expands = true;
                globs &= !matches!(byte, b'$' | b'`' | b'"' | b'<' | b'>');
                // Those inside of quotes are noted there.
                if byte != b'"' {
                    word.marks.push((word.text.len(), Mark::Unknown));
                }
            }
        }
        (word.expands, word.globs) = (expands, expands && globs);
        word.raw = self.source.get(start..self.pos.min(self.source.len())).unwrap_or_default().to_vec();
        // A stray byte that begins no word is skipped, so that every call moves on.
        if self.pos == start {
            self.pos += 1;
        }
        (self.pos <= self.source.len()).then_some(word)
    }

    /// Reads `@(a|b)` and its like, and says whether it is one. No command is in there but in substitutions: a shell
    /// without such patterns refuses the text.
    fn choice(&mut self, word: &mut Word) -> bool {
        if self.peek(1) != Some(b'(') {
            return false;
        }
        let inside = self.source.get(self.pos + 2..).unwrap_or_default();
        // `f@()` defines a function.
        let Some(len) = choice_len(inside).filter(|len| *len > 0) else { return false };
        let inside = inside.get(..len).unwrap_or_default();
        self.pos += len + 3;
        if self.depth < DEPTH_MAX {
            Parser::new(inside, self.depth + 1, self.finds).expansions();
        } else {
            self.finds.unknown(inside);
        }
        // To be a pattern of names it need not be read any closer.
        word.text.push(b'*');
        word.expands = true;
        true
    }

    fn take(&mut self, word: &mut Word) {
        word.text.extend(self.peek(0));
        self.pos += 1;
    }

    fn mark(&mut self, mark: Mark, word: &mut Word) {
        word.marks.push((word.text.len(), mark));
        self.take(word);
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
                b'$' | b'`' => {
                    let before = std::mem::take(&mut word.expands);
                    if byte == b'$' {
                        self.dollar(word, true)
                    } else {
                        self.backticks(word, true)
                    }
                    if word.expands {
                        word.marks.push((word.text.len(), Mark::Unknown));
                    }
                    word.expands |= before;
                }
                _ => self.take(word),
            }
        }
    }

    /// `$(…)`, `$((…))`, `${…}`, `$'…'`, `$"…"`, `$name`.
    pub fn dollar(&mut self, word: &mut Word, in_quotes: bool) {
        match self.peek(1) {
            Some(b'(') => {
                word.expands = true;
                self.pos += 2;
                if self.peek(0) != Some(b'(') || !self.arithmetic(1) {
                    self.list(End::Paren);
                }
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

    /// Reads `((…))` from `ahead` on; `false` when it does not end with `))`, and so is a subshell in a
    /// subshell or a substitution: then nothing was read.
    pub fn arithmetic(&mut self, ahead: usize) -> bool {
        let inside = self.source.get(self.pos + ahead..).unwrap_or_default();
        let Some(len) = arithmetic_len(inside) else { return false };
        let inside = inside.get(..len).unwrap_or_default();
        self.pos += ahead + len + 2;
        if self.depth >= DEPTH_MAX {
            self.finds.unknown(inside);
            return true;
        }
        Parser::new(inside, self.depth + 1, self.finds).expansions();
        true
    }

    pub fn backticks(&mut self, word: &mut Word, in_quotes: bool) {
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

/// The name before `=`, where it is one of a variable.
fn assigned_name(text: &[u8]) -> Option<&[u8]> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    let name = text.get(..at)?;
    let name = name.strip_suffix(b"+").unwrap_or(name);
    let name = name.split(|byte| *byte == b'[').next().unwrap_or(name);
    let is_name = name.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    is_name.then_some(name)
}

/// How long the inside of `@(…)` is, if it ends in its line.
fn choice_len(source: &[u8]) -> Option<usize> {
    let mut open = 0usize;
    let mut bytes = source.iter().enumerate().take(CHOICE_BYTES_MAX);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'(' => open += 1,
            b')' if open == 0 => return Some(at),
            b')' => open -= 1,
            b'\\' => drop(bytes.next()),
            b'\'' | b'"' => drop(bytes.find(|(_, end)| *end == byte)),
            b'\n' => return None,
            _ => {}
        }
    }
    None
}

/// How long the inside of `((…))` is, if it ends as one.
fn arithmetic_len(source: &[u8]) -> Option<usize> {
    let mut open = 0usize;
    let mut bytes = source.iter().enumerate().take(ARITHMETIC_BYTES_MAX);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'(' => open += 1,
            b')' if open == 0 => return (source.get(at + 1) == Some(&b')')).then_some(at),
            b')' => open -= 1,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    None
}
