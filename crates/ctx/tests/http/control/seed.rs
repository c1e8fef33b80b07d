//! The seed's list of what a session manager does for its operator, line by line, and the test that holds each. Modules
//! are those of `tests/http`; a test below sees to it that every name is there.
//!
//! Checkpoint tests
//! - Create (operator): control::checkpoints::an_operator_pauses_a_run
//! - Create (model): control::checkpoints::a_model_pauses_its_own_session_and_is_told_when_it_goes_on
//! - Resume: control::checkpoints::a_model_pauses_its_own_session_and_is_told_when_it_goes_on
//! - Resume with prompt edit: control::checkpoints::an_edited_prompt_holds_from_the_resume_on_and_the_model_is_told
//! - Rollback, later messages superseded: control::rollback::going_back_leaves_out_what_came_after_and_deletes_nothing
//! - Rollback, next run from the checkpoint state: control::rollback::the_next_run_works_under_the_prompts_of_then
//! - Rollback to old checkpoint: control::rollback::going_back_to_an_old_checkpoint_supersedes_those_between
//!
//! Checkpoint lifecycle
//! - paused frees the slot: control::checkpoints::a_paused_session_frees_its_slot_and_needs_one_to_go_on
//! - Inspection, pending tool calls: control::checkpoints::what_the_model_asks_for_while_paused_waits_for_the_resume
//! - Inspection, prompts and reason: control::checkpoints::an_operator_pauses_a_run
//! - Inspection 4, a subagent's prompt: control::subagents::a_subagents_prompt_is_seen_and_edited_at_a_checkpoint
//! - Resume 1, the current pause point: control::seed::only_the_checkpoint_that_a_session_is_paused_at_is_resumed
//! - Resume 2, edits apply: control::checkpoints::an_edited_prompt_holds_from_the_resume_on_and_the_model_is_told
//! - paused to idle, no pending work: control::checkpoints::a_run_that_came_to_its_end_while_paused_has_nothing_left_to_do
//! - Rollback 1, the checkpoint exists: control::checkpoints::what_cannot_be_is_refused_with_the_code_of_the_table
//! - Rollback 2, from a pause: control::rollback::going_back_from_a_pause_ends_the_run_and_what_it_had_begun_to_say
//! - Rollback 5, prompts: control::mends::after_a_rollback_the_next_run_has_the_prompts_of_then_and_later_runs_the_files_again
//! - Limit of 50, archived: control::checkpoints::the_oldest_checkpoints_are_archived_and_can_still_be_read
//! - Failure, edited prompts fail: control::seed::a_run_that_fails_after_an_edited_prompt_leaves_the_session_idle
//! - Survives a restart: control::kill::a_paused_session_is_paused_after_a_restart_and_goes_on
//! - Fork from a checkpoint: control::checkpoints::a_fork_begins_where_a_session_was_paused
//!
//! Compaction lifecycle
//! - Record, threshold crossed: control::compaction::a_window_that_fills_is_summed_up_before_the_next_call_and_the_run_goes_on
//! - Record, provider overflow: control::compaction::a_provider_that_overflows_is_asked_again_with_less
//! - Record, operator manual: control::compaction::an_operator_drops_the_oldest_exchanges_by_hand
//! - Record, plugins fired and cost: control::project::a_command_of_the_project_sums_up
//! - drop, summarize, delegate change no state: control::seed::a_compaction_in_a_run_changes_no_state
//! - checkpoint, placeholder and pause: control::proposals::a_proposal_changes_nothing_and_waits_at_a_checkpoint_of_its_own
//! - checkpoint ends the run: control::project::a_full_window_is_proposed_to_be_compacted_and_the_work_goes_on_when_it_is_approved
//! - Approve, finalized: control::proposals::an_approved_proposal_takes_effect_as_it_is
//! - Approve, the operator's edits: control::proposals::an_operator_edits_a_proposal_and_approves_it
//! - Approve, a new run: control::project::a_full_window_is_proposed_to_be_compacted_and_the_work_goes_on_when_it_is_approved
//! - Reject, fallback and rolled back: control::proposals::a_rejected_proposal_leaves_everything_as_it_was
//! - Reject, then another strategy: control::project::a_proposal_that_is_rejected_leaves_the_operator_to_find_another_way
//! - Resume approves, rollback rejects: control::proposals::resuming_its_checkpoint_approves_and_rolling_back_rejects
//! - Inspection composes both: control::proposals::a_proposal_changes_nothing_and_waits_at_a_checkpoint_of_its_own
//! - Operator feedback: control::compaction::an_operator_says_what_they_think_of_it
//! - Rollback 1 to 4: control::compaction::a_rollback_past_a_compaction_undoes_it
//! - Limit of rows, aggregated: control::compaction::of_very_many_the_oldest_are_listed_as_one
//! - Limit of time, falls back: control::compaction::a_summary_that_is_no_shorter_or_takes_too_long_falls_back_to_dropping
//! - Storage, tables and indexes: control::seed::the_index_has_all_of_it_and_a_rebuild_gives_the_same
//!
//! Session-issue binding
//! - Session-side pointer: issues::binding_is_a_pointer_and_todos_wait_for_whoever_binds_next
//! - Many sessions, one at a time: issues::an_issue_has_one_session_at_a_time_and_is_free_after_it
//! - No state transition, todos stay: issues::binding_is_a_pointer_and_todos_wait_for_whoever_binds_next
//! - Re-binding rehydrates: issues::binding_is_a_pointer_and_todos_wait_for_whoever_binds_next
//! - todo requires a binding: issues::the_tools_work_on_the_bound_issue_alone
//! - PUT bind validates: issues::binding_is_a_pointer_and_todos_wait_for_whoever_binds_next
//! - DELETE bind: issues::binding_is_a_pointer_and_todos_wait_for_whoever_binds_next
//! - Creation with binding: issues::an_issue_has_one_session_at_a_time_and_is_free_after_it
//! - Auto-conclude, ending resolves nothing: issues::an_issue_has_one_session_at_a_time_and_is_free_after_it
//! - Auto-conclude, the closing checkpoint: issues::the_closing_checkpoint_resolves_the_issue_when_the_operator_says_so
//! - Sticky reminder and its suppression: issues::the_model_is_reminded_of_open_todos_and_nobody_stores_it
//!
//! State machine, persistence and reattach tests (`tests/daemon` and `tests/http`; every transition and the throttle are
//! tables in `ctx-session/tests/it`)
//! - Concurrent transitions: control::races::a_cancel_a_pause_and_the_end_of_the_run
//! - Crash recovery, the run failed: persistence::a_crash_during_a_run_fails_the_run_and_settles_its_tools
//! - Crash recovery, a committed response: kill::a_run_with_a_committed_response_is_done_after_a_crash
//! - At per-operator limit: throttle::sixteen_run_across_projects_and_the_seventeenth_waits
//! - Session creation ignores concurrency: throttle::creating_sessions_asks_no_limit
//! - Message ordering: persistence::a_hundred_messages_come_back_in_order
//! - Run recording: persistence::a_finished_run_has_all_its_fields_also_after_a_restart
//! - Session survives restart: persistence::a_session_survives_a_restart_as_it_was
//! - Clean reattach within buffer window: sockets::who_comes_back_is_shown_what_was_missed
//! - Reattach after buffer overflow: sockets::more_than_is_kept_is_resume_failed
//! - Multi-device conflict: sockets::one_operator_is_attached_others_observe_and_one_can_take_over
//! - A hello without epoch: sockets::a_hello_without_epoch_resumes_as_in_the_seed
//!
//! Audit events
//! - checkpoint.created: control::checkpoints::an_operator_pauses_a_run
//! - checkpoint.resumed: control::checkpoints::a_model_pauses_its_own_session_and_is_told_when_it_goes_on
//! - checkpoint.rolled_back: control::compaction::a_rollback_past_a_compaction_undoes_it
//! - prompt.edited: control::checkpoints::an_edited_prompt_holds_from_the_resume_on_and_the_model_is_told
//! - session.bound and unbound: issues::binding_is_a_pointer_and_todos_wait_for_whoever_binds_next
//! - issue and todo events: control::kill_issues::what_is_done_to_issues_is_audited_once_however_often_the_daemon_dies

