//! Secrets that are told by what stands around them: headers, URLs and key blocks.

use super::block::{self, Body};
use super::name::is_of_type;
use super::shape::{Class, More, View};
use super::swallow::{Quote, Swallow};
use super::{Found, Kind};

/// User and password in a URL, at most.
const USERINFO_BYTES_MAX: usize = 1024;
/// A user without a password is taken for a token from this length on.
const URL_TOKEN_BYTES_MIN: usize = 20;
/// What stands in the place of a password where the user is a token.
const URL_DUMMIES: [&[u8]; 6] = [b"", b"x", b"X", b"x-oauth-basic", b"api_token", b"unused"];
/// A bearer token, at least.
const BEARER_BYTES_MIN: usize = 16;
/// The settings of a header, at most.
const SETTINGS_BYTES_MAX: usize = 2048;
/// What signs a request, at least.
const SIGNATURE_BYTES_MIN: usize = 16;
/// The signature of a URL, at least.
const URL_SIGNATURE_BYTES: usize = 64;
/// Bytes of a header value that are weighed.
const WEIGH_BYTES: usize = 64;
const LABEL_BYTES_MAX: usize = 48;
/// A mark of ours, at most.
const MARK_BYTES_MAX: usize = 128;
/// Of a key in base64, as many bytes hold its first line.
const ENCODED_BYTES: usize = 64;

/// Schemes whose value is a credential.
const SCHEMES: &[&str] =
    &["bearer", "basic", "token", "apikey", "digest", "negotiate", "splunk", "genie-key", "sso-key", "ssws"];

/// `Authorization: Bearer …`, with or without quotes; `pos` is after the name.
pub(super) fn authorization(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    if !view.before(start, 7).eq_ignore_ascii_case(b"authori") {
        return Ok(None);
    }
    // `AWS::Config::AggregationAuthorization`.
    if view.before(start, 8).first().is_some_and(u8::is_ascii_alphanumeric) && is_of_type(view, start, b"") {
        return Ok(None);
    }
    let pos = skip_quote(view, pos)?;
    let pos = skip_space(view, pos)?;
    if !matches!(view.at(pos)?, Some(b':' | b'=')) {
        return Ok(None);
    }
    let is_header = view.at(pos)? == Some(b':');
    let pos = skip_quote(view, skip_space(view, pos + 1)?)?;
    for scheme in SCHEMES {
        if view.starts(pos, scheme.as_bytes(), true)? {
            let value = skip_space(view, pos + scheme.len())?;
            if *scheme == "digest" && view.starts(value, b"username=", true)? {
                return setting(view, value, b"response=");
            }
            if value > pos + scheme.len() {
                return header_value(view, value, "authorization", 6);
            }
        }
    }
    if !is_header {
        return Ok(None);
    }
    let Some(found) = header_value(view, pos, "authorization", BEARER_BYTES_MIN)? else { return Ok(None) };
    let value = view.slice(found.from, found.to);
    let is_constant =
        value.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'_' | b','));
    // `AWS4-HMAC-SHA256 Credential=…, Signature=…`: the name of a way to sign.
    if value.ends_with(b"-HMAC-SHA256") {
        return setting(view, found.to, b"Signature=");
    }
    Ok((value.iter().any(u8::is_ascii_digit) && !is_constant).then_some(found))
}

/// The one setting of a header that is a secret: the others say who asks for what. All of it stands on one line.
fn setting(view: View<'_>, pos: usize, name: &[u8]) -> Result<Option<Found>, More> {
    for at in pos..pos + SETTINGS_BYTES_MAX {
        match view.at(at)? {
            Some(b'\n') | None => break,
            Some(byte) if name.first() == Some(&byte) && view.starts(at, name, false)? => {
                let from = skip_quote(view, at + name.len())?;
                return header_value(view, from, "authorization", SIGNATURE_BYTES_MIN);
            }
            Some(_) => {}
        }
    }
    Ok(None)
}

