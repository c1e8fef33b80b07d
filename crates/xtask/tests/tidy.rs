//! The repository is tidy.

#![allow(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

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

/// Every file of Rust below a directory: its path, and its text.
fn sources(dir: &std::path::Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_test_that_the_pages_on_security_and_the_abi_name_is_there() {
    let root = xtask::root();
    let mut all = Vec::new();
    sources(&root.join("crates"), &mut all);
    let read = |page: &str| std::fs::read_to_string(root.join(page)).unwrap();
    let page = read("docs/security.md") + &read("docs/abi.md");
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(|word| word.contains("::")).collect();
    assert!(named.len() > 30, "{named:?}");
    let is_there = |name: &&&str| {
        let (module, function) = name.rsplit_once("::").unwrap();
        let module = module.rsplit("::").next().unwrap();
        all.iter().any(|(path, text)| match function {
            "" => path.ends_with(&format!("/{module}.rs")),
            _ => {
                text.contains(&format!("fn {function}("))
                    || path.ends_with(&format!("{module}/{function}.rs"))
            }
        })
    };
    let missing: Vec<&&str> = named.iter().filter(|name| !is_there(name)).collect();
    assert!(
        missing.is_empty(),
        "docs/security.md or docs/abi.md names tests that are not there: {missing:?}"
    );
}
