//! Shells on another machine and in a container, as an MCP host uses them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::elsewhere::{Container, Sshd, USER};
use testkit::until;

use super::support::{Host, place};

fn ssh(sshd: &Sshd) -> Value {
    json!({"transport": "ssh", "host": "127.0.0.1", "port": sshd.port, "key_path": "id", "fingerprint": sshd.fingerprint})
}

#[test]
fn a_host_works_on_another_machine_and_in_a_container_as_it_does_here() {
    let (sshd, container, place) = (Sshd::shared(), Container::shared(), place());
    let mut command = place.command(&["mcp"]);
    command.env("CTX_SHELLS_KEY_DIR", &sshd.dir).env("CTX_SHELLS_CONTAINER_ENGINE", &container.engine);
    let mut host = Host::with(&mut command);
    let elsewhere = [ssh(sshd), json!({"transport": "docker", "container": container.name})];
    for (arguments, label) in elsewhere.into_iter().zip(["1_ssh_", "2_docker_box"]) {
        let id = host.call("session_create", arguments)["session_id"].as_str().unwrap().to_owned();
        assert!(id.starts_with(label), "{id}");
        host.exec(&id, "cd /tmp && export A=kept");
        let result = host.exec(&id, "echo $A; echo oops >&2; pwd; (exit 3)");
        assert_eq!(
            (result["stdout"].as_str(), result["stderr"].as_str()),
            (Some("kept\n/tmp\n"), Some("oops\n"))
        );
        assert_eq!((result["exit_code"].as_i64(), result["cwd"].as_str()), (Some(3), Some("/tmp")));
    }
    // Who watches sees them like local ones.
    let watched = place.ctx(&["watch"]).ok();
    assert!(watched.contains("1_ssh_") && watched.contains("2_docker_box"), "{watched}");
}

#[test]
fn what_was_not_allowed_is_refused_and_starts_nothing() {
    let (sshd, place) = (Sshd::shared(), place());
    let mut command = place.command(&["mcp"]);
    command.env("CTX_SHELLS_KEY_DIR", &sshd.dir).env("CTX_SHELLS_SSH_HOSTS", "elsewhere");
    let mut host = Host::with(&mut command);
    for (arguments, says) in [
        (ssh(sshd), "EACCES: the operator does not allow the host `127.0.0.1`"),
        (json!({"transport": "ssh"}), "EINVAL: host must be given with the transport `ssh`"),
        (json!({"transport": "docker", "container": "-x"}), "EINVAL: container `-x` is not a name"),
        (json!({"host": "a"}), "EINVAL: host means nothing with the transport `local`"),
    ] {
        let refused = host.refused("session_create", arguments.clone());
        assert!(refused.contains(says), "{arguments}: {refused}");
    }
    assert_eq!(host.call("session_list", json!({}))["sessions"], json!([]));
}

