//! Passwords of credential files without a telling separator, told by the whole entry: `.netrc` and `.pgpass`.

use super::beside::beside;
use super::shape::{BACK_BYTES, Class, More, View, is_edge};
use super::swallow::{Quote, Swallow};
use super::value::is_placeholder;
use super::{Found, Kind};

/// Bytes of a password that are weighed.
const WEIGH_BYTES: usize = 64;
/// Spaces before a password, at most.
const BLANK_BYTES_MAX: usize = 128;
/// A field of a `.pgpass` line, at most; names of databases and users are shorter.
const FIELD_BYTES_MAX: usize = 64;
const PASSWORD_BYTES_MAX: usize = 256;
const PASSWORD_BYTES_MIN: usize = 3;
/// What stands before the word in a statement or a table is looked at so far.
const STATEMENT_BYTES: usize = 48;
/// A value in a table, at least.
const TABLE_BYTES_MIN: usize = 8;
/// No database listens below this; line numbers, which look alike, seldom go beyond it.
const PORT_MIN: u32 = 1024;

/// What may follow `password` without a separator: an entry of a `.netrc`, a statement, a table; `pos` is after it.
pub(super) fn password(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    if let Some(found) = beside(view, start, pos)? {
        return Ok(Some(found));
    }
    match view.at(pos)? {
        Some(b' ' | b'\t') => {}
        _ => return Ok(None),
    }
    if is_edge(view, start)
        && let Some(found) = netrc(view, start, pos)?
    {
        return Ok(Some(found));
    }
    match statement(view, start, pos)? {
        None => table(view, start, pos),
        found => Ok(found),
    }
}

/// `alter user tom with password '…'`.
fn statement(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    let before = view.before(start, STATEMENT_BYTES);
    let is_one = [&b"with "[..], b"encrypted "].iter().any(|word| before.ends_with(word));
    if !is_one || !view.starts(pos, b" '", false)? {
        return Ok(None);
    }
    let quote = Quote { byte: b'\'', escaped: false };
    let from = pos + 2;
    let len = run_while(view, from, WEIGH_BYTES, |byte| byte != quote.byte && Class::Solid.has(byte))?;
    let value = view.slice(from, from + len);
    let is_secret = len >= PASSWORD_BYTES_MIN
        && value.iter().any(u8::is_ascii_digit)
        && view.at(from + len)? != Some(b' ')
        && !is_placeholder(value);
    let rest = Some(Swallow::quoted(quote));
    Ok(is_secret.then_some(Found { from, to: from + len, kind: Kind::Rule("password"), rest }))
}

