//! `shell.exec` on a machine that the project file lists, over a real sshd: trust, policy, state, allow-lists, cancel and the
//! daemon's death.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::elsewhere::Sshd;
use testkit::{DaemonBuilder, Outcome, TestDaemon, finish, until};

use crate::support::{build, json_lines};

/// A daemon and a project with a host `build`, which is an alias of an ssh config that the operator has named.
struct Project {
    daemon: TestDaemon,
    dir: PathBuf,
}

impl Project {
    fn new(builder: DaemonBuilder, file: &str) -> Project {
        Project::on(Sshd::shared(), builder, file)
    }

    fn on(sshd: &Sshd, builder: DaemonBuilder, file: &str) -> Project {
        let dir = builder.place().path("proj");
        std::fs::create_dir_all(dir.join(".ctx")).unwrap();
        let text = format!("version: 1\nproject: proj\nprimary: {{model: \"debug:script\"}}\n{file}\n");
        std::fs::write(dir.join(".ctx/project.yaml"), text).unwrap();
        let key = std::fs::read_to_string(sshd.dir.join("host.pub")).unwrap();
        let known = builder.place().path("known");
        std::fs::write(&known, format!("[127.0.0.1]:{} {key}", sshd.port)).unwrap();
        let config = builder.place().path("ssh_config");
        let text = format!(
            "Host far\n HostName 127.0.0.1\n Port {}\n IdentityFile {}/id\n UserKnownHostsFile {}\n",
            sshd.port,
            sshd.dir.display(),
            known.display()
        );
        std::fs::write(&config, text).unwrap();
        let daemon = builder.env("CTX_SHELLS_SSH_CONFIG", config.to_str().unwrap()).start();
        Project { daemon, dir }
    }

    fn trusted(self) -> Project {
        self.ctx(&["project", "add", "."]);
        self.ctx(&["project", "trust", "--yes"]).ok();
        self
    }

    fn ctx(&self, args: &[&str]) -> Outcome {
        let mut command = self.daemon.command(args);
        finish(command.current_dir(&self.dir).stdin(Stdio::null()))
    }

    /// Makes calls in one run; what each gave.
    fn call(&self, options: &[&str], calls: &[(&str, Value)]) -> Vec<String> {
        let before = self.results().len();
        let text = script(calls);
        self.ctx(&[&["send", "--session", "work"], options, &[text.as_str()]].concat()).ok();
        self.results().split_off(before)
    }

    fn results(&self) -> Vec<String> {
        let log = self.daemon.ctx(&["log", "proj/work", "--json"]);
        let records = if log.stdout.is_empty() { Vec::new() } else { json_lines(&log.ok()) };
        let ended = records.into_iter().filter(|record| record["type"] == "tool_finished");
        ended.map(|record| record["output"].as_str().unwrap().to_owned()).collect()
    }
}

fn script(calls: &[(&str, Value)]) -> String {
    let steps: Vec<Value> =
        calls.iter().map(|(name, input)| json!({ "tool": { "name": name, "input": input } })).collect();
    json!({ "script": steps }).to_string()
}

fn there(command: &str) -> (&'static str, Value) {
    ("shell.exec", json!({ "command": command, "host": "build" }))
}

