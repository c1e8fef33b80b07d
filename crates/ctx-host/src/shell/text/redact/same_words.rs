//! Whether a value says its own name again, as constants of code do: `ACCESS_TOKEN = "access_token"`.

use super::letters::are_random;

/// What names of headers and of grants end in; people choose passwords that end in `password`.
const LAST_WORDS: [&[u8]; 3] = [b"token", b"tokens", b"credentials"];

/// Whether a value, of letters and what joins words, has the words of its name in it or ends in its last one:
/// `INVALID_TOKEN: 'auth/invalid-token'`, `ACL_CREDENTIALS = "Access-Control-Allow-Credentials"`. A single word is none.
pub(super) fn says_again(name: &[u8], value: &[u8]) -> bool {
    let is_joint = |byte: &u8| matches!(byte, b'_' | b'-' | b'/' | b'.');
    if !value.iter().all(|byte| byte.is_ascii_alphabetic() || is_joint(byte)) {
        return false;
    }
    let (name_last, value_last) = (last_word(name), last_word(value));
    let has_words = value_last.len() < value.len() && value.first().is_some_and(u8::is_ascii_alphabetic);
    let ends_alike = value_last.eq_ignore_ascii_case(name_last)
        && LAST_WORDS.iter().any(|last| last.eq_ignore_ascii_case(name_last));
    let (name, value) = (letters(name), letters(value));
    (has_words && ends_alike && !are_random(&value))
        || (name_last.len() < name.len() && memchr::memmem::find(&value, &name).is_some())
}

/// `Password` of `challengePassword`, `TOKEN` of `USER_TOKEN`.
fn last_word(text: &[u8]) -> &[u8] {
    let begins = |at: &usize| {
        let (before, word) = text.split_at(*at);
        match (before.last(), word.first()) {
            (Some(last), Some(first)) => {
                !last.is_ascii_alphabetic() || (last.is_ascii_lowercase() && first.is_ascii_uppercase())
            }
            _ => true,
        }
    };
    (0..text.len()).rev().find(begins).and_then(|at| text.get(at..)).unwrap_or(text)
}

fn letters(text: &[u8]) -> Vec<u8> {
    text.iter().filter(|byte| byte.is_ascii_alphabetic()).map(u8::to_ascii_lowercase).collect()
}
