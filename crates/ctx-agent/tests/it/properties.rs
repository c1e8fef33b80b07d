//! Laws that hold for any input: no script panics, no answer differs from what was told.

use std::sync::Arc;

use ctx_agent::model::debug::{DELTA_CHARS_MAX, pieces};
use ctx_agent::model::script::{Act, Script};
use ctx_agent::model::{Event, Request, Turn};
use ctx_agent::run::pack::{in_order, pack};
use ctx_session::command::Outcome;
use ctx_session::conversation::{Message, Part, Role};
use ctx_session::record::ToolStatus;
use ctx_session::{Limits, Ulid};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::{Log, Root, message};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((step_key(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn step_key() -> impl Strategy<Value = String> {
    static KNOWN: [&str; 11] = [
        "text",
        "reasoning",
        "sleep_ms",
        "tool",
        "error",
        "times",
        "usage",
        "dump",
        "name",
        "input",
        "script",
    ];
    prop_oneof![prop::sample::select(&KNOWN[..]).prop_map(str::to_owned), ".{0,5}".prop_map(String::from)]
}

fn good_step() -> impl Strategy<Value = Value> {
    prop_oneof![
        ".{0,60}".prop_map(|text| json!({ "text": text })),
        ".{0,40}".prop_map(|text| json!({ "reasoning": text })),
        (0u64..100).prop_map(|ms| json!({ "sleep_ms": ms })),
        any_json().prop_map(|input| json!({"tool": {"name": "fs.read", "input": input}})),
        ".{0,10}".prop_map(|name| json!({"tool": [{"name": name}, {"name": "fs.list"}]})),
        (
            prop::sample::select(&["unreachable", "rate_limit", "overflow", "broken_stream", "empty"][..]),
            0u32..7
        )
            .prop_map(|(kind, times)| json!({"error": kind, "times": times})),
        (0u64..9, 0u64..9).prop_map(|(input, output)| json!({"usage": {"input": input, "output": output}})),
        Just(json!({"dump": true})),
    ]
}

fn request(message: &str) -> Request {
    let turn = Turn { role: Role::User, content: vec![Part::Text { text: message.to_owned() }] };
    Request {
        model: "debug/script".into(),
        attempt: 1,
        prompt: String::new(),
        messages: vec![turn],
        images: Default::default(),
        tools: vec![],
    }
}

proptest! {
    #[test]
    fn no_json_panics_as_a_script(value in any_json()) {
        let text = json!({ "script": value }).to_string();
        if let Some(Ok(script)) = Script::in_message(&text) {
            let acts = script.play(&request(&text));
            let ends = matches!(acts.last(), Some(Act::Fail(_) | Act::Emit(Event::Finish(_))));
            prop_assert!(ends);
        }
        let _ = Script::from_file(value);
    }

    #[test]
    fn pieces_are_small_and_make_the_whole(text in ".{0,100}", size in 0usize..=DELTA_CHARS_MAX) {
        let cut: Vec<&str> = pieces(&text, size).collect();
        prop_assert_eq!(cut.concat(), text.as_str());
        prop_assert!(cut.iter().all(|piece| (1..=size.max(1)).contains(&piece.chars().count())));
    }

    #[test]
    fn a_pack_never_splits_a_call_from_its_result(parts in prop::collection::vec((0u128..6, 0u8..5), 0..30)) {
        // A call's id is ours and never comes twice, and a result comes after its call.
        let mut called = Vec::new();
        let mut given = Vec::new();
        let mut fresh = |(id, kind): &(u128, u8)| match kind {
            0 => !called.contains(id) && { called.push(*id); true },
            1 => called.contains(id) && !given.contains(id) && { given.push(*id); true },
            _ => true,
        };
        let messages: Vec<Arc<Message>> =
            parts.into_iter().filter(|part| fresh(part)).map(|(id, kind)| Arc::new(part(id, kind))).collect();
        let ordered = in_order(&messages);
        prop_assert_eq!(ordered.len(), messages.len(), "nothing is left out, and nothing comes twice");
        let turns = pack(&ordered);
        let mut open: Vec<Ulid> = Vec::new();
        for turn in &turns {
            for part in &turn.content {
                match part {
                    Part::ToolCall { call_id, .. } => open.push(*call_id),
                    Part::ToolResult { call_id, status, text } => {
                        let at = open.iter().position(|id| id == call_id);
                        prop_assert!(at.is_some(), "a result without its call");
                        open.retain(|id| id != call_id);
                        if given.contains(&call_id.0) {
                            let real = (ToolStatus::Ok, given_by(call_id.0));
                            prop_assert_eq!((*status, text.clone()), real, "not what the tool gave");
                        } else {
                            prop_assert_eq!(*status, ToolStatus::Interrupted, "invented where there is none");
                        }
                    }
                    Part::Text { .. } | Part::Image(_) => prop_assert!(open.is_empty(), "text between a call and its result"),
                }
            }
        }
        prop_assert!(open.is_empty(), "a call without a result");
        let texts = |parts: &mut dyn Iterator<Item = &Part>| -> Vec<String> {
            parts.filter_map(|part| match part {
                Part::Text { text } => Some(text.clone()),
                Part::Image(_) | Part::ToolCall { .. } | Part::ToolResult { .. } => None,
            }).collect()
        };
        let before = texts(&mut messages.iter().flat_map(|message| &message.content));
        prop_assert_eq!(texts(&mut turns.iter().flat_map(|turn| &turn.content)), before, "texts keep their order");
    }
}

/// What the tool gave for a call.
fn given_by(id: u128) -> String {
    format!("the result of {id}")
}

fn part(id: u128, kind: u8) -> Message {
    let call_id = Ulid(id);
    match kind {
        0 => {
            let call = Part::ToolCall { call_id, name: "t".into(), input: Value::Null, provider: None };
            Message { id: call_id, ..message(Role::Assistant, call) }
        }
        1 => {
            let result = Part::ToolResult { call_id, status: ToolStatus::Ok, text: given_by(id) };
            Message { id: call_id, ..message(Role::Tool, result) }
        }
        2 => message(Role::User, Part::Text { text: format!("u{id}") }),
        3 => message(Role::System, Part::Text { text: format!("s{id}") }),
        _ => message(Role::Assistant, Part::Text { text: format!("a{id}") }),
    }
}

/// Whatever a script does: each message that begins ends once, or is the last; each call is settled.
#[test]
fn every_run_comes_to_an_end_and_tells_a_whole_story() {
    let root = Root::with_limits(Limits { steps_per_run: 4, ..Limits::default() });
    let mut runner =
        TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    let scripts = prop::collection::vec(good_step(), 0..8);
    let checked = runner.run(&scripts, |steps| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let script = json!({ "script": steps }).to_string();
        let log = Arc::new(Log::default());
        let job = root.job("debug/script", &script);
        let outcome = runtime.block_on(root.run_with(job, &log, Default::default()));
        let told = log.text(&outcome);
        let count = |words: &[&str]| {
            // A script may dump the prompt, which has words like these: only how a line begins counts.
            let starts = log.lines().into_iter().map(|line| line.chars().take(30).collect::<String>());
            let told = starts.filter(|start| start.split(' ').nth(1) != Some("text"));
            told.filter(|start| words.iter().any(|word| start.contains(word))).count()
        };
        prop_assert!(!matches!(outcome, Outcome::Cancelled { .. }), "{}", told);
        let (begun, ended) = (count(&[" started step "]), count(&[" finished "]));
        prop_assert!(begun == ended || begun == ended + 1, "{}", told);
        prop_assert_eq!(count(&[" calls "]), count(&[" gave ", " failed "]), "{}", told);
        Ok(())
    });
    checked.unwrap();
}
