//! A command with a mistake in it, of any kind, leaves a sound shell and touches no command after it.

use super::support::{Bench, Kind, bash_rows};

bash_rows![
    what_cannot_be_read_is_no_failure_to_a_trap,
    a_mistake_in_a_test_or_a_pattern_ends_with_its_command,
    a_mistake_in_a_file_that_is_read_ends_with_its_command,
    an_expression_that_cannot_be_evaluated_leaves_the_shell,
    a_substitution_is_tried_also_where_the_command_reads_others,
    what_switches_extended_patterns_on_is_read_with_them,
    a_stop_finds_an_expression_that_could_not_be_evaluated,
    a_shell_that_can_run_no_frame_is_made_anew,
    nothing_shows_of_how_the_end_was_asked_for,
    a_posix_bash_reads_the_next_command_too,
];

/// What may hold before a command with a mistake: each leads another way into bash.
const BEFORE: [&str; 6] =
    ["true", "false", "set -x", "trap 'true' EXIT", "shopt -s nullglob", "set -o history"];

/// A shell with something to lose.
async fn with_state(kind: Kind, before: &str) -> Bench {
    let bench = Bench::new(kind).await;
    bench.run("V=kept; g() { echo G; }").await;
    bench.run(before).await;
    bench
}

async fn assert_sound(bench: &Bench, why: &str) {
    let result = bench.run("g; echo $V $LINENO; [[ a ]] && case x in x) { g; };; esac").await;
    let seen = (result.stdout.as_str(), result.exit_code, result.shell_restarted);
    assert_eq!(seen, ("G\nkept 1\nG\n", 0, false), "{why}: {result:?}");
    assert_eq!(result.late_output, "", "{why}");
    let is_trace = |line: &str| line.starts_with('+');
    assert!(result.stderr.lines().all(is_trace), "{why}: {result:?}");
}

async fn a_mistake_in_a_test_or_a_pattern_ends_with_its_command(kind: Kind) {
    for before in BEFORE {
        let bench = with_state(kind, before).await;
        for (command, is_silent) in [
            ("if [[ $V == kept && ]]; then echo y; fi", true),
            ("[[ a == x -a b == y ]]", false),
            ("[[ -f x ] && echo", false),
            ("[[ $x == (a|b) ]]", false),
            ("[[ a ==\nb ]]", false),
            ("[[ -f ]]", false),
            ("if [[ $x == \"b\"; then", false),
            ("[[ a &&", false),
            ("case $1 in a) x;; --y') y;; esac", false),
            ("shopt -s nullglob; [[ a && ]]", true),
            ("case a in (a", false),
            ("for ((i=0; i<3", false),
            ("echo ok; )", false),
        ] {
            let why = format!("{before}: {command}");
            let result = bench.run(command).await;
            assert_eq!((result.exit_code, result.shell_restarted), (2, false), "{why}: {result:?}");
            assert!(!result.stderr.contains("__ctx"), "{why}: {result:?}");
            let said = result.stderr.lines().any(|line| !line.starts_with('+'));
            assert_eq!(said, !is_silent, "{why}: {result:?}");
            let hinted = result.hint.is_some_and(|hint| hint.contains("[["));
            assert!(before == "set -x" || hinted == is_silent, "{why}: {hinted}");
            assert_sound(&bench, &why).await;
        }
        bench.run("trap - EXIT").await;
        bench.end().await;
    }
}

/// As in a script, which ends by it.
async fn what_cannot_be_read_is_no_failure_to_a_trap(kind: Kind) {
    let bench = with_state(kind, "trap 'true' EXIT; trap 'echo failed' ERR").await;
    for command in ["if", "[[ a && ]]", "echo $(fi)", "echo 'a"] {
        let result = bench.run(command).await;
        assert_eq!((result.exit_code, result.stdout.as_str()), (2, ""), "{command}: {result:?}");
    }
    let result = bench.run("trap 'echo late' ERR EXIT\nif").await;
    assert_eq!((result.exit_code, result.stdout.as_str()), (2, ""), "{result:?}");
    bench.run("trap - EXIT ERR").await;
    bench.end().await;
}

async fn a_mistake_in_a_file_that_is_read_ends_with_its_command(kind: Kind) {
    for before in BEFORE {
        let bench = with_state(kind, before).await;
        std::fs::write(bench.path("bad.sh"), "[[ a && ]]\n").unwrap();
        std::fs::write(bench.path("worse.sh"), "case $1 in a) x;; --y') y;; esac\n").unwrap();
        for command in [". ./bad.sh; echo ok", "source ./worse.sh; echo ok", "eval '[[ a && ]]'; echo ok"] {
            let result = bench.run(command).await;
            assert_eq!((result.stdout.as_str(), result.exit_code), ("ok\n", 0), "{before}: {result:?}");
            assert_sound(&bench, &format!("{before}: {command}")).await;
        }
        bench.run("trap - EXIT").await;
        bench.end().await;
    }
}

