//! The fence: programs are seen wherever a shell would run them, and the operator's policy is never widened.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use ctx_host::shell::text::fence::{Fence, Policy, Program, Refused, programs};
use proptest::prelude::*;

/// The names a command would run, `?` for what cannot be known, `f()` for its own functions.
pub fn names(command: &str) -> String {
    let name = |program: Program| match program {
        Program::Named(name) => name,
        Program::Function(name) => format!("{name}()"),
        Program::Glob(_) | Program::Unknown(_) => "?".to_owned(),
    };
    programs(command).into_iter().map(name).collect::<Vec<_>>().join(" ")
}

#[track_caller]
pub fn check(command: &str, want: &str) {
    assert_eq!(names(command), want, "{command}");
}

#[test]
fn lists_pipes_and_groups() {
    check("a && rm x", "a rm");
    check("a; b | c || d & e", "a b c d e");
    check("(a; b) && { c; d; }", "a b c d");
    check("a |& b\nc", "a b c");
    check("! a && time -p b", "a b");
    check("", "");
    check("# rm x", "");
    check("a # rm x\nb", "a b");
    check("echo a#b; c", "echo c");
    check("a \\\n && b", "a b");
}

#[test]
fn compound_commands() {
    check("if a; then b; elif c; then d; else e; fi", "a b c d e");
    check("while a; do b; done < c", "a b");
    check("for x in $(list) y; do rm $x; done", "list rm");
    check("for ((i=0; i<$(n); i++)); do rm; done", "n rm");
    check("for x; do a; done", "a");
    check("case $(pick) in a|b) rm;; (c) d;; *) e; esac; f", "pick rm d e f");
    check("x=$(case y in a) rm;; esac); b", "rm b");
    check("[[ -n $(a) && x < y ]] && b", "a b");
    check("(( x = $(a) )) && b", "a b");
    check("f() { rm x; }; f", "rm f()");
    check("function g { rm; }; g", "rm g()");
    check("until a; do b; done", "a b");
    check("select x in a b; do c; done", "c");
    check("coproc N { rm x; }; coproc M (rm y); coproc rm x; coproc { rm z; }", "rm");
}

#[test]
fn substitutions() {
    check("echo $(rm x)", "rm echo");
    check("echo `rm x`", "rm echo");
    check("echo \"$(rm x)\"", "rm echo");
    check("echo \"`rm \\\"x\\\"`\"", "rm echo");
    check("echo '$(rm x)'", "echo");
    check("echo \\$(", "echo");
    check("echo $((1 + $(a)))", "a echo");
    check("echo $((rm x); b)", "rm b echo");
    check("echo ${x:-$(rm)}", "rm echo");
    check("echo ${x:-${y:-`rm`}}", "rm echo");
    check("diff <(a) >(b)", "a b diff");
    check("X=$(rm) Y=2 b", "rm b");
    check("X=(1 $(rm) 2); b", "rm b");
    check("a > $(rm)", "rm a");
    check("a `b \\`c\\``", "c b a");
}

#[test]
fn quoting_and_paths() {
    check("r''m x", "rm");
    check("\\rm x", "rm");
    check("\"rm\" x", "rm");
    check("'r'\"m\" x", "rm");
    check("$'\\x72\\155' x", "rm");
    check("r\\\nm x", "rm");
    check("/bin/rm x", "/bin/rm");
    check("> out rm x", "rm");
    check("2>&1 rm x", "rm");
    check("X=1 Y='a b' rm", "rm");
    check("[ -f x ] && a", "[ a");
}

#[test]
fn here_documents() {
    check("cat <<EOF\n$(rm x)\nEOF\nb", "cat rm b");
    check("cat <<'EOF'\n$(rm x)\nEOF\nb", "cat b");
    check("cat <<-EOF\n\t`rm`\n\tEOF\nb", "cat rm b");
    check("cat <<A <<B; c\n1\nA\n$(rm)\nB\nd", "cat c rm d");
    check("bash <<EOF\nrm x\nEOF", "bash rm");
    check("bash <<< 'rm x'", "bash rm");
    check("cat <<EOF\nrm x", "cat");
}

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
fn what_cannot_be_known() {
    check("$X", "?");
    check("\"$@\"", "?");
    check("$(echo rm) x", "echo ?");
    check("/bin/r* x", "?");
    check("{$X,rm}", "?");
    check(&format!("r{{m,{}}}", "x".repeat(300_000)), "?");
    check("x{1..99999999999}", "?");
    check("eval \"$code\"", "eval ?");
    check("bash -c \"$code\"", "bash ?");
    check("sudo $X rm", "sudo ? rm");
    check("bash -c \"rm $x\"", "bash ? rm");
}