use std::path::Path;

use serde_json::{Value, json};
use testkit::until;

use super::approvals::{answer, asking, waiting};
use super::compaction::{filler, summing_up};
use super::proposals::propose;
use super::{daemon, path, script, text};

#[test]
fn every_line_names_a_test_that_is_there() {
    assert!(lines_with_tests(include_str!("seed.rs")) > 50);
}

/// Checks that the lines `//! - …: module::test` of a source name tests of `tests/http`, or of the handlers in process
/// (`ctx-doors/tests/it`); how many there are.
pub fn lines_with_tests(source: &str) -> usize {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests/http", "tests/daemon", "../ctx-doors/tests/it"].map(|folder| here.join(folder));
    let lines: Vec<&str> = source.lines().filter(|line| line.starts_with("//! - ")).collect();
    for line in &lines {
        let (_, named) = line.rsplit_once(": ").unwrap_or_else(|| panic!("no test: {line}"));
        let (module, test) = named.rsplit_once("::").unwrap_or_else(|| panic!("no test: {line}"));
        let file = |folder: &Path| folder.join(module.replace("::", "/")).with_extension("rs");
        let mut sources = folders.iter().filter_map(|folder| std::fs::read_to_string(file(folder)).ok());
        assert!(
            sources.any(|source| source.contains(&format!("]\nfn {test}()"))
                || source.contains(&format!("]\nasync fn {test}()"))),
            "{line}"
        );
    }
    lines.len()
}

