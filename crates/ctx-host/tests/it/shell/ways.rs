//! A command comes into its shell in one of several ways; it cannot tell which.

use ctx_host::{ExecResult, Output, OutputRequest};

use super::support::{Bench, Kind, bash_rows, rows};

rows![
    what_cannot_be_read_is_shown_as_it_was_given,
    a_substitution_that_cannot_be_read_leaves_a_sound_shell,
    what_stands_behind_a_line_that_cannot_be_read_does_not_run,
];

bash_rows![every_way_into_bash_counts_lines_alike, an_exit_trap_sees_the_command_that_ended_the_shell,];

/// By `eval`, as a sourced script, as lines of the shell's own script, and by `eval` because it cannot be read.
async fn every_way_into_bash_counts_lines_alike(kind: Kind) {
    let bench = Bench::new(kind).await;
    let lines = "echo $LINENO\necho $LINENO; f() { echo $LINENO; }\nf\n(false)";
    let long = format!("{lines}\n# {}", "x".repeat(5_000));
    let befores = [
        "true",
        "set -x",
        "set -e",
        "trap 'true' EXIT",
        "false",
        "(exit 2)",
        "set -x\n\n",
        "trap : DEBUG ERR",
        "set -v",
        "[[ a && ]]",
        "eval :",
    ];
    for before in befores {
        let torn = lines.replace("(false)", ": '('; (false)");
        for command in [lines, &long, &torn] {
            bench.run(before).await;
            let command =
                if before == "set -e" { command.replace("(false)", ":") } else { command.to_owned() };
            let result = bench.run(&command).await;
            assert_eq!(
                (result.stdout.as_str(), result.shell_restarted),
                ("1\n2\n2\n", false),
                "{before}: {result:?}"
            );
            let code = if before == "set -e" { 0 } else { 1 };
            assert_eq!(result.exit_code, code, "{before}: {result:?}");
            bench.run("set +exv; trap - EXIT DEBUG ERR").await;
        }
        bench.run(before).await;
        let broken = bench.run("echo one\n\necho )").await;
        assert!(broken.stderr.contains("line 3: syntax error"), "{before}: {broken:?}");
        bench.run("set +exv; trap - EXIT DEBUG ERR").await;
        assert_eq!(bench.out("echo $LINENO").await, "1\n", "after {before}");
    }
    bench.run("set -v").await;
    assert_eq!(bench.run("echo one\necho two").await.stderr, "echo one\necho two\n");
    bench.end().await;
}

async fn an_exit_trap_sees_the_command_that_ended_the_shell(kind: Kind) {
    let bench = Bench::new(kind).await;
    let result = bench.run("trap 'echo \"[$BASH_COMMAND]\"' EXIT; exit 3").await;
    assert_eq!((result.stdout.as_str(), result.exit_code), ("[exit 3]\n", 3));
    bench.run("left() { echo \"$? [$BASH_COMMAND]\"; }; trap left 0").await;
    assert_eq!(bench.out("echo a; (echo b); { echo c; }").await, "a\nb\nc\n");
    let result = bench.run("f() { exit 4; }\nif true; then f; fi").await;
    assert_eq!((result.stdout.as_str(), result.exit_code), ("4 [exit 4]\n", 4), "{result:?}");
    bench.run("trap 'echo \"[$BASH_COMMAND]\"' EXIT").await;
    assert!(assert_timed_out(&bench).await.stdout.is_empty());
    // No text gets out of the frame: what is not whole is not taken for lines of the script.
    for broken in [
        "}\n{",
        ")\n(",
        "echo a }",
        "cat <<EOF\nx",
        "echo \\",
        "true &&",
        "if true; then",
        "echo '",
        "$(",
        "x=(",
    ] {
        let result = bench.run(broken).await;
        assert!(!result.shell_restarted && !result.timed_out, "{broken}: {result:?}");
        assert!(!format!("{}{}", result.stdout, result.stderr).contains("__ctx"), "{broken}: {result:?}");
        assert_eq!(bench.out("echo fine").await, "fine\n", "after {broken}");
    }
    bench.end().await;
}

async fn assert_timed_out(bench: &Bench) -> ExecResult {
    let result = bench.run_for("while :; do sleep 60; done\necho never", 300).await;
    assert_eq!((result.exit_code, result.shell_restarted), (124, false), "{result:?}");
    result
}

/// Also to whoever reads the whole output.
async fn what_cannot_be_read_is_shown_as_it_was_given(kind: Kind) {
    let bench = Bench::new(kind).await;
    for before in ["true", "false", "set -x", "trap 'true' EXIT"] {
        bench.run(before).await;
        let call = bench.run("echo a; )").await.call;
        let stream = Output::Stderr;
        let request =
            OutputRequest { call, stream, offset: 0, limit: None, grep: None, ..OutputRequest::default() };
        let whole = bench.host.output(&bench.id, &request).unwrap().text;
        assert!(
            !whole.is_empty() && !whole.contains("unset") && !whole.contains("command"),
            "{before}: {whole}"
        );
    }
    bench.end().await;
}

/// bash 5.2 destroys its memory when it reads one without an end for the second time, and ends itself on others.
async fn a_substitution_that_cannot_be_read_leaves_a_sound_shell(kind: Kind) {
    let bench = Bench::new(kind).await;
    let long = format!("# {}\necho $(ls", "x".repeat(5_000));
    for before in ["true", "trap 'true' EXIT", "set -x"] {
        bench.run(before).await;
        let torn = ["echo $(ls", "$(", "cat <(", "x=1\ny=$(", "echo $( ( ", &long, "echo $(if)", "x=$(for)"]
            .into_iter()
            .chain([
                "x=$(fi) y",
                "echo $(a; }) b",
                "echo $(grep a (b)) c",
                "echo ')' $(ls",
                "echo ')' $(a '",
            ]);
        let torn: Vec<&str> = torn.collect();
        for torn in torn.repeat(3) {
            if kind == Kind::Dash && torn.contains('<') {
                continue;
            }
            let result = bench.run(torn).await;
            assert_eq!((result.exit_code, result.shell_restarted), (2, false), "{torn}: {result:?}");
            assert!(!result.stderr.is_empty() && !result.stderr.contains("free"), "{torn}: {result:?}");
            assert!(!result.stderr.contains("__ctx"), "{torn}: {result:?}");
        }
        let fill = "for i in {1..50}; do y=\"a$i$y\"; done; unset y; echo alive";
        assert_eq!(bench.run(fill).await.stdout, "alive\n");
    }
    // What only looks like one runs in the shell itself.
    bench.run("set +x; kept='('; also=$(if true; then echo yes; fi)").await;
    assert_eq!(bench.out("echo \"$kept $also\"").await, "( yes\n");
    bench.end().await;
}

/// Not even where that is found out by trying, and where a brace ends too early what it is tried in.
async fn what_stands_behind_a_line_that_cannot_be_read_does_not_run(kind: Kind) {
    let bench = Bench::new(kind).await;
    for before in ["true", "set -x", "trap 'true' EXIT"] {
        bench.run(before).await;
        for substitution in ["$(for i in 1; do echo $i; done)", "$(pwd)"] {
            let command = format!("echo a\n}}\n: >ran; echo ran\nx={substitution}");
            let result = bench.run(&command).await;
            let seen = (result.stdout.as_str(), result.exit_code, result.shell_restarted);
            assert_eq!(seen, ("a\n", 2, false), "{before}: {result:?}");
            assert!(!bench.path("ran").exists(), "{before}: {substitution}");
        }
    }
    bench.end().await;
}
