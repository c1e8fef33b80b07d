//! The beginning and the end of a stream, for the log: by bounds of its own, whatever the caller's budget shows.
//!
//! More is gathered than is shown, so that a secret that is found later on is found whole where the text is cut.

/// How much of a text, from its beginning and from its end, goes into the log.
const SHOWN_BYTES: usize = 4 << 10;
/// What is looked at beyond that.
const MARGIN_BYTES: usize = 4 << 10;
const GATHERED_BYTES: usize = SHOWN_BYTES + MARGIN_BYTES;

/// Gathers both ends of clean text while it passes by. Of much text it copies little.
#[derive(Debug, Default)]
pub(super) struct Gatherer {
    head: String,
    tail: String,
    bytes: u64,
}

/// Both ends of a text that has come to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends {
    /// All of a short text.
    head: String,
    /// The end of a text that is not whole in `head`.
    tail: Option<String>,
    /// Bytes of the whole text.
    bytes: u64,
}

impl Gatherer {
    /// Takes the next piece of clean text.
    pub fn push(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        let room = if self.tail.is_empty() { GATHERED_BYTES - self.head.len() } else { 0 };
        let now = first(text, room);
        self.head.push_str(now);
        let later = &text[now.len()..];
        if later.len() > GATHERED_BYTES {
            self.tail.clear();
        }
        self.tail.push_str(last(later, GATHERED_BYTES));
        // Dropping seldom makes it cheap.
        if self.tail.len() > 4 * GATHERED_BYTES {
            self.tail = last(&self.tail, GATHERED_BYTES).to_owned();
        }
    }

    pub fn finish(self) -> Ends {
        let gathered = (self.head.len() + self.tail.len()) as u64;
        if gathered == self.bytes && self.tail.len() <= GATHERED_BYTES {
            return Ends { head: self.head + &self.tail, tail: None, bytes: self.bytes };
        }
        let tail = last(&self.tail, GATHERED_BYTES).to_owned();
        Ends { head: self.head, tail: Some(tail), bytes: self.bytes }
    }
}

impl Ends {
    pub fn of(text: &str) -> Ends {
        let mut gatherer = Gatherer::default();
        gatherer.push(text);
        gatherer.finish()
    }

    /// Changes the text, to take something out of it.
    pub fn change(&mut self, change: impl Fn(&str) -> String) {
        self.head = change(&self.head);
        self.tail = self.tail.as_deref().map(change);
    }

    /// The text for the log: all of it where it is short, else both ends and how much is missing between them.
    pub fn text(&self) -> String {
        let Ends { head, tail, bytes } = self;
        let (head, tail, bytes) = match tail {
            None if head.len() <= 2 * SHOWN_BYTES => return head.clone(),
            None => (first(head, SHOWN_BYTES), last(head, SHOWN_BYTES), head.len() as u64),
            // What lies at the cut may be a part of a secret, also where the text has become shorter.
            Some(tail) => (
                first(head, head.len().saturating_sub(MARGIN_BYTES).min(SHOWN_BYTES)),
                last(tail, tail.len().saturating_sub(MARGIN_BYTES).min(SHOWN_BYTES)),
                *bytes,
            ),
        };
        let missing = bytes.saturating_sub((head.len() + tail.len()) as u64);
        format!("{head}\n[… {missing} bytes …]\n{tail}")
    }
}

fn first(text: &str, len: usize) -> &str {
    &text[..text.floor_char_boundary(len)]
}

fn last(text: &str, len: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(len))..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gathered<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Ends {
        let mut gatherer = Gatherer::default();
        pieces.into_iter().for_each(|piece| gatherer.push(piece));
        gatherer.finish()
    }

    #[test]
    fn a_short_text_is_shown_whole_and_a_long_one_says_how_much_is_missing() {
        assert_eq!(Ends::of("short").text(), "short");
        for size in [10_000, 1_000_000] {
            let long = format!("begin {} end", "ä".repeat(size));
            let shown = Ends::of(&long).text();
            assert!(shown.starts_with("begin ä") && shown.ends_with("ä end"), "{shown}");
            let (before, rest) = shown.split_once("\n[… ").unwrap();
            let (missing, after) = rest.split_once(" bytes …]\n").unwrap();
            assert_eq!(missing.parse::<usize>().unwrap() + before.len() + after.len(), long.len());
            assert!(shown.len() < 2 * SHOWN_BYTES + 100 && shown.len() > SHOWN_BYTES);
        }
    }

    #[test]
    fn what_is_found_at_the_cut_is_found_whole() {
        let secret = "needle".repeat(100);
        let middle = "x".repeat(100_000);
        for before in (0..2 * GATHERED_BYTES).step_by(97) {
            let padding = "p".repeat(before);
            let long = format!("{padding}{secret}{middle}{secret}{padding}");
            let mut ends = Ends::of(&long);
            ends.change(|text| text.replace(&secret, "[gone]"));
            assert!(!ends.text().contains("needle"), "{before}");
        }
    }

    proptest! {
        /// However the pieces come, the same is shown.
        #[test]
        fn the_pieces_do_not_matter(
            sizes in prop::collection::vec(prop_oneof![0usize..9, 0usize..20_000], 0..12),
        ) {
            let all: String = (0..sizes.iter().sum::<usize>()).map(|n| if n % 7 == 0 { 'ä' } else { 'x' }).collect();
            let mut rest = all.as_str();
            let pieces = sizes.iter().map(|size| {
                let (now, later) = rest.split_at(rest.floor_char_boundary(*size));
                rest = later;
                now
            });
            let mut pieces: Vec<&str> = pieces.collect();
            pieces.push(rest);
            prop_assert_eq!(gathered(pieces).text(), Ends::of(&all).text());
        }
    }
}
