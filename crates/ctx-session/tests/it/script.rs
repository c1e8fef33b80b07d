//! `check(script, expect)`: commands as words in, one line per command out.
//!
//! A script is lines of commands; `;` parts them too. A line of the answer reads
//! `command: before -> after | records | effects | answer`, or `command: refused CODE message`. Runs are `r1`,
//! `r2` … in their order, their messages `m1`, `m2` …; tool calls (`t1`) and connections (`c1`) are the script's
//! own. Adding a command to the vocabulary is an arm in [`command`]; a new field of one touches only this file.

use ctx_session::command::{Interruption, Outcome, Partial, PostMessage, Progress};
use ctx_session::record::{
    CancelReason, DetachReason, Failure, FinishReason, LimitScope, StateChanged, ToolStatus, Usage,
};
use ctx_session::{Answer, Body, Code, Command, Effect, RunState, StateName, Ulid};
use expect_test::Expect;

use crate::log;
use crate::world::{OWNER, World, call, full, granted, message, post, small_id};

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
        Body::StateChanged(StateChanged { trigger, .. }) => format!("state_changed by {}", trigger.as_str()),
        other => log::kind(other),
    }
}

fn show_effect(world: &World, effect: &Effect) -> String {
    match effect {
        Effect::StartRun { run } => format!("start {}", world.name_of(run.0)),
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
        Answer::Run { run, state } => run_is(run.0, state),
        Answer::Posted { run, message, state, repeated } => {
            let again = if *repeated { ", repeated" } else { "" };
            format!("{} {}{again}", world.name_of(message.0), run_is(run.0, state))
        }
    }
}

/// A line of a script as a command: a verb, then words and `key=value` in any order.
pub fn command(world: &World, line: &str) -> Command {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words = Words(rest);
    let run = words.named('r').map_or_else(|| world.run(), |name| world.run_called(name));
    let partial =
        words.has("partial").then(|| Partial { message_id: message("a9"), text: "so f".to_owned() });
    match verb {
        "post" => Command::PostMessage(post_message(&words)),
        "resume" => Command::ResumeQueued { admission: admission(&words), by: OWNER },
        "discard" => Command::DiscardQueued { by: OWNER },
        "cancel" if words.has("disconnected") => {
            Command::CancelRun { run, reason: CancelReason::Disconnected, by: None }
        }
        "cancel" => Command::CancelRun { run, reason: CancelReason::Operator, by: Some(OWNER) },
        "finish" => Command::FinishRun { run, outcome: outcome(&words), partial },
        "progress" => Command::Progress { run, progress: progress(&words) },
        "rename" => Command::Rename { title: rest.to_owned() },
        "set_model" => Command::SetModel { model: model(rest) },
        "attach" => Command::Attach {
            connection: connection(&words),
            user: OWNER,
            device_hint: words.value("device").map(str::to_owned),
            takeover: words.has("takeover"),
        },
        "detach" => Command::Detach { connection: connection(&words), reason: DetachReason::Clean },
        "archive" => Command::Archive { archived: true, by: OWNER },
        "unarchive" => Command::Archive { archived: false, by: OWNER },
        "end" => Command::End { by: OWNER, partial },
        "fail" => Command::Fail { failure: failure(), partial },
        "recover" if words.has("storage") => Command::Recover { cause: Interruption::StorageFailure },
        "recover" => Command::Recover { cause: Interruption::DaemonCrash },
        other => panic!("`{other}` is no word of the script vocabulary"),
    }
}

fn post_message(words: &Words<'_>) -> PostMessage {
    let text = if words.has("empty") { "" } else { words.value("text").unwrap_or("hello") };
    PostMessage {
        client_id: words.value("id").map(str::to_owned),
        model_override: words.value("model").map(model),
        cwd: words.value("cwd").map(str::to_owned),
        ..post(text, admission(words))
    }
}

fn admission(words: &Words<'_>) -> ctx_session::command::Admission {
    match (words.has("at-limit"), words.has("at-operator-limit")) {
        (true, _) => full(LimitScope::PerProject),
        (_, true) => full(LimitScope::PerOperator),
        (false, false) => granted(),
    }
}

fn outcome(words: &Words<'_>) -> Outcome {
    if words.has("done") {
        Outcome::Done
    } else if words.has("failed") {
        Outcome::Failed(unreachable_provider())
    } else if words.has("cancelled") {
        Outcome::Cancelled { reason: CancelReason::Operator, by: Some(OWNER) }
    } else {
        panic!("finish done, failed or cancelled")
    }
}

fn progress(words: &Words<'_>) -> Progress {
    if let Some(tool) = words.value("tool") {
        let input = serde_json::json!({ "path": "a.rs" });
        let provider_call_id = Some("call_0".to_owned());
        return Progress::ToolStarted {
            call_id: call(tool),
            provider_call_id,
            name: "read".to_owned(),
            input,
        };
    }
    if let Some(tool) = words.value("tool-done") {
        return Progress::ToolFinished {
            call_id: call(tool),
            status: ToolStatus::Ok,
            duration_ms: 5,
            output: "fn main() {}".to_owned(),
            truncated: false,
            blob: None,
        };
    }
    let message_id = message("a1");
    match (words.value("text"), words.value("thought")) {
        (Some(text), _) => Progress::AssistantFinished {
            message_id,
            text: text.to_owned(),
            finish_reason: FinishReason::Stop,
            usage: Some(Usage { input: 11, output: 7 }),
        },
        (None, Some(text)) => Progress::ReasoningFinished { message_id, text: text.to_owned() },
        (None, None) => Progress::AssistantStarted { message_id, model: "debug/echo".to_owned(), step: 1 },
    }
}

fn model(word: &str) -> Option<String> {
    (word != "none").then(|| word.to_owned())
}

fn connection(words: &Words<'_>) -> Ulid {
    small_id(words.named('c').expect("a connection: c1"))
}

fn failure() -> Failure {
    Failure { code: Code::Eio, reason: "storage_failure".to_owned(), message: "cannot write".to_owned() }
}

fn unreachable_provider() -> Failure {
    let message = "provider unreachable; try again or check the provider's config".to_owned();
    Failure { code: Code::Ehostdown, reason: "provider_unreachable".to_owned(), message }
}

struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn all(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.0.split_whitespace()
    }

    fn has(&self, word: &str) -> bool {
        self.all().any(|found| found == word)
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.all().find_map(|word| word.split_once('=').filter(|(found, _)| *found == key)).map(|(_, v)| v)
    }

    /// A word that is this letter and a number.
    fn named(&self, letter: char) -> Option<&'a str> {
        self.all().find(|word| {
            word.strip_prefix(letter).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
    }
}
