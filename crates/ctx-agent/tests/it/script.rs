//! Every step of a script, every kind of error, and where a script goes on.

use ctx_agent::model::script::Script;
use ctx_session::Ulid;
use ctx_session::conversation::Role;
use expect_test::{Expect, expect};

use crate::support::{Log, Root, message, said};

async fn check(script: &str, expected: Expect) {
    let root = Root::new();
    root.put("a.txt", "one\ntwo\n");
    expected.assert_eq(&root.run("debug/script", script).await);
}

#[tokio::test]
async fn text_goes_out_in_deltas_of_at_most_16_characters() {
    check(
        r#"{"script":[{"text":"häll wörld, this is long"},{"text":"!"}]}"#,
        expect![[r##"
            #1 started step 1 debug/script
            #1 text "häll wörld, this"
            #1 text " is long"
            #1 text "!"
            #1 finished Stop "häll wörld, this is long!"
            done
        "##]],
    )
    .await;
}

#[tokio::test]
async fn reasoning_is_shown_apart_and_kept() {
    check(
        r#"{"script":[{"reasoning":"let me see"},{"text":"yes"}]}"#,
        expect![[r##"
            #1 started step 1 debug/script
            #1 thinks "let me see"
            #1 text "yes"
            #1 reasoned "let me see"
            #1 finished Stop "yes"
            done
        "##]],
    )
    .await;
}

#[tokio::test]
async fn usage_is_what_the_script_says() {
    check(
        r#"{"script":[{"usage":{"input":3,"output":2}},{"text":"x"},{"usage":{"output":5}}]}"#,
        expect![[r##"
            #1 started step 1 debug/script
            #1 text "x"
            #1 finished Stop "x" 3+7 tokens
            done
        "##]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_sleep_takes_its_time() {
    let root = Root::new();
    let begin = tokio::time::Instant::now();
    let told = root.run("debug/script", r#"{"script":[{"sleep_ms":5000},{"text":"late"}]}"#).await;
    assert!(told.ends_with("done\n"), "{told}");
    assert_eq!(begin.elapsed().as_millis(), 5000);
}

#[tokio::test]
async fn a_script_goes_on_after_each_tool_call() {
    check(
        r#"{"script":[{"text":"looking"},{"tool":{"name":"fs.read","input":{"path":"a.txt"}}},
            {"tool":{"name":"fs.list"}},{"text":"done"}]}"#,
        expect![[r##"
            #1 started step 1 debug/script
            #1 text "looking"
            #1 finished ToolCalls "looking"
            #2 calls fs.read {"path":"a.txt"}
            #2 gave "one\ntwo\n"
            #3 started step 2 debug/script
            #3 finished ToolCalls ""
            #4 calls fs.list {}
            #4 gave "a.txt\n"
            #5 started step 3 debug/script
            #5 text "done"
            #5 finished Stop "done"
            done
        "##]],
    )
    .await;
}

#[tokio::test]
async fn several_calls_in_one_answer_keep_their_order() {
    check(
        r#"{"script":[{"tool":[{"name":"fs.list","id":"c1"},{"name":"fs.read","input":{"path":"a.txt"},"id":"c1"}]},
            {"text":"both"}]}"#,
        expect![[r##"
            #1 started step 1 debug/script
            #1 finished ToolCalls ""
            #2 calls fs.list {} (c1)
            #3 calls fs.read {"path":"a.txt"} (c1)
            #2 gave "a.txt\n"
            #3 gave "one\ntwo\n"
            #4 started step 2 debug/script
            #4 text "both"
            #4 finished Stop "both"
            done
        "##]],
    )
    .await;
}

#[tokio::test]
async fn a_model_may_stop_after_a_tool_call_without_a_word() {
    check(
        r#"{"script":[{"tool":{"name":"fs.list"}}]}"#,
        expect![[r##"
            #1 started step 1 debug/script
            #1 finished ToolCalls ""
            #2 calls fs.list {}
            #2 gave "a.txt\n"
            done
        "##]],
    )
    .await;
}

#[tokio::test]
async fn each_error_has_its_code_and_ends_the_run() {
    for (kind, expected) in [
        ("unreachable", "failed EHOSTDOWN unreachable: debug:script cannot be reached"),
        ("overflow", "failed EOVERFLOW overflow: the conversation is too long for debug:script"),
        ("broken_stream", "failed EPIPE broken_stream: the answer of debug:script broke off"),
        ("empty", "failed ENODATA empty: debug:script gave an empty answer"),
    ] {
        let root = Root::new();
        let told = root.run("debug/script", &format!(r#"{{"script":[{{"error":"{kind}"}}]}}"#)).await;
        assert!(told.starts_with(expected), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_tried_again_with_growing_waits_until_the_attempts_are_used_up() {
    check(
        r#"{"script":[{"error":"rate_limit"}]}"#,
        expect![[r#"
            retries EAGAIN after attempt 1 of 5 in 250 ms
            retries EAGAIN after attempt 2 of 5 in 500 ms
            retries EAGAIN after attempt 3 of 5 in 1000 ms
            retries EAGAIN after attempt 4 of 5 in 2000 ms
            failed EAGAIN rate_limit: debug:script is at its rate limit: its script says so; wait a little and send the message again
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_error_with_times_fails_so_many_attempts() {
    check(
        r#"{"script":[{"error":"rate_limit","times":2},{"text":"at last"}]}"#,
        expect![[r##"
            retries EAGAIN after attempt 1 of 5 in 250 ms
            retries EAGAIN after attempt 2 of 5 in 500 ms
            #1 started step 1 debug/script
            #1 text "at last"
            #1 finished Stop "at last"
            done
        "##]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_for_each_call_anew() {
    check(
        r#"{"script":[{"error":"rate_limit","times":1},{"tool":{"name":"fs.list"}},{"error":"rate_limit","times":1},
            {"text":"ok"}]}"#,
        expect![[r##"
            retries EAGAIN after attempt 1 of 5 in 250 ms
            #1 started step 1 debug/script
            #1 finished ToolCalls ""
            #2 calls fs.list {}
            #2 gave "a.txt\n"
            retries EAGAIN after attempt 1 of 5 in 250 ms
            #3 started step 2 debug/script
            #3 text "ok"
            #3 finished Stop "ok"
            done
        "##]],
    )
    .await;
}

#[tokio::test]
async fn an_error_after_text_fails_the_run_and_leaves_the_text_told() {
    for kind in ["broken_stream", "unreachable", "rate_limit"] {
        let root = Root::new();
        let script = format!(r#"{{"script":[{{"reasoning":"hm"}},{{"text":"half"}},{{"error":"{kind}"}}]}}"#);
        let told = root.run("debug/script", &script).await;
        let lines: Vec<&str> = told.lines().collect();
        let begin = ["#1 started step 1 debug/script", r##"#1 thinks "hm""##, r##"#1 text "half""##];
        assert_eq!(lines[..3], begin, "{told}");
        assert_eq!(lines[3], r##"#1 reasoned "hm""##);
        assert!(lines[4].starts_with("failed E") && lines.len() == 5, "{told}");
    }
}

#[tokio::test]
async fn an_answer_without_text_and_calls_is_never_a_success() {
    for script in [
        r#"{"script":[]}"#,
        r#"{"script":[{"text":""}]}"#,
        r#"{"script":[{"dump":false}]}"#,
        r#"{"script":[{"reasoning":"only thoughts"}]}"#,
        r#"{"script":[{"usage":{"input":1,"output":0}}]}"#,
    ] {
        let told = Root::new().run("debug/script", script).await;
        assert!(told.lines().last().unwrap().starts_with("failed ENODATA empty"), "{script}: {told}");
    }
}

#[tokio::test]
async fn dump_answers_with_the_request() {
    let root = Root::new();
    root.control("prompt", "be brief");
    let log = std::sync::Arc::new(Log::default());
    let outcome = root
        .run_with(root.job("debug/script", r#"{"script":[{"dump":true}]}"#), &log, Default::default())
        .await;
    assert_eq!(outcome, ctx_session::command::Outcome::Done);
    let pieces = log.lines();
    let text: String = pieces
        .iter()
        .filter_map(|line| line.strip_prefix("#1 text "))
        .map(|piece| serde_json::from_str::<String>(&piece.replace("\\'", "'")).unwrap())
        .collect();
    let request: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(request["model"], "debug/script");
    assert_eq!(request["attempt"], 1);
    assert_eq!(request["prompt"], "be brief");
    assert_eq!(request["messages"][0]["role"], "user");
    assert_eq!(request["messages"][0]["content"][0]["text"], r#"{"script":[{"dump":true}]}"#);
    let tools: Vec<&str> =
        request["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let known: Vec<String> =
        ctx_agent::tool::Tools::all().specs().into_iter().map(|spec| spec.name).collect();
    assert_eq!(tools, known);
    assert!(tools.contains(&"fs.edit"), "{tools:?}");
}

#[tokio::test]
async fn without_a_script_it_answers_like_echo() {
    for text in ["hello", "{not json", r#"{"other":[]}"#, "[1,2]", "{}"] {
        let root = Root::new();
        let script = root.run("debug/script", text).await;
        assert_eq!(script.replace("debug/script", "debug/echo"), root.run("debug/echo", text).await);
    }
}

#[tokio::test]
async fn a_bad_script_says_which_step_is_wrong() {
    for (script, expected) in [
        (r#"{"script":{}}"#, "a script is a list of steps"),
        (r#"{"script":[{"text":"a"},{"txt":"b"}]}"#, "step 2 of the script: unknown step `txt`"),
        (r#"{"script":["text"]}"#, "step 1 of the script: expected an object"),
        (r#"{"script":[{"text":1}]}"#, "`text` must be a string"),
        (r#"{"script":[{"sleep_ms":-1}]}"#, "`sleep_ms` must be a whole number"),
        (r#"{"script":[{"tool":{"input":{}}}]}"#, "`tool` must be an object"),
        (r#"{"script":[{"tool":[]}]}"#, "`tool` must be an object"),
        (r#"{"script":[{"tool":{"name":"x","args":{}}}]}"#, "unknown key `args`"),
        (r#"{"script":[{"error":"boom"}]}"#, "`error` must be unreachable, rate_limit"),
        (r#"{"script":[{"error":"empty","times":"x"}]}"#, "`times` must be a whole number"),
        (r#"{"script":[{"text":"a","times":1}]}"#, "`times` goes with `error` alone"),
        (r#"{"script":[{"text":"a","reasoning":"b"}]}"#, "expected one of text, reasoning"),
        (r#"{"script":[{"usage":{"in":1}}]}"#, "`usage` holds `input` and `output`"),
        (r#"{"script":[{"dump":"yes"}]}"#, "`dump` must be true or false"),
        (r#"{"script":[{}]}"#, "expected one of text"),
    ] {
        let told = Root::new().run("debug/script", script).await;
        assert!(told.starts_with("failed EINVAL bad_request: "), "{script}: {told}");
        assert!(told.contains(expected), "{script}: {told}");
    }
}

#[tokio::test]
async fn a_script_comes_from_the_file_that_default_names() {
    for (default, content) in [
        ("script=play.json\n", r#"{"script":[{"text":"from the file"}]}"#),
        ("play.json\n", r#"[{"text":"from the file"}]"#),
    ] {
        let root = Root::new();
        let dir = root.path().join("model/debug/script.d");
        std::fs::write(dir.join("default"), default).unwrap();
        std::fs::write(dir.join("play.json"), content).unwrap();
        let told = root.run("debug/script", "anything").await;
        assert!(told.contains(r#"finished Stop "from the file""#), "{told}");
        let told = root.run("debug/script", r#"{"script":[{"text":"from the message"}]}"#).await;
        assert!(told.contains(r#"finished Stop "from the message""#), "{told}");
    }
}

#[tokio::test]
async fn a_run_that_is_taken_up_again_goes_on_where_it_was() {
    let script = r#"{"script":[{"text":"a"},{"tool":{"name":"fs.list"}},{"text":"b"},{"tool":[{"name":"fs.list"},
        {"name":"fs.list"}]},{"text":"c"}]}"#;
    let root = Root::new();
    let whole = root.run("debug/script", script).await;
    // What the log holds after one and after both of the tool steps; an earlier run's calls do not count.
    let mut messages = vec![
        said(Role::User, "earlier"),
        call(90),
        result(90),
        said(Role::User, script),
        said(Role::Assistant, "a"),
        call(1),
        result(1),
    ];
    for (more, rest) in
        [(vec![], "b"), (vec![said(Role::Assistant, "b"), call(2), call(3), result(2), result(3)], "c")]
    {
        messages.extend(more);
        let log = std::sync::Arc::new(Log::default());
        let outcome =
            root.run_with(root.job_of("debug/script", messages.clone()), &log, Default::default()).await;
        let told = log.text(&outcome);
        assert!(told.starts_with(&format!("#1 started step 1 debug/script\n#1 text {rest:?}\n")), "{told}");
        assert!(told.ends_with("done\n") && whole.ends_with("done\n"));
    }
}

fn call(id: u128) -> ctx_session::conversation::Message {
    let part = ctx_session::conversation::Part::ToolCall {
        call_id: Ulid(id),
        name: "fs.list".to_owned(),
        input: serde_json::json!({}),
        provider: None,
    };
    message(Role::Assistant, part)
}

fn result(id: u128) -> ctx_session::conversation::Message {
    let part = ctx_session::conversation::Part::ToolResult {
        call_id: Ulid(id),
        status: ctx_session::record::ToolStatus::Ok,
        text: String::new(),
    };
    message(Role::Tool, part)
}

#[test]
fn only_an_object_with_a_script_is_one() {
    assert!(Script::in_message("hello").is_none());
    assert!(Script::in_message(r#"{"a":1}"#).is_none());
    assert!(Script::in_message(r#" {"script":[{"text":"x"}]} "#).unwrap().is_ok());
    assert!(Script::in_message(r#"{"script":3}"#).unwrap().is_err());
}
