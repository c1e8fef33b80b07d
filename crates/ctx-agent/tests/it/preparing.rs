//! Getting a run ready: what it will work under, and every refusal before anything is written.

use ctx_agent::control::mount::{Access, Links};
use ctx_agent::project::{Snapshot, Trust, read_project};
use ctx_agent::{Ask, Place, Prepared, prepare, sha256_hex};
use ctx_cage::rights::Rights;
use ctx_session::record::Workspace;
use ctx_session::{Name, Refusal, Timestamp};
use expect_test::expect;

use crate::support::{Root, prepare_for, usual_cage};

#[test]
fn a_fresh_root_works_at_once() {
    let root = Root::new();
    let prepared = root.prepare(None, None).unwrap();
    let context = &prepared.context;
    assert_eq!((context.model.as_str(), context.cwd.as_str()), ("debug/echo", "/work"));
    assert_eq!(context.policy, ["allow fs.read", "allow fs.list"]);
    let cage = context.cage.as_deref().unwrap();
    assert!(cage.starts_with("uid=1000 net=none memory=2048M processes=512 walltime=none"), "{cage}");
    assert!(cage.contains(":/work:rw"), "{cage}");
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
        ("coder", Some("openai:gpt-4o"), None, "ENOENT", "model_override"),
        ("coder", Some("a b"), None, "EINVAL", "model_override"),
        ("coder", None, Some("/nowhere"), "ENOENT", "cwd"),
        ("coder", None, Some("/etc"), "EACCES", "cwd"),
        ("coder", None, Some("src"), "EINVAL", "cwd"),
    ] {
        let refused = prepare_for(&root.path(), &root.limits, agent, model, cwd, &root.models());
        let refusal = refused.unwrap_err();
        assert_eq!((refusal.code.name(), refusal.field.as_deref()), (code, Some(field)), "{refusal}");
    }
}

