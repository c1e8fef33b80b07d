//! Which modules of a folder use each other in a circle. A crate has one direction inside too: who reads a module
//! should not have to read all others first.
//!
//! Sources are read as words, not compiled. A module is a file, or a folder with all that is in it; its tests do not
//! count. It uses a sibling where it names it by a path from `crate` or `super`, or names what their parent imports
//! from it. What a parent imports with `*` is not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::{Complaint, rust_files};

/// So many modules may be one subject in several files.
const CIRCLE_MAX: usize = 3;

/// Folders whose circle of so many modules is still to be broken. A line that no longer holds is a complaint too.
const KNOWN: &[(&str, usize)] = &[];

/// A module's path, or that of an item, from the root of its crate.
type ItemPath = Vec<String>;
/// Modules of one folder, each with the siblings that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Complains of every circle of more modules than one subject has.
pub fn check(root: &Path) -> Vec<Complaint> {
    let Ok(entries) = std::fs::read_dir(root.join("crates")) else { return Vec::new() };
    let mut folders = BTreeMap::new();
    for entry in entries.flatten() {
        let sources = entry.path().join("src");
        let modules = read_crate(&sources);
        let parents: BTreeSet<&[String]> =
            modules.keys().filter_map(|path| Some(path.split_last()?.1)).collect();
        for parent in parents {
            let folder = parent.iter().fold(sources.clone(), |folder, name| folder.join(name));
            let folder = folder.strip_prefix(root).unwrap_or(&folder).to_owned();
            folders.insert(folder, graph(parent, &modules));
        }
    }
    complaints(&folders, KNOWN)
}

fn complaints(folders: &BTreeMap<PathBuf, Graph>, known: &[(&str, usize)]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut needed = Vec::new();
    for (folder, graph) in folders {
        for circle in circles(graph).into_iter().filter(|circle| circle.len() > CIRCLE_MAX) {
            let is_known = |(known, len): &&(&str, usize)| folder == Path::new(known) && circle.len() == *len;
            match known.iter().find(is_known) {
                Some(known) => needed.push(known),
                None => complaints.push(Complaint {
                    path: folder.clone(),
                    line: 0,
                    message: message(&circle, graph),
                }),
            }
        }
    }
    for known in known.iter().filter(|known| !needed.contains(known)) {
        let (folder, len) = known;
        let message =
            format!("has no circle of {len} modules any more; take it out of `KNOWN` in xtask's cycles");
        complaints.push(Complaint { path: PathBuf::from(folder), line: 0, message });
    }
    complaints
}

fn message(circle: &BTreeSet<&str>, graph: &Graph) -> String {
    let uses = |name: &&str| {
        let used = graph.get(*name).into_iter().flatten().map(String::as_str);
        let used: Vec<&str> = used.filter(|used| circle.contains(used)).collect();
        format!("{name} uses {}", used.join(", "))
    };
    let uses: Vec<String> = circle.iter().map(uses).collect();
    format!(
        "{} modules use each other in a circle, at most {CIRCLE_MAX} may: {}",
        circle.len(),
        uses.join("; ")
    )
}

/// The modules of a crate, with the paths that each names.
fn read_crate(sources: &Path) -> BTreeMap<ItemPath, Vec<ItemPath>> {
    let mut modules: BTreeMap<ItemPath, Vec<ItemPath>> = BTreeMap::new();
    for file in rust_files(sources) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let module = module_of(file.strip_prefix(sources).unwrap_or(&file));
        let named = named_paths(&module, &text);
        modules.entry(module).or_default().extend(named);
    }
    modules
}

