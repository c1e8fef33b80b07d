//! `ctx project check`: validates a project's files without a daemon and prints file, line and column of each error. The
//! model is checked too if a root exists, because the models are files of the root.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ctx_agent::model::Models;
use ctx_agent::project::{At, PROJECT_FILE, Trust, in_order, read_project};
use ctx_api::http::ProjectError;
use ctx_session::project::Problem;
use ctx_session::{Code, Limits};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::words;

/// Characters of a line that are shown; what is wrong is among them.
const EXCERPT_CHARS: usize = 100;

pub fn run(directory: &Path, root: Option<Root>, json: bool) -> Result<(), Failure> {
    let whole = super::whole(directory)?;
    let limits = Arc::new(Limits::default());
    let looked = read_project(&whole, Trust::Anyone, limits.control_file_bytes, words::now());
    let root = root.map(|root| root.path).filter(|root| root.join("model").is_dir());
    let models = root.map(|root| Models::new(root, limits));
    let lacks = |(model, at): &(String, At)| {
        let message = models.as_ref()?.resolve(model).err()?.to_string();
        let (line, column) = at.pair();
        Some(Problem { file: PROJECT_FILE.to_owned(), line, column, message })
    };
    // What the daemon would say of the agent's model, beside all else that is wrong.
    let found = match (looked.found, looked.named.model.as_ref().and_then(lacks)) {
        (Ok(found), None) => Ok(found),
        (found, lacking) => Err(in_order(found.err().into_iter().flatten().chain(lacking).collect())),
    };
    // The others of a team may have a provider that is not set up here, and the agent works without its subagents.
    for problem in looked.named.subagent_models.iter().filter_map(lacks) {
        output::say(format_args!("warning: {problem}"));
    }
    let mut out = output::stdout();
    match found {
        Ok(found) => {
            let spec = &found.snapshot.spec;
            let file = directory.join(PROJECT_FILE);
            let (project, primary) = (&spec.project, &spec.primary);
            if json {
                let (agent, model) = (&primary.name, &primary.model);
                output::json(&json!({ "project": project, "agent": agent, "model": model, "file": file }))?;
            } else {
                writeln!(
                    out,
                    "valid: project {project}, agent {}, model {} ({})",
                    primary.name,
                    primary.model,
                    file.display()
                )?;
                out.flush()?;
            }
            if models.is_none() {
                output::say("no ctx root found: the model is checked when the project is added");
            }
            Ok(())
        }
        Err(problems) => {
            if json {
                output::json_lines(problems.iter().map(as_of_api))?;
            } else {
                tell(directory, &problems, Paint::for_stdout(), &mut out)?;
                out.flush()?;
            }
            let message = match problems.len() {
                1 => "one problem".to_owned(),
                many => format!("{many} problems"),
            };
            Err(Failure::new(Code::Ebadmsg, message))
        }
    }
}

/// A problem as the API has it in a project.
fn as_of_api(problem: &Problem) -> ProjectError {
    ProjectError {
        code: Code::Ebadmsg.to_string(),
        file: problem.file.clone(),
        line: problem.line,
        column: problem.column,
        message: problem.message.clone(),
    }
}

/// Each problem with its place and the line it is on.
pub fn tell(
    directory: &Path,
    problems: &[Problem],
    paint: Paint,
    out: &mut impl Write,
) -> std::io::Result<()> {
    for problem in problems {
        let path = directory.join(&problem.file);
        let place = format!("{}:{}:{}:", path.display(), problem.line, problem.column);
        writeln!(out, "{} {}", paint.bold(&place), output::plain(&problem.message))?;
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        excerpt(&text, problem, paint, out)?;
    }
    Ok(())
}

/// The line, and a mark below the place.
fn excerpt(text: &str, problem: &Problem, paint: Paint, out: &mut impl Write) -> std::io::Result<()> {
    let at = usize::try_from(problem.line).unwrap_or(usize::MAX).saturating_sub(1);
    let Some(line) = text.lines().nth(at) else { return Ok(()) };
    let column = usize::try_from(problem.column).unwrap_or(usize::MAX).saturating_sub(1);
    // Of a long line, the part around the place.
    let skipped = if column >= EXCERPT_CHARS { column - EXCERPT_CHARS / 2 } else { 0 };
    let shown: String = line.chars().skip(skipped).take(EXCERPT_CHARS).collect();
    let number = problem.line.to_string();
    let margin = " ".repeat(number.len());
    let before: String =
        shown.chars().take(column - skipped).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    writeln!(out, "  {} {}", paint.dim(&format!("{number} |")), output::plain(&shown))?;
    writeln!(out, "  {} {before}{}", paint.dim(&format!("{margin} |")), paint.red("^"))
}
