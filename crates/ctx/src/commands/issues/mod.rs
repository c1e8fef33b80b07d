//! Commands on the issues of a project and the todos of the issue that a session works on.

pub mod bind;
pub mod issue;
pub mod todo;
