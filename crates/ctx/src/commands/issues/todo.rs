//! `ctx todo`: lists and changes the todos of an issue.

use clap::Subcommand;
use ctx_api::http::{Issue, List, NewTodo, Session, Todo, TodoChange, TodoOperation};
use ctx_session::issue::TodoOp;
use ctx_session::{Code, IssueId};

use crate::client::Api;
use crate::failure::Failure;
use crate::issues::{self, InProject};
use crate::output;
use crate::root::Root;
use crate::sessions;

/// List or change the todos of an issue
///
/// Works on the issue that a session is bound to, or on the one named with --issue. Name a todo by its number in
/// the list, its text or its id. One todo at a time is in progress; dropped todos stay in the list. Without a
/// subcommand, `ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx todo coder                  todos of the current session's issue
  ctx todo coder add 'write a test that fails'
  ctx todo coder start 1
  ctx todo --issue 3 done 1
  ctx todo --issue 3 note 2 'needs the new parser'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION", default_value = sessions::HERE, hide_default_value = true)]
    session: String,
    /// The issue, instead of a session's: its number, its id or the beginning or end of the id
    #[arg(short, long, value_name = "ISSUE")]
    issue: Option<String>,
    /// The project that --issue belongs to [default: this directory's]
    #[arg(short, long, value_name = "PROJECT", requires = "issue")]
    project: Option<String>,
    /// Print one JSON object per line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the todos
    Ls,
    /// Add a todo
    Add {
        /// What to do, on one line
        text: String,
    },
    /// Mark a todo as in progress; the one before becomes open again
    Start(One),
    /// Mark a todo as done
    Done(One),
    /// Drop a todo; it stays in the list
    Drop(One),
    /// Add a note to a todo
    Note {
        #[command(flatten)]
        one: One,
        /// The note, on one line; it replaces an earlier note
        note: String,
    },
}

/// Which todo.
#[derive(Debug, clap::Args)]
struct One {
    /// The todo: its number in the list, its text or its id
    todo: String,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    let issue = match &args.issue {
        Some(word) => issues::find(&api, &InProject { project: args.project }.name(root)?, word)?.id,
        None => of_session(root, &api, &args.session)?,
    };
    let path = format!("/issues/{issue}/todos");
    let operation = |op| TodoChange::Operation(TodoOperation(op));
    let change = match args.what.unwrap_or(What::Ls) {
        What::Ls => None,
        What::Add { text } => Some(TodoChange::Add(NewTodo { text })),
        What::Start(one) => Some(operation(TodoOp::Start { item: one.todo })),
        What::Done(one) => Some(operation(TodoOp::Done { item: one.todo })),
        What::Drop(one) => Some(operation(TodoOp::Drop { item: one.todo })),
        What::Note { one, note } => Some(operation(TodoOp::Note { item: one.todo, note })),
    };
    let todos: Vec<Todo> = match &change {
        None => api.get::<List<Todo>>(&path)?.items,
        Some(change) => api.post_with::<List<Todo>>(&path, change)?.items,
    };
    if args.json {
        return todos.iter().try_for_each(output::json);
    }
    if todos.is_empty() {
        let issue: Issue = api.get(&format!("/issues/{issue}"))?;
        output::say(format_args!("#{} {} has no todos yet", issue.number, output::plain(&issue.title)));
    }
    issues::write_todos(&mut std::io::stdout().lock(), &todos)
}

/// The issue that a session works on.
fn of_session(root: &Root, api: &Api<'_>, word: &str) -> Result<IssueId, Failure> {
    let id = sessions::find_id(root, word)?;
    let session: Session = api.get(&format!("/sessions/{id}"))?;
    session.bound_issue.ok_or_else(|| {
        Failure::new(Code::Enoent, format!("{} has no issue", sessions::label(&session)))
            .hint("`ctx bind` binds one; --issue names one without a session")
    })
}
