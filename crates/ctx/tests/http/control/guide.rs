//! The walk through of `docs/guides/control.md`: every command, in order, in one real shell.

use crate::guide::walk;

#[test]
fn the_guides_commands_do_what_it_says() {
    let said = walk(include_str!("../../../../../docs/guides/control.md"));
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "operator: have a look",
        "model: which database?",
        "System prompts were updated at this checkpoint",
        "4",
        "applied: we counted",
        "not that file",
    ];
    assert_eq!(lines, expected, "{said}");
}
