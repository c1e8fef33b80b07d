//! Two who want something else of one session at the same moment, hundreds of times: one wins, the other is refused as
//! the rules say, the log shows one order, and nothing hangs.

use std::time::Duration;

use ctx_engine::NewIssue;
use ctx_journal::sim::SimDisk;
use ctx_session::project::Strategy;
use ctx_session::record::{ApprovalOutcome, ApprovalScope};
use ctx_session::{ApprovalId, Code, CompactionId, Limits, Name, Refusal, RunState, SessionId, StateName};
use serde_json::Value;
use testkit::rounds;

use super::world::{ME, World, eventually, every_run_ends_once};

const ROUNDS: u64 = 70;

/// Room for as many sessions as there are rounds.
fn roomy() -> Limits {
    Limits { running_per_project: 10_000, running_per_operator: 10_000, ..Limits::default() }
}

/// Both at once, begun in another order every round and a little apart.
async fn at_once<A: Send + 'static, B: Send + 'static>(
    round: u64,
    one: impl Future<Output = A> + Send + 'static,
    two: impl Future<Output = B> + Send + 'static,
) -> (A, B) {
    let late = move |is_late: bool| async move {
        for _ in 0..if is_late { round % 7 } else { 0 } {
            tokio::task::yield_now().await;
        }
    };
    let both = async {
        let first = tokio::spawn(async move {
            late(round.is_multiple_of(2)).await;
            one.await
        });
        let second = tokio::spawn(async move {
            late(round % 2 == 1).await;
            two.await
        });
        (first.await.unwrap(), second.await.unwrap())
    };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("nothing hangs")
}

/// One is well and the other is refused as busy; whether the first was well.
#[track_caller]
fn one_won<A: std::fmt::Debug, B: std::fmt::Debug>(
    one: &Result<A, Refusal>,
    two: &Result<B, Refusal>,
) -> bool {
    match (one, two) {
        (Ok(_), Err(refusal)) => {
            assert_eq!(refusal.code, Code::Ebusy, "{refusal}");
            true
        }
        (Err(refusal), Ok(_)) => {
            assert_eq!(refusal.code, Code::Ebusy, "{refusal}");
            false
        }
        (one, two) => panic!("{one:?} and {two:?}"),
    }
}

/// States follow each other, and every run ends once.
#[track_caller]
fn one_order(log: &[Value]) {
    let mut state = Value::from("idle");
    for change in log.iter().filter(|record| record["type"] == "state_changed") {
        assert_eq!(change["from"], state);
        state = change["to"].clone();
    }
    every_run_ends_once(log);
}

impl World {
    async fn idle_again(&self, id: SessionId) {
        eventually("the end", async || {
            let state = self.engine.look(ME, id).await.ok()?.state.name();
            (state == StateName::Idle).then_some(())
        })
        .await;
    }

    async fn with_two_messages(&self, name: &str) -> SessionId {
        let id = self.session(name).await;
        self.say(id, "m1", "one").await;
        self.say(id, "m2", "two").await;
        id
    }

    async fn proposal(&self, id: SessionId) -> CompactionId {
        self.engine.compact(ME, id, Some(Strategy::Checkpoint), None).await.unwrap();
        eventually("the proposal", async || {
            let session = self.engine.look(ME, id).await.ok()?;
            session.paused_at().and_then(|at| at.created.compaction_id)
        })
        .await
    }

    /// A session whose worker waits for an answer; it, its run and the approval.
    async fn asked(&self, name: &str) -> (SessionId, ctx_session::RunId, ApprovalId) {
        let id = self.session(name).await;
        let run = self.post(id, "m1", "ask").await.unwrap().run;
        self.go.notify_one();
        let approval = eventually("the approval", async || {
            let session = self.engine.look(ME, id).await.ok()?;
            session.control.approvals.first().map(|asked| asked.asked.approval_id)
        })
        .await;
        (id, run, approval)
    }

