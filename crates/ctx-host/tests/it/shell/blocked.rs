//! A shell that waits in an `open` of its own can be stopped like any other.

use super::support::{Kind, assert_state, give_state, rows, with_state};

rows!(a_shell_that_waits_for_the_other_end_of_a_fifo_is_stopped_and_lives_on);

async fn a_shell_that_waits_for_the_other_end_of_a_fifo_is_stopped_and_lives_on(kind: Kind) {
    let bench = with_state(kind).await;
    let fifo = bench.path("deep/fifo").display().to_string();
    bench.out("mkfifo fifo; ln -s fifo link").await;
    let waits = [
        "read x <fifo",
        "read x <link",
        "while read x; do :; done <fifo",
        "echo lost >fifo",
        "f2() { read x <fifo; touch ran; }; f2",
        "set -e; read x <fifo",
        "for i in 1 2; do read x <fifo; done",
    ];
    let of_exec = ["exec 3<fifo", "exec 3>fifo", "cd /; exec 3<$FIFO", "set -e; exec 3<fifo 4<fifo"];
    for command in waits.into_iter().chain(of_exec) {
        let ran = bench.path("deep/ran");
        let command = format!("{}; touch '{}'", command.replace("$FIFO", &fifo), ran.display());
        let mut result = bench.run_for(&command, 200).await;
        // A shell that gets no time to answer within a second counts as lost, which a busy machine does.
        for _ in 0..2 {
            if !result.shell_restarted {
                break;
            }
            give_state(&bench).await;
            result = bench.run_for(&command, 200).await;
        }
        assert!(result.timed_out && result.exit_code == 124, "{command}: {result:?}");
        assert!(!result.shell_restarted, "{command}: {result:?}");
        assert!(!ran.exists(), "{command} went on: {result:?}");
        if kind == Kind::Bash {
            assert_eq!(result.stderr, "", "{command}");
        }
        if command.starts_with("set -e") {
            assert_eq!(bench.out("case $- in *e*) echo kept;; esac; set +e").await, "kept\n", "{command}");
        }
        bench.out(&format!("exec 3>&- 4>&-; cd '{}'", bench.path("deep").display())).await;
    }
    assert_state(&bench).await;
    bench.end().await;
}
