//! The tools without effects: what they show, and what they say when they cannot.

use ctx_session::Limits;

use crate::support::{Log, Root};

/// Calls one tool in a run of its own and gives the line of its result.
async fn call(root: &Root, name: &str, input: serde_json::Value) -> String {
    let script = serde_json::json!({"script": [{"tool": {"name": name, "input": input}}]});
    let log = std::sync::Arc::new(Log::default());
    let outcome =
        root.run_with(root.job("debug/script", &script.to_string()), &log, Default::default()).await;
    assert_eq!(outcome, ctx_session::command::Outcome::Done);
    log.lines()
        .into_iter()
        .find_map(|line| line.strip_prefix("#2 ").filter(|l| !l.starts_with("calls")).map(str::to_owned))
        .unwrap()
}

async fn read(root: &Root, input: serde_json::Value) -> String {
    call(root, "fs.read", input).await
}

#[tokio::test]
async fn a_file_is_read_whole_or_by_lines() {
    let root = Root::new();
    root.put("dir/f", "one\ntwo\nthree\nfour");
    for (input, expected) in [
        (serde_json::json!({"path": "dir/f"}), r#"gave "one\ntwo\nthree\nfour""#),
        (serde_json::json!({"path": "/work/dir/f", "limit": 1}), r#"gave "one\n""#),
        (serde_json::json!({"path": "dir/f", "offset": 2, "limit": 2}), r#"gave "two\nthree\n""#),
        (serde_json::json!({"path": "dir/f", "offset": 4}), r#"gave "four""#),
        (
            serde_json::json!({"path": "dir/f", "offset": 5}),
            r#"failed "EINVAL: dir/f has no line 5; it ends before""#,
        ),
        (
            serde_json::json!({"path": "dir/f", "offset": 0}),
            r#"failed "EINVAL: offset and limit count from 1""#,
        ),
        (serde_json::json!({"path": "dir"}), r#"failed "EINVAL: dir is a directory; use fs.list""#),
        (serde_json::json!({"path": "dir/f/x"}), r#"failed "ENOENT: dir/f/x does not exist""#),
        (serde_json::json!({"path": ""}), r#"failed "EINVAL:  is a directory; use fs.list""#),
    ] {
        assert_eq!(read(&root, input.clone()).await, expected, "{input}");
    }
}

#[tokio::test]
async fn files_that_are_no_text_are_not_poured_into_the_conversation() {
    let root = Root::new();
    root.put("image", b"\x89PNG\0\x01\x02");
    root.put("latin", b"gr\xfc\xdfe");
    root.put("empty", "");
    let path = |p: &str| serde_json::json!({"path": p});
    assert_eq!(
        read(&root, path("image")).await,
        r#"failed "EINVAL: image is a binary file of 7 bytes; fs.read shows text only""#
    );
    assert_eq!(read(&root, path("latin")).await, "gave \"gr\u{FFFD}\u{FFFD}e\"");
    assert_eq!(read(&root, path("empty")).await, r#"gave """#);
}

#[tokio::test]
async fn a_pipe_or_socket_does_not_hang_the_run() {
    let root = Root::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.work().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(root.work().join("sock")).unwrap();
    for name in ["pipe", "sock"] {
        let told = read(&root, serde_json::json!({ "path": name })).await;
        assert_eq!(told, format!("failed \"EINVAL: {name} is not a regular file\""));
    }
}

#[tokio::test]
async fn a_large_file_is_cut_and_says_how_to_read_on() {
    let root = Root::with_limits(Limits { fs_read_bytes: 10, ..Limits::default() });
    root.put("f", "aaaa\nbbbä\ncccc\n");
    assert_eq!(
        read(&root, serde_json::json!({"path": "f"})).await,
        r#"gave "aaaa\nbbbä\n[cut in line 2 after 10 bytes; the file has 16 bytes: read on with offset 2]\n""#
    );
    root.put("one-line", "ä".repeat(20));
    let told = read(&root, serde_json::json!({"path": "one-line"})).await;
    assert!(told.starts_with(r#"gave "äääää\n[cut in line 1"#), "{told}");
}

#[tokio::test]
async fn no_tool_reads_outside_the_view() {
    let root = Root::new();
    std::fs::write(root.dir.path().join("outside"), "secret").unwrap();
    for (link, target) in
        [("up", "../outside"), ("abs", "/etc/passwd"), ("proc", "/proc/self/root/etc/passwd")]
    {
        std::os::unix::fs::symlink(target, root.work().join(link)).unwrap();
    }
    for path in
        ["../outside", "/work/../outside", "/etc/passwd", "up", "abs", "proc", "/work/../../etc/passwd"]
    {
        let told = read(&root, serde_json::json!({ "path": path })).await;
        assert_eq!(
            told,
            format!(
                "failed \"EACCES: {path} is outside what this agent sees; use a path inside its mounts\""
            )
        );
    }
}

#[tokio::test]
async fn a_directory_is_listed_in_order_with_what_is_in_it() {
    let root = Root::new();
    root.put("b", "");
    root.put("a/x", "");
    root.put("bad\nname", "");
    std::os::unix::fs::symlink("b", root.work().join("link")).unwrap();
    let list = |path: &str| call(&root, "fs.list", serde_json::json!({ "path": path }));
    assert_eq!(list(".").await, "gave \"a/\\nb\\nbad\u{FFFD}name\\nlink@\\n\"");
    assert_eq!(list("a").await, r#"gave "x\n""#);
    assert_eq!(list("/").await, r#"gave "work/\n""#);
    assert_eq!(list("b").await, r#"failed "EINVAL: b is not a directory; use fs.read""#);
    assert_eq!(list("none").await, r#"failed "ENOENT: none does not exist""#);
    assert_eq!(call(&root, "fs.list", serde_json::json!({})).await, list(".").await);
}

#[tokio::test]
async fn a_very_large_directory_is_cut() {
    let root = Root::with_limits(Limits { fs_list_entries: 2, ..Limits::default() });
    for name in ["a", "b", "c"] {
        root.put(name, "");
    }
    assert_eq!(call(&root, "fs.list", serde_json::json!({})).await, r#"gave "a\nb\n[cut: 2 of 3 names]\n""#);
}
