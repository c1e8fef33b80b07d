//! `ctx cage`: commands in real cages, as root and as a plain user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};

use testkit::{Outcome, Place, finish, until};

use crate::support::{CTX, json_lines, place};

const ANN: u32 = 54_421;

/// A place with a project of Ann's that she can reach.
fn anns() -> Place {
    let place = place();
    std::fs::create_dir_all(place.workspace()).unwrap();
    std::fs::create_dir_all(place.home()).unwrap();
    std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    for dir in [place.workspace(), place.home()] {
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(&dir, Some(ANN), Some(ANN)).unwrap();
    }
    place
}

/// `ctx` in the project, as root or as Ann.
fn command(place: &Place, is_root: bool, args: &[&str]) -> Command {
    let as_root = place.command(args);
    let mut command = Command::new("setpriv");
    match is_root {
        true => command.args(["--reuid", "0"]),
        false => command.args(["--reuid", &ANN.to_string(), "--regid", &ANN.to_string(), "--clear-groups"]),
    };
    command.arg(as_root.get_program()).args(as_root.get_args());
    for (name, value) in as_root.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(place.workspace()).stdin(Stdio::null());
    command
}

fn ctx(place: &Place, is_root: bool, args: &[&str]) -> Outcome {
    finish(&mut command(place, is_root, args))
}

#[test]
fn a_command_runs_in_the_project_and_its_code_is_ours() {
    let place = anns();
    for is_root in [true, false] {
        let said =
            ctx(&place, is_root, &["cage", "run", "--", "sh", "-c", "pwd; id -u; touch made; echo $HOME"])
                .ok();
        assert_eq!(said, "/work\n1000\n/home/agent\n");
        let made = std::fs::metadata(place.workspace().join("made")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), ANN);
        let outcome = ctx(&place, is_root, &["cage", "run", "--", "sh", "-c", "echo no >&2; exit 3"]);
        assert_eq!(outcome.fails(3), "no\n");
    }
}

#[test]
fn root_works_in_a_project_of_its_own_where_only_root_may_go() {
    let place = place();
    std::fs::create_dir_all(place.workspace()).unwrap();
    std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(place.workspace().join("plan"), "as it was").unwrap();
    let script = "echo changed > plan; echo new > made; id -u; touch .git/x 2>/dev/null || echo kept";
    let said = ctx(&place, true, &["cage", "run", "--", "sh", "-c", script]).ok();
    assert_eq!(said, "1000\nkept\n");
    for (name, text) in [("plan", "changed\n"), ("made", "new\n")] {
        let path = place.workspace().join(name);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path).unwrap()), 0, "{name}");
    }
}

#[test]
fn bombs_end_with_their_limit_named_also_for_a_plain_user() {
    let place = anns();
    for is_root in [true, false] {
        for (bomb, limit) in [
            (vec!["python3", "-c", "x = bytearray(512 << 20)"], "memory limit"),
            (vec!["bash", "-c", "while :; do sleep 1000 & done"], "process limit"),
            (vec!["sleep", "1000"], "walltime"),
        ] {
            let walltime = if limit == "walltime" { "300ms" } else { "60s" };
            let memory = if limit == "memory limit" { "64M" } else { "2G" };
            let args = [vec!["cage", "run", "--memory", memory, "--walltime", walltime, "--"], bomb].concat();
            let said = ctx(&place, is_root, &args).fails(137);
            assert!(said.ends_with(&format!("ctx: the cage was ended: {limit} reached\n")), "{said}");
        }
    }
}

#[test]
fn a_descriptor_that_was_given_to_ctx_is_not_the_cages() {
    let place = anns();
    std::fs::write(place.path("secret"), "secret").unwrap();
    let run = place.command(&["cage", "run", "--", "sh", "-c", "ls /proc/self/fd; cat <&9"]);
    let mut bash = Command::new("bash");
    bash.args(["-c", "exec 9<\"$0\"; exec \"$@\""]).arg(place.path("secret"));
    bash.arg(run.get_program()).args(run.get_args()).current_dir(place.workspace());
    bash.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let outcome = finish(&mut bash);
    assert!(outcome.code != 0 && !outcome.stdout.contains("secret"), "{}{}", outcome.stdout, outcome.stderr);
    assert!(!outcome.stdout.contains('9'), "{}", outcome.stdout);
}

