//! Tests of the readers: over files that the real programs wrote, and over damage.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod damage;
mod fixtures;
mod growth;
mod handoff;
mod records;
mod support;
