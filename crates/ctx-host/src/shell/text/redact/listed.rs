//! Lists of variables, as of a deployment or a task, where a name and its value are two settings: `name: DB_PASSWORD`, then
//! `value: …`, in YAML, JSON, XML or HCL.

use super::Found;
use super::letters::are_random;
use super::name::Name;
use super::pair::{joint, value_of};
use super::shape::{BACK_BYTES, Class, More, View};
use super::value::Joint;

/// So many settings before the value are looked at for the name.
const SETTINGS_MAX: usize = 3;

/// Confirms the value of an entry; `value`, its label, lies from `start` to `pos`.
pub(super) fn listed(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
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
        rest = trimmed(rest, b" \t\"'\\");
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
    let text = trimmed(rest, b" \t\r\n\"'\\,");
    let len = text.iter().rev().take_while(|byte| Class::Dotted.has(**byte) || **byte == b'/').count();
    let (before, word) = text.split_at(text.len() - len);
    *rest = before;
    (len > 0).then_some(word)
}

fn trimmed<'a>(text: &'a [u8], around: &[u8]) -> &'a [u8] {
    let len = text.iter().rev().take_while(|byte| around.contains(byte)).count();
    text.get(..text.len() - len).unwrap_or_default()
}