#[test]
fn the_project_files_cage_holds_for_its_agents_once_it_is_trusted() {
    let daemon = crate::support::build();
    let place = daemon.place();
    std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let dir = place.path("music");
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    std::fs::create_dir(dir.join("sub")).unwrap();
    chown(&dir, Some(ANN), Some(ANN)).unwrap();
    let file = "version: 1\nproject: music\nprimary: {model: \"debug:echo\"}\ncage: {env: {WHO: all}, memory: 300M}\n\
                subagents:\n  tester: {model: \"debug:echo\", cage: {env: {WHO: tester}, walltime: 400ms}}\n";
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    let daemon = daemon.start();
    let cage = |agent: &str, command: &str| {
        let mut run = daemon.command(&["cage", "run", "--agent", agent, "--", "sh", "-c", command]);
        finish(run.current_dir(dir.join("sub")).stdin(Stdio::null()))
    };
    let refused = cage("music", "echo $WHO").fails(13);
    assert!(
        refused.contains("asks for a cage of its own") && refused.contains("ctx project trust"),
        "{refused}"
    );
    assert_eq!(cage("coder", "echo $WHO; pwd").ok(), "\n/work/sub\n", "coder's is as it always is");
    let mut trust = daemon.command(&["project", "trust", "--yes"]);
    finish(trust.current_dir(&dir).stdin(Stdio::null())).ok();
    assert_eq!(cage("music", "echo $WHO; pwd").ok(), "all\n/work/sub\n");
    assert_eq!(cage("tester", "echo $WHO").ok(), "tester\n");
    assert!(cage("tester", "sleep 1000").fails(137).contains("walltime reached"));
    let mut explain = daemon.command(&["cage", "explain", "tester", "--json"]);
    let json = &json_lines(&finish(explain.current_dir(&dir)).ok())[0];
    assert_eq!(json["cage"]["limits"]["memory_bytes"], 300 << 20);
    assert!(cage("nobody", "true").fails(1).contains("no agent `nobody`"));
    std::fs::write(dir.join(".ctx/project.yaml"), file.replace("300M", "400M")).unwrap();
    assert!(cage("music", "true").fails(13).contains("trust"), "another file, which nobody agreed to");
}

#[test]
fn bad_input_and_a_missing_bubblewrap_are_said() {
    let place = anns();
    let run = |args: &[&str]| ctx(&place, false, &[&["cage", "run"], args, &["--", "true"]].concat());
    assert!(run(&["--memory", "lots"]).fails(2).contains("512M"));
    assert!(run(&["--net", "some"]).fails(2).contains("none or host"));
    assert!(run(&["--mount", "a:b"]).fails(2).contains("absolute"));
    assert!(run(&["--agent", "../x"]).fails(2).contains("not the name of an agent"));
    assert!(run(&["--mount", "/no/such:/x:ro"]).fails(1).contains("/no/such"));
    let mut without = place.command(&["cage", "run", "--", "true"]);
    let said = finish(without.env("PATH", "/nowhere").current_dir(place.workspace())).fails(69);
    assert!(said.contains("bubblewrap is not installed") && said.contains("hint: install"), "{said}");
    for is_root in [true, false] {
        let said = ctx(&place, is_root, &["cage", "run", "--", "no-such-program"]).fails(127);
        assert!(said.contains("no-such-program"), "{said}");
    }
}

/// Becomes a user in a namespace of users in which no further one may be made, and runs a command.
const NO_NAMESPACES: &str = r#"
import ctypes, os, sys
ready, go, uid = os.pipe(), os.pipe(), int(sys.argv[1])
child = os.fork()
if child == 0:
    ctypes.CDLL(None).unshare(0x10000000)
    os.write(ready[1], b"x"), os.read(go[0], 1)
    os.setgroups([])
    open("/proc/sys/user/max_user_namespaces", "w").write("0")
    os.setresgid(uid, uid, uid), os.setresuid(uid, uid, uid)
    os.execv(sys.argv[2], sys.argv[2:])
os.read(ready[0], 1)
for name in ["uid_map", "gid_map"]:
    open(f"/proc/{child}/{name}", "w").write(f"0 0 1\n{uid} {uid} 1\n")
