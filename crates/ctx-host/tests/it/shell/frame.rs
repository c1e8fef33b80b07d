//! What scripts do to the shell they run in, and what the frame around them must bear: on bash and on dash.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_host::{CreateRequest, ExecRequest, NoLog, ShellHost};

use super::support::{
    Bench, Kind, alive, assert_state, assert_stopped, bash_rows, config, eventually, rows, with_state,
};

rows![
    a_stop_reaches_a_loop_that_reads_from_a_pipe,
    a_stop_spares_what_an_earlier_job_starts,
    a_stop_keeps_set_e,
    a_stop_keeps_a_shell_with_job_control,
    set_e_changes_nothing_else,
    a_shell_is_what_it_says_and_not_what_it_is_called,
    a_root_may_have_any_name,
    a_stop_shows_nothing_of_the_frame,
    a_script_may_use_and_close_any_descriptor,
    the_status_of_a_command_is_there_for_the_next,
    a_shell_that_cannot_go_on_is_replaced_at_once,
    more_exports_than_a_program_can_take_come_back,
    the_cwd_is_where_the_shell_is,
    all_may_be_exported_and_nothing_of_the_frame_is,
    a_removed_pipe_is_made_anew,
    options_in_the_environment_do_not_reach_the_frame,
];

bash_rows![
    a_restart_brings_back_what_the_shell_does_not_list,
    a_function_named_command_keeps_nothing_from_running,
    a_trap_on_return_is_part_of_a_command_under_errexit,
    a_stop_runs_no_debug_trap_of_the_script,
    printf_may_be_switched_off,
];

async fn a_stop_reaches_a_loop_that_reads_from_a_pipe(kind: Kind) {
    let bench = with_state(kind).await;
    let mut commands = vec![
        "while :; do :; done <<EOF\nx\nEOF",
        "while read h; do sleep 10; done <<EOF\n1\n2\n3\n4\n5\n6\nEOF",
        "seq 9 | while read h; do sleep 10; done; echo never",
    ];
    if kind == Kind::Bash {
        commands.extend(["while :; do sleep 1; done <<< abc", "while :; do :; done < <(sleep 60)"]);
    }
    for command in commands {
        assert_stopped(&bench, command).await;
    }
    let (result, ()) = tokio::join!(bench.run("touch on; while :; do :; done <<EOF\nx\nEOF"), async {
        eventually("the command's start", || bench.path("deep/on").exists()).await;
        assert!(bench.host.interrupt(&bench.id).unwrap().interrupted);
    });
    assert_eq!((result.exit_code, result.shell_restarted), (130, false), "{result:?}");
    assert_state(&bench).await;
    bench.end().await;
}

async fn a_stop_spares_what_an_earlier_job_starts(kind: Kind) {
    let bench = with_state(kind).await;
    // Its children, and one that it leaves to itself.
    let job = "while [ ! -e done ]; do sleep 0.1 || echo \"worker died of $?\"; done >log 2>&1 & echo $! >job.pid
               sh -c 'while [ ! -e done ]; do (sleep 0.3; touch orphan) & wait; done; echo whole' >other 2>&1 &";
    bench.run(job).await;
    for _ in 0..3 {
        let result = bench.run_for("sleep 60 & sleep 60", 300).await;
        assert!(result.timed_out && !result.shell_restarted, "{result:?}");
    }
    let (result, ()) = tokio::join!(bench.run("touch on; sleep 60"), async {
        eventually("the command's start", || bench.path("deep/on").exists()).await;
        bench.host.interrupt(&bench.id).unwrap();
    });
    assert_eq!(result.exit_code, 130);
    std::fs::remove_file(bench.path("deep/orphan")).ok();
    eventually("the job's next child", || bench.path("deep/orphan").exists()).await;
    bench.out("touch done; wait").await;
    assert_eq!(bench.out("cat log other").await, "whole\n");
    assert_state(&bench).await;
    bench.end().await;
}

