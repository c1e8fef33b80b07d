//! Programs that run others in a way of their own: each has a function here that says where those stand. How they are
//! then read is in `wrap`.

use super::Program;
use super::lex::Word;
use super::wrap::{joined, option_value};
use super::wrapper::{Wrapper, plain, stands_for_options};

/// The options of a shell, before its script.
pub(super) struct ShellOptions {
    /// How many words they take.
    pub words: usize,
    /// `-c`: a text follows.
    pub takes_text: bool,
    /// `-s`: what follows are parameters.
    pub reads_stdin: bool,
}

pub(super) fn shell_options(args: &[Word]) -> ShellOptions {
    /// Long options, which bash also knows with one dash.
    const LONG: &[&str] =
        &["login", "norc", "noprofile", "noediting", "posix", "restricted", "verbose", "debugger"];
    let mut options = ShellOptions { words: 0, takes_text: false, reads_stdin: false };
    while let Some(word) = args.get(options.words) {
        let text = word.text.as_slice();
        let long = text.strip_prefix(b"--").or_else(|| text.strip_prefix(b"-")).unwrap_or_default();
        options.words += match text {
            b"--" | b"-" => {
                options.words += 1;
                break;
            }
            _ if stands_for_options(word) => 1,
            _ if matches!(long, b"rcfile" | b"init-file") => 2,
            _ if text.starts_with(b"--") || LONG.iter().any(|name| name.as_bytes() == long) => 1,
            [sign @ (b'-' | b'+'), letters @ ..] => {
                options.takes_text |= *sign == b'-' && letters.contains(&b'c');
                options.reads_stdin |= *sign == b'-' && letters.contains(&b's');
                // `-euo pipefail`: each of these takes a word.
                1 + letters.iter().filter(|letter| matches!(letter, b'o' | b'O')).count()
            }
            _ => break,
        };
    }
    options
}

/// What `ssh` runs on the host.
pub(super) struct Remote<'a> {
    /// A text for the shell there, in words.
    pub command: &'a [Word],
    /// That shell reads standard input.
    pub reads_stdin: bool,
}

/// `ssh -p 22 host -t rm x`: options stand before the host and behind it.
pub(super) fn remote(args: &[Word]) -> Remote<'_> {
    const OWN: Wrapper = plain(&["ssh"], "BbcDEeFIiJLlmOopPQRSWw", &[]);
    /// Nothing is run with these, or standard input is not read: `-N`, `-n`, `-W`, `-O`, `-Q`, `-G`, `-V`.
    const ALONE: &[u8] = b"NnWOQGV";
    let dashes = |args: &[Word]| usize::from(args.first().is_some_and(|word| word.text == b"--"));
    let (mut rest, mut is_alone) = (args, false);
    for behind_host in [false, true] {
        is_alone |=
            OWN.options(rest).iter().any(|option| OWN.letters(option).any(|letter| ALONE.contains(&letter)));
        rest = rest.get(OWN.options_len(rest)..).unwrap_or_default();
        rest = rest.get(dashes(rest) + usize::from(!behind_host)..).unwrap_or_default();
    }
    Remote { command: rest, reads_stdin: rest.is_empty() && !is_alone }
}

/// What a command gives to the one behind its pipe.
pub(super) enum Passed {
    /// What it gets itself.
    Input,
    Words(Vec<Word>),
    Unknown,
}

/// `echo 'rm x' | bash`, `cat <<EOF | bash`.
pub(super) fn passed_on(words: &[Word]) -> Passed {
    let Some((name, args)) = words.split_first() else { return Passed::Unknown };
    let args = args.iter().filter(|word| !word.text.starts_with(b"-"));
    match name.known() {
        Some(b"cat") if args.clone().count() == 0 => Passed::Input,
        Some(b"tee" | b"envsubst") => Passed::Input,
        Some(b"echo") => Passed::Words(vec![joined(&args.map(with_lines).collect::<Vec<_>>())]),
        Some(b"printf") => {
            Passed::Words(args.filter(|word| !word.text.starts_with(b"%")).map(with_lines).collect())
        }
        _ => Passed::Unknown,
    }
}

/// The word with ends of lines where `echo -e` and `printf` put them.
fn with_lines(word: &Word) -> Word {
    let text = String::from_utf8_lossy(&word.text).replace("\\n", "\n");
    Word { text: text.into_bytes(), ..word.clone() }
}

/// The commands of `trap`; nothing where it prints some, or sets signals back.
pub(super) fn trapped(args: &[Word]) -> Option<&Word> {
    let args = match args {
        [first, rest @ ..] if first.text == b"--" => rest,
        args => args,
    };
    let [action, _, ..] = args else { return None };
    let is_signal = !action.text.is_empty() && action.text.iter().all(u8::is_ascii_digit);
    (!action.text.starts_with(b"-") && !is_signal).then_some(action)
}

