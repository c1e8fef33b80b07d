//! The integration tests of `ctx-host`, in one binary.

mod cage;
mod shell;
mod snapshot;
mod terminal;
mod text_ansi;
mod text_budget;
mod text_fence;
mod text_fence_policy;
mod text_fence_random;
mod text_fence_wrapped;
mod text_output;
mod text_redact;
mod text_redact_examples;
mod text_redact_harm;
mod text_redact_rules;
mod text_redact_stream;
