//! Values beside a name that says that they are secret, and what else is found by a `:` or `=`: headers and URLs.
//!
//! A value is a quoted literal, or the whole value of a `NAME=value`, YAML or JSON line. It has at least eight
//! characters of those that secrets are made of, a letter and a digit; anything else beside such a name is code or prose.

use super::shape::Alphabet;
use super::table::TELEGRAM;
use super::{LINE_BYTES_MAX, MARK, Span, credentials};

const VALUE_BYTES_MIN: usize = 8;
/// No telling name is longer, without the marks between its words.
const NAME_BYTES_MAX: usize = 24;

/// The words that names of secrets end in, without the marks between them, behind the kind that is shown.
const ENDINGS: [(&str, &[&str]); 3] = [
    ("password", &["password", "passwd", "passphrase"]),
    ("secret", &["secret", "credential", "credentials", "secretkeybase"]),
    ("token", &["token"]),
];
/// What stands before the `key` of an API key's name.
const KEYS: &str = "api access account admin auth client crypt encryption license master private secret service shared signing storage webhook";
/// What all of these names, and those of headers, end in.
const LAST_LETTERS: [&[u8; 2]; 12] =
    [b"al", b"en", b"et", b"ey", b"ie", b"ls", b"on", b"rd", b"se", b"sk", b"ss", b"wd"];
/// Words that tell only as a whole: `db_pass` and `dbPass`, but not `bypass`.
const WHOLE_WORDS: [&str; 3] = ["pass", "pwd", "psk"];

/// The secret whose name or scheme ends at the `:` or `=` at `at`. The places come in order; `run_end` is where the last
/// value ended, so that a long one with many names in it is looked at once.
pub(super) fn secret_at(text: &[u8], at: usize, run_end: &mut usize) -> Option<(&'static str, Span)> {
    if text[at] == b':' && text[at + 1..].starts_with(b"//") {
        return Some(("url-password", credentials::url_password(text, at)?));
    }
    // Times of day are no bots.
    if text[at] == b':'
        && text[..at].last_chunk::<6>().is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
    {
        return Some((TELEGRAM.kind, TELEGRAM.token_at(text, at, at + 1)?));
    }
    let name = name_before(text, at)?;
    if let Some(kind) = telling_kind(&text[name.from..name.to]) {
        let value = value_behind(text, at, &name, run_end)?;
        let is_harmless = match &text[name.from..name.to] {
            // The shell's own variable, with a directory.
            b"PWD" => text[value.0] == b'/',
            // The result of a test: `PASS: t0001-basic.sh`.
            b"PASS" => text[at] == b':' && text[value.0 - 1].is_ascii_whitespace(),
            _ => false,
        };
        return (!is_harmless).then_some((kind, value));
    }
    header_behind(text, at, &name)
}

/// A name and the quote around it.
struct Name {
    from: usize,
    to: usize,
    quote: Option<u8>,
}

/// The name before a separator, if its last letters may end a telling one: most names are sorted out here.
fn name_before(text: &[u8], at: usize) -> Option<Name> {
    let mut to = at;
    // `:=`, `?=` and `+=` of make and Go.
    if text[at] == b'=' && matches!(text[..to], [.., b':' | b'?' | b'+']) {
        to -= 1;
    }
    to -= text[..to].iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    // `os.environ["API_TOKEN"] = …`
    to -= usize::from(text[..to].ends_with(b"]"));
    let quote = text[..to].last().copied().filter(|byte| matches!(byte, b'"' | b'\''));
    to -= usize::from(quote.is_some());
    // A string in a string.
    to -= usize::from(quote.is_some() && text[..to].ends_with(b"\\"));
    let last_two = text[..to].last_chunk::<2>()?.map(|byte| byte.to_ascii_lowercase());
    if !LAST_LETTERS.contains(&&last_two) {
        return None;
    }
    let mut from = to - Alphabet::Url.run_before(text, to);
    // Behind an escaped newline of a string.
    from += usize::from(text[..from].ends_with(b"\\") && matches!(text[from], b'n' | b'r' | b't'));
    let opening = text[..from].last().copied().filter(|byte| matches!(byte, b'"' | b'\''));
    Some(Name { from, to, quote: opening.filter(|_| quote.is_none()) })
}

/// The kind of secret that a name tells of by the word it ends in.
pub(super) fn telling_kind(name: &[u8]) -> Option<&'static str> {
    let mut letters = [0; NAME_BYTES_MAX];
    let mut start = NAME_BYTES_MAX;
    for byte in name.iter().rev().filter(|byte| !matches!(byte, b'_' | b'-')).take(NAME_BYTES_MAX) {
        start -= 1;
        letters[start] = byte.to_ascii_lowercase();
    }
    let letters = &letters[start..];
    if let Some(before) = letters.strip_suffix(b"key") {
        return KEYS.split(' ').any(|word| before.ends_with(word.as_bytes())).then_some("api-key");
    }
    let ending =
        ENDINGS.iter().find(|(_, words)| words.iter().any(|word| letters.ends_with(word.as_bytes())));
    ending.map(|(kind, _)| *kind).or_else(|| ends_in_whole_word(name).then_some("password"))
}