/// A private key in base64 once more, as in a kubeconfig; `pos` is after what its first dashes and `BEGIN` read as. A
/// certificate begins alike.
pub(super) fn encoded_key(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    let to = pos + view.run(pos, Class::Base64, ENCODED_BYTES)?;
    let first_line = decoded(view.slice(start, to));
    let is_key = memchr::memmem::find(&first_line, b"PRIVATE KEY").is_some();
    let rest = Some(Swallow::Class(Class::Base64));
    Ok(is_key.then_some(Found { from: start, to, kind: Kind::Rule("private-key"), rest }))
}

/// `Bearer …` wherever it stands; `pos` is after the space.
pub(super) fn bearer(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    if !view.before(start, 1).eq_ignore_ascii_case(b"b") {
        return Ok(None);
    }
    let Some(found) = header_value(view, pos, "bearer-token", BEARER_BYTES_MIN)? else { return Ok(None) };
    let value = view.slice(found.from, found.to);
    let is_token = value.iter().any(u8::is_ascii_digit) && !value.contains(&b'(');
    Ok(is_token.then_some(found))
}

/// `X-Amz-Signature=…`, and that of Google: who has the URL needs no other credential; `pos` is after the name.
pub(super) fn signature(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    let before = view.before(start, 6).to_ascii_lowercase();
    let is_name = before.ends_with(b"x-amz") || before.ends_with(b"x-goog");
    if !is_name || view.at(pos)? != Some(b'=') {
        return Ok(None);
    }
    let len = view.run(pos + 1, Class::Hex, URL_SIGNATURE_BYTES)?;
    let found = Found {
        from: pos + 1,
        to: pos + 1 + len,
        kind: Kind::Rule("url-signature"),
        rest: Some(Swallow::Class(Class::Hex)),
    };
    Ok((len == URL_SIGNATURE_BYTES).then_some(found))
}

/// A run that is a credential, unless it stands for one (`$TOKEN`, `<token>`, `{token}`).
fn header_value(view: View<'_>, pos: usize, kind: &'static str, min: usize) -> Result<Option<Found>, More> {
    let len = view.run(pos, Class::Bare, WEIGH_BYTES)?;
    let value = view.slice(pos, pos + len);
    let is_url = value.windows(3).any(|three| three == b"://");
    if len < min || is_url || matches!(value, [b'$' | b'<' | b'{' | b'%' | b'*' | b'[', ..]) {
        return Ok(None);
    }
    let rest = Some(Swallow::Class(Class::Bare));
    Ok(Some(Found { from: pos, to: pos + len, kind: Kind::Rule(kind), rest }))
}

/// `scheme://user:password@host`; `pos` is after the slashes. The user stays readable, unless it is a token itself. A password may have an `@` itself,
/// so the last one counts before the host ends.
pub(super) fn url_user(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let (mut colon, mut host) = (None, None);
    // The colons of a mark are none of the URL.
    let mut first = pos;
    if view.starts(pos, b"[REDACTED:", false)? {
        while first < pos + MARK_BYTES_MAX && view.at(first)?.is_some_and(|byte| byte != b']') {
            first += 1;
        }
    }
    for at in first..pos + USERINFO_BYTES_MAX {
        match view.at(at)? {
            Some(b':') if colon.is_none() => colon = Some(at),
            Some(b'@') => host = Some(at),
            Some(byte) if Class::Bare.has(byte) && !matches!(byte, b'/' | b'?' | b'#' | b'(' | b')') => {}
            Some(b'&' | b',' | b';') => {}
            _ => break,
        }
    }
    Ok(host.and_then(|host| user_info(view, pos, colon.filter(|colon| *colon < host), host)))
}

fn user_info(view: View<'_>, pos: usize, colon: Option<usize>, at: usize) -> Option<Found> {
    let is_token = |value: &[u8]| value.len() >= URL_TOKEN_BYTES_MIN && value.iter().any(u8::is_ascii_digit);
    let from = colon.map_or(pos, |colon| colon + 1);
    let value = view.slice(from, at);
    if let Some(colon) = colon
        && URL_DUMMIES.contains(&value)
        && view.slice(pos, colon).starts_with(b"[REDACTED:")
    {
        return None;
    }
    if let Some(colon) = colon
        && URL_DUMMIES.contains(&value)
        && is_token(view.slice(pos, colon))
    {
        return Some(Found { from: pos, to: colon, kind: Kind::Rule("url-password"), rest: None });
    }
    let stands_for_one =
        matches!(value, [] | [b'$' | b'{' | b'%' | b'*' | b'[', ..]) && !is_percent_escape(value);
    if stands_for_one || (colon.is_none() && !is_token(value)) {
        return None;
    }
    Some(Found { from, to: at, kind: Kind::Rule("url-password"), rest: None })
}