async fn a_stop_keeps_set_e(kind: Kind) {
    let bench = with_state(kind).await;
    let mut commands =
        vec!["set -e; while :; do :; done", "while :; do :; done", "until false; do x=1; done"];
    // A child's end is judged by the shell before it knows of the stop.
    commands.extend([
        "sleep 50; echo never",
        "set -e; sleep 50",
        "set -eu; sleep 50 | cat; echo never",
        "g() { sleep 50; echo never; }; g; echo never",
        "g() { h; echo never; }; h() { ( sleep 50 ); echo never; }; g",
        "(sleep 50); echo never",
        "while :; do sleep 1; done",
        "for i in 1 2 3; do sleep 50 >/dev/null || exit; done <<EOF\nx\nEOF",
        "{ sleep 50; echo never; } 2>/dev/null",
        "x=$(sleep 50); echo never",
        "if ! sleep 50; then echo never; fi",
        "python3 -c 'import time; time.sleep(50)'",
        "sh -c 'trap \"\" INT TERM; while :; do sleep 1; done'",
        "eval 'sleep 50; echo never'",
        "sleep 50 & wait",
        "seq 9 | while read n; do sleep 50; done",
    ]);
    if kind == Kind::Bash {
        commands.extend(["set -euo pipefail; sleep 50 | cat; echo never", "set -E; g() { sleep 50; }; g"]);
    }
    for command in commands {
        assert_stopped(&bench, command).await;
        assert_eq!(bench.out("case $- in (*e*) echo on;; esac").await, "on\n", "after {command}");
    }
    let (result, ()) = tokio::join!(bench.run("touch on; sleep 50; echo never"), async {
        eventually("the command's start", || bench.path("deep/on").exists()).await;
        assert!(bench.host.interrupt(&bench.id).unwrap().interrupted);
    });
    assert_eq!((result.exit_code, result.shell_restarted, result.stdout.as_str()), (130, false, ""));
    assert_state(&bench).await;
    let result = bench.run("false; echo never").await;
    assert_eq!((result.exit_code, result.shell_restarted, result.stdout.as_str()), (1, true, ""));
    bench.end().await;
}

async fn a_stop_runs_no_debug_trap_of_the_script(kind: Kind) {
    let bench = with_state(kind).await;
    bench.run("trap 'echo DBG' DEBUG").await;
    for (command, shown) in [
        ("sleep 50; echo never", "DBG\n"),
        ("while :; do sleep 50; done", "DBG\nDBG\n"),
        ("set -e; sleep 50; echo never", "DBG\nDBG\n"),
        ("g() { sleep 50; echo never; }; g", "DBG\n"),
    ] {
        let result = bench.run_for(command, 300).await;
        assert_eq!((result.exit_code, result.shell_restarted), (124, false), "{command}: {result:?}");
        assert_eq!(result.stdout, shown, "{command}");
    }
    assert_eq!(bench.out("set +e; trap - DEBUG; echo $plain").await, "DBG\nDBG\nkept\n", "the trap holds");
    assert_state(&bench).await;
    bench.end().await;
}

async fn a_stop_keeps_a_shell_with_job_control(kind: Kind) {
    let bench = with_state(kind).await;
    let commands = ["set -m; sleep 50", "sleep 50; echo never", "(sleep 50; echo never)", "sleep 50 | cat"];
    for command in commands.into_iter().chain(["g() { sleep 50; }; g", "set -e; sleep 50", "sleep 50"]) {
        assert_stopped(&bench, command).await;
    }
    bench.end().await;
}

/// What a script under `set -e` sees is what any other sees.
async fn set_e_changes_nothing_else(kind: Kind) {
    let bench = with_state(kind).await;
    bench.run("set -e -- one two; declare -i count=5 2>/dev/null || count=5; exec 9>nine").await;
    assert_eq!(bench.out("echo $count $*; echo x >&9; cat nine; cat").await, "5 one two\nx\n");
    let script = bench.run("echo one\nif\nfi").await;
    assert!((script.exit_code, script.stdout.as_str()) != (0, "one\n"), "{script:?}");
    let stdin = ExecRequest {
        command: format!("cat; : {}", "x".repeat(5000)),
        stdin: Some(b"given".to_vec()),
        ..ExecRequest::default()
    };
    assert_eq!(bench.try_run(stdin).await.unwrap().stdout, "given");
    let result = bench.run("set -e; exec 9>&-; echo gone; exit 7").await;
    assert_eq!((result.exit_code, result.shell_restarted, result.stdout.as_str()), (7, true, "gone\n"));
    bench.end().await;
}

