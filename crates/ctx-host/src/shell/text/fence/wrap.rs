//! Programs that run other programs: where in their arguments the other one stands. Those that differ only in
//! their options are in `wrappers`.

use super::Program;
use super::given;
use super::lex::Word;
use super::parse::{DEPTH_MAX, Finds, read_commands};
use super::policy::base_name;
use super::singular;
use super::wrapper::{How, Wrapper, stands_for_options};
use super::wrappers::{CONTAINERS, WRAPPERS};

const SHELLS: &[&str] = &[
    "bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "csh", "tcsh", "yash", "posh",
    "lksh", "oksh", "pdksh", "rksh", "hush", "osh",
];
const FIND_EXECS: &[&[u8]] =
    &[b"-exec", b"-execdir", b"-ok", b"-okdir", b"-x", b"-X", b"--exec", b"--exec-batch"];

/// Tells the programs of one simple command. The answer is whether it is a shell that reads its commands
/// from standard input.
pub(super) fn run(words: &[Word], depth: usize, finds: &mut Finds) -> bool {
    let Some((first, args)) = words.split_first() else { return false };
    if first.expands {
        finds.unknown_word(first);
    }
    // `"$BIN"/rm` is no known program, but one that is called `rm`.
    let Some(text) = first.known().or_else(|| first.literal_base().filter(|_| !first.globs)) else {
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
        "eval" => return run_text(&joined(args), depth, finds),
        "trap" => {
            run_word(singular::trapped(args), depth, finds);
        }
        "alias" => args.iter().for_each(|word| run_alias(word, depth, finds)),
        "find" | "fd" | "fdfind" => run_find(args, depth, finds),
        "su" | "runuser" | "script" | "sg" | "env" | "nix-shell" if text_of(name, args).is_some() => {
            return run_word(text_of(name, args).as_ref(), depth, finds);
        }
        "su" => return true,
        "ssh" => return run_ssh(args, depth, finds),
        "gdb" => return run(debugged(args), depth + 1, finds),
        // One command after another, each with words of its own.
        "tmux" => args.split(|word| word.text == b";").for_each(|part| {
            run_wrapped(name, part, depth, finds);
        }),
        "source" | "." => return args.first().is_some_and(singular::is_stdin),
        "mapfile" | "readarray" | "compgen" => {
            run_word(singular::callback(args).as_ref(), depth, finds);
        }
        "setarch" => return run(singular::behind_arch(args), depth + 1, finds),
        "hyperfine" => run_each(&singular::measured(args), depth, finds),
        "parallel" | "sem" => run_parallel(name, args, depth, finds),
        "bwrap" => return run(singular::in_bubble(args), depth + 1, finds),
        "capsh" => return run(&singular::shell_of_capsh(args), depth + 1, finds),
        "start-stop-daemon" => singular::daemons(args).iter().for_each(|words| {
            run(words, depth + 1, finds);
        }),
        "entr" if singular::entr_text(args).is_some() => {
            run_word(singular::entr_text(args), depth, finds);
        }
        // It reads that itself.
        "xargs" => {
            run_wrapped(name, args, depth, finds);
        }
        "command" if singular::looks_up(args) => {}
        // Commands for later.
        "at" | "batch" => return singular::reads_job(args),
        "yarn" if args.first().is_some_and(|word| word.text == b"workspace") => {
            return run_wrapped(name, args.get(2..).unwrap_or_default(), depth, finds);
        }
        _ if SHELLS.contains(&name) => return run_shell(args, depth, finds),
        _ => {
            run_each(&given::commands(name, args), depth, finds);
            return run_wrapped(name, args, depth, finds);
        }
    }
    false
}

