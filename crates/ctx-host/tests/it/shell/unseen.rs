//! Nothing of the frame is seen in a result, and nothing of what a command did is lost by it: also where the command
//! leaves a shell that the frame cannot use.

use std::time::{Duration, Instant};

use ctx_host::ExecRequest;

use super::support::{Bench, Kind, assert_state, bash_rows, rows, with_state};

rows![
    a_shell_that_cannot_go_on_tells_its_command_s_code_and_nothing_of_itself,
    a_locale_that_is_not_there_is_nobody_s_output,
    what_a_shell_does_not_take_from_its_environment_comes_back,
    many_variables_slow_nothing_down,
    exports_are_known_however_many_variables_there_are,
];

bash_rows![
    functions_in_the_place_of_exec_are_noticed_at_once,
    posix_mode_keeps_its_traps,
    a_command_that_comes_as_the_shell_ends_is_run_in_the_next,
];

async fn a_shell_that_cannot_go_on_tells_its_command_s_code_and_nothing_of_itself(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.out("mkdir sub; cd sub; export A=kept").await;
    let mut commands: Vec<(String, &str)> = Vec::new();
    for files in 3..14 {
        commands.push((format!("t() {{ return 3; }}; ulimit -n {files}; t"), "ulimit"));
        commands.push((format!("t() {{ return 3; }}; ulimit -n {files}; echo x; t"), "ulimit"));
    }
    if kind == Kind::Bash {
        commands.push(("set -r; (exit 3)".to_owned(), "set -r"));
        commands.push(("set -r; echo x; (exit 3)".to_owned(), "set -r"));
    }
    for (command, why) in commands {
        for merge in [false, true] {
            let request = ExecRequest { command: command.clone(), merge, ..ExecRequest::default() };
            let result = bench.try_run(request).await.unwrap();
            assert_eq!(result.exit_code, 3, "{command}: {result:?}");
            let shown = [&result.stdout, &result.stderr, &result.late_output].map(String::as_str).concat();
            for unseen in ["/dev/", "spool", "__ctx", "duplicate", "\u{1e}", "builtin"] {
                assert!(!shown.contains(unseen), "{command}: {result:?}");
            }
            let want = if command.contains("echo x") { "x\n" } else { "" };
            assert_eq!(result.stdout, want, "{command}: {result:?}");
            let hint = result.hint.clone().unwrap_or_default();
            assert!(!result.shell_restarted || hint.contains(why), "{command}: {result:?}");
            // Where a shell could go on, its limit stays.
            bench.run("exit 0").await;
            let next = bench.run("pwd; echo $A").await;
            let want = format!("{}\nkept\n", bench.path("sub").display());
            assert_eq!(
                (next.stdout, next.stderr, next.exit_code),
                (want, String::new(), 0),
                "after {command}"
            );
        }
    }
    bench.end().await;
}

