//! The tree that the records of Claude Code form: in which order they are told, which must wait, and which were left.

use std::collections::{HashMap, HashSet};

use super::wire::Line;

/// The records of a file with the numbers of their lines.
type Records<'a> = [(u64, Line<'a>)];

fn by_uuid<'r>(records: &'r Records<'_>) -> HashMap<&'r str, usize> {
    let places = records.iter().enumerate();
    places.filter_map(|(at, (_, line))| Some((line.uuid.as_deref()?, at))).collect()
}

/// The first answer may stand above the first prompt: as long as what it answers is not there, it waits, and so does what
/// comes after it.
pub(super) fn waiting(records: &Records<'_>, ordered: &[usize]) -> HashSet<usize> {
    let by_uuid = by_uuid(records);
    let first_prompt = records.iter().position(|(_, line)| line.kind == "user").unwrap_or(records.len());
    let mut waiting = HashSet::new();
    for at in ordered {
        let parent = records.get(*at).and_then(|(_, line)| line.parent_uuid.as_deref());
        let Some(parent) = parent else { continue };
        let waits = match by_uuid.get(parent) {
            Some(place) => waiting.contains(place),
            None => *at < first_prompt,
        };
        if waits {
            waiting.insert(*at);
        }
    }
    waiting
}

/// The places of the records, each after its parent where that is in the file; otherwise as they are.
pub(super) fn order(records: &Records<'_>) -> Vec<usize> {
    let by_uuid = by_uuid(records);
    let parent = |at: usize| {
        let (_, line) = records.get(at)?;
        by_uuid.get(line.parent_uuid.as_deref()?).copied()
    };
    let mut ordered = Vec::with_capacity(records.len());
    let mut is_told = vec![false; records.len()];
    let mut waiting: HashMap<usize, Vec<usize>> = HashMap::new();
    for at in 0..records.len() {
        match parent(at) {
            Some(before) if !is_told.get(before).copied().unwrap_or(true) => {
                waiting.entry(before).or_default().push(at);
            }
            _ => {
                let mut next = vec![at];
                while let Some(at) = next.pop() {
                    if let Some(told) = is_told.get_mut(at) {
                        *told = true;
                    }
                    ordered.push(at);
                    next.extend(waiting.remove(&at).unwrap_or_default().into_iter().rev());
                }
            }
        }
    }
    // A circle of parents is damage: its records are told as they stand.
    ordered.extend((0..records.len()).filter(|at| !is_told.get(*at).copied().unwrap_or(true)));
    ordered
}

/// The prompts that were typed anew, with all that came of them: of several prompts after one record the last is the one that
/// was gone on with. Prompts without a record before them begin conversations of their own.
pub(super) fn abandoned(
    records: &Records<'_>,
    ordered: &[usize],
    is_prompt: impl Fn(&Line<'_>) -> bool,
) -> HashSet<usize> {
    let mut siblings: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, (_, line)) in records.iter().enumerate().filter(|(_, (_, line))| line.kind == "user") {
        if let Some(parent) = line.parent_uuid.as_deref() {
            siblings.entry(parent).or_default().push(at);
        }
    }
    let mut gone = HashSet::new();
    for siblings in siblings.values().filter(|siblings| siblings.len() > 1) {
        let typed = |at: &&usize| records.get(**at).is_some_and(|(_, line)| is_prompt(line));
        gone.extend(siblings.iter().filter(typed).rev().skip(1).copied());
    }
    if gone.is_empty() {
        return gone;
    }
    let by_uuid = by_uuid(records);
    for at in ordered {
        let parent = records.get(*at).and_then(|(_, line)| line.parent_uuid.as_deref());
        if parent.and_then(|parent| by_uuid.get(parent)).is_some_and(|parent| gone.contains(parent)) {
            gone.insert(*at);
        }
    }
    gone
}
