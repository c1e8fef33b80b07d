//! A position in the text of a command. It never moves beyond the end.

/// A longer `((…))` is not recognised, so that looking for its end costs a bounded time.
const ARITHMETIC_BYTES_MAX: usize = 256;

pub(super) struct Cursor<'a> {
    text: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8]) -> Cursor<'a> {
        Cursor { text, pos: 0 }
    }

    pub fn pos(&self) -> usize {
        self.pos
    }

    pub fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.pos + ahead).copied()
    }

    pub fn looking_at(&self, text: &[u8]) -> bool {
        self.rest().starts_with(text)
    }

    pub fn rest(&self) -> &'a [u8] {
        self.text.split_at(self.pos).1
    }

    /// The text from an earlier position up to this one.
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.text.split_at(self.pos).0.split_at(start).1
    }

    pub fn advance(&mut self, len: usize) {
        self.pos = self.pos.saturating_add(len).min(self.text.len());
    }

    /// Moves over all bytes of a kind.
    pub fn advance_while(&mut self, is_of_kind: fn(u8) -> bool) {
        let other = self.rest().iter().position(|byte| !is_of_kind(*byte));
        self.advance(other.unwrap_or(self.rest().len()));
    }

    /// Moves over one line and returns it without its end.
    pub fn line(&mut self) -> &'a [u8] {
        let start = self.pos;
        self.advance_while(|byte| byte != b'\n');
        let line = self.since(start);
        self.advance(1);
        line
    }

    /// Moves over one byte and returns it.
    pub fn take(&mut self) -> Option<u8> {
        let byte = self.peek(0);
        self.advance(1);
        byte
    }

    /// Moves over blanks, escaped line ends and comments.
    pub fn skip_blanks(&mut self) {
        loop {
            match self.peek(0) {
                Some(b' ' | b'\t' | b'\r') => self.advance(1),
                Some(b'\\') if self.peek(1) == Some(b'\n') => self.advance(2),
                Some(b'#') => self.advance_while(|byte| byte != b'\n'),
                _ => return,
            }
        }
    }

    /// Moves over the `(…))` of an arithmetic expression and returns its inside. Without both closing parentheses
    /// it is a subshell: then it does not move.
    pub fn arithmetic(&mut self) -> Option<&'a [u8]> {
        let inside = self.rest().strip_prefix(b"(")?;
        let mut open = 0usize;
        let mut bytes = inside.iter().enumerate().take(ARITHMETIC_BYTES_MAX);
        let end = loop {
            match bytes.next()? {
                (_, b'(') => open += 1,
                (end, b')') if open == 0 => break end,
                (_, b')') => open -= 1,
                (_, b'\\') => drop(bytes.next()),
                _ => {}
            }
        };
        let (inside, behind) = inside.split_at(end);
        behind.starts_with(b"))").then(|| {
            self.advance(1 + end + 2);
            inside
        })
    }
}