async fn a_stop_shows_nothing_of_the_frame(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.run("set -x").await;
    let result = bench.run_for("while :; do sleep 60; done", 300).await;
    assert!(result.timed_out && !result.shell_restarted, "{result:?}");
    // A program that a busy machine let wait for its INT got TERM too, which is told by the shell itself.
    let traced = result.stderr.strip_suffix("Terminated\n").unwrap_or(&result.stderr);
    assert_eq!(traced, "+ :\n+ sleep 60\n");
    let result = bench.run("echo traced").await;
    assert_eq!(result.stderr, "+ echo traced\n", "tracing goes on");
    bench.run("set +x").await;
    bench.run("set -v").await;
    let result = bench.run_for("while :; do sleep 60; done", 300).await;
    assert!(!result.shell_restarted && !result.stderr.contains("ctx"), "{result:?}");
    bench.run("set +v").await;
    if kind == Kind::Bash {
        bench.run("exec 9>trace; BASH_XTRACEFD=9; set -x").await;
        bench.run("echo one; false").await;
        bench.run_for("while :; do sleep 60; done", 300).await;
        bench.run("echo two").await;
        bench.run("set +x; unset BASH_XTRACEFD").await;
        let traced = std::fs::read_to_string(bench.path("trace")).unwrap();
        let lines: Vec<&str> = traced.lines().collect();
        assert_eq!(lines, ["+ echo one", "+ false", "+ :", "+ sleep 60", "+ echo two", "+ set +x"]);
        assert_eq!(bench.out("echo over").await, "over\n");
    }
    bench.end().await;
}

async fn a_script_may_use_and_close_any_descriptor(kind: Kind) {
    let bench = with_state(kind).await;
    let mut commands = vec![
        ("exec 6>&1; echo hi >&6; exec 6>&-", "hi\n", ""),
        ("exec 7>&2 2>err.txt; ls /nope; exec 2>&7 7>&-; cat err.txt | wc -l", "1\n", ""),
        ("echo e2 >&2; echo o2", "o2\n", "e2\n"),
        ("exec 6>log.txt 7</etc/passwd 8>&- 9>&- 3>&- 4>&- 5>&-; exec 1>&6 2>&6", "", ""),
        ("echo kept >&6; read line <&7; echo ${line%%:*}; cat log.txt", "root\nkept\n", ""),
        ("exec 6>&- 7<&-; echo closed", "closed\n", ""),
    ];
    if kind == Kind::Bash {
        commands.extend([
            (
                "exec 10>ten 12>&1 241>x 242>&2; echo ten >&10; echo twelve >&12; exec 10>&-; cat ten",
                "twelve\nten\n",
                "",
            ),
            ("exec 0<&- 1>&- 2>&- 11>&- 12>&- 241>&- 242>&- 255>&-", "", ""),
            (
                "for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done; echo all",
                "all\n",
                "",
            ),
        ]);
    }
    for (command, stdout, stderr) in commands {
        let started = Instant::now();
        let result = bench.run(command).await;
        assert_eq!(
            (result.stdout.as_str(), result.stderr.as_str()),
            (stdout, stderr),
            "{command}: {result:?}"
        );
        assert_eq!((result.exit_code, result.shell_restarted), (0, false), "{command}: {result:?}");
        assert!(started.elapsed() < Duration::from_secs(10), "{command}");
        assert_state(&bench).await;
        assert_eq!(bench.out("cat").await, "", "after {command}");
    }
    bench.end().await;
}

