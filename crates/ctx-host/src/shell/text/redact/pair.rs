//! `password=…` and its like: a telling name, a separator, a value that looks like a secret.
//!
//! Names are everywhere in source code, so the value decides: an expression, a type, a placeholder, a path
//! or a plain word of prose stays. How strict the look is depends on how sure the pair is: `PASSWORD=x1y2`
//! in an environment is one, `token: unexpected` in a message is none.

use std::ops::Range;

use super::around::{quote_at, skip_quote, skip_space};
use super::name::{Name, identifier, is_harmless_name, is_shouted};
use super::rules::PairName;
use super::shape::{Class, More, View};
use super::swallow::{Quote, Swallow};
use super::value::{Joint, Strength, is_own_name, is_placeholder, is_secret};
use super::{Found, Kind, bare, yaml};

/// Bytes of a value that are weighed.
pub(super) const WEIGH_BYTES: usize = 128;
/// A type is looked at so far.
const TYPE_BYTES_MAX: usize = 32;
/// The name in an attribute is looked at so far, with its label.
const ATTRIBUTE_BYTES_MAX: usize = 64;
/// A plain word in a setting, at least.
const PLAIN_BYTES_MIN: usize = 8;

/// Confirms a pair; the anchor lies from `start` to `pos`.
pub(super) fn pair(view: View<'_>, start: usize, pos: usize, name: PairName) -> Result<Option<Found>, More> {
    let name = Name { view, start, pos, name };
    let Some(strength) = name.strength() else { return Ok(None) };
    let Some((joint, from)) = joint(view, start, pos)? else { return Ok(None) };
    if joint.end().is_none()
        && !joint.equals
        && matches!(view.at(from)?, Some(b'>' | b'|' | b'&' | b'!'))
        && let Some(at) = yaml::value(view, from)?
        && let Some(found) = value_in_yaml(view, name, strength, joint, at)?
    {
        return Ok(Some(found));
    }
    value_of(view, name, strength, joint, from)
}

/// Confirms the value at `from`, which something of YAML stands before: it is alone in its line.
fn value_in_yaml(
    view: View<'_>,
    name: Name<'_>,
    strength: Strength,
    joint: Joint,
    from: usize,
) -> Result<Option<Found>, More> {
    let (quote, from) = quote_at(view, from)?.map_or((None, from), |(quote, from)| (Some(quote), from));
    let found = value_of(view, name, strength, Joint { quote, ..joint }, from)?;
    match found {
        Some(found) if quote.is_none() && found.to < from + WEIGH_BYTES => {
            Ok(yaml::ends_line(view, found.to)?.then_some(found))
        }
        found => Ok(found),
    }
}

/// Confirms the value at `from` of a name that tells so much.
pub(super) fn value_of(
    view: View<'_>,
    name: Name<'_>,
    strength: Strength,
    joint: Joint,
    from: usize,
) -> Result<Option<Found>, More> {
    let len = match joint.end() {
        Some(end) => {
            let len = value_len(view, from, Some(end))?;
            let value = view.slice(from, from + len);
            let is_one = is_secret(value, strength, joint) || name.has_phrase(value, joint);
            is_one.then_some(len)
        }
        None => {
            let len = view.run(from, Class::Bare, WEIGH_BYTES)?;
            if matches!(view.at(from + len)?, Some(b' ' | b'<' | b'&' | b'"' | b'\''))
                && let Some((quote, from)) = quote_in_code(view, from, joint)?
            {
                let joint = Joint { quote: Some(quote), coded: true, ..joint };
                return value_of(view, name, strength, joint, from);
            }
            bare_len(view, name, from..from + len, strength, joint)?
        }
    };
    let Some(len) = len else { return Ok(None) };
    let value = view.slice(from, from + len);
    // What is dear comes last: most values are told by less.
    if !name.is_sure_of(value, joint) || is_harmless_name(name.identifier()) {
        return Ok(None);
    }
    if joint.end().is_none() && !joint.tight {
        // `name: Type = value` is a declaration.
        let after = skip_space(view, from + len)?;
        if after > from + len && view.at(after)? == Some(b'=') {
            return Ok(None);
        }
    }
    let rest = joint.end().map_or(Swallow::Bare, Swallow::quoted);
    Ok(Some(Found { from, to: from + len, kind: Kind::Rule(name.kind()), rest: Some(rest) }))
}

