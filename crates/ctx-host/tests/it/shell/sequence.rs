//! Several commands in one shell do what they do as one script in one plain bash: state, functions, traps, options,
//! background jobs and what those print between two commands.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ctx_host::{CreateRequest, ExecRequest, Output, OutputRequest};

use super::like_bash::{ASK, Left, normal, split_report, unbase64};
use super::support::{Bench, Kind, for_random};

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    stdout: String,
    stderr: String,
    /// The exit code of what ended the shell, or the last status, the cwd and the exports that a living one tells.
    left: Result<Left, i32>,
}

/// A file that is there for as long as a background job has something to print.
const PENDING: &str = "pending";

/// Waits until the jobs have printed what they have to, or their shell has been gone for long enough.
fn wait_for_jobs(work: &Path, mut is_gone: impl FnMut() -> bool) {
    let mut deadline = Instant::now() + Duration::from_secs(30);
    let mut gone = false;
    while work.join(PENDING).exists() {
        if !gone && is_gone() {
            gone = true;
            deadline = Instant::now() + Duration::from_millis(500);
        }
        if Instant::now() > deadline {
            assert!(gone, "a background job did not end");
            std::fs::remove_file(work.join(PENDING)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Announces a job where a command starts one.
fn announce(command: &str, work: &Path) {
    if command.contains(PENDING) {
        std::fs::write(work.join(PENDING), "").unwrap();
    }
}

/// Each command counts its lines anew.
fn normal_lines(stderr: &str) -> String {
    let mut text = String::new();
    for line in normal(stderr).lines() {
        match line
            .split_once("bash: line ")
            .and_then(|(before, rest)| Some((before, rest.split_once(':')?.1)))
        {
            Some((before, after)) => text.push_str(&format!("{before}bash:{after}\n")),
            None => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

/// How deep a line of a trace says it is.
fn depth(line: &str) -> Option<usize> {
    let first = line.chars().next().filter(|first| "+>".contains(*first))?;
    let rest = line.trim_start_matches(first);
    rest.starts_with(' ').then_some(line.len() - rest.len())
}

/// Without any depth, which one command has from `eval`, the other from a sourced script: `like_bash` compares it.
fn flat(stderr: &str) -> String {
    stderr.lines().map(|line| format!("{}\n", &line[depth(line).unwrap_or(1) - 1..])).collect()
}

/// One bash whose script comes to it piece by piece, as the commands of a shell do.
fn plain(commands: &[&str], dir: &Path, work: &Path) -> Seen {
    let script = dir.join("script");
    let made = Command::new("mkfifo").arg(&script).status().unwrap();
    assert!(made.success());
    let (out, err) = (dir.join("out"), dir.join("err"));
    let file = |path: &PathBuf| Stdio::from(std::fs::File::create(path).unwrap());
    let mut bash = Command::new("bash")
        .arg("--norc")
        .arg(&script)
        .env("CTX_ASK", dir.join("ask"))
        .env("OLDPWD", work)
        .current_dir(work)
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&err))
        .process_group(0)
        .spawn()
        .unwrap();
    let mut lines = std::fs::OpenOptions::new().write(true).open(&script).unwrap();
    for command in commands.iter().copied().chain([ASK.trim_start()]) {
        wait_for_jobs(work, || bash.try_wait().unwrap().is_some());
        announce(command, work);
        // A shell that has ended reads no more.
        if lines.write_all(format!("{command}\n").as_bytes()).is_err() {
            std::fs::remove_file(work.join(PENDING)).ok();
        }
    }
    drop(lines);
    let status = bash.wait().unwrap();
    // Jobs that wait for something would wait for ever.
    if let Some(group) = i32::try_from(bash.id()).ok().and_then(rustix::process::Pid::from_raw) {
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap();
    let stderr = std::fs::read_to_string(&err).unwrap().replace(&script.display().to_string(), "bash");
    let left = std::fs::read(dir.join("ask")).map(|bytes| split_report(&bytes)).map_err(|_| code);
    let stdout = String::from_utf8_lossy(&std::fs::read(&out).unwrap()).into_owned();
    Seen { stdout, stderr: normal_lines(&stderr), left }
}

async fn framed(bench: &Bench, commands: &[&str], work: &Path) -> Seen {
    let ask = bench.path("ask");
    let (mut stdout, mut stderr) = (String::new(), String::new());
    for (at, command) in commands.iter().copied().chain([ASK.trim_start()]).enumerate() {
        wait_for_jobs(work, || false);
        announce(command, work);
        let request = ExecRequest { command: command.to_owned(), ..ExecRequest::default() };
        let result = bench.try_run(request).await.unwrap();
        stdout.push_str(&result.late_output);
        stdout.push_str(&whole(bench, at + 1, Output::Stdout));
        stderr.push_str(&whole(bench, at + 1, Output::Stderr));
        if result.shell_restarted {
            return Seen { stdout, stderr: normal_lines(&stderr), left: Err(result.exit_code) };
        }
    }
    let left = split_report(&std::fs::read(&ask).unwrap());
    Seen { stdout, stderr: normal_lines(&stderr), left: Ok(left) }
}

fn whole(bench: &Bench, call: usize, stream: Output) -> String {
    let call = u64::try_from(call).unwrap();
    let request = OutputRequest {
        call,
        stream,
        offset: 0,
        limit: Some(256 << 10),
        grep: None,
        ..OutputRequest::default()
    };
    let page = bench.host.output(&bench.id, &request).unwrap();
    page.base64.map_or(page.text, |text| String::from_utf8_lossy(&unbase64(&text)).into_owned())
}

async fn check(commands: &[&str]) -> Seen {
    let bench = Bench::new(Kind::Bash).await;
    let work = bench.path("work");
    std::fs::create_dir(&work).unwrap();
    let mut want = plain(commands, bench.dir.path(), &work);
    std::fs::remove_dir_all(&work).unwrap();
    let _ = std::fs::remove_file(bench.path("ask"));
    std::fs::create_dir(&work).unwrap();
    let request = CreateRequest {
        cwd: Some("work".to_owned()),
        env: [("CTX_ASK", bench.path("ask")), ("OLDPWD", work.clone())]
            .map(|(name, path)| (name.to_owned(), path.display().to_string()))
            .to_vec(),
        ..CreateRequest::default()
    };
    let inside = Bench { id: bench.host.create(request).await.unwrap(), ..bench };
    let mut got = framed(&inside, commands, &work).await;
    inside.end().await;
    (got.stderr, want.stderr) = (flat(&got.stderr), flat(&want.stderr));
    assert_eq!(got, want, "{commands:#?}");
    got
}

/// Commands that leave something to the ones after them, or show what was left. What runs beside another is not
/// traced: nobody knows which comes first.
const COMMANDS: &[&str] = &[
    "x=1; y='two words'; arr=(a 'b c'); declare -A map=([k]=v)",
    "echo \"$x|$y|${arr[1]}|${map[k]}\"",
    "export A=$x B=\"$y\"; unset x",
    "f() { echo \"f $# $x\"; return 4; }",
    "f one two",
    "f; echo after f $?",
    "unset -f f",
    "(exit 7)",
    "echo status $?",
    "false",
    "true",
    "nosuchcommand-x",
    "set -x",
    "set +x",
    "set -u; echo ${x-unset}",
    "set +u",
    "set -f; echo *",
    "set +f",
    "set -o pipefail; shopt -o pipefail",
    "set -C; echo a >clobber; echo b >clobber",
    "set +C",
    "set -e; true",
    "set +e",
    "trap 'echo \"err $?\"' ERR",
    "trap - ERR",
    "trap 'echo \"dbg $BASH_COMMAND\"' DEBUG",
    "trap - DEBUG",
    "trap 'echo usr1' USR1",
    "kill -USR1 $$",
    "trap 'echo bye' EXIT",
    "trap -p USR1 EXIT",
    "shopt -s expand_aliases extglob; alias ll='echo aliased'",
    "ll",
    "if [[ abc == @(abc|d) ]]; then echo matched; fi",
    "set -- one 'two three'; shift; echo $#",
    "echo \"$# <$1>\"",
    "mkdir -p d/e; cd d/e",
    "if [ \"${PWD##*/}\" = e ]; then cd ..; fi; echo ${PWD##*/}",
    "cd - >/dev/null",
    "exec 3>>three; echo line >&3",
    "echo more >&3",
    "exec 3>&-; cat three",
    "exec 12>twelve; echo in twelve >&12; cat twelve",
    "exec 12>&-",
    "umask 027; umask",
    "IFS=:; set -- a:b; echo $*",
    "IFS=$' \\t\\n'",
    "read line; echo \"[$line]\" $?",
    "cat <<EOF\nheredoc $x $?\nEOF",
    "while read n; do echo n $n; done <<< $'1\\n2'",
    "{ { set +x; } 2>/dev/null; while [ ! -e go ]; do sleep 0.01; done; echo from the job \"${A-}\"; } & job=$!",
    "touch go; wait ${job-}; echo waited $?; rm -f go",
    "{ { set +x; } 2>/dev/null; sleep 0.05; echo late \"${A-}\"; rm -f \"${CTX_ASK%ask}work/pending\"; } &",
    // Killed before it is up, a job of bash may still run the shell's own traps.
    "{ { set +x; } 2>/dev/null; touch up; exec sleep 300; } & (until [ -e up ]; do sleep 0.01; done) 2>/dev/null; \
     rm -f up; kill $!; wait $! 2>/dev/null; echo $?",
    "readonly R=5",
    "R=6; echo after R",
    "printf() { echo hijack; }; echo() { builtin echo \"<$*>\"; }",
    "unset -f printf echo",
    "set -x; echo traced; (echo nested); x=$(echo sub)",
    "PS4='> '",
    "arr+=(more); echo ${#arr[@]} \"${arr[@]}\"; unset 'arr[0]'",
    "((n++)); echo $n $((n * 2))",
    "cat <({ set +x; } 2>/dev/null; trap - DEBUG ERR; echo ${n-}) <<<ignored",
    "outer() { inner() { echo \"${FUNCNAME[0]} $1\"; }; inner $1; }; outer 1",
    "inner 2",
    "trap 'echo \"err [$BASH_COMMAND]\"' ERR; false",
    "(trap 'echo left $?' EXIT; exit 6)",
    "set -T; set -E; f() { false; true; }; f; set +T; set +E",
    "echo ${OLDPWD##*/} $SHLVL $BASH_SUBSHELL",
    "trap 'echo \"exit [$BASH_COMMAND]\"' EXIT",
    "exit 3",
    "set -e; false; echo never",
];

/// What an EXIT trap finds in `$BASH_COMMAND` is the frame's where `set -e` may be on, and so does a DEBUG trap that runs
/// for it.
const HAS_EXIT: &str = "trap 'echo bye' EXIT";
const SHOWS_EXIT: &str = "trap 'echo \"exit [$BASH_COMMAND]\"' EXIT";

#[test]
fn commands_in_one_shell_do_what_they_do_in_one_bash() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let picks = proptest::collection::vec(0..COMMANDS.len(), 3..16);
    for_random(48, &picks, |picks| {
        let mut commands: Vec<&str> = picks.into_iter().map(|at| COMMANDS[at]).collect();
        if commands.iter().any(|command| command.contains("set -e")) {
            let has_debug_trap = commands.iter().any(|command| command.ends_with(" DEBUG"));
            commands.retain(|command| *command != SHOWS_EXIT && !(has_debug_trap && *command == HAS_EXIT));
        }
        runtime.block_on(check(&commands));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_commands_in_a_row_do_what_they_do_in_bash() {
    let seen = check(&COMMANDS[..COMMANDS.len() - 2]).await;
    assert!(seen.left.is_ok(), "it came to the last of them: {seen:?}");
}
