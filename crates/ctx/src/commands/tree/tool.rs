//! `ctx tool`: the tools of the tree, and a user's own.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ctx_agent::object::can_be_run;
use ctx_agent::tool::own::{dir_of, find};
use ctx_agent::tool::{Tool, Tools};
use ctx_cage::rights::Rights;
use ctx_session::{Code, Name};
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::sessions;
use crate::table::{self, Cell};

/// What a new tool begins as: it answers with its arguments.
const TEMPLATE: &str = "\
#!/bin/sh
# The arguments come as one JSON object on stdin. What is printed is the result; another exit code than 0 is a failure.
cat
";
const SCHEMA: &str = "{\n  \"type\": \"object\",\n  \"properties\": {}\n}\n";

/// Create a tool of your own, and list tools
///
/// Every executable in home/UID/tool of the root is a tool: your agents are offered it, and call it in their cage as their
/// policy says (they ask first, unless it allows it). NAME.d/description and NAME.d/schema beside it tell the model what it
/// is for and what it takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx tool new count --from ./count.py --description \"Counts lines of a file.\"
  ctx tool ls
  $(ctx which fs.read) '{\"path\":\"README.md\"}'    run one yourself

exit codes: 0 success, 1 failed or there already, 2 bad input, 13 not allowed")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Create a tool of your own
    New {
        /// The tool's new name
        #[arg(value_name = "NAME")]
        name: String,
        /// Program to copy [default: a template for you to edit]
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// What it does, for the model
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The JSON schema of its arguments
        #[arg(long, value_name = "FILE")]
        schema: Option<PathBuf>,
        /// Print the tool as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the tools that agents can have
    #[command(alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    match args.what {
        What::New { name, from, description, schema, json } => {
            let name = super::agent_name(&name)?;
            let read =
                |path: PathBuf| std::fs::read(&path).map_err(|error| Failure::io(path.display(), error));
            let program = from.map(read).transpose()?.unwrap_or_else(|| TEMPLATE.into());
            let schema = schema.map(read).transpose()?;
            let path = new(root, &name, &program, description, schema)?;
            if json {
                return output::json_lines(own(root).filter(|tool| tool.name == name.as_str()));
            }
            let mut out = output::stdout();
            writeln!(out, "{}", path.display())?;
            Ok(out.flush()?)
        }
        What::Ls { json } => list(root, json),
    }
}

fn new(
    root: &Root,
    name: &Name,
    program: &[u8],
    description: Option<String>,
    schema: Option<Vec<u8>>,
) -> Result<PathBuf, Failure> {
    if Tools::all().get(name.as_str()).is_ok() {
        return Err(Failure::new(Code::Eexist, format!("{name} is a tool of ctx; choose another name")));
    }
    let schema = schema.unwrap_or_else(|| SCHEMA.into());
    match serde_json::from_slice::<Value>(&schema) {
        Ok(Value::Object(_)) => {}
        Ok(_) => return Err(Failure::new(Code::Einval, "the schema is no JSON object")),
        Err(error) => return Err(Failure::new(Code::Einval, format!("the schema is no JSON: {error}"))),
    }
    let dir = dir_of(&root.path, sessions::own_uid());
    if !dir.is_dir() {
        return Err(Failure::new(Code::Enoent, format!("{} is not there yet", dir.display()))
            .hint("the daemon makes it for you with your first session: `ctx send hello`"));
    }
    let path = dir.join(name.as_str());
    if path.symlink_metadata().is_ok() {
        return Err(Failure::new(Code::Eexist, format!("{} is there already", path.display())));
    }
    let control = dir.join(format!("{name}.d"));
    let failed = |error| Failure::io(path.display(), error);
    std::fs::create_dir_all(&control).map_err(failed)?;
    let description = description.unwrap_or_else(|| format!("A program of the operator's: {name}."));
    std::fs::write(control.join("name"), format!("{name}\n")).map_err(failed)?;
    std::fs::write(control.join("description"), format!("{}\n", description.trim_end())).map_err(failed)?;
    std::fs::write(control.join("schema"), &schema).map_err(failed)?;
    // Last, and whole: from then on it is a tool.
    let aside = dir.join(format!(".{name}.new"));
    std::fs::write(&aside, program).map_err(failed)?;
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    std::fs::rename(&aside, &path).map_err(failed)?;
    Ok(path)
}

/// A tool of the list.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    /// `ctx`, or `own` for a program of yours.
    from: &'static str,
    /// Whether it can be run by itself; the others need a session.
    can_be_run: bool,
    description: String,
    /// What is wrong with its control files.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The user's own tools.
fn own(root: &Root) -> impl Iterator<Item = Listed> {
    find(&root.path, sessions::own_uid(), &Rights::own()).into_iter().map(|tool| Listed {
        name: tool.name(),
        from: "own",
        can_be_run: true,
        description: tool.spec().description,
        problem: tool.schema().as_ref().err().cloned(),
    })
}

fn list(root: &Root, json: bool) -> Result<(), Failure> {
    let shipped = Tools::all().specs().into_iter().map(|spec| Listed {
        can_be_run: can_be_run(&spec.name),
        name: spec.name,
        from: "ctx",
        description: spec.description,
        problem: None,
    });
    let listed: Vec<Listed> = shipped.chain(own(root)).collect();
    if json {
        return output::json_lines(&listed);
    }
    let row = |tool: Listed| {
        let about = tool.problem.map_or(tool.description, |problem| format!("invalid: {problem}"));
        [tool.name, tool.from.to_owned(), output::one_line(&about)].map(Cell::new).into()
    };
    let rows = listed.into_iter().map(row).collect();
    let mut out = output::stdout();
    let head = ["NAME", "FROM", "DESCRIPTION"];
    out.write_all(table::render(&head, rows, output::width(), Paint::for_stdout()).as_bytes())?;
    out.flush()?;
    Ok(())
}
