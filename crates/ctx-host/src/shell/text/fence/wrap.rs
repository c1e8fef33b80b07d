//! Programs that run other programs: where in their arguments the other one stands.

use super::lex::Word;
use super::parse::{DEPTH_MAX, Finds, read_commands};
use super::policy::base_name;

/// A program that runs its arguments, after its own options.
struct Wrapper {
    names: &'static [&'static str],
    /// Short options that take a value.
    short: &'static str,
    /// Long options that take a value as the next word.
    long: &'static [&'static str],
    /// Words of its own before the program.
    own_words: usize,
    /// Whether the rest is joined and given to a shell.
    joins: bool,
}

const fn plain(
    names: &'static [&'static str],
    short: &'static str,
    long: &'static [&'static str],
) -> Wrapper {
    Wrapper { names, short, long, own_words: 0, joins: false }
}

const WRAPPERS: &[Wrapper] = &[
    plain(
        &["sudo"],
        "ugpCchrtTUDRa",
        &[
            "user",
            "group",
            "prompt",
            "chdir",
            "chroot",
            "close-from",
            "host",
            "role",
            "type",
            "other-user",
            "command-timeout",
        ],
    ),
    plain(&["doas"], "uC", &[]),
    plain(&["runuser"], "ugGw", &["user", "group", "supp-group", "whitelist-environment"]),
    plain(&["prlimit"], "po", &["pid", "output"]),
    plain(&["env"], "uC", &["unset", "chdir"]),
    plain(
        &[
            "nohup",
            "setsid",
            "builtin",
            "unbuffer",
            "dbus-run-session",
            "catchsegv",
            "fakeroot",
            "busybox",
            "toybox",
        ],
        "",
        &[],
    ),
    plain(&["command"], "", &[]),
    plain(&["exec"], "a", &[]),
    plain(&["time"], "fo", &["format", "output"]),
    plain(&["nice"], "n", &["adjustment"]),
    plain(&["ionice"], "cnpPu", &["class", "classdata"]),
    plain(&["stdbuf"], "ioe", &["input", "output", "error"]),
    plain(&["strace", "ltrace"], "eopsuEPIOabSX", &["output", "attach", "trace", "env", "user"]),
    plain(&["systemd-run"], "upEMHt", &["unit", "property", "setenv", "slice", "uid", "gid", "description"]),
    plain(&["nsenter", "unshare"], "tSGRw", &["target", "setuid", "setgid", "root", "wd"]),
    plain(&["setpriv", "numactl", "xvfb-run"], "nsfeCNml", &["reuid", "regid", "server-args", "auth-file"]),
    plain(
        &["xargs"],
        "InPLdasEJR",
        &["replace", "max-args", "max-procs", "max-lines", "delimiter", "arg-file", "max-chars", "eof"],
    ),
    plain(
        &["parallel"],
        "jnNIaSLdPE",
        &["jobs", "max-args", "arg-file", "delay", "joblog", "results", "timeout", "colsep"],
    ),
    Wrapper { own_words: 1, ..plain(&["timeout"], "sk", &["signal", "kill-after"]) },
    Wrapper { own_words: 1, ..plain(&["chroot", "taskset", "chrt"], "", &["userspec", "groups"]) },
    Wrapper { own_words: 1, ..plain(&["flock"], "wE", &["timeout", "wait", "conflict-exit-code"]) },
    Wrapper { joins: true, ..plain(&["watch"], "n", &["interval"]) },
    Wrapper { own_words: 1, joins: true, ..plain(&["ssh"], "BbcDEeFIiJLlmOopQRSWw", &[]) },
];

const SHELLS: &[&str] = &["bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"];
const FIND_EXECS: &[&[u8]] =
    &[b"-exec", b"-execdir", b"-ok", b"-okdir", b"-x", b"-X", b"--exec", b"--exec-batch"];

/// Tells the programs of one simple command. The answer is whether it is a shell that reads its commands
/// from standard input.
pub(super) fn run(words: &[Word], depth: usize, finds: &mut Finds) -> bool {
    let Some((first, args)) = words.split_first() else { return false };
    let Some(text) = first.known() else {
        finds.unknown(&first.raw);
        return false;
    };
    let text = String::from_utf8_lossy(text).into_owned();
    finds.named(&text);
    if depth >= DEPTH_MAX {
        finds.unknown(&first.raw);
        return false;
    }
    let name = base_name(&text);
    match name {
        "eval" => run_text(&joined(args), depth, finds),
        "trap" => run_word(args.iter().find(|word| !word.text.starts_with(b"-")), depth, finds),
        "alias" => args.iter().for_each(|word| run_alias(word, depth, finds)),
        "find" | "fd" | "fdfind" => run_find(args, depth, finds),
        "su" | "runuser" | "script" if option_value(args, b'c').is_some() => {
            run_word(option_value(args, b'c'), depth, finds);
        }
        "sg" if option_value(args, b'c').is_some() => run_word(option_value(args, b'c'), depth, finds),
        "env" if split_string(args).is_some() => run_word(split_string(args).as_ref(), depth, finds),
        "command" if args.first().is_some_and(|word| matches!(word.text.as_slice(), b"-v" | b"-V")) => {}
        _ if SHELLS.contains(&name) => return run_shell(args, depth, finds),
        _ => return run_wrapped(name, args, depth, finds),
    }
    false
}

