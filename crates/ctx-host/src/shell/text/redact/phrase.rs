//! Whether a quoted value with blanks in it is a passphrase rather than a sentence, a template or code.
//!
//! `"password": "correct horse 9 battery"` is a secret, `"password": "at least 8 characters"` a text for a form. Nothing
//! but the words tells the two apart: sentences have small words (`at`, `your`, `must`) and name what they speak of, drawn
//! words do neither. A passphrase that is a sentence is not found.

/// Without a digit, so many words at least.
const PLAIN_WORDS_MIN: usize = 4;

/// Words of sentences about passwords, in a few languages.
const SENTENCE_WORDS: &str = "\
    a al almeno an and any are as at au be bitte but by bytes can cannot caracteres caratteri char character \
    characters chars clave code com con contain contains contrasena das de debe dein deine der deve di die digit \
    digits do does doit du een ein el email enter et expired expires failed field for from gebruik has haslo \
    have heslo het hours if ihr il in incorrect invalid is ist it kennwort key la le least length les letter \
    letters login long longer los losenord match max maximum menos min mindestens minimaal minimum minutes \
    missing mit moet moins more mot muss must my need needs new nicht no not number numbers oder of old on one \
    only optional or ou parola passe passord passphrase password passwords passwort pin please por repeat \
    required reset salasana secret senha set should su sua symbol symbols tekens than that the their this to \
    token too tu type uma una und use user username using uw van vos votre wachtwoord was weak will with without \
    wrong you your zeichen zu";

/// Whether a value is such a phrase. Without a digit it is one only where `certain`: the name leaves no doubt.
pub(super) fn is_phrase(value: &[u8], certain: bool) -> bool {
    let is_of_code =
        |byte: &u8| !byte.is_ascii() || byte.is_ascii_control() || b"(){}[]<>;=\\\"`|".contains(byte);
    let has_edges = value.first().is_some_and(u8::is_ascii_alphanumeric)
        && value.last().is_some_and(|byte| *byte != b' ');
    if !has_edges || value.iter().any(is_of_code) {
        return false;
    }
    let words = || value.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    if words().any(is_of_sentence) {
        return false;
    }
    let has_digit = value.iter().any(u8::is_ascii_digit);
    let with_letters = words().filter(|word| word.iter().any(u8::is_ascii_alphabetic)).count();
    let are_plain = || words().all(|word| word.iter().all(u8::is_ascii_lowercase));
    if has_digit { with_letters >= 2 } else { certain && with_letters >= PLAIN_WORDS_MIN && are_plain() }
}

fn is_of_sentence(word: &[u8]) -> bool {
    let is_around = |byte: &u8| byte.is_ascii_punctuation();
    let from = word.iter().take_while(|byte| is_around(byte)).count();
    let rest = word.get(from..).unwrap_or_default();
    let to = rest.len() - rest.iter().rev().take_while(|byte| is_around(byte)).count();
    let word = rest.get(..to).unwrap_or_default();
    SENTENCE_WORDS.split(' ').any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}
