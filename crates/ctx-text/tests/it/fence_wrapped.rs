//! The fence: rows of programs that run others, one row or more for each line of the table.

use crate::fence::{check, names};

#[test]
fn shells_and_their_builtins() {
    check(&[
        ("bash -c 'rm x'", "bash rm"),
        ("bash -lc \"cd x && rm y\"", "bash cd rm"),
        ("sh -e -c 'a; $(b)'", "sh a b ?"),
        ("bash -euo pipefail -c 'rm x'; bash -ceuo pipefail 'rm x'", "bash rm bash rm"),
        ("bash --norc -o errexit -O extglob -c 'rm x'", "bash rm"),
        ("bash -c \"bash -c 'rm x'\"", "bash rm"),
        ("bash -c 'A=1 rm x'; ssh host 'A=1 rm x'; eval A=1 rm", "bash rm ssh rm eval rm"),
        ("bash +e -c 'rm x'", "bash rm"),
        ("zsh -c rm; dash -c rm; /bin/ksh -c rm", "zsh rm dash rm /bin/ksh rm"),
        ("bash script.sh -c rm; bash -s -- rm", "bash"),
        ("eval rm x; eval 'a; b'; eval", "eval rm eval a b eval"),
        ("exec rm; exec -a name rm", "exec rm exec rm"),
        ("command rm; command -p rm; command -v rm; command -pV rm", "command rm command rm command"),
        ("builtin cd; busybox rm x", "builtin cd busybox rm"),
        ("trap 'rm x' EXIT; trap -- 'rm x' INT", "trap rm trap rm"),
        ("trap - INT TERM; trap -p INT TERM; trap EXIT; trap '' INT; trap", "trap"),
    ]);
}

#[test]
fn other_users_environments_and_limits() {
    check(&[
        ("sudo rm x", "sudo rm"),
        ("sudo -u tom -E X=1 rm x", "sudo rm"),
        ("sudo --user tom -- rm; sudo --user=tom rm", "sudo rm sudo rm"),
        ("sudo -l rm; sudo -e rm; sudo --edit rm; sudo -u el rm", "sudo rm"),
        ("doas -u tom rm; pkexec --user tom rm; gosu tom rm", "doas rm pkexec rm gosu rm"),
        ("su tom -c 'rm x'; su - tom --command='rm x'; sg root -c 'rm x'", "su rm su rm sg rm"),
        ("sg root 'rm x'; sg - root \"rm x\"; sg root; sg -c 'rm x'", "sg rm sg rm sg rm"),
        ("runuser -u tom -- rm x; runuser -u tom rm", "runuser rm runuser rm"),
        ("env X=1 -i rm; env - rm x; env; env -u A rm", "env rm env rm env rm"),
        ("env -S 'rm -rf x'; env -S'rm x'; env --split-string='rm x'", "env rm env rm env rm"),
        ("env 'A=b c' rm x; env \"PATH=$PATH\" rm", "env rm env rm"),
        ("nohup rm &", "nohup rm"),
        ("time -v rm x; \\time -f %e rm; A=1 time rm", "time rm time rm time rm"),
        ("timeout 5 rm; timeout -s KILL -k 3 5s rm", "timeout rm timeout rm"),
        ("timeout --signal=KILL 5 rm", "timeout rm"),
        ("nice -n 5 rm; nice -5 rm; ionice -c 3 rm", "nice rm nice rm ionice rm"),
        ("taskset -c 0 rm; taskset -cp 0 123; chrt -p 20 123", "taskset rm taskset chrt"),
        ("stdbuf -oL rm; setsid -f rm; prlimit --nofile=10 rm", "stdbuf rm setsid rm prlimit rm"),
        ("flock /tmp/lock rm x; flock -w 3 /tmp/lock -c 'rm x'", "flock rm flock rm"),
        ("chroot /mnt rm; unshare -r rm; nsenter -t 1 rm", "chroot rm unshare rm nsenter rm"),
        ("systemd-run --unit a rm; caffeinate -t 60 rm", "systemd-run rm caffeinate rm"),
        ("proxychains -f x rm; xvfb-run -s a rm; sshpass -p x rm", "proxychains rm xvfb-run rm sshpass rm"),
        ("strace -f -o f rm; ltrace -S rm; gdb -batch --args rm x", "strace rm ltrace rm gdb rm"),
        ("perf stat -r 5 rm x; valgrind --leak-check=full rm", "perf rm valgrind rm"),
        ("script -qc 'rm x' log; script log --command='rm x'", "script rm script rm"),
        ("screen -dmS work rm x; tmux new-session -d -s work 'rm x'", "screen rm tmux rm"),
        ("sudo env nohup timeout 3 bash -c 'exec rm'", "sudo env nohup timeout bash exec rm"),
    ]);
}