fn ends_in_whole_word(name: &[u8]) -> bool {
    WHOLE_WORDS.iter().any(|word| {
        let Some(start) = name.len().checked_sub(word.len()) else { return false };
        let (before, end) = name.split_at(start);
        let is_camel = end[0].is_ascii_uppercase() && end[1].is_ascii_lowercase();
        let begins = before.last().is_none_or(|last| !last.is_ascii_alphanumeric() || is_camel);
        begins && end.eq_ignore_ascii_case(word.as_bytes())
    })
}

/// The value behind the separator of a telling name.
fn value_behind(text: &[u8], at: usize, name: &Name, run_end: &mut usize) -> Option<Span> {
    let mut from = at + 1;
    match (text[at], text.get(from)?) {
        // `==`, `::` and the colon of `:=` are no separators.
        (b'=', b'=') | (b':', b':' | b'=') => return None,
        (b'=', b'>') => from += 1,
        _ => {}
    }
    let blanks = text[from..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    from += blanks;
    let backslash = usize::from(text[from..].starts_with(b"\\\"") || text[from..].starts_with(b"\\'"));
    let quote = text.get(from + backslash).copied().filter(|byte| matches!(byte, b'"' | b'\''));
    from += if quote.is_some() { backslash + 1 } else { 0 };
    if from >= *run_end {
        *run_end = from + Alphabet::Any.run(text, from, LINE_BYTES_MAX);
    }
    let to = *run_end;
    let is_whole = match quote {
        Some(quote) => text[to..].strip_prefix(b"\\").unwrap_or(&text[to..]).first() == Some(&quote),
        None => is_whole_value(text, at, name, (to, blanks > 0)),
    };
    let value = &text[from..to];
    let has = |class: fn(&u8) -> bool| value.iter().any(class);
    let is_secret = value.len() >= VALUE_BYTES_MIN
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && !value.contains(&b'%');
    (is_whole && is_secret).then_some((from, to))
}

/// Whether a value without quotes is all that its setting has: up to the end of the line, or of the word where the
/// separator is a `=` without blanks around it.
fn is_whole_value(text: &[u8], at: usize, name: &Name, (to, has_blanks): (usize, bool)) -> bool {
    let rest = &text[to..];
    // `-H 'X-Api-Key: …'`
    if name.quote.is_some() && rest.first() == name.quote.as_ref() {
        return true;
    }
    let is_word = text[at] == b'=' && !has_blanks && name.to == at;
    if is_word {
        // `e.token=t.token1,` is code.
        let is_property = text[..name.from].ends_with(b".");
        let ends = |byte: &u8| match byte {
            b'&' | b';' | b'"' | b'\'' | b'`' | b'\\' | 0 | 0x1b => true,
            b',' => !is_property,
            byte => byte.is_ascii_whitespace(),
        };
        return rest.first().is_none_or(ends);
    }
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    let line_ends = matches!((blanks, rest.get(blanks)), (_, None | Some(b'\n')) | (1.., Some(b'#')));
    let line_start = memchr::memrchr(b'\n', &text[..name.from]).map_or(0, |start| start + 1);
    let before = &text[line_start..name.from];
    // `path:12:` of grep.
    let before = match memchr::memrchr(b':', before) {
        Some(colon) if before[..colon].last().is_some_and(u8::is_ascii_digit) => &before[colon + 1..],
        _ => before,
    };
    // `- token: …` of YAML, `  token = …` of settings, `+  token: …` of a diff, and `> X-Auth-Token: …` of `curl -v`.
    line_ends && before.iter().all(|byte| byte.is_ascii_digit() || b" \t-+<>\"'".contains(byte))
}

/// The credential behind the name of a header.
fn header_behind(text: &[u8], at: usize, name: &Name) -> Option<(&'static str, Span)> {
    let header = &text[name.from..name.to];
    let is = |wanted: &str| header.eq_ignore_ascii_case(wanted.as_bytes());
    let (is_cookie, is_set) = (is("cookie"), is("set-cookie"));
    if !is_cookie && !is_set && !is("authorization") && !is("proxy-authorization") {
        return None;
    }
    let mut from = at + 1;
    from += text[from..].iter().take_while(|byte| **byte == b' ').count();
    // A list as Go prints it, or a string in a string.
    from += usize::from(matches!(text.get(from), Some(b'[' | b'\\')) && !text[from..].starts_with(MARK));
    let quote = text.get(from).copied().filter(|byte| matches!(byte, b'"' | b'\''));
    from += usize::from(quote.is_some());
    let quote = quote.or(name.quote);
    if !is_cookie && !is_set {
        return Some(("authorization", credentials::authorization(text, from, quote)?));
    }
    let is_header = text[at] == b':';
    is_header.then(|| Some(("cookie", credentials::cookie(text, from, quote, is_set)?)))?
}
