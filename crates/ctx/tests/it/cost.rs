//! What model calls cost, wherever it is shown, and the limits on it.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::models::{ModelServer, Reply};
use testkit::{Outcome, Place, TestDaemon, finish, until};

use crate::support::{build, json_lines};

/// A model whose price the data file knows. A call of the server's counts 1000 tokens in, 400 of them cached, and 50 out: $0.0025.
const MODEL: &str = "openai:gpt-4o";

fn with_key(place: &Place, server: &ModelServer, args: &[&str]) -> Command {
    let mut command = place.command(args);
    command.env("OPENAI_API_KEY", "sk-a-key").env("OPENAI_BASE_URL", format!("{}/v1", server.url()));
    command.stdin(Stdio::null());
    command
}

fn run(daemon: &TestDaemon, server: &ModelServer, session: &str) -> Outcome {
    server.reply(Reply::text("Done."));
    finish(&mut with_key(daemon, server, &["run", "--session", session, "--model", MODEL, "go"]))
}

fn stats(daemon: &TestDaemon) -> Value {
    serde_json::from_str(&daemon.ctx(&["stats", "--json"]).ok()).unwrap()
}

/// The counts when the index has so many model calls, and the ends of their runs.
fn counted(daemon: &TestDaemon, calls: u64) -> Value {
    until("the index to have it", || {
        let is_whole =
            |all: &Value| all["by_day"][0]["calls"] == calls && all["runs_by_state"]["running"].is_null();
        Some(stats(daemon)).filter(is_whole)
    })
}

#[test]
fn what_model_calls_cost_is_shown_by_session_run_day_model_and_project() {
    let (daemon, server) = (build().start(), ModelServer::start());
    run(&daemon, &server, "a").ok();
    run(&daemon, &server, "a").ok();
    run(&daemon, &server, "b").ok();
    let all = counted(&daemon, 3);
    assert_eq!(
        all["usage"],
        json!({ "input": 3000, "output": 150, "cached": 1200, "cost_usd": 0.0075 }),
        "{all}"
    );
    let spent = json!({ "key": "openai:gpt-4o", "calls": 3, "input": 3000, "output": 150, "cached": 1200, "cost_usd": 0.0075 });
    assert_eq!(all["by_model"], json!([spent]));
    assert_eq!(
        (&all["by_project"][0]["key"], &all["by_agent"][0]["key"]),
        (&json!("default"), &json!("coder"))
    );
    let (day, week) = (all["by_day"][0]["key"].as_str().unwrap(), all["by_week"][0]["key"].as_str().unwrap());
    assert!(day.len() == 10 && week.len() == 8 && week.contains("-W"), "{day} {week}");
    let listed = json_lines(&daemon.ctx(&["ls", "--json"]).ok());
    let a = listed.iter().find(|one| one["name"] == "a").unwrap();
    assert_eq!(
        (&a["tokens_in"], &a["tokens_cached"], &a["cost_usd"]),
        (&json!(2000), &json!(800), &json!(0.005))
    );
    assert!(
        daemon.ctx(&["ls"]).ok().lines().any(|line| line.contains("coder/a") && line.contains("$0.0050"))
    );
    let shown = daemon.ctx(&["show", "coder/a"]).ok();
    assert!(shown.contains("2.0k tokens in (800 cached), 100 out, $0.0050"), "{shown}");
    let by = daemon.ctx(&["stats", "--by", "model"]).ok();
    assert!(by.contains("openai:gpt-4o") && by.contains("$0.0075"), "{by}");
    let log = daemon.ctx(&["log", "coder/b"]).ok();
    assert!(log.contains("1000 tokens in, 50 out, $0.0025"), "{log}");
}

#[test]
fn the_cost_of_a_model_without_a_known_price_is_unknown_and_not_nothing() {
    let (daemon, server) = (build().start(), ModelServer::start());
    let of_model = |model: &str| {
        server.reply(Reply::text("Done."));
        finish(&mut with_key(&daemon, &server, &["run", "--model", model, "go"])).ok();
    };
    daemon.ctx(&["send", "--model", "debug:echo", "free"]).ok();
    of_model("openai:nobody-knows");
    let all = counted(&daemon, 2);
    assert_eq!(
        (&all["usage"]["cost_usd"], &all["usage"]["unpriced_calls"]),
        (&Value::Null, &json!(1)),
        "{all}"
    );
    assert!(daemon.ctx(&["stats"]).ok().lines().any(|line| line.ends_with(" unknown")));
    of_model(MODEL);
    let all = counted(&daemon, 3);
    assert_eq!(
        (&all["usage"]["cost_usd"], &all["usage"]["unpriced_calls"]),
        (&json!(0.0025), &json!(1)),
        "{all}"
    );
    let costs: Vec<&Value> = all["by_model"].as_array().unwrap().iter().map(|row| &row["cost_usd"]).collect();
    assert_eq!(costs, [&json!(0.0025), &Value::Null, &json!(0.0)], "{all}");
    let by = daemon.ctx(&["stats", "--by", "model"]).ok();
    let ends = |name: &str, cost: &str| {
        by.lines().any(|line| line.contains(name) && line.trim_end().ends_with(cost))
    };
    assert!(
        ends("gpt-4o", "$0.0025") && ends("nobody-knows", " unknown") && ends("debug:echo", "$0.00"),
        "{by}"
    );
    assert!(ends("all", "$0.0025 + unknown"), "{by}");
}

