//! The integration tests of `ctx-host`, in one binary.

mod shell;