#[test]
fn braces_become_words() {
    check("{rm,-rf,x}", "rm");
    check("r{m,} x", "rm");
    check("{,/bin/}rm x", "rm");
    check("{,} rm x", "rm");
    check("r{m..m} x", "rm");
    check("{r,s}{m,n} x", "rm");
    check("{{rm,x},y}", "rm");
    check("{a,{rm}", "{a,{rm}");
    check("{a,{rm,b}", "{a,rm");
    check("{rm,$x,*}", "rm");
    check("r{'m',} x", "rm");
    check("r'{m,}' x", "r{m,}");
    check("r\\{m,} x", "r{m,}");
    check("{rm} x; {}; x{1..} y", "{rm} {} x{1..}");
    check("python3.{08..10}", "python3.08");
    check("sudo {-u,tom,rm} x", "sudo rm");
    check("eval {rm,x}; bash -c '{rm,x}'; bash <<< {rm,x}", "eval rm bash rm bash rm");
    check("a; X={rm,y}; for i in {rm,x}; do b; done; c > {rm,x}", "a b c");
    check("{ rm,x; }; echo {1..3} file{,.bak} {\"a\":1,\"b\":2}", "rm,x echo");
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

/// Commands that run no program but the one that they name.
#[test]
fn ordinary_commands_are_not_taken_for_others() {
    let alone = [
        "docker ps -a",
        "docker run --rm -it -v a:b image",
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

pub fn fence(policy: &str, allow: &[&str], deny: &[&str]) -> Fence {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    Fence::new(
        Policy::parse(policy).unwrap(),
        (!allow.is_empty()).then(|| list(allow)).as_deref(),
        &list(deny),
    )
    .unwrap()
}

#[test]
fn a_denied_program_is_refused_however_it_is_called() {
    let fence = fence("", &[], &["rm", "shut*"]);
    for command in [
        "rm x",
        "a && rm",
        "$(rm)",
        "a | xargs rm",
        "bash -c 'rm'",
        "sudo rm",
        "/bin/rm",
        "r''m",
        "shutdown -h",
    ] {
        assert!(matches!(fence.check(command), Err(Refused::Denied { .. })), "{command}");
    }
    for command in ["ls", "$X", "eval \"$x\"", "echo rm", "git rm x", "cat rm"] {
        assert_eq!(fence.check(command), Ok(()), "{command}");
    }
    let message = fence.check("sudo rm x").unwrap_err().to_string();
    assert!(message.contains("`rm`") && message.contains("deny list"), "{message}");
}

#[test]
fn an_allow_list_lets_through_what_it_names_and_nothing_unknown() {
    let fence = fence("", &["ls", "git", "cd", "if*"], &[]);
    for command in [
        "ls",
        "cd x && git status",
        "X=1 ls",
        "/usr/bin/git log",
        "if ls; then git x; fi",
        "f() { ls; }; f",
        "[[ a ]] && ls",
    ] {
        assert_eq!(fence.check(command), Ok(()), "{command}");
    }
    for command in ["rm", "ls | wc", "ls; $X", "git log $(id)", "echo x", "bash -c ls", "sudo ls"] {
        assert!(fence.check(command).is_err(), "{command}");
    }
    let message = fence.check("ls; \"$X\" y").unwrap_err().to_string();
    assert!(message.contains("$X") && message.contains("cannot be known"), "{message}");
}

#[test]
fn the_first_line_of_the_policy_that_matches_decides() {
    let policy = "# programs\nallow git\ndeny g*\n\ndeny /opt/*\n  deny\trm\n";
    let fence = fence(policy, &[], &[]);
    assert_eq!(fence.check("git status; ls; $X"), Ok(()));
    assert_eq!(fence.check("gcc x"), Err(Refused::ByPolicy { program: "gcc".into(), line: 3 }));
    assert_eq!(
        fence.check("/opt/bin/tool"),
        Err(Refused::ByPolicy { program: "/opt/bin/tool".into(), line: 5 })
    );
    assert_eq!(fence.check("ls && rm x"), Err(Refused::ByPolicy { program: "rm".into(), line: 6 }));
}

#[test]
fn a_policy_that_ends_with_deny_star_is_an_allow_list() {
    let fence = fence("allow ls\nallow git\ndeny *\n", &[], &[]);
    assert_eq!(fence.check("ls && git log"), Ok(()));
    assert!(matches!(fence.check("ls && id"), Err(Refused::ByPolicy { line: 3, .. })));
    assert!(matches!(fence.check("$X"), Err(Refused::Unknown { .. })));
}

#[test]
fn the_caller_can_only_narrow_the_policy() {
    let wide = fence("deny rm\n", &["rm", "ls", "*"], &[]);
    assert!(matches!(wide.check("rm x"), Err(Refused::ByPolicy { .. })));
    let narrow = fence("allow *\n", &["ls"], &["ls"]);
    assert!(narrow.check("ls").is_err(), "the deny list holds against the allow list");
    assert!(narrow.check("id").is_err());
}

#[test]
fn bad_lines_and_entries_are_named() {
    for (text, line) in [("allow ls\npermit x\n", 2), ("deny\n", 1), ("\n\nallow a b\n", 3)] {
        let error = Policy::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text:?}");
        assert!(error.to_string().contains(&format!("line {line}")), "{error}");
    }
    let error = Fence::new(Policy::open(), Some(&["a b".to_owned()]), &[]).unwrap_err().to_string();
    assert!(error.contains("allow list") && error.contains("a b"), "{error}");
    assert!(Fence::new(Policy::open(), None, &[String::new()]).is_err());
    let error = Fence::new(Policy::open(), Some(&[]), &[]).unwrap_err().to_string();
    assert!(error.contains("nothing could run"), "{error}");
}

#[test]
fn deep_nesting_and_long_commands_end_in_time() {
    let deep = [
        "$(".repeat(40_000),
        "(".repeat(40_000),
        "`".repeat(40_001),
        "\"$(".repeat(20_000),
        "${x:-".repeat(20_000),
        "sudo ".repeat(20_000),
        "case x in ".repeat(20_000),
        "{ ".repeat(40_000),
        "<(".repeat(40_000),
        "a <<E ".repeat(20_000),
        "$((".repeat(20_000),
        "((".repeat(30_000),
        "f() ".repeat(20_000),
        "{a,".repeat(20_000),
        format!("{}{}", "{a,".repeat(20_000), "}".repeat(20_000)),
        "{a,b}".repeat(20_000),
        "{1..8192} ".repeat(20_000),
        "{1..9}; ".repeat(20_000),
        format!("{}rm x", "echo hello world; ".repeat(12_000)),
    ];
    for command in deep {
        let start = std::time::Instant::now();
        let _ = programs(&command);
        assert!(start.elapsed().as_secs() < 10, "{}", &command[..12]);
    }
}

/// Pieces of shell, put together at random.
fn shellish() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "rm",
        "sudo ",
        "bash -c ",
        "$(",
        ")",
        "`",
        "'",
        "\"",
        "${",
        "}",
        "((",
        "))",
        "<<EOF\n",
        "EOF\n",
        "\n",
        ";",
        "&&",
        "|",
        "case x in ",
        "esac",
        " in ",
        ";;",
        "for ",
        "do ",
        "done",
        "{",
        "if ",
        "fi",
        "\\",
        "$'",
        "<(",
        "[[ ",
        " ]]",
        "find . -exec ",
        "\\;",
        "x=",
        "=(",
        "#",
        " ",
        "eval ",
        "é",
        "*",
        "$x",
        "2>",
        "<<<",
        "function ",
        "xargs ",
        "{a,",
        "..",
        ",",
        "tmux new ",
        "docker exec ",
    ]);
    prop::collection::vec(prop_oneof![8 => piece.prop_map(str::to_owned), 1 => any::<String>()], 0..40)
        .prop_map(|p| p.concat())
}

