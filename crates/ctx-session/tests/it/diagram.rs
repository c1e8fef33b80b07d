//! The diagram in the doc of the rules: what it shows is what the rules do, no more and no less.

use std::collections::BTreeSet;

use ctx_session::Body;
use ctx_session::record::{SessionBody, Trigger};

use crate::pairs::{RETRIABLE, ROWS, SCENES, ask, set};

const SOURCE: &str = include_str!("../../src/rules/mod.rs");

/// `from -> to trigger`, as often as it stands in the text block of the module's doc.
fn drawn() -> BTreeSet<String> {
    let doc = SOURCE.lines().map_while(|line| line.strip_prefix("//!"));
    let block =
        doc.skip_while(|line| line.trim() != "```text").skip(1).take_while(|line| line.trim() != "```");
    let words: Vec<&str> = block.flat_map(str::split_whitespace).collect();
    let mut found = BTreeSet::new();
    for arrow in words.chunks(4) {
        let [from, "->", to, trigger] = arrow else { panic!("not `from -> to trigger`: {arrow:?}") };
        assert!(found.insert(format!("{from} -> {to} {trigger}")), "drawn twice: {arrow:?}");
    }
    found
}

/// Every move that some command makes in some state.
fn walked() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for at in SCENES.into_iter().chain([RETRIABLE]) {
        for row in ROWS {
            let Ok(decision) = ask(&mut set(at), row) else { continue };
            for body in &decision.records {
                if let Body::Session(SessionBody::StateChanged(change)) = body {
                    assert_eq!(change.from, at.state, "{row} says where it came from");
                    found.insert(format!("{} -> {} {}", change.from, change.to, change.trigger.as_str()));
                }
            }
        }
    }
    found
}

#[test]
fn the_diagram_of_the_rules_shows_every_move_and_only_those() {
    assert_eq!(drawn(), walked());
}

#[test]
fn every_trigger_is_in_the_diagram_under_the_word_of_the_log() {
    // A new trigger does not compile until it is named here.
    let word = |trigger: Trigger| match trigger {
        Trigger::MessagePosted
        | Trigger::ConcurrencyLimit
        | Trigger::QueueResumed
        | Trigger::QueuedDiscarded
        | Trigger::RunCompleted
        | Trigger::RunFailed
        | Trigger::RunCancelled
        | Trigger::CrashRecovered
        | Trigger::Checkpoint
        | Trigger::CheckpointResumed
        | Trigger::RolledBack
        | Trigger::CompactionRequested
        | Trigger::RunRetried
        | Trigger::CompactionApproved
        | Trigger::CompactionRejected
        | Trigger::SessionEnded
        | Trigger::SessionFailed => serde_json::to_value(trigger).unwrap().as_str().unwrap().to_owned(),
    };
    let all = [
        Trigger::MessagePosted,
        Trigger::ConcurrencyLimit,
        Trigger::QueueResumed,
        Trigger::QueuedDiscarded,
        Trigger::RunCompleted,
        Trigger::RunFailed,
        Trigger::RunCancelled,
        Trigger::CrashRecovered,
        Trigger::Checkpoint,
        Trigger::CheckpointResumed,
        Trigger::RolledBack,
        Trigger::CompactionRequested,
        Trigger::RunRetried,
        Trigger::CompactionApproved,
        Trigger::CompactionRejected,
        Trigger::SessionEnded,
        Trigger::SessionFailed,
    ];
    let drawn = drawn();
    for trigger in all {
        assert_eq!(word(trigger), trigger.as_str());
        assert!(drawn.iter().any(|arrow| arrow.ends_with(trigger.as_str())), "{trigger:?} is not drawn");
    }
}
