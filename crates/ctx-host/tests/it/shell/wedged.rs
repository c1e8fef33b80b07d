//! A shell that waits for input in a builtin of its own, such as `read`, is stopped and lives on.

use std::time::{Duration, Instant};

use ctx_host::ExecRequest;

use super::support::{Bench, Kind, assert_state, bash_rows, eventually, pid_in, rows, with_state};

rows![
    a_read_that_nobody_feeds_is_stopped_by_a_timeout,
    a_read_that_nobody_feeds_is_stopped_by_an_interrupt,
    a_read_that_nobody_feeds_is_stopped_by_a_cancel,
];

bash_rows![a_stop_leaves_options_and_descriptors_as_they_were,];

/// A shell with silent descriptors: 3 a named pipe, 4 a pipe, 5 a socket, 6 a process substitution, and a coprocess.
async fn with_silence(kind: Kind) -> (Bench, std::net::TcpListener) {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bench = with_state(kind).await;
    bench.out("mkfifo fifo; exec 3<>fifo; mkfifo pipe; exec 4<>pipe").await;
    if kind == Kind::Bash {
        let port = silent.local_addr().unwrap().port();
        bench.out(&format!("exec 5<>/dev/tcp/127.0.0.1/{port}; exec 6< <(sleep 400)")).await;
        bench.run("coproc cat; n=6").await;
    }
    (bench, silent)
}

fn waits(kind: Kind) -> Vec<&'static str> {
    let mut waits = vec![
        "read x <&3; echo never",
        "while read x; do :; done <&3; echo never",
        "g() { read x <&4; echo never; }; g; echo never",
        "for i in 1 2; do read x; done <&3",
        "if read x <&4; then echo never; else echo never; fi",
    ];
    if kind == Kind::Bash {
        waits.extend([
            "read x <&${COPROC[0]}; echo never",
            "read x <&5; echo never",
            "read x <&6; echo never",
            "read -t 100 x <&6; echo never",
            "read -N 5 x <&3",
            "mapfile lines <&4; echo never",
            "read -u 3 x; echo never",
            "read -ru \"$n\" x; echo never",
            "read -r -u${COPROC[0]} x",
            "mapfile -u ${n} lines",
            "while read -u 3 x; do :; done; echo never",
            "while read -u 7 x; do :; done 7<>fifo",
            "select x in a b; do echo never; done <&3 2>/dev/null",
            "set -e; read x <&3; echo never",
            "set -e; g() { read -u 5 x; echo never; }; g",
            "set +e; read x <&6",
        ]);
    }
    waits
}

/// All that `read` waited for still comes, and nothing else does.
async fn assert_descriptors(bench: &Bench, kind: Kind) {
    bench.out("echo fed >&3; read x <&3; echo fed >&4; read x <&4; set +e").await;
    assert_eq!(
        bench.out("echo one >&3; read x <&3; echo $x; echo two >&4; read x <&4; echo $x").await,
        "one\ntwo\n"
    );
    if kind == Kind::Bash {
        assert_eq!(bench.out("echo hello >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x").await, "hello\n");
    }
}

/// Whether the process whose number stands in a file waits for something.
fn sleeps(file: &std::path::Path) -> bool {
    let stat = pid_in(file).and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    stat.is_some_and(|stat| stat.contains(") S "))
}

/// What the shell has open.
async fn open(bench: &Bench) -> String {
    bench.out("ls -l /proc/$$/fd >fds; sed -n 's/.* \\([0-9]* ->\\)/\\1/p' fds").await
}

async fn a_read_that_nobody_feeds_is_stopped_by_a_timeout(kind: Kind) {
    let (bench, _silent) = with_silence(kind).await;
    let before = open(&bench).await;
    for command in waits(kind) {
        let started = Instant::now();
        let result = bench.run_for(command, 200).await;
        assert_eq!((result.exit_code, result.timed_out), (124, true), "{command}: {result:?}");
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("", ""), "{command}");
        assert!(!result.shell_restarted, "{command}: {result:?}");
        assert!(started.elapsed() < Duration::from_secs(4), "{command}: {:?}", started.elapsed());
        assert_eq!(open(&bench).await, before, "{command}");
    }
    bench.run("set +e").await;
    assert_descriptors(&bench, kind).await;
    assert_state(&bench).await;
    bench.end().await;
}

async fn a_read_that_nobody_feeds_is_stopped_by_an_interrupt(kind: Kind) {
    let (bench, _silent) = with_silence(kind).await;
    for (n, command) in waits(kind).into_iter().enumerate() {
        let on = bench.path(&format!("on{n}"));
        let command = format!("echo $$ >'{}'; {command}", on.display());
        let (result, ()) = tokio::join!(bench.run(&command), async {
            eventually("the wait for input", || sleeps(&on)).await;
            assert!(bench.host.interrupt(&bench.id).unwrap().interrupted);
        });
        assert_eq!((result.exit_code, result.shell_restarted), (130, false), "{command}: {result:?}");
    }
    bench.run("set +e").await;
    assert_descriptors(&bench, kind).await;
    assert_state(&bench).await;
    bench.end().await;
}

async fn a_read_that_nobody_feeds_is_stopped_by_a_cancel(kind: Kind) {
    let (bench, _silent) = with_silence(kind).await;
    for (n, command) in waits(kind).into_iter().enumerate() {
        let on = bench.path(&format!("on{n}"));
        let command = format!("echo $$ >'{}'; {command}", on.display());
        let request = ExecRequest { command: command.clone(), ..ExecRequest::default() };
        tokio::select! {
            result = bench.try_run(request) => panic!("{command}: {result:?}"),
            () = eventually("the wait for input", || sleeps(&on)) => {}
        }
        // The next command waits for the end of the one that was given up.
        let next = bench.run("echo $plain; set +e").await;
        assert_eq!((next.stdout.as_str(), next.shell_restarted), ("kept\n", false), "{command}: {next:?}");
    }
    assert_descriptors(&bench, kind).await;
    assert_state(&bench).await;
    bench.end().await;
}

async fn a_stop_leaves_options_and_descriptors_as_they_were(kind: Kind) {
    for (set, ask) in [
        ("shopt -s extdebug", "shopt -q extdebug && echo on"),
        ("set -E", "case $- in *E*) case $- in *T*);; *) echo on;; esac;; esac"),
        ("set -T", "case $- in *T*) case $- in *E*);; *) echo on;; esac;; esac"),
        (":", "shopt -q extdebug; case $- in *[ET]*);; *) echo on;; esac"),
    ] {
        let bench = with_state(kind).await;
        bench.out(&format!("mkfifo fifo; exec 3<>fifo; {set}")).await;
        for command in ["while :; do :; done", "sleep 50", "read x <&3"] {
            let result = bench.run_for(command, 200).await;
            assert!(result.timed_out && !result.shell_restarted, "{set}: {command}: {result:?}");
            assert_eq!(bench.run(ask).await.stdout, "on\n", "{set}: {command}");
        }
        assert_state(&bench).await;
        bench.end().await;
    }
}
