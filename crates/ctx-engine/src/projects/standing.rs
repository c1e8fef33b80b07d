//! Where every project stands: ready, or invalid and why. Derived from the files each time they are looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use ctx_journal::Owner;
use ctx_session::Name;
use ctx_session::project::{Entry, Problem};

use crate::port::{Look, Plain, ProjectFile, ProjectFiles, ShownAgent, Whose};

/// A registered project and what its files say.
#[derive(Clone)]
pub(crate) struct Standing {
    pub entry: Entry,
    pub found: Result<Arc<ProjectFile>, Vec<Problem>>,
    /// The files as they last were right: what the project's agent goes on as.
    pub last: Option<Arc<ProjectFile>>,
    /// The project's own limit, as its file last said it.
    pub running_per_project: Option<u32>,
}

impl Standing {
    /// The agent, also while the project is invalid.
    pub fn agent(&self) -> Option<&Name> {
        self.last.as_ref().map(|file| &file.agent)
    }

    fn status(&self) -> String {
        match &self.found {
            Ok(_) => "ready".to_owned(),
            Err(problems) => {
                format!("invalid {}", problems.first().map(ToString::to_string).unwrap_or_default())
            }
        }
    }
}

/// Looks at every project again. `before`: how each last was right. The one that was registered first has a name that two
/// want.
pub(crate) fn look_at_all(
    registered: Vec<(Name, Entry)>,
    before: &BTreeMap<Name, Arc<ProjectFile>>,
    files: &dyn ProjectFiles,
    whose: impl Fn(u32) -> Whose,
) -> BTreeMap<Name, Standing> {
    let mut registered = registered;
    registered.sort_by(|(a, first), (b, second)| (first.added_at, a).cmp(&(second.added_at, b)));
    let mut standings = BTreeMap::new();
    let mut taken: BTreeMap<Name, Taken> = BTreeMap::new();
    let mut plain = None;
    for (slug, entry) in registered {
        let Look { found, .. } = look(files, &slug, &entry, whose(entry.owner), &mut plain);
        // Others' projects do not exist for a user; the daemon's own sees all.
        let sees = |owner: u32| owner == entry.owner || whose(entry.owner) == Whose::Daemon;
        let found = found.and_then(|file| match clash(&slug, &file, &taken, sees, files) {
            Some(problem) => Err(vec![problem]),
            None => Ok(file),
        });
        let last = found.as_ref().ok().or_else(|| before.get(&slug)).cloned();
        // A project that is invalid for the moment keeps its agent's name.
        if let Some(file) = &last {
            let by = || Taken { project: slug.clone(), owner: entry.owner };
            taken.entry(file.agent.clone()).or_insert_with(by);
        }
        let running_per_project = last.as_ref().and_then(|file| file.running_per_project);
        standings.insert(slug, Standing { entry, found, last, running_per_project });
    }
    standings
}

/// Looks at one project. One that needs no file is described without it, also when the file is another project's; `plain`
/// keeps how, for the next.
pub(crate) fn look(
    files: &dyn ProjectFiles,
    slug: &Name,
    entry: &Entry,
    whose: Whose,
    plain: &mut Option<Result<Arc<Plain>, Vec<Problem>>>,
) -> Look {
    let look = files.look(&entry.directory, whose);
    let is_other = look.slug.as_ref().is_some_and(|other| other != slug);
    if !entry.plain || !(look.lacks_file || is_other) {
        return look;
    }
    let found = plain.get_or_insert_with(|| files.plain()).clone();
    Look { found: found.map(|plain| Arc::new(ProjectFile::without_file(slug, plain))), ..look }
}

/// Whose an agent's name is.
struct Taken {
    project: Name,
    owner: u32,
}

/// What stands in the way of a file that is right in itself.
fn clash(
    slug: &Name,
    file: &ProjectFile,
    taken: &BTreeMap<Name, Taken>,
    sees: impl Fn(u32) -> bool,
    files: &dyn ProjectFiles,
) -> Option<Problem> {
    if file.slug != *slug {
        let message = format!(
            "this directory is registered as `{slug}`; use that name, or remove the project and add it as `{}`",
            file.slug
        );
        return Some(Problem { message, ..file.slug_at.clone() });
    }
    if let Some(Taken { project, owner }) = taken.get(&file.agent) {
        let message = match sees(*owner) {
            true => format!("the agent `{}` belongs to project {project}; set `primary.name`", file.agent),
            false => format!("the name `{}` is taken; set `primary.name`", file.agent),
        };
        return Some(Problem { message, ..file.agent_at.clone() });
    }
    clash_with_root(file, files)
}

/// What in the root stands in the way of a file that is right in itself: it changes without the file being touched.
pub(crate) fn clash_with_root(file: &ProjectFile, files: &dyn ProjectFiles) -> Option<Problem> {
    if files.is_described(&file.agent) {
        let message =
            format!("an agent `{}` with its own control files exists; set `primary.name`", file.agent);
        return Some(Problem { message, ..file.agent_at.clone() });
    }
    if file.plain.is_some() {
        return None;
    }
    let message = files.lacks_model(&file.model)?;
    Some(Problem { message, ..file.model_at.clone() })
}

/// The agents to show for these.
pub(crate) fn shown(standings: &BTreeMap<Name, Standing>, owner: impl Fn(u32) -> Owner) -> Vec<ShownAgent> {
    let mut agents: Vec<ShownAgent> = standings
        .iter()
        .map(|(slug, standing)| ShownAgent {
            project: slug.clone(),
            owner: owner(standing.entry.owner),
            directory: standing.entry.directory.clone(),
            status: standing.status(),
            file: standing.last.clone(),
        })
        .collect();
    // Of two that want one name, the one that has it is shown.
    agents.retain(|agent| {
        let clashes =
            |other: &Standing| other.found.is_ok() && other.agent() == agent.file.as_ref().map(|f| &f.agent);
        let own = standings.get(&agent.project).is_some_and(|own| own.found.is_ok());
        own || agent.file.is_none() || !standings.values().any(clashes)
    });
    agents
}