/// The module that a file is, by its path below `src`.
fn module_of(file: &Path) -> ItemPath {
    let mut path: ItemPath =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|name| matches!(name.as_str(), "mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

/// The siblings below `parent`, and which of them uses which.
fn graph(parent: &[String], modules: &BTreeMap<ItemPath, Vec<ItemPath>>) -> Graph {
    let child = |path: &ItemPath| path.strip_prefix(parent)?.first().cloned();
    let mut graph: Graph = modules.keys().filter_map(child).map(|name| (name, BTreeSet::new())).collect();
    let siblings: BTreeSet<String> = graph.keys().cloned().collect();
    let imports = modules.get(parent).map_or(&[][..], Vec::as_slice);
    let sibling_of = |path: &ItemPath| {
        let name = child(path)?;
        if siblings.contains(&name) {
            return Some(name);
        }
        let import = imports.iter().find(|import| import.last() == Some(&name))?;
        child(import).filter(|name| siblings.contains(name))
    };
    for (path, named) in modules {
        let Some(name) = child(path) else { continue };
        let used = named.iter().filter_map(sibling_of).filter(|used| *used != name);
        graph.entry(name.clone()).or_default().extend(used);
    }
    graph
}

/// The modules that reach each other, where these are more than one.
fn circles(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|name| (name.as_str(), reached_from(name, graph))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|reached| reached.contains(to));
    let circle_of = |name: &str| -> BTreeSet<&str> {
        reached.keys().copied().filter(|other| reaches(name, other) && reaches(other, name)).collect()
    };
    let circles: BTreeSet<BTreeSet<&str>> = reached.keys().map(|name| circle_of(name)).collect();
    circles.into_iter().filter(|circle| circle.len() > 1).collect()
}

fn reached_from<'g>(name: &str, graph: &'g Graph) -> BTreeSet<&'g str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = graph.get(name).into_iter().flatten().map(String::as_str).collect();
    while let Some(name) = next.pop() {
        if let Some((name, used)) = graph.get_key_value(name)
            && reached.insert(name.as_str())
        {
            next.extend(used.iter().map(String::as_str));
        }
    }
    reached
}

/// The paths that a module's text names outside its tests and comments, from the root of the crate.
fn named_paths(module: &[String], text: &str) -> Vec<ItemPath> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: String = code.lines().map(|line| without_comment(line).to_owned() + "\n").collect();
    let words = words(&code);
    let (mut written, mut before, mut rest) = (Vec::new(), "", words.as_slice());
    while let [word, after @ ..] = rest {
        let is_rooted = matches!(*word, "crate" | "super") && after.first() == Some(&"::") && before != "::";
        rest = if is_rooted || before == "use" { read_path(rest, &[], &mut written) } else { after };
        before = word;
    }
    written.iter().map(|path| from_root(module, path)).collect()
}

/// The line up to its comment. The slashes of a URL begin none.
fn without_comment(line: &str) -> &str {
    let starts = line.match_indices("//").map(|(at, _)| at);
    let start = starts.into_iter().find(|at| !line.get(..*at).is_some_and(|before| before.ends_with(':')));
    start.and_then(|at| line.get(..at)).unwrap_or(line)
}

/// Words, `::` and single signs.
fn words(code: &str) -> Vec<&str> {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            first if is_letter(first) => rest.find(|c| !is_letter(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (word, after) = rest.split_at(len);
        words.push(word);
        rest = after.trim_start();
    }
    words
}

/// Reads a path, or all paths of a tree in braces, behind what they have in common. Gives what follows.
fn read_path<'w, 's>(
    mut rest: &'w [&'s str],
    common: &[&'s str],
    found: &mut Vec<Vec<&'s str>>,
) -> &'w [&'s str] {
    let mut path = common.to_vec();
    loop {
        match rest {
            ["{", inside @ ..] => {
                rest = inside;
                while let [word, after @ ..] = rest {
                    match *word {
                        "}" => return after,
                        "," => rest = after,
                        _ => rest = read_path(rest, &path, found),
                    }
                }
                return rest;
            }
            [word, "::", after @ ..] => {
                path.push(word);
                rest = after;
            }
            [word, after @ ..] => {
                path.push(word);
                found.push(path);
                return after;
            }
            [] => return rest,
        }
    }
}

