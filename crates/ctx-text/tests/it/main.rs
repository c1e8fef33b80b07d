//! The integration tests of `ctx-text`, in one binary.

mod ansi;
mod budget;
mod fence;
mod fence_policy;
mod fence_random;
mod fence_wrapped;
mod output;
mod redact;
mod redact_harm;
mod redact_rules;
mod redact_stream;
