//! Control files: what they may say, and how a bad one is refused.

use std::os::unix::fs::symlink;

use ctx_agent::control::mount::Access;
use ctx_agent::describe::{agents, describe};
use ctx_session::{Limits, Name};

use crate::support::Root;

fn coder() -> Name {
    Name::new("coder").unwrap()
}

#[test]
fn every_file_is_read() {
    let root = Root::new();
    for (file, text) in [
        ("owner", "1000\n"),
        ("uid", "1001"),
        ("gid", " 1002 \n"),
        ("root", "/srv/coder\n"),
        ("cwd", "/work/src\n"),
        ("env", "# comment\nLANG=C.UTF-8\n\nEMPTY=\nMORE=a=b c\n"),
        ("path", "/usr/bin\n/opt/bin\n"),
        ("mount", "/a /work rw\n/b /data ro\n"),
        ("model", "debug:script\n"),
        ("policy", "deny fs.read *.env\nallow fs.*\n"),
        ("prompt", "be kind\n# not a comment\n"),
        ("project", "music\n"),
        ("tools", "fs.read\nfs.edit\n"),
        ("redact", "off\n"),
    ] {
        root.control(file, text);
    }
    let found = describe(&root.path(), &coder(), &root.limits).unwrap();
    assert_eq!((found.owner, found.uid, found.gid), (Some(1000), Some(1001), Some(1002)));
    assert_eq!(found.root.unwrap().to_str(), Some("/srv/coder"));
    assert_eq!(found.cwd, "/work/src");
    let env: Vec<_> = found.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(env, [("LANG", "C.UTF-8"), ("EMPTY", ""), ("MORE", "a=b c")]);
    assert_eq!(found.path.len(), 2);
    assert_eq!(found.mounts[1].access, Access::ReadOnly);
    assert_eq!(found.model, "debug:script");
    assert_eq!(found.settings.tools.as_deref(), Some(&["fs.read".to_owned(), "fs.edit".to_owned()][..]));
    assert_eq!(found.settings.redact.map(|redact| redact.as_str()), Some("off"));
    assert_eq!(found.policy.lines(), ["deny fs.read *.env", "allow fs.*"]);
    assert_eq!(found.prompt, "be kind\n# not a comment\n");
    assert_eq!(found.project.as_str(), "music");
}

#[test]
fn what_is_not_said_has_a_default() {
    let root = Root::new();
    let dir = root.path().join("agent/bare.d");
    std::fs::create_dir(&dir).unwrap();
    let found = describe(&root.path(), &Name::new("bare").unwrap(), &root.limits).unwrap();
    assert_eq!((found.cwd.as_str(), found.model.as_str(), found.project.as_str()), ("/", "main", "default"));
    assert!(found.mounts.is_empty() && found.policy.rules.is_empty() && found.prompt.is_empty());
    assert_eq!(agents(&root.path()).unwrap().iter().map(Name::as_str).collect::<Vec<_>>(), ["bare", "coder"]);
}

#[test]
fn a_bad_value_is_refused_with_file_and_line() {
    for (file, text, expected) in [
        ("uid", "root\n", "agent/coder.d/uid:1:1: expected a numeric id, found `root`"),
        ("owner", "4294967295\n", "agent/coder.d/owner:1:1: expected a numeric id"),
        ("gid", "-1\n", "agent/coder.d/gid:1:1: expected a numeric id"),
        ("cwd", "work\n", "agent/coder.d/cwd:1:1: expected an absolute path, found `work`"),
        ("cwd", "# here\n/work\n/other\n", "agent/coder.d/cwd:3:1: this file holds one value"),
        ("root", "relative\n", "agent/coder.d/root:1:1: expected an absolute path"),
        ("env", "A=1\nB\n", "agent/coder.d/env:2:1: expected KEY=VALUE, found `B`"),
        ("env", "1A=1\n", "agent/coder.d/env:1:1: `1A` is not a key"),
        ("path", "/bin\nusr/bin\n", "agent/coder.d/path:2:1: expected an absolute path"),
        (
            "mount",
            "/a /b rw\n\n/c /d\n",
            "agent/coder.d/mount:3:1: expected `SOURCE TARGET ro|rw`, found 2 words",
        ),
        ("mount", "/a /b rw\n/c /b ro\n", "agent/coder.d/mount:2:1: `/b` is mounted twice"),
        ("model", "a/b/c\n", "agent/coder.d/model:1:1: `a/b/c` is not a model"),
        (
            "policy",
            "allow fs.*\nforbid x\n",
            "agent/coder.d/policy:2:1: expected `allow|ask|deny TOOL [PATTERN]`",
        ),
        ("project", "my project\n", "agent/coder.d/project:1:1: `my project` is not a project"),
    ] {
        let root = Root::new();
        root.control(file, text);
        let refusal = root.prepare(None, None).unwrap_err();
        assert_eq!(refusal.code.name(), "EBADMSG", "{file}: {refusal}");
        assert!(refusal.message.starts_with(expected), "{file}: {refusal}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let root = Root::new();
    root.control("prompt", b"abc\xff");
    let refusal = root.prepare(None, None).unwrap_err();
    assert_eq!(refusal.code.name(), "EBADMSG");
    assert!(refusal.message.contains("agent/coder.d/prompt is not UTF-8 from byte 3 on"), "{refusal}");
}

#[test]
fn links_directories_and_pipes_are_not_followed_or_waited_for() {
    let root = Root::new();
    let dir = root.path().join("agent/coder.d");
    std::fs::write(root.dir.path().join("prompt"), "planted").unwrap();
    for case in ["link", "directory", "pipe"] {
        std::fs::remove_file(dir.join("prompt")).ok();
        match case {
            "link" => symlink(root.dir.path().join("prompt"), dir.join("prompt")).unwrap(),
            "directory" => std::fs::create_dir(dir.join("prompt")).unwrap(),
            _ => {
                std::fs::remove_dir(dir.join("prompt")).unwrap();
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, dir.join("prompt"), rustix::fs::FileType::Fifo, mode, 0)
                    .unwrap();
            }
        }
        let refusal = root.prepare(None, None).unwrap_err();
        assert_eq!(refusal.code.name(), "EBADMSG", "{case}: {refusal}");
        assert!(
            refusal.message.contains("agent/coder.d/prompt is a link or a special file"),
            "{case}: {refusal}"
        );
    }
    // The directory itself may not be a link either.
    let agents = root.path().join("agent");
    std::fs::rename(&dir, agents.join("real")).unwrap();
    symlink("real", &dir).unwrap();
    assert_eq!(root.prepare(None, None).unwrap_err().code.name(), "EBADMSG");
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let root = Root::with_limits(Limits { control_file_bytes: 2000, ..Limits::default() });
    root.control("prompt", "x".repeat(2000));
    assert!(root.prepare(None, None).is_ok());
    root.control("prompt", "x".repeat(2001));
    let refusal = root.prepare(None, None).unwrap_err();
    assert_eq!(refusal.message, "agent/coder.d/prompt has more than 2000 bytes; make it smaller");
}

#[test]
fn a_file_of_another_user_is_refused() {
    let root = Root::new();
    let path = root.path().join("agent/coder.d/policy");
    // Only root can give a file away; as another user the check is that our own file is taken.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        let refusal = root.prepare(None, None).unwrap_err();
        assert_eq!(refusal.code.name(), "EBADMSG");
        assert!(refusal.message.starts_with("agent/coder.d/policy belongs to uid 12345"), "{refusal}");
    } else {
        assert!(root.prepare(None, None).is_ok());
    }
}
