//! The fence on the ordinary spellings of scripts and agents: options in a heap, arrays, patterns with choices, what stands
//! before a shell's standard input, and a program behind a variable.

use crate::text_fence::{check, fence};

#[test]
fn a_shells_options_in_a_heap_are_told_from_its_script() {
    check("bash -euo pipefail -c 'rm x'", "bash rm");
    check("bash -euo pipefail <<'EOF'\nrm x\nEOF", "bash rm");
    check("bash -eo pipefail -c 'rm x'; bash -euxo pipefail -c 'rm x'", "bash rm bash rm");
    check("bash -ceuo pipefail 'rm x'; bash -o errexit -O extglob -c 'rm x'", "bash rm bash rm");
    check("bash -eOo extglob pipefail -c 'rm x'; bash +eo pipefail -c 'rm x'", "bash rm bash rm");
    check("sudo bash -euo pipefail -c 'rm x'", "sudo bash rm");
    check("find . -exec bash -euo pipefail -c 'rm \"$1\"' _ {} \\;", "find bash rm");
    check("bash -login -c 'rm x'; bash -norc -noprofile -c 'rm x'", "bash rm bash rm");
    check("bash -es <<'E'\nrm x\nE", "bash rm");
    check("bash -euo pipefail script.sh rm; bash -x ./rm.sh <<< rm", "bash");
    check("bash -s -- rm < script; bash -s -- rm <<< ls", "bash ls");
}

#[test]
fn the_words_of_an_array_are_no_commands() {
    check("declare -A m=([a]=1 [b]=2); ls", "declare ls");
    check(
        "local a=(x y); readonly b=(rm); export c+=(rm); typeset -a d=(\n rm # x\n mv\n); e",
        "local readonly export typeset e",
    );
    check("declare -a files=(rm mv) other=(rm); a=(rm $(ls)) b", "declare ls b");
    check("declare -a files=($(rm x)); local x=$(rm y)", "rm declare rm local");
    let allow = fence("", &["declare", "local", "trap", "echo"], &[]);
    for command in ["declare -A m=([a]=1 [b]=2)", "local a=(x y)", "trap - EXIT", "declare -a files=(rm mv)"]
    {
        assert_eq!(allow.check(command), Ok(()), "{command}");
    }
}

#[test]
fn a_trap_runs_its_commands_but_not_its_signals() {
    check("trap - EXIT; trap EXIT; trap; trap -p INT TERM; trap -l; trap 2 15; trap '' INT", "trap");
    check("trap -- - INT; trap -- 'rm x' INT; trap rm EXIT", "trap rm trap rm");
}

#[test]
fn a_pattern_with_choices_is_one_word() {
    check("ls !(rm|mv); ls @(rm|mv) +(rm) ?(rm) *(rm)x", "ls");
    check("case x in @(a|b)) ls;; !(c|rm)) mv;; esac; echo", "ls mv echo");
    check("shopt -s extglob; cp !(*.o|rm(x)) $(ls) y", "shopt ls cp");
    check("ls @($(rm)|x); for f in !(a|rm); do cat $f; done", "rm ls cat");
    check("[[ $x == @(rm|mv) ]] && ls", "ls");
    check("!(rm x); ! (rm y); if !(rm z); then a; fi", "rm a");
    check("f@() { ls; }; f@", "ls f@()");
    check("ls @(a; rm x\nrm y", "ls a rm");
    let deny = fence("", &[], &["rm"]);
    assert!(deny.check("/bin/@(rm|mv) x").is_err());
    assert_eq!(deny.check("ls ./!(rm|mv)"), Ok(()));
}

