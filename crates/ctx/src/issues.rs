//! Finds the issue that the user names (a number in a project, an id or the beginning or end of an id), and formats issues.

use std::io::Write;

use ctx_api::http::{Issue, List, Session, Todo};
use ctx_session::project::TodoStatus;
use ctx_session::{Code, IssueId, Name, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{here, ids, sessions, words};

/// Whose issues.
#[derive(Debug, Clone, clap::Args)]
pub struct InProject {
    /// The project that the issue belongs to [default: this directory's]
    #[arg(short, long, value_name = "PROJECT")]
    pub project: Option<String>,
}

impl InProject {
    /// The project that was named, else this directory's. A directory that nobody has worked in becomes a project.
    pub fn name(&self, root: &Root) -> Result<Name, Failure> {
        if let Some(word) = &self.project {
            return Name::new(word).map_err(|rule| {
                Failure::new(Code::Einval, format!("`{word}` is not a project's name: {rule}"))
            });
        }
        match here::agent(&root.path) {
            Some(agent) => Ok(agent.project),
            None => Ok(here::project(root, &here::dir(None)?)?.id),
        }
    }
}

/// Where the issues of a project are.
pub fn path(project: &Name) -> String {
    format!("/projects/{project}/issues")
}

/// Every issue of a project, page by page.
pub fn all(api: &Api<'_>, project: &Name) -> Result<Vec<Issue>, Failure> {
    let path = path(project);
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: List<Issue> = api.get(&format!("{path}?limit=1000{cursor}"))?;
        all.extend(page.items);
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(all),
        }
    }
}

/// The issue that a word means: a number, with or without `#`, an id, or the beginning of one.
pub fn find(api: &Api<'_>, project: &Name, word: &str) -> Result<Issue, Failure> {
    if let Ok(id) = word.parse::<IssueId>() {
        return api.get(&format!("/issues/{id}"));
    }
    let not_there = || {
        Failure::new(Code::Enoent, format!("no issue {word} in {project}"))
            .hint("`ctx issue ls --all` lists them; -p names another project")
    };
    if let Ok(number) = word.trim_start_matches('#').parse::<u64>() {
        // The page that begins with it.
        let before = number.saturating_sub(1);
        let page: List<Issue> = api.get(&format!("{}?limit=1&cursor={before}", path(project)))?;
        let found = page.items.into_iter().next().filter(|issue| issue.number == number);
        return found.ok_or_else(not_there);
    }
    let hint = "`ctx issue ls --all` lists them; -p names another project";
    ids::one(all(api, project)?, |issue| issue.id.to_string(), word, ("issue", hint))
}

fn mark(status: TodoStatus, paint: Paint) -> String {
    match status {
        TodoStatus::Open => "[ ]".to_owned(),
        TodoStatus::InProgress => paint.yellow("[>]"),
        TodoStatus::Done => paint.green("[x]"),
        TodoStatus::Dropped => paint.dim("[-]"),
    }
}

/// The todos, a line each, numbered as `ctx todo` takes them.
pub fn write_todos(out: &mut impl Write, todos: &[Todo]) -> Result<(), Failure> {
    let paint = Paint::for_stdout();
    for (at, todo) in todos.iter().enumerate() {
        let note = todo.note.as_deref().map(|note| format!(" ({})", output::plain(note))).unwrap_or_default();
        writeln!(out, "{}. {} {}{note}", at + 1, mark(todo.status, paint), output::plain(&todo.text))?;
    }
    Ok(())
}

/// The session that works on an issue, as a person names it.
pub fn worker(api: &Api<'_>, issue: &Issue) -> Option<String> {
    let id = issue.session_id?;
    let session = api.get::<Session>(&format!("/sessions/{id}"));
    Some(session.map_or_else(|_| id.to_string(), |session| sessions::label(&session)))
}

/// All of an issue, for a person.
pub fn show(api: &Api<'_>, issue: &Issue) -> Result<(), Failure> {
    let paint = Paint::for_stdout();
    let mut out = output::stdout();
    let date = |millis: u64| words::date_time(Timestamp::from_millis(millis));
    writeln!(out, "{}", paint.bold(&format!("#{} {}", issue.number, output::plain(&issue.title))))?;
    writeln!(out, "id       {}", issue.id)?;
    writeln!(out, "project  {}", issue.project)?;
    writeln!(out, "status   {}", issue.status.as_str())?;
    if let Some(session) = worker(api, issue) {
        writeln!(out, "session  {session}")?;
    }
    writeln!(out, "made     {}", date(issue.created_at))?;
    writeln!(out, "changed  {}", date(issue.updated_at))?;
    if !issue.body.trim().is_empty() {
        writeln!(out, "\n{}", output::plain(issue.body.trim_end()))?;
    }
    if !issue.criteria.is_empty() {
        writeln!(out, "\nacceptance criteria")?;
    }
    for (at, criterion) in issue.criteria.iter().enumerate() {
        let mark = if criterion.done { paint.green("[x]") } else { "[ ]".to_owned() };
        writeln!(out, "{}. {mark} {}", at + 1, output::plain(&criterion.text))?;
    }
    if !issue.todos.is_empty() {
        writeln!(out, "\ntodos")?;
        write_todos(&mut out, &issue.todos)?;
    }
    out.flush()?;
    Ok(())
}