/// The program after a wrapper's own words.
fn run_wrapped(name: &str, args: &[Word], depth: usize, finds: &mut Finds) -> bool {
    let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&name)) else { return false };
    let rest = wrapper.skip_own(args, finds);
    if wrapper.joins {
        run_text(&joined(rest), depth, finds);
        return false;
    }
    // `flock FILE -c 'commands'`.
    if rest.first().is_some_and(|word| matches!(word.text.as_slice(), b"-c" | b"--command")) {
        run_word(rest.get(1), depth, finds);
        return false;
    }
    run(rest, depth + 1, finds)
}

impl Wrapper {
    /// Skips options, assignments and the words that the wrapper keeps for itself.
    fn skip_own<'a>(&self, args: &'a [Word], finds: &mut Finds) -> &'a [Word] {
        let mut own_words = self.own_words;
        let mut at = 0;
        while let Some(word) = args.get(at) {
            let text = word.text.as_slice();
            if word.expands && own_words == 0 && !word.is_assignment() {
                // It may be an option or the program: unknown either way, and what follows is looked at too.
                finds.unknown(&word.raw);
                at += 1;
            } else if text == b"--" {
                return args.get(at + 1 + own_words..).unwrap_or_default();
            } else if text == b"-" && self.names.contains(&"env") {
                at += 1;
            } else if text.len() > 1 && text.starts_with(b"-") {
                at += self.option_words(text);
            } else if word.is_assignment() {
                at += 1;
            } else if own_words > 0 {
                own_words -= 1;
                at += 1;
                // After a word of its own, `-c` belongs to what follows.
                if own_words == 0 {
                    return args.get(at..).unwrap_or_default();
                }
            } else {
                break;
            }
        }
        args.get(at..).unwrap_or_default()
    }

    /// How many words an option takes, itself among them.
    fn option_words(&self, text: &[u8]) -> usize {
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

/// `bash -c '…'`, `bash -lc '…'`; without `-c` and without a script it reads standard input.
fn run_shell(args: &[Word], depth: usize, finds: &mut Finds) -> bool {
    let mut takes_text = false;
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.text.as_slice();
        match text {
            b"-o" | b"+o" | b"-O" | b"+O" | b"--rcfile" | b"--init-file" => at += 2,
            b"--" | b"-" => {
                at += 1;
                break;
            }
            b"-s" => return true,
            _ if text.starts_with(b"--") => at += 1,
            [b'-' | b'+', letters @ ..] => {
                takes_text |= letters.contains(&b'c') && text.starts_with(b"-");
                at += 1;
            }
            _ => break,
        }
    }
    if takes_text {
        run_word(args.get(at), depth, finds);
        return false;
    }
    args.get(at).is_none()
}

/// The commands after each `-exec` and its like.
fn run_find(args: &[Word], depth: usize, finds: &mut Finds) {
    let mut rest = args;
    while let Some(at) = rest.iter().position(|word| FIND_EXECS.contains(&word.text.as_slice())) {
        rest = rest.get(at + 1..).unwrap_or_default();
        let len =
            rest.iter().position(|word| matches!(word.text.as_slice(), b";" | b"+")).unwrap_or(rest.len());
        let (command, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        run(command, depth + 1, finds);
        rest = after;
    }
}

fn run_alias(word: &Word, depth: usize, finds: &mut Finds) {
    let Some(at) = word.text.iter().position(|byte| *byte == b'=') else { return };
    match word.known().and_then(|text| text.get(at + 1..)) {
        Some(text) => read_commands(text, depth + 1, finds),
        None => finds.unknown(&word.raw),
    }
}

/// A word that holds commands.
fn run_word(word: Option<&Word>, depth: usize, finds: &mut Finds) {
    match word.map(|word| (word.known(), word)) {
        Some((Some(text), _)) => read_commands(text, depth + 1, finds),
        Some((None, word)) => {
            // What can be read of it is read all the same: `bash -c "rm $x"` runs rm.
            finds.unknown(&word.raw);
            read_commands(&word.text, depth + 1, finds);
        }
        None => {}
    }
}

fn run_text(words: &Word, depth: usize, finds: &mut Finds) {
    if !words.raw.is_empty() {
        run_word(Some(words), depth, finds);
    }
}

/// The words as one text, as `eval` joins them.
fn joined(words: &[Word]) -> Word {
    let mut all = Word::default();
    for word in words {
        if !all.raw.is_empty() {
            all.text.push(b' ');
            all.raw.push(b' ');
        }
        all.text.extend_from_slice(&word.text);
        all.raw.extend_from_slice(&word.raw);
        all.expands |= word.expands;
    }
    all
}

/// What `env -S` splits and runs: the next word, or the rest of the option's own.
fn split_string(args: &[Word]) -> Option<Word> {
    let attached = args.iter().find_map(|word| {
        let option = word.text.strip_prefix(b"--split-string=").or_else(|| word.text.strip_prefix(b"-S"))?;
        let text = option.to_vec();
        (!text.is_empty()).then(|| Word { raw: text.clone(), text, ..word.clone() })
    });
    attached.or_else(|| option_value(args, b'S').cloned())
}

/// The word after a short option, or the rest of the option's own word.
fn option_value(args: &[Word], letter: u8) -> Option<&Word> {
    let long: &[u8] = match letter {
        b'c' => b"--command",
        _ => b"--split-string",
    };
    let is_option = |word: &Word| match word.text.as_slice() {
        text if text == long => true,
        [b'-', rest @ ..] => !rest.starts_with(b"-") && rest.last() == Some(&letter),
        _ => false,
    };
    let at = args.iter().position(is_option)?;
    args.get(at + 1)
}
