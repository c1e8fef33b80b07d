//! `password=…` and its like: a telling name, a separator, a value that looks like a secret.
//!
//! Names are everywhere in source code, so the value decides: an expression, a type, a placeholder, a path
//! or a plain word of prose stays. How strict the look is depends on how sure the pair is: `PASSWORD=x1y2`
//! in an environment is one, `token: unexpected` in a message is none.

use std::ops::Range;

use super::around::{quote_at, skip_quote, skip_space};
use super::phrase::is_phrase;
use super::rules::PairName;
use super::shape::{Class, More, View};
use super::swallow::{Quote, Swallow};
use super::value::{Joint, SECRET_BYTES_MIN, Strength, is_own_name, is_placeholder, is_secret};
use super::{Found, Kind, bare};

/// Bytes of a value that are weighed.
const WEIGH_BYTES: usize = 128;
/// A plain word in a setting, at least.
const PLAIN_BYTES_MIN: usize = 8;

/// Names that are of a secret and of nothing else.
const CERTAIN: &[&str] =
    &["password", "passwd", "passphrase", "pwd", "secret", "client_secret", "clientsecret"];

/// What stands before `key` in the names of secret keys.
const KEY_NAMES: &[&str] = &[
    "api",
    "secret",
    "access",
    "private",
    "account",
    "auth",
    "signing",
    "encryption",
    "master",
    "app",
    "storage",
    "subscription",
    "sharedaccess",
    "service",
    "functions",
    "deploy",
];

/// Names that tell whose secret it is.
const OWNERS: &[(&str, &str)] = &[
    ("aws_secret", "aws-secret-key"),
    ("awssecret", "aws-secret-key"),
    ("secretaccess", "aws-secret-key"),
    ("aws_session", "aws-session-token"),
    ("datadog", "datadog-key"),
    ("dd_a", "datadog-key"),
    ("dd-a", "datadog-key"),
    ("accountk", "azure-storage-key"),
    ("sharedaccessk", "azure-shared-key"),
    ("twilio", "twilio-token"),
    ("heroku", "heroku-key"),
    ("cloudflare", "cloudflare-key"),
];

/// What stands before `token` in names of things that are no secret: pages, parsers, models' vocabularies.
const HARMLESS: &[&str] = &[
    "next",
    "page",
    "progress",
    "continuation",
    "cancellation",
    "sync",
    "eos",
    "bos",
    "pad",
    "unk",
    "mask",
    "sep",
    "cls",
    "special",
    "stop",
    "start",
    "end",
    "max",
    "min",
    "allow",
];

