//! The index files of a `session/` directory, as another program reads them.

use std::collections::BTreeMap;
use std::path::Path;

use ctx_session::Timestamp;
use ctx_views::index::cwd_hash;
use ctx_views::{IndexEntry, IndexFiles};

use crate::world::{Root, own};

fn entry(name: &str, updated: u64, cwd: &str) -> IndexEntry {
    IndexEntry {
        name: name.to_owned(),
        updated_at: Timestamp::from_millis(updated),
        posted_at: Some(Timestamp::from_millis(updated)),
        cwd: cwd.to_owned(),
    }
}

fn contents(root: &Root) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for dir in ["session/index", "session/index/by-cwd"] {
        for file in std::fs::read_dir(root.path(dir)).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

fn index(root: &Root) -> IndexFiles {
    IndexFiles::new(&root.dir, Path::new("session"), own())
}

#[test]
fn the_index_says_what_there_is_and_forgets_what_is_gone() {
    let root = Root::new();
    std::fs::create_dir(root.path("session")).unwrap();
    let mut files = index(&root);
    files.write(&[entry("a", 1, "/x"), entry("b", 2, "/y")]).unwrap();
    let mut expected = BTreeMap::from([
        ("list".to_owned(), "b\na\n".to_owned()),
        ("current".to_owned(), "b\n".to_owned()),
        (cwd_hash("/x"), "a\n".to_owned()),
        (cwd_hash("/y"), "b\n".to_owned()),
    ]);
    assert_eq!(contents(&root), expected);

    files.write(&[entry("a", 3, "/x")]).unwrap();
    expected.remove(&cwd_hash("/y"));
    expected.insert("list".to_owned(), "a\n".to_owned());
    expected.insert("current".to_owned(), "a\n".to_owned());
    assert_eq!(contents(&root), expected);
}

#[test]
fn a_file_that_did_not_change_is_left_alone() {
    use std::os::unix::fs::MetadataExt;
    let root = Root::new();
    std::fs::create_dir(root.path("session")).unwrap();
    let mut files = index(&root);
    let inode = |name: &str| std::fs::metadata(root.path("session/index").join(name)).unwrap().ino();
    files.write(&[entry("a", 1, "/x"), entry("b", 2, "/x")]).unwrap();
    let (list, current) = (inode("list"), inode("current"));
    files.write(&[entry("b", 5, "/x"), entry("a", 1, "/x")]).unwrap();
    assert_eq!((inode("list"), inode("current")), (list, current));
    index(&root).write(&[entry("b", 5, "/x"), entry("a", 1, "/x")]).unwrap();
    assert_eq!((inode("list"), inode("current")), (list, current), "also by the next daemon");
}

#[test]
fn what_an_earlier_daemon_left_is_put_right() {
    let root = Root::new();
    std::fs::create_dir_all(root.path("session/index/by-cwd")).unwrap();
    std::fs::write(root.path("session/index/by-cwd/stray"), "old\n").unwrap();
    std::fs::write(root.path("session/index/list"), "old\n").unwrap();
    std::fs::write(root.path("session/index/current"), "old\n").unwrap();
    index(&root).write(&[]).unwrap();
    assert_eq!(contents(&root), BTreeMap::from([("list".to_owned(), String::new())]));
}