#[test]
fn the_projects_instructions_go_into_the_prompt_and_are_named() {
    let root = Root::with_limits(ctx_session::Limits { instruction_file_bytes: 20, ..Default::default() });
    root.control("prompt", "be brief\n");
    root.put("AGENTS.md", "use tabs\n");
    root.put("a/b/AGENTS.md", "no tabs here, ever, ä");
    root.put("a/other/AGENTS.md", "not on the way");
    std::fs::write(root.dir.path().join("AGENTS.md"), "above the project").unwrap();
    let prepared = root.prepare(None, Some("/work/a/b")).unwrap();
    expect![[r#"
        be brief

        Instructions from /work/AGENTS.md:

        use tabs

        Instructions from /work/a/b/AGENTS.md:

        no tabs here, ever, "#]]
    .assert_eq(&prepared.prompt);
    let sources: Vec<_> =
        prepared.context.sources.iter().map(|s| (s.kind.as_str(), s.path.as_str(), s.truncated)).collect();
    assert_eq!(
        sources,
        [
            ("prompt", "agent/coder.d/prompt", false),
            ("project_instructions", "/work/AGENTS.md", false),
            ("project_instructions", "/work/a/b/AGENTS.md", true)
        ]
    );
    assert_eq!(prepared.context.sources[1].hash, sha256_hex(b"use tabs\n"));
    assert_eq!(prepared.prompts[0].text, "be brief\n", "the prompt's own text and hash stay what they are");
}

#[test]
fn instructions_that_lead_out_of_the_view_are_passed_over() {
    let root = Root::new();
    std::fs::write(root.dir.path().join("outside.md"), "planted").unwrap();
    std::os::unix::fs::symlink("../outside.md", root.work().join("AGENTS.md")).unwrap();
    let prepared = root.prepare(None, None).unwrap();
    let sources = &prepared.context.sources;
    assert_eq!(
        (sources.len(), sources[1].error.is_some(), sources[1].hash.as_str()),
        (2, true, ""),
        "{sources:?}"
    );
    assert!(!prepared.prompt.contains("planted") && prepared.instructions.is_empty());
}

/// A project with a subagent that sums up.
fn with_scribe(dir: &std::path::Path) -> Snapshot {
    let file = "version: 1\nproject: music\nprimary:\n  model: debug:script\n  prompt: prompts/both.md\n  compaction: {strategy: delegate, delegate: scribe}\nsubagents:\n  scribe: {model: debug:script, prompt: prompts/both.md}\n  codex: {acp: [codex-acp]}\n";
    std::fs::create_dir_all(dir.join(".ctx/prompts")).unwrap();
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    std::fs::write(dir.join(".ctx/prompts/both.md"), "FROM THE FILE").unwrap();
    let found = read_project(dir, Trust::Anyone, 4096, Timestamp::from_millis(0)).found.unwrap();
    Snapshot::from_bytes(&found.bytes).unwrap()
}

#[test]
fn an_edited_prompt_of_a_subagent_is_the_one_it_works_under() {
    let root = Root::new();
    let snapshot = with_scribe(&root.work());
    let agent = Name::new("music").unwrap();
    for (prompts, used) in [
        (vec![], "FROM THE FILE"),
        (vec![("scribe".to_owned(), "AS EDITED".to_owned())], "AS EDITED"),
        (vec![("primary".to_owned(), "AS EDITED".to_owned())], "FROM THE FILE"),
    ] {
        let ask = Ask {
            root: &root.path(),
            agent: &agent,
            snapshot: Some(&snapshot),
            owner: 1000,
            rights: &Rights::own(),
            model_override: None,
            cwd: None,
            prompts: &prompts,
            wishes: &Default::default(),
            recorded: None,
            cage: usual_cage(),
            limits: &root.limits,
            place: Place::default(),
            own_servers: &std::collections::BTreeMap::new(),
        };
        let prepared = prepare(&ask, &root.models()).unwrap();
        let targets: Vec<&str> = prepared.context.prompts.iter().map(|one| one.target.as_str()).collect();
        assert_eq!(targets, ["primary", "scribe"]);
        assert_eq!(prepared.context.prompts[1].hash, sha256_hex(used.as_bytes()));
        // What a compaction that is delegated to it asks with.
        assert_eq!(prepared.agent.subagent("scribe"), Ok(("debug:script".to_owned(), used.to_owned())));
    }
}

/// What a run of an agent gets that has this place.
fn placed(root: &Root, agent: &str, place: Place<'_>) -> Result<Prepared, Refusal> {
    let agent = Name::new(agent).unwrap();
    let ask = Ask {
        root: &root.path(),
        agent: &agent,
        snapshot: None,
        owner: 1000,
        rights: &Rights::own(),
        model_override: None,
        cwd: None,
        prompts: &[],
        recorded: None,
        wishes: &Default::default(),
        cage: usual_cage(),
        limits: &root.limits,
        place,
        own_servers: &std::collections::BTreeMap::new(),
    };
    prepare(&ask, &root.models())
}

#[test]
fn the_agent_of_a_directory_is_described_by_coder_and_works_in_that_directory() {
    let root = Root::new();
    let dir = root.dir.path().join("src/app");
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    root.control("prompt", "you are the one");
    let workspace = Workspace {
        directory: dir.to_str().unwrap().to_owned(),
        read_only: false,
        described_by: Some(Name::new("coder").unwrap()),
    };
    let sub = dir.join("sub");
    let place = Place { workspace: Some(&workspace), offered: None, dir: sub.to_str() };
    let prepared = placed(&root, "app", place).unwrap();
    assert_eq!(prepared.context.cwd, "/work/sub");
    assert_eq!(
        (prepared.agent.description.project.as_str(), prepared.prompt.as_str()),
        ("app", "you are the one")
    );
    assert_eq!(prepared.workspace, Some(workspace));
}

#[test]
fn what_is_offered_gives_way_to_the_mount_table() {
    let root = Root::new();
    let home = root.dir.path().to_str().unwrap().to_owned();
    let offered = Workspace { directory: home.clone(), read_only: true, described_by: None };
    let place = Place { workspace: None, offered: Some(&offered), dir: Some(&home) };
    let with_table = placed(&root, "coder", place).unwrap();
    assert_eq!(with_table.workspace.unwrap().directory, root.work().to_str().unwrap());
    assert_eq!(with_table.context.cwd, "/work", "a directory outside of the workspace is no place in it");
    root.control("mount", "");
    let without = placed(&root, "coder", place).unwrap();
    assert_eq!((without.workspace, without.context.cwd.as_str()), (Some(offered.clone()), "/work"));
    let mount = without.agent.description.mounts.last().unwrap();
    assert_eq!((mount.access, mount.links), (Access::ReadOnly, Links::Refuse));
    let nowhere = placed(&root, "coder", Place::default()).unwrap();
    assert_eq!((nowhere.workspace, nowhere.context.cwd.as_str()), (None, "/"));
}
