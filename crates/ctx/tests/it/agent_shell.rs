//! Agents that run commands: in a cage, over runs, through pauses, cancels and the daemon's death.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{DaemonBuilder, TestDaemon, until};

use crate::support::{build, json_lines, wait_state};

const ANN: u32 = 54_431;

/// A daemon whose workspace is Ann's, and whose coder may run commands.
pub fn ready(builder: DaemonBuilder) -> TestDaemon {
    let place = builder.place();
    for dir in [place.path(""), place.workspace()] {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(place.workspace(), Some(ANN), Some(ANN)).unwrap();
    let daemon = builder.start();
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "allow shell.*\n").unwrap();
    daemon
}

fn script(commands: &[&str]) -> String {
    let call = |command: &&str| json!({"tool": {"name": "shell.exec", "input": {"command": command}}});
    json!({"script": commands.iter().map(call).collect::<Vec<_>>()}).to_string()
}

/// Runs commands, one call each; what the calls gave.
fn run(daemon: &TestDaemon, session: &str, commands: &[&str]) -> Vec<Value> {
    let before = results(daemon, session).len();
    daemon.ctx(&["send", "--model", "debug:script", "--session", session, &script(commands)]).ok();
    results(daemon, session).split_off(before)
}

fn start(daemon: &TestDaemon, session: &str, command: &str) {
    daemon
        .ctx(&["send", "--detach", "--model", "debug:script", "--session", session, &script(&[command])])
        .ok();
}

fn records(daemon: &TestDaemon, session: &str) -> Vec<Value> {
    let log = daemon.ctx(&["log", &format!("coder/{session}"), "--json"]);
    if log.stdout.is_empty() { Vec::new() } else { json_lines(&log.ok()) }
}

fn results(daemon: &TestDaemon, session: &str) -> Vec<Value> {
    records(daemon, session).into_iter().filter(|record| record["type"] == "tool_finished").collect()
}

fn output(result: &Value) -> &str {
    result["output"].as_str().unwrap()
}

fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("1000002.{}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn processes(mark: &str) -> usize {
    let found = Command::new("pgrep").args(["-f", &format!("^[^ ]*sleep {mark}")]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().count()
}

/// Children that a signal to a group or a session would not reach.
fn hard_to_kill(mark: &str) -> String {
    format!(
        "setsid sleep {mark} & ( ( setsid sleep {mark} & ) & ) ; ( trap '' TERM HUP INT; sleep {mark} ) & \
         sleep {mark} & kill -STOP $!; nohup sleep {mark} >/dev/null & while :; do sleep {mark}; done"
    )
}

#[test]
fn commands_run_in_the_project_s_cage_and_the_shell_lives_between_runs() {
    let daemon = ready(build());
    let made =
        run(&daemon, "work", &["pwd; id -u; touch made; export X=kept; cd /tmp", "echo err >&2; exit 3"]);
    assert!(output(&made[0]).starts_with("/work\n1000\n[exit code 0;"), "{}", output(&made[0]));
    assert!(output(&made[1]).contains("[stderr]\nerr\n[exit code 3;"), "{}", output(&made[1]));
    assert!(output(&made[1]).contains("shell_restarted"), "{}", output(&made[1]));
    assert_eq!(made[1]["summary"]["exit_code"], 3);
    let owner = std::fs::metadata(daemon.workspace().join("made")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), ANN);
    let later = run(&daemon, "work", &["echo $X; pwd; cat /etc/shadow; ls /root"]);
    assert!(output(&later[0]).starts_with("kept\n/tmp\n[stderr]\n"), "{}", output(&later[0]));
    let other = run(&daemon, "other", &["echo \"X=$X\""]);
    assert!(output(&other[0]).starts_with("X=\n"), "another session has another shell");
    let context = records(&daemon, "work").into_iter().find(|record| record["type"] == "context").unwrap();
    let cage = context["cage"].as_str().unwrap();
    assert!(cage.contains(&format!("uid={ANN} net=none")) && cage.contains(":/work:rw"), "{cage}");
    let input = json!({"script": [{"tool": {"name": "shell.output", "input": {"call": 3}}}]}).to_string();
    daemon.ctx(&["send", "--model", "debug:script", "--session", "work", &input]).ok();
    assert!(output(results(&daemon, "work").last().unwrap()).starts_with("kept\n/tmp\n"));
    let input =
        json!({"script": [{"tool": {"name": "shell.exec", "input": {"command": "true", "host": "far"}}}]});
    daemon.ctx(&["send", "--model", "debug:script", "--session", "work", &input.to_string()]).ok();
    assert!(output(results(&daemon, "work").last().unwrap()).contains("lists no host `far`"));
}

