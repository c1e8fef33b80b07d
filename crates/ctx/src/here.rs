//! The directory that a client is in: which project it belongs to, and which agent that project has.
//!
//! `locate` looks at the directories; the daemon does it with the rights of the client's user. Commands that need no
//! daemon find the agent in the tree; those that talk to one ask the daemon, which registers a new directory.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ctx_agent::control::mount::Mount;
use ctx_agent::project::{McpServer, PROJECT_FILE, WORK, directory_of, parse, shown_for};
use ctx_api::http::{NewProject, Project, ProjectTrust};
use ctx_engine::port::{By, Never, ProjectDir};
use ctx_session::project::DEFAULT_PROJECT;
use ctx_session::{Code, Name};
use nix::unistd::User;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::sessions::{DEFAULT_AGENT, own_uid};
use crate::{output, question};

/// The project of a directory, which is whole and without links. What others have put into a directory on the way to it
/// does not count: only a file of this user's or of root's does.
pub fn locate(dir: &Path, uid: u32, homes: &[PathBuf], ctx_root: &Path) -> Result<ProjectDir, Never> {
    let never = |dir: &Path| match dir {
        dir if dir.parent().is_none() => Some(Never::Top),
        dir if homes.iter().any(|home| home == dir) => Some(Never::Home),
        dir if dir.starts_with(ctx_root) => Some(Never::CtxRoot),
        _ => None,
    };
    if let Some(never) = never(dir) {
        return Err(never);
    }
    let counts =
        |path: PathBuf| path.symlink_metadata().is_ok_and(|data| data.uid() == uid || data.uid() == 0);
    let has = |dir: &&Path, below: &str| counts(dir.join(below));
    let above = || dir.ancestors().take_while(|dir| never(dir).is_none());
    let by_file = above().find(|dir| has(dir, PROJECT_FILE)).map(|dir| (dir, By::File));
    let by_git = || above().find(|dir| has(dir, ".git")).map(|dir| (dir, By::Git));
    let (found, by) = by_file.or_else(by_git).unwrap_or((dir, By::Itself));
    Ok(ProjectDir { directory: found.to_string_lossy().into_owned(), by })
}

/// The home directories of a user: as the system knows it, and of ourselves also what the environment says.
pub fn homes_of(uid: u32) -> Vec<PathBuf> {
    let known = User::from_uid(uid.into()).ok().flatten().map(|user| user.dir);
    let own = std::env::var_os("HOME").filter(|_| uid == own_uid()).map(PathBuf::from);
    let homes = known.into_iter().chain(own).filter(|home| home.is_absolute());
    homes.filter_map(|home| home.canonicalize().ok()).collect()
}

/// The directory that this command is about, whole and without links.
pub fn dir(given: Option<&Path>) -> Result<String, Failure> {
    let asked = given.unwrap_or(Path::new("."));
    let whole = asked.canonicalize().map_err(|error| Failure::io(asked.display(), error))?;
    if !whole.is_dir() {
        return Err(Failure::new(Code::Einval, format!("{} is not a directory", asked.display())));
    }
    let text = whole.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        Failure::new(Code::Einval, format!("{} is not UTF-8; use another directory", whole.display()))
    })
}

/// The agent of this directory and its project, as far as the tree shows them: a directory that nobody has worked in has
/// none yet.
pub struct Agent {
    pub name: Name,
    pub project: Name,
}

/// The agent of the directory that the command runs in.
pub fn agent(root: &Path) -> Option<Agent> {
    let dir = dir(None).ok()?;
    let ctx_root = root.canonicalize().ok()?;
    let default = || {
        let (name, project) = (Name::new(DEFAULT_AGENT).ok()?, Name::new(DEFAULT_PROJECT).ok()?);
        Some(Agent { name, project })
    };
    let Ok(found) = locate(Path::new(&dir), own_uid(), &homes_of(own_uid()), &ctx_root) else {
        return default();
    };
    if found.is_of_default(&dir, workspace(root).as_deref()) {
        return default();
    }
    let mut of_directory: Vec<(bool, Agent)> = Vec::new();
    for name in ctx_agent::describe::agents(root).ok()? {
        if let Some((directory, plain)) = directory_of(root, &name)
            && directory == found.directory
            && let Some(project) = shown_for(root, &name)
        {
            of_directory.push((plain, Agent { name, project }));
        }
    }
    of_directory.sort_by_key(|(plain, _)| *plain == (found.by == By::File));
    of_directory.into_iter().next().map(|(_, agent)| agent)
}

