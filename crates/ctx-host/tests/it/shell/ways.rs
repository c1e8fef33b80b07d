//! A command comes into its shell in one of several ways; it cannot tell which.

use ctx_host::shell::{ExecResult, Output, OutputRequest};

use super::support::{Bench, Kind, rows};

rows![
    every_way_into_bash_counts_lines_alike,
    an_exit_trap_sees_the_command_that_ended_the_shell,
    what_cannot_be_read_is_shown_as_it_was_given,
];

/// By `eval`, as a sourced script, as lines of the shell's own script, and by `eval` because it cannot be read.
async fn every_way_into_bash_counts_lines_alike(kind: Kind) {
    if kind == Kind::Dash {
        return;
    }
    let bench = Bench::new(kind).await;
    let lines = "echo $LINENO\necho $LINENO; f() { echo $LINENO; }\nf\n(false)";
    let long = format!("{lines}\n# {}", "x".repeat(5_000));
    for before in
        ["true", "set -x", "set -e", "trap 'true' EXIT", "false", "set -x\n\n", "trap : DEBUG ERR", "set -v"]
    {
        for command in [lines, &long] {
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
    if kind == Kind::Dash {
        return;
    }
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
        let request = OutputRequest { call, stream, offset: 0, limit: None, grep: None };
        let whole = bench.host.output(&bench.id, &request).unwrap().text;
        assert!(
            !whole.is_empty() && !whole.contains("unset") && !whole.contains("command"),
            "{before}: {whole}"
        );
    }
    bench.end().await;
}
