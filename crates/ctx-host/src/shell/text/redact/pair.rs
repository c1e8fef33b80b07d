//! `password=…` and its like: a telling name, a separator, a value that looks like a secret.
//!
//! Names are everywhere in source code, so the value decides: an expression, a type, a placeholder, a path
//! or a plain word of prose stays. How strict the look is depends on how sure the pair is: `PASSWORD=x1y2`
//! in an environment is one, `token: unexpected` in a message is none.

use super::around::{quote_at, skip_quote, skip_space};
use super::rules::PairName;
use super::shape::{Class, More, View};
use super::swallow::{Quote, Swallow};
use super::{Found, Kind};

/// Bytes of a value that are weighed.
const WEIGH_BYTES: usize = 128;
const PASSWORD_BYTES_MIN: usize = 4;
const SECRET_BYTES_MIN: usize = 8;
/// Letters alone are a secret only from this length on, except in a shouted name.
const LETTERS_BYTES_MIN: usize = 12;

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

/// The longest of [`WORDS`].
const WORD_BYTES_MAX: usize = 10;

/// Values that stand for something else.
const WORDS: &[&str] = &[
    "null",
    "none",
    "nil",
    "undefined",
    "true",
    "false",
    "string",
    "number",
    "boolean",
    "object",
    "required",
    "optional",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "value",
    "default",
    "example",
    "redacted",
    "hidden",
    "masked",
    "empty",
    "unset",
    "missing",
    "invalid",
    "expired",
    "prompt",
    "stdin",
    "disabled",
    "enabled",
    "bytes",
    "option",
    "self",
    "this",
    "changeme",
    "bearer",
    "basic",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strength {
    Password,
    Secret,
}

/// How name and value are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Joint {
    /// No space on either side of a `=`.
    tight: bool,
    /// The name is an environment variable's: capitals only.
    shouted: bool,
    quote: Option<Quote>,
    /// `<password>…</password>`.
    tag: bool,
    /// Joined by a `=`.
    equals: bool,
    /// A space stands before the value.
    spaced: bool,
    /// The name stands in quotes.
    name_quoted: bool,
}

/// Confirms a pair; the anchor lies from `start` to `pos`.
pub(super) fn pair(view: View<'_>, start: usize, pos: usize, name: PairName) -> Result<Option<Found>, More> {
    let Some(strength) = strength(view, start, name) else { return Ok(None) };
    let Some((joint, from)) = joint(view, start, pos)? else { return Ok(None) };
    let len = value_len(view, from, joint.quote)?;
    let value = view.slice(from, from + len);
    // What is dear comes last: most values are told by less.
    if !is_secret(value, strength, joint)
        || !is_sure_enough(view, start, name, value, joint)
        || is_harmless_name(identifier(view, start))
    {
        return Ok(None);
    }
    if joint.quote.is_none() && !joint.tight && !joint.tag {
        // `name: Type = value` is a declaration.
        let after = skip_space(view, from + len)?;
        if after > from + len && view.at(after)? == Some(b'=') {
            return Ok(None);
        }
    }
    let rest = match joint.quote {
        Some(quote) => Swallow::quoted(quote),
        None => Swallow::Class(Class::Bare),
    };
    let kind = kind(view, start, pos, name);
    Ok(Some(Found { from, to: from + len, kind: Kind::Rule(kind), rest: Some(rest) }))
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
    let mut len = 0;
    while len < WEIGH_BYTES {
        let Some(byte) = view.at(from + len)? else { break };
        let (inside, step) = match quote {
            Some(quote) if byte == b'\\' && !quote.escaped => {
                (view.at(from + len + 1)?.is_some_and(|b| b != b'\n'), 2)
            }
            Some(quote) => (byte != quote.byte && !matches!(byte, b'\n' | b'\\'), 1),
            None => (Class::Bare.has(byte), 1),
        };
        if !inside {
            break;
        }
        len += step;
    }
    Ok(len)
}

