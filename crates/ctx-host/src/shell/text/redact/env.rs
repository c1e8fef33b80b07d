//! Which variables of an environment are secrets, by their names and values. Not how they are found in a text.

use super::name::is_key_of_door;

/// A value shorter than this is no secret: too many words would be struck.
const VALUE_BYTES_MIN: usize = 8;
/// A line of a value that is struck by itself, at least.
const LINE_BYTES_MIN: usize = 16;

/// Whether a variable is a secret.
pub(super) fn is_secret(name: &str, value: &[u8]) -> bool {
    is_secret_name(name) && is_secret_value(value) && !is_plain_key(name, value)
}

/// Whether a variable of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let last = parts.clone().next_back().unwrap_or_default();
    let names_a_place = [
        "FILE",
        "PATH",
        "DIR",
        "SOCK",
        "ID",
        "NAME",
        "TYPE",
        "URL",
        "URI",
        "HOST",
        "USER",
        "STORE",
        "TTL",
        "LENGTH",
        "ALGORITHM",
    ];
    if names_a_place.contains(&last) {
        return false;
    }
    let telling = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];
    let whole = ["PASS", "CREDENTIALS", "KEYS", "TOKENS", "SECRETS", "PASSWORDS", "AUTH"];
    let short = ["PWD", "PW", "PAT", "SK", "CRED", "CREDS"];
    parts.any(|part| telling.iter().any(|word| part.ends_with(word)) || whole.contains(&part))
        || (short.contains(&last) && name.len() > last.len())
        || last == "CREDS"
}

/// The lines of a value that has several, each of which may be printed alone or joined to others.
pub(super) fn secret_lines(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let has_lines = value.contains(&b'\n');
    let lines = value.split(|byte| *byte == b'\n').filter(move |_| has_lines).map(<[u8]>::trim_ascii);
    lines.filter(|line| {
        line.len() >= LINE_BYTES_MIN && line.iter().any(u8::is_ascii_digit) && is_secret_value(line)
    })
}

/// `SORT_KEY=created_at`, `PRIMARY_KEY=7`: a key of a table, not of a door.
fn is_plain_key(name: &str, value: &[u8]) -> bool {
    let is_column = value.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_');
    let is_number = value.iter().all(u8::is_ascii_digit);
    let name = name.to_ascii_uppercase();
    let is_of_table = name.strip_suffix("_KEY").is_some_and(|of| !is_key_of_door(of.as_bytes()));
    is_of_table && (is_column || is_number) && value.len() < 24
}

/// Whether such a variable's value is one to strike: long enough, and neither a path nor a plain word.
fn is_secret_value(value: &[u8]) -> bool {
    let is_word = value.iter().all(u8::is_ascii_lowercase) && value.len() < 12;
    let is_path =
        value.starts_with(b"/") && value.iter().filter(|b| **b == b'/').count() > 1 && !value.contains(&b'=');
    let first = value.first().copied().unwrap_or(b' ');
    let is_name = value.starts_with(b"arn:aws");
    value.len() >= VALUE_BYTES_MIN && !is_word && !is_path && !is_name && !value.iter().all(|b| *b == first)
}
