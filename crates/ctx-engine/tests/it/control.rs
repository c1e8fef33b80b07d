//! Pause, resume, roll back, approve: what the driver makes of an operator's word while a worker works.

use std::time::Duration;

use ctx_engine::Event;
use ctx_journal::sim::SimDisk;
use ctx_session::project::Strategy;
use ctx_session::record::{ApprovalOutcome, ApprovalScope};
use ctx_session::{CheckpointId, Code, Limits, RunState, Session, SessionId, StateName};
use serde_json::Value;

use super::world::{ME, World, eventually, every_run_ends_once};

impl World {
    async fn look(&self, id: SessionId) -> Session {
        self.engine.look(ME, id).await.unwrap()
    }

    async fn state(&self, id: SessionId) -> StateName {
        self.look(id).await.state.name()
    }

    /// Waits until the log has so many records of a type.
    pub async fn sees(&self, id: SessionId, name: &str, kind: &str, count: usize) {
        eventually(&format!("{count} {kind}"), async || {
            let _ = self.look(id).await;
            (kinds(&self.log(name)).iter().filter(|found| *found == kind).count() >= count).then_some(())
        })
        .await;
    }

    /// Waits until something was said, which the log does not have yet.
    pub async fn hears(&self, id: SessionId) {
        let mut follow = self.engine.follow(ME, id, None).await.unwrap();
        let heard = async { while !matches!(follow.next().await.unwrap().unwrap(), Event::Delta { .. }) {} };
        tokio::time::timeout(Duration::from_secs(60), heard).await.expect("something was said");
    }

    /// A session with a run that waits in the middle of what the word says, paused there.
    async fn paused(&self, name: &str, word: &str) -> (SessionId, CheckpointId) {
        let id = self.session(name).await;
        self.post(id, "m1", word).await.unwrap();
        if word == "busy" {
            self.sees(id, name, "tool_started", 1).await;
        } else {
            self.hears(id).await;
        }
        let checkpoint = self.engine.checkpoint(ME, id, Some("look".to_owned()), None).await.unwrap();
        assert_eq!(self.state(id).await, StateName::Paused);
        (id, checkpoint)
    }

    async fn idle(&self, id: SessionId) {
        eventually("the end of the run", async || (self.state(id).await == StateName::Idle).then_some(()))
            .await;
    }
}

fn kinds(log: &[Value]) -> Vec<String> {
    log.iter().map(|record| record["type"].as_str().unwrap().to_owned()).collect()
}

