//! A user's own tools: every executable in `home/<uid>/tool/`. It is given the arguments as JSON on stdin and runs in the
//! agent's cage, as any command of the agent does; what `NAME.d/` beside it says of it is for the model.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_cage::rights::Rights;
use ctx_host::ExecRequest;
use ctx_session::{Code, Name};
use serde_json::{Value, json};

use super::shell::{shells, shown};
use super::{Plan, Scope, Tool, ToolError, Tools, Work};
use crate::control::policy::Effects;
use crate::model::ToolSpec;
use crate::project::TOOLS;

/// Where a cage shows the owner's tools.
pub const IN_CAGE: &str = "/opt/ctx/tool";
/// More than this are not offered: each is told to the model at every call.
const TOOLS_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// One of a user's tools.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnTool {
    name: Name,
    description: String,
    /// Its schema, or what is wrong with it.
    schema: Result<Value, String>,
    dir: PathBuf,
}

/// Where a user keeps tools.
pub fn dir_of(root: &Path, uid: u32) -> PathBuf {
    root.join(format!("home/{uid}/tool"))
}

/// The tools of a user, in order of name. They are looked for with the user's rights.
pub fn find(root: &Path, uid: u32, rights: &Rights) -> Vec<OwnTool> {
    let dir = dir_of(root, uid);
    let found = rights.act(|| {
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut names: Vec<Name> = entries
            .filter(|entry| {
                // A link is followed: whatever it leads to runs in the cage, as its user.
                let data = std::fs::metadata(entry.path());
                data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
            })
            .filter_map(|entry| Name::new(entry.file_name().to_str()?).ok())
            .filter(|name| !TOOLS.contains(&name.as_str()))
            .collect();
        names.sort();
        names.truncate(TOOLS_MAX);
        names.into_iter().map(|name| OwnTool::read(&dir, name)).collect()
    });
    found.unwrap_or_default()
}

impl OwnTool {
    fn read(dir: &Path, name: Name) -> OwnTool {
        let of = |file: &str| text_of(&dir.join(format!("{name}.d")).join(file));
        let about = of("description").map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let description = about.unwrap_or_else(|| format!("A program of the operator's: {name}."));
        let schema = match of("schema") {
            None => Ok(json!({"type": "object"})),
            Some(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(schema)) => Ok(Value::Object(schema)),
                Ok(_) => Err(format!("tool/{name}.d/schema:1:1: a JSON object is wanted")),
                Err(error) => {
                    Err(format!("tool/{name}.d/schema:{}:{}: {error}", error.line(), error.column()))
                }
            },
        };
        OwnTool { name, description, schema, dir: dir.to_owned() }
    }

    pub fn schema(&self) -> &Result<Value, String> {
        &self.schema
    }
}

/// A small text file, and no pipe.
fn text_of(path: &Path) -> Option<String> {
    let data = std::fs::metadata(path).ok().filter(|data| data.is_file() && data.len() <= FILE_BYTES_MAX)?;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(data.len()).read_to_string(&mut text).ok()?;
    Some(text)
}

impl Tools {
    /// And those of the session's owner; none takes the name of another.
    #[must_use]
    pub fn and_own(mut self, own: &[OwnTool]) -> Tools {
        for tool in own {
            if !self.tools.iter().any(|other| other.name() == tool.name.as_str()) {
                self.tools.push(Arc::new(tool.clone()));
            }
        }
        self
    }
}

impl Tool for OwnTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_string(),
            description: self.description.clone(),
            schema: self.schema.clone().unwrap_or_else(|_| json!({"type": "object"})),
        }
    }

    fn is_own(&self) -> bool {
        true
    }

    fn effects(&self) -> Effects {
        Effects::Some
    }

    /// The program checks the arguments itself; a policy sees them as they are.
    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        if let Err(problem) = &self.schema {
            return Err(ToolError::new(Code::Ebadmsg, format!("{problem}; the operator has to mend it")));
        }
        if !input.is_object() {
            let message = format!("bad arguments for {}: an object is wanted", self.name);
            return Err(ToolError::new(Code::Einval, message));
        }
        let text = input.to_string();
        let (tool, scope, name) = (self.dir.join(self.name.as_str()), Arc::clone(scope), self.name.clone());
        let subjects = vec![text.clone()];
        let work = async move {
            let want = scope.shell.want.as_ref().map_err(Clone::clone)?;
            let program = match want.cage {
                Some(_) => format!("{IN_CAGE}/{name}"),
                None => tool.display().to_string(),
            };
            let request = ExecRequest {
                command: format!("'{}'", program.replace('\'', "'\\''")),
                budget: None,
                timeout: None,
                stdin: Some(text.into_bytes()),
                merge: false,
            };
            let result = shells(&scope)?.exec(scope.shell.key, want, request).await?;
            match result.exit_code {
                0 => Ok(super::Output { text: result.stdout.clone(), ..shown(&result) }),
                _ => Err(ToolError::new(Code::Eio, shown(&result).text)),
            }
        };
        Ok(Plan::new(subjects, Work::Do(Box::pin(work))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::OWN;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn executables_are_tools_and_their_control_files_describe_them() {
        let root = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let dir = dir_of(root.path(), uid);
        std::fs::create_dir_all(dir.join("sum.d")).unwrap();
        std::fs::create_dir_all(dir.join("bad.d")).unwrap();
        for (name, mode) in
            [("sum", 0o755), ("bad", 0o755), ("notes.txt", 0o644), ("fs.read", 0o755), ("-x", 0o755)]
        {
            let mut open = std::fs::OpenOptions::new();
            open.create(true).write(true).mode(mode).open(dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("sum.d/description"), "Adds.\n").unwrap();
        std::fs::write(dir.join("sum.d/schema"), r#"{"type":"object","required":["a"]}"#).unwrap();
        std::fs::write(dir.join("bad.d/schema"), "{\n  oh\n").unwrap();
        let found = find(root.path(), uid, &Rights::own());
        let names: Vec<String> = found.iter().map(|tool| tool.name()).collect();
        assert_eq!(names, ["bad", "sum"], "neither a file that is none nor one with a name of ours");
        assert!(found[0].schema.as_ref().unwrap_err().starts_with("tool/bad.d/schema:2:"));
        assert_eq!(
            (found[1].description.as_str(), &found[1].spec().schema["required"][0]),
            ("Adds.", &json!("a"))
        );
        let tools = Tools::all().and_own(&found);
        assert!(tools.get("sum").is_ok());
        let only = Tools::all().and_own(&found).only(Some(&["fs.read".to_owned()]));
        assert!(only.get("sum").is_err());
        let own = Tools::all().and_own(&found).only(Some(&[OWN.to_owned()]));
        assert!(own.get("sum").is_ok() && own.get("fs.read").is_err());
    }
}