#[test]
fn a_list_that_is_empty_allows_none() {
    let (sshd, place) = (Sshd::shared(), place());
    let file = place.path("config.toml");
    for (text, arguments, says) in [
        ("[shells.ssh]\nhosts = []", ssh(sshd), "does not allow the host"),
        ("[shells.ssh]\nusers = []", ssh(sshd), "does not allow the user"),
        (
            "[shells]\ncontainers = []",
            json!({"transport": "docker", "container": "box"}),
            "does not allow the container",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut command = place.command(&["mcp", "--config"]);
        let mut host = Host::with(command.arg(&file).env("CTX_SHELLS_KEY_DIR", &sshd.dir));
        let refused = host.refused("session_create", arguments);
        assert!(refused.contains("EACCES") && refused.contains(says), "{text}: {refused}");
    }
}

#[test]
fn a_variable_that_is_empty_allows_none_whatever_the_file_says() {
    let (sshd, place) = (Sshd::shared(), place());
    let file = place.path("config.toml");
    for (text, variable, arguments) in [
        ("[shells.ssh]\nhosts = [\"elsewhere\"]", "CTX_SHELLS_SSH_HOSTS", ssh(sshd)),
        ("[shells.ssh]\nusers = [\"somebody\"]", "CTX_SHELLS_SSH_USERS", ssh(sshd)),
        ("", "CTX_SHELLS_CONTAINERS", json!({"transport": "docker", "container": "box"})),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut command = place.command(&["mcp", "--config"]);
        command.arg(&file).env("CTX_SHELLS_KEY_DIR", &sshd.dir).env(variable, "");
        let refused = Host::with(&mut command).refused("session_create", arguments);
        assert!(refused.contains("EACCES: the operator does not allow"), "{variable}: {refused}");
    }
}

#[test]
fn a_killed_server_leaves_nothing_on_the_other_side() {
    let (sshd, place) = (Sshd::shared(), place());
    let mut command = place.command(&["mcp"]);
    command.env("CTX_SHELLS_KEY_DIR", &sshd.dir);
    let mut host = Host::with(&mut command);
    let id = host.call("session_create", ssh(sshd))["session_id"].as_str().unwrap().to_owned();
    let result = host.exec(&id, "(setsid sleep 1000 & echo $!)");
    let pid: u32 = result["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    host.server.child.kill().unwrap();
    until("the end of what the shell left there", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
}

/// Everything below a directory: kind, mode, and what it holds or points to.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (char, u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let mode = meta.permissions().mode() & 0o7777;
        if meta.is_symlink() {
            let target = path.read_link().unwrap();
            all.insert(path, ('l', 0, target.as_os_str().as_bytes().to_vec()));
        } else if meta.is_dir() {
            all.extend(tree(&path));
            all.insert(path, ('d', mode, Vec::new()));
        } else {
            let mut bytes = std::fs::read(&path).unwrap();
            // All of one byte: its length and the byte say the same.
            if bytes.len() > 1_000 && bytes.iter().all(|byte| Some(byte) == bytes.first()) {
                bytes = format!("{} of {}", bytes.len(), bytes[0]).into_bytes();
            }
            all.insert(path, ('f', mode, bytes));
        }
    }
    all
}

/// Names and kinds that are easy to get wrong over a shell.
fn zoo(dir: &Path) {
    let put = |name: &[u8], bytes: &[u8], mode: u32| {
        let path = dir.join(OsStr::from_bytes(name));
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["deep/er", "empty", "swapped", "ignored.d", "repo/.git"] {
        std::fs::create_dir_all(dir.join(name)).unwrap();
    }
    put(b".gitignore", b"*.log\n/ignored.d/\n", 0o644);
    put(b"plain", b"one\n", 0o644);
    put(b"-n", b"a dash\n", 0o600);
    put("two words\nand a line $(x) 'q' \u{e9}".as_bytes(), b"odd\n", 0o640);
    put(b"not-utf8-\xff\xfe", b"\0\x01\xff binary", 0o644);
    put(b"large", &vec![7; 200_000], 0o755);
    put(b"read-only", b"fixed\n", 0o444);
    put(b"deep/er/nothing", b"", 0o644);
    put(b"swapped/inner", b"1\n", 0o644);
    put(b"x.log", b"log\n", 0o644);
    put(b"ignored.d/file", b"ignored\n", 0o644);
    put(b"repo/.git/HEAD", b"ref\n", 0o644);
    put(b"repo/tracked", b"t\n", 0o644);
    std::os::unix::fs::symlink("plain", dir.join("link")).unwrap();
    std::os::unix::fs::symlink("/nowhere", dir.join("dangling")).unwrap();
}

#[test]
fn files_elsewhere_are_saved_and_brought_back_as_they_are_here() {
    let (sshd, container, place) = (Sshd::shared(), Container::shared(), place());
    let mut command = place.command(&["mcp"]);
    command.env("CTX_SHELLS_KEY_DIR", &sshd.dir).env("CTX_SHELLS_CONTAINER_ENGINE", &container.engine);
    command.env("CTX_SHELLS_REMOTE_WORKSPACE_ROOTS", place.path(""));
    let mut host = Host::with(&mut command);
    let elsewhere = [ssh(sshd), json!({"transport": "docker", "container": container.name})];
    for (n, arguments) in elsewhere.into_iter().enumerate() {
        let work = place
            .path(&format!("work{n}"))
            .canonicalize()
            .unwrap_or_else(|_| place.path(&format!("work{n}")));
        std::fs::create_dir(&work).unwrap();
        zoo(&work);
        let before = tree(&work);
        let with = |workspace: &str| {
            let mut arguments = arguments.clone();
            arguments["workspace"] = json!(workspace);
            arguments
        };
        let made = host.call("session_create", with(work.to_str().unwrap()));
        let shell = made["session_id"].as_str().unwrap().to_owned();
        let saved = host.call("session_checkpoint", json!({"session_id": shell, "label": "far"}));
        let quoted = work.to_str().unwrap();
        let change = format!(
            "cd {quoted} && echo two >plain && rm -rf -- -n deep link large && chmod 600 read-only && rm -r swapped && \
             echo file >swapped && echo new >new && rmdir empty && echo more >>x.log && rm dangling && mkdir -p made/here && \
             echo changed >repo/.git/HEAD && ln -s new link"
        );
        assert_eq!(host.exec(&shell, &change)["exit_code"], 0);
        let changed = tree(&work);
        let look = host.call("session_restore", json!({"session_id": shell, "dry_run": true}));
        assert_eq!(tree(&work), changed, "a look changes nothing");
        let done = host
            .call("session_restore", json!({"session_id": shell, "checkpoint_id": saved["checkpoint_id"]}));
        assert_eq!(done["files_changed"], look["files_changed"]);
        assert_eq!(done["kept"], Value::Null, "{done}");
        // What was ignored, and .git, are as they were left; all else is as it was.
        let mut wanted = before.clone();
        for name in ["x.log", "repo/.git/HEAD"] {
            wanted.insert(work.join(name), changed[&work.join(name)].clone());
        }
        assert_eq!(tree(&work), wanted);
        host.call("session_restore", json!({"session_id": shell, "checkpoint_id": done["undo"]}));
        assert_eq!(tree(&work), changed, "and its undo brings back the rest");
        let listed = host.call("session_checkpoints", json!({"session_id": shell}));
        assert_eq!(listed["checkpoints"][0]["label"], "far");
        for (workspace, why) in [
            ("/", "root of the file system"),
            ("/etc", "is not inside"),
            ("/no/such", "not a directory"),
            ("relative", "absolute"),
        ] {
            let refused = host.refused("session_create", with(workspace));
            assert!(refused.starts_with("EINVAL: workspace: ") && refused.contains(why), "{refused}");
        }
    }
    let listed = place.ctx(&["snapshots"]).ok();
    assert!(listed.contains("ssh_") && listed.contains("docker_box:/"), "{listed}");
}

#[test]
fn rules_above_and_closed_directories_hold_elsewhere_too_and_a_cut_connection_is_made_again() {
    let (sshd, place) = (Sshd::with_user("/bin/sh"), place());
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(USER), Some(USER)).unwrap();
    let run = |script: &str| {
        let script = format!("cd {} && {script}", home.path().display());
        assert!(Command::new("sh").args(["-c", &script]).uid(USER).status().unwrap().success(), "{script}");
    };
    run(
        "mkdir -p repo/.git repo/app/data repo/app/set && echo '*.log' >repo/.gitignore && cd repo/app && echo 1 >a && \
         echo 1 >data/p && chmod 000 data && chmod 755 set",
    );
    let work = home.path().join("repo/app").canonicalize().unwrap();
    let mut command = place.command(&["mcp"]);
    command.env("CTX_SHELLS_REMOTE_WORKSPACE_ROOTS", work.parent().unwrap());
    let mut host = Host::with(&mut command);
    let made = host.call(
        "session_create",
        json!({"transport": "ssh", "host": "127.0.0.1", "port": sshd.port, "fingerprint": sshd.fingerprint,
               "user": "ctxtest", "password": "sesame-7319", "workspace": work}),
    );
    let shell = made["session_id"].as_str().unwrap().to_owned();
    host.call("session_checkpoint", json!({"session_id": shell}));
    run("cd repo/app && chmod 2755 data && echo 2 >a && echo l >new.log && chmod 2755 set");
    // The files have the connection that was made last.
    let last = sshd.connections().into_iter().max_by_key(|pid| pid.parse::<u32>().unwrap()).unwrap();
    assert!(Command::new("kill").args(["-KILL", &last]).status().unwrap().success());
    let restore = json!({"session_id": shell});
    let done = until("the files to be reached again", || {
        let said = host.tool("session_restore", restore.clone())["structuredContent"].clone();
        said["files_changed"].is_array().then_some(said)
    });
    let changed: Vec<&str> =
        done["files_changed"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(changed, ["a", "data", "set"], "{done}");
    let left = tree(&work);
    assert_eq!(left[&work.join("a")].2, b"1\n");
    let modes = ["set", "data"].map(|dir| left[&work.join(dir)].1);
    assert_eq!(modes, [0o755, 0], "without the bit that a shorter mode leaves");
    assert!(left.contains_key(&work.join("new.log")) && left.contains_key(&work.join("data/p")), "{left:?}");
    let checkpoint = json!({"session_id": shell});
    let saved = |host: &mut Host| {
        let listed = host.call("session_checkpoints", checkpoint.clone());
        listed["checkpoints"].as_array().unwrap().len()
    };
    let before = saved(&mut host);
    run("mv repo/app repo/elsewhere");
    let refused = host.refused("session_checkpoint", checkpoint.clone());
    assert!(refused.starts_with("ENOENT"), "no files are another thing than no directory: {refused}");
    run("mv repo/elsewhere repo/app && truncate -s 900M repo/app/big.bin");
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            let said = |program: &str, args: &[&str]| {
                let said = Command::new(program).args(args).output().unwrap();
                Some(String::from_utf8(said.stdout).unwrap().trim().to_owned())
                    .filter(|said| !said.is_empty())
            };
            let cat = until("the file to be read", || said("pgrep", &["-f", "^cat -- ./big.bin"]));
            let above = said("ps", &["-o", "ppid=", "-p", &cat]).unwrap();
            assert!(Command::new("kill").args(["-KILL", &above]).status().unwrap().success());
        });
        host.refused("session_checkpoint", checkpoint.clone())
    });
    assert!(refused.starts_with("EHOSTDOWN"), "{refused}");
    assert_eq!(saved(&mut host), before, "half a checkpoint is none");
    let refused =
        host.refused("session_create", json!({"transport": "ssh", "host": "h", "password": 73_197_319}));
    assert!(refused.contains("must be a string") && !refused.contains("7319"), "{refused}");
}
