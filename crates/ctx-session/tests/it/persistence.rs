//! The seed's "Persistence tests" at the level of rules: what the log brings back.

use ctx_session::record::{Approvals, RunBody, SessionBody};
use ctx_session::{Body, RunState, Timestamp};
use expect_test::expect;

use crate::log::{replay, to_line};
use crate::script::{play, scene};
use crate::world::{BEGIN_MS, World};

#[test]
fn message_ordering_a_hundred_messages_come_back_in_order() {
    let script: String =
        (0..100).map(|n| format!("post text=m{n}; progress text=re-m{n}; finish done\n")).collect();
    let world = scene(&script);
    let session = replay(&world.records);
    let texts: Vec<String> = world.conversation().iter().map(|message| message.text()).collect();
    let expected: Vec<String> = (0..100).flat_map(|n| [format!("m{n}"), format!("re-m{n}")]).collect();
    assert_eq!(texts, expected);
    let runs: Vec<_> = session.runs().map(|run| run.first_seq).collect();
    assert!(runs.is_sorted() && runs.len() == 100);
}

#[test]
fn runs_keep_the_order_of_the_log_when_the_clock_jumped_back_between_two_daemons() {
    let mut world = scene("post text=first; finish done");
    world.restart();
    // A new daemon has new ids, and its clock is a day behind.
    world.now = Timestamp::from_millis(BEGIN_MS - 86_400_000);
    world.ids = ctx_session::IdSource::new(2);
    let told = play(&mut world, "post text=second; cancel; finish done; post at-limit; resume; finish done");
    expect![[r#"
        post text=second: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
        cancel: running | - | stop r2 (operator by 1000) | r2 running
        finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r2 done
        post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m3 r3 pending
        resume: queued -> running | context, state_changed by queue_resumed | start r3, broadcast count | m3 r3 running
        finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r3 done
    "#]]
    .assert_eq(&told);
    let ids: Vec<_> = world.session.runs().map(|run| run.id).collect();
    assert!(!ids.is_sorted(), "the ids alone would tell another order");
    assert_eq!(replay(&world.records), world.session);
}

#[test]
fn run_recording_all_fields_are_persisted() {
    let world = scene(
        "post at-limit text=why; resume; progress text=because; progress tool=t1; progress tool-done=t1; \
         progress text=so; finish done; post; finish failed",
    );
    let session = replay(&world.records);
    let runs: Vec<_> = session.runs().cloned().collect();
    let at = |seconds: u64| Timestamp::from_millis(BEGIN_MS + seconds * 1_000);
    let done = &runs[0];
    assert_eq!(done.state, RunState::Done);
    assert_eq!((done.first_seq, done.end_seq), (1, Some(10)));
    assert_eq!((done.created_at, done.started_at, done.completed_at), (at(1), Some(at(2)), Some(at(7))));
    assert_eq!((done.usage.input, done.usage.output), (22, 14));
    let told = world.records.iter().find_map(|record| match &record.body {
        Body::Run(RunBody::Finished(end)) => Some((end.usage, end.duration_ms)),
        _ => None,
    });
    assert_eq!(told, Some((done.usage, 5_000)), "the record of the end says the same");
    let RunState::Failed(error) = &runs[1].state else { panic!("{:?}", runs[1]) };
    assert_eq!((error.code.name(), error.reason.as_str()), ("EHOSTDOWN", "provider_unreachable"));
    assert_eq!(session.run_of_client_id("none"), None);
}

#[test]
fn session_survives_restart_in_every_state_with_everything_set_on_it() {
    for last in [
        "",
        "post id=z",
        "post id=z at-limit",
        "post id=z; progress tool=t2; ask p1 t2; pause; edit-prompt k1; progress tool=t3",
        "post id=z; propose x1 gone=m1",
        "post id=z; compacted x1 gone=m1 summary=short; pause; rollback k1; flag x1 bad notes=hm",
        "bind i1; compact",
        "end",
        "fail",
    ] {
        let script = format!(
            "rename Title; set_model a:b; post id=y cwd=/src; progress tool=t1; finish done; attach c1; {last}"
        );
        let world = scene(&script);
        assert_eq!(replay(&world.records), world.session, "{last}");
    }
}

#[test]
fn a_line_of_the_log_reads_like_the_design_shows_it() {
    let world: World = scene("post id=msg-1 text=explain");
    let lines: Vec<String> = world.records.iter().take(3).map(to_line).collect();
    expect![[r#"
        {"schema_version":1,"seq":0,"time":"2026-11-15T06:00:00.000Z","type":"session_meta","session_id":"01KA32G4R0000000000000000S","name":"default","scope":"private","owner":1000,"agent":"coder","project":"demo","cwd":"/work","provider":"debug","model":"debug:echo","client":"cli","app":"ctx 0.1.0"}
        {"schema_version":1,"seq":1,"time":"2026-11-15T06:00:01.000Z","type":"user","turn_id":"01M7EWN2Q82452VV4909EC3V37","message_id":"01M7EWN2Q8F29T5VQV69ANXJ8B","client_id":"msg-1","text":"explain"}
        {"schema_version":1,"seq":2,"time":"2026-11-15T06:00:01.000Z","type":"run_created","turn_id":"01M7EWN2Q82452VV4909EC3V37"}"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn a_session_without_a_name_is_called_by_its_id() {
    let create = ctx_session::rules::Create { name: None, ..crate::world::new_session() };
    let id = create.id.to_string();
    let world = World::created_by(create);
    assert_eq!(world.session.meta.name.as_str(), id);
    assert!(
        matches!(&world.records[0].body, Body::Session(SessionBody::Meta(meta)) if meta.name.as_str() == id)
    );
}

#[test]
fn a_queued_message_keeps_what_came_with_it() {
    let world = scene("post at-limit yes allow=shell.exec");
    let run = replay(&world.records).runs().next().unwrap().clone();
    assert_eq!(run.wishes.approvals, Some(Approvals::Allow));
    assert_eq!(run.wishes.allow, ["shell.exec"]);
}