/// Whether a program that was given none starts a shell, which reads standard input.
pub(super) fn starts_shell(name: &str, options: &[&[u8]]) -> bool {
    let holds = |letters: &[u8], long: &[&[u8]]| {
        options.iter().any(|option| match option.strip_prefix(b"--") {
            Some(name) => long.contains(&name),
            None => option.iter().any(|letter| letters.contains(letter)),
        })
    };
    match name {
        "sudo" => holds(b"is", &[b"login", b"shell"]),
        "doas" => holds(b"s", &[]),
        "chroot" | "arch-chroot" | "unshare" | "nsenter" | "runuser" => true,
        _ => false,
    }
}

/// Whether a shell that is given this file reads its standard input.
pub(super) fn is_stdin(word: &Word) -> bool {
    matches!(word.known(), Some(b"/dev/stdin" | b"/dev/fd/0" | b"/proc/self/fd/0"))
}

/// `mapfile -C rm`, `compgen -C rm`: the commands that are run for what is read, or to make words.
pub(super) fn callback(args: &[Word]) -> Option<Word> {
    option_value(args, b'C', "C")
}

/// The first of a text's parameters that it runs, as in `bash -c '"$@"' name rm`.
pub(super) fn first_parameter(found: &[Program]) -> Option<usize> {
    found.iter().find_map(|program| match program {
        Program::Unknown(text) => parameter(text),
        Program::Named(_) | Program::Function(_) | Program::Glob(_) => None,
    })
}

/// `$@`, `"${2}"`, `"${@:2}"`: the first parameter that is meant; `None` where it is none.
fn parameter(text: &str) -> Option<usize> {
    let name = text.trim_matches('"').strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    match name.strip_prefix(['@', '*']) {
        Some("") => Some(1),
        Some(slice) => slice.strip_prefix(':')?.split(':').next()?.trim().parse().ok(),
        None => name.parse().ok(),
    }
}

/// What `setarch` runs: behind its options and the name of a machine, which may stand before or between them.
pub(super) fn behind_arch(args: &[Word]) -> &[Word] {
    const ARCHES: &[&str] = &[
        "linux32",
        "linux64",
        "uname26",
        "i386",
        "i486",
        "i586",
        "i686",
        "athlon",
        "x86_64",
        "arm",
        "armv",
        "armh",
        "aarch64",
        "ppc",
        "powerpc",
        "s390",
        "sparc",
        "mips",
        "ia64",
        "alpha",
        "parisc",
        "riscv",
        "loongarch",
    ];
    let is_arch = |text: &[u8]| ARCHES.iter().any(|arch| text.starts_with(arch.as_bytes()));
    let is_own = |word: &Word| word.text.starts_with(b"-") && word.text != b"--";
    let mut rest = args;
    let mut named = false;
    while let Some((word, behind)) = rest.split_first() {
        if is_own(word) {
            rest = behind;
        } else if word.text == b"--" {
            return behind;
        } else if !named && is_arch(&word.text) {
            (named, rest) = (true, behind);
        } else {
            break;
        }
    }
    rest
}

/// The commands that `hyperfine` measures, and those that it runs around them.
pub(super) fn measured(args: &[Word]) -> Vec<Word> {
    const COMMANDS: &[(&str, &str)] =
        &[("-p", "--prepare"), ("-c", "--cleanup"), ("-s", "--setup"), ("-C", "--conclude")];
    /// Options that take other values, and how many.
    const VALUES: &[(&[&str], usize)] = &[
        (&["-P", "--parameter-scan"], 3),
        (&["-L", "--parameter-list"], 2),
        (
            &[
                "-w",
                "--warmup",
                "-m",
                "--min-runs",
                "-M",
                "--max-runs",
                "-r",
                "--runs",
                "-D",
                "--parameter-step-size",
                "-S",
                "--shell",
                "-u",
                "--time-unit",
                "-n",
                "--command-name",
                "--style",
                "--sort",
                "--output",
                "--input",
                "--export-asciidoc",
                "--export-csv",
                "--export-json",
                "--export-markdown",
                "--export-orgmode",
                "--reference",
                "--reference-name",
            ],
            1,
        ),
    ];
    let mut commands = Vec::new();
    let mut rest = args;
    while let Some((word, behind)) = rest.split_first() {
        rest = behind;
        let text = String::from_utf8_lossy(&word.text);
        let attached = COMMANDS.iter().find_map(|(_, long)| text.strip_prefix(long)?.strip_prefix('='));
        if let Some(attached) = attached {
            commands.extend(word.cut_to(attached.as_bytes()));
        } else if COMMANDS.iter().any(|(short, long)| text == *short || text == *long) {
            commands.extend(behind.first().cloned());
            rest = behind.get(1..).unwrap_or_default();
        } else if let Some((_, count)) = VALUES.iter().find(|(names, _)| names.contains(&text.as_ref())) {
            rest = behind.get(*count..).unwrap_or_default();
        } else if !text.starts_with('-') {
            commands.push(word.clone());
        }
    }
    commands
}

