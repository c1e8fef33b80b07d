//! Credentials in URLs and in the headers of HTTP requests.

use super::Span;
use super::shape::{Alphabet, is_placeholder};

const CREDENTIAL_BYTES_MIN: usize = 8;
/// The value of a header is not looked at further.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// The password of `scheme://user:password@host`, whose colon stands at `at`.
pub(super) fn url_password(text: &[u8], at: usize) -> Option<Span> {
    let from = at + "://".len();
    let is_end =
        |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control() || b"/?#\"'`<>\\|,".contains(byte);
    let authority = &text[from..];
    let authority = &authority[..authority.iter().position(is_end).unwrap_or(authority.len())];
    let user_info = &authority[..memchr::memrchr(b'@', authority)?];
    let user = memchr::memchr(b':', user_info)?;
    let password = &user_info[user + 1..];
    let has_host = authority.len() > user_info.len() + 1;
    let has_scheme = text[..at].last().is_some_and(u8::is_ascii_alphanumeric);
    (has_host && has_scheme && !is_placeholder(password)).then_some((from + user + 1, from + user_info.len()))
}

/// Where the value of a header ends that begins at `from`: with its line, or with the quote that opened before the
/// name or the value.
fn header_end(text: &[u8], from: usize, quote: Option<u8>) -> usize {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r') || Some(*byte) == quote;
    let limit = text.len().min(from + HEADER_BYTES_MAX);
    let end = text[from..limit].iter().position(is_end).map_or(limit, |len| from + len);
    // The quote of a string in a string has a backslash before it.
    if quote.is_some() && text[from..end].ends_with(b"\\") { end - 1 } else { end }
}

/// The value of an `Authorization` header that begins at `from`, without its scheme.
pub(super) fn authorization(text: &[u8], from: usize, quote: Option<u8>) -> Option<Span> {
    let end = header_end(text, from, quote);
    let value = &text[from..end];
    let scheme = Alphabet::Url.run(value, 0, value.len());
    let has_scheme = value.get(scheme) == Some(&b' ');
    let credential = value[if has_scheme { scheme + 1 } else { 0 }..].trim_ascii_start();
    let from = end - credential.len();
    let credential = credential.trim_ascii_end();
    let has = |class: fn(&u8) -> bool| credential.iter().any(class);
    let is_random = has(u8::is_ascii_digit) || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let first = credential.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let is_one = credential.len() >= CREDENTIAL_BYTES_MIN
        && is_random
        && (has_scheme || has(u8::is_ascii_digit))
        && !is_placeholder(credential)
        // One word, or the parameters of a scheme that has some.
        && (first.len() == credential.len() || first.contains(&b'='));
    is_one.then_some((from, from + credential.len()))
}

/// The value of a `Cookie` or `Set-Cookie` header that begins at `from`. The attributes of `Set-Cookie` stay.
pub(super) fn cookie(text: &[u8], from: usize, quote: Option<u8>, is_set: bool) -> Option<Span> {
    let end = header_end(text, from, quote);
    let value = text[from..end].trim_ascii_end();
    let value = match value.iter().position(|byte| *byte == b';') {
        Some(len) if is_set => &value[..len],
        _ => value,
    };
    let content = memchr::memchr(b'=', value).map_or(&b""[..], |at| &value[at + 1..]);
    let is_one = content.len() >= CREDENTIAL_BYTES_MIN && !is_placeholder(value);
    is_one.then_some((from, from + value.len()))
}