async fn the_status_of_a_command_is_there_for_the_next(kind: Kind) {
    let bench = Bench::new(kind).await;
    for code in [0, 1, 2, 3, 127, 255] {
        bench.run(&format!("(exit {code})")).await;
        assert_eq!(bench.out("echo $?").await, format!("{code}\n"));
        assert_eq!(bench.out("echo $?").await, "0\n");
        if kind == Kind::Bash {
            bench.run(&format!("(exit {code})")).await;
            assert_eq!(bench.out("echo ${PIPESTATUS[@]}").await, format!("{code}\n"));
        }
    }
    bench.run("echo 'open").await;
    assert_eq!(bench.out("echo $?").await, "2\n");
    bench.run_for("sleep 60", 100).await;
    assert_eq!(bench.out("echo $?").await, "124\n");
    // Neither a trap nor a trace takes the frame's work for the script's.
    if kind == Kind::Bash {
        bench.run("trap 'echo ERR' ERR; (exit 5)").await;
        assert_eq!(bench.out("echo $?; trap - ERR").await, "5\n");
    }
    bench.run("set -x; (exit 6)").await;
    let result = bench.run("echo $?").await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("6\n", "+ echo 6\n"));
    bench.run("set +x; exit 7").await;
    assert_eq!(bench.out("echo $?").await, "0\n", "a new shell begins anew");
    bench.end().await;
}

async fn a_shell_that_cannot_go_on_is_replaced_at_once(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.out("mkdir sub; cd sub; export A=kept").await;
    let mut commands = vec!["set -n", "ulimit -n 3", "command() { :; }"];
    match kind {
        Kind::Bash | Kind::Ssh => {
            commands.pop();
            commands.extend(["builtin() { :; }", "set -r", "enable -n eval read"]);
        }
        Kind::Dash | Kind::Container => commands.push("command() { echo no; }; echo said"),
    }
    for command in commands {
        let started = Instant::now();
        let first = bench.run(command).await;
        let second = bench.run("pwd; echo $A").await;
        let took = started.elapsed();
        assert!(first.shell_restarted || second.shell_restarted, "{command}: {first:?} {second:?}");
        assert!(!first.timed_out && took < Duration::from_secs(10), "{command}: {took:?} {first:?}");
        let third = if first.shell_restarted { second } else { bench.run("pwd; echo $A").await };
        let want = format!("{}\nkept\n", bench.path("sub").display());
        assert_eq!((third.stdout, third.stderr), (want, String::new()), "after {command}");
        assert!(!third.shell_restarted);
    }
    bench.end().await;
}

/// A redirection of a function holds for its call only.
async fn a_function_named_command_keeps_nothing_from_running(kind: Kind) {
    // dash has no other way to its own commands.
    let bench = Bench::new(kind).await;
    bench.out("A=kept; command() { builtin command \"$@\"; }").await;
    for options in ["set +e", "set -e", "set +e; command() { :; }"] {
        let first = bench.run(&format!("{options}; echo set")).await;
        assert_eq!((first.stdout.as_str(), first.timed_out), ("set\n", false), "{options}: {first:?}");
        let second = bench.run("echo $A; cat; echo err >&2").await;
        let seen = (second.stdout.as_str(), second.stderr.as_str(), second.shell_restarted);
        assert_eq!(seen, ("kept\n", "err\n", false), "{options}: {second:?}");
    }
    // Nor is it called for the frame.
    bench.run("command() { echo called >>calls; }; set -x; false").await;
    assert_eq!(bench.run("echo $?; (exit 7)").await.stderr, "+ echo 1\n+ exit 7\n");
    assert_eq!(bench.run("echo $?").await.stdout, "7\n");
    assert!(!bench.path("calls").exists());
    bench.end().await;
}

async fn a_trap_on_return_is_part_of_a_command_under_errexit(kind: Kind) {
    // dash has no such trap.
    let bench = Bench::new(kind).await;
    bench.run("trap 'echo bye' RETURN; set -e").await;
    assert_eq!(bench.out("echo x").await, "x\nbye\n");
    bench.run("set +e").await;
    assert_eq!(bench.out("echo x").await, "x\n");
    bench.end().await;
}

