//! `ctx doctor`: checks a root and prints its state, each problem and a fix. It changes nothing.

mod blobs;
mod finding;
mod index;
mod logs;
mod place;
mod saved;
mod sizes;
mod views;

use std::io::Write;

use serde_json::json;

use crate::config::{self, Environment, FileArg, Setting};
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use finding::{Finding, Report, Weight};

/// Check the root for damage and suggest fixes
///
/// Prints every problem with a fix, damaged logs with file and line, then where everything is and the state of the
/// daemon, of the index and of the processes of shells. It changes nothing.
///
/// If the logs have more than 256 MiB together, only their beginnings and ends are read. --deep reads all of
/// them, every blob, every session's files and every snapshot.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx doctor
  ctx doctor --settings           the settings in effect, and where each comes from
  ctx doctor --deep               read every log, blob, snapshot and session file, and the index
  ctx doctor --json | jq -r '.problems[] | \"\\(.path):\\(.line) \\(.what)\"'

exit codes: 0 success, 1 failed or problems found, 2 bad input, 70 internal error")]
pub struct Args {
    /// Read everything, even large logs
    #[arg(long)]
    deep: bool,
    /// Also print every setting with its origin
    #[arg(long)]
    settings: bool,
    /// Print JSON, with the settings
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    file: FileArg,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let mut report = Report::default();
    report.fact("version", env!("CARGO_PKG_VERSION"));
    let settings = configured(&args.file, &mut report);
    if place::root(root, &mut report) {
        let is_up = place::daemon(root, &mut report);
        place::state_dir(root, is_up, &mut report);
        let looked = logs::look(root, args.deep, is_up, &mut report)?;
        if args.deep {
            views::look(root, is_up, &looked, &mut report)?;
        }
        index::look(root, args.deep, is_up, &looked, &mut report);
    }
    sizes::look(root, &mut report);
    if args.deep {
        saved::look(root, &mut report);
    }
    if args.json {
        output::json(&as_json(&report, &settings))?;
    } else {
        let mut out = output::stdout();
        let shown = if args.settings { settings.as_slice() } else { &[] };
        out.write_all(readable(&report, shown, Paint::for_stdout()).as_bytes())?;
        out.flush()?;
    }
    if report.is_well() { Ok(()) } else { Err(Failure::Told { exit: 1 }) }
}

/// The settings and their origin. A config that cannot be loaded is reported as a problem.
fn configured(file: &FileArg, report: &mut Report) -> Vec<Setting> {
    match config::load(file, &Environment::of_process()) {
        Ok(loaded) => {
            let from = loaded.file.map_or("no file, defaults".to_owned(), |file| file.display().to_string());
            report.fact("config", from);
            loaded.settings
        }
        Err(error) => {
            report.problem(
                Finding::new(error.to_string()).fix("`ctx config init` writes a file to start with"),
            );
            Vec::new()
        }
    }
}

fn as_json(report: &Report, settings: &[Setting]) -> serde_json::Value {
    let setting = |setting: &Setting| json!({ "key": setting.key.path(), "value": setting.value, "origin": setting.origin.to_string() });
    let facts: serde_json::Map<String, serde_json::Value> =
        report.facts.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
    let of = |weight: Weight| report.of(weight).map(Finding::as_json).collect::<Vec<_>>();
    json!({
        "well": report.is_well(), "facts": facts, "settings": settings.iter().map(setting).collect::<Vec<_>>(),
        "problems": of(Weight::Problem), "notes": of(Weight::Note),
    })
}

/// The problems first: whoever asks wants to know whether there are any.
fn readable(report: &Report, settings: &[Setting], paint: Paint) -> String {
    let mut text = String::new();
    if report.is_well() {
        text.push_str(&format!("{}\n", paint.green("no problems found")));
    }
    for (weight, title) in [(Weight::Problem, "problems"), (Weight::Note, "notes")] {
        text.push_str(&findings(report, weight, title, paint));
    }
    text.push('\n');
    for (name, value) in &report.facts {
        text.push_str(&format!("{} {value}\n", paint.bold(&format!("{name:<9}"))));
    }
    let keys = settings.iter().map(|setting| setting.key.path().len()).max().unwrap_or(0);
    for setting in settings {
        let value = if setting.value.is_null() { "-".to_owned() } else { setting.value.to_string() };
        let origin = setting.origin.to_string();
        let origin = if origin == "default" { paint.dim(&origin) } else { paint.green(&origin) };
        text.push_str(&format!("  {:<keys$}  {value:<10}  {origin}\n", setting.key.path()));
    }
    text
}

fn findings(report: &Report, weight: Weight, title: &str, paint: Paint) -> String {
    let mut found = report.of(weight).peekable();
    if found.peek().is_none() {
        return String::new();
    }
    let title = if weight == Weight::Problem { paint.red(title) } else { paint.yellow(title) };
    let mut text = format!("{title}\n");
    for finding in found {
        text.push_str(&format!("  {}\n", output::plain(&finding.to_string())));
        if let Some(fix) = &finding.fix {
            text.push_str(&format!("    {}\n", paint.dim(&format!("→ {fix}"))));
        }
    }
    text
}
