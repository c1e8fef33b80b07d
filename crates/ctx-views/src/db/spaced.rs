//! Scripts that are written without spaces between words, as the full text takes them: character by character.
//!
//! SQLite's tokenizer parts words at what is neither letter nor digit, so a sentence of Chinese or Japanese would be
//! one word. A space after each such character makes it a token, and a word of several is looked for as a phrase.
//! Korean has spaces, but words with endings, and is taken the same way. See docs/decisions/search-without-spaces.md.

use std::borrow::Cow;

/// Whether a character is a token by itself.
pub(super) fn is_token(c: char) -> bool {
    matches!(c,
        '\u{3005}'..='\u{3007}'      // iteration mark, zero
        | '\u{3041}'..='\u{3096}'    // hiragana
        | '\u{309d}'..='\u{309f}'
        | '\u{30a1}'..='\u{30fa}'    // katakana
        | '\u{30fc}'..='\u{30ff}'
        | '\u{3105}'..='\u{312f}'    // bopomofo
        | '\u{31a0}'..='\u{31bf}'
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'    // han
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}'
        | '\u{ac00}'..='\u{d7a3}'    // hangul
        | '\u{ff66}'..='\u{ff9d}') // halfwidth katakana
}

/// Whether the full text has another form of it than it has itself.
pub(super) fn differs(text: &str) -> bool {
    text.chars().any(is_token)
}

/// The text as the full text takes it.
pub(super) fn spaced(text: &str) -> Cow<'_, str> {
    if !differs(text) {
        return Cow::Borrowed(text);
    }
    let mut spaced = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if is_token(c) {
            spaced.extend([' ', c, ' ']);
        } else {
            spaced.push(c);
        }
    }
    Cow::Owned(spaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_spaces_gets_them_and_the_rest_is_left_alone() {
        assert!(matches!(spaced("plain text, naïve Größe"), Cow::Borrowed(_)));
        let words = |text: &str| spaced(text).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words("日本語"), ["日", "本", "語"]);
        assert_eq!(words("東京towerへ。"), ["東", "京", "tower", "へ", "。"]);
        assert_eq!(words("カタカナー 한국어"), ["カ", "タ", "カ", "ナ", "ー", "한", "국", "어"]);
    }
}
