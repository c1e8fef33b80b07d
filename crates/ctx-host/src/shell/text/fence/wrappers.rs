//! The table of programs that run what stands in their arguments: their verbs, their options and their own words.
//! How these are told apart is in `wrapper`, how the rest is read in `wrap`.

use super::wrapper::{How, Wrapper, plain};

const DASHES: How = How::Behind(&["--"]);

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
    plain(&["caffeinate"], "tw", &[]),
    plain(&["daemonize"], "ceoplLuE", &[]),
    plain(
        &["proot"],
        "rbmqwvkipRS",
        &["rootfs", "bind", "mount", "qemu", "pwd", "cwd", "verbose", "kernel-release", "change-id", "port"],
    ),
    Wrapper { how: How::TextOrWords, ..plain(&["entr"], "", &[]) },
    plain(
        &["xargs"],
        "InPLdasEJRS",
        &["max-args", "max-procs", "delimiter", "arg-file", "max-chars", "process-slot-var"],
    ),
    Wrapper {
        how: How::Joined,
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