os.write(go[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

#[test]
fn without_user_namespaces_the_refusal_says_why() {
    let place = anns();
    std::fs::create_dir_all(place.root().join(".state")).unwrap();
    for path in [place.root().to_owned(), place.root().join(".state")] {
        chown(path, Some(ANN), Some(ANN)).unwrap();
    }
    let ctx = |args: &[&str]| {
        let run = place.command(args);
        let mut python = Command::new("python3");
        python.args(["-c", NO_NAMESPACES, &ANN.to_string()]).arg(run.get_program()).args(run.get_args());
        python.env_clear().envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        finish(python.current_dir(place.workspace()).stdin(Stdio::null()))
    };
    let said = ctx(&["cage", "run", "--", "true"]).fails(1);
    assert!(said.contains("namespace failed") && said.contains("the cage did not start"), "{said}");
    let doctor = ctx(&["doctor"]).stdout;
    assert!(doctor.contains("none: they do not start") && doctor.contains("max_user_namespaces"), "{doctor}");
}

#[test]
fn toolchains_are_there_and_credentials_are_not() {
    let place = anns();
    for (file, mode) in [
        (".ssh/id_ed25519", 0o600),
        (".aws/credentials", 0o600),
        (".config/gh/hosts.yml", 0o600),
        (".cargo/credentials.toml", 0o600),
        (".cargo/bin/tool", 0o755),
    ] {
        let path = place.home().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "#!/bin/sh\necho the tool\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(ANN), Some(ANN)).unwrap();
    }
    for is_root in [true, false] {
        let script = "tool; cd; find . -type f; touch .cargo/bin/x 2>/dev/null || echo read-only";
        let said = ctx(&place, is_root, &["cage", "run", "--", "sh", "-c", script]).ok();
        assert_eq!(said, "the tool\n./.cargo/bin/tool\nread-only\n");
    }
}

#[test]
fn the_config_file_adds_mounts_path_and_variables() {
    let place = anns();
    let tools = place.path("tools");
    std::fs::create_dir(&tools).unwrap();
    std::fs::write(tools.join("hi"), "#!/bin/sh\necho hi $NAME $SECRET\n").unwrap();
    std::fs::set_permissions(tools.join("hi"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = place.path("config.toml");
    let text =
        format!("[cage]\nmounts = \"{}:/tools:ro\"\npath = \"/tools\"\nenv = \"NAME\"\n", tools.display());
    std::fs::write(&file, text).unwrap();
    let mut run = command(&place, false, &["cage", "--config", file.to_str().unwrap(), "run", "--", "hi"]);
    assert_eq!(finish(run.env("NAME", "ann").env("SECRET", "s3cret")).ok(), "hi ann\n");
}

#[test]
fn explain_says_what_holds() {
    let place = anns();
    let said = ctx(&place, true, &["cage", "explain", "coder"]).ok();
    for expected in [
        "with the rights of uid 54421",
        "/work (the host's",
        "network\n  none",
        "memory     2048 MiB",
        "held by",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let json = &json_lines(&ctx(&place, true, &["cage", "explain", "coder", "--json"]).ok())[0];
    assert_eq!((&json["cage"]["net"], &json["cage"]["limits"]["processes"]), (&"none".into(), &512.into()));
    assert!(json["held_by"].as_str().unwrap().contains("memory by"));
}

#[test]
fn a_killed_run_leaves_no_process() {
    let place = anns();
    let mark = format!("1000001.{}", std::process::id());
    let alive = || {
        let found = Command::new("pgrep").args(["-f", &format!("^sleep {mark}")]).output().unwrap();
        !found.stdout.is_empty()
    };
    let script = format!("setsid sleep {mark} & sleep {mark}");
    let mut run = command(&place, true, &["cage", "run", "--", "sh", "-c", &script]).spawn().unwrap();
    until("it to run", || alive().then_some(()));
    run.kill().unwrap();
    run.wait().unwrap();
    until("it to be gone", || (!alive()).then_some(()));
}

#[test]
fn the_examples_of_the_guide_to_agents_work() {
    let place = anns();
    let page = include_str!("../../../../docs/guides/agents.md");
    let script: String = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let bin = std::path::Path::new(CTX).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut walk = Command::new("timeout");
    walk.args(["60", "bash", "-eu", "-o", "pipefail", "-c", &script]).stdin(Stdio::null()).env("PATH", path);
    walk.env("HOME", place.home()).env("CTX_ROOT", place.root()).current_dir(place.workspace());
    let said = finish(&mut walk).ok();
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "written inside",
        "Read-only file system",
        "no network",
        "exit code 137",
        "none",
        "The note is there.",
        "3",
        "net=none",
    ];
    assert_eq!(lines, expected, "{said}");
}
