//! `bwrap` runs as the cage's owner, who can stop it, trace it and write what it would say. So what it says is not believed,
//! and nobody waits for it without end. Here a script of the owner's stands in its place.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use ctx_cage::{CageError, Ended, Io, Means, RunningCage};
use std::os::unix::process::CommandExt;
use testkit::users::Place;
use testkit::{DEADLINE, until};

use super::support::cage_of;

const BOB: u32 = 54_412;

/// A program that says something of its own to whoever started the cage, and then goes on with this script.
fn in_place_of_bwrap(place: &Place, said: &str, then: &str) -> PathBuf {
    let script = format!(
        "#!/bin/bash\nwhile [ $# -gt 0 ]; do\n[ \"$1\" = --json-status-fd ] && fd=$2\n[ \"$1\" = --block-fd ] && go=$2\nshift\n\
         done\nsleep 60 & own=$!\n{said} >&$fd\n{then}\n"
    );
    place.file("bwrap", 0, 0o755, &script)
}

fn start(place: &Place, bwrap: &std::path::Path) -> Result<RunningCage, CageError> {
    let command: Vec<OsString> = vec!["true".into()];
    let io = Io { stdin: Stdio::null(), stdout: Stdio::null(), stderr: Stdio::null() };
    RunningCage::start(bwrap, &cage_of(place), &Means::detect(), "hijacked", &command, io)
}

/// Waits for the end as a daemon would, but not for ever.
fn ended(running: RunningCage) -> Ended {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(running.wait()));
    receive.recv_timeout(DEADLINE).expect("the cage never ended")
}

/// A process of another user.
struct Victim(Child);

impl Victim {
    fn new() -> Victim {
        Victim(Command::new("sleep").arg("1000").uid(BOB).gid(BOB).spawn().expect("this test needs root"))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_of_somebody_else_is_not_taken_for_the_cage_s() {
    let place = Place::new();
    let mut victim = Victim::new();
    for said in [victim.0.id().to_string(), "1".to_owned(), "$PPID".to_owned(), "$$".to_owned()] {
        let bwrap =
            in_place_of_bwrap(&place, &format!("echo '{{\"child-pid\": '\"{said}\"'}}'"), "exec sleep 1000");
        let refused = start(&place, &bwrap).map(drop);
        assert!(matches!(refused, Err(CageError::NotStarted { .. })), "{said}: {refused:?}");
    }
    assert_eq!(victim.0.try_wait().unwrap(), None, "it lives");
}

#[test]
fn the_end_of_a_cage_waits_for_no_pipe_that_its_owner_holds() {
    let place = Place::new();
    let said = "echo '{\"child-pid\": '$own'}'";
    let then = "read -r -n 1 -u $go; (trap '' TERM HUP; exec sleep 1001) >&$fd 2>&1 & exit 3";
    let bwrap = in_place_of_bwrap(&place, said, then);
    assert_eq!(ended(start(&place, &bwrap).unwrap()).code, 3);
}

#[test]
fn a_stopped_bwrap_ends_with_its_cage() {
    let place = Place::new();
    let bwrap = in_place_of_bwrap(&place, "echo '{\"child-pid\": '$own'}'", "kill -STOP $$");
    let running = start(&place, &bwrap).unwrap();
    let parent = |pid: i32| -> Option<(i32, char)> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        Some((fields.next()?.parse().ok()?, state))
    };
    let (bwrap, _) = parent(running.first_process().as_raw_nonzero().get()).unwrap();
    until("it to stop itself", || parent(bwrap).filter(|(_, state)| *state == 'T'));
    running.kill();
    assert_eq!(ended(running).code, 137);
}

#[test]
fn one_that_says_much_and_no_line_is_not_listened_to() {
    let place = Place::new();
    let bwrap = in_place_of_bwrap(&place, "tr '\\0' x </dev/zero", "exec sleep 1000");
    let refused = start(&place, &bwrap).map(drop);
    assert!(matches!(refused, Err(CageError::NotStarted { .. })), "{refused:?}");
}
