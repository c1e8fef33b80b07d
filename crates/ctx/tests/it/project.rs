//! `ctx project`: from an empty directory to an agent that answers, and what is said on the way.

use expect_test::expect;

use crate::support::{daemon, json_lines, place};

#[test]
fn init_check_add_ls_and_rm_go_together() {
    let daemon = daemon();
    let dir = daemon.path("my music");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap().to_owned();
    let written = daemon.ctx(&["project", "init", &dir]).ok();
    assert_eq!(written, format!("{dir}/.ctx/project.yaml\n"));
    let checked = daemon.ctx(&["project", "check", &dir]).ok();
    assert_eq!(
        checked,
        format!("valid: project my-music, agent my-music, model main ({dir}/.ctx/project.yaml)\n")
    );
    assert!(daemon.ctx(&["project", "init", &dir]).fails(1).contains("already exists"));
    let added = daemon.ctx(&["project", "add", &dir]);
    assert_eq!((added.code, added.stdout.as_str()), (0, "my-music\n"), "{}", added.stderr);
    assert!(added.stderr.contains("`ctx send -a my-music hello`"), "{}", added.stderr);
    assert_eq!(daemon.ctx(&["send", "-a", "my-music", "hello"]).ok(), "hello\n");
    let listed = daemon.ctx(&["project", "ls"]).ok();
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(
        rows,
        [["PROJECT", "STATE", "AGENT"], ["default", "ready", "coder"], ["my-music", "ready", "my-music"]]
    );
    assert!(listed.contains(&dir), "{listed}");
    let listed = json_lines(&daemon.ctx(&["project", "ls", "--json"]).ok());
    assert_eq!(
        listed.iter().map(|project| project["id"].as_str().unwrap()).collect::<Vec<_>>(),
        ["default", "my-music"]
    );
    assert!(daemon.ctx(&["project", "add", &dir]).fails(1).contains("is registered"));
    assert!(daemon.ctx(&["project", "rm", "my-music"]).fails(2).contains("pass --yes"));
    daemon.ctx(&["project", "rm", "-y", "my-music"]).ok();
    assert!(daemon.ctx(&["send", "-a", "my-music", "hello"]).fails(1).contains("no agent"));
    assert!(daemon.ctx(&["project", "rm", "-y", "my-music"]).fails(1).contains("no project my-music"));
}

