//! `ctx serve --install`: a unit of systemd's user manager that keeps the daemon running.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::root::{Root, xdg};
use crate::{output, question};

const UNIT: &str = "ctx.service";

/// Writes the unit, lets systemd read it, and offers to keep it running without a login.
pub fn run(root: &Root, options: &[OsString]) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::io("the path of this program", error))?;
    let dir = xdg("XDG_CONFIG_HOME", ".config")?.join("systemd/user");
    let path = dir.join(UNIT);
    std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(&path, unit(&program, &root.path, options)))
        .map_err(|error| Failure::io(path.display(), error))?;
    output::say(format_args!("wrote {}", path.display()));
    let enabled = succeeds("systemctl", &["--user", "daemon-reload"])
        && succeeds("systemctl", &["--user", "enable", UNIT]);
    if !enabled {
        output::say(
            "systemd does not answer; when it does: systemctl --user daemon-reload && systemctl --user enable --now ctx",
        );
        return Ok(());
    }
    output::say(
        "the daemon starts with your next login; to start it now: ctx stop; systemctl --user start ctx",
    );
    linger()
}

/// A user's units end with the last login, unless the user lingers.
fn linger() -> Result<(), Failure> {
    let hint = "loginctl enable-linger keeps it running while you are logged out";
    if !std::io::stdin().is_terminal() {
        output::say(hint);
        return Ok(());
    }
    if !question::is_yes("Keep it running while you are logged out?")? {
        output::say(hint);
    } else if !succeeds("loginctl", &["enable-linger"]) {
        output::say("loginctl enable-linger failed; an administrator may have to run it");
    }
    Ok(())
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Only the daemon itself is ended with the unit: what it holds beyond its own life must stay. `Delegate` gives it the
/// cgroup in which it makes those of its cages.
fn unit(program: &Path, root: &Path, options: &[OsString]) -> String {
    let options: String = options.iter().map(|option| format!(" {}", word(option))).collect();
    format!(
        "[Unit]\n\
         Description=ctx, durable sessions for coding agents\n\
         \n\
         [Service]\n\
         ExecStart={} serve --root {}{options}\n\
         KillMode=process\n\
         Delegate=yes\n\
         Restart=on-failure\n\
         # The root has another daemon.\n\
         RestartPreventExitStatus=69\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        word(program.as_os_str()),
        word(root.as_os_str()),
    )
}

/// A word as systemd reads it: quoted where it has to be, with `%` and `$` as they are.
fn word(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('%', "%%").replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_one_word() {
        let unit =
            unit(Path::new("/opt/my ctx/ctx"), Path::new("/r%t"), &["--workspace".into(), "/w$\"".into()]);
        assert!(
            unit.contains("ExecStart=\"/opt/my ctx/ctx\" serve --root \"/r%%t\" --workspace \"/w$$\\\"\"\n"),
            "{unit}"
        );
    }
}
