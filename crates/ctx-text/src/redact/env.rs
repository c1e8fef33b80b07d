//! Which variables of an environment are secrets, by their names and values. How a value is found in a text is not
//! decided here.

use super::names::telling_kind;

/// A shorter value would hide too many words.
pub(super) const VALUE_BYTES_MIN: usize = 8;
/// A line of a value with several lines is hidden by itself, if it has so many bytes.
const LINE_BYTES_MIN: usize = 16;
/// A value of small letters that is shorter is a word.
const WORD_BYTES_MAX: usize = 12;
/// The name of a column or a number is shorter.
const COLUMN_BYTES_MAX: usize = 24;

/// Names with such a last word say where a secret is, or what it is like.
const HARMLESS: &str = "FILE PATH DIR SOCK ID NAME TYPE URL URI HOST USER STORE TTL LENGTH ALGORITHM";
/// A word of a secret's name ends in one of these,
const ENDINGS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];
/// or is one of these,
const WORDS: [&str; 7] = ["PASS", "CREDENTIALS", "KEYS", "TOKENS", "SECRETS", "PASSWORDS", "AUTH"];
/// or its last word is one of these.
const LAST_WORDS: [&str; 6] = ["PWD", "PW", "PAT", "SK", "CRED", "CREDS"];

/// Whether a variable is a secret, by its name and its value.
pub fn is_secret(name: &str, value: &[u8]) -> bool {
    let value = value.trim_ascii();
    is_secret_name(name) && is_secret_value(value) && !is_column(name, value)
}

/// Whether a variable of this name may be a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let last = words.clone().next_back().unwrap_or_default();
    if HARMLESS.split(' ').any(|word| word == last) {
        return false;
    }
    let tells = |word: &str| ENDINGS.iter().any(|ending| word.ends_with(ending)) || WORDS.contains(&word);
    // `PWD` alone is the shell's own.
    words.clone().any(tells) || LAST_WORDS.contains(&last) && (name.len() > last.len() || last == "CREDS")
}

/// The texts that a value is found by: the value, or its lines, each of which may be printed alone.
pub(super) fn texts(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let has_lines = value.contains(&b'\n');
    value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(move |line| {
        let is_long = line.len() >= LINE_BYTES_MIN && line.iter().any(u8::is_ascii_digit);
        !has_lines || is_long && is_secret_value(line)
    })
}

/// `SORT_KEY=created_at`, `PRIMARY_KEY=7000000000`: a key of a table.
fn is_column(name: &str, value: &[u8]) -> bool {
    let is_word = value.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_');
    let is_number = value.iter().all(u8::is_ascii_digit);
    let is_key = name.to_ascii_uppercase().ends_with("_KEY") && telling_kind(name.as_bytes()).is_none();
    is_key && (is_word || is_number) && value.len() < COLUMN_BYTES_MAX
}

/// Whether such a variable's value is long enough, and neither a path, nor a plain word, nor one byte over and over.
fn is_secret_value(value: &[u8]) -> bool {
    let is_word = value.iter().all(u8::is_ascii_lowercase) && value.len() < WORD_BYTES_MAX;
    let slashes = value.iter().filter(|byte| **byte == b'/').count();
    let is_path = value.starts_with(b"/") && slashes > 1 && !value.contains(&b'=');
    let is_one_byte = value.iter().all(|byte| Some(byte) == value.first());
    value.len() >= VALUE_BYTES_MIN && !is_word && !is_path && !value.starts_with(b"arn:aws") && !is_one_byte
}