#[test]
fn only_the_checkpoint_that_a_session_is_paused_at_is_resumed() {
    let http = daemon(&[]);
    let (id, old) = http.paused("before", "after");
    http.resume(&id, &old);
    http.wait_for(&id, "idle");
    let current = http.pause_by_model(&id, "again", "and on");
    for act in ["resume", "prompts"] {
        let refused = match act {
            "resume" => http.at_checkpoint(&id, &old, "resume"),
            _ => http.edit(&id, &old, "too late"),
        };
        assert_eq!(refused.code(409), "EBUSY", "{act}");
    }
    assert_eq!(http.get(&format!("/sessions/{id}"))["checkpoint"], json!(current));
    http.resume(&id, &current);
    http.wait_for(&id, "idle");
    assert_eq!(http.messages(&id, false).last().unwrap().1, "and on");
}

/// "Run starts but immediately fails. Session → idle."
#[test]
fn a_run_that_fails_after_an_edited_prompt_leaves_the_session_idle() {
    let http = daemon(&[]);
    let id = http.playing();
    let failing = json!([{ "tool": { "name": "checkpoint", "input": {} } }, { "error": "unreachable" }]);
    let run = text(&http.post(&id, &script(failing)), "run_id").to_owned();
    http.wait_for(&id, "paused");
    let checkpoint = text(&http.get(&format!("/sessions/{id}")), "checkpoint").to_owned();
    http.edit(&id, &checkpoint, "A prompt that nobody likes.").json(200);
    assert_eq!(http.resume(&id, &checkpoint)["state"], "running");
    http.wait_for(&id, "idle");
    let shown = http.get(&path(&id, &format!("runs/{run}")));
    assert_eq!(
        (&shown["state"], &shown["error"]["code"]),
        (&json!("failed"), &json!("EHOSTDOWN")),
        "{shown}"
    );
    assert_eq!(http.done(&id, "hello")["state"], "done", "and it goes on");
}

