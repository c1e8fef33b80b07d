//! Tools as objects.

use serde_json::{Value, json};

use super::support::{Tree, frames, types};

#[test]
fn a_tool_is_run_by_a_person_with_the_code_of_the_agent() {
    let tree = Tree::start();
    std::fs::write(tree.workspace().join("README.md"), "read me\n").unwrap();
    for script in
        [r#"$R/tool/fs.read '{"path":"README.md"}'"#, r#"echo '{"path":"README.md"}' | $R/tool/fs.read"#]
    {
        let frames = frames(&tree.sh(script).ok());
        assert_eq!(types(&frames), ["start", "message", "done"], "{script}");
        assert!(frames[1]["content"][0]["text"].as_str().unwrap().contains("read me"), "{frames:?}");
        assert_eq!((&frames[0]["tool"], &frames[2]["status"]), (&json!("fs.read"), &json!("ok")));
    }
    let edit = r#"$R/tool/fs.edit --text '{"path":"README.md","edits":[{"old":"read","new":"edit"}]}'"#;
    assert!(tree.sh(edit).ok().contains("+edit me"), "the diff is shown");
    assert_eq!(std::fs::read_to_string(tree.workspace().join("README.md")).unwrap(), "edit me\n");
    let said = tree.sh(r#"$R/tool/shell.exec --text '{"command":"echo $((6*7)); pwd"}'"#).ok();
    assert!(said.contains("42") && said.contains(tree.workspace().to_str().unwrap()), "{said}");
    let listed = tree
        .sh(r#"printf 'a\nb\n' | xargs -I{} $R/tool/fs.write '{"path":"{}.txt","content":"{}"}' && ls"#)
        .ok();
    assert!(listed.ends_with("README.md\na.txt\nb.txt\n"), "{listed}");
}

#[test]
fn a_tool_refuses_with_an_error_frame_and_its_exit_code() {
    let tree = Tree::start();
    for (script, code, errno) in [
        (r#"$R/tool/fs.read '{"path":"none"}'"#, 1, "ENOENT"),
        (r#"$R/tool/fs.read '{"pth":"x"}'"#, 2, "EINVAL"),
    ] {
        let ended = tree.sh(script);
        let frames = frames(&ended.stdout);
        assert_eq!((ended.code, types(&frames)), (code, vec!["start", "error", "done"]), "{script}");
        assert_eq!((&frames[1]["code"], &frames[2]["status"]), (&json!(errno), &json!("error")));
    }
    for script in ["$R/tool/fs.read hello", "$R/tool/fs.read '[1]'", "echo | $R/tool/fs.read"] {
        assert_eq!(tree.sh(script).code, 2, "{script}");
    }
}

#[test]
fn every_tool_has_its_schema_and_no_socket_and_shows_no_code() {
    let tree = Tree::start();
    let names = tree.sh("ls $R/tool").ok();
    let tools: Vec<&str> = names.lines().filter(|name| !name.ends_with(".d")).collect();
    assert_eq!(tools, ["fs.edit", "fs.list", "fs.read", "fs.search", "fs.stat", "fs.write", "shell.exec"]);
    for tool in tools {
        let schema: Value = serde_json::from_str(&tree.read(&format!("tool/{tool}.d/schema"))).unwrap();
        assert_eq!(schema["type"], "object");
        assert_eq!(tree.read(&format!("tool/{tool}.d/name")).trim_end(), tool);
        assert!(!tree.root().join(format!("tool/{tool}.sock")).exists());
        let text = tree.read(&format!("tool/{tool}"));
        let runner = text.lines().next().unwrap();
        assert!(runner.starts_with("#!/") && runner.ends_with("object-runner"), "{runner}");
        assert!(text.contains(&format!("kind: tool\nname: {tool}\n")), "{text}");
        assert!(text.lines().skip(2).all(|line| line.contains(": ")), "metadata alone: {text}");
    }
}