fn is_percent_escape(value: &[u8]) -> bool {
    matches!(value, [b'%', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}

/// `-----BEGIN … PRIVATE KEY-----`; `pos` is after `-BEGIN `. The first line stays readable.
pub(super) fn pem_block(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    if view.before(start, 4) != b"----" {
        return Ok(None);
    }
    let mut len = 0;
    while len < LABEL_BYTES_MAX && view.at(pos + len)?.is_some_and(|b| b == b' ' || b.is_ascii_alphanumeric())
    {
        len += 1;
    }
    let label = view.slice(pos, pos + len);
    let is_private = label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
    let is_capital = !label.iter().any(u8::is_ascii_lowercase);
    let body = match label {
        b"OpenVPN Static key V1" => Body::Hex,
        _ if is_private && is_capital => Body::Base64,
        _ => return Ok(None),
    };
    if view.starts(pos + len, b"-----", false)? { key_block(view, pos + len + 5, body) } else { Ok(None) }
}

/// `Private-Lines: 14` of a key of PuTTY's; `pos` is after the colon.
pub(super) fn putty_block(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let from = skip_space(view, pos)?;
    key_block(view, from + view.run(from, Class::Digit, 4)?, Body::Base64)
}

/// A key from `from` on, if one follows there.
pub(super) fn key_block(view: View<'_>, from: usize, body: Body) -> Result<Option<Found>, More> {
    let rest = Some(Swallow::block(body));
    let found = Found { from, to: from, kind: Kind::Rule("private-key"), rest };
    Ok(block::follows(view, from, body)?.then_some(found))
}

/// Skips an optional quote with the backslashes that escape it, as in JSON inside JSON.
pub(super) fn skip_quote(view: View<'_>, pos: usize) -> Result<usize, More> {
    Ok(quote_at(view, pos)?.map_or(pos, |(_, after)| after))
}

/// The quote at `pos`, and the position after it.
pub(super) fn quote_at(view: View<'_>, pos: usize) -> Result<Option<(Quote, usize)>, More> {
    // A quote within quotes of a shell: `'…'\\''…'`.
    if view.starts(pos, b"'\\''", false)? {
        return Ok(Some((Quote { byte: b'\'', escaped: false }, pos + 4)));
    }
    let mut at = pos;
    while at < pos + 4 && view.at(at)? == Some(b'\\') {
        at += 1;
    }
    Ok(match view.at(at)? {
        Some(byte @ (b'"' | b'\'' | b'`')) => Some((Quote { byte, escaped: at > pos }, at + 1)),
        _ => None,
    })
}

/// Skips spaces, tabs and colour sequences, a few of them.
pub(super) fn skip_space(view: View<'_>, pos: usize) -> Result<usize, More> {
    let mut at = pos;
    while at < pos + 32 {
        match view.at(at)? {
            Some(b' ' | b'\t') => at += 1,
            Some(0x1b) => match skip_colour(view, at)? {
                Some(after) => at = after,
                None => break,
            },
            _ => break,
        }
    }
    Ok(at)
}

/// The position after `ESC [ … m`.
fn skip_colour(view: View<'_>, pos: usize) -> Result<Option<usize>, More> {
    if view.at(pos + 1)? != Some(b'[') {
        return Ok(None);
    }
    for at in pos + 2..pos + 18 {
        match view.at(at)? {
            Some(b'0'..=b'9' | b';') => {}
            Some(b'm' | b'K') => return Ok(Some(at + 1)),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// The bytes that base64 stands for; only whole groups of four.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(text.len());
    for group in text.as_chunks::<4>().0 {
        let digits: Vec<u32> = group.iter().copied().map_while(digit).collect();
        let bits = digits.iter().enumerate().fold(0, |bits, (at, digit)| bits | digit << (18 - 6 * at));
        let [_, all @ ..] = bits.to_be_bytes();
        bytes.extend(all.iter().take(digits.len().saturating_sub(1)));
    }
    bytes
}