async fn more_exports_than_a_program_can_take_come_back(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.out("export SMALL=\"it's here\"; text=x; n=0; while [ ${#text} -lt 100000 ]; do text=$text$text; done").await;
    bench.out("while [ $n -lt 20 ]; do export V$n=\"$text'$n\"; n=$((n+1)); done").await;
    let result = bench.run("exit 3").await;
    assert_eq!((result.exit_code, result.shell_restarted), (3, true), "{result:?}");
    let ask = "case $V19 in (xx*x\\'19) echo ${#V0} \"$SMALL\" ${text-unset};; esac; unset V0; n=1; \
               while [ $n -lt 20 ]; do unset V$n; n=$((n+1)); done; /bin/echo run";
    assert_eq!(bench.out(ask).await, "131074 it's here unset\nrun\n");
    bench.end().await;
}

async fn the_cwd_is_where_the_shell_is(kind: Kind) {
    let bench = Bench::new(kind).await;
    let at = |name: &str| bench.path(name).display().to_string();
    bench.out("mkdir -p real/deep; ln -s real link").await;
    assert_eq!(bench.run("cd link/deep").await.cwd, at("link/deep"), "by the name it was reached by");
    assert_eq!(bench.run("PWD=/etc").await.cwd, at("real/deep"));
    assert_eq!(bench.run("exit 1").await.cwd, at("real/deep"));
    assert_eq!(bench.out("pwd -P").await.trim_end(), at("real/deep"));
    assert_eq!(bench.run("cd ../..; unset PWD").await.cwd, at("").trim_end_matches('/'));
    bench.run("exit 1").await;
    // A name that is no text.
    let odd = bench.dir.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&odd).unwrap();
    bench.out("cd odd*").await;
    assert!(bench.run("exit 1").await.shell_restarted);
    bench.out("echo here >file").await;
    assert_eq!(std::fs::read_to_string(odd.join("file")).unwrap(), "here\n");
    bench.end().await;
}

async fn all_may_be_exported_and_nothing_of_the_frame_is(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.out("set -a; MINE=1").await;
    assert_eq!(bench.out("env | grep -c __ctx; echo $MINE").await, "0\n1\n");
    bench.run("exit 1").await;
    assert_eq!(bench.out("env | grep -c __ctx; env | grep MINE").await, "0\nMINE=1\n");
    if kind == Kind::Bash {
        bench.out("set -o history; HISTFILE=").await;
        bench.out("echo second").await;
        let history = bench.out("history").await;
        assert!(!history.contains("ctx") && !history.contains("builtin"), "{history}");
        assert_eq!(bench.out("shopt -qo history && echo on").await, "on\n");
    }
    bench.end().await;
}

async fn a_removed_pipe_is_made_anew(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.out("export A=kept").await;
    let started = Instant::now();
    let first = bench.run("rm -rf spool/scratch-*/").await;
    let second = bench.run("echo $A").await;
    assert!(first.shell_restarted || second.shell_restarted, "{first:?} {second:?}");
    assert_eq!(bench.out("echo $A; cat").await, "kept\n");
    assert!(started.elapsed() < Duration::from_secs(10));
    bench.end().await;
}

async fn options_in_the_environment_do_not_reach_the_frame(kind: Kind) {
    let bench = Bench::new(kind).await;
    for options in ["noexec", "xtrace:verbose"] {
        let env = vec![("SHELLOPTS".to_owned(), options.to_owned())];
        let started = Instant::now();
        let id = bench.host.create(CreateRequest { env, ..CreateRequest::default() }).await.unwrap();
        let request = ExecRequest { command: "echo fine".to_owned(), ..ExecRequest::default() };
        let result = bench.host.exec(&id, request, None).await.unwrap();
        assert_eq!(
            (result.stdout.as_str(), result.stderr.as_str(), result.late_output.as_str()),
            ("fine\n", "", "")
        );
        assert!(started.elapsed() < Duration::from_secs(10), "{options}");
    }
    bench.end().await;
}

