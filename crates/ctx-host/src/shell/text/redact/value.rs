//! Whether a value after a telling name is a secret rather than code, a placeholder, a path or prose.
//!
//! Pure: bytes and how they are joined to the name in, yes or no out. Names are told in `pair`.

use super::letters::are_random;
use super::shape::Class;
use super::swallow::Quote;

const PASSWORD_BYTES_MIN: usize = 4;
pub(super) const SECRET_BYTES_MIN: usize = 8;
/// The value of a key whose name leaves open what it is of, at least.
const KEY_BYTES_MIN: usize = 16;
/// Letters alone are a secret only from this length on, except in a shouted name.
const LETTERS_BYTES_MIN: usize = 12;

/// A number in hexadecimal is shorter.
const HEX_BYTES_MAX: usize = 16;
/// What may stand behind its digits.
const HEX_SUFFIXES: [&str; 14] =
    ["", "u", "l", "ul", "ull", "n", "i8", "u8", "i16", "u16", "i32", "u32", "u64", "usize"];

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

/// How much a name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strength {
    Password,
    Secret,
}

/// How name and value are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joint {
    /// No space on either side of a `=`.
    pub tight: bool,
    /// The name is an environment variable's: capitals only.
    pub shouted: bool,
    pub quote: Option<Quote>,
    /// `<password>…</password>`.
    pub tag: bool,
    /// Joined by a `=`.
    pub equals: bool,
    /// A space stands before the value.
    pub spaced: bool,
    /// The name stands in quotes.
    pub name_quoted: bool,
    /// `--password value`: nothing but a blank between them.
    pub option: bool,
    /// The quote stands in code: `Some("…")`, `b"…"`, `&str = "…"`.
    pub coded: bool,
}

/// The end of what stands in a tag.
const TAG_END: Quote = Quote { byte: b'<', escaped: false };

impl Joint {
    /// A value in quotes, as an argument of a call.
    pub fn in_code(quote: Quote) -> Joint {
        Joint {
            tight: false,
            shouted: false,
            quote: Some(quote),
            tag: false,
            equals: false,
            spaced: false,
            name_quoted: true,
            option: false,
            coded: true,
        }
    }

    /// What ends the value, where blanks do not.
    pub fn end(self) -> Option<Quote> {
        self.quote.or(self.tag.then_some(TAG_END))
    }
}

/// Whether a value after a telling name is a secret rather than code, a placeholder or prose.
pub(super) fn is_secret(value: &[u8], strength: Strength, joint: Joint) -> bool {
    // A trailing bracket or full stop belongs to the sentence or the code around the value.
    let value = if joint.quote.is_none() { trim_end(value) } else { value };
    let min = match strength {
        Strength::Password => PASSWORD_BYTES_MIN,
        Strength::Secret if joint.shouted && joint.tight => PASSWORD_BYTES_MIN,
        Strength::Secret => SECRET_BYTES_MIN,
    };
    if value.len() < min
        || is_hex_number(value)
        || is_placeholder(value)
        || is_path(value)
        || is_code(value, joint)
    {
        return false;
    }
    let sure = joint.tight || joint.quote.is_some() || joint.tag;
    let letters = value.iter().all(u8::is_ascii_alphabetic);
    let name_like =
        value.iter().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-' | b'.' | b':' | b'/'));
    match strength {
        Strength::Password if sure => true,
        Strength::Secret if joint.shouted && sure => true,
        Strength::Password | Strength::Secret if are_random(value) => true,
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

/// The value of a key that may be of a table or a cache: random rather than words, numbers or a path.
pub(super) fn is_random_key(value: &[u8]) -> bool {
    let is_of_key = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'_' | b'-');
    let words = |min: usize| {
        let parts = value.split(|b| !b.is_ascii_alphanumeric());
        parts.filter(|part| part.len() >= min && part.iter().all(u8::is_ascii_lowercase)).count()
    };
    value.len() >= KEY_BYTES_MIN
        && value.iter().all(is_of_key)
        && value.iter().any(u8::is_ascii_digit)
        && value.iter().any(u8::is_ascii_alphabetic)
        && !value.starts_with(b"pk_")
        && words(5) == 0
        && words(3) < 2
}

/// Whether a value was made by a program: digits among letters of both kinds, or a long row of letters and digits.
pub(super) fn is_made(value: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| value.iter().any(is);
    let is_solid = value.iter().all(u8::is_ascii_graphic) && !has(|b| matches!(b, b'(' | b'[' | b'{' | b'<'));
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let is_row = value.len() >= KEY_BYTES_MIN && value.iter().all(u8::is_ascii_alphanumeric);
    value.len() >= SECRET_BYTES_MIN
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && is_solid
        && (is_mixed || is_row)
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
        // Prose, a phrase or a template in a string.
        return value.contains(&b' ') || value.windows(2).any(|two| matches!(two, b"${" | b"{{" | b"%s"));
    }
    if joint.tag {
        return value.iter().any(|b| matches!(b, b'(' | b')' | b'{' | b'}' | b'*' | b':' | b' '));
    }
    if (!joint.tight && ((!joint.option && is_constant(value)) || is_number(value))) || is_own_name(value) {
        return true;
    }
    if has_brackets_of_code(value, joint) || matches!(value, [b'q', b'r', b'/' | b'{' | b'!' | b'|', ..]) {
        return true;
    }
    let dotted = value.contains(&b'.')
        && value.iter().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'.' | b'$' | b'?'));
    let path = value.windows(2).any(|two| two == b"::") || value.windows(2).any(|two| two == b"=>");
    let star = matches!(value.first(), Some(b'&' | b'!' | b'+' | b'?'))
        && value.get(1..).is_some_and(|rest| rest.iter().all(|b| b.is_ascii_alphabetic()));
    dotted || path || star
}

