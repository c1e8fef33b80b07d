//! What a run does: an agent's control files, its view of the file system, models, tools and the loop.
//!
//! A loop has no power of its own: it reads through tools, speaks through [`ctx_session::port::RunPort`] and ends when its
//! stop token is cancelled. It knows nothing of journals, engines or doors.

pub mod cage;
pub mod control;
pub mod describe;
mod guard;
mod instructions;
pub mod mcp;
pub mod model;
pub mod nearest;
pub mod object;
pub mod prepare;
pub mod project;
pub mod redact;
pub mod run;
pub mod run_files;
pub mod shells;
pub mod tool;
pub mod view;

use std::pin::Pin;

pub use cage::{CageAsk, CageRules, Cages};
pub use describe::{Description, Settings, fresh::prepare_root};
pub use guard::{GuardAs, guard};
pub use model::{Models, registry::ModelId};
pub use prepare::{Agent, Ask, Place, Prepared, PromptText, prepare, prepare_model};
pub use run::{Guard, Guarded, Job, JobKind, Who, own_want, run};
pub use tool::Services;

/// A future behind a pointer, so that traits with async methods stay object safe.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The beginning of a text, at most so many bytes, never ending inside a character.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// The lower-case hex SHA-256 of a text or of bytes: how prompts and blobs are named.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::Digest;
    use std::fmt::Write;
    let mut hex = String::with_capacity(64);
    for byte in sha2::Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