fn from_root(module: &[String], written: &[&str]) -> ItemPath {
    let mut path = module.to_vec();
    for word in written {
        match *word {
            "crate" => path.clear(),
            "super" => drop(path.pop()),
            "self" => {}
            name => path.push(name.to_owned()),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modules by their path below `src`, with their text.
    fn modules(files: &[(&str, &str)]) -> BTreeMap<ItemPath, Vec<ItemPath>> {
        let module = |(file, text): &(&str, &str)| {
            let module = module_of(Path::new(file));
            let named = named_paths(&module, text);
            (module, named)
        };
        files.iter().map(module).collect()
    }

    fn found(parent: &[&str], files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let parent: ItemPath = parent.iter().map(|name| (*name).to_owned()).collect();
        let graph = graph(&parent, &modules(files));
        let names = |circle: &BTreeSet<&str>| circle.iter().map(|name| (*name).to_owned()).collect();
        circles(&graph).iter().map(names).collect()
    }

    #[test]
    fn paths_are_found_in_every_form() {
        for (text, path) in [
            ("use crate::b::Thing;", "b::Thing"),
            ("use super::b;", "m::b"),
            ("use super::super::b;", "b"),
            ("pub use crate::{a::{self, X}, b::Thing as Other};", "b::Thing"),
            ("use crate::{\n    a,\n    b,\n};", "b"),
            ("use crate::b::*;", "b::*"),
            ("fn f() -> u8 { g(\"http://h\", crate::b::one()) }", "b::one"),
            ("use inner::Thing;", "m::a::inner::Thing"),
        ] {
            let named = named_paths(&["m".to_owned(), "a".to_owned()], text);
            let named: Vec<String> = named.iter().map(|path| path.join("::")).collect();
            assert!(named.iter().any(|named| named == path), "{text}: {named:?}");
        }
    }

    #[test]
    fn comments_and_tests_name_nothing() {
        let text = "//! See [`crate::b`].\nfn f() {} // super::b::g()\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n";
        assert_eq!(named_paths(&["a".to_owned()], text), [[""; 0]; 0]);
    }

    #[test]
    fn a_circle_is_found_and_a_direction_is_none() {
        let down = [("a.rs", "use crate::b;"), ("b.rs", "use super::c::C;"), ("c.rs", "struct C;")];
        assert_eq!(found(&[], &down), [[""; 0]; 0]);
        let around = [("a.rs", "use crate::b;"), ("b.rs", "use super::c::C;"), ("c.rs", "use crate::a::f;")];
        assert_eq!(found(&[], &around), [["a", "b", "c"]]);
    }

    #[test]
    fn a_folder_is_one_module_with_all_that_is_in_it() {
        let files = [
            ("a/mod.rs", "mod deep;"),
            ("a/deep.rs", "use crate::b;"),
            ("b.rs", "use crate::a::deep::Thing;"),
            ("a/other.rs", "use super::deep::Thing;"),
        ];
        assert_eq!(found(&[], &files), [["a", "b"]]);
        assert_eq!(found(&["a"], &files), [[""; 0]; 0]);
    }

    #[test]
    fn what_the_parent_imports_is_of_the_module_that_it_comes_from() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use b::{Other, Thing};"),
            ("a.rs", "use crate::Thing;"),
            ("b.rs", "use crate::a;"),
        ];
        assert_eq!(found(&[], &files), [["a", "b"]]);
    }

    /// A folder with a circle of so many modules: each uses the next.
    fn folder(len: usize) -> BTreeMap<PathBuf, Graph> {
        let uses = |at: usize| (format!("m{at}"), BTreeSet::from([format!("m{}", (at + 1) % len)]));
        BTreeMap::from([(PathBuf::from("crates/x/src"), (0..len).map(uses).collect())])
    }

    #[test]
    fn a_circle_that_is_too_wide_is_a_complaint_with_its_modules() {
        assert_eq!(complaints(&folder(3), &[]), []);
        let complaints = complaints(&folder(4), &[]);
        let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["crates/x/src:0: 4 modules use each other in a circle, at most 3 may: \
              m0 uses m1; m1 uses m2; m2 uses m3; m3 uses m0"]
        );
    }

    #[test]
    fn a_known_circle_is_none_until_it_changes() {
        let known = [("crates/x/src", 5)];
        assert_eq!(complaints(&folder(5), &known), []);
        assert_eq!(complaints(&folder(6), &known).len(), 2);
        let gone = complaints(&folder(2), &known);
        assert!(
            gone.iter().any(|complaint| complaint.message.contains("take it out of `KNOWN`")),
            "{gone:?}"
        );
    }
}
