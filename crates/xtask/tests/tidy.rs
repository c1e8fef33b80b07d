//! The repository is tidy.

fn none(complaints: Vec<xtask::Complaint>) {
    let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

#[test]
fn crates_use_only_what_they_may() {
    none(xtask::edges::check(&xtask::root()));
}

#[test]
fn sources_hold_to_the_house_rules() {
    none(xtask::source::check(&xtask::root()));
}

#[test]
fn modules_use_each_other_in_one_direction() {
    none(xtask::cycles::check(&xtask::root()));
}
