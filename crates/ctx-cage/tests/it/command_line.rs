//! A cage as a command line. The whole line is in a file, so that a change of the walls is seen in review.

use std::path::Path;
use std::time::Duration;

use ctx_cage::{Access, Cage, Limits, Mount, Net, Owner, command_line};
use expect_test::expect_file;

fn cage() -> Cage {
    let mut cage = Cage::new(Owner::new(1234, 1234), Path::new("/src/music"));
    cage.mounts.push(Mount { source: "usr/bin".into(), target: "/bin".into(), access: Access::Link });
    cage.mounts.push(Mount::ro("/src/music/.git", "/work/.git"));
    cage.covered.push("/work/.demo".into());
    cage.limits = Limits { tmp_bytes: 4096, walltime: Some(Duration::from_secs(1)), ..Limits::default() };
    cage
}

/// An option and its arguments per line.
fn lines(cage: &Cage) -> String {
    let line = command_line(cage, &[b"filter".to_vec()], &["make".into(), "-j2".into()]);
    let mut text = String::new();
    let mut in_command = false;
    for arg in &line.args {
        let arg = arg.to_str().unwrap();
        text.push_str(if arg.starts_with("--") && !in_command && !text.is_empty() { "\n" } else { " " });
        in_command |= arg == "--";
        text.push_str(arg);
    }
    for (fd, bytes) in &line.inputs {
        let bytes = String::from_utf8_lossy(bytes).replace('\0', " ");
        text.push_str(&format!("\n{fd} <<< {}", bytes.trim_end()));
    }
    format!("{}\n", text.trim_start())
}

#[test]
fn the_command_line_is_as_it_was_reviewed() {
    expect_file!["./command_line.txt"].assert_eq(&lines(&cage()));
}

#[test]
fn only_the_network_of_the_host_is_shared_when_asked_for() {
    let with = lines(&Cage { net: Net::Host, ..cage() });
    assert_eq!(lines(&cage()).replace("--unshare-net\n", ""), with);
}

#[test]
fn a_cage_with_a_home_of_the_host_has_none_in_memory() {
    let mut cage = cage();
    assert!(lines(&cage).contains("--tmpfs /home/agent"));
    cage.mounts.push(Mount::rw("/homes/a", Cage::HOME));
    assert!(!lines(&cage).contains("--tmpfs /home/agent"));
}

#[test]
fn root_has_no_cage_of_its_own() {
    assert_eq!((Owner::new(0, 0).uid(), Owner::new(0, 0).gid()), (65_534, 65_534));
    assert_eq!((Owner::new(7, 0).uid(), Owner::new(7, 0).gid()), (7, 65_534));
}