#[test]
fn a_cancel_leaves_no_process_and_the_shell_goes_on_from_where_it_was() {
    let daemon = ready(build().env("CTX_LIMITS_STOP_GRACE_MS", "1000"));
    run(&daemon, "work", &["export X=kept; cd /tmp"]);
    for is_paused in [false, true] {
        let mark = unique();
        start(&daemon, "work", &hard_to_kill(&mark));
        until("all to be there", || (processes(&mark) >= 5).then_some(()));
        if is_paused {
            daemon.ctx(&["pause", "coder/work"]).ok();
        }
        daemon.ctx(&["cancel", "coder/work"]).ok();
        assert_eq!(processes(&mark), 0, "paused: {is_paused}");
        wait_state(&daemon, "work", "idle");
        let next = run(&daemon, "work", &["echo $X; pwd"]);
        assert!(output(&next[0]).starts_with("kept\n/tmp\n["), "{}", output(&next[0]));
        assert!(output(&next[0]).contains("shell_restarted"), "{}", output(&next[0]));
    }
}

#[test]
fn an_ended_session_leaves_no_process() {
    let daemon = ready(build().env("CTX_LIMITS_STOP_GRACE_MS", "500"));
    let mark = unique();
    run(&daemon, "work", &[&format!("setsid sleep {mark} > /dev/null 2>&1 &")]);
    // It lives between runs; `setsid` becomes `sleep` in a moment.
    until("it to be there", || (processes(&mark) == 1).then_some(()));
    daemon.ctx(&["end", "coder/work", "--yes"]).ok();
    assert_eq!(processes(&mark), 0);
}

