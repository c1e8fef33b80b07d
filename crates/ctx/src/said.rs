//! A conversation as the API shows it, read from the session's log, so that it needs no daemon.

use ctx_api::http::{Damage, Message, Metadata};
use ctx_doors::http::message_of;
use ctx_views::read::{Reader, Said, SessionRef, Wanted};

use crate::failure::Failure;

/// The messages of a session, oldest first, with a line in the place of records that are lost; read as they are asked for.
/// Those that do not count any more are among them where `all` are asked for.
pub fn messages(
    reader: &Reader,
    session: &SessionRef,
    all: bool,
) -> Result<impl Iterator<Item = Result<Message, Failure>>, Failure> {
    let said = reader.conversation(session, Wanted::All)?;
    let wanted = move |said: &Result<Said, _>| all || !said.as_ref().is_ok_and(Said::superseded);
    Ok(said.filter(wanted).map(|said| Ok(shape(&said?))))
}

fn shape(said: &Said) -> Message {
    let (superseded, pinned) = (said.superseded(), said.pinned);
    if let Some(message) = said.record.as_deref().and_then(message_of) {
        return Message { superseded, pinned, ..message };
    }
    let damage =
        said.lost.as_ref().map(|lost| Damage { lines: lost.end - lost.start, since_seq: lost.start });
    // Without its log, a session has what `messages.jsonl` says.
    let message = &said.message;
    Message {
        id: message.id,
        run_id: message.run,
        role: message.role,
        content: message.text(),
        parts: Vec::new(),
        created_at: message.time.as_millis(),
        superseded,
        pinned,
        metadata: Metadata {
            seq: message.seq,
            caller: message.caller.clone(),
            damage,
            ..Metadata::default()
        },
    }
}
