//! What a command switches on for those after it stays on, whatever becomes of the commands between.

use super::support::{Bench, Kind, rows};

rows!(a_command_that_cannot_be_read_keeps_what_was_switched_on);

/// The first line of a command is read as a whole: where it is none, nothing on it is run.
async fn a_command_that_cannot_be_read_keeps_what_was_switched_on(kind: Kind) {
    let bench = Bench::new(kind).await;
    for broken in ["echo )", "echo 'open", "if true; then", "fi\necho x"] {
        bench.run("set -x").await;
        let result = bench.run(broken).await;
        assert!(!result.shell_restarted && result.exit_code != 0, "{result:?}");
        let shows_frame = ["__ctx", "builtin", "command"].iter().any(|word| result.stderr.contains(word));
        assert!(!shows_frame, "{result:?}");
        let traced = bench.run("echo a").await;
        assert_eq!(traced.stderr, "+ echo a\n", "after {broken}: {traced:?}");
        bench.run("set +x").await;
        bench.run(broken).await;
        assert_eq!(bench.out("echo a").await, "a\n", "after {broken}");
    }
    bench.run("false").await;
    let result = bench.run("echo )").await;
    assert!(!result.stderr.contains("command"), "{result:?}");
    assert_eq!(bench.out("echo ok").await, "ok\n");
    if kind == Kind::Bash {
        assert!(result.stderr.ends_with("`echo )'\n"), "{result:?}");
        bench.run("trap 'echo ERR' ERR; set -o history; trap 'echo DEBUG' DEBUG").await;
        let long = format!("echo ) # {}", "x".repeat(5_000));
        for broken in ["echo )", "set -e; echo )", &long] {
            bench.run(broken).await;
            assert_eq!(bench.run("false").await.stdout, "DEBUG\nDEBUG\nERR\n", "after {broken}");
        }
        assert_eq!(bench.out("trap - DEBUG ERR; shopt -o history").await, "DEBUG\nhistory        \ton\n");
    }
    assert_eq!(bench.out("set | grep -c ^__ctx || :").await, "0\n", "the frame leaves nothing behind");
    bench.end().await;
}