/// The program after a wrapper's own words.
fn run_wrapped(name: &str, args: &[Word], depth: usize, finds: &mut Finds) -> bool {
    let mut wrappers = WRAPPERS.iter().filter(|wrapper| wrapper.names.contains(&name));
    let found = wrappers.find_map(|wrapper| Some((wrapper, wrapper.after_verb(args)?)));
    let Some((wrapper, args)) = found else { return false };
    let own = args.get(..wrapper.options_len(args) + 1).unwrap_or(args);
    if let Some(text) = wrapper.text.and_then(|(letter, long)| option_value(own, letter, long)) {
        return run_word(Some(&text), depth, finds);
    }
    // What a container runs instead of its own program.
    if let Some(program) = option_value(own, 0, "entrypoint") {
        let words = [&[program], skip_own(wrapper, args, finds)].concat();
        return run(&words, depth + 1, finds);
    }
    let starts_nothing = match name {
        "screen" => attaches(&wrapper.options(args)),
        "sudo" => wrapper.options(args).iter().any(|option| singular::edits_or_lists(wrapper, option)),
        // What follows are the arguments of a module of Python.
        "uv" => option_value(own, b'm', "module").is_some(),
        // They are asked of a process that runs.
        "taskset" | "chrt" => {
            wrapper.options(args).iter().any(|option| singular::asks_process(wrapper, option))
        }
        _ => false,
    };
    if starts_nothing {
        return false;
    }
    let rest = match wrapper.how {
        How::Behind(words) => behind(args, words),
        How::Words | How::Joined | How::TextOrWords | How::Package => skip_own(wrapper, args, finds),
    };
    match (wrapper.how, rest) {
        (How::Words, []) => singular::starts_shell(name, &wrapper.options(args)),
        (How::Joined, rest) => run_text(&joined(rest), depth, finds),
        (How::TextOrWords, [text]) => run_word(Some(text), depth, finds),
        // `flock FILE -c 'commands'`.
        (How::Words, [first, rest @ ..]) if matches!(first.text.as_slice(), b"-c" | b"--command") => {
            run_word(rest.first(), depth, finds)
        }
        // `docker run IMAGE --version`: an option of what the image starts by itself.
        (How::Words, [first, ..]) if first.text.starts_with(b"-") && CONTAINERS.contains(&name) => false,
        // `yarn exec 'rm x && y'`: no package has such a name.
        (How::Package, rest @ [first, ..]) if first.text.contains(&b' ') => {
            run_text(&joined(rest), depth, finds)
        }
        (How::Package, rest) => run(&of_package(rest), depth + 1, finds),
        (How::Words | How::TextOrWords | How::Behind(_), rest) => run(rest, depth + 1, finds),
    }
}

/// `ssh -p 22 host -t rm x`: options before and behind the host, then a text for the shell there. Without one, that shell
/// reads standard input.
fn run_ssh(args: &[Word], depth: usize, finds: &mut Finds) -> bool {
    let singular::Remote { command, reads_stdin } = singular::remote(args);
    reads_stdin || run_text(&joined(command), depth, finds)
}

/// Skips options, assignments and the words that the wrapper keeps for itself.
fn skip_own<'a>(wrapper: &Wrapper, args: &'a [Word], finds: &mut Finds) -> &'a [Word] {
    let mut own_words = wrapper.own_words;
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.text.as_slice();
        let is_unknown = word.expands && own_words == 0 && !word.names_variable();
        if is_unknown && word.literal_base().is_some() {
            break;
        } else if is_unknown && !text.starts_with(b"-") {
            // It may be an option or the program: unknown either way, and what follows is looked at too.
            finds.unknown_word(word);
            at += 1;
        } else if text == b"--" {
            return args.get(at + 1 + own_words..).unwrap_or_default();
        } else if text == b"-" && wrapper.names.contains(&"env") {
            at += 1;
        } else if (text.len() > 1 && text.starts_with(b"-")) || stands_for_options(word) {
            at += wrapper.option_words(word);
        } else if word.names_variable() && wrapper.how != How::Package {
            at += 1;
        } else if own_words > 0 {
            own_words -= 1;
            at += 1;
            // After a word of its own, `-c` belongs to what follows.
            if own_words == 0 {
                let dashes = args.get(at).is_some_and(|word| word.text == b"--");
                return args.get(at + usize::from(dashes)..).unwrap_or_default();
            }
        } else {
            break;
        }
    }
    args.get(at..).unwrap_or_default()
}

/// What follows the first of some words.
fn behind<'a>(args: &'a [Word], words: &[&str]) -> &'a [Word] {
    let is_one = |word: &Word| words.iter().any(|one| one.as_bytes() == word.text);
    let at = args.iter().position(is_one).unwrap_or(args.len());
    args.get(at + 1..).unwrap_or_default()
}

/// The program of a package and its arguments: without the version, and without where the package comes from.
fn of_package(words: &[Word]) -> Vec<Word> {
    let mut words = words.to_vec();
    if let Some(first) = words.first_mut() {
        let from = first.text.iter().position(|byte| *byte == b'#').map_or(0, |at| at + 1);
        first.text.drain(..from);
        let scope = usize::from(first.text.starts_with(b"@"));
        let version = first.text.iter().skip(scope).position(|byte| matches!(byte, b'@' | b'='));
        first.text.truncate(version.map_or(first.text.len(), |at| at + scope));
    }
    words
}

/// Whether `screen` is asked for a screen that is there, and starts nothing.
fn attaches(options: &[&[u8]]) -> bool {
    let holds =
        |letters: &[u8]| options.iter().any(|option| option.iter().any(|byte| letters.contains(byte)));
    holds(b"rRxXlwdD") && !holds(b"m")
}

