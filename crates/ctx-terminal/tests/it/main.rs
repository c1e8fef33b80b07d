//! The integration tests of `ctx-terminal`.

mod repainted;
