//! Values of YAML that do not stand directly behind their name: in the line below, or behind an anchor or a type.

use super::around::skip_space;
use super::shape::{Class, More, View};

/// The name of an anchor is looked at so far.
const ANCHOR_BYTES_MAX: usize = 32;
/// What code has behind `&` before the name of a type.
const WORDS_OF_CODE: [&[u8]; 4] = [b"mut", b"dyn", b"raw", b"const"];

/// Where the value begins that another thing stands before, if it does: `password: >-`, `password: &a x`.
pub(super) fn value(view: View<'_>, from: usize) -> Result<Option<usize>, More> {
    let at = match view.at(from)? {
        Some(b'>' | b'|') => below(view, from)?,
        Some(b'&') => behind_anchor(view, from)?,
        Some(b'!') if view.starts(from, b"!!str ", false)? => skip_space(view, from + 6)?,
        _ => from,
    };
    Ok((at > from).then_some(at))
}

/// Whether nothing but a comment stands between `pos` and the end of its line.
pub(super) fn ends_line(view: View<'_>, pos: usize) -> Result<bool, More> {
    Ok(matches!(view.at(skip_space(view, pos)?)?, None | Some(b'\n' | b'\r' | b'#')))
}

fn behind_anchor(view: View<'_>, from: usize) -> Result<usize, More> {
    let end = from + 1 + view.run(from + 1, Class::Url, ANCHOR_BYTES_MAX)?;
    let at = skip_space(view, end)?;
    let is_code = WORDS_OF_CODE.contains(&view.slice(from + 1, end)) || view.at(at)? == Some(b'=');
    Ok(if at == end || end == from + 1 || is_code { from } else { at })
}

/// Where the value begins that `>-` or `|` says stands in the next line.
pub(super) fn below(view: View<'_>, from: usize) -> Result<usize, More> {
    if !matches!(view.at(from)?, Some(b'>' | b'|')) {
        return Ok(from);
    }
    let mut at = from + 1;
    while at < from + 3 && view.at(at)?.is_some_and(|byte| matches!(byte, b'-' | b'+' | b'1'..=b'9')) {
        at += 1;
    }
    at = skip_space(view, at)?;
    at += usize::from(view.at(at)? == Some(b'\r'));
    if view.at(at)? != Some(b'\n') {
        return Ok(from);
    }
    // The mark of a diff.
    at = skip_space(view, at + 1)?;
    at += usize::from(matches!(view.at(at)?, Some(b'+' | b'-')));
    skip_space(view, at)
}
