//! One stream of a command: redacted bytes to store, and clean text within a budget.
//!
//! The stored bytes are redacted and otherwise as the program wrote them. A secret that escape sequences
//! or a redrawn line tear apart shows only in the clean text, so what is kept of it is redacted again.

use std::sync::Arc;

use super::ansi::Cleaner;
use super::budget::{Collector, Kept, Plan};
use super::redact::{Redactor, Secrets, redact_text};

/// A stream that is being read. It holds what the budget may show, and a few KiB.
pub struct OutputStream {
    secrets: Arc<Secrets>,
    redactor: Redactor,
    cleaner: Cleaner,
    collector: Collector,
    bytes: Vec<u8>,
    text: String,
}

/// A stream that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The last redacted bytes to store.
    pub rest: Vec<u8>,
    pub kept: Kept,
    /// Secrets that were replaced in the stored bytes.
    pub redactions: u64,
}

impl OutputStream {
    pub fn new(secrets: Arc<Secrets>, plan: &Plan) -> OutputStream {
        OutputStream {
            redactor: Redactor::new(Arc::clone(&secrets)),
            secrets,
            cleaner: Cleaner::new(),
            collector: Collector::new(plan),
            bytes: Vec::new(),
            text: String::new(),
        }
    }

    /// Takes the next bytes of the program and gives the redacted bytes to store.
    pub fn push(&mut self, bytes: &[u8]) -> &[u8] {
        self.bytes.clear();
        self.redactor.push(bytes, &mut self.bytes);
        self.collect();
        &self.bytes
    }

    /// Ends the stream.
    pub fn finish(mut self) -> Finished {
        self.bytes.clear();
        self.redactor.finish(&mut self.bytes);
        self.collect();
        self.text.clear();
        self.cleaner.finish(&mut self.text);
        self.collector.push(&self.text);
        let mut kept = self.collector.finish();
        if self.cleaner.changed() {
            kept.text = redact_text(&self.secrets, &kept.text);
        }
        Finished { rest: self.bytes, kept, redactions: self.redactor.redactions() }
    }

    fn collect(&mut self) {
        self.text.clear();
        self.cleaner.push(&self.bytes, &mut self.text);
        self.collector.push(&self.text);
    }
}
