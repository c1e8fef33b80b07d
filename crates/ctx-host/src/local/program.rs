//! The program of a shell: which it is, and how it is run.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ctx_cage::find;

use super::super::error::ShellError;
use super::super::frame::Dialect;

#[derive(Debug, Clone)]
pub(super) struct Program {
    pub path: PathBuf,
    pub dialect: Dialect,
    /// The `setsid` program, where there is one: it detaches the shell from any terminal.
    pub setsid: Option<PathBuf>,
}

impl Program {
    /// The operator's shell program, or bash, or else sh.
    pub fn new(named: Option<&Path>, path: &OsStr) -> Result<Program, ShellError> {
        let found = match named {
            Some(named) => {
                find(named, path).ok_or_else(|| ShellError::NoProgram { path: named.to_owned() })?
            }
            None => find("bash", path).or_else(|| find("sh", path)).ok_or(ShellError::NoInterpreter)?,
        };
        let dialect = if is_bash(&found) { Dialect::Bash } else { Dialect::Posix };
        Ok(Program { path: found, dialect, setsid: find("setsid", path) })
    }

    /// What the shell is started with.
    pub fn args(&self) -> &'static [&'static str] {
        match self.dialect {
            // Named as a script, not read as stdin: a bash whose script is its stdin crashes when a command
            // copies descriptor 0 and closes the copy.
            Dialect::Bash => &["--norc", "--noprofile", "/dev/stdin"],
            Dialect::Posix => &[],
        }
    }
}

/// A program and its arguments, which no terminal and no signal to a group reaches.
pub(super) fn in_own_session(setsid: Option<&Path>, words: Vec<OsString>) -> Command {
    let mut words = setsid.map(OsString::from).into_iter().chain(words);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    if setsid.is_none() {
        command.process_group(0);
    }
    command
}

/// Whether a program is bash, under whatever name: on some systems `sh` is. Other names are asked.
fn is_bash(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if matches!(name, "bash" | "dash") {
        return name == "bash";
    }
    let mut command = Command::new(program);
    command
        .args(["-c", "printf %s \"${BASH_VERSION-}\""])
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command.output().is_ok_and(|said| said.status.success() && !said.stdout.is_empty())
}
