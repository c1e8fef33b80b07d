//! A person's terminal joined to one that a holder has: `raw` takes the terminal and gives it back, `keys` finds the
//! commands among what is typed, `attach` carries both directions.

mod attach;
mod keys;
mod raw;

pub use attach::{As, Left, attach};
pub use raw::size;
