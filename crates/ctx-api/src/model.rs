//! What a model is called at the doors: see `ctx_session::model_name`.

pub use ctx_session::model_name::{in_api, in_tree};
