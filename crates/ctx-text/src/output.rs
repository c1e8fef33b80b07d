//! One stream of a command: redacted bytes to store, and clean text within a budget.
//!
//! The stored bytes are redacted and otherwise as the program wrote them. A secret that escape sequences
//! or a redrawn line tear apart shows only in the clean text, so what is kept of it is redacted again.

use std::sync::Arc;

use super::ansi::Cleaner;
use super::budget::{Collector, Kept, Plan};
use super::ends::{Ends, Gatherer};
use super::redact::{Redactor, Secrets, redact_text};

/// A stream that is being read. It holds what the budget may show, and a few KiB.
pub struct OutputStream {
    redactor: Redactor,
    shown: Shown,
}

/// What is shown of a stream whose secrets were taken out.
pub struct Shown {
    secrets: Arc<Secrets>,
    cleaner: Cleaner,
    collector: Collector,
    ends: Gatherer,
    bytes: u64,
    nuls: u64,
}

/// A stream that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The last redacted bytes to store.
    pub rest: Vec<u8>,
    pub kept: Kept,
    /// For the log, which does not follow the budget.
    pub ends: Ends,
    /// Secrets that were replaced in the stored bytes.
    pub redactions: u64,
}

impl OutputStream {
    pub fn new(secrets: Arc<Secrets>, plan: &Plan) -> OutputStream {
        OutputStream {
            redactor: Redactor::new(Arc::clone(&secrets)),
            shown: Shown {
                secrets,
                cleaner: Cleaner::new(),
                collector: Collector::new(plan),
                ends: Gatherer::default(),
                bytes: 0,
                nuls: 0,
            },
        }
    }

    /// Takes the next bytes of the program and hands on the redacted bytes to store, piece by piece.
    pub fn push(&mut self, bytes: &[u8], store: &mut dyn FnMut(&[u8])) {
        let OutputStream { redactor, shown } = self;
        redactor.push_to(bytes, &mut |piece| {
            store(piece);
            shown.push(piece);
        });
    }

    /// The two steps, for whoever takes them apart: what the first hands on goes to the second.
    pub fn steps(self) -> (Redactor, Shown) {
        (self.redactor, self.shown)
    }

    /// Ends the stream.
    pub fn finish(self) -> Finished {
        self.shown.finish(self.redactor)
    }
}

impl Shown {
    /// Takes the next redacted bytes.
    pub fn push(&mut self, redacted: &[u8]) {
        let Shown { cleaner, collector, ends, bytes, nuls, .. } = self;
        *bytes += redacted.len() as u64;
        *nuls += memchr::memchr_iter(0, redacted).count() as u64;
        cleaner.push_to(redacted, &mut |clean| {
            ends.push(clean);
            collector.push(clean);
        });
    }

    /// Ends the stream; the redactor may still hold the end of it.
    pub fn finish(mut self, mut redactor: Redactor) -> Finished {
        let (mut rest, mut text) = (Vec::new(), String::new());
        redactor.finish(&mut rest);
        self.bytes += rest.len() as u64;
        self.nuls += memchr::memchr_iter(0, &rest).count() as u64;
        self.cleaner.push(&rest, &mut text);
        self.cleaner.finish(&mut text);
        self.collector.push(&text);
        self.ends.push(&text);
        let (mut kept, mut ends) = (self.collector.finish(), self.ends.finish());
        let mut redactions = redactor.redactions();
        if self.cleaner.changed() {
            let redacted = redact_text(&self.secrets, &kept.text);
            redactions += u64::from(redacted != kept.text);
            kept.text = redacted;
            ends.change(|text| redact_text(&self.secrets, text));
        }
        if is_binary(self.bytes, self.nuls, &kept.text) {
            kept.replace(format!(
                "[binary output: {} bytes; session_output has them as base64]\n",
                self.bytes
            ));
        }
        Finished { rest, kept, ends, redactions }
    }
}

/// Fewer bytes than this are shown in any case.
const BINARY_BYTES_MIN: u64 = 256;

/// Whether a text is one that nobody can read: many NULs, or much that is not UTF-8.
pub fn is_binary(bytes: u64, nuls: u64, text: &str) -> bool {
    let broken = || text.chars().filter(|c| *c == char::REPLACEMENT_CHARACTER).count();
    bytes >= BINARY_BYTES_MIN && (nuls * 20 > bytes || broken() * 5 > text.chars().count())
}
