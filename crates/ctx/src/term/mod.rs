//! A person's terminal joined to one that a holder has: `raw` takes the terminal and gives it back, `signals` are what ends that, `keys` finds the
//! commands among what is typed, `attach` carries both directions.

mod attach;
mod keys;
mod raw;
mod signals;

pub use attach::{As, Left, attach};
pub use raw::{Keyboard, Screen, size};
pub use signals::{Caught, GO};
