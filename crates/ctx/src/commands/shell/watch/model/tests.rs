//! Keys and what they do, in milliseconds and without a terminal.

use super::*;
use crate::commands::shell::watch::block::Line;

pub fn item(key: &str, name: &str, mark: Mark) -> Item {
    let state = if mark == Mark::Busy { "running" } else { "open" };
    Item { key: key.into(), name: name.into(), state: state.into(), age: "3s".into(), mark }
}

/// A command with this many lines of output.
pub fn command(id: u64, text: &str, lines: usize, failed: bool) -> Block {
    let line = |tone, text: String| Line { tone, text };
    Block {
        id,
        head: line(Tone::Strong, format!("$ {text}")),
        body: (1..=lines).map(|n| line(Tone::Plain, format!("{text} line {n}"))).collect(),
        note: Some(line(if failed { Tone::Bad } else { Tone::Dim }, "exit code".into())),
        failed,
        folds: true,
    }
}

/// Two shells and a session; the first shell has run three commands, of which the second failed.
pub fn model() -> Model {
    let mut model = Model::new();
    let items = vec![
        item("a", "1_local", Mark::Open),
        item("b", "2_local", Mark::Busy),
        item("c", "coder/x", Mark::Open),
    ];
    assert_eq!(model.set_items(items), Act::Load);
    model.set_blocks(&[
        command(1, "one", 2, false),
        command(2, "two", 30, true),
        command(3, "three", 0, false),
    ]);
    model
}

pub fn press(model: &mut Model, keys: &str) -> Act {
    let mut act = Act::Nothing;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x7f' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        act = model.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    act
}

fn here(model: &Model) -> String {
    model.rows.get(model.at).map(|row| row.text.clone()).unwrap_or_default()
}

#[test]
fn the_list_is_walked_and_the_chosen_one_stays_chosen_when_others_come() {
    let mut model = model();
    assert_eq!(model.chosen(), Some("a"));
    assert_eq!(press(&mut model, "j"), Act::Load);
    assert_eq!(model.chosen(), Some("b"));
    assert!(model.rows.is_empty(), "another transcript is on its way");
    assert_eq!(press(&mut model, "jj"), Act::Nothing, "it ends at the end");
    assert_eq!(model.chosen(), Some("c"));
    let more = vec![item("new", "9_local", Mark::Open), item("c", "coder/x", Mark::Open)];
    assert_eq!(model.set_items(more), Act::Nothing);
    assert_eq!((model.chosen(), model.chosen_at()), (Some("c"), Some(1)));
    assert_eq!(model.set_items(Vec::new()), Act::Load, "it is gone");
    assert_eq!(model.chosen(), None);
    assert_eq!(press(&mut model, "jkgG\t\n/x\nneEyY"), Act::Nothing, "an empty screen takes every key");
}

#[test]
fn the_list_keeps_its_order_while_somebody_walks_in_it() {
    let mut model = model();
    let keys = |model: &Model| model.visible().iter().map(|item| item.key.clone()).collect::<Vec<_>>();
    let by_activity = || ["c", "new", "b", "a"].map(|key| item(key, key, Mark::Open)).to_vec();
    model.set_items(by_activity());
    assert_eq!(keys(&model), ["new", "a", "b", "c"]);
    press(&mut model, "\t");
    model.set_items(by_activity());
    assert_eq!(keys(&model), ["c", "new", "b", "a"], "on the other side it follows what happens");
}

#[test]
fn a_transcript_is_followed_at_its_end_and_stands_still_elsewhere() {
    let mut model = model();
    press(&mut model, "\t");
    assert_eq!(here(&model), "exit code", "it opens at its end");
    let mut blocks = model.blocks.clone();
    blocks.push(command(4, "four", 1, false));
    model.set_blocks(&blocks);
    assert_eq!(model.block().unwrap().id, 4, "who is at the end sees what comes");
    press(&mut model, "gj");
    assert_eq!(here(&model), "one line 1");
    blocks.remove(2);
    blocks.push(command(5, "five", 1, false));
    model.set_blocks(&blocks);
    assert_eq!(here(&model), "one line 1", "who reads is left alone");
    model.resize(40, 10);
    assert_eq!(here(&model), "one line 1", "also by another size");
}

#[test]
fn the_next_failed_command_is_found_around_the_end() {
    let mut model = model();
    press(&mut model, "e");
    assert_eq!((here(&model).as_str(), model.side), ("$ two", Side::Transcript));
    press(&mut model, "e");
    assert_eq!(here(&model), "$ two", "there is no other");
    let mut blocks = model.blocks.clone();
    blocks.push(command(4, "four", 0, true));
    model.set_blocks(&blocks);
    press(&mut model, "e");
    assert_eq!(here(&model), "$ four");
    press(&mut model, "e");
    assert_eq!(here(&model), "$ two");
    press(&mut model, "E");
    assert_eq!(here(&model), "$ four");
    model.set_blocks(&[command(1, "fine", 0, false)]);
    press(&mut model, "e");
    assert_eq!(model.says, "no command failed here");
}

