//! Getting a run ready: what it will work under, and every refusal before anything is written.

use ctx_agent::sha256_hex;
use expect_test::expect;

use crate::support::{Root, prepare_for};

#[test]
fn a_fresh_root_works_at_once() {
    let root = Root::new();
    let prepared = root.prepare(None, None).unwrap();
    let context = &prepared.context;
    assert_eq!((context.model.as_str(), context.cwd.as_str()), ("debug/echo", "/work"));
    assert_eq!(context.policy, ["allow fs.read", "allow fs.list"]);
    assert_eq!(context.cage, None);
    let hash = sha256_hex(prepared.prompt.as_bytes());
    assert_eq!(context.prompts[0].hash, hash);
    assert_eq!(context.prompts[0].target, "primary");
    assert_eq!(
        (prepared.prompts[0].hash.as_str(), &prepared.prompts[0].text),
        (hash.as_str(), &prepared.prompt)
    );
    assert_eq!(context.sources[0].path, "agent/coder.d/prompt");
    assert_eq!(context.sources[0].hash, hash);
    assert_eq!(prepared.agent.description.project.as_str(), "default");
}

#[test]
fn the_session_may_choose_model_and_place() {
    let root = Root::new();
    root.put("src/x", "");
    let prepared = root.prepare(Some("debug:script"), Some("/work/src/")).unwrap();
    assert_eq!(prepared.context.model, "debug/script");
    assert_eq!(prepared.context.cwd, "/work/src");
}

#[test]
fn an_edit_applies_from_the_next_run_on() {
    let root = Root::new();
    let before = root.prepare(None, None).unwrap();
    root.control("prompt", "new words");
    root.control("model", "debug/script");
    let after = root.prepare(None, None).unwrap();
    assert_ne!(before.context.prompts, after.context.prompts);
    assert_eq!(after.context.model, "debug/script");
    assert_eq!(after.prompt, "new words");
}

#[test]
fn an_empty_text_has_the_known_hash() {
    expect!["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"].assert_eq(&sha256_hex(b""));
}

#[test]
fn refusals_name_the_field_to_blame() {
    let root = Root::new();
    for (agent, model, cwd, code, field) in [
        ("nobody", None, None, "ENOENT", "agent"),
        ("coder", Some("openai:gpt-4o"), None, "ENOENT", "model"),
        ("coder", Some("a b"), None, "EINVAL", "model"),
        ("coder", None, Some("/nowhere"), "ENOENT", "cwd"),
        ("coder", None, Some("/etc"), "EACCES", "cwd"),
        ("coder", None, Some("src"), "EINVAL", "cwd"),
    ] {
        let refused = prepare_for(&root.path(), &root.limits, agent, model, cwd, &root.models());
        let refusal = refused.unwrap_err();
        assert_eq!((refusal.code.name(), refusal.field), (code, Some(field)), "{refusal}");
    }
}
