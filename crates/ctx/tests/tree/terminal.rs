//! What objects do at a terminal.

use testkit::Pty;

use super::support::Tree;

#[test]
fn at_a_terminal_text_is_readable_and_an_agent_without_words_is_talked_with() {
    let tree = Tree::start();
    let object = |path: &str| tree.root().join(path).display().to_string();
    let mut model = Pty::ctx(&tree, &["object-runner", &object("model/debug/echo"), "hello"]);
    assert_eq!(model.wait(), 0);
    assert!(model.shown().contains("hello") && !model.shown().contains("\"type\""), "{}", model.shown());

    let mut tool = Pty::ctx(&tree, &["object-runner", &object("tool/fs.read")]);
    assert_eq!(tool.wait(), 0, "it prints its usage and waits for nothing");
    assert!(tool.shown().contains("\"path\"") && tool.shown().contains("INPUT"), "{}", tool.shown());

    let mut agent = Pty::ctx(&tree, &["object-runner", &object("agent/coder")]);
    agent.wait_for("coder");
    agent.type_keys("good morning\r");
    agent.wait_for("good morning");
    agent.type_keys("\u{4}");
    assert_eq!(agent.wait(), 0);
}