/// What a debugger runs: all behind `--args`; or the program it looks at, where it is told to run that.
fn debugged(args: &[Word]) -> &[Word] {
    const WITH_VALUE: &[&str] = &[
        "ex",
        "eval-command",
        "iex",
        "init-eval-command",
        "x",
        "command",
        "ix",
        "init-command",
        "c",
        "core",
        "p",
        "pid",
        "s",
        "symbols",
        "e",
        "exec",
        "d",
        "directory",
        "cd",
        "tty",
        "data-directory",
    ];
    const RUNS: &[&[u8]] = &[b"r", b"run", b"start", b"starti"];
    let mut runs = false;
    let mut at = 0;
    while let Some(option) = args.get(at).and_then(|word| word.text.strip_prefix(b"-")) {
        let option = option.strip_prefix(b"-").unwrap_or(option);
        let takes_value = WITH_VALUE.iter().any(|name| name.as_bytes() == option);
        runs |= option == b"args" || option.strip_prefix(b"ex=").is_some_and(|value| RUNS.contains(&value));
        if takes_value {
            runs |= args.get(at + 1).is_some_and(|value| RUNS.contains(&value.text.as_slice()));
        }
        at += 1 + usize::from(takes_value);
    }
    args.get(at..).filter(|_| runs).unwrap_or_default()
}

/// `parallel rm -f {} ::: a b`, `parallel 'rm {}'`, `parallel ::: 'rm a' 'rm b'`, `parallel {} ::: 'rm a'`.
fn run_parallel(name: &str, args: &[Word], depth: usize, finds: &mut Finds) {
    let at = args.iter().position(|word| word.text.starts_with(b":::")).unwrap_or(args.len());
    let (command, inputs) = args.split_at_checked(at).unwrap_or((args, &[]));
    let named = finds.count();
    run_wrapped(name, command, depth, finds);
    let found = finds.since(named).first();
    // Each input is a command, where none is named or the input stands in its place.
    if found.is_none_or(|first| matches!(first, Program::Named(name) if name.starts_with("{}"))) {
        let texts = inputs.iter().filter(|word| !word.text.starts_with(b":::"));
        texts.for_each(|word| {
            run_word(Some(word), depth, finds);
        });
    }
}

/// `bash -c '…'`, `bash -lc '…'`; without `-c` and without a script it reads standard input.
fn run_shell(args: &[Word], depth: usize, finds: &mut Finds) -> bool {
    let singular::ShellOptions { words: at, takes_text, reads_stdin } = singular::shell_options(args);
    if takes_text {
        let before = finds.count();
        let reads_stdin = run_word(args.get(at), depth, finds);
        // Behind the text are `$0`, `$1` and so on, and it may be one of them that it runs.
        let first = singular::first_parameter(finds.since(before));
        return reads_stdin
            | match first.and_then(|first| args.get(at + 1 + first..)).unwrap_or_default() {
                [word] => run_word(Some(word), depth, finds),
                words => run(words, depth + 1, finds),
            };
    }
    reads_stdin || args.get(at).is_none_or(singular::is_stdin)
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
        Some(text) => {
            read_commands(text, depth + 1, finds);
        }
        None => finds.unknown(&word.raw),
    }
}

/// A word that holds commands. The answer is whether one of them is a shell that reads standard input.
pub(super) fn run_word(word: Option<&Word>, depth: usize, finds: &mut Finds) -> bool {
    let Some(word) = word else { return false };
    // What can be read of it is read all the same: `bash -c "rm $x"` runs rm.
    if word.expands {
        finds.unknown(&word.raw);
    }
    read_commands(&word.text, depth + 1, finds)
}

fn run_each(words: &[Word], depth: usize, finds: &mut Finds) {
    for word in words {
        run_word(Some(word), depth, finds);
    }
}

fn run_text(words: &Word, depth: usize, finds: &mut Finds) -> bool {
    !words.raw.is_empty() && run_word(Some(words), depth, finds)
}

/// The words as one text, as `eval` joins them.
pub(super) fn joined(words: &[Word]) -> Word {
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

/// The commands that a program is given as the text of an option.
fn text_of(name: &str, args: &[Word]) -> Option<Word> {
    match name {
        // It runs the words that follow, whose options are none of its own.
        "runuser" if option_value(args, b'u', "user").is_some() => None,
        "env" => {
            let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&"env"))?;
            let own = wrapper.options_len(args) + 1;
            option_value(args.get(..own).unwrap_or(args), b'S', "split-string")
        }
        "nix-shell" => option_value(args, 0, "run").or_else(|| option_value(args, 0, "command")),
        _ => option_value(args, b'c', "command"),
    }
}

/// The text of an option: the rest of its own word, or the next one.
pub(super) fn option_value(args: &[Word], letter: u8, long: &str) -> Option<Word> {
    let own = args.iter().position(|word| word.text == b"--").unwrap_or(args.len());
    args.iter().take(own).enumerate().find_map(|(at, word)| {
        let attached = match word.text.strip_prefix(b"--") {
            Some(option) => option.strip_prefix(long.as_bytes())?.strip_prefix(b"=").unwrap_or_default(),
            None => match word.text.strip_prefix(b"-")? {
                [first, rest @ ..] if *first == letter => rest,
                letters if letters.ends_with(&[letter]) => &[],
                _ => return None,
            },
        };
        word.cut_to(attached).or_else(|| args.get(at + 1).cloned())
    })
}
