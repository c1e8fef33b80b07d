//! Two answers to one question at the same moment: one is first, the other is told so, and the log shows one order.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{moment, rounds, until};

use super::approvals::{asking, reading};
use super::proposals::propose;
use super::races::{one_order, races};
use super::{Line, daemon, path, text};
use crate::support::{Http, Response};

const ROUNDS: u64 = 10;

/// Asks for both at once, the one a little before the other, another one in every round.
fn at_once(
    http: &Http,
    round: u64,
    one: (&str, &str, Option<&str>),
    two: (&str, &str, Option<&str>),
) -> (Response, Response) {
    let line = Line::to(http);
    let ask = |(method, path, body): (&str, &str, Option<&str>), late: bool| {
        if late {
            std::thread::sleep(Duration::from_micros(moment(round, 1_200)));
        }
        line.ask(method, path, body).expect("an answer")
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(one, round.is_multiple_of(2)));
        let second = scope.spawn(|| ask(two, round % 2 == 1));
        (first.join().unwrap(), second.join().unwrap())
    })
}

/// One was well, the other is refused as busy; whether the first was well.
#[track_caller]
fn one_won(one: &Response, two: &Response) -> bool {
    let won = one.status < 300;
    assert_ne!(won, two.status < 300, "{one:?} {two:?}");
    let other = if won { two } else { one };
    assert_eq!(other.code(409), "EBUSY");
    won
}

fn settled(http: &Http, id: &str) {
    until("the end", || ["idle", "ended"].contains(&http.state(id).as_str()).then_some(()));
    one_order(http, id, true);
}

#[test]
fn a_proposal_is_approved_or_rejected_and_not_both() {
    let http = races();
    let mut approved = 0;
    for round in rounds(ROUNDS) {
        let id = http.playing();
        http.done(&id, "one");
        http.done(&id, "two");
        let compaction = text(&propose(&http, &id), "compaction_id").to_owned();
        let at = |act: &str| path(&id, &format!("compactions/{compaction}/{act}"));
        let (approve, reject) = (at("approve"), at("reject"));
        let (yes, no) = at_once(&http, round, ("POST", &approve, None), ("POST", &reject, None));
        let won = one_won(&yes, &no);
        settled(&http, &id);
        let made = http.get(&path(&id, &format!("compactions/{compaction}")));
        assert_eq!(made["state"], if won { "applied" } else { "rejected" });
        assert_eq!(http.messages(&id, true).len(), if won { 2 } else { 0 });
        approved += u64::from(won);
    }
    println!("{approved} approved");
}

#[test]
fn a_compaction_and_a_message_want_the_same_session() {
    let http = races();
    let mut compacted = 0;
    for round in rounds(ROUNDS) {
        let id = http.playing();
        http.done(&id, "one");
        http.done(&id, "two");
        let (compact, post) = (path(&id, "compactions"), path(&id, "messages"));
        let (made, said) = at_once(
            &http,
            round,
            ("POST", &compact, Some(r#"{"strategy":"drop"}"#)),
            ("POST", &post, Some(r#"{"text":"three"}"#)),
        );
        settled(&http, &id);
        // Whoever comes when the other is done is not refused.
        let runs = http.of_type(&id, "run_created");
        for (response, is_compaction) in [(&made, true), (&said, false)] {
            assert!(response.status == 202 || response.code(409) == "EBUSY", "{response:?}");
            let of_kind = |run: &&Value| (run["kind"] == "compaction") == is_compaction;
            let begun = runs.iter().skip(2).filter(of_kind).count();
            assert_eq!(begun, usize::from(response.status == 202), "{runs:?}");
        }
        assert!(made.status == 202 || said.status == 202, "one of them won");
        assert_eq!(http.of_type(&id, "compaction").len(), usize::from(made.status == 202));
        compacted += u64::from(made.status == 202);
    }
    println!("{compacted} compacted");
}

/// A session whose model waits to read a file, begun without a process of its own.
fn asked(http: &Http) -> (String, Value) {
    let id = http.playing();
    http.post(&id, &reading());
    let line = Line::to(http);
    let approval = until("the approval", || {
        let list = line.ask("GET", &path(&id, "approvals"), None)?.json(200);
        list["items"].as_array().unwrap().first().cloned()
    });
    (id, approval)
}

fn outcome(http: &Http, id: &str) -> String {
    let settled = http.of_type(id, "approval_settled");
    assert_eq!(settled.len(), 1, "settled once: {settled:?}");
    text(&settled[0], "outcome").to_owned()
}

#[test]
fn an_answer_and_the_cancel_of_its_run() {
    let http = asking(&[]);
    for round in rounds(ROUNDS) {
        let (id, approval) = asked(&http);
        let answer = path(&id, &format!("approvals/{}", text(&approval, "id")));
        let cancel = path(&id, &format!("runs/{}/cancel", text(&approval, "run_id")));
        let decision = if round % 3 == 0 { "deny" } else { "allow" };
        let body = json!({ "decision": decision }).to_string();
        let (said, cancelled) =
            at_once(&http, round, ("POST", &answer, Some(&body)), ("POST", &cancel, None));
        assert_eq!(cancelled.status, 200, "{cancelled:?}");
        settled(&http, &id);
        let outcome = outcome(&http, &id);
        match said.status {
            200 => assert_eq!(outcome, decision),
            _ => {
                assert_eq!(said.code(409), "EBUSY");
                assert_eq!(outcome, "interrupted");
            }
        }
    }
}

#[test]
fn an_answer_and_the_end_of_its_time() {
    let http = asking(&[("APPROVAL_MS", "120")]);
    let mut in_time = 0;
    for round in rounds(ROUNDS) {
        let (id, approval) = asked(&http);
        // Around the moment at which it is over.
        std::thread::sleep(Duration::from_millis(60 + moment(round, 120)));
        let answer = path(&id, &format!("approvals/{}", text(&approval, "id")));
        let said = Line::to(&http).ask("POST", &answer, Some(r#"{"decision":"allow"}"#)).unwrap();
        settled(&http, &id);
        match said.status {
            200 => {
                in_time += 1;
                assert_eq!(outcome(&http, &id), "allow");
            }
            _ => {
                assert_eq!(said.code(409), "EBUSY");
                assert_eq!(outcome(&http, &id), "timeout");
            }
        }
    }
    println!("{in_time} in time");
}

#[test]
fn two_sessions_are_made_for_one_issue_and_one_gets_it() {
    let http = daemon(&[]);
    for round in rounds(ROUNDS) {
        let made = http.call("POST", "/projects/default/issues", Some(r#"{"title":"Wanted"}"#)).json(201);
        let body = json!({ "bound_issue": made["id"] }).to_string();
        let create = ("POST", "/projects/default/sessions", Some(body.as_str()));
        let (one, two) = at_once(&http, round, create, create);
        let winner = if one_won(&one, &two) { one.json(201) } else { two.json(201) };
        let issue = http.get(&format!("/issues/{}", text(&made, "id")));
        assert_eq!(issue["session_id"], winner["id"]);
        let left = http.get("/projects/default/sessions?limit=1000");
        assert_eq!(
            left["items"].as_array().map(Vec::len),
            Some(round as usize + 1),
            "the other leaves nothing"
        );
    }
}
