//! Credentials in URLs and in the headers of HTTP requests.

use super::shape::{Alphabet, is_placeholder};
use super::{MARK, Span};

const CREDENTIAL_BYTES_MIN: usize = 8;
/// A user of a URL is a token, if it has so many letters and digits and nothing else.
const USER_TOKEN_BYTES_MIN: usize = 20;
/// Behind one of these stands a credential, whatever it looks like.
const SCHEMES: &str =
    "bearer basic token digest negotiate ntlm apikey api-key key oauth hawk splunk ssws aws4-hmac-sha256";

/// The password of `scheme://user:password@host`, or the token of `scheme://token@host`, whose colon stands at `at`.
pub(super) fn url_password(text: &[u8], at: usize) -> Option<Span> {
    let from = at + "://".len();
    let is_end = |byte: &u8| *byte <= b' ' || b"/?#\"'`<>\\|\x7f".contains(byte);
    let authority = text[from..].split(is_end).next().unwrap_or_default();
    let user_info = &authority[..memchr::memrchr(b'@', authority)?];
    let has = |class: fn(&u8) -> bool| user_info.iter().any(class);
    let is_token = user_info.len() >= USER_TOKEN_BYTES_MIN
        && user_info.iter().all(u8::is_ascii_alphanumeric)
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic);
    let user = memchr::memchr(b':', user_info).map(|colon| colon + 1);
    let user = user.or_else(|| is_token.then_some(0))?;
    let password = &user_info[user..];
    let has_host = authority.len() > user_info.len() + 1;
    let has_scheme = text[..at].last().is_some_and(u8::is_ascii_alphanumeric);
    let is_hidden = is_placeholder(password) || user_info.starts_with(MARK);
    (has_host && has_scheme && !is_hidden).then_some((from + user, from + user_info.len()))
}

/// Where the value of a header ends that begins at `from`: with its line, or with the quote that opened before the
/// name or the value.
fn header_end(text: &[u8], from: usize, quote: Option<u8>) -> usize {
    let end = memchr::memchr3(b'\n', b'\r', quote.unwrap_or(b'\n'), &text[from..]);
    let end = end.map_or(text.len(), |len| from + len);
    // The quote of a string in a string has a backslash before it.
    if quote.is_some() && text[from..end].ends_with(b"\\") { end - 1 } else { end }
}

/// The value of an `Authorization` header that begins at `from`, without its scheme: the word behind a known scheme
/// whatever follows it, all parameters of a scheme that has some, or else what looks random and is the whole value.
pub(super) fn authorization(text: &[u8], from: usize, quote: Option<u8>) -> Option<Span> {
    let end = header_end(text, from, quote);
    let value = &text[from..end];
    let (scheme, rest) = value.split_at(Alphabet::Url.run(value, 0, value.len()));
    let has_scheme = rest.starts_with(b" ");
    let credential = if has_scheme { rest } else { value }.trim_ascii_start();
    let credential = credential.strip_prefix(b"\"").unwrap_or(credential);
    let from = end - credential.len();
    let credential = credential.trim_ascii_end();
    let is_end = |byte: &u8| *byte <= b' ' || b"\"'`\\,;()[]{}<>\x7f".contains(byte);
    let word = credential.split(is_end).next().unwrap_or_default();
    let has = |class: fn(&u8) -> bool| credential.iter().any(class);
    let is_random = has(u8::is_ascii_digit) || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let is_known =
        has_scheme && SCHEMES.split(' ').any(|known| scheme.eq_ignore_ascii_case(known.as_bytes()));
    let is_whole = word.len() == credential.len();
    let (len, is_one) = match (has_parameters(credential), is_known) {
        (true, _) => (credential.len(), has_scheme && is_random),
        (false, true) => (word.len(), true),
        (false, false) => (word.len(), is_whole && is_random && (has_scheme || has(u8::is_ascii_digit))),
    };
    let is_one = is_one && len >= CREDENTIAL_BYTES_MIN && !is_placeholder(&credential[..len]);
    is_one.then_some((from, from + len))
}

/// `username="tom", …`, where the `=` of base64 has nothing behind it.
fn has_parameters(credential: &[u8]) -> bool {
    let name = Alphabet::Url.run(credential, 0, credential.len());
    let Some(value) = credential[name..].strip_prefix(b"=") else { return false };
    let value = value.strip_prefix(b"\\").unwrap_or(value);
    value.strip_prefix(b"\"").unwrap_or(value).first().is_some_and(u8::is_ascii_alphanumeric)
}

/// The value of a `Cookie` or `Set-Cookie` header that begins at `from`. The attributes of `Set-Cookie` stay.
pub(super) fn cookie(text: &[u8], from: usize, quote: Option<u8>, is_set: bool) -> Option<Span> {
    let end = header_end(text, from, quote);
    let value = text[from..end].trim_ascii_end();
    let value = match value.iter().position(|byte| *byte == b';') {
        Some(len) if is_set => &value[..len],
        _ => value,
    };
    let content = |pair: &[u8]| memchr::memchr(b'=', pair).map_or(pair.len(), |at| at + 1);
    let is_one = value.len() - content(value) >= CREDENTIAL_BYTES_MIN
        && !value.split(|byte| *byte == b';').all(|pair| is_placeholder(&pair[content(pair)..]));
    is_one.then_some((from, from + value.len()))
}
