//! A fresh root: what it holds, and that nothing of a person's is ever overwritten.

use std::path::{Path, PathBuf};

use ctx_agent::prepare_root;

use crate::support::Root;

fn tree(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap();
            let inside = path.strip_prefix(root).unwrap().to_owned();
            if kind.is_dir() {
                todo.push(path);
            } else if kind.is_symlink() {
                found.push((inside, format!("-> {}", std::fs::read_link(path).unwrap().display())));
            } else {
                found.push((inside, std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn names(root: &Path, dir: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root.join(dir))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn it_holds_what_the_first_command_needs() {
    let root = Root::new();
    assert_eq!(names(&root.path(), ""), ["agent", "model"]);
    assert_eq!(names(&root.path(), "agent"), ["coder.d"]);
    assert_eq!(
        names(&root.path(), "agent/coder.d"),
        [
            "cwd", "env", "gid", "model", "mount", "owner", "path", "policy", "project", "prompt", "root",
            "uid"
        ]
    );
    assert_eq!(names(&root.path(), "model"), ["debug", "main"]);
    for model in ["echo", "script"] {
        assert_eq!(
            names(&root.path(), &format!("model/debug/{model}.d")),
            ["cap", "default", "driver", "id", "limit", "log", "session", "status"]
        );
    }
    assert_eq!(std::fs::read_link(root.path().join("model/main")).unwrap(), Path::new("debug/echo"));
    let mount = std::fs::read_to_string(root.path().join("agent/coder.d/mount")).unwrap();
    assert!(mount.ends_with("my\\040work /work rw\n"), "{mount}");
}

#[test]
fn a_second_start_changes_nothing() {
    let root = Root::new();
    let before = tree(&root.path());
    prepare_root(&root.path(), Some(&root.work())).unwrap();
    assert_eq!(tree(&root.path()), before);
}

#[test]
fn the_workspace_is_that_of_this_start_and_other_mounts_stay() {
    let root = Root::new();
    let table = || std::fs::read_to_string(root.path().join("agent/coder.d/mount")).unwrap();
    let begun = table();
    root.control("mount", format!("/srv/data /data ro\n{begun}"));
    prepare_root(&root.path(), Some(Path::new("/somewhere/else"))).unwrap();
    assert!(table().ends_with("/somewhere/else /work rw\n"), "{}", table());
    assert_eq!(table().matches(" /work ").count(), 1);
    prepare_root(&root.path(), None).unwrap();
    assert!(!table().contains("/work") && table().starts_with("/srv/data /data ro\n"), "{}", table());
    // What a person wrote stays without a workspace, and gives way to one.
    root.control("mount", "/my/own /work ro\n");
    prepare_root(&root.path(), None).unwrap();
    assert_eq!(table(), "/my/own /work ro\n");
    prepare_root(&root.path(), Some(Path::new("/elsewhere"))).unwrap();
    assert!(!table().contains("/my/own") && table().ends_with("/elsewhere /work rw\n"));
}

#[test]
fn what_a_person_wrote_stays_and_what_is_missing_comes() {
    let root = Root::new();
    root.control("policy", "deny fs.*\n");
    std::fs::remove_file(root.path().join("agent/coder.d/prompt")).unwrap();
    std::fs::remove_file(root.path().join("model/main")).unwrap();
    std::os::unix::fs::symlink("debug/script", root.path().join("model/main")).unwrap();
    // Left behind by a start that was killed.
    root.control(".prompt.new", "half");
    prepare_root(&root.path(), Some(&root.work())).unwrap();
    let dir = root.path().join("agent/coder.d");
    assert_eq!(std::fs::read_to_string(dir.join("policy")).unwrap(), "deny fs.*\n");
    assert!(std::fs::read_to_string(dir.join("prompt")).unwrap().starts_with("You are coder"));
    assert!(!dir.join(".prompt.new").exists());
    assert_eq!(std::fs::read_link(root.path().join("model/main")).unwrap(), Path::new("debug/script"));
}

#[test]
fn an_agent_that_was_replaced_does_not_come_back() {
    let root = Root::new();
    std::fs::rename(root.path().join("agent/coder.d"), root.path().join("agent/mine.d")).unwrap();
    prepare_root(&root.path(), Some(&root.work())).unwrap();
    assert_eq!(names(&root.path(), "agent"), ["mine.d"]);
}

#[test]
fn a_workspace_must_be_absolute() {
    let dir = tempfile::tempdir().unwrap();
    let error = prepare_root(dir.path(), Some(Path::new("here"))).unwrap_err().to_string();
    assert_eq!(error, "the workspace here must be an absolute path");
}

#[test]
fn the_files_that_are_not_synced_say_nothing_that_an_empty_one_would_not() {
    let root = Root::new();
    let before = root.prepare(None, None).unwrap();
    for file in ["owner", "uid", "gid", "root", "env", "model", "project"] {
        root.control(file, "");
    }
    for model in ["echo", "script"] {
        for file in names(&root.path(), &format!("model/debug/{model}.d")) {
            std::fs::write(root.path().join(format!("model/debug/{model}.d/{file}")), "").unwrap();
        }
    }
    let after = root.prepare(None, None).unwrap();
    assert_eq!(after.context, before.context);
    assert_eq!(after.agent.description.project, before.agent.description.project);
    assert!(root.prepare(Some("debug/script"), None).is_ok());
}
