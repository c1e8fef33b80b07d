//! `ctx issue`: creates, lists and changes the issues of a project.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use ctx_api::http::{Criterion, CriterionGiven, Issue, IssueChange, NewIssue};
use ctx_session::issue::IssueStatus;
use ctx_session::project::TodoStatus;
use ctx_session::{Code, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::issues::{self, InProject};
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{table, words};

/// Create, list and change issues
///
/// An issue describes work in a project: a title, criteria that must be met, and todos. A session works on one
/// issue at a time; `ctx bind` chooses it. An issue is never resolved automatically.
///
/// Name an issue by its number in the project, by its id, or by a unique beginning or end of the id. The
/// project is this directory's, unless -p names another.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx issue new 'Dates are wrong in March' --criterion 'the test of leap years passes'
  ctx issue ls
  ctx issue show 1
  ctx issue edit 1 --met 1 --status in_progress
  ctx bind coder 1
  ctx issue resolve 1

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Create an issue and print its number
    New {
        /// What to do, on one line
        #[arg(value_name = "TITLE")]
        title: String,
        #[command(flatten)]
        body: Body,
        /// Condition that must be met before the issue is resolved (repeatable)
        #[arg(long = "criterion", value_name = "TEXT")]
        criteria: Vec<String>,
        #[command(flatten)]
        project: InProject,
        /// Print the issue as JSON
        #[arg(long)]
        json: bool,
    },
    /// List open issues by number
    #[command(alias = "list")]
    Ls {
        /// Also list resolved and closed issues
        #[arg(short, long)]
        all: bool,
        /// Only issues in this status (repeatable)
        #[arg(long = "status", value_name = "STATUS", conflicts_with = "all")]
        statuses: Vec<Status>,
        #[command(flatten)]
        project: InProject,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show an issue with its criteria and todos
    Show(One),
    /// Change an issue; options that are not given change nothing
    Edit {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        edit: Edits,
    },
    /// Close an issue without resolving it
    Close(One),
    /// Mark an issue as resolved
    Resolve(One),
    /// Reopen a resolved or closed issue
    Reopen(One),
}

/// Which issue.
#[derive(Debug, clap::Args)]
struct One {
    /// The issue: its number, its id or the beginning or end of the id
    #[arg(value_name = "ISSUE")]
    issue: String,
    #[command(flatten)]
    project: InProject,
    /// Print the issue as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Edits {
    /// What to do, on one line
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    #[command(flatten)]
    body: Body,
    /// New status
    #[arg(long, value_name = "STATUS")]
    status: Option<Status>,
    /// Add a criterion (repeatable)
    #[arg(long = "criterion", value_name = "TEXT")]
    criteria: Vec<String>,
    /// Mark a criterion as met, by its number (repeatable)
    #[arg(long, value_name = "NUMBER")]
    met: Vec<usize>,
    /// Mark a criterion as not met (repeatable)
    #[arg(long, value_name = "NUMBER")]
    unmet: Vec<usize>,
    /// Remove a criterion (repeatable)
    #[arg(long = "without", value_name = "NUMBER")]
    without: Vec<usize>,
}

/// What an issue says besides its title.
#[derive(Debug, clap::Args)]
struct Body {
    /// Description
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Read the body from a file; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    file: Option<PathBuf>,
}

impl Body {
    fn read(self) -> Result<Option<String>, Failure> {
        match self.file {
            None => Ok(self.body),
            Some(path) if path == Path::new("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::io("stdin", error))?;
                Ok(Some(text))
            }
            Some(path) => std::fs::read_to_string(&path)
                .map(Some)
                .map_err(|error| Failure::io(format!("cannot read {}", path.display()), error)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Status {
    Open,
    InProgress,
    Resolved,
    Closed,
}

impl From<Status> for IssueStatus {
    fn from(status: Status) -> IssueStatus {
        match status {
            Status::Open => IssueStatus::Open,
            Status::InProgress => IssueStatus::InProgress,
            Status::Resolved => IssueStatus::Resolved,
            Status::Closed => IssueStatus::Closed,
        }
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what {
        What::New { title, body, criteria, project, json } => {
            let criteria = criteria.into_iter().map(CriterionGiven::Text).collect();
            let new = NewIssue { title, body: body.read()?.unwrap_or_default(), criteria };
            let made: Issue = api.post_with(&issues::path(&project.name(root)?), &new)?;
            if json {
                return output::json(&made);
            }
            writeln!(std::io::stdout(), "{}", made.number)?;
            Ok(())
        }
        What::Ls { all, statuses, project, json } => {
            let wanted: Vec<IssueStatus> = match statuses.is_empty() {
                true if all => IssueStatus::ALL.to_vec(),
                true => vec![IssueStatus::Open, IssueStatus::InProgress],
                false => statuses.into_iter().map(IssueStatus::from).collect(),
            };
            let mut found = issues::all(&api, &project.name(root)?)?;
            found.retain(|issue| wanted.contains(&issue.status));
            list(&api, &found, json)
        }
        What::Show(one) => {
            let issue = issues::find(&api, &one.project.name(root)?, &one.issue)?;
            if one.json { output::json(&issue) } else { issues::show(&api, &issue) }
        }
        What::Edit { one, edit } => {
            let issue = issues::find(&api, &one.project.name(root)?, &one.issue)?;
            let change = edit.of(&issue)?;
            if change == IssueChange::default() {
                return Err(Failure::new(Code::Einval, "nothing to change")
                    .hint("`ctx issue edit --help` lists what can be changed"));
            }
            apply(&api, &one, &issue, &change, "changed")
        }
        What::Close(one) => go(&api, root, &one, IssueStatus::Closed, "closed"),
        What::Resolve(one) => go(&api, root, &one, IssueStatus::Resolved, "resolved"),
        What::Reopen(one) => go(&api, root, &one, IssueStatus::Open, "open again"),
    }
}

fn go(api: &Api<'_>, root: &Root, one: &One, status: IssueStatus, word: &str) -> Result<(), Failure> {
    let issue = issues::find(api, &one.project.name(root)?, &one.issue)?;
    let change = IssueChange { status: Some(status), ..IssueChange::default() };
    apply(api, one, &issue, &change, word)
}

fn apply(api: &Api<'_>, one: &One, issue: &Issue, change: &IssueChange, word: &str) -> Result<(), Failure> {
    let changed: Issue = api.patch(&format!("/issues/{}", issue.id), change)?;
    if one.json {
        return output::json(&changed);
    }
    output::say(format_args!("#{} is {word}", changed.number));
    Ok(())
}

impl Edits {
    /// What is to change of this issue.
    fn of(self, issue: &Issue) -> Result<IssueChange, Failure> {
        let mut criteria: Vec<Option<Criterion>> = issue.criteria.iter().cloned().map(Some).collect();
        let count = criteria.len();
        let mut change = |numbers: &[usize], how: &dyn Fn(&mut Option<Criterion>)| {
            for number in numbers {
                let found = number.checked_sub(1).and_then(|at| criteria.get_mut(at));
                let found = found.ok_or_else(|| {
                    Failure::new(Code::Enoent, format!("no criterion {number}; the issue has {count}"))
                })?;
                how(found);
            }
            Ok::<(), Failure>(())
        };
        let set =
            |done: bool| move |one: &mut Option<Criterion>| one.iter_mut().for_each(|one| one.done = done);
        change(&self.met, &set(true))?;
        change(&self.unmet, &set(false))?;
        change(&self.without, &|one| *one = None)?;
        let kept = criteria.into_iter().flatten().map(CriterionGiven::Whole);
        let all: Vec<CriterionGiven> =
            kept.chain(self.criteria.iter().cloned().map(CriterionGiven::Text)).collect();
        let touched = [self.met.len(), self.unmet.len(), self.without.len(), self.criteria.len()];
        Ok(IssueChange {
            title: self.title,
            body: self.body.read()?,
            status: self.status.map(IssueStatus::from),
            criteria: touched.iter().any(|count| *count > 0).then_some(all),
        })
    }
}

fn list(api: &Api<'_>, found: &[Issue], json: bool) -> Result<(), Failure> {
    if json {
        return found.iter().try_for_each(output::json);
    }
    if found.is_empty() {
        output::say(
            "no open issues; `ctx issue new` creates one, `ctx issue ls --all` also lists resolved and closed ones",
        );
    }
    let (now, paint) = (words::now(), Paint::for_stdout());
    let rows = found.iter().map(|issue| {
        let status = issue.status.as_str();
        let painted = match issue.status {
            IssueStatus::Open => status.to_owned(),
            IssueStatus::InProgress => paint.yellow(status),
            IssueStatus::Resolved => paint.green(status),
            IssueStatus::Closed => paint.dim(status),
        };
        let counted = issue.todos.iter().filter(|todo| todo.status != TodoStatus::Dropped);
        let done = counted.clone().filter(|todo| todo.status == TodoStatus::Done).count();
        vec![
            table::Cell::new(format!("#{}", issue.number)),
            table::Cell::painted(status, painted),
            table::Cell::new(format!("{done}/{}", counted.count())),
            table::Cell::new(words::age(now, Timestamp::from_millis(issue.updated_at))),
            table::Cell::new(issues::worker(api, issue).unwrap_or_default()),
            table::Cell::new(output::plain(&issue.title)),
        ]
    });
    let head = ["ISSUE", "STATUS", "TODOS", "AGE", "SESSION", "TITLE"];
    let text = table::render(&head, rows.collect(), output::width(), paint);
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
