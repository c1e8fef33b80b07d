//! Shells in a running container, by `exec -i` of docker or podman.

use std::ffi::OsString;

use super::{RemoteConfig, checked_name, is_allowed};
use crate::error::ShellError;

/// A container that may be gone into.
#[derive(Debug)]
pub(super) struct Container {
    pub name: String,
}

impl Container {
    pub fn new(name: &str, config: &RemoteConfig) -> Result<Container, ShellError> {
        checked_name("container", name, |c| c.is_ascii_alphanumeric() || "._-".contains(c))?;
        if !is_allowed(config.containers.as_deref(), name) {
            return Err(ShellError::Denied {
                message: format!("the operator does not allow the container `{name}` ([shells] containers)"),
            });
        }
        Ok(Container { name: name.to_owned() })
    }

    /// What asks the engine whether the container runs.
    pub fn question(&self) -> Vec<OsString> {
        let words = ["container", "inspect", "--format", "{{.State.Running}}", "--", &self.name];
        words.map(OsString::from).into()
    }

    /// What the answer says.
    pub fn is_running(&self, succeeded: bool, said: &str, complaint: &str) -> Result<(), ShellError> {
        let name = &self.name;
        match (succeeded, said.trim()) {
            (true, "true") => Ok(()),
            (true, _) => Err(ShellError::Unreachable {
                message: format!("the container `{name}` does not run: start it first"),
            }),
            (false, _) if complaint.to_lowercase().contains("no such") => {
                Err(ShellError::Unreachable { message: format!("there is no container `{name}`") })
            }
            (false, _) => Err(super::unreachable(&format!("container `{name}`"), complaint)),
        }
    }

    pub fn channel(&self, command: &str) -> Vec<OsString> {
        ["exec", "-i", &self.name, "sh", "-c", command].map(OsString::from).into()
    }

    pub fn failure(&self, said: &str) -> ShellError {
        super::unreachable(&format!("container `{}`", self.name), said)
    }
}