/// The processor time of the busy process, in ticks.
fn ticks(daemon: &TestDaemon) -> u64 {
    let pid = std::fs::read_to_string(daemon.workspace().join("busy")).unwrap_or_default();
    let Some(pid) = host_pid(pid.trim()) else { return 0 };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or(Vec::new(), |(_, rest)| rest.split(' ').collect());
    fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// A process that calls itself by this name.
fn host_pid(name: &str) -> Option<String> {
    let found = Command::new("pgrep").args(["-f", &format!("^{name}")]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().next().filter(|_| !name.is_empty()).map(str::to_owned)
}

#[test]
fn a_pause_stops_busy_processes_and_a_resume_lets_them_go_on() {
    let daemon = ready(build());
    let name = format!("busy-{}", unique());
    let busy = format!(
        "echo {name} > busy; exec -a {name} bash -c 'trap \"\" TSTP; while ! [ -e /work/go ]; do :; done; echo went on' {name}"
    );
    start(&daemon, "work", &format!("({busy})"));
    until("it to be busy", || (ticks(&daemon) > 5).then_some(()));
    daemon.ctx(&["pause", "coder/work"]).ok();
    let asked = std::time::Instant::now();
    let frozen = ticks(&daemon);
    until("some time to pass", || (asked.elapsed() > std::time::Duration::from_millis(300)).then_some(()));
    assert_eq!(ticks(&daemon), frozen, "no processor time is used once the pause is answered");
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    daemon.ctx(&["resume", "coder/work"]).ok();
    wait_state(&daemon, "work", "idle");
    assert!(output(&results(&daemon, "work")[0]).contains("went on\n"));
}

#[test]
fn a_killed_daemon_leaves_no_process() {
    let mut daemon = ready(build());
    let mark = unique();
    start(&daemon, "work", &hard_to_kill(&mark));
    until("all to be there", || (processes(&mark) >= 5).then_some(()));
    daemon.ctx(&["pause", "coder/work"]).ok();
    daemon.kill();
    daemon.start_again();
    until("all to be gone", || (processes(&mark) == 0).then_some(()));
    let left = std::fs::read_dir(daemon.root().join(".state/scratch")).map_or(0, |entries| entries.count());
    assert_eq!(left, 0, "files of its shells");
}

#[test]
fn a_fork_bomb_ends_with_its_limit_named_and_nobody_else_is_harmed() {
    let daemon = ready(build());
    run(&daemon, "other", &["export X=unharmed"]);
    let bomb = run(&daemon, "work", &["while :; do sleep 1000 & done"]);
    assert!(output(&bomb[0]).contains("process limit (512) reached"), "{}", output(&bomb[0]));
    let other = run(&daemon, "other", &["echo $X"]);
    assert!(output(&other[0]).starts_with("unharmed\n["), "{}", output(&other[0]));
}

#[test]
fn without_bubblewrap_commands_are_refused_with_what_to_install() {
    let daemon = ready(build().env("PATH", "/nowhere"));
    let refused = run(&daemon, "work", &["true"]);
    assert_eq!(refused[0]["status"], "error");
    assert!(output(&refused[0]).contains("install the package `bubblewrap`"), "{}", output(&refused[0]));
}

#[test]
fn a_daemon_without_cages_says_so_everywhere() {
    let daemon = ready(build().arg("--no-cage"));
    let sent =
        daemon.ctx(&["send", "--model", "debug:script", "--session", "work", &script(&["id -u; pwd"])]);
    sent.ok();
    let result = output(&results(&daemon, "work")[0]).to_owned();
    let work = std::fs::canonicalize(daemon.workspace()).unwrap();
    assert!(result.starts_with(&format!("0\n{}\n", work.display())), "{result}");
    let context = records(&daemon, "work").into_iter().find(|record| record["type"] == "context").unwrap();
    assert_eq!(context["cage"], "off");
    let status = daemon.ctx(&["status"]);
    assert!(status.stderr.contains("without a cage"), "{}", status.stderr);
    assert!(status.ok().contains("cages     off"));
    let status = daemon.ctx(&["status", "--json"]);
    assert_eq!(json_lines(&status.ok())[0]["cage"], "off");
}

#[test]
fn a_run_has_the_network_that_was_asked_for_with_it() {
    let daemon = ready(build());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect =
        format!("(: < /dev/tcp/127.0.0.1/{}) && echo reached", listener.local_addr().unwrap().port());
    let without = run(&daemon, "work", &["cd /tmp; export X=kept", &connect]);
    assert!(output(&without[1]).contains("--net host"), "{}", output(&without[1]));
    let text = script(&[&format!("{connect}; echo $X; pwd")]);
    daemon.ctx(&["send", "--net", "host", "--model", "debug:script", "--session", "work", &text]).ok();
    let with = results(&daemon, "work").pop().unwrap();
    assert!(output(&with).starts_with("reached\nkept\n/tmp\n"), "{}", output(&with));
    let contexts: Vec<Value> =
        records(&daemon, "work").into_iter().filter(|record| record["type"] == "context").collect();
    let nets: Vec<bool> =
        contexts.iter().map(|context| context["cage"].as_str().unwrap().contains("net=host")).collect();
    assert_eq!(nets, [false, true]);
    let again = run(&daemon, "work", &[&connect]);
    assert!(!output(&again[0]).contains("reached"), "it held for that run alone");
    assert!(daemon.ctx(&["send", "--net", "some", "x"]).fails(2).contains("none or host"));
}

/// `ctx` as Ann.
fn as_ann(daemon: &TestDaemon, args: &[&str]) -> testkit::Outcome {
    let own = daemon.command(args);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &ANN.to_string(), "--regid", &ANN.to_string(), "--clear-groups"]);
    command.arg(own.get_program()).args(own.get_args()).current_dir(daemon.workspace());
    command.env_clear().envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    testkit::finish(command.stdin(std::process::Stdio::null()))
}