fn place(log: &[Value], kind: &str) -> usize {
    kinds(log).iter().position(|found| found == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_model_was_saying_is_read_to_its_end_and_nothing_is_left_to_resume() {
    let world = World::new().await;
    let (id, checkpoint) = world.paused("default", "speak").await;
    assert_eq!(world.engine.counts().borrow().total, 0, "a paused session has no slot");
    world.go.notify_one();
    world.sees(id, "default", "assistant_finished", 1).await;
    assert_eq!(world.state(id).await, StateName::Paused);
    world.engine.resume(ME, id, checkpoint).await.unwrap();
    assert_eq!(world.state(id).await, StateName::Idle);
    let log = world.log("default");
    assert!(place(&log, "assistant_finished") > place(&log, "checkpoint_created"));
    every_run_ends_once(&log);
    assert_eq!(world.say(id, "m2", "on").await, RunState::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_the_model_asked_for_wait_for_the_resume_also_over_a_restart() {
    let world = World::new().await;
    let (id, checkpoint) = world.paused("default", "tools").await;
    world.go.notify_one();
    world.sees(id, "default", "tool_pending", 2).await;
    assert_eq!(world.look(id).await.pending_calls().len(), 2);
    assert!(!kinds(&world.log("default")).contains(&"tool_started".to_owned()), "no tool starts");
    // Another daemon on the same disk.
    world.engine.shut_down().await;
    let world = World::on(world.disk.clone(), Limits::default()).await;
    assert_eq!(world.state(id).await, StateName::Paused);
    let (_, state) = world.engine.resume(ME, id, checkpoint).await.unwrap().unwrap();
    assert_eq!(state, RunState::Running);
    world.idle(id).await;
    let log = world.log("default");
    every_run_ends_once(&log);
    assert_eq!(kinds(&log).iter().filter(|kind| *kind == "tool_finished").count(), 2);
    assert_eq!(
        log.iter().rfind(|record| record["type"] == "assistant_finished").unwrap()["text"],
        "all done"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_was_at_work_ends_and_the_next_waits() {
    let world = World::new().await;
    let (id, checkpoint) = world.paused("default", "busy").await;
    world.go.notify_one();
    world.sees(id, "default", "tool_finished", 1).await;
    // The second tool is only begun by the worker after the resume.
    world.go.notify_one();
    world.engine.resume(ME, id, checkpoint).await.unwrap();
    world.idle(id).await;
    let log = world.log("default");
    every_run_ends_once(&log);
    let resumed = place(&log, "checkpoint_resumed");
    let ends: Vec<usize> = (0..log.len()).filter(|at| log[*at]["type"] == "tool_finished").collect();
    assert!(ends[0] < resumed && resumed < ends[1], "{ends:?} around {resumed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_of_a_paused_tool_interrupts_it_and_keeps_the_pause() {
    let world = World::new().await;
    let (id, checkpoint) = world.paused("default", "busy").await;
    world.engine.shut_down().await;
    let world = World::on(world.disk.clone(), Limits::default()).await;
    assert_eq!(world.state(id).await, StateName::Paused);
    let log = world.log("default");
    let interrupted = log.iter().filter(|record| record["status"] == "interrupted").count();
    assert_eq!(interrupted, 2);
    world.engine.resume(ME, id, checkpoint).await.unwrap();
    world.idle(id).await;
    every_run_ends_once(&world.log("default"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_run_can_be_cancelled_ended_and_rolled_back_and_keeps_what_it_said() {
    for way in ["cancel", "end", "rollback"] {
        let world = World::new().await;
        let (id, checkpoint) = world.paused("default", "speak").await;
        let run = world.look(id).await.current_run().unwrap().id;
        let expected = match way {
            "cancel" => {
                assert_eq!(world.engine.cancel(ME, id, run).await.unwrap(), RunState::Cancelled);
                StateName::Idle
            }
            "end" => {
                world.engine.end(ME, id).await.unwrap();
                StateName::Ended
            }
            _ => {
                world.engine.rollback(ME, id, checkpoint, None).await.unwrap();
                StateName::Idle
            }
        };
        assert_eq!(world.state(id).await, expected, "{way}");
        let log = world.log("default");
        every_run_ends_once(&log);
        let said = log.iter().find(|record| record["type"] == "assistant_finished").unwrap();
        assert_eq!(
            (&said["text"], &said["finish_reason"]),
            (&"thinking".into(), &"cancelled".into()),
            "{way}"
        );
        if way == "rollback" {
            let back = log.iter().find(|record| record["type"] == "rolled_back").unwrap();
            assert_eq!(back["superseded"], serde_json::json!([said["message_id"]]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_prompt_holds_from_the_resume_on_and_the_agent_is_told() {
    let world = World::new().await;
    let (id, checkpoint) = world.paused("default", "tools").await;
    let refused = world.engine.edit_prompt(ME, id, checkpoint, "nobody", "x").await.unwrap_err();
    assert_eq!(refused.code, Code::Enoent);
    world.engine.edit_prompt(ME, id, checkpoint, "primary", "be thorough").await.unwrap();
    world.engine.resume(ME, id, checkpoint).await.unwrap();
    world.go.notify_one();
    world.idle(id).await;
    let log = world.log("default");
    let contexts: Vec<&Value> = log.iter().filter(|record| record["type"] == "context").collect();
    assert_eq!(contexts[0]["prompts"][0]["hash"], "hash of be brief");
    assert_eq!(contexts[1]["prompts"][0]["hash"], "hash of be thorough");
    let note =
        log.iter().find(|record| record["type"] == "system").unwrap()["text"].as_str().unwrap().to_owned();
    assert!(note.contains("Previous prompt hash: hash of be brief, new prompt hash: "), "{note}");
    world.say(id, "m2", "again").await;
    let last = world.log("default").into_iter().rfind(|record| record["type"] == "context").unwrap();
    assert_eq!(last["prompts"][0]["hash"], "hash of be thorough", "it holds for the session");
    // Going back brings back the prompts of the checkpoint.
    world.engine.rollback(ME, id, checkpoint, None).await.unwrap();
    world.say(id, "m3", "third").await;
    let last = world.log("default").into_iter().rfind(|record| record["type"] == "context").unwrap();
    assert_eq!(last["prompts"][0]["hash"], "hash of be brief");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_without_a_slot_is_refused_and_stays_paused() {
    let limits = Limits { running_per_project: 1, ..Limits::default() };
    let world = World::on(SimDisk::new(), limits).await;
    let (id, checkpoint) = world.paused("a", "tools").await;
    let other = world.session("b").await;
    let posted = world.post(other, "m1", "hold").await.unwrap();
    assert_eq!(posted.state, RunState::Running, "the pause gave its slot back");
    let refused = world.engine.resume(ME, id, checkpoint).await.unwrap_err();
    assert_eq!(refused.code, Code::Ebusy);
    assert_eq!(world.state(id).await, StateName::Paused);
    world.engine.cancel(ME, other, posted.run).await.unwrap();
    world.go.notify_one();
    world.engine.resume(ME, id, checkpoint).await.unwrap();
    world.idle(id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_waits_for_anyone_and_for_nobody_only_so_long() {
    for (allow, expected) in [(Some(true), "Allow"), (Some(false), "Deny"), (None, "Timeout")] {
        let world = World::on(SimDisk::new(), Limits { approval_ms: 60_000, ..Limits::default() }).await;
        let id = world.session("default").await;
        world.post(id, "m1", "ask").await.unwrap();
        world.go.notify_one();
        world.sees(id, "default", "approval_requested", 1).await;
        if let Some(allow) = allow {
            let allowed = allow.then_some(ApprovalScope::Call);
            let approval = world.look(id).await.control.open_approvals().next().unwrap().asked.approval_id;
            world.engine.answer_approval(ME, id, approval, allowed, Some("fine")).await.unwrap();
            let again = world.engine.answer_approval(ME, id, approval, allowed, None).await;
            assert!(again.is_err_and(|refusal| refusal.code == Code::Ebusy), "whoever answers first decides");
        } else {
            world.pass(59_999);
            assert_eq!(world.look(id).await.control.open_approvals().count(), 1);
            world.pass(1);
            world.look(id).await;
        }
        world.idle(id).await;
        let log = world.log("default");
        every_run_ends_once(&log);
        let first = log.iter().find(|record| record["type"] == "tool_finished").unwrap();
        assert_eq!(first["output"], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_an_approval_stands_still_while_the_session_is_paused() {
    let world = World::on(SimDisk::new(), Limits { approval_ms: 60_000, ..Limits::default() }).await;
    let id = world.session("default").await;
    world.post(id, "m1", "ask").await.unwrap();
    world.go.notify_one();
    world.sees(id, "default", "approval_requested", 1).await;
    world.pass(40_000);
    let checkpoint = world.engine.checkpoint(ME, id, None, None).await.unwrap();
    // Longer than it would have waited; a clock that went on would have settled it.
    world.pass(600_000);
    let approval = {
        let session = world.look(id).await;
        let open: Vec<_> = session.control.open_approvals().map(|open| open.asked.approval_id).collect();
        assert_eq!(open.len(), 1);
        open[0]
    };
    let refused =
        world.engine.answer_approval(ME, id, approval, Some(ApprovalScope::Call), None).await.unwrap_err();
    assert_eq!(refused.code, Code::Ebusy);
    world.engine.resume(ME, id, checkpoint).await.unwrap();
    world.pass(19_999);
    assert_eq!(world.look(id).await.control.open_approvals().count(), 1, "it goes on with what was left");
    world.pass(1);
    world.look(id).await;
    world.idle(id).await;
    let session = world.look(id).await;
    let (settled, _) = session.control.approval(approval).unwrap().settled.clone().unwrap();
    assert_eq!(settled.outcome, ApprovalOutcome::Timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposed_compaction_pauses_and_is_approved_or_rejected_also_after_a_restart() {
    for approve in [true, false] {
        let world = World::new().await;
        let id = world.session("default").await;
        for number in 0..3 {
            world.say(id, &format!("m{number}"), &format!("message {number}")).await;
        }
        world.engine.compact(ME, id, Some(Strategy::Checkpoint), None).await.unwrap();
        eventually("the proposal", async || (world.state(id).await == StateName::Paused).then_some(())).await;
        world.engine.shut_down().await;
        let world = World::on(world.disk.clone(), Limits::default()).await;
        let compaction = world.look(id).await.control.compactions.last().unwrap().id();
        if approve {
            world.engine.approve_compaction(ME, id, compaction, &Default::default()).await.unwrap();
        } else {
            world.engine.reject_compaction(ME, id, compaction).await.unwrap();
        }
        let session = world.look(id).await;
        assert_eq!(session.state.name(), StateName::Idle);
        let counting = session.ledger.entries().iter().filter(|entry| entry.superseded_at.is_none()).count();
        assert_eq!(counting, if approve { 2 } else { 6 });
        every_run_ends_once(&world.log("default"));
    }
}

/// One wins, the log shows one order, nothing hangs.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_pause_resume_and_end_race_with_the_end_of_the_run() {
    let world = World::new().await;
    for round in testkit::rounds(70) {
        let name = format!("s{round}");
        let id = world.session(&name).await;
        let run = world.post(id, "m1", "steps 2").await.unwrap().run;
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        let engine = &world.engine;
        let pause = async {
            let Ok(checkpoint) = engine.checkpoint(ME, id, None, None).await else { return };
            let _ = engine.resume(ME, id, checkpoint).await;
        };
        let cancel = async {
            if round % 2 == 0 {
                let _ = engine.cancel(ME, id, run).await;
            }
        };
        let end = async {
            if round % 5 == 0 {
                let _ = engine.end(ME, id).await;
            }
        };
        let raced = async { tokio::join!(pause, cancel, end) };
        tokio::time::timeout(Duration::from_secs(60), raced).await.expect("nothing hangs");
        eventually("an end", async || {
            let session = world.look(id).await;
            session.run(run).is_some_and(|run| run.state.is_over()).then_some(())
        })
        .await;
        every_run_ends_once(&world.log(&name));
    }
    assert_eq!(world.engine.counts().borrow().total, 0);
}
