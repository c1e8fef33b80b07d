//! A program that runs what stands in its arguments, and how its own options are told from that. Which programs do is
//! in `wrappers`.

use super::lex::Word;

/// A program that runs its arguments, after its own options.
pub(super) struct Wrapper {
    pub names: &'static [&'static str],
    /// The words before which it runs nothing: `docker exec`, `git bisect run`. None where it always does.
    pub verbs: &'static [&'static [&'static str]],
    /// Short options that take a value.
    pub short: &'static str,
    /// Long options that take a value as the next word.
    pub long: &'static [&'static str],
    /// Words of its own before the program.
    pub own_words: usize,
    /// The option whose value is a text for a shell, by its letter and its name.
    pub text: Option<(u8, &'static str)>,
    pub how: How,
}

/// What becomes of the words behind its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// They are a program and its arguments.
    Words,
    /// They are joined and given to a shell.
    Joined,
    /// One is given to a shell, more are a program and its arguments.
    TextOrWords,
    /// The program stands behind the first of these words.
    Behind(&'static [&'static str]),
    /// The first is a package, whose program has its name: `eslint@9`, `black==24.1`.
    Package,
}

/// A program that has options, and then the other program.
pub(super) const fn plain(
    names: &'static [&'static str],
    short: &'static str,
    long: &'static [&'static str],
) -> Wrapper {
    Wrapper { names, verbs: &[], short, long, own_words: 0, text: None, how: How::Words }
}

impl Wrapper {
    /// The words behind its verb; `None` where it has verbs and this is none of them.
    pub fn after_verb<'a>(&self, args: &'a [Word]) -> Option<&'a [Word]> {
        if self.verbs.is_empty() {
            return Some(args);
        }
        let behind = |verb: &&[&str]| {
            verb.iter().try_fold(args, |rest, step| {
                let (word, after) = rest.get(self.options_len(rest)..)?.split_first()?;
                (word.known()? == step.as_bytes()).then_some(after)
            })
        };
        self.verbs.iter().find_map(behind)
    }

    /// The values of one of its options, wherever they stand before `--`: the rest of its word, or the next one.
    pub fn values(&self, args: &[Word], letter: Option<u8>, long: &str) -> Vec<Word> {
        let mut values = Vec::new();
        let mut rest = args;
        while let Some((word, behind)) = rest.split_first() {
            let text = word.text.as_slice();
            if text == b"--" {
                break;
            }
            if let Some(attached) = self.attached(text, letter, long) {
                values.extend(word.cut_to(attached).or_else(|| behind.first().cloned()));
            }
            let len = if is_option(text) { self.option_words(word) } else { 1 };
            rest = rest.get(len..).unwrap_or_default();
        }
        values
    }

    /// What follows an option in its own word, where this is that option.
    fn attached<'a>(&self, text: &'a [u8], letter: Option<u8>, long: &str) -> Option<&'a [u8]> {
        if let Some(option) = text.strip_prefix(b"--") {
            return match option.strip_prefix(long.as_bytes())? {
                [] => Some(&[]),
                rest => rest.strip_prefix(b"="),
            };
        }
        let letters = text.strip_prefix(b"-")?;
        let at = letters.iter().position(|letter| self.short.as_bytes().contains(letter))?;
        let (first, rest) = letters.get(at..)?.split_first()?;
        (Some(*first) == letter).then_some(rest)
    }

    /// Its options, without their values.
    pub fn options<'a>(&self, args: &'a [Word]) -> Vec<&'a [u8]> {
        self.split_options(args).0
    }

    /// The letters of one of its short options, up to the first that takes a value.
    pub fn letters(&self, option: &[u8]) -> impl Iterator<Item = u8> {
        let is_value = |letter: &u8| self.short.as_bytes().contains(letter);
        let until = option.iter().position(is_value).map_or(option.len(), |at| at + 1);
        option.iter().take(until).skip(1).copied()
    }

    /// How many words its options take at the beginning of these.
    pub fn options_len(&self, args: &[Word]) -> usize {
        self.split_options(args).1
    }

    fn split_options<'a>(&self, args: &'a [Word]) -> (Vec<&'a [u8]>, usize) {
        let mut options = Vec::new();
        let mut at = 0;
        while let Some(word) = args.get(at).filter(|word| is_option(&word.text) || stands_for_options(word)) {
            options.push(word.text.as_slice());
            at += self.option_words(word);
        }
        (options, at)
    }

    /// How many words an option takes, itself among them.
    pub fn option_words(&self, word: &Word) -> usize {
        // `-u$USER`: the value is in it.
        if word.expands {
            return 1;
        }
        let text = word.text.as_slice();
        if let Some(name) = text.strip_prefix(b"--") {
            return if self.long.iter().any(|long| long.as_bytes() == name) { 2 } else { 1 };
        }
        let letters = text.get(1..).unwrap_or_default();
        match letters.iter().position(|letter| self.short.as_bytes().contains(letter)) {
            Some(at) if at + 1 == letters.len() => 2,
            _ => 1,
        }
    }
}

/// `$SSH_OPTS`, `"${docker_args[@]}"`: a variable whose name says that options are in it.
pub(super) fn stands_for_options(word: &Word) -> bool {
    const NAMES: &[&str] = &["opts", "options", "args", "flags"];
    let raw = String::from_utf8_lossy(&word.raw).to_ascii_lowercase();
    let name = raw.trim_matches('"').trim_start_matches(['$', '{']).trim_end_matches('}');
    let name = name.trim_end_matches("[@]").trim_end_matches("[*]");
    word.expands && word.text.is_empty() && NAMES.iter().any(|end| name.ends_with(end))
}

fn is_option(text: &[u8]) -> bool {
    text.len() > 1 && text.starts_with(b"-") && text != b"--"
}
