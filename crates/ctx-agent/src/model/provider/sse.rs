//! Server-sent events out of bytes as they arrive, however they are cut. Pure.

/// One event: its name, empty where the server gives none, and its data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    pub event: String,
    pub data: String,
}

/// A line or an event is longer than any provider's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// The most bytes of one event.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A stream that is read.
#[derive(Debug, Default)]
pub struct Sse {
    /// Bytes behind the last whole line.
    rest: Vec<u8>,
    /// Of the rest, how many have no line end in them.
    searched: usize,
    /// The last line ended in CR, so that an LF right behind it belongs to that line end.
    after_cr: bool,
    begun: bool,
    now: Message,
    has_data: bool,
    ready: std::collections::VecDeque<Message>,
}

impl Sse {
    /// Takes in what arrived.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.rest.extend_from_slice(bytes);
        let mut used = 0;
        while let Some((line_end, next)) = self.line_end(used) {
            let line = self.rest.get(used..line_end).unwrap_or_default();
            let line = String::from_utf8_lossy(line).into_owned();
            used = next;
            self.take_line(&line);
        }
        self.rest.drain(..used);
        self.searched = self.rest.len();
        let kept = self.rest.len().max(self.now.data.len());
        if kept > EVENT_BYTES_MAX { Err(TooLong) } else { Ok(()) }
    }

    /// The next whole event. What the stream ends in the middle of is none.
    pub fn pop(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    /// Where the line that begins at `from` ends, and where the next one begins.
    fn line_end(&mut self, mut from: usize) -> Option<(usize, usize)> {
        if self.after_cr {
            match self.rest.get(from) {
                None => return None,
                Some(b'\n') => {
                    self.rest.remove(from);
                    self.searched = from;
                }
                Some(_) => {}
            }
            self.after_cr = false;
        }
        from = from.max(self.searched.min(self.rest.len()));
        let found = self.rest.iter().skip(from).position(|byte| matches!(byte, b'\n' | b'\r'))?;
        let at = from + found;
        self.after_cr = self.rest.get(at) == Some(&b'\r');
        self.searched = at + 1;
        Some((at, at + 1))
    }

    fn take_line(&mut self, line: &str) {
        let line = if self.begun { line } else { line.strip_prefix('\u{feff}').unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            let message = std::mem::take(&mut self.now);
            if std::mem::take(&mut self.has_data) {
                self.ready.push_back(message);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.now.event = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.now.data.push('\n');
                }
                self.has_data = true;
                self.now.data.push_str(value);
            }
            // Comments, and fields for browsers that connect again.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}: hello\n\nevent: a\ndata: {\"x\":1}\n\ndata:one\r\ndata: two é\r\n\r\n\
                          id: 7\rdata: three\r\rdata\n\nevent: lost\n\ndata: cut off";

    fn read(chunks: impl Iterator<Item = Vec<u8>>) -> Vec<(String, String)> {
        let mut sse = Sse::default();
        let mut found = Vec::new();
        for chunk in chunks {
            sse.push(&chunk).unwrap();
            found.extend(std::iter::from_fn(|| sse.pop()).map(|message| (message.event, message.data)));
        }
        found
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let pair = |event: &str, data: &str| (event.to_owned(), data.to_owned());
        let whole = [pair("a", "{\"x\":1}"), pair("", "one\ntwo é"), pair("", "three"), pair("", "")];
        for size in 1..=STREAM.len() {
            let chunks = STREAM.as_bytes().chunks(size).map(<[u8]>::to_vec);
            assert_eq!(read(chunks), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut sse = Sse::default();
        let piece = vec![b'x'; EVENT_BYTES_MAX / 2];
        assert_eq!(sse.push(b"data: "), Ok(()));
        assert_eq!(sse.push(&piece), Ok(()));
        assert_eq!(sse.push(&piece), Err(TooLong));
    }
}
