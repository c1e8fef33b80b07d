//! Lists of variables, as of a deployment or a task, where a name and its value are two settings: `name: DB_PASSWORD`, then
//! `value: …`, in YAML, JSON, XML or HCL.

use std::borrow::Cow;

use super::entry::Entry;
use super::letters::are_random;
use super::name::Name;
use super::pair::{WEIGH_BYTES, joint, value_of};
use super::shape::{BACK_BYTES, Class, More, View};
use super::swallow::Swallow;
use super::value::Joint;
use super::yaml::below;
use super::{Found, Kind};

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
    let before = without_colour(view.before(start, BACK_BYTES));
    let Some(entry) = Entry::before(&before) else { return Ok(None) };
    let Some(name) = Name::of(entry.name) else { return Ok(None) };
    let Some(strength) = name.strength() else { return Ok(None) };
    let Some((joint, from)) = joint(view, start, pos)? else { return Ok(None) };
    if entry.begins_item && !joint.equals {
        return Ok(None);
    }
    let from = if joint.end().is_none() { below(view, from)? } else { from };
    let joint = Joint { shouted: name.is_shouted(), ..joint };
    let found = value_of(view, name, strength, joint, from)?;
    Ok(found.and_then(|found| of_entry(view, &entry, joint, found)))
}

/// What was found, if it is a value in such an entry.
fn of_entry(view: View<'_>, entry: &Entry<'_>, joint: Joint, found: Found) -> Option<Found> {
    let value = view.slice(found.from, found.to);
    let is_random = value.iter().any(u8::is_ascii_digit) || are_random(value);
    // A value may say where the secret lies.
    if !(entry.is_sure(joint.shouted) || is_random) || value.starts_with(b"arn:") {
        return None;
    }
    if found.rest != Some(Swallow::Bare) || !entry.is_inline() || value.len() >= WEIGH_BYTES {
        return Some(found);
    }
    let brackets = value.iter().rev().take_while(|byte| matches!(byte, b')' | b']' | b'}')).count();
    let to = found.to - brackets;
    (!entry.has_code(view.slice(found.from, to))).then_some(Found { to, rest: None, ..found })
}

/// The text without the sequences that colour it.
fn without_colour(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(0x1b, text) else { return Cow::Borrowed(text) };
    let (plain, coloured) = text.split_at(first);
    let mut plain = plain.to_vec();
    for piece in coloured.split(|byte| *byte == 0x1b).skip(1) {
        let end = piece.iter().position(|byte| matches!(byte, b'm' | b'K')).map_or(0, |at| at + 1);
        let (sequence, rest) = piece.split_at(end);
        let is_colour = sequence.iter().all(|byte| matches!(byte, b'[' | b'm' | b'K' | b';' | b'0'..=b'9'));
        plain.extend_from_slice(if is_colour { rest } else { piece });
    }
    Cow::Owned(plain)
}