/// Words with braces in them, put together at random.
fn braced() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "rm", "{", "}", ",", "{", "}", ",", "..", "1", "c", "{a..c}", "{x,y}",
    ]);
    prop::collection::vec(piece, 1..9).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The name of a command is the first word that bash makes of what was written.
    #[test]
    fn braces_become_what_bash_makes_of_them(words in prop::collection::vec(braced(), 40)) {
        let words: Vec<String> = words.into_iter().filter(|word| !["{", "}"].contains(&word.as_str())).collect();
        let script: String = words.iter().map(|word| format!("set -- {word}\nprintf '%s\\n' \"${{1-}}\"\n")).collect();
        let bash = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
        let firsts = String::from_utf8(bash.stdout).unwrap();
        prop_assert_eq!(firsts.lines().count(), words.len());
        for (word, first) in words.iter().zip(firsts.lines()) {
            prop_assert_eq!(names(word), first, "{}", word);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_command_makes_it_fail(command in shellish()) {
        let _ = programs(&command);
    }

    #[test]
    fn a_program_after_a_finished_command_is_seen(words in prop::collection::vec("[a-z]{1,6}", 0..5), quoted in "[a-z $]{0,8}") {
        let before = words.join(" ");
        let command = format!("{before} '{quoted}'; rm x");
        prop_assert!(programs(&command).contains(&Program::Named("rm".into())));
    }
}