/// What `bwrap` runs: behind its options, which take up to three words.
pub(super) fn in_bubble(args: &[Word]) -> &[Word] {
    const ALONE: &[&str] = &[
        "unshare-all",
        "share-net",
        "unshare-user",
        "unshare-user-try",
        "unshare-ipc",
        "unshare-pid",
        "unshare-net",
        "unshare-uts",
        "unshare-cgroup",
        "unshare-cgroup-try",
        "disable-userns",
        "assert-userns-disabled",
        "clearenv",
        "new-session",
        "die-with-parent",
        "as-pid-1",
        "level-prefix",
        "help",
        "version",
    ];
    const PAIRS: &[&str] = &[
        "setenv",
        "bind",
        "bind-try",
        "dev-bind",
        "dev-bind-try",
        "ro-bind",
        "ro-bind-try",
        "bind-fd",
        "ro-bind-fd",
        "file",
        "bind-data",
        "ro-bind-data",
        "symlink",
        "chmod",
    ];
    let mut rest = args;
    while let Some(option) = rest.first().and_then(|word| word.text.strip_prefix(b"--")) {
        let is_one_of = |names: &[&str]| names.iter().any(|name| name.as_bytes() == option);
        let words = match option {
            b"" => return rest.get(1..).unwrap_or_default(),
            b"overlay" => 4,
            _ if is_one_of(PAIRS) => 3,
            _ if is_one_of(ALONE) => 1,
            _ => 2,
        };
        rest = rest.get(words..).unwrap_or_default();
    }
    rest
}

/// The shell that `capsh` gives what stands behind `--`; nothing without that.
pub(super) fn shell_of_capsh(args: &[Word]) -> Vec<Word> {
    let Some(at) = args.iter().position(|word| word.text == b"--") else { return Vec::new() };
    let (own, given) = args.split_at_checked(at).unwrap_or_default();
    let named = own.iter().find_map(|word| word.cut_to(word.text.strip_prefix(b"--shell=")?));
    let shell =
        named.unwrap_or_else(|| Word { text: b"bash".to_vec(), raw: b"bash".to_vec(), ..Word::default() });
    [&[shell], given.get(1..).unwrap_or_default()].concat()
}

/// The programs that `start-stop-daemon` may start, each with its arguments; none where it stops or looks.
pub(super) fn daemons(args: &[Word]) -> Vec<Vec<Word>> {
    const OWN: Wrapper = plain(
        &["start-stop-daemon"],
        "xapnugckrdNPIRO",
        &[
            "exec",
            "startas",
            "pidfile",
            "ppid",
            "pid",
            "name",
            "user",
            "group",
            "chuid",
            "chroot",
            "chdir",
            "nicelevel",
            "procsched",
            "iosched",
            "umask",
            "retry",
            "output",
            "signal",
            "notify-timeout",
        ],
    );
    let own = args.split(|word| word.text == b"--").next().unwrap_or_default();
    let given = args.get(own.len() + 1..).unwrap_or_default();
    let starts = OWN.options(own).iter().any(|option| match option.strip_prefix(b"--") {
        Some(long) => long == b"start",
        None => option.contains(&b'S'),
    });
    if !starts {
        return Vec::new();
    }
    let programs = [(b'x', "exec"), (b'a', "startas")];
    let programs = programs.into_iter().flat_map(|(letter, long)| OWN.values(own, Some(letter), long));
    programs.map(|program| [&[program], given].concat()).collect()
}

/// The text that `entr -s` gives to a shell; nothing without `-s`.
pub(super) fn entr_text(args: &[Word]) -> Option<&Word> {
    let options = args.iter().take_while(|word| word.text.starts_with(b"-"));
    options.clone().any(|word| word.text.contains(&b's')).then(|| args.get(options.count()))?
}

/// Whether `command` only says what a name is.
pub(super) fn looks_up(args: &[Word]) -> bool {
    let options = args
        .iter()
        .map_while(|word| word.text.strip_prefix(b"-"))
        .filter(|letters| !letters.starts_with(b"-"));
    options.flatten().any(|letter| matches!(letter, b'v' | b'V'))
}

/// Whether `at` is given a job on its standard input.
pub(super) fn reads_job(args: &[Word]) -> bool {
    !args.iter().any(|word| matches!(word.text.as_slice(), b"-f" | b"-l" | b"-d" | b"-r" | b"-c" | b"-V"))
}

/// Whether `sudo` edits a file, or says what may be run.
pub(super) fn edits_or_lists(sudo: &Wrapper, option: &[u8]) -> bool {
    matches!(option, b"--edit" | b"--list")
        || !option.starts_with(b"--") && sudo.letters(option).any(|letter| matches!(letter, b'e' | b'l'))
}

/// Whether `taskset` or `chrt` is given a process rather than a program.
pub(super) fn asks_process(wrapper: &Wrapper, option: &[u8]) -> bool {
    option == b"--pid" || !option.starts_with(b"--") && wrapper.letters(option).any(|letter| letter == b'p')
}
