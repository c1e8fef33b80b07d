//! What is remembered of a line that passes by: whether it is a request, and its id.
//!
//! This is no JSON parser: it also tells the id of a line that is no JSON, or that is too long to be kept.

use rmcp::model::RequestId;

/// A key or an id that is longer is none that matters.
const TOKEN_BYTES_MAX: usize = 256;

/// What is remembered of a JSON object while it passes by: whether it has a method, and its id.
#[derive(Debug, Default)]
pub(super) struct Outline {
    depth: u32,
    place: Place,
    /// The present key or value of the outermost object, as far as it may matter.
    token: Vec<u8>,
    key: Key,
    id: Option<RequestId>,
    has_id: bool,
    has_method: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum Place {
    #[default]
    Between,
    String,
    /// Behind a backslash in a string.
    Escape,
}

#[derive(Debug, Default, Clone, Copy)]
enum Key {
    Id,
    Method,
    #[default]
    Other,
}

impl Outline {
    /// The id of a request; answers and notices have none to be answered by.
    pub fn request_id(self) -> Option<RequestId> {
        self.id.filter(|_| self.has_method)
    }

    /// Whether nobody waits for an answer.
    pub fn is_notice(&self) -> bool {
        self.has_method && !self.has_id
    }

    /// Takes the next bytes, cut anywhere. In a string it searches for the next quote or backslash, because a long line is mostly strings.
    pub fn take(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            match self.place {
                Place::Between => {
                    self.between(*byte);
                    bytes = rest;
                }
                Place::Escape => {
                    self.note(&[*byte]);
                    self.place = Place::String;
                    bytes = rest;
                }
                Place::String => {
                    let len = memchr::memchr2(b'"', b'\\', bytes).map_or(bytes.len(), |at| at + 1);
                    let (part, rest) = bytes.split_at(len);
                    self.note(part);
                    self.place = match part.last() {
                        Some(b'"') => Place::Between,
                        Some(b'\\') => Place::Escape,
                        _ => Place::String,
                    };
                    bytes = rest;
                }
            }
        }
    }

    /// Takes a byte outside of strings. Only keys of the outermost object count: an `id` among the params is not the request's.
    fn between(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.note(b"\"");
                self.place = Place::String;
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_value(),
            b':' if self.depth == 1 => {
                self.key = match self.token.as_slice() {
                    b"\"id\"" => Key::Id,
                    b"\"method\"" => Key::Method,
                    _ => Key::Other,
                };
                self.token.clear();
            }
            byte if byte.is_ascii_whitespace() => {}
            byte => self.note(&[byte]),
        }
    }

    /// Remembers a piece of a token of the outermost object.
    fn note(&mut self, part: &[u8]) {
        if self.depth == 1 {
            // A piece that does not fit spoils the token on purpose: half an id is none.
            let room = (TOKEN_BYTES_MAX + 1).saturating_sub(self.token.len());
            self.token.extend_from_slice(part.get(..room).unwrap_or(part));
        }
    }

    /// Ends a value. An id that is too long stays unknown, but the line has one and so is no notice.
    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        self.has_id |= matches!(self.key, Key::Id);
        match self.key {
            Key::Id if self.token.len() <= TOKEN_BYTES_MAX => {
                self.id = serde_json::from_slice(&self.token).ok()
            }
            Key::Method => self.has_method = true,
            Key::Id | Key::Other => {}
        }
        self.token.clear();
        self.key = Key::Other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(line: &str, cut: usize) -> Option<RequestId> {
        let mut outline = Outline::default();
        for part in line.as_bytes().chunks(cut) {
            outline.take(part);
        }
        outline.request_id()
    }

    #[test]
    fn an_id_is_found_wherever_it_stands_and_however_the_line_is_cut() {
        let text = r#"say \"id\":9, {\\"#;
        for (line, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#.to_owned(), Some(RequestId::Number(7))),
            (
                format!(r#"{{ "method" : "x", "params": {{"id":1,"a":["{text}",{{"id":2}}]}}, "id" : 8 }}"#),
                Some(RequestId::Number(8)),
            ),
            (r#"{"method":"x","id":"a\"b"}"#.to_owned(), Some(RequestId::String("a\"b".into()))),
            (r#"{"id":3,"result":{"method":"x"}}"#.to_owned(), None),
            (r#"{"method":"x","params":{"id":4}}"#.to_owned(), None),
            (format!(r#"{{"method":"x","id":"{}"}}"#, "a".repeat(300)), None),
            ("no JSON at all }}}}]]".to_owned(), None),
            (r#"[{"id":1,"method":"x"}]"#.to_owned(), None),
        ] {
            for cut in [1, 2, 3, 1000] {
                assert_eq!(id_of(&line, cut), id, "{line} in pieces of {cut}");
            }
        }
    }
}
