//! Shells on another machine and in a container, as an MCP host uses them.

use serde_json::{Value, json};
use testkit::elsewhere::{Container, Sshd};
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
