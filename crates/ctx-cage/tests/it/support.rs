//! A cage around a project, and what a script in it says.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use ctx_cage::{Cage, Ended, Io, Means, Net, Owner, RunningCage, Toolchains, find_bwrap, system_mounts};
use testkit::users::{ANN, Place};

/// A cage of Ann's around her project.
pub fn cage_of(place: &Place) -> Cage {
    let mut cage = Cage::new(Owner::new(ANN, ANN), &place.project());
    cage.mounts.extend(system_mounts(Net::Host));
    Toolchains::find(None, Path::exists).add_to(&mut cage);
    cage
}

/// Starts a script with its output in a pipe.
pub fn start(cage: &Cage, means: &Means, script: &str) -> RunningCage {
    let bwrap = find_bwrap(&std::env::var_os("PATH").unwrap()).unwrap();
    let command: Vec<OsString> = ["bash", "-c", &format!("exec 2>&1\n{script}")].map(OsString::from).into();
    let io = Io { stdin: Stdio::null(), stdout: Stdio::piped(), stderr: Stdio::inherit() };
    RunningCage::start(&bwrap, cage, means, "test", &command, io).unwrap()
}

/// Runs a script; how it ended and what it said.
pub fn run_with(cage: &Cage, means: &Means, script: &str) -> (Ended, String) {
    let mut running = start(cage, means, script);
    let mut said = String::new();
    running.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    (running.wait(), said)
}

pub fn run(cage: &Cage, script: &str) -> (i32, String) {
    let (ended, said) = run_with(cage, &Means::detect(), script);
    assert_eq!(ended.limit, None, "{said}");
    (ended.code, said)
}