async fn functions_in_the_place_of_exec_are_noticed_at_once(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.out("export A=kept").await;
    for command in
        ["exec(){ :; }; command(){ :; }; (exit 4)", "set -e; exec() { :; }; command() { :; }; exit 4"]
    {
        let mut took = Duration::MAX;
        // Without the mend each takes more than two seconds; on a busy machine one of them may all the same.
        for _ in 0..5 {
            let started = Instant::now();
            let result = bench.run(command).await;
            assert_eq!((result.exit_code, result.shell_restarted), (4, true), "{result:?}");
            let seen = [&result.stdout, &result.stderr, &result.late_output].map(String::as_str);
            assert_eq!(seen, ["", "", ""], "{result:?}");
            if !command.starts_with("set") {
                assert!(result.hint.unwrap().contains("`exec`"), "{command}");
            }
            let next = bench.run("echo $A; echo err >&2").await;
            let seen =
                (next.stdout.as_str(), next.stderr.as_str(), next.late_output.as_str(), next.exit_code);
            assert_eq!(seen, ("kept\n", "err\n", "", 0), "{next:?}");
            took = took.min(started.elapsed());
            if took < Duration::from_secs(2) {
                break;
            }
        }
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    bench.end().await;
}

async fn a_locale_that_is_not_there_is_nobody_s_output(kind: Kind) {
    let bench = with_state(kind).await;
    // Only bash says something of it, and once: it is the command's own doing.
    bench.run("export LC_ALL=xx_YY.UTF-8 LANG=xx_YY.UTF-8").await;
    let long = format!("echo long; : {}", "x".repeat(6000));
    for command in ["echo short", &long, &long] {
        let result = bench.run(command).await;
        assert_eq!((result.stderr.as_str(), result.late_output.as_str()), ("", ""), "{result:?}");
    }
    assert_state(&bench).await;
    let ended = bench.run("exit 3").await;
    assert_eq!((ended.stderr.as_str(), ended.late_output.as_str()), ("", ""), "{ended:?}");
    let result = bench.run("echo $LC_ALL $LANG").await;
    let seen = (result.stdout.as_str(), result.stderr.as_str(), result.late_output.as_str());
    assert_eq!(seen, ("xx_YY.UTF-8 xx_YY.UTF-8\n", "", ""));
    bench.end().await;
}

async fn posix_mode_keeps_its_traps(kind: Kind) {
    let bench = with_state(kind).await;
    bench.out("set -o posix").await;
    bench.out("trap 'echo dbg' DEBUG").await;
    assert_eq!(bench.out(":\n:").await, "dbg\ndbg\n");
    bench.out("trap - DEBUG >/dev/null").await;
    bench.run("trap 'echo err' ERR").await;
    assert_eq!(bench.run("false; :").await.stdout, "err\n");
    assert_eq!(bench.run("trap - ERR; false; :").await.stdout, "");
    assert_state(&bench).await;
    bench.end().await;
}

async fn what_a_shell_does_not_take_from_its_environment_comes_back(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.out("export IFS=: PS4='at $LINENO ' PS1='one> ' PS2='two> '").await;
    bench.run("exit 3").await;
    assert_eq!(
        bench.out("echo \"$IFS|$PS4|$PS1|$PS2\"; x=a:b; echo $x").await,
        ":|at $LINENO |one> |two> \na b\n"
    );
    assert_eq!(bench.out("env | grep -c -e ^IFS=: -e '^PS[124]'").await, "4\n", "and are exported");
    bench.end().await;
}

/// `set -t` ends a shell behind the command that sets it, while the next may be on its way.
async fn a_command_that_comes_as_the_shell_ends_is_run_in_the_next(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.out("export A=kept").await;
    for round in 0..40 {
        let set = bench.run("set -t").await;
        assert_eq!(
            (set.stdout.as_str(), set.late_output.as_str(), set.exit_code),
            ("", "", 0),
            "{round}: {set:?}"
        );
        let result = bench.run("echo a $A; (exit 3)").await;
        assert_eq!((result.stdout.as_str(), result.exit_code), ("a kept\n", 3), "{round}: {result:?}");
        assert_eq!((result.stderr.as_str(), result.late_output.as_str()), ("", ""), "{round}: {result:?}");
    }
    // It ends when it is to read the next command.
    for round in 0..10 {
        bench.run("(sleep 0.01; kill -9 $$) >/dev/null 2>&1 & disown").await;
        tokio::time::sleep(Duration::from_millis(9) + Duration::from_micros(round * 300)).await;
        let result = bench.run("echo a $A").await;
        assert!(result.stdout == "a kept\n" || result.exit_code == 137, "{round}: {result:?}");
        bench.run("wait").await;
        bench.run(":").await;
    }
    bench.end().await;
}

async fn many_variables_slow_nothing_down(kind: Kind) {
    let bench = with_state(kind).await;
    let define = "n=0; while [ $n -lt 12000 ]; do eval v$n=1; n=$((n+1)); done";
    bench.run(define).await;
    // bash takes half a second for each `export -p` here.
    let (mut took, mut hidden) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let (asked, result) = (Instant::now(), bench.run(":").await);
        took.push(asked.elapsed());
        hidden.push(asked.elapsed().saturating_sub(Duration::from_millis(result.duration_ms)));
    }
    // A busy machine may hold up some of them.
    took.sort();
    hidden.sort();
    assert!(hidden[5] < Duration::from_millis(100), "{hidden:?} are not in duration_ms");
    assert!(took[5] < Duration::from_millis(250), "{took:?}");
    assert_eq!(bench.out("echo $v11999").await, "1\n");
    assert_state(&bench).await;
    bench.end().await;
}

async fn exports_are_known_however_many_variables_there_are(kind: Kind) {
    for many in [false, true] {
        let bench = Bench::new(kind).await;
        if many {
            bench.out("n=0; while [ $n -lt 3000 ]; do eval v$n=1; n=$((n+1)); done").await;
        }
        bench.out("export LINES2='one\n\ttwo \"three\" $four `five` \\six'\\''s ü'; export EMPTY= GONE=x CHANGED=old").await;
        bench.out("unset GONE; CHANGED=new; not=exported").await;
        if kind == Kind::Bash {
            bench
                .out(
                    "declare -ax LIST=(1 '2 )' $'3\\n'); declare -Ax MAP=([\"a b\"]=c); declare -ix NUMBER=7",
                )
                .await;
            bench.out("export ODD=$'\\001\\377x'; declare -rx FIXED=\"a'b\"").await;
        }
        bench.run("exit 1").await;
        let ask = "echo \"$LINES2|$EMPTY|${GONE-gone}|$CHANGED|${not-none}|${v5-none}|${__ctx_n-none}\"";
        let want = "one\n\ttwo \"three\" $four `five` \\six's ü||gone|new|none|none|none\n";
        assert_eq!(bench.out(ask).await, want, "many: {many}");
        if kind == Kind::Bash {
            let ask = "echo \"$NUMBER|$FIXED|${#LIST[@]}\"; printf %s \"$ODD\" | od -An -tx1";
            assert_eq!(bench.out(ask).await, "7|a'b|0\n 01 ff 78\n", "many: {many}");
        }
        bench.end().await;
    }
}
