//! Passwords that are given to well-known programs as options: `curl -u tom:…`, `mysql -p…`, `docker login -p …`,
//! `sshpass -p …`.

use super::Span;
use super::shape::{Alphabet, begins_word, is_placeholder};

/// A program and the options that a password follows.
struct Program {
    names: &'static [&'static str],
    /// The word that its options follow, if it has one.
    verb: &'static str,
    /// The password is the next word, or stands right behind a short one.
    options: &'static [&'static str],
    /// The password stands right behind the option, in the same word.
    is_joined: bool,
    /// The word is `user:password`.
    has_user: bool,
    /// The letters that may stand before a short option, in the same word.
    flags: &'static [u8],
}

const fn program(names: &'static [&'static str], options: &'static [&'static str]) -> Program {
    Program { names, verb: "", options, is_joined: false, has_user: false, flags: b"" }
}

static PROGRAMS: [Program; 4] = [
    Program {
        has_user: true,
        flags: b"0123456#GIJLNORSafgijklnpqsv",
        ..program(&["curl"], &["-u", "-U", "--user", "--proxy-user"])
    },
    Program { is_joined: true, ..program(&["mysql", "mariadb"], &["-p"]) },
    Program { verb: "login", ..program(&["docker", "podman"], &["-p", "--password"]) },
    program(&["sshpass"], &["-p"]),
];
const PASSWORD_BYTES_MIN: usize = 6;
/// The words of a command are not looked at further.
const COMMAND_BYTES_MAX: usize = 1 << 10;

pub(super) fn anchors() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().flat_map(|program| program.names.iter().copied())
}

/// The passwords on the command line that begins with the program at `at`.
pub(super) fn passwords_behind(text: &[u8], at: usize, mut add: impl FnMut(Span)) {
    let is_here =
        |program: &&Program| program.names.iter().any(|name| text[at..].starts_with(name.as_bytes()));
    let Some(program) = PROGRAMS.iter().find(is_here).filter(|_| begins_word(text, at)) else { return };
    // `mysqldump`, `mysql.exe`, `mariadb-dump`
    let name_end = at + Alphabet::Dotted.run(text, at, COMMAND_BYTES_MAX);
    if !text.get(name_end).is_some_and(u8::is_ascii_whitespace) {
        return;
    }
    let limit = text.len().min(at + COMMAND_BYTES_MAX);
    let line_end = memchr::memchr(b'\n', &text[at..limit]).map_or(limit, |len| at + len);
    let mut is_behind_verb = program.verb.is_empty();
    let mut is_next = false;
    for (from, to) in words(text, name_end, line_end) {
        let word = &text[from..to];
        if !is_behind_verb {
            is_behind_verb = word == program.verb.as_bytes();
            continue;
        }
        if std::mem::take(&mut is_next) {
            program.password(text, from, to).into_iter().for_each(&mut add);
            continue;
        }
        let Some(letters) = word.strip_prefix(b"-") else { continue };
        let flags = letters.iter().take_while(|byte| program.flags.contains(byte)).count();
        let is_here = |option: &&&str| letters[flags..].starts_with(&option.as_bytes()[1..]);
        let Some(option) = program.options.iter().find(is_here) else { continue };
        let value = from + flags + option.len();
        if value == to {
            is_next = !program.is_joined;
        } else if option.len() == 2 || text[value] == b'=' {
            let value = value + usize::from(text[value] == b'=');
            program.password(text, value, to).into_iter().for_each(&mut add);
        }
    }
}

impl Program {
    /// The password in the word between `from` and `to`, without the quotes around it.
    fn password(&self, text: &[u8], mut from: usize, mut to: usize) -> Option<Span> {
        // `mysql -port=3306`
        let name =
            text[from..to].iter().take_while(|byte| byte.is_ascii_lowercase() || **byte == b'-').count();
        if self.is_joined && name > 0 && text[from + name..to].starts_with(b"=") {
            return None;
        }
        if let [quote @ (b'\'' | b'"'), .., last] = &text[from..to] {
            from += 1;
            to -= usize::from(last == quote);
        }
        if self.has_user {
            from += memchr::memchr(b':', &text[from..to])? + 1;
        }
        let password = &text[from..to];
        let is_one = password.len() >= PASSWORD_BYTES_MIN && !is_placeholder(password);
        is_one.then_some((from, to))
    }
}

/// The words of a command between two places, as far as blanks and quotes tell them, up to the next command.
fn words(text: &[u8], mut at: usize, end: usize) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        at += text[at..end].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let from = at;
        let mut quote = None;
        while at < end {
            match (quote, text[at]) {
                (None, byte @ (b'\'' | b'"')) => quote = Some(byte),
                (Some(open), byte) if open == byte => quote = None,
                // `2>&1`
                (None, b'&') if text[..at].ends_with(b">") => {}
                (None, b'|' | b';' | b'&' | b'`' | b')') => break,
                (None, byte) if byte.is_ascii_whitespace() => break,
                _ => {}
            }
            at += 1;
        }
        (at > from).then_some((from, at))
    })
}
