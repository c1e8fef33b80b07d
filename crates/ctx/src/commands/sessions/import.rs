//! `ctx import`: brings the sessions of other agents in.
//!
//! `source` finds and reads them, `send` gives their records to the daemon, `report` says what came of it. This file is the
//! order of these: once, or again and again.

mod report;
mod send;
mod source;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use ctx_interop::Agent;
use ctx_session::{Code, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::progress::Progress;
use crate::root::Root;
use crate::{output, words};

use report::{Outcome, Totals};
use send::Sender;
pub use source::absolute;
use source::{Source, Wish};

/// How often stores are looked at with `--follow`.
const FOLLOW_EVERY: Duration = Duration::from_secs(2);

/// Bring in sessions of other agents
///
/// Finds the histories of Codex, Claude Code, OpenCode, Goose, Gemini CLI and Aider on this machine, shows what it
/// found, and imports them as sessions of agents called codex, claude, opencode, goose, gemini and aider. What was
/// imported before is not imported again; of a session that grew, the new part is. The sources are only read.
///
/// What cannot be read is reported by file and line, and everything else comes in. Text that nobody typed is marked as
/// injected. Tool output is redacted. A message to an imported session continues it with the agent of its project.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  ctx import                             everything that is found in your home
  ctx import --dry-run                   show what would come in
  ctx import --from codex --since 30d
  ctx import --from claude --path /mnt/old-laptop/home/me
  ctx import --follow                    keep up until Ctrl-C
  ctx import undo                        take the last import back

exit codes: 0 success, 1 failed or something was left out (it is reported), 2 bad input,
            13 not allowed, 69 no daemon, 70 internal error"
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Only sessions of this agent (can be repeated): codex, claude, opencode, goose, gemini or aider
    #[arg(long, value_name = "AGENT", value_parser = agent())]
    from: Vec<Agent>,
    /// A home directory, or a store itself [default: your home]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Only sessions in which something happened since this time: a date in UTC or an age such as 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Only sessions that worked in this directory or below it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Read everything and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object per session
    #[arg(long)]
    json: bool,
    /// Keep running, and import what is added to the sources
    #[arg(long, conflicts_with = "dry_run")]
    follow: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Take the last import back; sessions that were continued stay
    Undo {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Takes the name of an agent whose sessions can be imported, and offers them to completions.
pub fn agent() -> impl TypedValueParser<Value = Agent> {
    let names = PossibleValuesParser::new(Agent::ALL.map(Agent::name));
    names.try_map(|name| Agent::of_name(&name).ok_or_else(|| format!("{name} is not known")))
}

pub fn run(args: Args, root: impl FnOnce() -> Result<Root, Failure>) -> Result<(), Failure> {
    if let Some(What::Undo { json }) = args.what {
        return report::undo(&Api::new(&root()?), json);
    }
    let agents = if args.from.is_empty() { Agent::ALL.to_vec() } else { args.from.clone() };
    let wish = Wish {
        since: args.since.map(|moment| moment.seen_from(words::now())),
        dir: args.dir.as_deref().map(absolute).transpose()?,
    };
    let places = source::places(&agents, args.path.as_deref())?;
    let root = root()?;
    let api = Api::new(&root);
    let mut sender = Sender::new(&api, &root, args.dry_run)?;
    let mut seen = HashMap::new();
    let totals = import_all(&places, &wish, &mut sender, &args, &mut seen)?;
    if args.dry_run {
        return totals.end(args.json, true);
    }
    sender.save()?;
    if totals.added > 0 {
        sender.await_index()?;
    }
    if !args.follow {
        return totals.end(args.json, false);
    }
    totals.tell(args.json, false);
    loop {
        output::pause(FOLLOW_EVERY)?;
        // Without a daemon there is nothing to keep up.
        let _: serde_json::Value = api.get("/status")?;
        let totals = import_all(&places, &wish, &mut sender, &args, &mut seen)?;
        if totals.added > 0 {
            sender.save()?;
            totals.tell(args.json, false);
        }
    }
}

/// Imports from every place. `seen`: what each source was like when it was last read here; one that is the same is passed over.
fn import_all(
    places: &[(Agent, PathBuf)],
    wish: &Wish,
    sender: &mut Sender<'_>,
    args: &Args,
    seen: &mut HashMap<String, String>,
) -> Result<Totals, Failure> {
    let is_first = seen.is_empty();
    let mut totals = Totals::default();
    let mut sources = Vec::new();
    for (agent, dir) in places {
        let key = format!("{agent} {}", dir.display());
        let state = ctx_interop::store::state(*agent, dir);
        if state.is_some() && seen.get(&key) == state.as_ref() {
            continue;
        }
        seen.extend(state.map(|state| (key, state)));
        sources.push(Source::list(*agent, dir));
    }
    if is_first && !args.json {
        report::show_found(&sources)?;
    }
    let total = sources.iter().map(Source::bytes).sum();
    let progress = Progress::new("importing");
    let mut done = 0;
    for source in &sources {
        totals.fail_all(source);
        for entry in source.entries() {
            progress.show(done, total, &format!("{} {}", entry.agent, entry.id()));
            done += entry.size;
            let key = format!("{} {} {}", entry.agent, entry.path.display(), entry.id());
            if seen.get(&key) == Some(&entry.mark) {
                continue;
            }
            let found = match source.read(entry) {
                Ok(found) => found,
                Err(error) => {
                    totals.fail(&entry.path, &error.to_string());
                    continue;
                }
            };
            if found.waiting == 0 {
                seen.insert(key.clone(), entry.mark.clone());
            }
            if !wish.wants(&found) {
                continue;
            }
            let sent = match sender.send(entry, &found) {
                Ok(sent) => sent,
                // A session that has ended, is at work or holds too much keeps no other from coming in.
                Err(Failure::Said { code, message, .. }) if is_of_session(code) => {
                    seen.remove(&key);
                    totals.fail(&entry.path, &message);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let outcome = Outcome { entry, found: &found, sent };
            if !is_first && outcome.sent.added == 0 {
                continue;
            }
            progress.clear();
            totals.add(&outcome, args.json)?;
        }
    }
    progress.clear();
    Ok(totals)
}

/// Whether a refusal of the daemon is of one session alone.
fn is_of_session(code: Code) -> bool {
    matches!(code, Code::Ebusy | Code::Eshutdown | Code::Emsgsize | Code::Einval | Code::Eexist)
}

/// When the newest thing happened in a session.
fn newest(found: &ctx_interop::Transcript) -> Option<Timestamp> {
    found.last_at().or(found.created)
}
