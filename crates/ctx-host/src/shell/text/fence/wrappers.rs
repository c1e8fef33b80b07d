//! The table of programs that run what stands in their arguments: their verbs, their options and their own words.
//! How these are told apart is in `wrapper`, how the rest is read in `wrap`.

use super::containers::{DOCKER_OPTIONS, DOCKER_RUN_OPTIONS};
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

/// The programs that run containers.
pub(super) const CONTAINERS: &[&str] = &["docker", "podman", "nerdctl", "docker-compose", "podman-compose"];

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
    plain(&["strace"], "eopsuEPIOabSX", &["output", "attach", "trace", "env", "user"]),
    plain(&["ltrace"], "aADeFlnopsuwx", &["align", "output", "library", "indent"]),
    plain(&["cross-env", "cross-env-shell", "rlwrap", "catatonit", "flatpak-spawn"], "", &[]),
    Wrapper {
        how: DASHES,
        ..plain(&["wait-for-it", "wait-for-it.sh", "mosh", "dotenv", "schroot"], "", &[])
    },
    Wrapper { verbs: &[&["run"]], how: DASHES, ..plain(&["dotenvx"], "ef", &["env", "env-file"]) },
    Wrapper { verbs: &[&["shell"], &["exec-out"]], how: How::Joined, ..plain(&["adb"], "sHPtL", &[]) },
    Wrapper { verbs: &[&["shell"]], own_words: 1, ..plain(&["limactl"], "", &["shell", "workdir"]) },
    Wrapper {
        verbs: &[&["exec"]],
        own_words: 1,
        ..plain(&["multipass", "crictl"], "dri", &["working-directory"])
    },
    Wrapper { verbs: &[&["run"]], ..plain(&["toolbox"], "cdr", &["container", "distro", "release"]) },
    Wrapper { verbs: &[&["enter"]], how: DASHES, ..plain(&["distrobox"], "n", &["name"]) },
    plain(&["distrobox-host-exec"], "", &[]),
    plain(&["cpulimit"], "lpePcm", &["limit", "pid", "exe", "path", "cpu"]),
    plain(&["heaptrack"], "op", &["output", "pid"]),
    Wrapper { how: DASHES, ..plain(&["lldb"], "", &[]) },
    Wrapper { verbs: &[&["record"]], ..plain(&["rr"], "ov", &["output-trace-dir", "env"]) },
    Wrapper { verbs: &[&["run"]], own_words: 1, ..plain(&["rustup"], "", &[]) },
    Wrapper { verbs: &[&["shell"], &["environment"]], how: DASHES, ..plain(&["guix"], "fmpLe", &[]) },
    Wrapper { verbs: &[&["exec"]], how: DASHES, ..plain(&["tox"], "ec", &[]) },
    Wrapper { verbs: &[&["run"]], ..plain(&["hatch"], "ep", &["env", "project"]) },
    Wrapper {
        verbs: &[&["rsh"]],
        own_words: 1,
        ..plain(&["oc"], "ncs", &["container", "shell", "namespace"])
    },
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
    Wrapper {
        own_words: 1,
        ..plain(&["chroot", "arch-chroot", "taskset", "chrt"], "", &["userspec", "groups"])
    },
    Wrapper { own_words: 1, ..plain(&["flock"], "wE", &["timeout", "wait", "conflict-exit-code"]) },
    Wrapper { own_words: 1, ..plain(&["gosu", "su-exec", "setuidgid", "s6-setuidgid"], "", &[]) },
    Wrapper { own_words: 1, ..plain(&["faketime"], "f", &[]) },
    Wrapper { how: How::Joined, ..plain(&["watch"], "nq", &["interval", "equexit"]) },
    Wrapper {
        verbs: &[&["exec"], &["container", "exec"], &["compose", "exec"]],
        own_words: 1,
        ..plain(CONTAINERS, "euwcHfp", DOCKER_OPTIONS)
    },
    Wrapper {
        verbs: &[&["exec"], &["run"], &["debug"]],
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
            &["op", "doppler", "infisical", "aws-vault", "chamber"],
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
