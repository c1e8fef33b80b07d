//! What a project file grants: everything in it that lets an agent do more than it could without the file. It holds only
//! after the operator agreed to the file (`ctx_session::project::Project::trusts`), because a file may have come with a
//! clone.
//!
//! A new key of the file must be decided here: the patterns name every field.

use ctx_session::project::{Compaction, Delegate};
use ctx_session::record::Redact;

use ctx_cage::Net;

use super::spec::{Cage, Git, Given, Host, McpServer, Plays, Primary, ProjectSpec, Subagent};

/// Tools that a policy without rules allows: a rule that allows one of these grants nothing.
const ALLOWED_ANYWAY: [&str; 8] =
    ["fs.read", "fs.list", "fs.stat", "fs.search", "output.read", "checkpoint", "todo", "issue"];

/// One line for each grant, for a person to read. Empty: the file needs no agreement.
pub fn grants(spec: &ProjectSpec) -> Vec<String> {
    // A limit of runs takes away and grants nothing.
    let ProjectSpec { project: _, primary, subagents, policy, mcp, hosts, limits: _, cage } = spec;
    let mut found = Vec::new();
    found.extend(policy.iter().filter(|line| is_grant(line)).map(|line| format!("policy: {line}")));
    for (name, server) in mcp {
        found.extend(mcp_grants(name.as_str(), server));
    }
    for (name, Host { ssh, policy }) in hosts {
        found.push(format!("hosts: runs commands on {ssh} as host {name}"));
        let grants = policy.iter().filter(|line| is_grant(line));
        found.extend(grants.map(|line| format!("policy of host {name}: {line}")));
    }
    let Primary { name: _, model: _, prompt: _, tools: _, compaction, max_steps: _, redact } = primary;
    if *redact == Some(Redact::Off) {
        found.push("redact: secrets are shown as they are".to_owned());
    }
    let Compaction { upper: _, lower: _, strategy: _, delegate } = compaction;
    match delegate {
        Some(Delegate::Command(command)) => found.push(format!("delegate: runs {}", words(command))),
        Some(Delegate::Subagent(name)) => {
            found.push(format!("delegate: subagent {name} gets the conversation"))
        }
        None => {}
    }
    found.extend(cage_grant(cage).map(|grant| format!("cage: {grant}")));
    for (name, Subagent { plays, terminal: _, cage }) in subagents {
        match plays {
            Plays::Acp { command } => found.push(format!("acp: runs {} as subagent {name}", words(command))),
            Plays::Model { .. } => {}
        }
        found.extend(cage_grant(cage).map(|grant| format!("cage of subagent {name}: {grant}")));
    }
    found
}

/// A server, what of the owner's shell it is given, and what its cage has.
fn mcp_grants(name: &str, server: &McpServer) -> Vec<String> {
    let McpServer { command, url, env, headers, cage } = server;
    let mut found = vec![match url {
        Some(url) => format!("mcp: sends to {url} as server {name}"),
        None => format!("mcp: runs {} as server {name}", words(command)),
    }];
    for (what, given) in env.iter().chain(headers) {
        if let Given::FromEnv { from_env, .. } = given {
            found.push(format!("mcp: gives ${from_env} of your shell to server {name}, as {what}"));
        }
    }
    found.extend(cage_grant(cage).map(|grant| format!("cage of server {name}: {grant}")));
    found
}

fn is_grant(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("allow") && words.next().is_none_or(|tool| !ALLOWED_ANYWAY.contains(&tool))
}

fn cage_grant(cage: &Cage) -> Option<String> {
    let Cage { net, memory_bytes, walltime_ms, processes, tmp_bytes, mounts, path, env, git } = cage;
    let mut parts = Vec::new();
    match net {
        Some(Net::Host) => parts.push("the network of this machine".to_owned()),
        Some(Net::None) => parts.push("no network".to_owned()),
        None => {}
    }
    parts.extend(memory_bytes.map(|bytes| format!("{bytes} bytes of memory")));
    parts.extend(walltime_ms.map(|ms| format!("{ms} ms of time")));
    parts.extend(processes.map(|count| format!("{count} processes")));
    parts.extend(tmp_bytes.map(|bytes| format!("{bytes} bytes of /tmp")));
    let shown = |mount: &ctx_cage::Mount| format!("{} at {}", mount.source.display(), mount.target.display());
    parts.extend(mounts.iter().map(|mount| format!("the files of {}", shown(mount))));
    parts.extend(path.iter().map(|dir| format!("programs of {dir} before others")));
    parts.extend(env.iter().map(|(name, value)| format!("{name}={value}")));
    match git {
        Some(Git::Rw) => parts.push("changes to .git".to_owned()),
        Some(Git::Ro) => parts.push("no changes to .git".to_owned()),
        None => {}
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn words(command: &[String]) -> String {
    format!("`{}`", command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::parse;

    fn of(text: &str) -> Vec<String> {
        let text = format!("version: 1\nproject: p\nprimary: {{model: main}}\n{text}");
        grants(&parse(&text).unwrap().spec)
    }

    #[test]
    fn what_only_restricts_or_describes_needs_no_agreement() {
        assert_eq!(of(""), Vec::<String>::new());
        assert_eq!(
            of(
                "policy: [deny fs.read *.env, ask shell.exec, allow fs.read, allow todo]\nlimits: {running_per_project: 2}\nsubagents: {helper: {model: main}}"
            ),
            Vec::<String>::new()
        );
    }

    #[test]
    fn each_grant_has_its_line() {
        let found = of(
            "policy: [allow shell.exec cargo *, allow fs.*]\nmcp: {gh: {command: [gh-mcp, --all], env: {A: {from_env: B}}, cage: {net: host}}, web: {url: 'https://x/mcp'}}\nsubagents: {c: {acp: [codex-acp], cage: {net: host}}}\nhosts: {build: {ssh: ci@build, policy: [allow shell.exec make*, deny shell.exec rm*]}}",
        );
        assert_eq!(
            found,
            [
                "policy: allow shell.exec cargo *",
                "policy: allow fs.*",
                "mcp: runs `gh-mcp --all` as server gh",
                "mcp: gives $B of your shell to server gh, as A",
                "cage of server gh: the network of this machine",
                "mcp: sends to https://x/mcp as server web",
                "hosts: runs commands on ci@build as host build",
                "policy of host build: allow shell.exec make*",
                "acp: runs `codex-acp` as subagent c",
                "cage of subagent c: the network of this machine",
            ]
        );
    }
}