/// Confirms a pair; the anchor lies from `start` to `pos`.
pub(super) fn pair(view: View<'_>, start: usize, pos: usize, name: PairName) -> Result<Option<Found>, More> {
    let Some(strength) = strength(view, start, name) else { return Ok(None) };
    let Some((joint, from)) = joint(view, start, pos)? else { return Ok(None) };
    let len = match joint.end() {
        Some(end) => {
            let len = value_len(view, from, Some(end))?;
            let value = view.slice(from, from + len);
            let is_one =
                is_secret(value, strength, joint) || is_phrase_of(view, start..pos, name, value, joint);
            is_one.then_some(len)
        }
        None => bare_len(view, start, from, strength, joint)?,
    };
    let Some(len) = len else { return Ok(None) };
    let value = view.slice(from, from + len);
    // What is dear comes last: most values are told by less.
    if !is_sure_enough(view, start, name, value, joint) || is_harmless_name(identifier(view, start)) {
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
    let kind = kind(view, start, pos, name);
    Ok(Some(Found { from, to: from + len, kind: Kind::Rule(kind), rest: Some(rest) }))
}

/// The length of a secret without quotes. What stands before the first separator tells whether it is one, so that code
/// with a list of names stays; only the value of a variable may be short there and go on behind it (`DB_PASSWORD=a&b1c2`).
fn bare_len(
    view: View<'_>,
    start: usize,
    from: usize,
    strength: Strength,
    joint: Joint,
) -> Result<Option<usize>, More> {
    let len = view.run(from, Class::Bare, WEIGH_BYTES)?;
    let head = view.slice(from, from + len);
    if is_secret(head, strength, joint) || is_plain_password(view, start, from + len, head, strength, joint)?
    {
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
    start: usize,
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
        || !identifier(view, start).contains(&b'_')
        || is_placeholder(value)
        || is_own_name(value)
    {
        return Ok(false);
    }
    Ok(matches!(view.at(skip_space(view, end)?)?, None | Some(b'\n' | b'\r' | b'#')))
}

/// A phrase with blanks, behind a name of what people choose: tokens and keys have none.
fn is_phrase_of(view: View<'_>, anchor: Range<usize>, name: PairName, value: &[u8], joint: Joint) -> bool {
    let may_be = match name {
        PairName::Password { .. } => true,
        PairName::Pass => !is_bare_pass(view.before(anchor.start, 3)),
        PairName::Secret { before } => before == "se",
        PairName::Short | PairName::Key => false,
    };
    may_be && value.contains(&b' ') && {
        let name = [identifier(view, anchor.start), view.slice(anchor.start, anchor.end)].concat();
        let name = String::from_utf8_lossy(&name).to_ascii_lowercase().replace('-', "_");
        is_phrase(value, joint.shouted || CERTAIN.contains(&name.trim_start_matches('_')))
    }
}

/// What names that are short, or of other things too, ask of a value beyond that.
fn is_sure_enough(view: View<'_>, start: usize, name: PairName, value: &[u8], joint: Joint) -> bool {
    let has_digit = value.iter().any(u8::is_ascii_digit);
    match name {
        // `PASS: test_2` is a word of test runners; a setting has an equals sign, JSON has quotes.
        PairName::Pass if is_bare_pass(view.before(start, 3)) => {
            has_digit && (joint.equals || (joint.quote.is_some() && joint.name_quoted))
        }
        PairName::Short => has_digit && value.len() >= SECRET_BYTES_MIN,
        // The name of a secret within a longer name: `arn:aws:secretsmanager:…:secret:Name-1a2b3c`. With a space it is
        // a setting behind the name of its file: `app.yml:3:token: …`.
        PairName::Secret { .. } | PairName::Key => {
            let is_joined = joint.equals || joint.spaced || joint.quote.is_some();
            is_joined || view.before(start, identifier(view, start).len() + 1).first() != Some(&b':')
        }
        PairName::Password { .. } | PairName::Pass => true,
    }
}

/// `pa` before the last two letters, and no name before that.
fn is_bare_pass(before: &[u8]) -> bool {
    match before {
        [other @ .., b'p' | b'P', b'a' | b'A'] => {
            !other.last().is_some_and(|byte| Class::Url.has(*byte) || *byte == b'.')
        }
        _ => false,
    }
}

/// Whether a byte may stand after a name: a digit of it, a quote, a separator, space or colour.
pub(super) fn may_follow_name(byte: u8) -> bool {
    byte.is_ascii_digit()
        || matches!(byte, b'=' | b':' | b'>' | b']' | b'"' | b'\'' | b'`' | b'\\' | b' ' | b'\t' | 0x1b)
}

fn strength(view: View<'_>, start: usize, name: PairName) -> Option<Strength> {
    let before = view.before(start, 24);
    let ends = |text: &str| ends_with(before, text);
    match name {
        PairName::Pass => {
            let known = ["_pa", "-pa", ".pa"].iter().any(|text| ends(text));
            (known || is_bare_pass(before)).then_some(Strength::Password)
        }
        PairName::Short => Some(Strength::Secret),
        PairName::Password { before: all } => all.iter().any(|text| ends(text)).then_some(Strength::Password),
        // `_auth` is the name of a registry's setting; `SERVER_AUTH` is a constant.
        PairName::Secret { before: "" } if before.last().is_some_and(u8::is_ascii_alphanumeric) => None,
        PairName::Secret { before } => ends(before).then_some(Strength::Secret),
        PairName::Key => {
            let name = before.strip_suffix(b"k").or_else(|| before.strip_suffix(b"K"))?;
            let name = name.strip_suffix(b"_").or_else(|| name.strip_suffix(b"-")).unwrap_or(name);
            is_key_of_door(name).then_some(Strength::Secret)
        }
    }
}

/// Whether what stands before `key` in a name is told of secrets: `api`, `MY_SECRET`.
pub(super) fn is_key_of_door(name: &[u8]) -> bool {
    KEY_NAMES.iter().any(|key| ends_with(name, key))
}

/// `next_page_`, `progressT`: the name up to the anchor, which begins within its last word.
fn is_harmless_name(before: &[u8]) -> bool {
    let name = match before {
        [name @ .., b't' | b'T' | b'c' | b'C'] => name,
        name => name,
    };
    let name = name.strip_suffix(b"_").or_else(|| name.strip_suffix(b"-")).unwrap_or(name);
    HARMLESS.iter().any(|word| ends_with(name, word) && begins_word(name, name.len() - word.len()))
}

/// Whether a word of a name begins here: `next` in `get_next` and `getNext`, but not `min` in `admin`.
fn begins_word(name: &[u8], at: usize) -> bool {
    let last = at.checked_sub(1).and_then(|last| name.get(last)).copied();
    let is_capital = name.get(at).is_some_and(u8::is_ascii_uppercase);
    last.is_none_or(|last| !last.is_ascii_alphabetic() || (is_capital && last.is_ascii_lowercase()))
}

/// Whether a name ends with a word, in any case of letters.
fn ends_with(name: &[u8], word: &str) -> bool {
    let end = name.len().checked_sub(word.len()).and_then(|from| name.get(from..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(word.as_bytes()))
}

/// Reads the separator after the name; gives how the two are joined and where the value begins.
fn joint(view: View<'_>, start: usize, pos: usize) -> Result<Option<(Joint, usize)>, More> {
    let end = pos + view.run(pos, Class::Digit, 3)?;
    let mut after_name = skip_quote(view, end)?;
    if view.at(after_name)? == Some(b']') {
        after_name += 1;
    }
    let at = skip_space(view, after_name)?;
    // The name's end is at hand; its beginning is looked for only where the end leaves it open.
    let shouted = view.slice(start, pos).iter().all(|b| b.is_ascii_uppercase() || *b == b'_')
        && !identifier(view, start).iter().any(u8::is_ascii_lowercase);
    let name_quoted = after_name > end;
    let mut joint =
        Joint { tight: false, shouted, quote: None, tag: false, equals: false, spaced: false, name_quoted };
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
        Some(_) if at > end && identifier(view, start).starts_with(b"--") => at,
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

/// The name that ends at `start`, as far as it may be looked at.
fn identifier(view: View<'_>, start: usize) -> &[u8] {
    let before = view.before(start, 40);
    let len = before.iter().rev().take_while(|b| Class::Url.has(**b)).count();
    before.get(before.len() - len..).unwrap_or_default()
}

fn kind(view: View<'_>, start: usize, pos: usize, name: PairName) -> &'static str {
    let mut text = identifier(view, start).to_ascii_lowercase();
    text.extend(view.slice(start, pos).to_ascii_lowercase());
    let text = String::from_utf8_lossy(&text);
    let owner = OWNERS.iter().find(|(part, _)| text.contains(part));
    match (owner, name) {
        (Some((_, kind)), _) => kind,
        (None, PairName::Password { .. } | PairName::Pass) => "password",
        (None, PairName::Secret { .. }) if text.ends_with("token") => "token",
        (None, PairName::Secret { .. } | PairName::Short) => "secret",
        (None, PairName::Key) => "api-key",
    }
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
