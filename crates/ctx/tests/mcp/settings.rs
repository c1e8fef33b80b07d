//! What the operator sets holds: in the config file, in the environment, with an option, each before the last.

use serde_json::{Value, json};
use testkit::{Place, until};

use crate::support::{Host, place};

/// Writes the user's config file.
fn configure(place: &Place, text: &str) {
    let dir = place.home().join(".config/ctx");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), text).unwrap();
}

/// How many shells can be opened, up to four.
fn room(mut host: Host) -> usize {
    for opened in 0..4 {
        let result = host.tool("session_create", json!({}));
        if result["isError"] == true {
            let said = result["content"][0]["text"].as_str().unwrap();
            assert!(said.starts_with("EBUSY") && said.contains("which is the limit"), "{said}");
            return opened;
        }
    }
    4
}

/// A policy that denies `rm`, besides other settings of shells.
fn configure_without_rm(place: &Place, others: &str) {
    let policy = place.path("policy");
    std::fs::write(&policy, "deny rm\n").unwrap();
    configure(place, &format!("[shells]\n{others}policy_file = {policy:?}\n"));
}

#[test]
fn an_option_goes_before_the_environment_and_that_before_the_file() {
    let place = place();
    configure(&place, "[shells]\nmax = 1\n");
    assert_eq!(room(Host::start(&place)), 1);
    assert_eq!(room(Host::with(place.command(&["mcp"]).env("CTX_SHELLS_MAX", "2"))), 2);
    let mut command = place.command(&["mcp", "--max-shells", "3"]);
    assert_eq!(room(Host::with(command.env("CTX_SHELLS_MAX", "2"))), 3);
}