/// Whether a value after a telling name is a secret rather than code, a placeholder or prose.
fn is_secret(value: &[u8], strength: Strength, joint: Joint) -> bool {
    // A trailing bracket or full stop belongs to the sentence or the code around the value.
    let value = if joint.quote.is_none() { trim_end(value) } else { value };
    let min = match strength {
        Strength::Password => PASSWORD_BYTES_MIN,
        Strength::Secret if joint.shouted && joint.tight => PASSWORD_BYTES_MIN,
        Strength::Secret => SECRET_BYTES_MIN,
    };
    let is_hex = value.starts_with(b"0x") && value.len() < 16;
    if value.len() < min || is_hex || is_placeholder(value) || is_path(value) || is_code(value, joint) {
        return false;
    }
    let sure = joint.tight || joint.quote.is_some() || joint.tag;
    let letters = value.iter().all(u8::is_ascii_alphabetic);
    let name_like =
        value.iter().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-' | b'.' | b':' | b'/'));
    match strength {
        Strength::Password if sure => true,
        Strength::Secret if joint.shouted && sure => true,
        Strength::Password | Strength::Secret if !sure => !name_like && value.iter().any(u8::is_ascii_digit),
        Strength::Password | Strength::Secret => {
            if letters {
                value.len() >= LETTERS_BYTES_MIN && !is_camel(value)
            } else {
                !name_like
            }
        }
    }
}

fn trim_end(value: &[u8]) -> &[u8] {
    let len = value
        .iter()
        .rev()
        .take_while(|b| matches!(b, b')' | b']' | b'}' | b'.' | b':' | b'!' | b'?'))
        .count();
    value.get(..value.len() - len).unwrap_or_default()
}

fn is_camel(value: &[u8]) -> bool {
    value.windows(2).any(|two| matches!(two, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()))
}

pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let first = value.first().copied().unwrap_or(b' ');
    let same = value.iter().all(|b| b.eq_ignore_ascii_case(&first));
    let is_word = || {
        value.len() <= WORD_BYTES_MAX && WORDS.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
    };
    same || matches!(first, b'$' | b'%' | b'<' | b'{' | b'(' | b'[' | b'*' | b'@' | b'|' | b'=' | b'\\')
        || value.starts_with(b"-----")
        || value.windows(3).any(|three| matches!(three, b"..." | b"***" | b"://"))
        || is_word()
}

fn is_path(value: &[u8]) -> bool {
    let rooted = [&b"/"[..], b"./", b"../", b"~/"].iter().any(|root| value.starts_with(root));
    let is_random = value.iter().any(u8::is_ascii_digit)
        && value.iter().any(u8::is_ascii_uppercase)
        && value.iter().any(u8::is_ascii_lowercase)
        && !value.contains(&b'.');
    rooted && !is_random
}

/// Calls, indexes, member access, types, generics.
fn is_code(value: &[u8], joint: Joint) -> bool {
    if joint.quote.is_some() {
        // Prose or a template in a string.
        return value.contains(&b' ') || value.windows(2).any(|two| matches!(two, b"${" | b"{{" | b"%s"));
    }
    if joint.tag {
        return value.iter().any(|b| matches!(b, b'(' | b')' | b'{' | b'}' | b'*' | b':'));
    }
    if (!joint.tight && (is_constant(value) || is_number(value))) || is_own_name(value) {
        return true;
    }
    let call = value.iter().position(|b| matches!(b, b'(' | b'[' | b'{'));
    if let Some(at) = call {
        let head = value.get(..at).unwrap_or_default();
        if head.iter().all(|b| Class::Dotted.has(*b) || matches!(b, b':' | b'$' | b'!' | b'?')) {
            return true;
        }
    }
    let dotted = value.contains(&b'.')
        && value.iter().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'.' | b'$' | b'?'));
    let path = value.windows(2).any(|two| two == b"::") || value.windows(2).any(|two| two == b"=>");
    let star = matches!(value.first(), Some(b'&' | b'!' | b'+' | b'?'))
        && value.get(1..).is_some_and(|rest| rest.iter().all(|b| b.is_ascii_alphabetic()));
    dotted || path || star
}

/// A name as code has them: `WIN32_ERROR`, `__u32`, `node.dot2_token`, `IKEEXT_0`.
fn is_constant(value: &[u8]) -> bool {
    let is_name = value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
    let shouted = value.contains(&b'_') && !value.iter().any(u8::is_ascii_lowercase);
    let member = value.contains(&b'.')
        && value.split(|b| *b == b'.').all(|part| part.first().is_some_and(u8::is_ascii_alphabetic));
    let numbered = matches!(value, [.., b'_', digit] if digit.is_ascii_digit());
    is_name && (shouted || member || numbered || value.starts_with(b"_"))
}

/// `password=db_password`: the value is a variable with such a name itself.
fn is_own_name(value: &[u8]) -> bool {
    let is_name = value.iter().all(|b| b.is_ascii_alphabetic() || *b == b'_');
    let ends = [&b"password"[..], b"passwd", b"passphrase", b"token", b"secret", b"key"]
        .iter()
        .any(|name| value.ends_with(name));
    is_name && ends && value.contains(&b'_')
}

/// `4i32`, `1_000`.
fn is_number(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_digit) && value.len() < 8
}
