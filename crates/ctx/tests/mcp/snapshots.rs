//! Checkpoints of a shell's workspace through a real server: saved, listed, brought back, undone.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use testkit::SmallDisk;

use crate::support::{Host, place};

fn changed(answer: &Value) -> Vec<String> {
    let files = answer["files_changed"].as_array().unwrap();
    files
        .iter()
        .map(|file| format!("{} {}", file["change"].as_str().unwrap(), file["path"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_shells_files_are_saved_and_brought_back() {
    let place = place();
    let work = place.workspace().join("project");
    std::fs::create_dir(&work).unwrap();
    let mut host = Host::start(&place);
    let made = host.call("session_create", json!({"cwd": work, "workspace": work}));
    let shell = made["session_id"].as_str().unwrap().to_owned();
    host.exec(&shell, "printf 'one\\n' > a; printf 'two\\n' > b; mkdir empty; printf '*.log\\n' > .gitignore; echo x > x.log");
    let saved = host.call("session_checkpoint", json!({"session_id": shell, "label": "before the change"}));
    host.exec(&shell, "echo changed > a; rm b; echo new > c; echo y > x.log; rmdir empty");

    let look = host.call("session_restore", json!({"session_id": shell, "dry_run": true}));
    let all = ["changed a", "created b", "removed c", "created empty"];
    assert_eq!(
        (changed(&look), &look["dry_run"], &look["undo"]),
        (all.map(str::to_owned).to_vec(), &json!(true), &Value::Null)
    );
    assert_eq!(host.exec(&shell, "cat a c")["stdout"], "changed\nnew\n", "a look changes nothing");

    let done =
        host.call("session_restore", json!({"session_id": shell, "checkpoint_id": saved["checkpoint_id"]}));
    assert_eq!(
        (changed(&done), &done["restored_to"]),
        (all.map(str::to_owned).to_vec(), &saved["checkpoint_id"])
    );
    assert_eq!(host.exec(&shell, "cat a b x.log; ls -d empty; ls c")["stdout"], "one\ntwo\ny\nempty\n");

    let listed = host.call("session_checkpoints", json!({"session_id": shell}));
    let lines = listed["checkpoints"].as_array().unwrap();
    assert_eq!(
        (lines.len(), &lines[0]["label"], &lines[0]["files"]),
        (2, &json!("before the change"), &json!(3))
    );
    assert_eq!(lines[1]["id"], done["undo"]);
    host.call("session_restore", json!({"session_id": shell, "checkpoint_id": done["undo"]}));
    assert_eq!(host.exec(&shell, "cat a c; ls b")["stdout"], "changed\nnew\n");

    // What was done is in the shell's log, and the snapshots are there for the operator and for the next server.
    let log = host.call("session_list", json!({}))["sessions"][0]["log"].as_str().unwrap().to_owned();
    let shown = place.ctx(&["shells", "show", &log]).ok();
    assert!(
        shown.contains("`before the change`: 3 files") && shown.contains("4 files changed; undo with"),
        "{shown}"
    );
    let listed = place.ctx(&["snapshots"]).ok();
    assert!(listed.contains("before the change") && listed.contains("shell (kept)"), "{listed}");
    let undo = done["undo"].as_str().unwrap();
    let told = place.ctx(&["snapshots", "diff", saved["checkpoint_id"].as_str().unwrap(), undo]).ok();
    assert_eq!(told, "changed  a\nremoved  b\ncreated  c\nremoved  empty\n");
    let mut again = Host::start(&place);
    let made = again.call("session_create", json!({"workspace": work}));
    let other = made["session_id"].as_str().unwrap().to_owned();
    let back = again.call("session_restore", json!({"session_id": other}));
    assert_eq!(back["restored_to"], saved["checkpoint_id"], "the newest that was asked for");
}

#[test]
fn what_cannot_be_saved_or_restored_is_refused_with_the_reason() {
    let place = place();
    let mut host = Host::start(&place);
    for (workspace, why) in [
        (json!("/"), "root of the file system"),
        (json!(place.home()), "home directory"),
        (json!("/etc"), "is not inside"),
        (json!("no/such"), "No such file"),
    ] {
        let refused = host.refused("session_create", json!({"workspace": workspace}));
        assert!(refused.starts_with("EINVAL: workspace: ") && refused.contains(why), "{refused}");
    }
    let shell = host.create();
    for tool in ["session_checkpoint", "session_checkpoints", "session_restore"] {
        let refused = host.refused(tool, json!({"session_id": shell}));
        assert!(refused.contains("has no workspace"), "{refused}");
    }
    let work = place.workspace().join("w");
    std::fs::create_dir(&work).unwrap();
    let made = host.call("session_create", json!({"workspace": work}));
    let shell = made["session_id"].as_str().unwrap().to_owned();
    let refused = host.refused("session_restore", json!({"session_id": shell}));
    assert!(refused.contains("no checkpoint yet"), "{refused}");
    let refused = host.refused("session_restore", json!({"session_id": shell, "checkpoint_id": "7"}));
    assert!(refused.contains("session_checkpoints lists them"), "{refused}");
    let none = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let refused = host.refused("session_restore", json!({"session_id": shell, "checkpoint_id": none}));
    assert!(refused.starts_with("ENOENT") && refused.contains(none), "{refused}");
}

/// Every file below a directory, with what it holds.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
        .collect()
}

fn open(host: &mut Host, work: &Path) -> String {
    let made = host.call("session_create", json!({"cwd": work, "workspace": work}));
    made["session_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_restore_that_is_cut_short_by_the_servers_death_is_finished_or_taken_back() {
    let place = place();
    let work = place.workspace().join("project");
    std::fs::create_dir(&work).unwrap();
    for n in 0..800 {
        std::fs::write(work.join(format!("f{n}")), format!("old {n}\n")).unwrap();
    }
    let old = files(&work);
    let mut host = Host::start(&place);
    let shell = open(&mut host, &work);
    let saved = host.call("session_checkpoint", json!({"session_id": shell}))["checkpoint_id"].clone();
    for (round, wait_ms) in [0, 5, 15, 40, 80, 160, 320].into_iter().enumerate() {
        for n in 0..800 {
            std::fs::write(work.join(format!("f{n}")), format!("new {n} {round}\n")).unwrap();
        }
        std::fs::write(work.join("extra"), "new\n").unwrap();
        let new = files(&work);
        let mut host = Host::start(&place);
        let shell = open(&mut host, &work);
        host.tool_soon("session_restore", json!({"session_id": shell, "checkpoint_id": saved}));
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        host.server.child.kill().unwrap();
        host.ended();
        let mut next = Host::start(&place);
        let shell = open(&mut next, &work);
        let found = files(&work);
        assert!(found == old || found == new, "after {wait_ms} ms: neither what was nor what was wanted");
        if found == new {
            next.call("session_restore", json!({"session_id": shell, "checkpoint_id": saved}));
            assert_eq!(files(&work), old);
        }
    }
}

#[test]
fn a_disk_that_becomes_full_in_the_middle_of_a_restore_changes_nothing() {
    let place = place();
    let disk = SmallDisk::mount(&place.path("disk"), 4096);
    let work = place.path("disk/work");
    std::fs::create_dir(&work).unwrap();
    for n in 0..40_u8 {
        std::fs::write(work.join(format!("f{n}")), vec![n; 40_000]).unwrap();
    }
    let old = files(&work);
    let mut command = place.command(&["mcp"]);
    let mut host = Host::with(command.env("CTX_SHELLS_WORKSPACE_ROOTS", place.path("disk")));
    let shell = open(&mut host, &work);
    let saved = host.call("session_checkpoint", json!({"session_id": shell}))["checkpoint_id"].clone();
    for n in 0..40 {
        std::fs::write(work.join(format!("f{n}")), "short\n").unwrap();
    }
    let new = files(&work);
    // There is room for a few of them.
    disk.fill();
    let ballast = std::fs::File::options().write(true).open(place.path("disk/ballast")).unwrap();
    ballast.set_len(ballast.metadata().unwrap().len() - 300_000).unwrap();
    drop(ballast);
    let refused = host.refused("session_restore", json!({"session_id": shell, "checkpoint_id": saved}));
    assert!(refused.starts_with("ENOSPC"), "{refused}");
    assert_eq!(files(&work), new, "nothing has changed");
    disk.free();
    host.call("session_restore", json!({"session_id": shell, "checkpoint_id": saved}));
    assert_eq!(files(&work), old);
}
