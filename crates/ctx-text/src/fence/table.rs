//! The programs that run others, one line each. `wrapper` says what the columns mean.
//!
//! A program belongs here if it is common and an agent may use it without a thought. A missing program is not a hole:
//! the fence is a guard against accidents.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::wrapper::Runs::{After, Each, Input, Package, Text, TextBefore, TextIf, TextInput};
use super::wrapper::{ALL, Wrapper, row};

/// The rows of a program. The first one whose verbs fit describes a command.
pub(super) fn rows(name: &str) -> &'static [&'static Wrapper] {
    static ROWS: LazyLock<HashMap<&str, Vec<&Wrapper>>> = LazyLock::new(|| {
        let mut rows = HashMap::<&str, Vec<&Wrapper>>::new();
        for row in TABLE {
            row.names.split_ascii_whitespace().for_each(|name| rows.entry(name).or_default().push(row));
        }
        rows
    });
    ROWS.get(name).map_or(&[], Vec::as_slice)
}

#[rustfmt::skip]
static TABLE: &[Wrapper] = &[
    // Shells and their builtins.
    row("bash sh dash zsh ksh mksh ash rbash fish csh tcsh yash").short("oO").long("rcfile init-file").runs(TextIf("c")),
    row("eval").runs(Text),
    row("exec").short("a"),
    row("command").stops("v V"),
    row("builtin busybox toybox"),
    row("trap").stops("- l p").runs(TextBefore),
    // As another user.
    row("sudo").short("ugpCchrtTUDRa").long("user group prompt chdir chroot close-from host role type other-user command-timeout").stops("e l v edit list validate"),
    row("doas").short("uCa"),
    row("pkexec").long("user"),
    row("sg").short("c").text("c").operands(1).runs(Text),
    row("su").short("cgGsw").long("shell group supp-group whitelist-environment").text("c command session-command").operands(ALL),
    row("runuser").short("cugGsw").long("user shell group supp-group").text("c command session-command"),
    row("gosu su-exec setuidgid").operands(1),
    // With another environment, priority, time limit, terminal or tracer.
    row("env").short("uCS").long("unset chdir").text("S split-string"),
    row("nohup setsid unbuffer fakeroot catchsegv chronic eatmydata torsocks firejail dbus-run-session cross-env valgrind"),
    row("time").short("fo").long("format output"),
    row("timeout").short("sk").long("signal kill-after").operands(1),
    row("nice").short("n").long("adjustment"),
    row("ionice").short("cnpPu").long("class classdata pid pgid uid"),
    row("taskset chrt").stops("p pid").operands(1),
    row("stdbuf").short("ioe").long("input output error"),
    row("flock").short("wEc").long("timeout wait conflict-exit-code").text("c command").operands(1),
    row("chroot arch-chroot").long("userspec groups").operands(1),
    row("unshare nsenter").short("tSGRw").long("target setuid setgid root wd"),
    row("systemd-run").short("upEMHt").long("unit property setenv slice uid gid description"),
    row("prlimit").short("po").long("pid output"),
    row("caffeinate").short("tw"),
    row("proxychains proxychains4").short("f"),
    row("xvfb-run").short("nsfew").long("server-num server-args auth-file error-file"),
    row("sshpass").short("pfdP"),
    row("strace").short("eopsuEPIOabSX").long("output attach trace env user"),
    row("ltrace").short("aADeFlnopsuwx").long("align output library indent"),
    row("gdb").runs(After("--args")),
    row("perf").verbs("stat|record|trace").short("eopFcCIrxGDmtu").long("event output pid tid freq count cpu repeat call-graph delay"),
    row("script").short("cEIOBmT").text("c command").operands(ALL),
    row("screen").short("cehpsStTrRxXD"),
    row("tmux").verbs("new-session|new|new-window|neww|split-window|splitw|respawn-pane|run-shell").short("LSTcefFnstxyl").runs(Text),
    // Once for each input, or again and again.
    row("xargs").short("InPLdasEJRS").long("max-args max-procs delimiter arg-file max-chars process-slot-var").runs(Input),
    row("parallel").short("jnNIaSLdPE").long("jobs max-args arg-file delay joblog results timeout colsep halt tmpdir workdir sshlogin env block retries").runs(TextInput),
    row("find").runs(Each("-exec -execdir -ok -okdir")),
    row("fd fdfind").runs(Each("-x -X --exec --exec-batch")),
    row("watch").short("nq").long("interval equexit").runs(Text),
    row("watchexec").short("weifds").long("watch exts ignore filter debounce signal shell workdir").runs(Text),
    row("entr").runs(Text),
    row("git").verbs("bisect run|submodule foreach").short("Cc").long("git-dir work-tree namespace").runs(Text),
    // On another machine or in a container.
    row("ssh").short("BbcDEeFIiJLlmOopQRSWw").operands(1).runs(Text),
    row("docker podman nerdctl docker-compose podman-compose").verbs("exec|container exec|compose exec").short("euwcHfp").long("env env-file user workdir detach-keys context host config log-level file project-name index").operands(1),
    row("docker podman nerdctl docker-compose podman-compose").verbs("run|container run|compose run").short("acehHlmpuvwf").long("! rm detach interactive tty init privileged read-only publish-all quiet no-healthcheck oom-kill-disable sig-proxy no-deps build service-ports use-aliases remove-orphans replace no-hosts").text("entrypoint").operands(1),
    row("kubectl oc").verbs("exec").short("ncsf").long("namespace context cluster kubeconfig user server container filename").operands(1),
    row("ip").verbs("netns exec").operands(1),
    // The program of a package.
    row("npx").short("pcw").long("package workspace").text("c call").runs(Package),
    row("npm").verbs("exec|x").short("pcwC").long("package workspace prefix").text("c call").runs(Package),
    row("pnpm").verbs("dlx|exec").short("CF").long("package dir filter").runs(Package),
    row("yarn bun").verbs("dlx|exec|x").short("p").long("package cwd").runs(Package),
    row("pnpx bunx").short("p").long("package").runs(Package),
    row("uvx").short("pw").long("from with with-editable with-requirements python index index-url").runs(Package),
    row("uv").verbs("tool run").short("pw").long("from with with-editable python index index-url project directory").runs(Package),
    row("pipx").verbs("run").long("spec python pip-args index-url").runs(Package),
    row("nix").verbs("run").short("fI").long("file include expr").runs(Package),
    // In the environment of a project.
    row("uv").verbs("run").short("pwm").long("with with-editable python extra group env-file package project directory module").stops("m module"),
    row("poetry pdm pipenv rye hatch").verbs("run").short("CPpe").long("directory project python env"),
    row("conda mamba micromamba").verbs("run").short("npr").long("name prefix cwd"),
    row("bundle rbenv pyenv").verbs("exec").long("gemfile"),
    row("direnv").verbs("exec").operands(1),
    row("mise").verbs("exec|x").runs(After("--")),
    row("op doppler infisical aws-vault chamber dotenvx tox").verbs("run|exec").runs(After("--")),
    row("dotenv").runs(After("--")),
    row("nix").verbs("shell|develop").runs(After("-c --command")),
    row("nix-shell").short("pIA").text("run command").operands(ALL),
];
