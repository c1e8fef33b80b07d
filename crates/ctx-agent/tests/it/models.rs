//! Finding models: by identity in both forms, by alias, and clear answers when there is none.

use std::os::unix::fs::symlink;

use ctx_agent::model::{Answer, Event, Finish, Model, ModelError, Request, Turn};
use ctx_agent::{BoxFuture, ModelId};
use ctx_session::Name;
use ctx_session::command::Outcome;
use ctx_session::conversation::{Part, Role};
use ctx_session::record::Usage;
use expect_test::expect;
use std::sync::Arc;

use crate::support::{Log, Root, run_on};

#[test]
fn a_model_is_found_in_every_form_of_its_name() {
    let root = Root::new();
    for name in ["debug/echo", "debug:echo", "main"] {
        assert_eq!(root.models().resolve(name).unwrap().to_string(), "debug/echo", "{name}");
    }
    assert_eq!(root.models().resolve("main").unwrap().to_string(), "debug/echo");
    let all: Vec<String> = root.models().list().unwrap().iter().map(ModelId::to_string).collect();
    assert_eq!(all, ["debug/echo", "debug/script"]);
}

#[test]
fn links_are_followed_inside_model_and_nowhere_else() {
    let root = Root::new();
    let model = root.path().join("model");
    std::fs::create_dir_all(model.join("acme")).unwrap();
    std::fs::create_dir_all(root.path().join("elsewhere/best.d")).unwrap();
    for (link, target) in [
        ("fast", "debug/script"),
        ("acme/best", "../debug/script"),
        ("other", "debug"),
        ("chain", "fast"),
        ("out", "../elsewhere/best"),
        ("acme/out", "../../elsewhere/best"),
        ("host", "/etc/passwd"),
        ("round", "circle"),
        ("circle", "round"),
        ("gone", "debug/nothing"),
        ("deep", "debug/script/more"),
    ] {
        symlink(target, model.join(link)).unwrap();
    }
    symlink(model.join("debug/script"), model.join("absolute")).unwrap();
    for (name, expected) in [
        ("fast", Ok("debug/script")),
        ("acme/best", Ok("debug/script")),
        ("acme:best", Ok("debug/script")),
        ("other/script", Ok("debug/script")),
        ("chain", Ok("debug/script")),
        ("absolute", Ok("debug/script")),
        ("out", Err("EACCES")),
        ("acme/out", Err("EACCES")),
        ("host", Err("EACCES")),
        ("deep", Err("EACCES")),
        ("round", Err("EBADMSG")),
        ("gone", Err("ENOENT")),
        ("nothing", Err("ENOENT")),
        ("other", Err("ENOENT")),
        ("debug/nothing", Err("ENOENT")),
        ("openai:gpt-4o", Err("ENOENT")),
        ("a/b/c", Err("EINVAL")),
        ("", Err("EINVAL")),
        ("../x", Err("EINVAL")),
        ("debug/echo.d", Err("EINVAL")),
    ] {
        let found = root.models().resolve(name);
        let found = found.as_ref().map(ModelId::to_string).map_err(|error| error.code().name());
        assert_eq!(found, expected.map(str::to_owned), "{name}");
    }
}

#[test]
fn a_name_without_a_model_says_what_is_missing() {
    let root = Root::new();
    let models = root.models();
    expect!["unknown model openai:gpt-4o; available: debug:echo, debug:script"]
        .assert_eq(&models.resolve("openai:gpt-4o").unwrap_err().to_string());
    expect!["`a b` is not a model: a name holds only letters, digits and the characters . _ + -; write `provider/model`, `provider:model` or an alias"]
        .assert_eq(&models.resolve("a b").unwrap_err().to_string());
}

