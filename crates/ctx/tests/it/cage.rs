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
fn a_limit_is_named_on_stderr() {
    let place = anns();
    let said = ctx(&place, true, &["cage", "run", "--walltime", "300ms", "--", "sleep", "1000"]).fails(137);
    assert_eq!(said, "ctx: the cage was ended: walltime reached\n");
    let bomb = ["cage", "run", "--memory", "64M", "--", "python3", "-c", "x = bytearray(512 << 20)"];
    assert_eq!(ctx(&place, true, &bomb).fails(137), "ctx: the cage was ended: memory limit reached\n");
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
    let expected = ["written inside", "Read-only file system", "no network", "exit code 137", "none"];
    assert_eq!(lines, expected, "{said}");
}
