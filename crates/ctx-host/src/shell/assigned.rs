//! The variables that commands set to a text that stands in them: a secret among them is known before it can be
//! printed, also where its command ends the shell and nobody can ask for it any more. Which of them are secrets is
//! not decided here.

use std::collections::VecDeque;

use super::exports::Export;
use super::text::fence;

/// A shorter value is never taken for a secret.
const VALUE_BYTES_MIN: usize = 8;
/// How much of them is remembered for each shell; the oldest are forgotten.
const BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Default)]
pub struct Assigned {
    variables: VecDeque<Export>,
    bytes: usize,
}

impl Assigned {
    /// Reads a command before it runs. Says whether it sets something that was not known.
    pub fn read(&mut self, command: &str) -> bool {
        // Few commands set anything, and all of them are waited for.
        if !command.contains('=') {
            return false;
        }
        let mut news = false;
        for fence::Assignment { name, value } in fence::assignments(command) {
            let export = Export { name, value };
            let fits = (VALUE_BYTES_MIN..=BYTES_MAX).contains(&export.value.len());
            if fits && !self.variables.contains(&export) {
                self.bytes += size_of(&export);
                self.variables.push_back(export);
                news = true;
            }
        }
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.variables.pop_front()
        {
            self.bytes -= size_of(&oldest);
        }
        news
    }

    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.variables.iter()
    }
}

fn size_of(export: &Export) -> usize {
    export.name.len() + export.value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_the_same_is_no_news() {
        let mut assigned = Assigned::default();
        assert!(assigned.read("export TOKEN='a long value'; B=short"));
        assert!(!assigned.read("TOKEN='a long value' env; echo x == y"));
        assert_eq!(assigned.iter().count(), 1);
        for n in 0..10 {
            assert!(assigned.read(&format!("TOKEN{n}={}", "x".repeat(10_000))));
        }
        let names: Vec<&str> = assigned.iter().map(|export| export.name.as_str()).collect();
        assert_eq!(names, ["TOKEN4", "TOKEN5", "TOKEN6", "TOKEN7", "TOKEN8", "TOKEN9"]);
        assert!(
            !assigned.read(&format!("HUGE={}", "x".repeat(BYTES_MAX + 1))),
            "it would push out all others"
        );
    }
}