#[test]
fn check_needs_no_daemon_and_points_at_what_is_wrong() {
    let place = place();
    std::fs::create_dir(place.workspace().join(".ctx")).unwrap();
    let file = place.workspace().join(".ctx/project.yaml");
    std::fs::write(
        &file,
        "version: 1\nproject: music\nprimary:\n  modle: main\n  prompt: no.md\n  max_steps: \"ü\"\n",
    )
    .unwrap();
    let checked = place.ctx(&["project", "check"]);
    assert_eq!(checked.code, 2);
    expect![[r#"
        ./.ctx/project.yaml:4:3: unknown key `modle` in `primary`; did you mean `model`?
          4 |   modle: main
            |   ^
        ./.ctx/project.yaml:5:11: no prompt no.md in .ctx/ or in the project's directory
          5 |   prompt: no.md
            |           ^
        ./.ctx/project.yaml:6:14: `primary.max_steps` must be a whole number, not a text
          6 |   max_steps: "ü"
            |              ^
    "#]]
    .assert_eq(&checked.stdout);
    expect![[r#"
        error: 3 problems (EBADMSG)
    "#]]
    .assert_eq(&checked.stderr);
    std::fs::write(&file, "version: 1\nproject: music\nprimary:\n  prompt: no.md\n").unwrap();
    let checked = place.ctx(&["project", "check", "."]);
    expect![[r#"
        ./.ctx/project.yaml:4:11: no prompt no.md in .ctx/ or in the project's directory
          4 |   prompt: no.md
            |           ^
    "#]]
    .assert_eq(&checked.stdout);
    std::fs::remove_file(&file).unwrap();
    let checked = place.ctx(&["project", "check"]);
    assert!(
        checked.code == 2 && checked.stdout.contains("`ctx project init` writes one"),
        "{}",
        checked.stdout
    );
    assert!(place.ctx(&["project", "check", "nowhere"]).fails(1).contains("nowhere"));
    assert!(place.ctx(&["project", "add"]).fails(69).contains("ctx serve"));
    let schema: serde_json::Value = serde_json::from_str(&place.ctx(&["project", "schema"]).ok()).unwrap();
    assert_eq!(schema["required"], serde_json::json!(["version", "project", "primary"]));
}

#[test]
fn check_looks_for_the_agents_model_where_there_is_a_root() {
    let mut daemon = daemon();
    std::fs::create_dir(daemon.workspace().join(".ctx")).unwrap();
    let file = daemon.workspace().join(".ctx/project.yaml");
    std::fs::write(&file, "version: 1\nproject: music\nprimary: {model: \"debug:nope\"}\n").unwrap();
    daemon.stop();
    let checked = daemon.ctx(&["project", "check"]);
    assert_eq!(checked.code, 2, "{}", checked.stdout);
    expect![[r#"
        ./.ctx/project.yaml:3:18: unknown model debug:nope; available: debug:echo, debug:script
          3 | primary: {model: "debug:nope"}
            |                  ^
    "#]]
    .assert_eq(&checked.stdout);
    // Beside everything else that is wrong, and with the prompts that are missing.
    let wrong = "version: 1\nproject: music\nprimary:\n  model: debug:nope\n  prompt: gone.md\n  steps: 3\n\
                 policy: [deny shel.exec rm*, allow github.get, deny fs.*]\n";
    std::fs::write(&file, wrong).unwrap();
    let checked = daemon.ctx(&["project", "check"]);
    let places = checked.stdout.lines().filter(|line| line.starts_with("./")).collect::<Vec<_>>();
    expect![[r#"
        ./.ctx/project.yaml:4:10: unknown model debug:nope; available: debug:echo, debug:script
        ./.ctx/project.yaml:5:11: no prompt gone.md in .ctx/ or in the project's directory
        ./.ctx/project.yaml:6:3: unknown key `steps` in `primary`; the keys are name, model, prompt, tools, compaction, max_steps, redact
        ./.ctx/project.yaml:7:10: unknown tool `shel.exec`; did you mean `shell.exec`?"#]]
    .assert_eq(&places.join("\n"));
    std::fs::write(&file, "version: 1\nproject: music\nprimary: {model: \"debug:echo\"}\n").unwrap();
    let checked = daemon.ctx(&["project", "check"]);
    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""), "{}", checked.stdout);
    let team =
        "version: 1\nproject: music\nprimary: {model: main}\nsubagents: {far: {model: \"far:away\"}}\n";
    std::fs::write(&file, team).unwrap();
    let checked = daemon.ctx(&["project", "check"]);
    assert_eq!(checked.code, 0, "{}", checked.stdout);
    assert!(
        checked.stderr.starts_with("warning: .ctx/project.yaml:4:26: unknown model far:away"),
        "{}",
        checked.stderr
    );
    let elsewhere = daemon.ctx(&["--root", "nowhere", "project", "check"]);
    assert_eq!(elsewhere.code, 0, "{}", elsewhere.stdout);
    assert!(elsewhere.stderr.contains("no ctx root found"), "{}", elsewhere.stderr);
}

#[test]
fn a_project_that_is_wrong_is_registered_and_told_of() {
    let daemon = daemon();
    std::fs::create_dir(daemon.workspace().join(".ctx")).unwrap();
    let file = daemon.workspace().join(".ctx/project.yaml");
    std::fs::write(&file, "version: 1\nproject: music\nprimary: {model: 5}\n").unwrap();
    let added = daemon.ctx(&["project", "add"]);
    assert_eq!((added.code, added.stdout.as_str()), (2, "music\n"));
    for words in [
        ".ctx/project.yaml:3:18: `primary.model` must be a text",
        "3 | primary: {model: 5}",
        "its file is invalid",
    ] {
        assert!(added.stderr.contains(words), "{words}: {}", added.stderr);
    }
    assert!(daemon.ctx(&["project", "ls"]).ok().contains("invalid"));
    std::fs::write(&file, "version: 1\nproject: music\nprimary: {model: main}\n").unwrap();
    assert!(!daemon.ctx(&["project", "ls"]).ok().contains("invalid"));
}

#[test]
fn init_makes_a_name_of_what_the_directory_is_called() {
    let place = place();
    for (dir, name) in [("Grüße an alle", "Gr--e-an-alle"), (".hidden", "hidden"), ("007", "007")] {
        std::fs::create_dir(place.workspace().join(dir)).unwrap();
        place.ctx(&["project", "init", dir]).ok();
        assert!(place.ctx(&["project", "check", dir]).ok().contains(&format!("project {name},")), "{dir}");
    }
    std::fs::create_dir(place.workspace().join("___")).unwrap();
    assert!(place.ctx(&["project", "init", "___"]).fails(2).contains("--name"));
    place.ctx(&["project", "init", "___", "--name", "x"]).ok();
    assert!(place.ctx(&["project", "init", "nowhere"]).fails(1).contains("nowhere"));
}

#[test]
fn a_prompt_outside_of_the_project_is_told_beside_other_mistakes() {
    let place = place();
    std::fs::create_dir(place.workspace().join(".ctx")).unwrap();
    let file = place.workspace().join(".ctx/project.yaml");
    let text = "version: 1\nproject: music\nprimary:\n  modle: main\n  prompt: ../../etc/passwd\n";
    std::fs::write(&file, text).unwrap();
    let checked = place.ctx(&["project", "check"]);
    assert_eq!(checked.code, 2);
    assert!(checked.stdout.contains("unknown key `modle`"), "{checked:?}");
    assert!(checked.stdout.contains("../../etc/passwd is outside of the project's directory"), "{checked:?}");
}

#[test]
fn a_message_to_an_invalid_project_names_what_is_wrong() {
    let daemon = daemon();
    let dir = daemon.path("music");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap().to_owned();
    daemon.ctx(&["project", "init", &dir]).ok();
    let file = std::path::Path::new(&dir).join(".ctx/project.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\nfrobnicate: 1\n")).unwrap();
    daemon.ctx(&["project", "add", &dir]);
    let refused = daemon.ctx(&["send", "-a", "music", "hello"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("project.yaml:") && refused.stderr.contains("frobnicate"), "{refused:?}");
}
