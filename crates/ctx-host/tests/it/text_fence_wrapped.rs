//! The fence sees through programs that run others: at the end of their words, behind a verb, in cages and containers, as
//! the value of an option.

use ctx_host::shell::text::fence::Refused;

use crate::text_fence::{check, fence};

#[test]
fn programs_that_run_programs() {
    check("sudo rm x", "sudo rm");
    check("sudo -u tom -E X=1 rm x", "sudo rm");
    check("sudo --user tom -- rm", "sudo rm");
    check("doas rm", "doas rm");
    check("env X=1 -i rm", "env rm");
    check("env -S 'rm -rf x'", "env rm");
    check("env -S'rm -rf x'", "env rm");
    check("env --split-string='rm -rf x'", "env rm");
    check("env - rm x", "env rm");
    check("runuser -u tom rm x", "runuser rm");
    check("runuser -u tom -- rm x", "runuser rm");
    check("sg root -c 'rm x'", "sg rm");
    check("prlimit --nofile=10 rm x", "prlimit rm");
    check("nohup rm &", "nohup rm");
    check("timeout 5 rm", "timeout rm");
    check("timeout -s KILL -k 3 5s rm", "timeout rm");
    check("timeout --signal=KILL 5 rm", "timeout rm");
    check("nice -n 5 rm; nice -5 rm", "nice rm nice rm");
    check("exec rm", "exec rm");
    check("exec -a name rm", "exec rm");
    check("command rm; command -v rm; builtin cd", "command rm command builtin cd");
    check("a | xargs rm", "a xargs rm");
    check("a | xargs -0 -n1 -I {} -P 4 rm {}", "a xargs rm");
    check("find . -name x -exec rm {} \\; -exec mv {} y +", "find rm mv");
    check("find . -type f -delete", "find");
    check("bash -c 'rm x'", "bash rm");
    check("bash -lc \"cd x && rm y\"", "bash cd rm");
    check("sh -e -c 'a; $(b)'", "sh a b ?");
    check("bash -c \"bash -c 'rm x'\"", "bash rm");
    check("su tom -c 'rm x'", "su rm");
    check("flock /tmp/lock rm x", "flock rm");
    check("flock -w 3 /tmp/lock -c 'rm x'", "flock rm");
    check("watch -n 1 'rm x | b'", "watch rm b");
    check("busybox rm x", "busybox rm");
    check("sudo env nohup timeout 3 bash -c 'exec rm'", "sudo env nohup timeout bash exec rm");
    check("eval rm x; eval 'a; b'", "eval rm eval a b");
    check("trap 'rm x' EXIT", "trap rm");
    check("alias ll='rm -rf'", "alias rm");
    check("ssh -p 22 host 'rm x'", "ssh rm");
    check(
        "stdbuf -oL rm; setsid -f rm; ionice -c 3 rm; strace -o f rm",
        "stdbuf rm setsid rm ionice rm strace rm",
    );
}

#[test]
fn programs_behind_a_verb_or_in_another_terminal() {
    check("gdb -batch -ex run --args rm x", "gdb rm");
    check("gdb -ex run -ex bt rm core", "gdb rm");
    check("tmux new-session -d -s work rm x", "tmux rm");
    check("tmux -L sock new -d 'cd x && rm y'", "tmux cd rm");
    check("tmux new -d -s a \\; split-window -h 'rm x'", "tmux rm");
    check("screen -dmS work rm x; screen rm", "screen rm screen rm");
    check("script -qc 'rm x' log; script -c'rm x'; script --command='rm x'", "script rm script rm script rm");
    check("docker exec -it -e A=1 web rm x", "docker rm");
    check("docker --context far container exec web sh -c 'rm x'", "docker sh rm");
    check("docker compose -f a.yml exec web rm x", "docker rm");
    check("podman exec --user root c rm x", "podman rm");
    check("kubectl -n app exec pod -c web -- rm x", "kubectl rm");
    check("ip netns exec blue rm x", "ip rm");
    check("parallel 'rm {}' ::: a b; parallel -j 4 rm ::: a", "parallel rm parallel rm");
    check("parallel ::: 'rm a' 'mv b c'", "parallel rm mv");
    check("watch -n 2 rm x", "watch rm");
    check("perf stat -r 5 rm x; valgrind --leak-check=full rm", "perf rm valgrind rm");
    check("git -C app bisect run rm x; git submodule foreach 'rm x || b'", "git rm git rm b");
    check("ls | entr -r rm x; gosu tom rm; sshpass -p x ssh host rm", "ls entr rm gosu rm sshpass ssh rm");
    check("pkexec --user tom rm x; runuser -u tom -- grep -c rm x", "pkexec rm runuser grep");
}

