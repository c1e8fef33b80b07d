//! A word of a command after its quotes were removed, and what is known of it before the command runs.

/// Stands in a word's text for an expansion. Read again as shell text, it is an expansion again.
pub(super) const HOLE: &str = "$_";

/// A variable that a command sets to a text that stands in it: `NAME=text`, also as an argument (`export`, `env`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    pub value: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Word {
    /// The text without quotes, with a `HOLE` for every expansion.
    pub text: String,
    /// The word as it was written.
    pub raw: String,
    /// The length of `text` at its last expansion, pattern or brace; `None` if it has none, so that `text` is final.
    pub unknown_until: Option<usize>,
    /// Whether any part was quoted. A quoted word is not a reserved word.
    pub quoted: bool,
}

impl Word {
    pub fn is_known(&self) -> bool {
        self.unknown_until.is_none()
    }

    /// The name of the program that this word runs: the whole text, or the name behind an unknown directory, as
    /// `rm` in `"$HOME"/bin/rm`.
    pub fn program_name(&self) -> Option<&str> {
        let Some(unknown_until) = self.unknown_until else { return Some(&self.text) };
        let name_start = self.text.rfind('/')? + 1;
        let name = self.text.get(name_start..)?;
        (name_start >= unknown_until && !name.is_empty()).then_some(name)
    }

    /// Whether the word begins with an unquoted expansion, which may become options, several words or none.
    pub fn may_be_options(&self) -> bool {
        !self.quoted && self.text.starts_with(HOLE)
    }

    /// Whether an unquoted expansion in the word may make several words of it.
    pub fn may_split(&self) -> bool {
        !self.quoted && self.text.contains(HOLE)
    }

    pub fn is_bare(&self, text: &str) -> bool {
        !self.quoted && self.is_known() && self.text == text
    }

    /// Whether a shell reads the word as `NAME=…`, `NAME+=…` or `NAME[…]=…`: the name is outside of quotes.
    pub fn is_assignment(&self) -> bool {
        variable_name(&self.raw).is_some()
    }

    /// Whether a program such as `env` reads the word as `NAME=…`: the name may be in quotes.
    pub fn sets_variable(&self) -> bool {
        variable_name(&self.text).is_some()
    }

    /// The variable and its value, if the value is known.
    pub fn assignment(&self) -> Option<Assignment> {
        let name = variable_name(&self.raw).filter(|_| self.is_known())?;
        let (_, value) = self.text.split_once('=')?;
        Some(Assignment { name: name.to_owned(), value: value.as_bytes().to_vec() })
    }

    /// A word of this part of the text. It is as unknown as the whole.
    pub fn part(&self, text: &str) -> Word {
        let unknown_until = self.unknown_until.map(|_| text.len());
        Word { text: text.to_owned(), raw: self.raw.clone(), unknown_until, quoted: self.quoted }
    }

    /// Stands for the words that `xargs` reads and adds to those of a command.
    pub fn input() -> Word {
        let (text, raw) = (HOLE.to_owned(), "the input of xargs".to_owned());
        Word { unknown_until: Some(text.len()), text, raw, quoted: false }
    }

    /// The words as one text, as `eval` joins them.
    pub fn joined(words: &[Word]) -> Word {
        let join = |part: fn(&Word) -> &str| words.iter().map(part).collect::<Vec<_>>().join(" ");
        let text = join(|word| &word.text);
        let unknown_until = words.iter().any(|word| !word.is_known()).then_some(text.len());
        Word { text, raw: join(|word| &word.raw), unknown_until, quoted: true }
    }
}

/// The name before the first `=`, if it can be the name of a variable.
pub(super) fn variable_name(text: &str) -> Option<&str> {
    let (name, _) = text.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split('[').next()?;
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some(name)
}

/// A word that is being read. `Word` describes the fields of the same names.
#[derive(Default)]
pub(super) struct Draft {
    text: Vec<u8>,
    unknown_until: Option<usize>,
    pub quoted: bool,
}

impl Draft {
    pub fn is_known(&self) -> bool {
        self.unknown_until.is_none()
    }

    pub fn push(&mut self, bytes: impl IntoIterator<Item = u8>) {
        self.text.extend(bytes);
    }

    /// Adds an expansion.
    pub fn push_hole(&mut self) {
        self.push(HOLE.bytes());
        self.make_unknown();
    }

    /// Notes that a shell may replace the text up to here.
    pub fn make_unknown(&mut self) {
        self.unknown_until = Some(self.text.len());
    }

    pub fn finish(self, raw: &[u8]) -> Word {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let Draft { unknown_until, quoted, .. } = self;
        Word { text: text(&self.text), raw: text(raw), unknown_until, quoted }
    }
}
