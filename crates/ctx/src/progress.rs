//! A line on stderr that shows how far something is, where a person looks at it.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::words::shorten;

/// How often the line changes at most.
const PAUSE: Duration = Duration::from_millis(100);
const BAR: usize = 24;

/// A progress line. Into a pipe it says nothing.
pub struct Progress {
    what: &'static str,
    shown: bool,
    last: Mutex<Option<Instant>>,
}

impl Progress {
    pub fn new(what: &'static str) -> Progress {
        Progress { what, shown: std::io::stderr().is_terminal(), last: Mutex::new(None) }
    }

    /// `done` of `total`, with a few words on it.
    pub fn show(&self, done: u64, total: u64, words: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.shown || last.is_some_and(|last| last.elapsed() < PAUSE) {
            return;
        }
        *last = Some(Instant::now());
        // A line that wraps could not be taken away. That it cannot be shown changes nothing.
        let width =
            rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        let line = shorten(&format!("{} {} {words}", self.what, bar(done, total)), width.saturating_sub(1));
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }

    /// Takes the line away.
    pub fn clear(&self) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shown && last.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn bar(done: u64, total: u64) -> String {
    let share = |of: u64| done.min(total).saturating_mul(of).checked_div(total).unwrap_or(0);
    let full = usize::try_from(share(BAR as u64)).unwrap_or(0).min(BAR);
    format!("[{}{}] {:3}%", "#".repeat(full), " ".repeat(BAR - full), share(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_up() {
        assert_eq!(bar(0, 0), format!("[{}]   0%", " ".repeat(24)));
        assert_eq!(bar(1, 2), format!("[{}{}]  50%", "#".repeat(12), " ".repeat(12)));
        assert_eq!(bar(9, 3), format!("[{}] 100%", "#".repeat(24)));
    }
}
