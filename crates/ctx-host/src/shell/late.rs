//! What is printed while no command runs: by jobs in the background, mostly.
//!
//! It is redacted as it comes, before any of it is cut, and kept in the spool for the call that will tell of it.

use std::sync::Arc;

use super::shared::Shared;
use super::text::budget::{Kept, Plan};
use super::text::output::OutputStream;

/// Late output of one stream.
pub(super) struct Late {
    shared: Arc<Shared>,
    /// Made when the first byte comes: most commands leave nothing behind.
    output: Option<OutputStream>,
    /// What was printed before it on the same stream broke off inside of a secret.
    goes_on: bool,
}

impl Late {
    pub fn new(shared: &Arc<Shared>) -> Late {
        Late { shared: Arc::clone(shared), output: None, goes_on: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Late { shared, output, goes_on } = self;
        let output = output.get_or_insert_with(|| {
            let mut output = OutputStream::new(shared.secrets(), &Plan::default());
            if *goes_on {
                output.go_on_inside();
            }
            output
        });
        output.push(bytes, &mut |redacted| keep(shared, redacted));
    }

    /// Whether what comes next on the same stream may belong to a private key that has begun.
    pub fn is_inside(&self) -> bool {
        self.output.as_ref().map_or(self.goes_on, OutputStream::is_inside)
    }

    /// Takes note of how the stream before this one ended.
    pub fn comes_after(&mut self, is_inside: bool) {
        self.goes_on = is_inside;
    }

    /// Takes what came on the same stream after this.
    pub fn join(&mut self, mut after: Late) {
        match &mut self.output {
            None => *self = after,
            // It is in the spool already.
            Some(output) => {
                if let Some(kept) = after.take() {
                    output.push(kept.text.as_bytes(), &mut |_| {});
                }
            }
        }
    }

    /// What has come so far.
    pub fn take(&mut self) -> Option<Kept> {
        self.goes_on = self.is_inside();
        let finished = self.output.take()?.finish();
        keep(&self.shared, &finished.rest);
        Some(finished.kept)
    }
}

fn keep(shared: &Shared, redacted: &[u8]) {
    if let Err(error) = shared.spool().keep_late(redacted) {
        tracing::warn!(shell = %shared.id, %error, "late output was not kept");
    }
}
