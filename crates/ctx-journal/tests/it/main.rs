//! Tests of the journal: what a user relies on, over every disk.

mod contract;
mod support;
