//! What commands print: from the pipe through the markers and the redaction to the kept output, and back from there.

pub(super) mod background;
pub(super) mod bulk_reader;
pub(super) mod markers;
pub(super) mod pages;
pub(super) mod pipeline;
mod search;
pub(super) mod spool;
pub(super) mod stream;