/// Runs in a session until a call is refused; how many were not.
fn until_refused(daemon: &TestDaemon, server: &ModelServer, session: &str) -> (usize, String) {
    for count in 0..5 {
        let done = run(daemon, server, session);
        if done.code != 0 {
            assert!(done.code == 1 && done.stderr.contains("EDQUOT"), "{}", done.stderr);
            return (count, done.stderr);
        }
    }
    panic!("no limit was reached");
}

#[test]
fn a_session_that_has_spent_its_limit_makes_no_further_call() {
    let limit = build().env("CTX_LIMITS_SPEND_SESSION_USD", "0.005");
    let (mut daemon, server) = (limit.start(), ModelServer::start());
    let (calls, said) = until_refused(&daemon, &server, "s");
    assert_eq!(calls, 2);
    assert!(
        said.contains("this session has spent $0.0050, and limits.spend_session_usd is $0.0050"),
        "{said}"
    );
    let asked = server.bodies().len();
    daemon.kill();
    daemon.start_again();
    run(&daemon, &server, "s").fails(1);
    assert_eq!(server.bodies().len(), asked, "nothing was asked, also after a restart");
    run(&daemon, &server, "another").ok();
    let log = daemon.ctx(&["log", "coder/s"]).ok();
    assert!(log.contains("EDQUOT spend_limit"), "{log}");
}

#[test]
fn a_model_without_a_price_says_that_no_spend_limit_holds_for_it() {
    let limit = build().env("CTX_LIMITS_SPEND_SESSION_USD", "0.005");
    let (daemon, server) = (limit.start(), ModelServer::start());
    let words = "the price of openai:unheard-of is not known: what it costs counts for no spend limit";
    let ask = |model: &str, session: &str| {
        server.reply(Reply::text("Hi."));
        finish(&mut with_key(&daemon, &server, &["run", "--session", session, "--model", model, "hi"]))
    };
    let told = ask("openai:unheard-of", "s");
    assert_eq!((told.code, told.stdout.trim()), (0, "Hi."), "{}", told.stderr);
    assert_eq!(told.stderr.matches(words).count(), 1, "{}", told.stderr);
    let log = daemon.ctx(&["log", "coder/s", "--json"]).ok();
    assert!(log.contains(r#""type":"noticed""#) && log.contains(r#""reason":"no_price""#), "{log}");
    let shown = daemon.ctx(&["log", "coder/s"]).ok();
    assert!(shown.contains(words), "{shown}");
    // One whose price is known has nothing to say, and without a limit nobody has.
    let told = ask("openai:gpt-4o", "known");
    assert!(told.code == 0 && !told.stderr.contains("price"), "{}", told.stderr);
}

#[test]
fn a_day_has_its_limit_in_a_project_and_over_all_also_after_a_restart() {
    for (key, words) in [
        (
            "SPEND_PROJECT_DAY_USD",
            "project default has spent $0.0075, and limits.spend_project_day_usd is $0.0060",
        ),
        (
            "SPEND_OPERATOR_DAY_USD",
            "your sessions have spent $0.0075, and limits.spend_operator_day_usd is $0.0060",
        ),
    ] {
        let limit = build().env(&format!("CTX_LIMITS_{key}"), "0.006");
        let (mut daemon, server) = (limit.start(), ModelServer::start());
        run(&daemon, &server, "a").ok();
        daemon.kill();
        daemon.start_again();
        run(&daemon, &server, "b").ok();
        daemon.stop();
        // What is derived can be deleted: the logs say what was spent.
        std::fs::remove_file(daemon.root().join(".state/index.db")).unwrap();
        daemon.start_again();
        run(&daemon, &server, "c").ok();
        let refused = run(&daemon, &server, "d").fails(1);
        assert!(refused.contains(words), "{key}: {refused}");
    }
}

#[test]
fn an_amount_that_is_none_is_refused() {
    let place = crate::support::place();
    for (text, words) in [("-1", "amount of dollars"), ("lots", "amount of dollars")] {
        let told = finish(place.command(&["config", "show"]).env("CTX_LIMITS_SPEND_SESSION_USD", text));
        assert!(told.code == 2 && told.stderr.contains(words), "{}", told.stderr);
    }
    let told = finish(place.command(&["config", "show"]).env("CTX_LIMITS_SPEND_SESSION_USD", "2.50"));
    assert!(told.code == 0 && told.stdout.contains("2.5"), "{}{}", told.stdout, told.stderr);
}