#[test]
fn programs_for_each_input() {
    check(&[
        ("a | xargs rm", "a xargs rm"),
        ("a | xargs -0 -n1 -I {} -P 4 rm {}", "a xargs rm"),
        ("a | xargs --max-args=1 sh -c 'rm \"$@\"' _", "a xargs sh rm"),
        ("a | xargs", "a xargs"),
        ("echo '\"touch F\"' | xargs sh -c", "echo xargs sh ?"),
        (
            "a | xargs sh; a | xargs -n1 env; a | xargs -r sudo -u tom",
            "a xargs sh ? a xargs env ? a xargs sudo ?",
        ),
        ("a | xargs -I{} find {} -name x; a | xargs -I % env %", "a xargs find a xargs env %"),
        ("a | parallel '(cd {}; b)'; parallel 'cd {.}; b' ::: c", "a parallel cd b parallel cd b"),
        ("a | xargs find . -name x; a | xargs find . -exec rm", "a xargs find ? a xargs find ? rm"),
        (
            "a | parallel; a | parallel sh -c; parallel env ::: a",
            "a parallel ? a parallel sh ? parallel env ?",
        ),
        ("a | xargs git add; a | xargs sh -c 'rm \"$1\"' _", "a xargs git a xargs sh rm"),
        ("find . -name x -exec rm {} \\; -exec mv {} y +", "find rm mv"),
        ("find . -execdir rm {} \\; -ok mv {} \\; -okdir cp {} x ';'", "find rm mv cp"),
        ("find . -exec bash -c 'rm \"$1\"' _ {} \\;", "find bash rm"),
        ("find . -type f -delete; fd x -x rm", "find fd rm"),
        ("find $O; find .$O; find . -name $O -exec rm {} \\;", "find ? find ? find ? rm"),
        ("find \"$DIR\" -name '*.c' -o -name *.h; fd \"$X\" src", "find fd"),
        ("gdb $O; gdb --args a $O; gdb \"$FILE\" --args a", "gdb ? gdb a gdb a"),
        ("parallel 'rm {}' ::: a b; parallel -j 4 rm ::: a", "parallel rm parallel rm"),
        ("parallel ::: 'rm a'", "parallel ?"),
        ("watch -n 1 'rm x | b'; ls | entr -r rm x", "watch rm b ls entr rm"),
        ("watchexec -e rs -- rm x", "watchexec rm"),
        ("git -C app bisect run rm x; git submodule foreach 'rm x || b'", "git rm git rm b"),
    ]);
}

#[test]
fn other_machines_and_containers() {
    check(&[
        ("ssh -p 22 host 'rm x'; ssh host -t rm x; ssh -- host rm x", "ssh rm ssh rm ssh rm"),
        ("ssh -o A=b tom@host 'cd x && sudo rm y'; ssh host; ssh rm ls", "ssh cd sudo rm ssh ls"),
        ("docker exec -it -e A=1 web rm x", "docker rm"),
        ("docker --context far container exec web sh -c 'rm x'", "docker sh rm"),
        ("docker compose -f a.yml exec web rm x", "docker rm"),
        ("docker run --rm -it -v a:b -e A=1 --network host image rm x", "docker rm"),
        ("docker run --rm --entrypoint rm image -rf x", "docker rm"),
        ("docker run --health-cmd 'curl x' --gpus all --init image rm", "docker rm"),
        ("podman run -p 80:80 image sh -c 'rm x'; podman exec --user root c rm x", "podman sh rm podman rm"),
        ("kubectl -n app exec -it pod -c web -- rm x", "kubectl rm"),
        ("ip netns exec blue rm x", "ip rm"),
    ]);
}

#[test]
fn packages_and_the_environments_of_projects() {
    check(&[
        ("npx -y rimraf@5 x; npx --package=a -- rimraf x", "npx rimraf npx rimraf"),
        ("npx -c 'rm x && b'; npm exec -- rm x; npm exec --call='rm x'", "npx rm b npm rm npm rm"),
        ("npx @angular/cli@17 new; npx eslint -c rm.js .", "npx @angular/cli npx eslint"),
        ("npx cross-env A=b rm x; npx $X", "npx cross-env rm npx ?"),
        ("pnpm dlx rm x; yarn dlx -p a rm; bunx rm@1; bun x rm", "pnpm rm yarn rm bunx rm bun rm"),
        ("uvx ruff@latest check; uvx --from black blackd; uv tool run rm", "uvx ruff uvx blackd uv rm"),
        ("uv run --with rich rm x; uv --project p run -- rm; uv run -m rm", "uv rm uv rm uv"),
        ("poetry run rm x; conda run -n env rm x; bundle exec rm", "poetry rm conda rm bundle rm"),
        ("pipx run black==24.1 .; nix run nixpkgs#rm -- x", "pipx black nix rm"),
        ("mise exec node@20 -- rm x; direnv exec . rm x; op run -- rm", "mise rm direnv rm op rm"),
        (
            "nix shell nixpkgs#a -c rm x; nix-shell -p a --run 'rm x'; dotenv -e f -- rm",
            "nix rm nix-shell rm dotenv rm",
        ),
    ]);
}

#[test]
fn ordinary_commands_run_only_the_program_that_they_name() {
    let alone = [
        "docker ps -a",
        "docker run --rm -it -v a:b image",
        "docker run --rm hadolint/hadolint --version",
        "docker build -t rm .",
        "docker logs exec",
        "podman rm -f web",
        "kubectl get pods -- rm",
        "kubectl exec pod",
        "tmux ls",
        "tmux attach -t rm",
        "screen -r rm",
        "gdb ./app core",
        "script -q log",
        "git rm x",
        "git bisect start",
        "git commit -m 'a; rm x'",
        "git stash drop stash@{0}",
        "ip addr show",
        "perf report",
        "cp x{,.bak} y",
        "echo {rm,x} *",
        "awk '{print $1,$2}' x",
        "npm install rm",
        "npm run rm",
        "yarn rm",
        "uv pip install rm",
        "nix develop",
        "make rm",
        "cargo run -- rm",
        "cat rm",
        "su",
        "bash",
    ];
    for command in alone {
        assert_eq!(Some(names(command).as_str()), command.split(' ').next(), "{command}");
    }
}
