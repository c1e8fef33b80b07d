//! Programs that run others in a way of their own: each has a function here that says where those stand. How they are
//! then read is in `wrap`.

use super::Program;
use super::lex::Word;
use super::wrap::option_value;

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
            let part = attached.as_bytes().to_vec();
            commands.push(Word { raw: part.clone(), text: part, ..word.clone() });
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