#[test]
fn what_ssh_is_given_stands_behind_its_options_and_on_its_standard_input() {
    check("ssh host rm x; ssh host -- rm x; ssh -- host rm x", "ssh rm ssh rm ssh rm");
    check("ssh host -t rm x; ssh host -p 22 rm x; ssh -o A=b host -tt -- 'rm x'", "ssh rm ssh rm ssh rm");
    check("ssh host <<'E'\nrm x\nE", "ssh rm");
    check("ssh -T -oStrictHostKeyChecking=no tom@host <<'E'\nrm x\nE", "ssh rm");
    check("ssh host bash <<'E'\nrm x\nE", "ssh bash rm");
    check("ssh host 'cd x && sudo bash -s' <<'E'\nrm x\nE", "ssh cd sudo bash rm");
    check("ssh -p$PORT host rm x; ssh -p \"$PORT\" \"$HOST\" rm", "ssh rm ssh rm");
    check("ssh -N -L 1:h:2 host <<< rm; ssh -O exit host; ssh -V", "ssh");
    check("ssh host cat <<'E'\nrm x\nE", "ssh cat");
    check("ssh rm ls; ssh -i rm -J rm host ls", "ssh ls ssh ls");
}

#[test]
fn a_shell_that_is_started_without_a_command_reads_standard_input() {
    check("sudo -i <<'E'\nrm x\nE", "sudo rm");
    check(
        "sudo -u tom -s <<< 'rm x'; su - tom <<< 'rm x'; chroot /mnt <<< 'rm x'",
        "sudo rm su rm chroot rm",
    );
    check("sh -c 'bash -s' <<< 'rm x'; su -c bash <<< 'rm x'", "sh bash rm su bash rm");
    check("bash <<< \"rm $x\"; docker exec -i c bash <<< 'rm x'", "bash ? rm docker bash rm");
    check(
        "sudo -u tom cat <<< rm; sudo tee f <<< rm; a | xargs -n1 bash <<< rm",
        "sudo cat sudo tee a xargs bash",
    );
}

#[test]
fn a_program_behind_a_variable_has_its_name() {
    check("\"$HOME\"/../../../bin/rm x", "? rm");
    check("$HOME/bin/rm x; \"${BIN_DIR}/rm\" x; $(pwd)/rm; \"`pwd`/rm\"", "? rm ? rm pwd ? rm pwd ? rm");
    check("sudo -u$USER \"$BIN/rm\" x; $VENV/bin/bash -c 'rm x'", "sudo ? rm ? bash rm");
    check("\"$DIR/$NAME\" x; $DIR/r$X; \"$X\"; $DIR/; \"$DIR/r\"$X", "? ? ? ? ?");
    check("sudo $DIR/run.sh rm", "sudo ? run.sh");
    let (deny, allow) = (fence("", &[], &["rm"]), fence("", &["rm", "ls"], &[]));
    assert!(deny.check("\"${BIN_DIR}/rm\" x").is_err());
    assert_eq!(deny.check("\"$HOME/.cargo/bin/cargo\" test rm; ls \"$HOME/rm\""), Ok(()));
    assert!(allow.check("$HOME/bin/ls").is_err(), "it may be any program of that name");
}

#[test]
fn the_options_of_a_container_are_told_from_its_image() {
    for options in [
        "--health-interval 5s --health-cmd 'curl x' --health-retries 3 --health-start-period 1s --health-timeout 1s",
        "--dns-search a --dns-option b --dns-opt c --cpu-quota 1 --cpu-period 2 --cpu-shares 3 --cpuset-mems 0",
        "--memory-reservation 1g --memory-swap 2g --memory-swappiness 0 --oom-score-adj 1 --cgroup-parent x",
        "--blkio-weight 10 --label-file f --volume-driver d --device-cgroup-rule 'c 1:3 r' --storage-opt size=1G",
        "--ip6 ::1 --link-local-ip 1.2.3.4 --isolation x --domainname d --userns host --gpus all --rm -it --init",
    ] {
        check(&format!("docker run {options} image rm x"), "docker rm");
        check(&format!("docker run {options} rm ls"), "docker ls");
    }
    check(
        "podman --root /x run --secret s --tz UTC --umask 022 --uidmap 0:1:1 --systemd always image rm",
        "podman rm",
    );
    check(
        "podman --runroot /x exec --preserve-fds 2 web rm x; docker --tlscert c exec web rm",
        "podman rm docker rm",
    );
}

