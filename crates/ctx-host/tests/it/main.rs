//! The integration tests of `ctx-host`, in one binary.

mod shell;
mod text_ansi;
mod text_budget;
mod text_fence;
mod text_fence_policy;
mod text_fence_random;
mod text_fence_wrapped;
mod text_output;
mod text_redact;
mod text_redact_blobs;
mod text_redact_corpus;
mod text_redact_cut;
mod text_redact_env;
mod text_redact_everyday;
mod text_redact_keys;
mod text_redact_random;
mod text_redact_settings;
mod text_redact_torn;
mod text_redact_values;
