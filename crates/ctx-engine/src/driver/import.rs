//! Bringing records of another agent's session in: what the log has is left out, and what is too large goes beside it.

use std::collections::BTreeSet;

use ctx_session::command::{Import, UndoImport};
use ctx_session::record::{MessageBody, ToolBody};
use ctx_session::rules::Known;
use ctx_session::{Body, Command, Refusal, Ulid};

use super::Driver;
use crate::core::Core;

/// Longest text of a message that goes into a record; a record has a limit of its own.
const TEXT_BYTES_MAX: usize = 4 << 20;

impl Driver {
    /// Adds the records that are new, and says how many those were; or only says how many they would be.
    pub(super) async fn import(&mut self, import: Import, is_dry: bool) -> Result<u64, Refusal> {
        let known =
            self.imported.take().filter(|(at, _)| self.core().is_ok_and(|core| core.session.next_seq == *at));
        let bytes_max = self.inner.limits.tool_output_bytes;
        let bytes_max = (!is_dry).then_some(bytes_max);
        let sorted =
            self.blocking(move |core| sort_out(core, import, known.map(|(_, known)| known), bytes_max));
        let (import, known) = sorted.await??;
        let added = import.records.len().saturating_add(import.restored.len());
        let added = u64::try_from(added).unwrap_or(u64::MAX);
        if is_dry {
            return Ok(added);
        }
        let marks = !import.superseded.is_empty() || !import.restored.is_empty();
        if added > 0 || marks {
            self.perform(Command::Import(import), None).await?;
        }
        // What no longer counts, or counts again, is read from the log.
        self.imported = self.core().ok().filter(|_| !marks).map(|core| (core.session.next_seq, known));
        Ok(added)
    }

    /// Takes back what an import added.
    pub(super) async fn undo_import(&mut self, import_id: Ulid, by: u32) -> Result<(), Refusal> {
        self.imported = None;
        let marked = self.blocking(move |core| core.added_by(import_id)).await??;
        let superseded = marked.superseded.into_iter().collect();
        let restored = marked.restored.into_iter().collect();
        let undo = UndoImport { import_id, by, superseded, restored };
        self.perform(Command::UndoImport(undo), None).await.map(drop)
    }
}

/// Leaves out what the log has, and puts large output beside it; without a limit nothing is put anywhere.
fn sort_out(
    core: &mut Core,
    mut import: Import,
    known: Option<Known>,
    bytes_max: Option<usize>,
) -> Result<(Import, Known), Refusal> {
    let mut known = match known {
        Some(known) => known,
        None => core.known()?,
    };
    let again = known.take_undone(&import.records);
    let mut left: BTreeSet<Ulid> = std::mem::take(&mut import.superseded).into_iter().collect();
    left.extend(known.made_whole(&import.records));
    import.restored = again.restored.difference(&left).copied().collect();
    left = known.counting(left.into_iter()).collect();
    left.extend(again.superseded);
    import.superseded = left.into_iter().collect();
    let records = std::mem::take(&mut import.records).into_iter();
    import.records = records.filter_map(|(time, body)| Some((time, known.take(time, body)?))).collect();
    if let Some(bytes_max) = bytes_max {
        for (_, body) in &mut import.records {
            fit(core, body, bytes_max)?;
        }
    }
    Ok((import, known))
}

fn fit(core: &Core, body: &mut Body, bytes_max: usize) -> Result<(), Refusal> {
    match body {
        Body::Tool(ToolBody::Finished(tool)) => {
            if tool.output.len() > bytes_max {
                tool.blob = Some(core.put_blob(tool.output.as_bytes())?);
                tool.truncated = true;
                cut(&mut tool.output, bytes_max);
            }
            if let Some(diff) = tool.diff.as_mut().filter(|diff| diff.len() > bytes_max) {
                tool.diff_blob = Some(core.put_blob(diff.as_bytes())?);
                cut(diff, bytes_max);
            }
        }
        Body::Message(MessageBody::User(user)) => cut_long(&mut user.text),
        Body::Message(MessageBody::AssistantFinished(done)) => cut_long(&mut done.text),
        Body::Message(MessageBody::System(note)) => cut_long(&mut note.text),
        Body::Message(MessageBody::ReasoningFinished(reasoning)) => cut_long(&mut reasoning.text),
        _ => {}
    }
    Ok(())
}

fn cut_long(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let whole = text.len();
        cut(text, TEXT_BYTES_MAX);
        text.push_str(&format!("\n[{whole} bytes; the rest was left out by the import]"));
    }
}

/// Cuts a text at a character.
fn cut(text: &mut String, bytes_max: usize) {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}