/// A call or an index, or the end of a block as in code without blanks: `t}(this`.
fn has_brackets_of_code(value: &[u8], joint: Joint) -> bool {
    let bracket = |b: &u8| matches!(b, b'(' | b'[' | b'{' | b')' | b']' | b'}');
    let Some(at) = value.iter().position(bracket) else { return false };
    let (head, rest) = value.split_at(at);
    match rest.first() {
        Some(b'(' | b'[' | b'{') => {
            head.iter().all(|b| Class::Dotted.has(*b) || matches!(b, b':' | b'$' | b'!' | b'?'))
        }
        // A password in a template ends so too, but is longer.
        _ => !joint.shouted && head.len() < SECRET_BYTES_MIN && head.iter().all(|b| Class::Dotted.has(*b)),
    }
}

/// A name as code has them: `WIN32_ERROR`, `__u32`, `node.dot2_token`, `IKEEXT_0`.
fn is_constant(value: &[u8]) -> bool {
    let is_name = value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
    let shouted = value.contains(&b'_') && !value.iter().any(u8::is_ascii_lowercase);
    let member = value.contains(&b'.')
        && value.split(|b| *b == b'.').all(|part| part.first().is_some_and(u8::is_ascii_alphabetic));
    let numbered = matches!(value, [.., b'_', digit] if digit.is_ascii_digit());
    is_name && (shouted || member || numbered || value.starts_with(b"_")) && !is_mixed_up(value)
}

/// Digits among letters twice in a part that no name has so: `Kx7pQ2mZ9w`.
fn is_mixed_up(value: &[u8]) -> bool {
    let is_within = |[before, digit, after]: &[u8; 3]| {
        before.is_ascii_alphabetic() && digit.is_ascii_digit() && after.is_ascii_alphabetic()
    };
    let mut parts = value.split(|b| matches!(b, b'_' | b'.'));
    parts.any(|part| {
        part.len() >= SECRET_BYTES_MIN && part.array_windows().filter(|w| is_within(w)).count() > 1
    })
}

/// `password=db_password`: the value is a variable with such a name itself.
#[inline]
pub(super) fn is_own_name(value: &[u8]) -> bool {
    let is_name = value.iter().all(|b| b.is_ascii_alphabetic() || *b == b'_');
    let ends = [&b"password"[..], b"passwd", b"passphrase", b"token", b"secret", b"key"]
        .iter()
        .any(|name| value.ends_with(name));
    is_name && ends && value.contains(&b'_')
}

/// `0x1F00`, `0xffff_0000u32`; what is longer is no number.
fn is_hex_number(value: &[u8]) -> bool {
    let Some(digits) = value.strip_prefix(b"0x").filter(|_| value.len() < HEX_BYTES_MAX) else {
        return false;
    };
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'_';
    let len = digits.iter().take_while(|byte| is_digit(byte)).count();
    let suffix = digits.get(len..).unwrap_or_default().to_ascii_lowercase();
    HEX_SUFFIXES.iter().any(|known| suffix == known.as_bytes())
}

/// `4i32`, `1_000`.
fn is_number(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_digit) && value.len() < 8
}