/// "The session state does NOT change; the run continues with the compacted message list."
#[test]
fn a_compaction_in_a_run_changes_no_state() {
    let http = daemon(&[]);
    summing_up(&http, json!([{ "text": "IN SHORT" }]));
    let id = http.playing();
    for name in ["first", "second", "third", "fourth"] {
        http.done(&id, &filler(name, 4 * 2_048));
    }
    let records = http.records(&id);
    let at = records.iter().position(|record| record["type"] == "compaction").expect("a compaction");
    let run = &records[at]["turn_id"];
    let of_run: Vec<&Value> = records.iter().filter(|record| record["turn_id"] == *run).collect();
    assert_eq!(of_run.last().unwrap()["type"], "run_finished");
    let (from, to) = (of_run[0]["seq"].as_u64().unwrap(), of_run.last().unwrap()["seq"].as_u64().unwrap());
    let states = records.iter().filter(|record| {
        let seq = record["seq"].as_u64().unwrap();
        record["type"] == "state_changed" && from < seq && seq < to
    });
    let states: Vec<&str> = states.map(|record| text(record, "to")).collect();
    assert!(states.iter().all(|state| *state == "running"), "{states:?}");
}

#[test]
fn the_index_has_all_of_it_and_a_rebuild_gives_the_same() {
    let mut http = asking(&[("COMPACTIONS_PER_SESSION", "2"), ("COMPACTIONS_AGGREGATED", "2")]);
    // An approval, a pause with an edit, a rollback, compactions of every fate, an issue with todos, a binding.
    let (id, approval) = waiting(&http);
    answer(&http, &id, &approval, json!({ "decision": "deny", "note": "no" })).json(200);
    http.wait_for(&id, "idle");
    let first = http.pause_by_model(&id, "a", "b");
    http.edit(&id, &first, "EDITED").json(200);
    http.resume(&id, &first);
    http.wait_for(&id, "idle");
    http.pause_by_model(&id, "c", "d");
    http.at_checkpoint(&id, &first, "rollback").json(200);
    for act in ["approve", "reject"] {
        http.done(&id, "more");
        let proposal = propose(&http, &id);
        let at = path(&id, &format!("compactions/{}/{act}", text(&proposal, "compaction_id")));
        http.call("POST", &at, None).json(200);
    }
    http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"drop"}"#)).json(202);
    http.wait_for(&id, "idle");
    let issue = http.call("POST", "/projects/default/issues", Some(r#"{"title":"Mend"}"#)).json(201);
    let todos = format!("/issues/{}/todos", text(&issue, "id"));
    http.call("POST", &todos, Some(r#"{"op":"init","items":["a","b"]}"#)).json(200);
    http.call("POST", &todos, Some(r#"{"op":"done","item":"a"}"#)).json(200);
    let bind = json!({ "issue_id": issue["id"] }).to_string();
    http.call("PUT", &path(&id, "bind"), Some(&bind)).json(200);
    assert_eq!(http.daemon.stop(), 0);
    let index = http.daemon.root().join(".state/index.db");
    http.daemon.start_again();
    let dump = |http: &crate::support::Http| -> Value {
        let out = http.python("index_dump.py", &[index.to_str().unwrap()]).ok();
        serde_json::from_str(&out).unwrap()
    };
    let live = until("the index", || {
        let live = dump(&http);
        (live["sessions"][0]["bound_issue"] == issue["id"]).then_some(live)
    });
    for table in [
        "checkpoints",
        "prompt_edits",
        "compactions",
        "compaction_aggregates",
        "approvals",
        "issues",
        "todos",
    ] {
        assert!(!live[table].as_array().unwrap().is_empty(), "nothing in {table}");
    }
    http.daemon.kill();
    for file in ["index.db", "index.db-wal", "index.db-shm"] {
        let _ = std::fs::remove_file(http.daemon.root().join(".state").join(file));
    }
    http.daemon.start_again();
    let rows = |dump: &Value| -> Vec<usize> {
        dump.as_object().unwrap().values().map(|rows| rows.as_array().unwrap().len()).collect()
    };
    let again = until("the index to be built again", || {
        let again = dump(&http);
        (rows(&again) == rows(&live)).then_some(again)
    });
    assert_eq!(again, live);
}
