//! `check(script, expect)`: commands as words in, one line per command out.
//!
//! A script is lines of commands; `;` parts them too. A line of the answer reads
//! `command: before -> after | records | effects | answer`, or `command: refused CODE message`. Runs are `r1`,
//! `r2` … in their order, their messages `m1`, `m2` …, checkpoints `k1`, `k2` …; the rest is the script's own: see
//! [`crate::vocabulary`].

use ctx_session::record::{SessionBody, StateChanged};
use ctx_session::{Answer, Body, Effect, RunState, StateName, Ulid};
use expect_test::Expect;

use crate::log;
use crate::vocabulary::command;
use crate::world::World;

pub fn check(script: &str, expect: Expect) {
    expect.assert_eq(&play(&mut World::new(), script));
}

/// Plays a script and gives one line per command. The clock goes on by a second before each.
pub fn play(world: &mut World, script: &str) -> String {
    lines(script).map(|line| play_line(world, line) + "\n").collect()
}

/// Plays a script that only sets the scene: everything in it must be accepted.
pub fn scene(script: &str) -> World {
    let mut world = World::new();
    for line in lines(script) {
        let told = play_line(&mut world, line);
        assert!(!told.contains("refused"), "{told}");
    }
    world
}

fn lines(script: &str) -> impl Iterator<Item = &str> {
    script.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty())
}

fn play_line(world: &mut World, line: &str) -> String {
    world.tick();
    if line == "restart" {
        world.restart();
        return format!("restart: {}", world.state());
    }
    let before = world.state();
    let command = command(world, line);
    match world.ask(&command) {
        Err(refusal) => format!("{line}: refused {} {}", refusal.code, refusal.message),
        Ok(decision) => {
            let records = decision.records.iter().map(show_record);
            let effects = decision.effects.iter().map(|effect| show_effect(world, effect));
            let moved = show_move(before, world.state());
            let answer = show_answer(world, &decision.answer);
            format!("{line}: {moved} | {} | {} | {answer}", list(records), list(effects))
        }
    }
}

fn show_move(before: StateName, after: StateName) -> String {
    if before == after { before.to_string() } else { format!("{before} -> {after}") }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let joined = items.collect::<Vec<_>>().join(", ");
    if joined.is_empty() { "-".to_owned() } else { joined }
}

fn show_record(body: &Body) -> String {
    match body {
        Body::Session(SessionBody::StateChanged(StateChanged { trigger, .. })) => {
            format!("state_changed by {}", trigger.as_str())
        }
        other => log::kind(other),
    }
}

fn show_effect(world: &World, effect: &Effect) -> String {
    match effect {
        Effect::StartRun { run } => format!("start {}", world.name_of(run.0)),
        Effect::ContinueRun { run } => format!("continue {}", world.name_of(run.0)),
        Effect::ApprovalSettled { approval } => format!("tell of {}", world.name_of(approval.0)),
        Effect::StopRun { run, reason, by } => {
            let who = by.map_or("nobody".to_owned(), |user| user.to_string());
            format!("stop {} ({} by {who})", world.name_of(run.0), word(reason))
        }
        Effect::KillRun { run } => format!("kill {}", world.name_of(run.0)),
        Effect::BroadcastRunning => "broadcast count".to_owned(),
        Effect::CloseConnection { connection, reason } => {
            format!("close {} ({})", world.name_of(*connection), word(reason))
        }
        Effect::CloseClients => "close clients".to_owned(),
        Effect::FreeName => "free name".to_owned(),
    }
}

/// The word that the log writes for a value.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a value of the log").trim_matches('"').to_owned()
}

fn show_answer(world: &World, answer: &Answer) -> String {
    let run_is = |run: Ulid, state: &RunState| format!("{} {}", world.name_of(run), state.as_str());
    match answer {
        Answer::Done => "done".to_owned(),
        Answer::Ignored => "ignored".to_owned(),
        Answer::Held => "held".to_owned(),
        Answer::Checkpoint { checkpoint } => world.name_of(checkpoint.0),
        Answer::Run { run, state } => run_is(run.0, state),
        Answer::Posted { run, message, state, repeated } => {
            let again = if *repeated { ", repeated" } else { "" };
            format!("{} {}{again}", world.name_of(message.0), run_is(run.0, state))
        }
    }
}
