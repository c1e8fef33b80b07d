//! What an agent's tools cannot reach, and what the tree bears: pipelines, copies, and a root that is thrown away.

use serde_json::{Value, json};

use super::support::{Tree, frames, own_uid};

/// The result of a call that the agent is made to make.
fn called(tree: &Tree, name: &str, input: &Value) -> Value {
    let script = json!({"script": [{"tool": {"name": name, "input": input}}, {"text": "done"}]}).to_string();
    std::fs::write(tree.path("call.json"), json!({"task": script}).to_string()).unwrap();
    let said = tree.sh(&format!("$R/agent/coder --yes < {}", tree.path("call.json").display())).ok();
    frames(&said).into_iter().find(|frame| frame["type"] == "tool_result").expect("a result")
}

#[test]
fn no_path_leads_out_of_what_an_agent_sees() {
    let tree = Tree::start();
    tree.ctx(&["set", "coder", "model", "debug/script"]).ok();
    let secret = tree.path("secret");
    std::fs::write(&secret, "top secret\n").unwrap();
    let work = tree.workspace();
    std::os::unix::fs::symlink(&secret, work.join("link")).unwrap();
    std::os::unix::fs::symlink("../secret", work.join("up")).unwrap();
    std::os::unix::fs::symlink("/proc/1/root/etc/passwd", work.join("proc")).unwrap();
    let outside = secret.display().to_string();
    for path in [
        "../secret",
        "/work/../../secret",
        "link",
        "up",
        "proc",
        "/proc/self/root/etc/passwd",
        outside.as_str(),
        "/etc/passwd",
    ] {
        for (tool, input) in
            [("fs.read", json!({"path": path})), ("fs.write", json!({"path": path, "content": "changed"}))]
        {
            let result = called(&tree, tool, &input);
            // A name in its own root that is not there is made there, and nowhere else.
            let is_refused = result["status"] == "error";
            assert!(is_refused || tool == "fs.write", "{tool} {path}: {result}");
            let output = result["output"].as_str().unwrap();
            assert!(!output.contains("top secret") && !output.contains("root:x:"), "{tool} {path}: {output}");
        }
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "top secret\n", "{path}");
    }
    for (cwd, code) in [
        ("/nowhere", "ENOENT"),
        (outside.as_str(), "EACCES"),
        ("/etc", "EACCES"),
        ("/work/link", "EACCES"),
        ("/../../etc", "EACCES"),
    ] {
        let request = json!({"task": "x", "cwd": cwd}).to_string();
        let ended = tree.sh(&format!("$R/agent/coder '{request}'"));
        assert!(ended.stderr.contains(code), "{cwd}: {ended:?}");
    }
}

#[test]
fn a_link_that_is_swapped_while_it_is_resolved_shows_nothing() {
    let tree = Tree::start();
    tree.ctx(&["set", "coder", "model", "debug/script"]).ok();
    let work = tree.workspace();
    std::fs::create_dir(work.join("real")).unwrap();
    std::fs::write(work.join("real/file"), "inside\n").unwrap();
    std::fs::create_dir(tree.path("out")).unwrap();
    std::fs::write(tree.path("out/file"), "top secret\n").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let out = tree.path("out");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for target in [std::path::Path::new("real"), out.as_path()] {
                    let _ = std::fs::remove_file(work.join("new"));
                    std::os::unix::fs::symlink(target, work.join("new")).unwrap();
                    std::fs::rename(work.join("new"), work.join("swapped")).unwrap();
                }
            }
        });
        for _ in 0..20 {
            let result = called(&tree, "fs.read", &json!({"path": "swapped/file"}));
            assert!(!result["output"].as_str().unwrap().contains("top secret"), "{result}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_root_that_is_rebuilt_loses_no_history() {
    let mut tree = Tree::start();
    tree.sh("$R/agent/coder --session kept 'remember this'").ok();
    let root = tree.root().join(format!("home/{}/agent/coder/root", own_uid()));
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    let history = |tree: &Tree| tree.ctx(&["history", "coder", "--session", "kept"]).ok();
    let before = history(&tree);
    assert!(before.contains("remember this"));
    tree.stop();
    tree.start_again();
    assert_eq!(history(&tree), before);
    tree.sh("$R/agent/coder --session kept 'and this'").ok();
    assert!(history(&tree).contains("and this"));
}

#[test]
fn a_running_root_is_watched_found_and_copied_with_ordinary_programs() {
    let tree = Tree::start();
    tree.sh("$R/agent/coder --session kept hello").ok();
    let found = tree.sh("find $R/agent $R/model $R/tool -type f -perm -u+x | sort | xargs -n1 basename").ok();
    assert!(found.starts_with("coder\necho\nscript\ncheckpoint\nfs.edit\n"), "{found}");
    tree.sh("TERM=xterm timeout 2 watch -n1 -t cat $R/status; [ $? = 124 ]").ok();
    tree.sh("rsync -a --exclude .state $R/ copy/").ok();
    let copied = tree.sh(&format!("cat copy/home/{}/agent/coder/session/kept/latest.md", own_uid())).ok();
    assert_eq!(copied.trim_end(), "hello");
    // Each answer comes in pieces, so what several print at once is put together by its own shell.
    let echo = r#"echo \$($R/model/debug/echo --text n{})"#;
    let many = tree.sh(&format!("seq 5 | xargs -P3 -I{{}} sh -c \"{echo}\" | sort | tr '\\n' ' '")).ok();
    assert_eq!(many, "n1 n2 n3 n4 n5 ");
}