/// The length of a secret without quotes. What stands before the first separator tells whether it is one, so that code
/// with a list of names stays; only the value of a variable may be short there and go on behind it (`DB_PASSWORD=a&b1c2`).
fn bare_len(
    view: View<'_>,
    name: Name<'_>,
    head: Range<usize>,
    strength: Strength,
    joint: Joint,
) -> Result<Option<usize>, More> {
    let Range { start: from, end } = head;
    let head = view.slice(from, end);
    if is_secret(head, strength, joint) || is_plain_password(view, name, end, head, strength, joint)? {
        return bare::len(view, from, WEIGH_BYTES).map(Some);
    }
    if !joint.tight || !joint.shouted || is_placeholder(head) {
        return Ok(None);
    }
    let len = bare::len(view, from, WEIGH_BYTES)?;
    let value = view.slice(from, from + len);
    let is_one = value.iter().any(u8::is_ascii_digit) && is_secret(value, strength, joint);
    Ok(is_one.then_some(len))
}

/// `POSTGRES_PASSWORD: plain-word`, alone in its line: the setting of a container or a pipeline. In other names a word is
/// a type or prose.
fn is_plain_password(
    view: View<'_>,
    name: Name<'_>,
    end: usize,
    value: &[u8],
    strength: Strength,
    joint: Joint,
) -> Result<bool, More> {
    let is_setting = strength == Strength::Password && joint.shouted && joint.spaced && !joint.equals;
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_');
    if !is_setting
        || value.len() < PLAIN_BYTES_MIN
        || !value.iter().all(is_word)
        || !name.identifier().contains(&b'_')
        || is_placeholder(value)
        || is_own_name(value)
    {
        return Ok(false);
    }
    Ok(matches!(view.at(skip_space(view, end)?)?, None | Some(b'\n' | b'\r' | b'#')))
}

/// Whether a byte may stand after a name: a digit of it, a quote, a separator, space or colour.
pub(super) fn may_follow_name(byte: u8) -> bool {
    byte.is_ascii_digit()
        || matches!(
            byte,
            b'=' | b':' | b'>' | b']' | b'"' | b'\'' | b'`' | b'\\' | b'?' | b' ' | b'\t' | 0x1b
        )
}

/// Reads the separator after the name; gives how the two are joined and where the value begins.
pub(super) fn joint(view: View<'_>, start: usize, pos: usize) -> Result<Option<(Joint, usize)>, More> {
    let number = pos + usize::from(view.at(pos)? == Some(b' ') && is_numbered(view, start));
    let end = number + view.run(number, Class::Digit, 3)?;
    let mut after_name = skip_quote(view, end)?;
    if view.at(after_name)? == Some(b']') {
        after_name += 1;
    }
    let at = skip_space(view, after_name)?;
    // A variable that is set only where it is not yet: `API_KEY ?= x`.
    let at = at + usize::from(view.at(at)? == Some(b'?') && view.at(at + 1)? == Some(b'='));
    let shouted = is_shouted(view, start, pos);
    let name_quoted = after_name > end;
    let mut joint = Joint {
        tight: false,
        shouted,
        quote: None,
        tag: false,
        equals: false,
        spaced: false,
        name_quoted,
        option: false,
        coded: false,
    };
    let value = match view.at(at)? {
        Some(b'=') => match view.at(at + 1)? {
            Some(b'=' | b'~') => return Ok(None),
            Some(b'>') => at + 2,
            _ => {
                joint.tight = at == end;
                joint.equals = true;
                at + 1
            }
        },
        Some(b':') => match view.at(at + 1)? {
            Some(b':') => return Ok(None),
            Some(b'=') => at + 2,
            _ => at + 1,
        },
        Some(b'>') if view.before(start, identifier(view, start).len() + 1).first() == Some(&b'<') => {
            joint.tag = true;
            at + 1
        }
        // A text behind the name: forms and translations have words there.
        Some(b'>') if name_quoted && is_of_attribute(view, start) => {
            (joint.tag, joint.coded) = (true, true);
            at + 1
        }
        Some(_) if at > end && identifier(view, start).starts_with(b"--") => {
            joint.option = true;
            at
        }
        _ => return Ok(None),
    };
    let from = skip_space(view, value)?;
    joint.tight &= from == value;
    joint.spaced = from > value;
    Ok(Some(match quote_at(view, from)? {
        Some((quote, from)) => (Joint { quote: Some(quote), ..joint }, from),
        None => (joint, from),
    }))
}

