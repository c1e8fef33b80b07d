//! `ctx doctor`: what is where, what holds, what is damaged, and what to do about it. Changes nothing.

mod blobs;
mod finding;
mod index;
mod logs;
mod place;
mod views;

use std::io::Write;

use serde_json::json;

use crate::config::{self, Environment, FileArg, Setting};
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use finding::{Finding, Report, Weight};

/// Look for damage and say what to do
///
/// Says where everything is, what is configured and why, how the daemon and the index are, and which logs are
/// damaged, with file and line, or lack a blob that they name. Logs of more than 256 MiB together are looked at by their
/// ends, unless --deep is given, which also reads every blob and compares the files of every session with its log. Changes
/// nothing. Leaves with 1 when something needs attention.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx doctor
  ctx doctor --deep               read every log, blob and session's files and the whole index
  ctx doctor --json | jq -r '.problems[] | \"\\(.path):\\(.line) \\(.what)\"'")]
pub struct Args {
    /// Read everything, however much it is
    #[arg(long)]
    deep: bool,
    /// Print JSON
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
    if args.json {
        output::json(&as_json(&report, &settings))?;
    } else {
        let mut out = output::stdout();
        out.write_all(readable(&report, &settings, Paint::for_stdout()).as_bytes())?;
        out.flush()?;
    }
    if report.is_well() { Ok(()) } else { Err(Failure::Told { exit: 1 }) }
}

/// What holds and where it came from. A config that cannot be loaded is a problem, not the end.
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

fn readable(report: &Report, settings: &[Setting], paint: Paint) -> String {
    let mut text = String::new();
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
    for (weight, title) in [(Weight::Note, "notes"), (Weight::Problem, "problems")] {
        let mut found = report.of(weight).peekable();
        if found.peek().is_none() {
            continue;
        }
        let title = if weight == Weight::Problem { paint.red(title) } else { paint.yellow(title) };
        text.push_str(&format!("\n{title}\n"));
        for finding in found {
            text.push_str(&format!("  {}\n", output::plain(&finding.to_string())));
            if let Some(fix) = &finding.fix {
                text.push_str(&format!("    {}\n", paint.dim(&format!("→ {fix}"))));
            }
        }
    }
    if report.is_well() {
        text.push_str(&format!("\n{}\n", paint.green("all is well")));
    }
    text
}