/// `db_password    Kx7pQ2mZ9w`, a line of these two as `vault kv get` prints them. Tables of settings and columns are
/// written so too, so only what has capitals, small letters and digits is one.
fn table(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    let before = view.before(start, STATEMENT_BYTES);
    let name = before.iter().rev().take_while(|byte| Class::Url.has(**byte)).count();
    let begins_line = match before.get(..before.len() - name) {
        None | Some([]) => before.len() < STATEMENT_BYTES,
        Some([.., last]) => *last == b'\n',
    };
    if !begins_line {
        return Ok(None);
    }
    let blank = run_while(view, pos, BLANK_BYTES_MAX, |byte| byte == b' ')?;
    let from = pos + blank;
    let len = run_while(view, from, WEIGH_BYTES, |byte| Class::Solid.has(byte))?;
    let ends_line = matches!(view.at(from + len)?, None | Some(b'\n' | b'\r'));
    let value = view.slice(from, from + len);
    let has = |is: fn(&u8) -> bool| value.iter().any(is);
    let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let is_of_code = has(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<' | b'$' | b'/'));
    let is_one = blank > 1 && ends_line && len >= TABLE_BYTES_MIN && is_mixed && !is_of_code;
    Ok(is_one.then_some(Found { from, to: from + len, kind: Kind::Rule("password"), rest: None }))
}

/// `machine H login U password P`, on one line or several; `pos` is after the last name.
fn netrc(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    if !is_netrc_entry(view.before(start, BACK_BYTES)) {
        return Ok(None);
    }
    let blank = run_while(view, pos, BLANK_BYTES_MAX, |byte| matches!(byte, b' ' | b'\t'))?;
    let (quote, from) = match view.at(pos + blank)? {
        Some(byte @ b'"') => (Some(Quote { byte, escaped: false }), pos + blank + 1),
        _ => (None, pos + blank),
    };
    let len = run_while(view, from, WEIGH_BYTES, |byte| match quote {
        Some(quote) => byte != quote.byte && byte != b'\n',
        None => Class::Solid.has(byte),
    })?;
    let value = view.slice(from, from + len);
    let stands_for_one = matches!(value, [] | [b'$' | b'<' | b'{', ..])
        || value.starts_with(b"[REDACTED")
        || value.iter().all(|byte| matches!(byte, b'*' | b'.'));
    if blank == 0 || stands_for_one {
        return Ok(None);
    }
    let rest = quote.map_or(Swallow::Class(Class::Solid), Swallow::quoted);
    Ok(Some(Found { from, to: from + len, kind: Kind::Rule("netrc-password"), rest: Some(rest) }))
}

/// Whether the words before `password` are those of an entry: a login, and before it a machine or the default.
fn is_netrc_entry(before: &[u8]) -> bool {
    if !before.last().is_some_and(u8::is_ascii_whitespace) {
        return false;
    }
    let mut words = before.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut has_login = false;
    while let Some(value) = words.next() {
        if ends_as(value, b"default") {
            return has_login;
        }
        match words.next() {
            Some(b"login") => has_login = true,
            Some(b"account") => {}
            word => return has_login && word.is_some_and(|word| ends_as(word, b"machine")),
        }
    }
    false
}

/// Whether a word is this one, also behind a quote or in a path.
fn ends_as(word: &[u8], wanted: &[u8]) -> bool {
    let before = word.strip_suffix(wanted).map(|before| before.last());
    before.is_some_and(|byte| {
        byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-'))
    })
}

/// `host:port:database:user:password`, a line of exactly these; the colon before the port is at `start`.
pub(super) fn pgpass(view: View<'_>, start: usize) -> Result<Option<Found>, More> {
    let before = view.before(start, BACK_BYTES);
    let host = match before.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => before.get(at + 1..).unwrap_or_default(),
        None if before.len() < BACK_BYTES => before,
        None => return Ok(None),
    };
    if !is_host(host) {
        return Ok(None);
    }
    let mut at = start + 1;
    let mut fields = [&[][..]; 3];
    for field in &mut fields {
        let len = run_while(view, at, FIELD_BYTES_MAX, is_name)?;
        if len == 0 || view.at(at + len)? != Some(b':') {
            return Ok(None);
        }
        *field = view.slice(at, at + len);
        at += len + 1;
    }
    let [port, database, user] = fields;
    let is_number = |field: &[u8]| field.iter().all(u8::is_ascii_digit);
    if !is_port(port) || is_number(database) || is_number(user) {
        return Ok(None);
    }
    let len = password_len(view, at)?;
    let is_whole = matches!(view.at(at + len)?, None | Some(b'\n' | b'\r'));
    let value = view.slice(at, at + len);
    if !is_whole || len < PASSWORD_BYTES_MIN || matches!(value, [b'$' | b'<' | b'{' | b'[', ..]) {
        return Ok(None);
    }
    Ok(Some(Found { from: at, to: at + len, kind: Kind::Rule("pgpass-password"), rest: None }))
}

/// A name, an address, `*`, or the directory of a socket.
fn is_host(host: &[u8]) -> bool {
    match host {
        [] => false,
        [b'/', dir @ ..] => dir.iter().all(|byte| *byte == b'/' || Class::Url.has(*byte)),
        host => host.iter().all(|byte| is_name(*byte)),
    }
}

fn is_name(byte: u8) -> bool {
    Class::Dotted.has(byte) || matches!(byte, b'*' | b'@')
}

fn is_port(port: &[u8]) -> bool {
    let number = std::str::from_utf8(port).ok().and_then(|text| text.parse::<u32>().ok());
    port == b"*" || number.is_some_and(|number| (PORT_MIN..=65_535).contains(&number))
}

/// Up to the end of the line or a colon that no backslash stands before.
fn password_len(view: View<'_>, from: usize) -> Result<usize, More> {
    let mut len = 0;
    while len < PASSWORD_BYTES_MAX {
        match view.at(from + len)? {
            Some(b'\\') if view.at(from + len + 1)?.is_some_and(|byte| Class::Solid.has(byte)) => len += 2,
            Some(byte) if Class::Solid.has(byte) && byte != b':' => len += 1,
            _ => break,
        }
    }
    Ok(len)
}

fn run_while(view: View<'_>, pos: usize, max: usize, is_in: impl Fn(u8) -> bool) -> Result<usize, More> {
    let mut len = 0;
    while len < max && view.at(pos + len)?.is_some_and(&is_in) {
        len += 1;
    }
    Ok(len)
}
