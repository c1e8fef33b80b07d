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
    let wanted = "checkpoint fs.edit fs.list fs.read fs.search fs.stat fs.write issue output.read shell.exec shell.interrupt \
                  shell.output terminal.close terminal.open terminal.read terminal.write todo";
    assert_eq!(tools, wanted.split_whitespace().collect::<Vec<_>>());
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

#[test]
fn a_users_own_executable_is_a_tool_of_their_agents_in_the_cage_and_under_the_policy() {
    let tree = Tree::start();
    std::fs::write(tree.path("secret"), "outside the cage").unwrap();
    let program = format!(
        "#!/bin/sh\necho \"given $(cat)\"\ncat {} 2>/dev/null || echo caged\n",
        tree.path("secret").display()
    );
    std::fs::write(tree.path("probe.sh"), program).unwrap();
    let made = format!(
        "ctx() {{ {} \"$@\"; }}; ctx tool new probe --from {} --description 'Probes.'",
        env!("CARGO_BIN_EXE_ctx"),
        tree.path("probe.sh").display()
    );
    tree.sh(&made).ok();
    assert!(
        tree.ctx(&["tool", "ls"]).ok().contains("probe            own   Probes."),
        "{}",
        tree.ctx(&["tool", "ls"]).ok()
    );
    assert!(tree.ctx(&["tool", "new", "fs.read"]).fails(1).contains("choose another name"));
    let call =
        json!({"script": [{"tool": {"name": "probe", "input": {"n": 7}}}, {"text": "done"}]}).to_string();
    std::fs::write(tree.path("call.json"), json!({"task": call}).to_string()).unwrap();
    tree.ctx(&["set", "coder", "model", "debug/script"]).ok();
    let run = |options: &str| {
        let said = tree.sh(&format!("$R/agent/coder {options} < {}", tree.path("call.json").display()));
        let frames = frames(&said.stdout);
        let result = frames.iter().find(|frame| frame["type"] == "tool_result").cloned();
        result.unwrap_or_else(|| panic!("{said:?}"))
    };
    let denied = run("");
    assert_eq!(denied["status"], "error", "nobody was there to allow it: {denied}");
    let made = run("--allow probe");
    assert_eq!(
        (&made["status"], made["output"].as_str().unwrap().trim_end()),
        (&json!("ok"), "given {\"n\":7}\ncaged")
    );
    tree.ctx(&["set", "coder", "policy", "deny probe"]).ok();
    assert!(run("--yes")["output"].as_str().unwrap().contains("the policy denies probe"));
    tree.ctx(&["set", "coder", "policy", "allow probe {\"n\":7}"]).ok();
    assert_eq!(run("")["status"], "ok", "a pattern is held against the arguments");
    let direct = tree.sh(&format!("echo '{{}}' | $R/home/{}/tool/probe", super::support::own_uid())).ok();
    assert_eq!(direct, "given {}\noutside the cage", "a person runs it with their own rights");
}

#[test]
fn the_policy_of_a_tool_holds_for_agents_that_say_nothing_of_it() {
    let tree = Tree::start();
    let call = json!({"script": [{"tool": {"name": "fs.write", "input": {"path": "a", "content": "x"}}}, {"text": "ok"}]});
    std::fs::write(tree.path("call.json"), json!({"task": call.to_string()}).to_string()).unwrap();
    tree.ctx(&["set", "coder", "model", "debug/script"]).ok();
    let written = || {
        tree.sh(&format!("$R/agent/coder < {}", tree.path("call.json").display())).ok();
        tree.workspace().join("a").exists()
    };
    assert!(!written(), "it would have to ask");
    tree.ctx(&["set", "fs.write", "policy", "allow fs.write a"]).ok();
    assert!(written());
    let bad = tree.ctx(&["set", "fs.write", "policy", "allow fs.read"]).fails(2);
    assert!(bad.contains("tool/fs.write.d/policy:1:1"), "{bad}");
}
