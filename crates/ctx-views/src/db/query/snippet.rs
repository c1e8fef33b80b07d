//! Cutting a snippet out of a long text, in a time that grows with the text alone.

use std::collections::VecDeque;

use super::search::Piece;

/// Words in a snippet.
pub(super) const WORDS: usize = 24;
/// Of them before the first hit.
const WORDS_BEFORE: usize = 8;

/// A word that is looked for, in lower case.
pub(super) struct Wanted {
    pub(super) word: String,
    /// Whether what begins so is found too.
    pub(super) is_beginning: bool,
}

impl Wanted {
    fn is(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        if self.is_beginning { word.starts_with(&self.word) } else { word == self.word }
    }
}

/// The words of a text and where each begins.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let base = text.as_ptr() as usize;
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(move |word| (word.as_ptr() as usize - base, word))
}

/// The text around the first hit, in pieces; its beginning when none is found (the search knows more forms of a
/// letter than we do).
pub(super) fn cut(text: &str, wanted: &[Wanted]) -> Vec<Piece> {
    let is_hit = |word: &str| wanted.iter().any(|wanted| wanted.is(word));
    let mut before: VecDeque<usize> = VecDeque::new();
    let mut start = 0;
    for (at, word) in tokens(text) {
        before.push_back(at);
        if is_hit(word) {
            start = before.front().copied().unwrap_or(at);
            break;
        }
        if before.len() > WORDS_BEFORE {
            before.pop_front();
        }
    }
    let rest = text.get(start..).unwrap_or_default();
    let mut pieces = Vec::new();
    let mut done = 0;
    let mut push = |text: Option<&str>, is_hit: bool| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            pieces.push(Piece { text: text.to_owned(), is_hit });
        }
    };
    if start > 0 {
        push(Some("…"), false);
    }
    let mut end = 0;
    for (at, word) in tokens(rest).take(WORDS) {
        end = at + word.len();
        if is_hit(word) {
            push(rest.get(done..at), false);
            push(Some(word), true);
            done = end;
        }
    }
    push(rest.get(done..end), false);
    if end < rest.len() {
        push(Some("…"), false);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(word: &str) -> Wanted {
        let is_beginning = word.ends_with('*');
        Wanted { word: word.trim_end_matches('*').to_owned(), is_beginning }
    }

    fn shown(pieces: &[Piece]) -> String {
        pieces.iter().map(|p| if p.is_hit { format!("[{}]", p.text) } else { p.text.clone() }).collect()
    }

    #[test]
    fn the_text_around_the_first_hit_is_shown() {
        let text = format!("{}the Needle, and needles: here {}", "hay ".repeat(50), "more ".repeat(50));
        let begin = "…hay hay hay hay hay hay hay the [Needle], and [needles]: here ";
        let pieces = cut(&text, &[wanted("needle*")]);
        assert!(shown(&pieces).starts_with(begin), "{}", shown(&pieces));
        assert!(shown(&pieces).ends_with("more…"));
        assert_eq!(tokens(&shown(&pieces)).count(), WORDS);
        assert_eq!(shown(&cut("ein Wort", &[wanted("wort")])), "ein [Wort]");
        assert_eq!(shown(&cut("nothing here", &[wanted("needle")])), "nothing here");
    }

    proptest! {
        #[test]
        fn any_text_can_be_cut(text in "\\PC{0,200}", word in "[a-zäß]{1,3}\\*?") {
            let pieces = cut(&text, &[wanted(&word)]);
            let joined: String = pieces.iter().map(|p| p.text.as_str()).collect();
            prop_assert!(text.contains(joined.trim_matches('…')) || joined.contains('…'));
        }
    }
}
