//! Programs that run what an option of theirs names: `tar --to-command`, `git rebase -x`, `rg --pre`. The option may stand
//! anywhere among their arguments, and what it names is read as commands in `wrap`.

use super::lex::Word;
use super::wrapper::{Wrapper, plain};

/// A program, and its options whose value is a command.
struct Giver {
    /// Its verbs, and its options that take any value.
    of: Wrapper,
    options: &'static [Given],
}

/// An option whose value is a command.
struct Given {
    letter: Option<u8>,
    long: &'static str,
    /// What the value begins with where it is one.
    begin: &'static [u8],
}

const fn long(long: &'static str) -> Given {
    Given { letter: None, long, begin: b"" }
}

const fn short(letter: u8, long: &'static str) -> Given {
    Given { letter: Some(letter), long, begin: b"" }
}

const fn git(verbs: &'static [&'static [&'static str]], short: &'static str) -> Wrapper {
    const LONG: &[&str] = &[
        "git-dir",
        "work-tree",
        "namespace",
        "exec",
        "extcmd",
        "onto",
        "strategy",
        "strategy-option",
        "tool",
        "tree-filter",
        "index-filter",
        "parent-filter",
        "msg-filter",
        "commit-filter",
        "tag-name-filter",
        "env-filter",
        "setup",
    ];
    Wrapper { verbs, ..plain(&["git"], short, LONG) }
}

const GIVERS: &[Giver] = &[
    Giver {
        of: plain(
            &["tar", "gtar", "bsdtar"],
            "fbICFgHKLNTVX",
            &[
                "to-command",
                "use-compress-program",
                "checkpoint-action",
                "info-script",
                "new-volume-script",
                "rsh-command",
                "rmt-command",
                "file",
                "directory",
                "files-from",
                "exclude-from",
                "exclude",
                "transform",
                "xform",
                "owner",
                "group",
                "mode",
                "mtime",
                "newer",
                "after-date",
                "label",
                "tape-length",
                "blocking-factor",
                "listed-incremental",
                "starting-file",
                "strip-components",
                "suffix",
                "format",
                "sort",
            ],
        ),
        options: &[
            long("to-command"),
            short(b'I', "use-compress-program"),
            Given { letter: None, long: "checkpoint-action", begin: b"exec=" },
            short(b'F', "info-script"),
            long("new-volume-script"),
            long("rsh-command"),
        ],
    },
    Giver {
        of: plain(&["nodemon"], "xwei", &["exec", "watch", "ext", "ignore", "config", "delay", "signal"]),
        options: &[short(b'x', "exec")],
    },
    Giver {
        of: Wrapper { verbs: &[&["ssh"]], ..plain(&["vagrant"], "c", &["command"]) },
        options: &[short(b'c', "command")],
    },
    Giver {
        of: Wrapper {
            verbs: &[&["compute", "ssh"]],
            ..plain(&["gcloud"], "", &["command", "zone", "project", "container", "ssh-flag"])
        },
        options: &[long("command")],
    },
    Giver { of: git(&[&["rebase"]], "CcsXx"), options: &[short(b'x', "exec")] },
    Giver { of: git(&[&["difftool"]], "Cctx"), options: &[short(b'x', "extcmd")] },
    Giver {
        of: git(&[&["filter-branch"]], "Ccd"),
        options: &[
            long("tree-filter"),
            long("index-filter"),
            long("parent-filter"),
            long("msg-filter"),
            long("commit-filter"),
            long("tag-name-filter"),
            long("env-filter"),
            long("setup"),
        ],
    },
    Giver {
        of: plain(
            &["rg"],
            "ABCEefgjmMrtTd",
            &[
                "pre",
                "hostname-bin",
                "pre-glob",
                "regexp",
                "file",
                "glob",
                "iglob",
                "type",
                "type-not",
                "type-add",
                "replace",
                "max-count",
                "max-columns",
                "max-depth",
                "max-filesize",
                "threads",
                "context",
                "after-context",
                "before-context",
                "encoding",
                "engine",
                "color",
                "colors",
                "sort",
                "sortr",
                "ignore-file",
            ],
        ),
        options: &[long("pre"), long("hostname-bin")],
    },
    Giver {
        of: plain(
            &["rsync"],
            "efBTM@",
            &[
                "rsh",
                "filter",
                "exclude",
                "include",
                "exclude-from",
                "include-from",
                "files-from",
                "rsync-path",
                "temp-dir",
                "compare-dest",
                "copy-dest",
                "link-dest",
                "backup-dir",
                "suffix",
                "chmod",
                "chown",
                "log-file",
                "password-file",
                "port",
                "timeout",
                "bwlimit",
                "max-size",
                "min-size",
            ],
        ),
        options: &[short(b'e', "rsh")],
    },
    Giver {
        of: plain(
            &["sort"],
            "kotST",
            &[
                "compress-program",
                "key",
                "output",
                "field-separator",
                "buffer-size",
                "temporary-directory",
                "parallel",
                "files0-from",
                "batch-size",
                "random-source",
                "sort",
            ],
        ),
        options: &[long("compress-program")],
    },
    Giver {
        of: plain(
            &["split"],
            "abClnt",
            &[
                "filter",
                "suffix-length",
                "bytes",
                "line-bytes",
                "lines",
                "number",
                "separator",
                "additional-suffix",
            ],
        ),
        options: &[long("filter")],
    },
];

/// The commands that a program is given with its options.
pub(super) fn commands(name: &str, args: &[Word]) -> Vec<Word> {
    let of_name = GIVERS.iter().filter(|giver| giver.of.names.contains(&name));
    of_name.flat_map(|giver| giver.commands(args)).collect()
}

impl Giver {
    fn commands(&self, args: &[Word]) -> Vec<Word> {
        let Some(args) = self.of.after_verb(args) else { return Vec::new() };
        let unbundled = if self.of.names.contains(&"tar") { self.unbundled(args) } else { None };
        let args = unbundled.as_deref().unwrap_or(args);
        let of_option = |given: &Given| {
            let values = self.of.values(args, given.letter, given.long);
            values.iter().filter_map(|value| value.cut_to(value.text.strip_prefix(given.begin)?)).collect()
        };
        self.options.iter().flat_map(|given| -> Vec<Word> { of_option(given) }).collect()
    }

    /// `tar cIf zstd a.tar x` as `tar -c -I zstd -f a.tar x`: letters without a dash, then their values in order.
    fn unbundled(&self, args: &[Word]) -> Option<Vec<Word>> {
        let (bundle, mut rest) = args.split_first()?;
        if bundle.text.starts_with(b"-") {
            return None;
        }
        let mut words = Vec::new();
        for letter in &bundle.text {
            let option = [b'-', *letter];
            let Some(option) = bundle.cut_to(&option) else { continue };
            let takes_value = self.of.option_words(&option) > 1;
            words.push(option);
            if takes_value {
                let (value, behind) = rest.split_first()?;
                words.push(value.clone());
                rest = behind;
            }
        }
        words.extend_from_slice(rest);
        Some(words)
    }
}
