//! Working directories: inside the view, not there, or there but outside, with real links.

use std::os::unix::fs::symlink;
use std::path::Path;

use ctx_agent::control::mount::{Access, Links, Mount};
use ctx_agent::view::{View, resolve_cwd};
use ctx_cage::rights::Rights;

/// A machine with a root for the agent, two mounts, and things outside of both.
fn machine(dir: &Path) -> View {
    for made in ["root/etc", "root/mnt", "work/src/deep", "data/sets", "outside/place", "work/link-dirs"] {
        std::fs::create_dir_all(dir.join(made)).unwrap();
    }
    std::fs::write(dir.join("work/file"), "").unwrap();
    let links = [
        ("work/inner", "src/deep"),
        ("work/up-and-back", "../work/src"),
        ("work/to-root", "/etc"),
        ("work/to-data", "/mnt/data/sets"),
        ("work/src/escape", "../../outside/place"),
        ("work/sibling", "../outside"),
        ("work/dangling", "nothing"),
        ("work/round", "circle"),
        ("work/circle", "round"),
        ("work/proc", "/proc/self/cwd"),
        ("root/shortcut", "work/src"),
    ];
    for (link, target) in links {
        symlink(target, dir.join(link)).unwrap();
    }
    symlink(dir.join("outside"), dir.join("work/host-link")).unwrap();
    symlink(dir.join("work/src"), dir.join("work/host-link-inside")).unwrap();
    let mount = |source: &str, target: &str, access| Mount {
        source: dir.join(source),
        target: target.into(),
        access,
        links: Links::Follow,
    };
    let mounts = [
        mount("work", "/work", Access::ReadWrite),
        mount("data", "/mnt/data", Access::ReadOnly),
        mount("missing", "/gone", Access::ReadOnly),
    ];
    View::open(&dir.join("root"), &mounts, Rights::own()).unwrap()
}

#[test]
fn every_way_to_name_a_place() {
    let dir = tempfile::tempdir().unwrap();
    let view = machine(dir.path());
    let host = dir.path().join("outside").display().to_string();
    let host_work = dir.path().join("work/src").display().to_string();
    for (path, expected) in [
        ("/", Ok("/")),
        ("/work", Ok("/work")),
        ("/work/", Ok("/work")),
        ("//work/./src//deep/", Ok("/work/src/deep")),
        ("/work/src/../src", Ok("/work/src")),
        ("/../../work", Ok("/work")),
        ("/etc", Ok("/etc")),
        ("/work/../etc", Ok("/etc")),
        ("/mnt", Ok("/mnt")),
        ("/mnt/data", Ok("/mnt/data")),
        ("/work/inner", Ok("/work/src/deep")),
        ("/work/inner/..", Ok("/work/src")),
        ("/work/up-and-back", Ok("/work/src")),
        ("/work/to-root", Ok("/etc")),
        ("/work/to-data", Ok("/mnt/data/sets")),
        ("/shortcut", Ok("/work/src")),
        ("/nowhere", Err("ENOENT")),
        ("/work/none", Err("ENOENT")),
        ("/work/dangling", Err("ENOENT")),
        ("/work/file/x", Err("ENOENT")),
        ("/gone", Err("ENOENT")),
        ("/gone/x", Err("ENOENT")),
        ("/usr", Err("EACCES")),
        (host.as_str(), Err("EACCES")),
        (host_work.as_str(), Err("EACCES")),
        ("/work/../outside", Err("EACCES")),
        ("/work/../outside/place", Err("EACCES")),
        ("/work/src/escape", Err("EACCES")),
        ("/work/sibling/place", Err("EACCES")),
        ("/work/host-link", Err("EACCES")),
        ("/work/host-link/place", Err("EACCES")),
        ("/work/host-link-inside", Err("EACCES")),
        ("/work/proc", Err("EACCES")),
        ("/work/file", Err("EINVAL")),
        ("/work/round", Err("EINVAL")),
        ("work", Err("EINVAL")),
        ("", Err("EINVAL")),
    ] {
        let found = resolve_cwd(&view, path).map_err(|error| error.code().name());
        assert_eq!(found, expected.map(str::to_owned), "{path}");
    }
}

#[test]
fn a_mount_whose_source_is_gone_says_which() {
    let dir = tempfile::tempdir().unwrap();
    let error = resolve_cwd(&machine(dir.path()), "/gone").unwrap_err().to_string();
    assert!(error.contains("its mount source") && error.contains("missing is missing"), "{error}");
}

#[test]
fn a_view_without_a_root_shows_its_mounts_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("w/a")).unwrap();
    let mount = Mount {
        source: dir.path().join("w"),
        target: "/deep/work".into(),
        access: Access::ReadWrite,
        links: Links::Follow,
    };
    let view = View::open(&dir.path().join("none"), &[mount], Rights::own()).unwrap();
    for (path, expected) in [
        ("/", Ok("/")),
        ("/deep", Ok("/deep")),
        ("/deep/work/a", Ok("/deep/work/a")),
        ("/deep/other", Err("ENOENT")),
        ("/etc", Err("EACCES")),
    ] {
        let found = resolve_cwd(&view, path).map_err(|error| error.code().name());
        assert_eq!(found, expected.map(str::to_owned), "{path}");
    }
}

#[test]
fn a_link_that_stands_in_the_way_of_a_mount_does_not_move_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("w/here")).unwrap();
    std::fs::create_dir_all(dir.path().join("root/elsewhere/work")).unwrap();
    symlink("elsewhere", dir.path().join("root/deep")).unwrap();
    let mount = Mount {
        source: dir.path().join("w"),
        target: "/deep/work".into(),
        access: Access::ReadWrite,
        links: Links::Follow,
    };
    let view = View::open(&dir.path().join("root"), &[mount], Rights::own()).unwrap();
    assert_eq!(resolve_cwd(&view, "/deep/work/here").unwrap(), "/deep/work/here");
}

#[test]
fn the_daemons_own_process_is_in_no_view() {
    let mount =
        Mount { source: "/".into(), target: "/".into(), access: Access::ReadOnly, links: Links::Follow };
    let view = View::open(Path::new("/nowhere"), &[mount], Rights::own()).unwrap();
    let code = |path: &str| {
        view.find(Path::new("/"), Path::new(path)).map(drop).map_err(|error| error.code().name())
    };
    assert_eq!(code("/etc/passwd"), Ok(()));
    for path in ["/proc", "/proc/self/environ", "/proc/1/environ", "/dev/fd/0"] {
        assert_eq!(code(path), Err("EACCES"), "{path}");
    }
}
