//! Commands on objects: `agent`, `tool`, `which`, `cat`, `set`, `validate-name`.

use testkit::until;

use super::support::{Tree, own_uid};

#[test]
fn names_are_checked_by_one_rule() {
    let tree = Tree(Tree::build().stopped());
    for good in ["a", "gpt-4o", "fs.read", "A_b+c", &"n".repeat(64)] {
        assert_eq!(tree.ctx(&["validate-name", good]).code, 0, "{good}");
    }
    let long = "n".repeat(65);
    for bad in ["", ".", "..", "a/b", "a b", "a\nb", "a\u{1}", "x.sock", "x.d", "-a", "ä", &long] {
        assert!(!tree.ctx(&["validate-name", bad]).fails(2).is_empty(), "{bad:?}");
    }
}

#[test]
fn objects_are_found_in_the_path_and_their_files_read_and_set() {
    let tree = Tree::start();
    let which = |name: &str| tree.ctx(&["which", name]);
    let root = tree.root().display().to_string();
    for (name, path) in [
        ("coder", "agent/coder"),
        ("fs.read", "tool/fs.read"),
        ("debug/echo", "model/debug/echo"),
        ("main", "model/main"),
    ] {
        assert_eq!(which(name).ok(), format!("{root}/{path}\n"));
    }
    which("nobody").fails(1);
    which("../x").fails(2);
    which("coder.d").fails(2);
    tree.ctx(&["tool", "new", "mine"]).ok();
    assert_eq!(which("mine").ok(), format!("{root}/home/{}/tool/mine\n", own_uid()));
    let own = tree.sh(&format!("CTX_PATH=/nowhere:$R/agent {} which coder", env!("CARGO_BIN_EXE_ctx"))).ok();
    assert_eq!(own, format!("{root}/agent/coder\n"));
    assert_eq!(tree.sh(&format!("CTX_PATH=/nowhere {} which coder", env!("CARGO_BIN_EXE_ctx"))).code, 1);

    let cat = |what: &str| tree.ctx(&["cat", what]);
    assert!(cat("coder").ok().contains("kind: agent\nname: coder\n"));
    assert_eq!(cat("main/id").ok(), "debug/echo\n", "an alias is followed");
    assert_eq!(cat("coder/model").ok(), "main\n");
    assert!(cat("fs.read/schema").ok().contains("\"path\"") && cat("mine/schema").ok().contains("object"));
    cat("coder/none").fails(1);
    cat("coder/../../x").fails(2);

    tree.ctx(&["set", "coder", "cwd", "/work"]).ok();
    let bad = tree.ctx(&["set", "coder", "mount", "nonsense"]).fails(2);
    assert!(bad.contains("agent/coder.d/mount:1:1"), "{bad}");
    let text = tree.ctx_with(&["set", "coder", "prompt", "-"], "one\ntwo\n");
    assert_eq!((text.code, cat("coder/prompt").ok()), (0, "one\ntwo\n".to_owned()));
    assert!(tree.ctx(&["set", "coder", "status", "x"]).fails(2).contains("prompt"));
}

#[test]
fn an_agent_is_made_changed_listed_and_removed() {
    let tree = Tree::start();
    tree.ctx(&["agent", "new", "reviewer", "--model", "debug/script", "--prompt", "You review."]).ok();
    until("its socket", || tree.root().join("agent/reviewer.sock").exists().then_some(()));
    assert_eq!(tree.ctx(&["cat", "reviewer/prompt"]).ok(), "You review.\n");
    let listed = tree.ctx(&["agent", "ls"]).ok();
    assert!(listed.contains("reviewer  debug/script  default  ready"), "{listed}");
    assert!(tree.ctx(&["agent", "ls", "--json"]).ok().contains("\"described_by_project\":false"));
    tree.ctx(&["agent", "new", "reviewer"]).fails(1);
    tree.ctx(&["agent", "new", "x.d"]).fails(2);
    tree.ctx(&["agent", "new", "other", "--from", "nobody"]).fails(1);
    assert!(
        tree.ctx(&["agent", "new", "other", "--model", "a b"]).fails(2).contains("agent/other.d/model:1:1")
    );
    assert!(!tree.root().join("agent/other.d").exists());

    let ctx = env!("CARGO_BIN_EXE_ctx");
    tree.sh(&format!("EDITOR=\"sed -i s/review/judge/\" {ctx} agent edit reviewer")).ok();
    assert_eq!(tree.ctx(&["cat", "reviewer/prompt"]).ok(), "You judge.\n");
    let bad = tree.sh(&format!("EDITOR=\"sed -i 1inonsense\" {ctx} agent edit reviewer policy")).fails(2);
    assert!(bad.contains("agent/reviewer.d/policy:1:1") && bad.contains("kept in"), "{bad}");
    assert!(!tree.ctx(&["cat", "reviewer/policy"]).ok().contains("nonsense"));
    tree.sh(&format!("EDITOR=false {ctx} agent edit reviewer")).fails(70);

    tree.ctx(&["agent", "rm", "reviewer"]).fails(2);
    tree.ctx(&["agent", "rm", "reviewer", "--yes"]).ok();
    until("its end", || (!tree.root().join("agent/reviewer.sock").exists()).then_some(()));
    until("its end", || (!tree.root().join("agent/reviewer").exists()).then_some(()));
    tree.ctx(&["agent", "rm", "reviewer", "--yes"]).fails(1);
}

#[test]
fn a_tool_that_works_on_its_session_can_be_read_and_says_so_when_it_is_run() {
    let tree = Tree::start();
    for name in ["terminal.open", "shell.output", "checkpoint", "todo", "issue"] {
        assert!(tree.ctx(&["which", name]).ok().ends_with(&format!("tool/{name}\n")));
        assert_eq!(tree.ctx(&["cat", &format!("{name}/cap")]).ok(), "session\n");
        tree.ctx(&["set", name, "policy", &format!("ask {name}")]).ok();
        let told = tree.sh(&format!("$R/tool/{name} --text '{{}}'")).fails(2);
        assert!(told.contains("works on the session of the agent that calls it"), "{told}");
    }
    let told = tree.ctx(&["which", "agent.dispatch"]);
    assert_eq!(told.code, 1, "{told:?}");
}