/// The MCP servers that this directory's project file names; none where there is no such file, or it is wrong.
pub fn mcp_servers(root: &Path) -> BTreeMap<Name, McpServer> {
    let found = || {
        let dir = dir(None).ok()?;
        let ctx_root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let found = locate(Path::new(&dir), own_uid(), &homes_of(own_uid()), &ctx_root).ok()?;
        let text = std::fs::read_to_string(Path::new(&found.directory).join(PROJECT_FILE)).ok()?;
        Some(parse(&text).ok()?.spec.mcp)
    };
    found().unwrap_or_default()
}

/// The directory of the project `default`, as the mount table of its agent has it.
fn workspace(root: &Path) -> Option<String> {
    let table = std::fs::read_to_string(root.join(format!("agent/{DEFAULT_AGENT}.d/mount"))).ok()?;
    let mounts = table.lines().filter_map(|line| Mount::parse(line).ok());
    let work = mounts.into_iter().find(|mount| mount.target == Path::new(WORK))?;
    work.source.to_str().map(str::to_owned)
}

/// The project of a directory, from the daemon; warnings are printed.
pub fn project(root: &Root, dir: &str) -> Result<Project, Failure> {
    let found = project_quietly(root, dir)?;
    found.warnings.iter().for_each(output::say);
    Ok(found)
}

/// The same without the warnings. A file that grants something is agreed to at the terminal; who does not agree can
/// still go on in sessions that are there.
pub fn project_quietly(root: &Root, dir: &str) -> Result<Project, Failure> {
    let api = Api::new(root);
    let ask = NewProject { dir: Some(dir.to_owned()), ..NewProject::default() };
    let found: Project = api.post_with("/projects", &ask)?;
    if !found.trusted && !found.grants.is_empty() && output::is_person_there() {
        agree(&api, &found)?;
    }
    Ok(found)
}

/// Shows what a project file grants and asks; whether the operator agreed.
pub fn agree(api: &Api<'_>, project: &Project) -> Result<bool, Failure> {
    output::say(format_args!(
        "the project file in {} grants its agent:",
        output::one_line(&project.directory)
    ));
    for grant in &project.grants {
        output::say(format_args!("  {}", output::one_line(grant)));
    }
    if !question::is_yes("Do you trust this file?")? {
        return Ok(false);
    }
    let trust = ProjectTrust { hash: project.dsl_hash.clone() };
    let _: Project = api.post_with(&format!("/projects/{}/trust", project.id), &trust)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_then_the_work_tree_then_the_directory_itself() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let make = |below: &str| {
            let dir = top.join(below);
            std::fs::create_dir_all(&dir).unwrap();
            dir
        };
        let home = make("home");
        make("home/.git");
        let deep = make("home/repo/src/deep");
        make("home/repo/.git");
        let loose = make("home/loose");
        let root = make("home/ctx");
        let inside = make("home/ctx/home/1000");
        let uid = own_uid();
        let at = |dir: &Path| locate(dir, uid, std::slice::from_ref(&home), &root);
        let found = |dir: &Path, by| Ok(ProjectDir { directory: dir.to_str().unwrap().to_owned(), by });
        assert_eq!(at(&deep), found(&top.join("home/repo"), By::Git));
        assert_eq!(at(&loose), found(&loose, By::Itself), "a work tree that is the home is none");
        make("home/repo/src/.ctx");
        std::fs::write(top.join("home/repo/src/.ctx/project.yaml"), "").unwrap();
        assert_eq!(at(&deep), found(&top.join("home/repo/src"), By::File));
        assert_eq!(at(&home), Err(Never::Home));
        assert_eq!(at(Path::new("/")), Err(Never::Top));
        assert_eq!(at(&inside), Err(Never::CtxRoot));
        assert_eq!(
            locate(&deep, uid + 1, &[], &root),
            if uid == 0 { at(&deep) } else { found(&deep, By::Itself) }
        );
    }
}
