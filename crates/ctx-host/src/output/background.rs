//! What is printed while no command runs: by jobs in the background, mostly.
//!
//! It is redacted as it comes, before any of it is cut, and kept in the spool for the next result.

use std::sync::Arc;

use crate::state::ShellState;
use ctx_text::budget::Plan;
use ctx_text::output::{Finished, OutputStream};

/// Late output of one stream.
pub(crate) struct LateOutput {
    shared: Arc<ShellState>,
    /// Made when the first byte comes: most commands leave nothing behind.
    output: Option<OutputStream>,
}

impl LateOutput {
    pub fn new(shared: &Arc<ShellState>) -> LateOutput {
        LateOutput { shared: Arc::clone(shared), output: None }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let LateOutput { shared, output } = self;
        let output = output.get_or_insert_with(|| OutputStream::new(shared.secrets(), &Plan::default()));
        output.push(bytes, &mut |redacted| keep(shared, redacted));
    }

    /// Takes what came on the same stream after this.
    pub fn join(&mut self, mut after: LateOutput) {
        match &mut self.output {
            None => *self = after,
            // It is in the spool already.
            Some(output) => {
                if let Some(finished) = after.take() {
                    output.push(finished.kept.text.as_bytes(), &mut |_| {});
                }
            }
        }
    }

    /// What has come so far.
    pub fn take(&mut self) -> Option<Finished> {
        let finished = self.output.take()?.finish();
        keep(&self.shared, &finished.rest);
        Some(finished)
    }
}

fn keep(shared: &ShellState, redacted: &[u8]) {
    if let Err(error) = shared.spool().keep_late(redacted) {
        tracing::warn!(shell = %shared.id, %error, "late output was not kept");
    }
}
