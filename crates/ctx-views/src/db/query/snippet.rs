//! Cutting a snippet out of a long text, in a time that grows with the text alone.

use std::collections::VecDeque;

use super::search::Piece;
use crate::db::spaced::is_token;

/// Words in a snippet.
pub(super) const WORDS: usize = 24;
/// Of them before the first hit.
const WORDS_BEFORE: usize = 8;

/// What is looked for, in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Word(String),
    /// What begins so is found too.
    Beginning(String),
    /// Characters in a row, of a script without spaces.
    Row(String),
}

impl Wanted {
    /// The words and rows of something that is looked for.
    pub(super) fn of(word: &str, is_beginning: bool) -> Vec<Wanted> {
        let mut found = Vec::new();
        let mut ends_at = 0;
        for (at, token) in tokens(word) {
            let is_of_row = token.chars().all(is_token);
            match found.last_mut() {
                Some(Wanted::Row(row)) if is_of_row && at == ends_at => row.push_str(token),
                _ if is_of_row => found.push(Wanted::Row(token.to_owned())),
                _ => found.push(Wanted::Word(token.to_lowercase())),
            }
            ends_at = at + token.len();
        }
        if let Some(Wanted::Word(word)) = found.last_mut().filter(|_| is_beginning) {
            let word = std::mem::take(word);
            found.pop();
            found.push(Wanted::Beginning(word));
        }
        found
    }

    /// How many bytes of a text it is, if it stands where this token begins.
    fn len_at(&self, text: &str, at: usize, token: &str) -> Option<usize> {
        match self {
            Wanted::Word(word) if token.is_ascii() => token.eq_ignore_ascii_case(word).then_some(token.len()),
            Wanted::Word(word) => (token.to_lowercase() == *word).then_some(token.len()),
            Wanted::Beginning(word) => token.to_lowercase().starts_with(word).then_some(token.len()),
            Wanted::Row(row) => text.get(at..)?.starts_with(row).then_some(row.len()),
        }
    }
}

/// The words of a text and where each begins. A character of a script without spaces is one.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let base = text.as_ptr() as usize;
    let words = text.split(|c: char| !c.is_alphanumeric()).flat_map(|word| word.split_inclusive(is_token));
    let words = words.flat_map(|word| {
        // What was parted after such a character may have another word before it.
        let last =
            word.char_indices().next_back().filter(|(_, c)| is_token(*c)).map_or(word.len(), |(at, _)| at);
        let (before, last) = word.split_at_checked(last).unwrap_or((word, ""));
        [before, last]
    });
    words.filter(|word| !word.is_empty()).map(move |word| (word.as_ptr() as usize - base, word))
}

/// Counts how often a text has each of these, and how many words it has.
pub(super) fn count(text: &str, wanted: &[Wanted], counts: &mut [u32]) -> u32 {
    let mut length = 0;
    for (at, token) in tokens(text) {
        length += 1;
        for (wanted, count) in wanted.iter().zip(counts.iter_mut()) {
            *count += u32::from(wanted.len_at(text, at, token).is_some());
        }
    }
    length
}

/// The text around the first hit, in pieces; its beginning when none is found (the search knows more forms of a
/// letter than we do).
pub(super) fn cut(text: &str, wanted: &[Wanted]) -> Vec<Piece> {
    let hit = |text: &str, at: usize, token: &str| {
        wanted.iter().filter_map(|wanted| wanted.len_at(text, at, token)).max()
    };
    let mut before: VecDeque<usize> = VecDeque::new();
    let mut start = 0;
    for (at, word) in tokens(text) {
        before.push_back(at);
        if hit(text, at, word).is_some() {
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
        end = end.max(at + word.len());
        // What stands in a row that was shown is shown.
        if at >= done
            && let Some(len) = hit(rest, at, word)
        {
            push(rest.get(done..at), false);
            push(rest.get(at..at + len), true);
            done = at + len;
            end = done;
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

    fn wanted(word: &str) -> Vec<Wanted> {
        Wanted::of(word, word.ends_with('*'))
    }

    fn shown(pieces: &[Piece]) -> String {
        pieces.iter().map(|p| if p.is_hit { format!("[{}]", p.text) } else { p.text.clone() }).collect()
    }

    #[test]
    fn the_text_around_the_first_hit_is_shown() {
        let text = format!("{}the Needle, and needles: here {}", "hay ".repeat(50), "more ".repeat(50));
        let begin = "…hay hay hay hay hay hay hay the [Needle], and [needles]: here ";
        let pieces = cut(&text, &wanted("needle*"));
        assert!(shown(&pieces).starts_with(begin), "{}", shown(&pieces));
        assert!(shown(&pieces).ends_with("more…"));
        assert_eq!(tokens(&shown(&pieces)).count(), WORDS);
        assert_eq!(shown(&cut("ein Wort", &wanted("wort"))), "ein [Wort]");
        assert_eq!(shown(&cut("nothing here", &wanted("needle"))), "nothing here");
        assert_eq!(shown(&cut("私は東京towerへ", &wanted("東京tower"))), "私は[東京][tower]へ");
        let late = format!("{}毎日、日本語を話す", "本日は".repeat(30));
        assert_eq!(shown(&cut(&late, &wanted("日本"))).matches('[').count(), 1, "the row alone");
        assert!(shown(&cut(&late, &wanted("日本"))).contains("毎日、[日本]語を話す"));
    }

    proptest! {
        #[test]
        fn any_text_can_be_cut(text in "\\PC{0,200}", word in "[a-zäß]{1,3}\\*?") {
            let pieces = cut(&text, &wanted(&word));
            let joined: String = pieces.iter().map(|p| p.text.as_str()).collect();
            prop_assert!(text.contains(joined.trim_matches('…')) || joined.contains('…'));
        }
    }
}
