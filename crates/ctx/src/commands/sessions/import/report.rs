//! What an import found and what came of it, for people and for programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use ctx_api::http::ImportUndone;
use ctx_interop::store::Entry;
use ctx_interop::{Damage, Transcript};
use serde_json::json;

use super::send::Sent;
use super::source::Source;
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::table::{self, Cell};

/// A session that was read, and what came of it.
pub struct Outcome<'a> {
    pub entry: &'a Entry,
    pub found: &'a Transcript,
    pub sent: Sent,
}

/// What was found, as a table.
pub fn show_found(sources: &[Source]) -> Result<(), Failure> {
    let rows = sources.iter().filter(|source| !source.entries().is_empty()).map(|source| {
        vec![
            Cell::new(source.agent().name()),
            Cell::new(source.entries().len().to_string()),
            Cell::new(size(source.bytes())),
            Cell::new(source.root().display().to_string()),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        output::say("no sessions of other agents were found");
    }
    let head = ["AGENT", "SESSIONS", "SIZE", "IN"];
    let text = table::render(&head, rows, output::width(), Paint::for_stdout());
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Bytes, for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

/// What came of everything.
#[derive(Default)]
pub struct Totals {
    sessions: u64,
    changed: u64,
    pub added: u64,
    waiting: usize,
    unknown: BTreeMap<String, u64>,
    damage: Vec<Damage>,
}

impl Totals {
    pub fn add(&mut self, outcome: &Outcome<'_>, as_json: bool) -> Result<(), Failure> {
        let Outcome { entry, found, sent } = outcome;
        self.sessions += 1;
        self.changed += u64::from(sent.added > 0);
        self.added += sent.added;
        self.waiting += found.waiting;
        for (kind, count) in &found.unknown {
            *self.unknown.entry(format!("{} {kind}", entry.agent)).or_default() += count;
        }
        self.damage.extend(found.damage.iter().cloned());
        if as_json {
            let line = json!({
                "agent": entry.agent, "version": found.version, "native_id": found.native_id, "path": entry.path,
                "session": sent.session, "title": found.title, "cwd": found.cwd, "messages": found.messages(),
                "tool_calls": found.tool_calls(), "created": sent.created, "added": sent.added, "link": found.link,
                "unknown": found.unknown, "damaged": found.damage,
            });
            output::json(&line)?;
        }
        Ok(())
    }

    pub fn fail(&mut self, path: &Path, why: &str) {
        self.damage.push(Damage { file: path.display().to_string(), line: 0, why: why.to_owned() });
    }

    pub fn fail_all(&mut self, source: &Source) {
        for (path, why) in source.failures() {
            self.fail(path, why);
        }
    }

    /// Says on stderr what came of it.
    pub fn tell(&self, as_json: bool, dry: bool) {
        for Damage { file, line, why } in &self.damage {
            match line {
                0 => output::say(format_args!("left out: {file}: {why}")),
                line => output::say(format_args!("left out: {file}:{line}: {why}")),
            }
        }
        for (kind, count) in &self.unknown {
            output::say(format_args!("{count} records of an unknown kind were passed over: {kind}"));
        }
        if self.waiting > 0 {
            output::say(format_args!(
                "{} records wait for one that is being written; they come with the next import",
                self.waiting
            ));
        }
        let verb = if dry { "would be" } else { "were" };
        if !as_json {
            output::say(format_args!(
                "{} sessions were read; {} records of {} of them {verb} imported",
                self.sessions, self.added, self.changed
            ));
        }
    }

    /// The same as an exit code too.
    pub fn end(&self, as_json: bool, dry: bool) -> Result<(), Failure> {
        self.tell(as_json, dry);
        if self.damage.is_empty() { Ok(()) } else { Err(Failure::Told { exit: 1 }) }
    }
}

/// Takes the last import back.
pub fn undo(api: &Api<'_>, as_json: bool) -> Result<(), Failure> {
    let undone: ImportUndone = api.post("/imports/undo")?;
    if as_json {
        return output::json(&undone);
    }
    if undone.import_id.is_none() {
        output::say("nothing was imported");
        return Ok(());
    }
    let mut out = output::stdout();
    for kept in &undone.kept {
        writeln!(out, "kept {}: {}", kept.session, kept.why)?;
    }
    if undone.taken_back > 0 {
        writeln!(out, "{} sessions of earlier imports are as they were before", undone.taken_back)?;
    }
    writeln!(out, "{} sessions were removed, {} were kept", undone.removed, undone.kept.len())?;
    Ok(out.flush()?)
}
