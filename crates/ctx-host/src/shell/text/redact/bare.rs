//! How far a value without quotes goes. Blanks and quotes end it; `&`, `;`, `,`, `<` and `>` end it only where what
//! follows is something else by its looks: passwords have such bytes too, and no tail of one may be shown.

use super::shape::{Class, More, View};
use super::swallow::Taken;

/// The name behind a separator is looked at so far.
const NAME_BYTES_MAX: usize = 32;

/// The length of the value at `from`, as far as it is weighed.
pub(super) fn len(view: View<'_>, from: usize, max: usize) -> Result<usize, More> {
    let mut len = 0;
    while len < max && is_inside(view, from + len)? {
        len += 1;
    }
    Ok(len)
}

/// How many of these bytes belong to the value that goes on with them.
pub(super) fn rest(view: View<'_>) -> Taken {
    let mut bytes = 0;
    loop {
        match is_inside(view, bytes) {
            Ok(true) => bytes += 1,
            Ok(false) => return Taken { bytes, over: bytes < view.bytes.len() },
            Err(More) => return Taken { bytes, over: false },
        }
    }
}

fn is_inside(view: View<'_>, at: usize) -> Result<bool, More> {
    match view.at(at)? {
        Some(byte) if Class::Bare.has(byte) => Ok(true),
        Some(byte @ (b'&' | b';' | b',' | b'<' | b'>')) => goes_on(view, at, byte),
        _ => Ok(false),
    }
}

/// Whether a value goes on behind a separator: not before a blank or a quote, a closing tag, a second command, nor
/// before the next setting (`&user=tom`, `;Database=x`, `,user:tom`).
fn goes_on(view: View<'_>, at: usize, separator: u8) -> Result<bool, More> {
    let Some(next) = view.at(at + 1)? else { return Ok(false) };
    let is_solid = Class::Bare.has(next) || matches!(next, b'&' | b';' | b',' | b'<' | b'>');
    if !is_solid || matches!((separator, next), (b'<', b'/') | (b'>', b'<') | (b'&', b'&')) {
        return Ok(false);
    }
    if !next.is_ascii_alphabetic() && next != b'_' {
        return Ok(true);
    }
    let name = view.run(at + 1, Class::Dotted, NAME_BYTES_MAX)?;
    Ok(match view.at(at + 1 + name)? {
        Some(b'=') => false,
        Some(b':') => separator != b',',
        _ => true,
    })
}
