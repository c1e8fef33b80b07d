//! What a shell remembers from one command to the next, and gives to the next interpreter when one has ended.

use std::path::PathBuf;
use std::sync::Arc;

use crate::frame::exports::{self, Export, StartFile, is_variable_name};
use crate::frame::{Dialect, Habits};
use crate::secret_values::SecretValues;
use crate::state::ShellState;
use crate::transport::{Connection, StartPlace};

pub(crate) struct Memory {
    pub habits: Habits,
    /// What `$?` is when the next command starts.
    pub status: i32,
    /// Whether the interpreter may not have read the last command to its end.
    pub misread: bool,
    /// Where the interpreter is.
    pub cwd: PathBuf,
    /// The last report behind its answer. Most reports are the same as the one before.
    pub last_report: Vec<u8>,
    exports: Vec<Export>,
    /// What the shell was made with and does not list: names that are none to it, and functions of bash.
    unlisted: Vec<Export>,
    secret_values: SecretValues,
}

impl Memory {
    pub fn new(place: StartPlace, secret_values: SecretValues) -> Memory {
        let StartPlace { cwd, env } = place;
        Memory {
            habits: Habits::default(),
            status: 0,
            misread: false,
            cwd,
            last_report: Vec::new(),
            unlisted: env.iter().filter(|export| !is_variable_name(&export.name)).cloned().collect(),
            exports: env,
            secret_values,
        }
    }

    /// Reads a command before it runs. The values of secrets that it sets are hidden from now on.
    pub fn read_command(&mut self, command: &str, shared: &ShellState) {
        if self.secret_values.read(command) {
            self.hide_secrets(shared);
        }
    }

    /// Takes over the options and traps of a report; without any, those from before still hold.
    pub fn set_habits(&mut self, reported: Option<Habits>, was_stopped: bool) {
        let before = std::mem::take(&mut self.habits);
        self.habits = match reported {
            Some(habits) if was_stopped => habits.with_debug_trap_of(before),
            Some(habits) => habits,
            None => before,
        };
    }

    /// Takes over the text of `export -p`, which may be incomplete.
    pub fn set_exports(&mut self, text: &[u8], is_incomplete: bool, shared: &ShellState) {
        let Some(mut exports) = exports::parse(text) else { return };
        if is_incomplete {
            // A variable that is not listed stays until the next report says more.
            let listed = |name: &str| exports.iter().any(|export| export.name == name);
            self.exports.retain(|export| !listed(&export.name));
            exports.append(&mut self.exports);
        }
        self.exports = exports;
        if self.secret_values.export(&self.exports) {
            self.hide_secrets(shared);
        }
    }

    fn hide_secrets(&self, shared: &ShellState) {
        let secrets = Arc::new(self.secret_values.secrets());
        shared.status().secrets = secrets;
    }

    /// Forgets what ends with an interpreter: options, traps and the status.
    pub fn interpreter_ended(&mut self) {
        self.habits = Habits::default();
        (self.status, self.misread) = (0, false);
    }

    /// Where the next interpreter starts, and the variables to export in it afterwards.
    pub fn for_restart(
        &self,
        connection: &dyn Connection,
        start_file: StartFile<'_>,
    ) -> (StartPlace, Vec<Export>) {
        let (env, later) = exports::that_fit(self.environment(connection.dialect()), start_file);
        (StartPlace { cwd: connection.nearest_dir(&self.cwd), env }, later)
    }

    fn environment(&self, dialect: Dialect) -> Vec<Export> {
        let mut env = self.exports.clone();
        let is_new = |export: &&Export| !self.exports.iter().any(|other| other.name == export.name);
        env.extend(self.unlisted.iter().filter(is_new).cloned());
        // bash adds one to its depth when it starts, but the new one takes the place of the old.
        for export in env.iter_mut().filter(|export| export.name == "SHLVL" && dialect == Dialect::Bash) {
            let level = std::str::from_utf8(&export.value).ok().and_then(|text| text.parse::<i64>().ok());
            if let Some(level) = level {
                export.value = (level - 1).to_string().into_bytes();
            }
        }
        env
    }
}