#[test]
fn programs_of_packages_environments_and_new_containers() {
    check("docker run --rm -it -v a:b -e A=1 --network host image rm x", "docker rm");
    check("podman run -p 80:80 image sh -c 'rm x'; docker container run image rm", "podman sh rm docker rm");
    check(
        "docker run --rm --entrypoint rm image -rf x; docker run --entrypoint=sh image -c 'rm x'",
        "docker rm docker sh rm",
    );
    check("docker compose -f a.yml run --rm web rm x", "docker rm");
    check(
        "docker run image -- rm x; docker run image -c 'rm x'; taskset -c 0 rm",
        "docker rm docker rm taskset rm",
    );
    check("npx -y rimraf@5 x; npx --package=a -- rimraf x", "npx rimraf npx rimraf");
    check("npx -c 'rm x && b'; npm exec -- rm x; npm exec --call='rm x'", "npx rm b npm rm npm rm");
    check("npx eslint -c rm.js .", "npx eslint");
    check("npx @angular/cli@17 new", "npx @angular/cli");
    check(
        "pnpm dlx rm x; pnpm exec rm; yarn dlx -p a rm; bunx rm@1; bun x rm",
        "pnpm rm pnpm rm yarn rm bunx rm bun rm",
    );
    check("uvx ruff@latest check; uvx --from black blackd; uv tool run rm", "uvx ruff uvx blackd uv rm");
    check("uv run --with rich rm x; uv --project p run -- rm; poetry run rm x", "uv rm uv rm poetry rm");
    check("pipx run black==24.1 .; pipx run --spec a rm", "pipx black pipx rm");
    check("mise exec node@20 -- rm x; mise x -c 'rm x'; direnv exec . rm x", "mise rm mise rm direnv rm");
    check("nix run nixpkgs#rm -- x; nix shell nixpkgs#a nixpkgs#b -c rm x", "nix rm nix rm");
    check("nix develop --command bash -c 'rm x'; nix-shell -p a --run 'rm x'", "nix bash rm nix-shell rm");
    check("cargo watch -s 'rm x'; cargo watch -x check -- rm x", "cargo rm cargo rm");
    check("bundle exec rm x; pyenv exec rm; conda run -n env rm x", "bundle rm pyenv rm conda rm");
    check("watchexec -e rs -- rm x; aws-vault exec work -- rm", "watchexec rm aws-vault rm");
}

#[test]
fn programs_in_cages_and_daemons() {
    check("bwrap --ro-bind / / --dev /dev --unshare-all rm x", "bwrap rm");
    check("bwrap --bind a b --overlay a b c --setenv A 1 --chdir /x -- rm x", "bwrap rm");
    check("bwrap --args 3 --ro-bind-try a b --die-with-parent sh -c 'rm x'", "bwrap sh rm");
    check("proot -r root -b /dev -b /a:/b -w /x -0 rm x", "proot rm");
    check("proot --rootfs=root --bind /dev --cwd=/x rm x", "proot rm");
    check(
        "caffeinate -dims rm x; caffeinate -t 60 rm; caffeinate -w 12",
        "caffeinate rm caffeinate rm caffeinate",
    );
    check("daemonize -a -c /x -o out -p pid -E A=1 /bin/rm x", "daemonize /bin/rm");
    check("capsh --drop=cap_net_raw -- -c 'rm x'", "capsh bash rm");
    check("capsh --shell=/bin/rm -- x; capsh --user=tom -- <<< 'rm x'", "capsh /bin/rm capsh bash rm");
    check("capsh --print; capsh -- script.sh", "capsh bash");
    check("start-stop-daemon --start --pidfile p --exec /bin/rm -- -rf x", "start-stop-daemon /bin/rm");
    check(
        "start-stop-daemon -S -b -x /bin/rm; start-stop-daemon -Sbx /bin/rm",
        "start-stop-daemon /bin/rm start-stop-daemon /bin/rm",
    );
    check("start-stop-daemon -S --startas=/bin/sh -- -c 'rm x'", "start-stop-daemon /bin/sh rm");
    check(
        "start-stop-daemon --start --exec /usr/bin/a --startas /bin/rm",
        "start-stop-daemon /usr/bin/a /bin/rm",
    );
    check("start-stop-daemon -S -a rm -- x", "start-stop-daemon rm");
    check("start-stop-daemon --stop --exec /bin/rm; start-stop-daemon -K -x /bin/rm", "start-stop-daemon");
    check("start-stop-daemon --status --pidfile rm", "start-stop-daemon");
}

