//! Reading requests: one line each, never more than a frame in memory.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Whole(Vec<u8>),
    /// Longer than a frame may be; it was skipped to its end.
    TooLong,
}

/// Reads lines of at most `max` bytes, without their LF. A line that the client did not finish is dropped.
pub struct Lines<R> {
    reader: R,
    max: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub fn new(reader: R, max: usize) -> Lines<R> {
        Lines { reader, max }
    }

    /// None at the end of the stream.
    pub async fn next(&mut self) -> std::io::Result<Option<Line>> {
        let mut line = Vec::new();
        let mut too_long = false;
        loop {
            let buffer = self.reader.fill_buf().await?;
            if buffer.is_empty() {
                return Ok(None);
            }
            let (piece, used, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(at) => (buffer.get(..at).unwrap_or_default(), at + 1, true),
                None => (buffer, buffer.len(), false),
            };
            if too_long || line.len() + piece.len() > self.max {
                too_long = true;
                line = Vec::new();
            } else {
                line.extend_from_slice(piece);
            }
            self.reader.consume(used);
            match (ended, too_long) {
                (false, _) => {}
                (true, true) => return Ok(Some(Line::TooLong)),
                (true, false) => return Ok(Some(Line::Whole(line))),
            }
        }
    }

    pub fn into_inner(self) -> R {
        self.reader
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(input: &[u8], max: usize) -> Vec<Line> {
        let mut lines = Lines::new(tokio::io::BufReader::with_capacity(3, input), max);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    #[tokio::test]
    async fn lines_of_up_to_the_limit_are_whole_and_longer_ones_are_skipped() {
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        let got = read_all(b"12345\n123456\n1\n\nunfinished", 5).await;
        assert_eq!(got, [whole("12345"), Line::TooLong, whole("1"), whole("")]);
    }
}
