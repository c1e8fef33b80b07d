//! Tells a damaged `schema_version` from a record that a newer ctx wrote. Pure.
//!
//! A newer ctx writes its version in every record from some point on, and none of ours writes behind it. So a line with
//! another version is damaged where lines of ours follow, and where the command that it belongs to began as one of ours: a
//! command is written by one ctx. A command at the end that is all newer cannot be told from the first one of a newer ctx.

use std::collections::HashMap;

use super::Versions;
use super::reading::Raw;
use crate::error::JournalError;
use crate::format::{self, NotARecord};
use crate::lines::LineForm;
use crate::path::LogPath;

/// The lines whose version is damaged, by where they begin, as they were.
pub(super) type Settled = HashMap<usize, Vec<u8>>;

/// What a line says of its version.
enum Says {
    Ours {
        seq: u64,
        more: bool,
    },
    Newer {
        version: u64,
        /// As it would be with our version, and its seq.
        as_ours: Option<(u64, Vec<u8>)>,
    },
    Nothing,
}

/// Finds the lines whose version is damaged. Fails where a newer ctx may have written.
pub(super) fn find_damaged(
    log: &LogPath,
    bytes: &[u8],
    raws: &[Raw],
    versions: Versions,
) -> Result<Settled, JournalError> {
    let all: Vec<Says> = raws.iter().map(|raw| says(bytes, raw)).collect();
    let mut settled = Settled::new();
    for (at, (raw, line)) in raws.iter().zip(&all).enumerate() {
        let Says::Newer { version, as_ours } = line else { continue };
        let (before, after) = (all.get(..at).unwrap_or_default(), all.get(at + 1..).unwrap_or_default());
        match as_ours {
            Some((seq, ours)) if versions == Versions::AreOurs || is_damaged(*seq, before, after) => {
                settled.insert(raw.start, ours.clone());
            }
            Some(_) | None => {
                return Err(JournalError::TooNew { log: log.clone(), line: raw.number, version: *version });
            }
        }
    }
    Ok(settled)
}

fn says(bytes: &[u8], raw: &Raw) -> Says {
    if raw.form() != LineForm::Whole {
        return Says::Nothing;
    }
    let line = bytes.get(raw.start..raw.end).unwrap_or_default();
    match format::parse(line) {
        Ok((envelope, _, _)) => Says::Ours { seq: envelope.seq, more: envelope.more },
        Err(NotARecord::NewerVersion(version)) => {
            let as_ours = format::with_our_version(line).and_then(|ours| {
                let seq = format::parse(&ours).ok()?.0.seq;
                Some((seq, ours))
            });
            Says::Newer { version, as_ours }
        }
        Err(NotARecord::Bad(_)) => Says::Nothing,
    }
}

/// Whether the lines around a newer record that would be record `seq` of ours tell that it is one.
fn is_damaged(seq: u64, before: &[Says], after: &[Says]) -> bool {
    let is_newer = |line: Option<&Says>| matches!(line, Some(Says::Newer { .. }));
    if is_newer(before.last()) || is_newer(after.first()) {
        return false;
    }
    let ours = |line: &Says| match line {
        Says::Ours { seq, more } => Some((*seq, *more)),
        Says::Newer { .. } | Says::Nothing => None,
    };
    let goes_on = after.iter().find_map(ours).is_some_and(|(next, _)| next > seq);
    let began_as_ours =
        before.last().and_then(ours).is_some_and(|(last, more)| more && last.checked_add(1) == Some(seq));
    goes_on || began_as_ours
}