#[test]
fn commands_that_are_the_value_of_an_option() {
    check("tar xf a.tar --to-command='rm x'; tar --to-command rm -xf a", "tar rm tar rm");
    check("tar cf a x --checkpoint=1 --checkpoint-action=exec='rm x'", "tar rm");
    check("tar cf a x --checkpoint-action 'exec=rm x'; tar cf a --checkpoint-action=dot", "tar rm tar");
    check("tar -I 'zstd -19' -cf a x; tar -cf a -Izstd x; tar -cIzstd -f a x", "tar zstd tar zstd tar zstd");
    check(
        "tar --use-compress-program=rm -xf a; tar cIf zstd a x; tar cfI a zstd x",
        "tar rm tar zstd tar zstd",
    );
    check(
        "tar xf a -F 'rm x'; tar --info-script=rm -xMf a; gtar --rsh-command rm -tf h:a",
        "tar rm tar rm gtar rm",
    );
    check("git rebase -x 'cargo test && rm x' main", "git cargo rm");
    check("git -C app rebase -i main --exec 'rm x' --exec=mv; git rebase -xrm main", "git rm mv git rm");
    check("git difftool -x 'rm x' HEAD; git difftool --extcmd=rm", "git rm git rm");
    check("git filter-branch --tree-filter 'rm -f x' --msg-filter=cat HEAD", "git rm cat");
    check("rg --pre pdftotext x; rg -n x --pre=rm; rg --hostname-bin rm x", "rg pdftotext rg rm rg rm");
    check(
        "rsync -av -e 'ssh -p 22' a h:b; rsync -ae rm a b; rsync --rsh=rm a b",
        "rsync ssh rsync rm rsync rm",
    );
    check("sort --compress-program=rm x; split -b 9 --filter='rm $FILE' x", "sort rm split rm");
    check("tar -cf a -I \"$X\" x; rg --pre $(pick) x", "tar ? pick rg ?");
    check("rg --pre=$X x; tar -cf a -I$X x; script --command=$X log", "rg ? tar ? script ?");
}

#[test]
fn options_that_only_look_like_those_that_hold_a_command() {
    for command in [
        "tar -czf rm.tar x",
        "tar czf a.tar -C rm .",
        "tar -xf a.tar -- --to-command=rm",
        "tar --checkpoint=rm -cf a",
        "git rebase main",
        "git rebase -i HEAD~3",
        "git rebase -X ours main",
        "git log -x rm",
        "git commit -m --exec=rm",
        "rg --pre-glob rm x",
        "rg -e --pre rm",
        "rg rm -- --pre x",
        "rsync -a rm h:b",
        "sort -k 2 rm",
        "split -b 9 rm",
        "bwrap --version",
    ] {
        check(command, command.split(' ').next().unwrap_or_default());
    }
}