/// The pid of this host's guard.
fn guard_of(bench: &Bench) -> Option<i32> {
    let dir = bench.dir.path().display().to_string();
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let line = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let is_ours = line.contains("ctx-guard") && line.contains(&dir);
        entry.file_name().to_str()?.parse().ok().filter(|pid| is_ours && alive(*pid))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_was_killed_is_replaced() {
    let bench = Bench::new(Kind::Bash).await;
    eventually("a guard", || guard_of(&bench).is_some()).await;
    let first = guard_of(&bench).unwrap();
    bench.out(&format!("kill -9 {first}")).await;
    eventually("another guard", || guard_of(&bench).is_some_and(|pid| pid != first)).await;
    assert_eq!(bench.out("echo fine").await, "fine\n");
    let second = guard_of(&bench).unwrap();
    bench.end().await;
    assert!(!alive(second), "it ends with its host");
}

async fn printf_may_be_switched_off(kind: Kind) {
    let bench = with_state(kind).await;
    let result = bench.run("enable -n printf; echo off").await;
    assert_eq!((result.stdout.as_str(), result.exit_code, result.shell_restarted), ("off\n", 0, false));
    assert_state(&bench).await;
    bench.end().await;
}

/// bash keeps what has no name for a variable from its own list.
async fn a_restart_brings_back_what_the_shell_does_not_list(kind: Kind) {
    // dash leaves out such names from the beginning.
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(kind, dir.path());
    config.env.push(("spring.datasource.url".to_owned(), b"jdbc:x".to_vec()));
    config.env.push(("BASH_FUNC_module%%".to_owned(), b"() {  echo loaded\n}".to_vec()));
    let host = ShellHost::new(config, Arc::new(NoLog)).unwrap();
    let id = host.create(CreateRequest::default()).await.unwrap();
    let run = |command: &str| {
        let request = ExecRequest { command: command.to_owned(), ..ExecRequest::default() };
        let (host, id) = (host.clone(), id.clone());
        async move { host.exec(&id, request, None).await.unwrap() }
    };
    let ask = "env | grep ^spring; module";
    let before = run(ask).await.stdout;
    assert!(before.starts_with("spring.datasource.url=jdbc:x\n"), "{before}");
    assert!(run("exit 1").await.shell_restarted);
    assert_eq!(run(ask).await.stdout, before);
    host.shutdown().await;
}

/// On some systems sh is bash.
async fn a_shell_is_what_it_says_and_not_what_it_is_called(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sh");
    std::os::unix::fs::symlink(kind.program(), &program).unwrap();
    let mut config = config(kind, dir.path());
    config.program = Some(program);
    let host = ShellHost::new(config, Arc::new(NoLog)).unwrap();
    let id = host.create(CreateRequest::default()).await.unwrap();
    let run = |command: &str, millis: u64| {
        let timeout = Some(Duration::from_millis(millis));
        let request = ExecRequest { command: command.to_owned(), timeout, ..ExecRequest::default() };
        let (host, id) = (host.clone(), id.clone());
        async move { host.exec(&id, request, None).await.unwrap() }
    };
    run("kept=yes; trap 'echo D' DEBUG 2>/dev/null", 60_000).await;
    for command in ["while :; do sleep 60; done", "while :; do :; done"] {
        let result = run(command, 300).await;
        assert_eq!((result.exit_code, result.shell_restarted), (124, false), "{command}: {result:?}");
    }
    let result = run("echo $kept", 60_000).await;
    let traced = if kind == Kind::Bash { "D\nyes\n" } else { "yes\n" };
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), (traced, ""));
    let bad = run("if", 60_000).await;
    assert_eq!((bad.exit_code, bad.shell_restarted), (2, false), "{bad:?}");
    host.shutdown().await;
}

/// Neither its input nor a long command needs a directory whose name is text.
async fn a_root_may_have_any_name(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(kind, dir.path());
    config.spool_dir = dir.path().join(std::ffi::OsStr::from_bytes(b"not \xff text"));
    let host = ShellHost::new(config, Arc::new(NoLog)).unwrap();
    let id = host.create(CreateRequest::default()).await.unwrap();
    let command = format!("cat; echo {}", "x".repeat(5000));
    let request = ExecRequest { command, stdin: Some(b"given ".to_vec()), ..ExecRequest::default() };
    let result = host.exec(&id, request, None).await.unwrap();
    assert!(result.stdout.starts_with("given xxx") && !result.shell_restarted, "{result:?}");
    host.shutdown().await;
}
