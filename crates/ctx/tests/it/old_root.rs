//! A root that the program of November 2026 made opens with the same sessions, messages, search results and audit, and the
//! same views but for the index lines of ended sessions. `fixtures/root-2026-11/make.sh` says how it was made.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Place, TestDaemon};

use crate::support::{CTX, build, json_lines};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/root-2026-11").join(name)
}

fn unpack(to: &Path) {
    fs::create_dir(to).unwrap();
    let status = Command::new("tar").arg("-xpzf").arg(fixture("root.tar.gz")).arg("-C").arg(to).status();
    assert!(status.unwrap().success(), "the fixture is unpacked");
}

/// The answers to everything that `ask.sh` asks, by their names.
fn answers(place: &Place) -> BTreeMap<PathBuf, String> {
    let dir = place.path("answers");
    fs::create_dir(&dir).unwrap();
    // Shells of whoever runs the tests are not asked about: their logs lie below these directories.
    let nowhere = place.path("nowhere");
    let asked = Command::new("sh")
        .arg(fixture("ask.sh"))
        .args([Path::new(CTX), place.root(), &dir])
        .envs(["HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"].map(|name| (name, &nowhere)))
        .status();
    assert!(asked.unwrap().success(), "everything is answered");
    let found = files(&dir, &|_| true);
    fs::remove_dir_all(dir).unwrap();
    found
}

/// The files below a directory that pass, with what they say.
fn files(dir: &Path, keep: &dyn Fn(&Path) -> bool) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if keep(&path) {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), text);
            }
        }
    }
    found
}

/// Everything below `home`, and the logs of the daemon, but for index files, and for what a file's replacement left over.
fn kept(root: &Path) -> BTreeMap<PathBuf, String> {
    let is_kept = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let below = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        let is_of_sessions = below.starts_with("home/") && !below.contains("/session/index/");
        !name.starts_with('.')
            && (is_of_sessions || (below.starts_with(".state/") && name.ends_with(".jsonl")))
    };
    let mut found = files(root, &is_kept);
    // A file of values is written anew when its session is loaded, and has what came since.
    for (_, text) in found.iter_mut().filter(|(path, _)| path.ends_with("meta.json")) {
        *text = text.replace("\"model\": \"debug:", "\"model\": \"debug/");
        for pinned in 0..3 {
            *text = text.replace(&format!(",\n  \"pinned\": {pinned}"), "");
        }
    }
    found
}

#[track_caller]
fn same(found: &BTreeMap<PathBuf, String>, expected: &BTreeMap<PathBuf, String>) {
    let names = |of: &BTreeMap<PathBuf, String>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, text) in expected {
        let is_search = name.to_string_lossy().starts_with("search");
        let then = |text: &str| if is_search { hits_of_then(text) } else { text.to_owned() };
        assert_eq!(then(&found[name]), then(text), "{}", name.display());
    }
}

/// Hits without how well they match, which is no business of the root, and without what hits did not say then.
fn hits_of_then(text: &str) -> String {
    let line = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
        Ok(serde_json::Value::Object(mut hit)) => {
            ["score", "cwd", "tool"].iter().for_each(|field| drop(hit.remove(*field)));
            serde_json::Value::Object(hit).to_string()
        }
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The index files of an agent: `list`, `current` and the names in `by-cwd`.
fn index(root: &Path, agent: &str) -> [String; 3] {
    let index = root.join(format!("home/0/agent/{agent}/session/index"));
    let of_dirs = fs::read_dir(index.join("by-cwd")).unwrap();
    let by_cwd: String = of_dirs.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let [list, current] = ["list", "current"].map(|name| fs::read_to_string(index.join(name)).unwrap());
    [list, current, by_cwd]
}

fn open_old_root() -> TestDaemon {
    let daemon = build();
    unpack(daemon.place().root());
    // The workspace of then is not here: the agent works in that of this test.
    let mount = daemon.place().root().join("agent/coder.d/mount");
    let table = fs::read_to_string(&mount).unwrap();
    assert!(table.contains("/tmp/demo/work"), "{table}");
    let workspace = daemon.place().workspace().display().to_string();
    fs::write(&mount, table.replace("/tmp/demo/work", &workspace)).unwrap();
    // The index is not part of the fixture. It is made first, so that nothing is asked before it is complete.
    daemon.place().ctx(&["reindex"]).ok();
    daemon.start()
}

#[test]
fn it_has_the_same_sessions_messages_search_results_audit_and_files() {
    let mut daemon = open_old_root();
    let found = answers(&daemon);
    // What answers look like may change; what they say of an old root may not. Read the difference.
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        for (name, text) in &found {
            fs::write(fixture("expect").join(name), text).unwrap();
        }
    }
    same(&found, &files(&fixture("expect"), &|_| true));
    assert_eq!(daemon.stop(), 0);

    let pristine = daemon.path("pristine");
    unpack(&pristine);
    same(&kept(daemon.root()), &kept(&pristine));
    for agent in ["coder", "web"] {
        let [list, ..] = index(&pristine, agent);
        // Neither what has ended nor what is archived can be resumed by its name.
        let goes_on: Vec<&str> =
            list.lines().filter(|name| !name.contains('+') && *name != "shelf").collect();
        assert!(goes_on.len() < list.lines().count(), "some of {agent} have ended");
        assert_eq!(index(daemon.root(), agent)[0].lines().collect::<Vec<_>>(), goes_on);
    }
    assert_eq!(index(daemon.root(), "coder")[1..], index(&pristine, "coder")[1..]);
    assert_eq!(index(daemon.root(), "web")[1..], ["site\n", "site\n"], "what can be resumed");
    daemon.ctx(&["doctor", "--deep"]).ok();
}

#[test]
fn its_views_are_made_again_as_they_were() {
    let mut daemon = open_old_root();
    let as_found = answers(&daemon);
    assert_eq!(daemon.stop(), 0);
    let before = kept(daemon.root());
    let truth = ["events.jsonl", "pack.json"];
    for path in before.keys().filter(|path| path.starts_with("home")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if !truth.contains(&name) && !name.starts_with("sha256-") {
            fs::remove_file(daemon.root().join(path)).unwrap();
        }
    }
    daemon.start_again();
    same(&answers(&daemon), &as_found);
    assert_eq!(daemon.stop(), 0);
    same(&kept(daemon.root()), &before);
}

#[test]
fn its_sessions_go_on_and_names_that_were_freed_are_used_again() {
    let daemon = open_old_root();
    for (session, before) in [("default", 4), ("back", 2), ("branch", 4), ("over", 0), ("trunk", 0)] {
        daemon.ctx(&["send", "--session", session, "and on it goes"]).ok();
        let said = json_lines(&daemon.ctx(&["history", &format!("coder/{session}"), "--json"]).ok());
        let messages =
            said.iter().filter(|line| line["role"] == "user" || line["role"] == "assistant").count();
        assert!(messages >= before + 2, "{session}: {said:?}");
    }
    daemon.ctx(&["resume", "coder/paused"]).ok();
    daemon.ctx(&["queue", "resume", "coder/queued"]).ok();
    let old = json_lines(&daemon.ctx(&["ls", "-A", "--all", "--archived", "--json"]).ok());
    let ended = old.iter().filter(|session| session["state"] == "ended").count();
    assert_eq!(ended, 6, "those that ended then are over");
}
