//! Lists of variables, as of a deployment or a task, where a name and its value are two settings: `name: DB_PASSWORD`, then
//! `value: …`, in YAML, JSON, XML or HCL.

use super::letters::are_random;
use super::name::Name;
use super::pair::{joint, value_of};
use super::shape::{BACK_BYTES, Class, More, View};
use super::swallow::Swallow;
use super::value::Joint;
use super::{Found, Kind};

/// So many settings before the value are looked at for the name.
const SETTINGS_MAX: usize = 3;
const STORAGE_KEY_BYTES: usize = 88;

/// Confirms the value of an entry; `value`, its label, lies from `start` to `pos`.
pub(super) fn listed(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    match named(view, start, pos)? {
        None if view.before(start, 1) == b"\"" => storage_key(view, start, pos),
        found => Ok(found),
    }
}

/// A key of a storage account, as `az storage account keys list` prints them: told by the letters near its end.
fn storage_key(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    let Some((Joint { quote: Some(quote), .. }, from)) = joint(view, start, pos)? else { return Ok(None) };
    let to = from + view.run(from, Class::Base64, STORAGE_KEY_BYTES + 1)?;
    let key = view.slice(from, to);
    let is_one = key.len() == STORAGE_KEY_BYTES && key.get(76..80) == Some(b"+ASt") && key.ends_with(b"==");
    let rest = Some(Swallow::quoted(quote));
    Ok(is_one.then_some(Found { from, to, kind: Kind::Rule("azure-storage-key"), rest }))
}

fn named(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    // Only what is at hand wherever the reads were cut.
    let before = view.before(start, BACK_BYTES);
    let Some((label, text)) = name_before(before) else { return Ok(None) };
    let Some(name) = Name::of(text) else { return Ok(None) };
    let Some(strength) = name.strength() else { return Ok(None) };
    let Some((joint, from)) = joint(view, start, pos)? else { return Ok(None) };
    let joint = Joint { shouted: name.is_shouted(), ..joint };
    let found = value_of(view, name, strength, joint, from)?;
    Ok(found.filter(|found| {
        let value = view.slice(found.from, found.to);
        // Forms and translations have such entries too, with words in them, and a value may say where the secret lies.
        let is_variable = joint.shouted && label.eq_ignore_ascii_case(b"name");
        let is_random = value.iter().any(u8::is_ascii_digit) || are_random(value);
        (is_variable || is_random) && !value.starts_with(b"arn:")
    }))
}

/// The name that the entry gives before its value, and what that is labelled: `"name": "DB_PASSWORD", "type": "text", "`.
fn name_before(before: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = before;
    // The label begins here, unless it is the end of a longer word.
    if rest.last().is_some_and(|byte| Class::Dotted.has(*byte)) {
        return None;
    }
    for _ in 0..SETTINGS_MAX {
        let text = last_word(&mut rest)?;
        rest = trimmed(rest, |byte| matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'\\'));
        rest = rest.strip_suffix(b":").or_else(|| rest.strip_suffix(b"="))?;
        let label = last_word(&mut rest)?;
        if label.eq_ignore_ascii_case(b"name") || label.eq_ignore_ascii_case(b"key") {
            return Some((label, text));
        }
    }
    None
}

/// Takes the last word, and what stands between it and the end: blanks, quotes, a comma.
fn last_word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let text =
        trimmed(rest, |byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'\\' | b','));
    let len = text.iter().rev().take_while(|byte| Class::Dotted.has(**byte) || **byte == b'/').count();
    let (before, word) = text.split_at(text.len() - len);
    *rest = before;
    (len > 0).then_some(word)
}

#[inline]
fn trimmed(mut text: &[u8], is_around: impl Fn(u8) -> bool) -> &[u8] {
    while let [rest @ .., last] = text
        && is_around(*last)
    {
        text = rest;
    }
    text
}