#[test]
fn a_search_goes_from_hit_to_hit_and_finds_what_is_folded() {
    let mut model = model();
    press(&mut model, "/ONE line\n");
    assert_eq!(here(&model), "one line 1");
    press(&mut model, "n");
    assert_eq!(here(&model), "one line 2");
    press(&mut model, "n");
    assert_eq!(here(&model), "one line 1", "around the end");
    press(&mut model, "N");
    assert_eq!(here(&model), "one line 2");
    press(&mut model, "/two line 15\n");
    assert_eq!(here(&model), "$ two", "its line is not on the screen");
    press(&mut model, "\nn");
    let top = model.open.unwrap().1;
    assert_eq!(model.open_rows().unwrap()[top].text, "two line 15", "in the open output it is");
    press(&mut model, "\x1b/nowhere\x7f\x7f\n");
    assert_eq!(model.search, "nowhe");
    assert_eq!(model.says, "`nowhe` is not here");
    press(&mut model, "/never mind\x1b");
    assert_eq!((model.search.as_str(), &model.asks), ("nowhe", &None), "nothing was searched");
}

#[test]
fn filters_narrow_the_list_and_the_transcript() {
    let mut model = model();
    assert_eq!(press(&mut model, "fcoder\n"), Act::Load);
    assert_eq!((model.visible().len(), model.chosen()), (1, Some("c")));
    press(&mut model, "\x1b");
    assert_eq!(model.visible().len(), 3);
    press(&mut model, "frunning\n");
    assert_eq!(model.chosen(), Some("b"), "by state too");
    model.set_blocks(&[command(1, "one", 2, false), command(2, "two", 30, true)]);
    press(&mut model, "\tftwo line 7\n");
    assert!(model.rows.iter().all(|row| row.block == 1), "only the block that holds it");
    assert_eq!(model.block().unwrap().id, 2);
    press(&mut model, "\x1b");
    assert!(model.rows.iter().any(|row| row.block == 0));
}

#[test]
fn output_is_opened_whole_scrolled_and_closed() {
    let mut model = model();
    model.resize(80, 12);
    press(&mut model, "e\n");
    let rows = model.open_rows().unwrap();
    assert_eq!(rows.len(), 32, "head, thirty lines, note");
    press(&mut model, "jj");
    assert_eq!(model.open, Some((2, 2)));
    press(&mut model, "G");
    assert_eq!(model.open, Some((2, 22)), "the last page is full");
    press(&mut model, "g\n");
    assert_eq!(model.open, None, "Enter closes it too");
    assert_eq!(here(&model), "$ two");
    press(&mut model, "\n\x1b");
    assert_eq!((model.open, model.side), (None, Side::Transcript));
    press(&mut model, "\x1b");
    assert_eq!(model.side, Side::List);
}

#[test]
fn outputs_and_commands_are_copied_up_to_what_terminals_take() {
    let mut model = model();
    press(&mut model, "\tg");
    assert_eq!(press(&mut model, "y"), Act::Copy("one line 1\none line 2\n".to_owned()));
    assert_eq!(model.says, "copied 22 characters");
    assert_eq!(press(&mut model, "Y"), Act::Copy("one".to_owned()));
    press(&mut model, "G");
    assert_eq!(press(&mut model, "y"), Act::Nothing);
    assert_eq!(model.says, "there is nothing to copy here");
    let mut long = command(1, "long", 0, false);
    long.body = vec![Line { tone: Tone::Plain, text: "語".repeat(50_000) }];
    model.set_blocks(&[long]);
    let Act::Copy(text) = press(&mut model, "y") else { panic!("it is copied") };
    assert!(text.len() <= COPY_MAX && text.len() > COPY_MAX - 3);
    assert!(model.says.starts_with("copied the first "), "{}", model.says);
}

#[test]
fn ctrl_c_and_q_leave_and_a_letter_in_a_search_does_not() {
    let mut model = model();
    let ctrl = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    assert_eq!(press(&mut model, "/q"), Act::Nothing);
    assert_eq!(model.press(ctrl('c')), Act::Quit);
    assert_eq!(model.press(ctrl('z')), Act::Suspend);
    let alt = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT);
    assert_eq!(model.press(alt), Act::Quit, "Esc and q at once");
}
