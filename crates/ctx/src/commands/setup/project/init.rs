//! `ctx project init`: writes a project file and its prompt where there are none.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use ctx_agent::project::{PROJECT_FILE, template};
use ctx_session::{Code, Name};

use crate::failure::Failure;
use crate::output;

pub fn run(directory: &Path, name: Option<&str>, json: bool) -> Result<(), Failure> {
    if !directory.is_dir() {
        let message = format!("no directory {}", directory.display());
        return Err(Failure::new(Code::Enoent, message).hint("create it first"));
    }
    let name = match name {
        Some(name) => Name::new(name)
            .map_err(|rule| Failure::new(Code::Einval, format!("`{name}` cannot be a project: {rule}")))?,
        None => name_of(&super::whole(directory)?)?,
    };
    let file = directory.join(PROJECT_FILE);
    if file.symlink_metadata().is_ok() {
        let message = format!("{} already exists", file.display());
        return Err(Failure::new(Code::Eexist, message).hint("`ctx project check` validates it"));
    }
    // The prompt first: a project file that names one that is not there would be wrong.
    let prompt = directory.join(template::PROMPT_FILE);
    match write_new(&prompt, &template::prompt(&name)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            output::say(format_args!("{} exists and was not changed", prompt.display()));
        }
        written => written.map_err(|error| Failure::io(prompt.display(), error))?,
    }
    write_new(&file, &template::project_file(&name)).map_err(|error| Failure::io(file.display(), error))?;
    if json {
        return output::json(&serde_json::json!({ "project": name, "file": file, "prompt": prompt }));
    }
    writeln!(std::io::stdout(), "{}", file.display())?;
    output::say(format_args!("created project {name}; edit the file, then run `ctx project add`"));
    Ok(())
}

/// Makes a file and the directories it is in; one that is there is left alone.
fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).create(dir)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// What a directory is called, with what a name may not hold taken out.
fn name_of(directory: &Path) -> Result<Name, Failure> {
    let last = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let plain: String = last.chars().map(|c| if fits(c) { c } else { '-' }).take(64).collect();
    let plain = plain.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    Name::new(plain).map_err(|_| {
        Failure::new(Code::Einval, format!("{} cannot be used as a name", directory.display()))
            .hint("pass a name with --name")
    })
}
