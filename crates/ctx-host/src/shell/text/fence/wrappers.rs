//! The table of programs that run what stands in their arguments: their verbs, their options and their own words.
//! How the rest is read is in `wrap`.

use super::lex::Word;

/// A program that runs its arguments, after its own options.
pub(super) struct Wrapper {
    pub names: &'static [&'static str],
    /// The words before which it runs nothing: `docker exec`, `git bisect run`. None where it always does.
    verbs: &'static [&'static [&'static str]],
    /// Short options that take a value.
    short: &'static str,
    /// Long options that take a value as the next word.
    long: &'static [&'static str],
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

const DASHES: How = How::Behind(&["--"]);

const fn plain(
    names: &'static [&'static str],
    short: &'static str,
    long: &'static [&'static str],
) -> Wrapper {
    Wrapper { names, verbs: &[], short, long, own_words: 0, text: None, how: How::Words }
}

/// A runner of packages, with the verbs behind which it runs one.
const fn packages(
    names: &'static [&'static str],
    verbs: &'static [&'static [&'static str]],
    short: &'static str,
    long: &'static [&'static str],
) -> Wrapper {
    Wrapper { verbs, how: How::Package, ..plain(names, short, long) }
}

/// A command of tmux that runs a program, with the options of tmux itself.
const fn tmux(verbs: &'static [&'static [&'static str]], short: &'static str) -> Wrapper {
    Wrapper { verbs, how: How::TextOrWords, ..plain(&["tmux"], short, &[]) }
}

const DOCKER_OPTIONS: &[&str] = &[
    "env",
    "env-file",
    "user",
    "workdir",
    "detach-keys",
    "context",
    "host",
    "log-level",
    "config",
    "connection",
    "url",
    "identity",
    "file",
    "project-name",
    "project-directory",
    "profile",
    "index",
    "ansi",
    "progress",
    "parallel",
];

/// The options of `docker run` and `docker compose run` that take the next word.
const DOCKER_RUN_OPTIONS: &[&str] = &[
    "add-host",
    "annotation",
    "attach",
    "cap-add",
    "cap-drop",
    "cidfile",
    "config",
    "connection",
    "context",
    "cpu-shares",
    "cpus",
    "cpuset-cpus",
    "detach-keys",
    "device",
    "dns",
    "entrypoint",
    "env",
    "env-file",
    "expose",
    "file",
    "gpus",
    "group-add",
    "health-cmd",
    "host",
    "hostname",
    "ip",
    "ipc",
    "label",
    "link",
    "log-driver",
    "log-level",
    "log-opt",
    "mac-address",
    "memory",
    "memory-swap",
    "mount",
    "name",
    "net",
    "network",
    "network-alias",
    "pid",
    "pids-limit",
    "platform",
    "pod",
    "profile",
    "project-directory",
    "project-name",
    "publish",
    "pull",
    "restart",
    "runtime",
    "security-opt",
    "shm-size",
    "stop-signal",
    "stop-timeout",
    "sysctl",
    "tmpfs",
    "ulimit",
    "url",
    "user",
    "userns",
    "uts",
    "volume",
    "volumes-from",
    "workdir",
];

const UV_OPTIONS: &[&str] = &[
    "from",
    "with",
    "with-editable",
    "with-requirements",
    "python",
    "extra",
    "group",
    "only-group",
    "env-file",
    "package",
    "project",
    "directory",
    "index",
    "index-url",
    "default-index",
    "module",
    "config-file",
    "cache-dir",
];

const NIX_OPTIONS: &[&str] = &["file", "include", "expr", "inputs-from", "option", "override-input"];

pub(super) const WRAPPERS: &[Wrapper] = &[
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
    plain(&["pkexec"], "", &["user"]),
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
            "valgrind",
            "entr",
            "chronic",
            "ifne",
            "eatmydata",
            "linux32",
            "linux64",
            "uname26",
            "i386",
            "x86_64",
            "nocache",
            "torsocks",
            "firejail",
            "dumb-init",
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
    plain(&["tini"], "pe", &[]),
    plain(&["proxychains", "proxychains4"], "f", &[]),
    plain(&["cgexec"], "g", &[]),
    plain(&["sshpass"], "pfdP", &[]),
    plain(&["ssh-agent"], "aEOPt", &[]),
    plain(&["screen"], "cehpsStT", &[]),
    plain(
        &["xargs"],
        "InPLdasEJR",
        &["replace", "max-args", "max-procs", "max-lines", "delimiter", "arg-file", "max-chars", "eof"],
    ),
    Wrapper {
        how: How::TextOrWords,
        ..plain(
            &["parallel", "sem"],
            "jnNIaSLdPE",
            &[
                "jobs",
                "max-args",
                "arg-file",
                "delay",
                "joblog",
                "results",
                "timeout",
                "colsep",
                "halt",
                "tmpdir",
                "workdir",
                "wd",
                "sshlogin",
                "sshloginfile",
                "env",
                "block",
                "recstart",
                "recend",
                "tagstring",
                "load",
                "memfree",
                "retries",
                "nice",
                "basefile",
                "return",
                "trim",
                "id",
            ],
        )
    },
    Wrapper { own_words: 1, ..plain(&["timeout"], "sk", &["signal", "kill-after"]) },
    Wrapper { own_words: 1, ..plain(&["chroot", "taskset", "chrt"], "", &["userspec", "groups"]) },
    Wrapper { own_words: 1, ..plain(&["flock"], "wE", &["timeout", "wait", "conflict-exit-code"]) },
    Wrapper { own_words: 1, ..plain(&["gosu", "su-exec", "setuidgid"], "", &[]) },
    Wrapper { own_words: 1, ..plain(&["faketime"], "f", &[]) },
    Wrapper { how: How::Joined, ..plain(&["watch"], "nq", &["interval", "equexit"]) },
    Wrapper { own_words: 1, how: How::Joined, ..plain(&["ssh"], "BbcDEeFIiJLlmOopQRSWw", &[]) },
    Wrapper {
        verbs: &[&["exec"], &["container", "exec"], &["compose", "exec"]],
        own_words: 1,
        ..plain(
            &["docker", "podman", "nerdctl", "docker-compose", "podman-compose"],
            "euwcHfp",
            DOCKER_OPTIONS,
        )
    },
    Wrapper {
        verbs: &[&["exec"], &["run"]],
        how: DASHES,
        ..plain(
            &["kubectl", "oc", "lxc", "incus"],
            "ncs",
            &["namespace", "context", "cluster", "kubeconfig", "user", "server"],
        )
    },
    Wrapper {
        verbs: &[&["run"], &["container", "run"], &["create"], &["container", "create"]],
        own_words: 1,
        ..plain(&["docker", "podman", "nerdctl"], "acehHlmpuvw", DOCKER_RUN_OPTIONS)
    },
    Wrapper {
        verbs: &[&["compose", "run"], &["run"]],
        own_words: 1,
        ..plain(&["docker", "docker-compose", "podman-compose"], "efHlpuvw", DOCKER_RUN_OPTIONS)
    },
    Wrapper {
        text: Some((b'c', "call")),
        ..packages(&["npx"], &[], "pcw", &["package", "call", "workspace", "loglevel"])
    },
    Wrapper {
        text: Some((b'c', "call")),
        ..packages(&["npm"], &[&["exec"], &["x"]], "pcwC", &["package", "call", "workspace", "prefix"])
    },
    packages(&["pnpm"], &[&["dlx"], &["exec"]], "CF", &["package", "dir", "filter", "allow-build"]),
    packages(&["pnpx", "bunx"], &[], "p", &["package"]),
    packages(&["yarn"], &[&["dlx"], &["exec"]], "p", &["package", "cwd"]),
    packages(&["bun"], &[&["x"]], "p", &["package", "cwd"]),
    packages(&["uvx"], &[], "pw", UV_OPTIONS),
    packages(&["uv"], &[&["tool", "run"]], "pw", UV_OPTIONS),
    packages(&["pipx"], &[&["run"]], "", &["spec", "python", "pip-args", "index-url"]),
    packages(&["nix"], &[&["run"]], "fI", NIX_OPTIONS),
    Wrapper { verbs: &[&["run"]], ..plain(&["uv"], "pwm", UV_OPTIONS) },
    Wrapper {
        verbs: &[&["run"]],
        ..plain(&["poetry", "pdm", "pipenv", "rye"], "CPp", &["directory", "project", "python", "venv"])
    },
    Wrapper {
        verbs: &[&["run"]],
        ..plain(&["conda", "mamba", "micromamba"], "npr", &["name", "prefix", "cwd", "root-prefix"])
    },
    Wrapper {
        verbs: &[&["exec"]],
        ..plain(&["bundle", "rbenv", "pyenv", "nodenv", "asdf"], "", &["gemfile"])
    },
    Wrapper { verbs: &[&["exec"]], own_words: 1, ..plain(&["direnv"], "", &[]) },
    Wrapper {
        verbs: &[&["exec"], &["x"]],
        text: Some((b'c', "command")),
        how: DASHES,
        ..plain(&["mise", "rtx"], "cCEj", &["command", "cd", "env", "jobs"])
    },
    Wrapper {
        verbs: &[&["shell"], &["develop"]],
        how: How::Behind(&["-c", "--command"]),
        ..plain(&["nix"], "fI", NIX_OPTIONS)
    },
    Wrapper {
        verbs: &[&["watch"]],
        text: Some((b's', "shell")),
        how: DASHES,
        ..plain(&["cargo"], "sxwiCdF", &["shell", "exec", "watch", "ignore", "workdir", "delay", "features"])
    },
    Wrapper {
        verbs: &[&["run"], &["exec"]],
        how: DASHES,
        ..plain(
            &["op", "doppler", "infisical", "aws-vault", "chamber", "dotenv"],
            "pcefd",
            &["project", "config", "env-file", "env", "duration", "region", "account"],
        )
    },
    Wrapper {
        how: How::Joined,
        ..plain(
            &["watchexec"],
            "weifds",
            &["watch", "exts", "ignore", "filter", "debounce", "signal", "shell", "workdir"],
        )
    },
    Wrapper { verbs: &[&["netns", "exec"]], own_words: 1, ..plain(&["ip"], "nfb", &[]) },
    Wrapper {
        verbs: &[&["stat"], &["record"], &["trace"]],
        ..plain(
            &["perf"],
            "eopFcCIrxGDmtu",
            &[
                "event",
                "output",
                "pid",
                "tid",
                "freq",
                "count",
                "cpu",
                "repeat",
                "call-graph",
                "delay",
                "mmap-pages",
            ],
        )
    },
    Wrapper {
        verbs: &[&["bisect", "run"], &["submodule", "foreach"]],
        how: How::TextOrWords,
        ..plain(&["git"], "Cc", &["git-dir", "work-tree", "namespace"])
    },
    tmux(&[&["new-session"], &["new"]], "LSTcefFnstxy"),
    tmux(&[&["new-window"], &["neww"]], "LSTfceFnt"),
    tmux(&[&["split-window"], &["splitw"]], "LSTceFlpt"),
    tmux(&[&["respawn-pane"], &["respawnp"], &["respawn-window"], &["respawnw"]], "LSTfcet"),
    tmux(&[&["run-shell"], &["run"], &["pipe-pane"], &["pipep"]], "LSTfdt"),
    tmux(&[&["display-popup"], &["popup"]], "LSTfbcdehstwxy"),
];

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

    /// Its options, without their values.
    pub fn options<'a>(&self, args: &'a [Word]) -> Vec<&'a [u8]> {
        let mut options = Vec::new();
        let mut at = 0;
        while let Some(text) = args.get(at).map(|word| word.text.as_slice()).filter(|text| is_option(text)) {
            options.push(text);
            at += self.option_words(text);
        }
        options
    }

    /// How many words its options take at the beginning of these.
    pub fn options_len(&self, args: &[Word]) -> usize {
        self.options(args).into_iter().map(|text| self.option_words(text)).sum()
    }

    /// How many words an option takes, itself among them.
    pub fn option_words(&self, text: &[u8]) -> usize {
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

fn is_option(text: &[u8]) -> bool {
    text.len() > 1 && text.starts_with(b"-") && text != b"--"
}
