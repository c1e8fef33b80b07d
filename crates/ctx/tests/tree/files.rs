//! The files of the tree: what is there, what comes back, and what bad content does.

use std::os::unix::fs::PermissionsExt;

use testkit::until;

use super::support::{Tree, deltas, frames};

#[test]
fn the_root_holds_these_names_and_no_others() {
    let tree = Tree::start();
    until("the status", || tree.root().join("status").exists().then_some(()));
    let names = tree.sh("ls -A $R").ok();
    assert_eq!(names, ".state\nagent\nbin\nhome\nmodel\nshared\nstatus\ntool\n");
    for triple in ["agent/coder", "model/debug/echo", "model/debug/script"] {
        let path = tree.root().join(triple);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755, "{triple}");
        assert!(path.with_extension("sock").exists() && path.with_extension("d").is_dir(), "{triple}");
    }
    for file in [
        "owner",
        "uid",
        "gid",
        "root",
        "cwd",
        "env",
        "path",
        "mount",
        "model",
        "policy",
        "prompt",
        "project",
        "status",
        "pid",
        "log",
        "meta.json",
    ] {
        assert!(tree.root().join("agent/coder.d").join(file).is_file(), "{file}");
    }
    for file in ["id", "driver", "cap", "default", "session", "status", "log", "limit"] {
        assert!(tree.root().join("model/debug/echo.d").join(file).is_file(), "{file}");
    }
    assert_eq!(tree.read("agent/coder.d/status"), "ready\n");
}

#[test]
fn what_ships_comes_back_and_what_a_person_wrote_stays() {
    let mut tree = Tree::start();
    tree.sh("rm -r $R/tool/fs.read $R/tool/fs.read.d $R/model/debug/echo $R/model/debug/echo.d").ok();
    tree.write("model/debug/script.d/limit", "window=99\n");
    std::fs::write(tree.root().join("tool/mine"), "#!/bin/sh\necho mine\n").unwrap();
    tree.stop();
    tree.start_again();
    assert!(tree.root().join("tool/fs.read.d/schema").is_file());
    assert_eq!(deltas(&frames(&tree.sh("$R/model/debug/echo hi").ok())), "hi");
    assert_eq!(tree.read("model/debug/script.d/limit"), "window=99\n");
    assert_eq!(tree.read("tool/mine"), "#!/bin/sh\necho mine\n");
}

#[test]
fn a_bad_control_file_is_told_of_with_its_line_and_the_rest_works() {
    let tree = Tree::start();
    tree.sh("cp -r $R/agent/coder.d $R/agent/other.d").ok();
    until("the other agent", || tree.root().join("agent/other.sock").exists().then_some(()));
    let big = "x".repeat(8 << 20);
    for (file, bad, told) in [
        ("mount", "# one\nnonsense\n", "agent/other.d/mount:2:1"),
        ("policy", "permit all\n", "agent/other.d/policy:1:1"),
        ("cwd", "relative\n", "agent/other.d/cwd:1:1"),
        ("model", "no/such\n", "agent/other.d/model:1:1"),
        ("uid", "-4\n", "agent/other.d/uid:1:1"),
        ("prompt", "\u{0}\u{1}", ""),
        ("env", big.as_str(), "agent/other.d/env"),
    ] {
        let good = tree.read(&format!("agent/other.d/{file}"));
        tree.write(&format!("agent/other.d/{file}"), bad);
        let used = tree.sh("$R/agent/other hi");
        if told.is_empty() {
            assert_eq!(used.code, 0, "{file}: {used:?}");
        } else {
            assert!(used.code != 0 && used.stderr.contains(told), "{file}: {used:?}");
        }
        assert_eq!(tree.sh("$R/agent/coder hi").code, 0, "{file}");
        tree.write(&format!("agent/other.d/{file}"), &good);
        assert_eq!(tree.sh("$R/agent/other hi").code, 0, "{file}");
    }
    std::fs::write(tree.root().join("agent/other.d/env"), b"A=\xff\n").unwrap();
    assert!(tree.sh("$R/agent/other hi").stderr.contains("not UTF-8"));
    until("its status", || {
        tree.read("agent/other.d/status").starts_with("invalid: agent/other.d/env").then_some(())
    });
    tree.sh("rm $R/agent/other.d/env && ln -s /etc/passwd $R/agent/other.d/env").ok();
    assert!(tree.sh("$R/agent/other hi").stderr.contains("is a link"));
    tree.sh("rm $R/agent/other.d/env && mkfifo $R/agent/other.d/env").ok();
    assert!(tree.sh("$R/agent/other hi").stderr.contains("special file"));
    tree.sh("rm $R/agent/other.d/env").ok();
    assert_eq!(tree.sh("$R/agent/other hi").code, 0, "a missing file says nothing");
    until("its status", || (tree.read("agent/other.d/status") == "ready\n").then_some(()));
    assert!(tree.read("agent/other.d/log").contains(" invalid: agent/other.d/env"), "each change is a line");
}
