//! Passwords that stand beside their name without a separator: in calls (`.password("…")`, `put("password", "…")`), in
//! declarations of Go, in directives (`#define WIFI_PASSWORD "…"`, `ENV DB_PASSWORD …`), in property lists and in messages.

use super::around::{quote_at, skip_quote, skip_space};
use super::letters::are_random;
use super::pair::value_len;
use super::shape::{Class, More, View};
use super::swallow::Swallow;
use super::value::{is_made, is_placeholder};
use super::yaml::ends_line;
use super::{Found, Kind};

/// What stands before the name in its line is looked at so far.
const LINE_BYTES_MAX: usize = 96;
/// The name of a user in a message, at most.
const USER_BYTES_MAX: usize = 64;
const PASSWORD_BYTES_MIN: usize = 4;

/// `var password string = "…"`.
const GO_TYPE: &[u8] = b" string =";

/// What a name and a value follow, each behind a blank.
const DIRECTIVES: [&[u8]; 7] =
    [b"#define", b"SetEnv", b"setenv", b"ENV", b"fastcgi_param", b"uwsgi_param", b"setx"];

/// Confirms what stands beside `password`, which lies from `start` to `pos`.
pub(super) fn beside(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    match view.at(pos)? {
        Some(b'(') => called(view, pos + 1),
        Some(b'"' | b'\'') => second_of_call(view, pos + 1),
        Some(b'<') => in_property_list(view, pos),
        Some(b' ' | b'\t') if view.starts(pos, b" for ", false)? => in_message(view, pos + 5),
        Some(b' ') if view.starts(pos, GO_TYPE, false)? => {
            quoted(view, skip_space(view, pos + GO_TYPE.len())?)
        }
        Some(b' ' | b'\t') => in_directive(view, start, pos),
        _ => Ok(None),
    }
}

/// `.password("…")`; `pos` is after the bracket. Code that asks for one has words there.
fn called(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let found = quoted(view, pos)?;
    Ok(found.filter(|found| is_made(view.slice(found.from, found.to))))
}

/// `"password", "…"`; `pos` is after the name's quote.
fn second_of_call(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let comma = skip_space(view, pos)?;
    if view.at(comma)? != Some(b',') {
        return Ok(None);
    }
    called(view, skip_space(view, comma + 1)?)
}

/// `<key>password</key><string>…</string>`.
fn in_property_list(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    if !view.starts(pos, b"</key>", false)? {
        return Ok(None);
    }
    let mut at = pos + 6;
    while at < pos + LINE_BYTES_MAX && view.at(at)?.is_some_and(|byte| byte.is_ascii_whitespace()) {
        at += 1;
    }
    if !view.starts(at, b"<string>", false)? {
        return Ok(None);
    }
    let from = at + 8;
    let to = from + view.run(from, Class::Bare, LINE_BYTES_MAX)?;
    let rest = Some(Swallow::Class(Class::Bare));
    Ok(is_random(view.slice(from, to)).then_some(Found { from, to, kind: Kind::Rule("password"), rest }))
}

/// `Password for user tom: …`; `pos` is after `for`.
fn in_message(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let at = if view.starts(pos, b"user ", false)? { pos + 5 } else { pos };
    let user = skip_quote(view, at)?;
    let end = user + view.run(user, Class::Dotted, USER_BYTES_MAX)?;
    let colon = skip_quote(view, end)?;
    let from = skip_space(view, colon + 1)?;
    if end == user || view.at(colon)? != Some(b':') || from == colon + 1 {
        return Ok(None);
    }
    Ok(bare(view, from)?.filter(|found| is_made(view.slice(found.from, found.to))))
}

/// `ENV DB_PASSWORD …`, and `storePassword "…"` that begins its line.
fn in_directive(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    let before = view.before(start, LINE_BYTES_MAX);
    let name = before.iter().rev().take_while(|byte| Class::Word.has(**byte)).count();
    let before = before.get(..before.len() - name).unwrap_or_default();
    let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let from = skip_space(view, pos)?;
    let is_directive = DIRECTIVES.iter().any(|word| line.ends_with(word));
    if !is_directive && !line.is_empty() {
        return Ok(None);
    }
    match quote_at(view, from)? {
        Some(_) => Ok(quoted(view, from)?),
        None if is_directive && !line.ends_with(b"#define") => bare(view, from),
        None => Ok(None),
    }
}

/// A value in quotes that looks like a password.
fn quoted(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let Some((quote, from)) = quote_at(view, pos)? else { return Ok(None) };
    let to = from + value_len(view, from, Some(quote))?;
    let rest = Some(Swallow::quoted(quote));
    Ok(is_random(view.slice(from, to)).then_some(Found { from, to, kind: Kind::Rule("password"), rest }))
}

/// A value without quotes that looks like a password, alone in the rest of its line.
fn bare(view: View<'_>, from: usize) -> Result<Option<Found>, More> {
    let to = from + value_len(view, from, None)?;
    let end = to + usize::from(view.at(to)? == Some(b';'));
    let is_one = is_random(view.slice(from, to)) && ends_line(view, end)?;
    Ok(is_one.then_some(Found { from, to, kind: Kind::Rule("password"), rest: None }))
}

fn is_random(value: &[u8]) -> bool {
    let is_template = value.windows(2).any(|two| matches!(two, b"${" | b"{{" | b"%s"));
    value.len() >= PASSWORD_BYTES_MIN
        && !value.contains(&b' ')
        && !is_placeholder(value)
        && !is_template
        && (value.iter().any(u8::is_ascii_digit) || are_random(value))
}