#[test]
fn what_echo_and_cat_pipe_into_a_shell_is_read() {
    check("echo 'rm x' | bash; echo -e 'ls\\nrm x' | sudo bash -s -- a", "echo bash rm echo sudo bash ls rm");
    check("printf '%s\\n' 'rm x' | sh -eu; echo rm x | ssh host", "printf sh rm echo ssh rm");
    check("cat <<'E' | bash\nrm x\nE\nls", "cat bash rm ls");
    check("cat <<'E' | tee x.sh | docker exec -i web bash\nrm x\nE", "cat tee docker bash rm");
    check("echo 'rm x' | at now; at now <<< 'rm x'; at -l <<< rm", "echo at rm at rm at");
    check("echo 'rm x' |\n  bash; echo 'rm x' | { bash; }", "echo bash rm echo bash rm");
    check("echo \"$X\" | bash", "echo bash ?");
    check(
        "echo y | bash install.sh; echo rm | tee x; echo rm | grep x | bash",
        "echo bash echo tee echo grep bash",
    );
    check(
        "cat rm | bash; echo rm; bash x; echo rm || bash x; echo rm | xargs bash",
        "cat bash echo bash echo bash echo xargs bash",
    );
    check("cat <<E > x.sh && bash x.sh\nrm\nE", "cat bash");
}

#[test]
fn other_ordinary_spellings() {
    check("time -v rm x; \\time -f %e rm", "time rm time rm");
    check("exec {fd}>x; exec {fd}<&-; {log}>&2 rm", "exec rm");
    check("command -pv rm; command -p rm; command -- rm", "command rm command rm");
    check("sudo -l rm; sudo -e rm; sudo --edit rm; sudo -u el rm", "sudo rm");
    check(
        "yarn exec 'rm x && ls'; yarn workspace web exec rm; yarn workspace web add rm",
        "yarn rm ls yarn rm yarn",
    );
    check(
        "uv run -m pytest rm; uv run pytest -m rm; hatch run rm; tox exec -e py -- rm",
        "uv pytest hatch rm tox rm",
    );
    check(
        "npx cross-env A=b rm x; dotenv -e f -- rm; dotenvx run -- rm; wait-for-it h:1 -- rm",
        "npx cross-env rm dotenv rm dotenvx rm wait-for-it rm",
    );
    check(
        "nodemon --watch src --exec 'rm x'; vagrant ssh -c 'rm x'; gcloud compute ssh vm --command='rm x'",
        "nodemon rm vagrant rm gcloud rm",
    );
    check(
        "ltrace -S rm; lldb -o run -- rm; rr record -n rm; rustup run nightly rm; cpulimit -l 50 -- rm",
        "ltrace rm lldb rm rr rm rustup rm cpulimit rm",
    );
    check(
        "kubectl debug node/x --image=b -- rm; oc rsh pod rm; adb shell 'rm x'; multipass exec vm -- rm",
        "kubectl rm oc rm adb rm multipass rm",
    );
    check(
        "env 'A=b c' rm x; sudo -E env \"PATH=$PATH\" \"X=$HOME/ls\" rm; env \"A\"=b rm",
        "env rm sudo env rm env rm",
    );
    check(
        "xargs -n$N rm; nice -n\"$N\" rm; sudo -u\"$U\" rm; timeout $T rm",
        "xargs rm nice rm sudo rm timeout rm",
    );
    check(
        "guix shell x -- rm; toolbox run -c x rm; arch-chroot /mnt rm; arch-chroot /mnt <<< 'rm x'",
        "guix rm toolbox rm arch-chroot rm arch-chroot rm",
    );
}

#[test]
fn a_variable_that_is_named_for_options_is_no_host_and_no_image() {
    check("ssh $SSH_OPTS host rm x; ssh \"${ssh_opts[@]}\" tom@host 'rm x'", "ssh rm ssh rm");
    check(
        "docker run \"${docker_args[@]}\" image rm; docker $DOCKER_OPTS exec ${FLAGS} web rm",
        "docker rm docker rm",
    );
    check(
        "bash $BASH_OPTS -c 'rm x'; timeout $OPTIONS 5 rm; sudo $SUDO_ARGS rm",
        "bash rm timeout rm sudo ? rm",
    );
    check("ssh \"$HOST\" rm; docker run $IMAGE rm; timeout $LIMIT rm", "ssh rm docker rm timeout rm");
}