/// `<string name="api_key">`, `<entry key='db.password'>`.
fn is_of_attribute(view: View<'_>, start: usize) -> bool {
    let before = view.before(start, ATTRIBUTE_BYTES_MAX);
    let name = before.iter().rev().take_while(|byte| Class::Dotted.has(**byte)).count();
    let before = before.get(..before.len() - name).unwrap_or_default();
    [&b" name=\""[..], b" key=\"", b" name='", b" key='"].iter().any(|label| before.ends_with(label))
}

/// `Unseal Key 1: …`, as Vault prints its keys.
fn is_numbered(view: View<'_>, start: usize) -> bool {
    view.before(start, 8) == b"Unseal K"
}

/// The quote of a value in code: behind `Some(`, `String::from(`, a letter that says what kind of string it is, or a type.
fn quote_in_code(view: View<'_>, from: usize, joint: Joint) -> Result<Option<(Quote, usize)>, More> {
    let at = match view.at(from)? {
        Some(b'S') if view.starts(from, b"Some(", false)? => Some(from + 5),
        Some(b'S') if view.starts(from, b"String::from(", false)? => Some(from + 13),
        Some(b'b' | b'u') if matches!(view.at(from + 1)?, Some(b'"' | b'\'')) => Some(from + 1),
        Some(byte) if joint.spaced && !joint.equals && (byte.is_ascii_alphabetic() || byte == b'&') => {
            declared(view, from)?
        }
        _ => None,
    };
    at.map_or(Ok(None), |at| quote_at(view, at))
}

/// Where the value of a declaration begins: behind `&str = `, `Optional[str] = `.
fn declared(view: View<'_>, from: usize) -> Result<Option<usize>, More> {
    let is_borrowed = view.at(from)? == Some(b'&') && view.starts(from, b"&'static ", false)?;
    let from = from + if is_borrowed { 9 } else { 1 };
    let mut at = from + view.run(from, Class::Word, TYPE_BYTES_MAX)?;
    let is_of_type = |byte: u8| Class::Word.has(byte) || b"&.:<>?[]|".contains(&byte);
    while at < from + TYPE_BYTES_MAX && view.at(at)?.is_some_and(is_of_type) {
        at += 1;
    }
    let at = skip_space(view, at)?;
    if view.at(at)? != Some(b'=') || matches!(view.at(at + 1)?, Some(b'=' | b'>')) {
        return Ok(None);
    }
    skip_space(view, at + 1).map(Some)
}

/// How many bytes of a value are weighed: up to its quote, or up to what ends a bare one.
pub(super) fn value_len(view: View<'_>, from: usize, quote: Option<Quote>) -> Result<usize, More> {
    let Some(quote) = quote else { return bare::len(view, from, WEIGH_BYTES) };
    let mut len = 0;
    while len < WEIGH_BYTES {
        let Some(byte) = view.at(from + len)? else { break };
        let (inside, step) = if byte == b'\\' && !quote.escaped {
            (view.at(from + len + 1)?.is_some_and(|b| b != b'\n'), 2)
        } else {
            (byte != quote.byte && !matches!(byte, b'\n' | b'\\'), 1)
        };
        if !inside {
            break;
        }
        len += step;
    }
    Ok(len)
}