#[tokio::test]
async fn an_object_of_its_own_has_its_own_parameters() {
    let root = Root::new();
    let dir = root.path().join("model/debug/greeter.d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("id"), "debug/script\n").unwrap();
    std::fs::write(dir.join("default"), "script=hello.json\n").unwrap();
    std::fs::write(dir.join("hello.json"), r#"[{"text":"good day"}]"#).unwrap();
    let told = root.run("debug/greeter", "hi").await;
    assert!(told.contains("started step 1 debug/greeter") && told.contains("good day"), "{told}");
}

#[test]
fn a_model_that_is_set_up_wrong_is_refused_with_its_file() {
    for (file, text, expected) in [
        ("driver", "quantum\n", "model/debug/script.d/driver: no provider `quantum`"),
        (
            "id",
            "debug/dance\n",
            "model/debug/script.d/id:1:1: unknown model debug/dance; available: debug/echo, debug/script",
        ),
        (
            "default",
            "script=/nowhere.json\n",
            "model/debug/script.d/default:1:1: cannot read the script /nowhere.json",
        ),
        ("default", "a\nb\n", "model/debug/script.d/default:2:1: this file holds one value"),
        ("default", "script=bad.json\n", "model/debug/script.d/bad.json:2:3: EOF while parsing"),
    ] {
        let root = Root::new();
        let dir = root.path().join("model/debug/script.d");
        std::fs::write(dir.join("bad.json"), "[\n{\"a").unwrap();
        std::fs::write(dir.join(file), text).unwrap();
        let refusal = root.prepare(Some("debug/script"), None).unwrap_err();
        assert_eq!(refusal.code.name(), "EBADMSG", "{refusal}");
        assert!(refusal.message.contains(expected), "{refusal}");
    }
}

#[tokio::test]
async fn echo_answers_with_its_input_in_several_deltas_and_counts_tokens() {
    let root = Root::new();
    root.control("prompt", "12345678");
    expect![[r##"
        #1 started step 1 debug/echo
        #1 text "hey"
        #1 text "ho"
        #1 finished Stop "heyho" 4+2 tokens
        done
    "##]]
    .assert_eq(&root.run("debug/echo", "heyho").await);
    let long = "ä😀x".repeat(20);
    let told = root.run("main", &long).await;
    assert!(told.contains(&format!("finished Stop {long:?}")));
    assert_eq!(told.lines().filter(|line| line.contains(" text ")).count(), 60_usize.div_ceil(16));
    let one = root.run("main", "x").await;
    assert!(one.contains(r#"text "x""#) && one.ends_with("done\n"));
}

/// A model that plays events as they are given, to show what a provider could do.
struct Played(Vec<Result<Event, ModelError>>);

struct Playing(std::vec::IntoIter<Result<Event, ModelError>>);

impl Model for Played {
    fn window(&self) -> Option<u64> {
        None
    }

    fn call(&self, request: Request) -> BoxFuture<'_, Result<Box<dyn Answer>, ModelError>> {
        let asked = Turn { role: Role::User, content: vec![Part::Text { text: "hi".into() }] };
        assert_eq!(request.messages, [asked]);
        let answer = Box::new(Playing(self.0.clone().into_iter())) as Box<dyn Answer>;
        Box::pin(async move { Ok(answer) })
    }
}

impl Answer for Playing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Event>, ModelError>> {
        let next = self.0.next().transpose();
        Box::pin(async move { next })
    }
}

async fn play(root: &Root, events: Vec<Event>) -> String {
    let id = ModelId { provider: Name::new("acme").unwrap(), model: Name::new("m").unwrap() };
    let mut work = root.job("debug/echo", "hi");
    work.prepared.context.model = id.to_string();
    let models = root.models().with(id, Arc::new(Played(events.into_iter().map(Ok).collect())));
    assert_eq!(models.resolve("acme:m").unwrap().to_string(), "acme/m");
    let log = Arc::new(Log::default());
    let outcome = run_on(&models, work, &log, Default::default()).await;
    if outcome != Outcome::Done {
        assert!(matches!(outcome, Outcome::Failed(_)));
    }
    log.text(&outcome)
}

#[tokio::test]
async fn a_stream_that_ends_without_a_finish_broke_off() {
    expect![[r##"
        #1 started step 1 acme/m
        #1 text "half"
        failed EPIPE broken_stream: the answer of acme:m broke off: it ended in the middle; send the message again
    "##]]
    .assert_eq(&play(&Root::new(), vec![Event::Text("half".into())]).await);
}

#[tokio::test]
async fn an_answer_that_was_cut_by_length_says_so() {
    let usage = Event::Usage(Usage { input: 1, output: 1, ..Usage::default() });
    expect![[r##"
        #1 started step 1 acme/m
        #1 text "long"
        #1 finished Length "long" 1+1 tokens
        done
    "##]]
    .assert_eq(
        &play(&Root::new(), vec![Event::Text("long".into()), usage, Event::Finish(Finish::Length)]).await,
    );
}

#[tokio::test]
async fn an_endless_answer_is_cut_at_the_limit() {
    let root = Root::with_limits(ctx_session::Limits { answer_bytes: 5, ..Default::default() });
    expect![[r##"
        #1 started step 1 acme/m
        #1 text "ab"
        #1 text "cä"
        #1 finished Length "abcä"
        done
    "##]]
    .assert_eq(
        &play(&root, vec![Event::Text("ab".into()), Event::Text("cää".into()), Event::Text("x".into())])
            .await,
    );
}

#[tokio::test]
async fn tool_calls_that_no_record_could_hold_end_the_run() {
    let root = Root::with_limits(ctx_session::Limits { answer_bytes: 20, ..Default::default() });
    let input = serde_json::json!({"path": "a".repeat(40)});
    let call =
        ctx_agent::model::ToolCall { provider_call_id: None, name: "fs.read".into(), input, provider: None };
    expect![[r##"
        #1 started step 1 acme/m
        failed EPIPE broken_stream: the answer of acme:m broke off: its tool calls have more than 20 bytes; send the message again
    "##]]
    .assert_eq(&play(&root, vec![Event::ToolCall(call), Event::Finish(Finish::ToolCalls)]).await);
}