#[test]
fn commands_that_are_run_again_and_again() {
    check(
        "ls | entr -s 'rm x && b'; ls | entr -sr 'rm $0' a; ls | entr -c rm /_",
        "ls entr rm b ls entr rm ls entr rm",
    );
    check("watch -x sh -c 'a; rm x'; watch --interval 3 -d 'rm x'", "watch sh a rm watch rm");
    check("parallel 'rm -f' {} ::: a b; parallel -j4 'a; rm {}' x ::: b", "parallel rm parallel a rm");
    check("parallel {} ::: 'rm a' 'mv b c'; parallel -j 2 -- rm ::: a", "parallel {} rm mv parallel rm");
    check("a | parallel --pipe --block 1M rm; a | parallel -q -k rm {}", "a parallel rm a parallel rm");
    check(
        "a | xargs --replace rm {}; a | xargs --max-lines rm; a | xargs -l rm",
        "a xargs rm a xargs rm a xargs rm",
    );
    check(
        "a | xargs --eof rm; a | xargs -i rm {}; a | xargs -S 99 -I {} rm {}",
        "a xargs rm a xargs rm a xargs rm",
    );
    check(
        "a | xargs --process-slot-var I -P 2 rm; a | xargs --max-args=1 sh -c 'rm \"$@\"' _",
        "a xargs rm a xargs sh rm",
    );
    check("find . -ok rm {} \\;; find . -okdir rm {} \\; -exec mv {} x +", "find rm find rm mv");
    check("git bisect run sh -c 'rm x'; git submodule --quiet foreach --recursive rm x", "git sh rm git rm");
}

/// Commands that run no program but the one that they name.
#[test]
fn ordinary_commands_are_not_taken_for_others() {
    let alone = [
        "docker ps -a",
        "docker run --rm -it -v a:b image",
        "docker run --rm hadolint/hadolint --version",
        "podman run -i image - -x",
        "docker compose run --rm web -v rm",
        "taskset -cp 0 123",
        "taskset --pid 123",
        "chrt -r -p 20 123",
        "docker build -t rm .",
        "docker compose up -d",
        "docker logs exec",
        "podman rm -f web",
        "kubectl get pods -- rm",
        "kubectl exec pod",
        "tmux ls",
        "tmux attach -t rm",
        "tmux new-session -d -s rm \\; set-option -g status off",
        "tmux kill-session -t rm",
        "tmux send-keys -t work q Enter",
        "screen -r rm",
        "screen -ls",
        "screen -d rm",
        "screen -S work -X quit",
        "gdb ./app core",
        "gdb -batch -ex bt -p 12",
        "script log",
        "script -q log",
        "git rm x",
        "git bisect start",
        "git submodule update --init",
        "git stash drop stash@{0}",
        "git diff HEAD~{1,2}",
        "ip addr show",
        "perf report",
        "perf list",
        "env",
        "cp x{,.bak}",
        "mkdir -p src/{main,test}/java",
        "echo {rm,x}",
        "curl -d {\"rm\":1,\"b\":2} host",
        "awk '{print $1,$2}' x",
        "ssh-agent -s",
        "npm install rm",
        "yarn rm",
        "uv pip install rm",
        "uv sync",
        "nix build rm",
        "nix develop",
        "mise use rm",
        "cargo build --bin rm",
        "poetry add rm",
        "make rm",
        "npm run rm",
        "cargo run -- rm",
    ];
    for command in alone {
        check(command, command.split(' ').next().unwrap_or_default());
    }
    check("env A=1 sort -S 50% x", "env sort");
    check("find . -name '*.{rm,x}' -print0 | xargs -0 -I{} cp {} {}.{bak,old}", "find xargs cp");
    check("docker exec -it web bash", "docker bash");
    check("parallel gzip ::: *.log", "parallel gzip");
    let fence = fence("", &["docker", "tmux", "gzip", "parallel", "echo"], &[]);
    for command in ["docker ps", "tmux ls", "parallel gzip ::: *.log", "echo {1..100000}", "echo {$a,b}"] {
        assert_eq!(fence.check(command), Ok(()), "{command}");
    }
}

#[test]
fn a_denied_program_is_refused_behind_each_of_them() {
    let fence = fence("deny rm\n", &[], &["mv"]);
    for command in [
        "bwrap --ro-bind / / rm x",
        "tar xf a --to-command=rm",
        "git rebase -x 'rm x' main",
        "start-stop-daemon -S -x /bin/rm",
        "capsh -- -c 'rm x'",
        "ls | entr -s 'rm x'",
    ] {
        assert!(matches!(fence.check(command), Err(Refused::ByPolicy { line: 1, .. })), "{command}");
        let other = command.replace("/bin/rm", "/bin/mv").replace("rm", "mv");
        assert!(matches!(fence.check(&other), Err(Refused::Denied { .. })), "{other}");
    }
    assert_eq!(fence.check("tar -I zstd -cf a.tar rm"), Ok(()));
}