/// Runs one command in the agent's shell of a daemon of root's, or of Ann's own; what it gave.
fn in_cage(daemon: &TestDaemon, is_root: bool, command: &str) -> String {
    let text = script(&[command]);
    let send = ["send", "--model", "debug:script", "--session", "work", text.as_str()];
    let sent = if is_root { daemon.ctx(&send) } else { as_ann(daemon, &send) };
    sent.ok();
    let log = ["log", "coder/work", "--json"];
    let log = if is_root { daemon.ctx(&log) } else { as_ann(daemon, &log) }.ok();
    let result = json_lines(&log).into_iter().rfind(|record| record["type"] == "tool_finished");
    output(&result.unwrap()).to_owned()
}

/// The list of the design, against a real daemon, from its agent's shell.
#[test]
fn ways_out_of_an_agents_cage_lead_nowhere() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for is_root in [true, false] {
        let builder = if is_root { build() } else { build().user(ANN, ANN) };
        let daemon = ready(builder);
        let (root, home) = (daemon.root().display().to_string(), daemon.home().display().to_string());
        let outside = daemon.path("outside");
        std::fs::write(&outside, "as it was").unwrap();
        std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o666)).unwrap();
        let setuid = daemon.workspace().join("id");
        std::fs::copy("/usr/bin/id", &setuid).unwrap();
        std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let (outside_path, pid) = (outside.display(), daemon.pid());
        let socket =
            format!("import socket; socket.socket(socket.AF_UNIX).connect(\"{root}/.state/api.sock\")");
        let ways = [
            ("the daemon's files", format!("ls {root}")),
            ("the token", format!("cat {root}/.state/*")),
            ("the daemon's socket", format!("python3 -c '{socket}'")),
            ("another home", format!("ls {home}/. || ls /root")),
            ("files of root's", "cat /etc/shadow".to_owned()),
            ("a path outside", format!("echo x > {outside_path}")),
            ("a link", format!("ln -s {outside_path} link; echo x > link")),
            ("..", format!("echo x > /work/../../../..{outside_path}")),
            ("a hard link", "ln /usr/bin/env hard || ln /proc/1/exe hard".to_owned()),
            (
                "/proc",
                format!("echo x > /proc/1/root{outside_path} || echo x > /proc/self/cwd/../..{outside_path}"),
            ),
            ("the network", format!(": < /dev/tcp/127.0.0.1/{port}")),
            ("a signal", format!("kill -0 {pid}")),
            ("a setuid program", "[ \"$(./id -u)\" != 1000 ] || ./id -un | grep root".to_owned()),
            (
                "ptrace",
                "python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)'"
                    .to_owned(),
            ),
            ("a mount", "mount -t tmpfs none /tmp || mount -o remount,rw /usr".to_owned()),
            ("a user namespace", "unshare -U true || unshare -r true".to_owned()),
        ];
        let lines = ways.map(|(what, way)| format!("( {way} ) >/dev/null 2>&1 && echo \"OUT: {what}\"\n"));
        let said = in_cage(&daemon, is_root, &format!("{}echo end", lines.concat()));
        assert!(said.starts_with("end\n"), "root's: {is_root}: {said}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "as it was");
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn bombs_in_a_plain_users_daemon_end_with_their_limit_named() {
    let daemon = ready(build().user(ANN, ANN));
    for (bomb, limit) in [
        ("while :; do sleep 1000 & done", "process limit (512) reached"),
        ("python3 -c 'x = [bytearray(64 << 20) for _ in range(64)]'", "memory limit (2048 MiB) reached"),
    ] {
        let said = in_cage(&daemon, false, bomb);
        assert!(said.contains(limit), "{said}");
    }
    let said = in_cage(&daemon, false, "head -c 1100M /dev/zero > /tmp/x");
    assert!(said.contains("/tmp of the cage is full: its limit is 1024 MiB"), "{said}");
    assert!(in_cage(&daemon, false, "echo fine").starts_with("fine\n"));
}