#[test]
fn shells_of_a_caged_server_see_the_project_and_little_else() {
    use std::os::unix::fs::{PermissionsExt, chown};
    const ANN: u32 = 54_441;
    let place = place();
    for dir in [place.path(""), place.workspace()] {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(place.workspace(), Some(ANN), Some(ANN)).unwrap();
    std::fs::write(place.path("secret"), "s3cret").unwrap();
    let mut host = Host::with(place.command(&["mcp", "--cage"]).current_dir(place.workspace()));
    let shell = host.create();
    let result = host.exec(&shell, "pwd; id -u; touch made; export X=1; cd /tmp");
    assert_eq!(result["stdout"], "/work\n1000\n", "{result}");
    assert!(place.workspace().join("made").exists());
    let result = host.exec(&shell, &format!("echo $X; pwd; cat {}", place.path("secret").display()));
    assert_eq!(result["stdout"], "1\n/tmp\n");
    assert!(result["stderr"].as_str().unwrap().contains("No such file"), "{result}");
    let result = host.exec(&shell, "echo 'Could not resolve host: x' >&2; false");
    assert!(result["hint"].as_str().unwrap().contains("no network"), "{result}");
    let setup = place.ctx(&["mcp", "--cage", "config", "codex"]).ok();
    assert!(setup.contains("--cage"), "{setup}");
}

#[test]
fn the_settings_are_shown_with_where_they_came_from() {
    let place = place();
    configure(&place, "[shells]\nidle_secs = 60\npolicy_file = \"/etc/ctx/policy\"\n");
    let shown = place.ctx(&["config", "show", "--json"]).ok();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let setting = |key: &str| {
        let settings = shown["settings"].as_array().unwrap();
        let found = settings.iter().find(|setting| setting["key"] == key).unwrap();
        let from_file = found["origin"].as_str().unwrap().contains("config.toml:");
        (found["value"].clone(), from_file, found["variable"].as_str().unwrap().to_owned())
    };
    assert_eq!(setting("shells.max"), (json!(64), false, "CTX_SHELLS_MAX".to_owned()));
    assert_eq!(setting("shells.idle_secs"), (json!(60), true, "CTX_SHELLS_IDLE_SECS".to_owned()));
    let policy = (json!("/etc/ctx/policy"), true, "CTX_SHELLS_POLICY_FILE".to_owned());
    assert_eq!(setting("shells.policy_file"), policy);
    assert_eq!(setting("shells.program"), (Value::Null, false, "CTX_SHELLS_PROGRAM".to_owned()));
}

#[test]
fn unless_it_is_set_there_are_64_shells_and_idle_ones_are_closed_after_half_an_hour() {
    let place = place();
    let shown: Value = serde_json::from_str(&place.ctx(&["config", "show", "--json"]).ok()).unwrap();
    let settings = shown["settings"].as_array().unwrap().iter();
    let of = |key| settings.clone().find(|setting| setting["key"] == key).unwrap()["value"].clone();
    assert_eq!((of("shells.max"), of("shells.idle_secs")), (json!(64), json!(1800)));
}

#[test]
fn the_policy_of_the_config_file_holds_and_no_shell_widens_it() {
    let place = place();
    configure_without_rm(&place, "");
    let mut host = Host::start(&place);
    let made = host.call("session_create", json!({"allow": ["rm", "echo"]}));
    let said =
        host.refused("session_exec", json!({"session_id": made["session_id"], "command": "echo a; rm b"}));
    assert!(said.starts_with("EACCES") && said.contains("rm"), "{said}");
    let shell = host.create();
    assert_eq!(host.exec(&shell, "echo fine")["stdout"], "fine\n");

    // An option names another policy, and that one holds instead.
    let other = place.path("other");
    std::fs::write(&other, "deny echo\n").unwrap();
    let mut host = Host::with(place.command(&["mcp", "--policy"]).arg(&other));
    let shell = host.create();
    assert_eq!(host.exec(&shell, "rm -f b")["exit_code"], 0);
    host.refused("session_exec", json!({"session_id": shell, "command": "echo a"}));
}

#[test]
fn a_policy_that_cannot_hold_stops_the_server() {
    let place = place();
    let missing = place.path("missing");
    let bad = place.path("bad");
    std::fs::write(&bad, "deny rm\nforbid everything\n").unwrap();
    let empty = place.path("empty");
    std::fs::write(&empty, "# nothing yet\n\n").unwrap();
    for (file, wanted) in [
        (missing.to_str().unwrap(), "missing"),
        (bad.to_str().unwrap(), "2"),
        (empty.to_str().unwrap(), "has no rule; write `allow *`"),
        ("a/b", "absolute"),
    ] {
        configure(&place, &format!("[shells]\npolicy_file = {file:?}\n"));
        let ended = place.ctx(&["mcp"]);
        assert!(ended.code != 0 && ended.stderr.contains(wanted), "{ended:?}");
    }
}

#[test]
fn a_policy_with_a_line_that_matches_nothing_stops_the_server_by_file_line_and_reason() {
    let place = place();
    let file = place.path("policy");
    for (line, why) in [
        (b"deny \"rm\"".as_slice(), "quotes"),
        (b"deny [a-z]*", "only `*` and `?` are patterns"),
        (b"deny rm\0", "'\\0'"),
        (b"deny r\xffm", "not UTF-8"),
        (b"deny ls", "line 2 (`allow ls`)"),
    ] {
        std::fs::write(&file, [b"# programs\nallow ls\n", line, b"\n"].concat()).unwrap();
        let said = place.ctx(&["mcp", "--policy", file.to_str().unwrap()]).stderr;
        assert!(
            said.contains(file.to_str().unwrap()) && said.contains("line 3") && said.contains(why),
            "{said}"
        );
    }
    std::fs::write(&file, "deny rm\n").unwrap();
    let mut host = Host::with(place.command(&["mcp", "--policy"]).arg(&file));
    let said = host.refused("session_create", json!({"deny": ["\"rm\""]}));
    assert!(said.starts_with("EINVAL") && said.contains("quotes"), "{said}");
    let shell = host.create();
    for command in ["bash -euo pipefail -c 'rm x'", "cat <<EOF | xargs rm\nx\nEOF"] {
        let said = host.refused("session_exec", json!({"session_id": shell, "command": command}));
        assert!(said.contains("`rm` is denied"), "{said}");
    }
    assert_eq!(host.exec(&shell, "declare -a files=(rm mv); trap - EXIT")["exit_code"], 0);
}

#[test]
fn a_policy_that_is_no_text_file_stops_the_server_at_once() {
    let place = place();
    let (pipe, long) = (place.path("pipe"), place.path("long"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    std::fs::write(&long, "deny rm\n".repeat(200_000)).unwrap();
    for (file, why) in [
        (pipe.to_str().unwrap(), "not a regular file"),
        (long.to_str().unwrap(), "longer than 1 MiB"),
        ("/dev/zero", "not a regular file"),
        ("/", "not a regular file"),
    ] {
        let ended = place.ctx(&["mcp", "--policy", file]);
        assert!(ended.code != 0, "{file}: {ended:?}");
        assert!(ended.stderr.contains(file) && ended.stderr.contains(why), "{file}: {ended:?}");
    }
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let place = place();
    configure(&place, "[shells]\nmax = 0\n");
    let said = place.ctx(&["mcp"]).fails(2);
    assert!(
        said.contains("config.toml:2:7: `shells.max` must be a whole number of at least 1, not 0"),
        "{said}"
    );
    configure(&place, "");
    place.ctx(&["mcp", "--max-shells", "0"]).fails(2);
    place.ctx(&["mcp", "--idle-secs", "0"]).fails(2);
}

#[test]
fn an_idle_shell_is_closed_after_the_time_that_was_set() {
    let place = place();
    configure(&place, "[shells]\nidle_secs = 1\n");
    let mut host = Host::start(&place);
    host.create();
    until("the reaping", || {
        let listed = host.call("session_list", json!({}));
        listed["sessions"].as_array().unwrap().is_empty().then_some(())
    });
    assert!(place.ctx(&["shells"]).ok().contains("reaped"));
    let said = host.refused("session_exec", json!({"session_id": "1_local", "command": "echo"}));
    assert!(said.starts_with("ENOENT") && said.contains("after 1 seconds without a command"), "{said}");
    assert!(said.contains("session_create"), "{said}");
}

#[test]
fn the_program_that_was_set_is_the_shell() {
    let place = place();
    configure(&place, "[shells]\nprogram = \"sh\"\n");
    let shell_of = |mut host: Host| {
        let shell = host.create();
        host.exec(&shell, "echo ${BASH_VERSION:+bash}")["stdout"].as_str().unwrap().trim().to_owned()
    };
    assert_eq!(shell_of(Host::with(&mut place.command(&["mcp", "--shell", "bash"]))), "bash");
    let told = |program| {
        let host = Host::with(&mut place.command(&["mcp", "--shell", program]));
        host.info["instructions"].as_str().unwrap().contains("not bash")
    };
    assert_eq!((told("dash"), told("bash")), (true, false), "who writes for bash is told");
    let through_sh = shell_of(Host::start(&place));
    let plain = std::process::Command::new("sh").args(["-c", "echo ${BASH_VERSION:+bash}"]).output().unwrap();
    assert_eq!(through_sh, String::from_utf8(plain.stdout).unwrap().trim());
}

#[test]
fn variables_of_a_shell_change_nothing_that_the_operator_set() {
    let place = place();
    configure_without_rm(&place, "max = 2\n");
    let mut host = Host::start(&place);
    let env = json!({
        "CTX_SHELLS_MAX": "100", "CTX_SHELLS_IDLE_SECS": "1", "CTX_SHELLS_POLICY_FILE": "", "CTX_SHELLS_PROGRAM": "/bin/false",
        "CTX_CONFIG": "/dev/null", "CTX_ROOT": "/tmp/elsewhere", "XDG_STATE_HOME": "/tmp/elsewhere", "HOME": "/tmp/elsewhere",
    });
    for _ in 0..2 {
        let made = host.call("session_create", json!({"env": env}));
        let exported = "export CTX_SHELLS_MAX=100 CTX_SHELLS_POLICY_FILE=/dev/null; echo $CTX_SHELLS_MAX";
        let shell = made["session_id"].as_str().unwrap();
        assert_eq!(host.exec(shell, exported)["stdout"], "100\n");
        assert_eq!(host.exec(shell, "exit 1")["shell_restarted"], true, "what is started anew is no other");
        let said = host.refused("session_exec", json!({"session_id": shell, "command": "rm x"}));
        assert!(said.starts_with("EACCES"), "{said}");
    }
    let said = host.refused("session_create", json!({"env": env}));
    assert!(said.starts_with("EBUSY"), "{said}");
    assert_eq!(
        place.ctx(&["shells", "list", "--json"]).ok().lines().count(),
        2,
        "the logs are where they were"
    );
    assert!(!std::path::Path::new("/tmp/elsewhere").exists());
}

#[test]
fn where_nothing_can_be_written_shells_work_and_their_logs_are_where_the_server_says() {
    let place = place();
    let tmp = place.path("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let nowhere = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("HOME", "/proc/nowhere").env("CTX_ROOT", "/proc/nowhere/root").env("TMPDIR", &tmp);
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME").env_remove("XDG_RUNTIME_DIR");
        command
    };
    let stderr = place.path("stderr");
    let mut host = Host::with(nowhere(&["mcp"]).stderr(std::fs::File::create(&stderr).unwrap()));
    let shell = host.create();
    assert_eq!(host.exec(&shell, "echo works")["stdout"], "works\n");
    let said = std::fs::read_to_string(&stderr).unwrap();
    let dir = tmp.join(format!("ctx-{}", rustix::process::getuid().as_raw()));
    for wanted in [
        "warning",
        dir.to_str().unwrap(),
        "a temporary directory",
        "/proc/nowhere/root",
        "/proc/nowhere/.local",
        "--root",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let listed = nowhere(&["shells"]).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("1_local"), "{listed:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&dir).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);

    // What someone else has put there is not used.
    drop(host);
    std::fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(place.home(), &dir).unwrap();
    let refused = nowhere(&["mcp"]).stdin(std::process::Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    for wanted in [dir.to_str().unwrap(), "not a private directory", "/proc/nowhere/root", "hint:", "--root"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(refused.status.code(), Some(13));
}

#[test]
fn a_program_that_is_no_shell_is_refused_at_the_start() {
    let place = place();
    for (program, wanted) in [("/nope", "/nope"), ("cat", "cat does not run commands as a POSIX shell does")]
    {
        let said = place.ctx(&["mcp", "--shell", program]).fails(1);
        assert!(said.contains(wanted) && said.contains("name another with --shell"), "{said}");
    }
    configure(&place, "[shells]\nprogram = \"python3\"\n");
    let said = place.ctx(&["mcp"]).fails(1);
    assert!(said.contains("python3 does not run commands"), "{said}");
    assert_eq!(place.ctx(&["shells", "list", "--json"]).ok(), "", "the trial is in no log");
}

#[test]
fn options_of_the_set_up_may_stand_behind_it() {
    let place = place();
    let before = place.ctx(&["mcp", "--max-shells", "3", "--policy", "/p", "config", "codex"]).ok();
    let behind = place.ctx(&["mcp", "config", "codex", "--max-shells", "3", "--policy", "/p"]).ok();
    assert!(before.contains(r#""--max-shells", "3", "--policy", "/p""#), "{before}");
    assert_eq!(before, behind);
    let said = place.ctx(&["mcp", "config", "emacs"]).fails(2);
    assert!(
        said.contains("[possible values: claude-code, codex, cursor, vscode, gemini, opencode, goose, qwen]"),
        "{said}"
    );
    let hosts = place.ctx(&["__complete", "--", "mcp", "config", "c"]).ok();
    assert_eq!(hosts, "claude-code\ncodex\ncursor\n", "HOST is completed");
}

#[test]
fn the_set_up_names_the_link_that_was_called() {
    let place = place();
    let bin = place.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let link = bin.join("ctx");
    std::os::unix::fs::symlink(crate::support::CTX, &link).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for called in ["ctx", link.to_str().unwrap(), "../bin/ctx"] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "\"$0\" mcp config codex", called]).env("PATH", &path).current_dir(&bin);
        let said = testkit::finish(command.env("HOME", place.home()).env_remove("CTX_ROOT")).ok();
        let printed = said.lines().find_map(|line| line.strip_prefix("command = ")).unwrap();
        let printed: std::path::PathBuf = serde_json::from_str(printed).unwrap();
        assert!(printed.is_absolute() && printed.is_symlink(), "{called}: {said}");
    }
}