fn processes(mark: &str) -> usize {
    let found = Command::new("pgrep").args(["-f", &format!("^[^ ]*sleep {mark}")]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().count()
}

fn unique(n: u32) -> String {
    format!("1000003.{}{n:04}", std::process::id())
}

const FILE: &str = "policy: [deny shell.exec *forbidden*, allow shell.exec]\nhosts: {build: {ssh: far, policy: [allow shell.exec echo*, deny shell.exec rm*]}}";

#[test]
fn a_host_needs_trust_and_has_a_policy_a_shell_and_redaction_of_its_own() {
    let project = Project::new(build(), FILE);
    let refused = project.ctx(&["send", "hello"]).fails(13);
    assert!(refused.contains("hosts: runs commands on far as host build"), "{refused}");
    assert!(refused.contains("policy of host build: allow shell.exec echo*"), "{refused}");
    let project = project.trusted();
    // What the agent may do in its cage it may not do there; what its policy denies is denied there too.
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let given = project.call(
        &[],
        &[
            there("echo \"from $SSH_CONNECTION\"; echo loud >&2"),
            there(&format!("echo {secret}")),
            there("true"),
            there("rm -f /nowhere"),
            there("echo forbidden"),
            ("shell.exec", json!({ "command": "true", "host": "other" })),
            // A pattern allows no other program behind the one that it names.
            there("echo a; touch /tmp/not-allowed"),
            there("echo $(touch /tmp/not-allowed)"),
        ],
    );
    for asked in &given[6..8] {
        assert!(asked.contains("needs an approval"), "{asked}");
    }
    assert!(given[0].starts_with("from 127.0.0.1 ") && given[0].contains("[stderr]\nloud\n"), "{}", given[0]);
    assert!(given[1].starts_with("[REDACTED:") && !given[1].contains(&secret), "{}", given[1]);
    assert!(given[2].contains("shell.exec@build on true needs an approval"), "{}", given[2]);
    for denied in &given[3..5] {
        assert!(denied.contains("the policy denies shell.exec@build"), "{denied}");
    }
    assert!(given[5].contains("lists no host `other` (it lists build)"), "{}", given[5]);
    // Its state is its own and lives between runs; so does what it printed.
    project.call(&["--yes"], &[there("export A=kept; cd /tmp")]);
    let given = project.call(
        &["--yes"],
        &[
            there("seq 3; pwd; echo $A"),
            ("shell.exec", json!({ "command": "echo \"A=$A\"; pwd" })),
            ("shell.output", json!({ "call": 4, "host": "build" })),
            ("shell.interrupt", json!({ "host": "build" })),
        ],
    );
    assert!(given[0].starts_with("1\n2\n3\n/tmp\nkept\n[exit code 0;"), "{}", given[0]);
    assert!(given[1].starts_with("A=\n/work\n"), "{}", given[1]);
    assert!(given[2].starts_with("1\n2\n3\n/tmp\nkept\n"), "{}", given[2]);
    assert_eq!(given[3], "no command was running");
}

#[test]
fn an_agent_is_told_that_its_shell_was_lost_while_nothing_ran_in_it() {
    let sshd = Sshd::start("");
    let project = Project::on(&sshd, build(), FILE).trusted();
    project.call(&["--yes"], &[there("export A=kept; cd /tmp")]);
    let killed = Command::new("kill").arg("-KILL").args(sshd.connections()).status();
    assert!(killed.unwrap().success());
    let given = project.call(&["--yes"], &[there("echo \"A=$A\""), there("echo \"A=$A\"; pwd")]);
    assert!(
        given[0].contains("EHOSTDOWN") && given[0].contains("directory and variables are gone"),
        "{given:?}"
    );
    assert!(given[1].starts_with("A=\n") && !given[1].contains("/tmp"), "{given:?}");
}

#[test]
fn the_operators_lists_hold_and_nothing_is_started() {
    let project = Project::new(build().env("CTX_SHELLS_SSH_HOSTS", "elsewhere"), FILE).trusted();
    let given = project.call(&["--yes"], &[there("echo hello")]);
    assert!(
        given[0].contains("EACCES") && given[0].contains("does not allow the host `far`"),
        "{}",
        given[0]
    );
    let wrong = "hosts: {build: {ssh: \"-oProxyCommand=x\"}}";
    let refused = Project::new(build(), wrong).ctx(&["project", "check", "."]);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(said.contains("`hosts.build.ssh` must be [user@]host[:port]"), "{said}");
}

#[test]
fn a_cancel_and_the_daemons_death_leave_no_process_there() {
    let mut project = Project::new(build(), FILE).trusted();
    for (n, is_kill) in [(1, false), (2, true)] {
        let mark = unique(n);
        let command = format!("(setsid sleep {mark} &) ; trap '' INT TERM; sleep {mark}");
        project.ctx(&["send", "--detach", "--yes", "--session", "work", &script(&[there(&command)])]).ok();
        until("both to be there", || (processes(&mark) == 2).then_some(()));
        if is_kill {
            project.daemon.kill();
        } else {
            project.ctx(&["cancel", "proj/work"]).ok();
        }
        until("the end of what ran there", || (processes(&mark) == 0).then_some(()));
    }
}
