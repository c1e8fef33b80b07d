//! Tests of the session rules, in one binary: the seed's tables by name, every pair of state and command, and
//! properties over random commands.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper of a test fails the test"
)]

/// The names of an enum's variants, and the name of a value; a variant that is missing here does not compile.
macro_rules! variants {
    ($all:ident, $name_of:ident, $enum:ident { $($variant:ident),* $(,)? }) => {
        const $all: &[&str] = &[$(stringify!($variant)),*];
        fn $name_of(value: &$enum) -> &'static str {
            match value { $($enum::$variant { .. } => stringify!($variant)),* }
        }
    };
}

mod approvals;
mod archive;
mod binding;
mod checkpoints;
mod compactions;
mod conversation;
mod crash_recovery;
mod diagram;
mod fork;
mod issues;
mod log;
mod model;
mod ops;
mod pairs;
mod persistence;
mod project;
mod properties;
mod record_samples;
mod records;
mod records_page;
mod run_table;
mod script;
mod settings;
mod side_effects;
mod state_table;
mod subagents;
mod terminals;
mod throttle;
mod transition_table;
mod vocabulary;
mod world;
