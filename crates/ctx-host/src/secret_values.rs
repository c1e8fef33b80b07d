//! The variables whose values must not be shown of a shell, for as long as it lives: a caller who unsets or overwrites
//! one has not made its value any less secret.
//!
//! Those that the shell was made with are never forgotten. Of what its commands set and export, so much is remembered
//! that honest use does not reach the end of it; the oldest goes first. How a value is found in a text is not decided here.

use std::collections::VecDeque;

use super::frame::exports::Export;
use ctx_text::fence;
use ctx_text::redact::{Secrets, is_secret_name, is_secret_variable};

/// Of a longer one this much is remembered, when it is no longer exported.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// How much is remembered of what commands set.
const BYTES_MAX: usize = 64 << 10;
const VALUES_MAX: usize = 256;

#[derive(Debug, Clone, Default)]
pub struct SecretValues {
    /// Of the server's environment, and of the one that the shell was made with.
    given: Vec<Export>,
    /// Exported now, besides those.
    exported: Vec<Export>,
    /// Set or exported at any time, the oldest first.
    seen: VecDeque<Export>,
    /// What `seen` holds.
    bytes: usize,
}

impl SecretValues {
    /// Takes variables that a shell is made with. Says whether one of them is a secret that was not known.
    pub fn give<'a>(&mut self, env: impl IntoIterator<Item = &'a Export>) -> bool {
        let before = self.given.len();
        for export in env.into_iter().filter(|export| is_secret(export)) {
            if !self.given.contains(export) {
                self.given.push(export.clone());
            }
        }
        self.given.len() > before
    }

    /// Reads a command before it runs: what it sets to a text that stands in it is known before it can be printed, also
    /// where the command ends the shell and nobody can ask for it any more. Says whether it sets a secret that was not
    /// known.
    pub fn read(&mut self, command: &str) -> bool {
        // Few commands set a secret, and all of them are waited for.
        if !may_set_secret(command) {
            return false;
        }
        let mut news = false;
        for fence::Assignment { name, value } in fence::assignments(command) {
            news |= self.see(&Export { name, value });
        }
        news
    }

    /// Takes the variables that are exported now. Says whether there is a secret among them that was not known.
    pub fn export(&mut self, exports: &[Export]) -> bool {
        self.exported.clear();
        let mut news = false;
        for export in exports.iter().filter(|export| is_secret(export)) {
            if !self.given.contains(export) {
                news |= self.see(export);
                self.exported.push(export.clone());
            }
        }
        news
    }

    pub fn secrets(&self) -> Secrets {
        let all = self.given.iter().chain(&self.exported).chain(&self.seen);
        Secrets::from_env(all.map(|export| (export.name.as_str(), export.value.as_slice())))
    }

    fn see(&mut self, export: &Export) -> bool {
        let value = export.value.get(..VALUE_BYTES_MAX).unwrap_or(&export.value);
        let is_it = |known: &Export| known.name == export.name && known.value == value;
        if !is_secret(export) || self.given.iter().any(is_it) || self.seen.iter().any(is_it) {
            return false;
        }
        let export = Export { name: export.name.clone(), value: value.to_vec() };
        self.bytes += size_of(&export);
        self.seen.push_back(export);
        while (self.bytes > BYTES_MAX || self.seen.len() > VALUES_MAX)
            && let Some(oldest) = self.seen.pop_front()
        {
            self.bytes -= size_of(&oldest);
        }
        true
    }
}

fn is_secret(export: &Export) -> bool {
    is_secret_variable(&export.name, &export.value)
}

/// Whether a `NAME=`, `NAME+=` or `NAME[…]=` in a command may be that of a secret.
fn may_set_secret(command: &str) -> bool {
    memchr::memchr_iter(b'=', command.as_bytes()).any(|at| {
        let before = &command[..at];
        let before = before.strip_suffix('+').unwrap_or(before);
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = &before[before.trim_end_matches(is_of_name).len()..];
        before.ends_with(']') || !name.is_empty() && is_secret_name(name)
    })
}

fn size_of(export: &Export) -> usize {
    export.name.len() + export.value.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_text::redact::redact_text;
    use std::sync::Arc;

    fn export(name: &str, value: impl Into<Vec<u8>>) -> Export {
        Export { name: name.to_owned(), value: value.into() }
    }

    fn hides(known: &SecretValues, value: &str) -> bool {
        !redact_text(&Arc::new(known.secrets()), value).contains(value)
    }

    #[test]
    fn the_same_is_no_news_and_what_is_no_secret_neither() {
        let mut known = SecretValues::default();
        assert!(known.give(&[export("DEPLOY_TOKEN", "given-value-1"), export("HOME", "/home/somebody")]));
        assert!(!known.give(&[export("DEPLOY_TOKEN", "given-value-1")]));
        assert!(known.read("export TOKEN='a long value 1'; B=short; NAME=some-other-value"));
        assert!(!known.read("TOKEN='a long value 1' env; DEPLOY_TOKEN=given-value-1; echo x == y"));
        let exports = [export("TOKEN", "a long value 1"), export("DEPLOY_TOKEN", "given-value-1")];
        assert!(!known.export(&exports), "cd changes what is exported, and no secret");
        assert!(known.export(&[export("TOKEN", "another value 2")]));
        for value in ["given-value-1", "a long value 1", "another value 2"] {
            assert!(hides(&known, value), "{value}");
        }
    }

    #[test]
    fn whatever_sets_a_secret_is_read() {
        for command in [
            "API_TOKEN=some-value-1",
            "x=1; export API_TOKEN='some-value-1'",
            "API_TOKEN+=some-value-1 run",
            "bash -c 'API_TOKEN=some-value-1'",
            "declare -x a=b API_TOKEN=\"some-value-1\"",
        ] {
            assert!(SecretValues::default().read(command), "{command}");
        }
        for command in
            ["a=some-value-1; b==c", "=", "ä=some-value-1", "[ a = b ]", "API_TOKEN = some-value-1"]
        {
            assert!(!SecretValues::default().read(command), "{command}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten_unless_they_were_given_or_are_exported() {
        let mut known = SecretValues::default();
        known.give(&[export("DEPLOY_TOKEN", "given-value-1")]);
        known.read("FIRST_TOKEN=first-value-2; SECOND_TOKEN=second-value-3");
        for n in 0..VALUES_MAX {
            let now =
                [export("SECOND_TOKEN", "second-value-3"), export("LOOP_TOKEN", format!("value-{n:05}"))];
            assert!(known.export(&now), "{n}");
        }
        assert_eq!(known.seen.len(), VALUES_MAX);
        assert!(hides(&known, "given-value-1") && hides(&known, "second-value-3"));
        assert!(hides(&known, "value-00255") && hides(&known, "value-00002"));
        assert!(!hides(&known, "first-value-2"));
    }

    #[test]
    fn large_values_do_not_push_out_all_others_and_what_is_remembered_is_bounded() {
        let mut known = SecretValues::default();
        known.read("FIRST_TOKEN=first-value-2");
        let huge = format!("begin-of-it-{}", "7xY".repeat(BYTES_MAX));
        assert!(known.read(&format!("HUGE_TOKEN={huge}")));
        assert!(!known.read(&format!("HUGE_TOKEN={huge}")));
        assert!(hides(&known, "first-value-2") && hides(&known, &huge));
        for n in 0..40 {
            known.read(&format!("TOKEN{n}_KEY={n}{}", "7xY".repeat(BYTES_MAX)));
            assert!(known.bytes <= BYTES_MAX);
        }
        assert!(!hides(&known, "first-value-2"));
    }
}