/// bash leaves everything that it is in, the frame included, and goes on with its script.
async fn an_expression_that_cannot_be_evaluated_leaves_the_shell(kind: Kind) {
    for before in ["true", "false", "set -x", "trap 'true' EXIT"] {
        let bench = with_state(kind, before).await;
        for command in [
            "m[foo.bar]=1",
            "cd /; day=09; counts[$day]=5; echo not here",
            "shopt -s nullglob; f() { m[a.b]=1; }; f",
            "declare -i x; x='a b'",
            "read 'm[a.b]' <<< 3",
        ] {
            let result = bench.run(command).await;
            let seen = (result.stdout.as_str(), result.exit_code, result.shell_restarted);
            assert_eq!(seen, ("", 1, false), "{before}: {command}: {result:?}");
            assert!(result.stderr.contains("error token is"), "{before}: {command}: {result:?}");
            assert_eq!(result.hint, None, "{command}");
            assert_sound(&bench, &format!("{before}: {command}")).await;
            if command.starts_with("cd /") {
                assert_eq!(result.cwd, "/");
            }
        }
        bench.run("trap - EXIT").await;
        bench.end().await;
    }
}

async fn a_substitution_is_tried_also_where_the_command_reads_others(kind: Kind) {
    for before in BEFORE {
        let bench = with_state(kind, before).await;
        std::fs::write(bench.path("lib.sh"), "L=1\n").unwrap();
        for command in
            [". ./lib.sh; x=$(echo", "source ./lib.sh; echo $(fi)", "shopt -s nullglob; echo $(ls |)"]
        {
            for _ in 0..3 {
                let result = bench.run(command).await;
                let seen = (result.exit_code, result.shell_restarted);
                assert_eq!(seen, (2, false), "{before}: {command}: {result:?}");
                assert!(!result.stderr.contains("__ctx"), "{before}: {command}: {result:?}");
                assert_sound(&bench, &format!("{before}: {command}")).await;
            }
        }
        bench.run("trap - EXIT").await;
        bench.end().await;
    }
}

/// Also before anyone has looked whether bash is still in its frame.
async fn a_stop_finds_an_expression_that_could_not_be_evaluated(kind: Kind) {
    let bench = with_state(kind, "true").await;
    for command in
        ["a[x.y]=1", "shopt -s nullglob; a[x.y]=1", "trap 'true' EXIT\nfor i in 1; do a[x.y]=1; done"]
    {
        let result = bench.run_for(command, 40).await;
        assert!(!result.shell_restarted, "{command}: {result:?}");
        assert_sound(&bench, command).await;
    }
    bench.run("trap - EXIT").await;
    bench.end().await;
}

/// The end that it is asked for is none of a command that it has not run.
async fn a_shell_that_can_run_no_frame_is_made_anew(kind: Kind) {
    for breaks in ["enable -n eval", "readonly LINENO"] {
        let bench = with_state(kind, "true").await;
        bench.run(breaks).await;
        let first = bench.run("echo first").await;
        let second = bench.run("echo second").await;
        assert!(first.shell_restarted || second.shell_restarted, "{breaks}: {first:?} {second:?}");
        assert_eq!(bench.out("echo third").await, "third\n", "{breaks}");
        bench.end().await;
    }
}

async fn nothing_shows_of_how_the_end_was_asked_for(kind: Kind) {
    let bench = with_state(kind, "set -o history").await;
    let result = bench.run("set -v; a[x.y]=1").await;
    assert!(!result.stderr.contains("__ctx"), "{result:?}");
    let result = bench.run("a[x.y]=1").await;
    assert!(!result.stderr.contains("__ctx"), "{result:?}");
    let history = bench.run("set +v; history").await.stdout;
    assert_eq!(history.lines().count(), 3, "{history}");
    assert!(!history.contains("__ctx"), "{history}");
    bench.end().await;
}

async fn a_posix_bash_reads_the_next_command_too(kind: Kind) {
    let bench = with_state(kind, "set -o posix").await;
    let result = bench.run("[[ a").await;
    assert_eq!((result.exit_code, result.shell_restarted), (2, false), "{result:?}");
    assert_sound(&bench, "posix").await;
    bench.end().await;
}

async fn what_switches_extended_patterns_on_is_read_with_them(kind: Kind) {
    let bench = with_state(kind, "true").await;
    let result = bench.run("kept=1; shopt -s extglob\nx=$(echo +(a|b)); echo \"$x\"").await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("+(a|b)\n", ""));
    assert_eq!(bench.out("echo $kept").await, "1\n", "it ran in the shell itself");
    assert_sound(&bench, "extglob").await;
    bench.end().await;
}
