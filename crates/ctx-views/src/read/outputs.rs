//! What tools gave back that was too long for its record: the log says which blob has the whole.

use std::collections::HashMap;
use std::ops::ControlFlow;

use ctx_journal::LogPath;
use ctx_session::record::{BlobRef, ToolBody};
use ctx_session::{Body, Ulid};

use super::{ReadError, Reader, SessionRef};
use crate::error::ViewError;
use crate::files::record_of;

/// The long outputs of a session, by call.
pub struct Outputs<'a> {
    reader: &'a Reader,
    log: LogPath,
    blobs: HashMap<Ulid, BlobRef>,
}

impl Reader {
    /// Looks for them in the log.
    pub fn outputs(&self, session: &SessionRef) -> Result<Outputs<'_>, ReadError> {
        let log = session.log()?;
        let mut blobs = HashMap::new();
        let read = self.journal.read(&log, 0, &mut |entry| {
            // Few records have one; the others need not be read.
            if entry.text.contains("\"blob\"")
                && let Some(Body::Tool(ToolBody::Finished(tool))) =
                    record_of(&entry).map(|record| record.body)
                && let Some(blob) = tool.blob
            {
                blobs.insert(tool.call_id.0, blob);
            }
            ControlFlow::Continue(())
        });
        read.map_err(ViewError::from)?;
        Ok(Outputs { reader: self, log, blobs })
    }
}

impl Outputs<'_> {
    /// The whole output of a call, if its record has only the beginning.
    pub fn whole(&self, call: Ulid) -> Option<Result<String, ReadError>> {
        let blob = self.blobs.get(&call)?;
        let bytes = self.reader.journal.get_blob(&self.log, &blob.sha256);
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Some(text.map_err(|error| ViewError::from(error).into()))
    }
}