    async fn outcome(&self, id: SessionId, approval: ApprovalId) -> ApprovalOutcome {
        let session = self.engine.look(ME, id).await.unwrap();
        session.control.approval(approval).unwrap().settled.clone().unwrap().0.outcome
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn approve_against_reject() {
    let world = World::on(SimDisk::new(), roomy()).await;
    let mut approved = 0;
    for round in rounds(ROUNDS) {
        let name = format!("s{round}");
        let id = world.with_two_messages(&name).await;
        let compaction = world.proposal(id).await;
        let (one, two) = (world.engine.clone(), world.engine.clone());
        let (yes, no) = at_once(
            round,
            async move { one.approve_compaction(ME, id, compaction, &Default::default()).await },
            async move { two.reject_compaction(ME, id, compaction).await },
        )
        .await;
        let won = one_won(&yes, &no);
        approved += usize::from(won);
        world.idle_again(id).await;
        let log = world.log(&name);
        one_order(&log);
        let answers: Vec<&str> = log
            .iter()
            .filter_map(|record| record["type"].as_str())
            .filter(|kind| kind.starts_with("compaction_"))
            .collect();
        assert_eq!(answers, [if won { "compaction_approved" } else { "compaction_rejected" }]);
    }
    println!("{approved} approved");
}

#[tokio::test(flavor = "multi_thread")]
async fn compact_against_post() {
    let world = World::on(SimDisk::new(), roomy()).await;
    for round in rounds(ROUNDS) {
        let name = format!("s{round}");
        let id = world.with_two_messages(&name).await;
        let (one, two) = (world.engine.clone(), world.engine.clone());
        let (made, said) = at_once(
            round,
            async move { one.compact(ME, id, Some(Strategy::Drop), None).await },
            async move {
                let post = ctx_engine::Post { text: "three".to_owned(), ..Default::default() };
                two.post(ME, id, post).await
            },
        )
        .await;
        // Who comes when the other is done is well too.
        assert!(made.is_ok() || said.is_ok());
        for refusal in [made.as_ref().err(), said.as_ref().err()].into_iter().flatten() {
            assert_eq!(refusal.code, Code::Ebusy);
        }
        world.idle_again(id).await;
        let log = world.log(&name);
        one_order(&log);
        let runs: Vec<&Value> = log.iter().filter(|record| record["type"] == "run_created").collect();
        let compactions = runs.iter().filter(|run| run["kind"] == "compaction").count();
        assert_eq!(compactions, usize::from(made.is_ok()));
        assert_eq!(runs.len() - compactions, 2 + usize::from(said.is_ok()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allow_against_deny() {
    let world = World::on(SimDisk::new(), roomy()).await;
    for round in rounds(ROUNDS) {
        let name = format!("s{round}");
        let (id, _, approval) = world.asked(&name).await;
        let (one, two) = (world.engine.clone(), world.engine.clone());
        let (yes, no) = at_once(
            round,
            async move { one.answer_approval(ME, id, approval, Some(ApprovalScope::Call), None).await },
            async move { two.answer_approval(ME, id, approval, None, None).await },
        )
        .await;
        let expected = if one_won(&yes, &no) { ApprovalOutcome::Allow } else { ApprovalOutcome::Deny };
        world.idle_again(id).await;
        assert_eq!(world.outcome(id, approval).await, expected);
        let log = world.log(&name);
        one_order(&log);
        assert_eq!(log.iter().filter(|record| record["type"] == "approval_settled").count(), 1);
        let told = log.iter().find(|record| record["type"] == "tool_finished").unwrap();
        assert_eq!(told["output"], format!("{expected:?}"), "the worker was told the same");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allow_against_cancel() {
    let world = World::on(SimDisk::new(), roomy()).await;
    for round in rounds(ROUNDS) {
        let name = format!("s{round}");
        let (id, run, approval) = world.asked(&name).await;
        let (one, two) = (world.engine.clone(), world.engine.clone());
        let (yes, end) = at_once(
            round,
            async move { one.answer_approval(ME, id, approval, Some(ApprovalScope::Call), None).await },
            async move { two.cancel(ME, id, run).await },
        )
        .await;
        assert!(matches!(end, Ok(RunState::Cancelled | RunState::Done)), "{end:?}");
        let expected = match yes {
            Ok(_) => ApprovalOutcome::Allow,
            Err(refusal) => {
                assert_eq!(refusal.code, Code::Ebusy);
                ApprovalOutcome::Interrupted
            }
        };
        world.idle_again(id).await;
        assert_eq!(world.outcome(id, approval).await, expected);
        one_order(&world.log(&name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allow_against_the_end_of_its_time() {
    let world = World::on(SimDisk::new(), Limits { approval_ms: 6, ..roomy() }).await;
    let mut in_time = 0;
    for round in rounds(ROUNDS) {
        let name = format!("s{round}");
        let (id, _, approval) = world.asked(&name).await;
        tokio::time::sleep(Duration::from_micros(round % 8 * 700)).await;
        let yes = world.engine.answer_approval(ME, id, approval, Some(ApprovalScope::Call), None).await;
        world.idle_again(id).await;
        let expected = match yes {
            Ok(_) => ApprovalOutcome::Allow,
            Err(refusal) => {
                assert_eq!(refusal.code, Code::Ebusy);
                ApprovalOutcome::Timeout
            }
        };
        in_time += usize::from(expected == ApprovalOutcome::Allow);
        assert_eq!(world.outcome(id, approval).await, expected);
        let log = world.log(&name);
        one_order(&log);
        assert_eq!(log.iter().filter(|record| record["type"] == "approval_settled").count(), 1);
    }
    println!("{in_time} in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoint_against_end() {
    let world = World::on(SimDisk::new(), roomy()).await;
    let mut paused = 0;
    for round in rounds(ROUNDS) {
        let id = world.session(&format!("s{round}")).await;
        world.post(id, "m1", "hold").await.unwrap();
        let (one, two) = (world.engine.clone(), world.engine.clone());
        let (pause, end) =
            at_once(round, async move { one.checkpoint(ME, id, None, None).await }, async move {
                two.end(ME, id).await
            })
            .await;
        end.expect("a session can be ended in every state");
        match pause {
            Ok(_) => paused += 1,
            // Over, or about to be.
            Err(refusal) => assert!([Code::Eshutdown, Code::Ebusy].contains(&refusal.code), "{refusal}"),
        }
        eventually("the end", async || {
            let state = world.engine.look(ME, id).await.ok()?.state.name();
            (state == StateName::Ended).then_some(())
        })
        .await;
        one_order(&world.log(&format!("s{round}")));
    }
    assert_eq!(world.engine.counts().borrow().total, 0);
    println!("{paused} were paused first");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_bind_one_issue() {
    let world = World::on(SimDisk::new(), roomy()).await;
    let sessions = [world.session("a").await, world.session("b").await];
    let project = Name::new("default").unwrap();
    for round in rounds(ROUNDS) {
        let new = NewIssue { title: format!("issue {round}"), ..NewIssue::default() };
        let issue = world.engine.create_issue(ME, &project, new).await.unwrap().issue.id;
        let (one, two) = (world.engine.clone(), world.engine.clone());
        let (first, second) =
            at_once(round, async move { one.bind(ME, sessions[0], issue).await }, async move {
                two.bind(ME, sessions[1], issue).await
            })
            .await;
        let winner = sessions[usize::from(!one_won(&first, &second))];
        assert_eq!(world.engine.issue(ME, issue).await.unwrap().worker, Some(winner));
        for id in sessions {
            let bound = world.engine.look(ME, id).await.unwrap().bound_issue;
            assert_eq!(bound == Some(issue), id == winner);
        }
    }
}
