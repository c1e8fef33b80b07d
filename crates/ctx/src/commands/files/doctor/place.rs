//! Checks the root: that it exists, free disk space, the daemon, and the modes of the files in `.state`.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;

use ctx_api::http::Status;
use ctx_cage::{Cage, CageError, Io, Means, Net, Owner as CageOwner, RunningCage, find_bwrap, system_mounts};
use rustix::process::Pid;

use super::finding::{Finding, Report, size};
use crate::client::Api;
use crate::commands::shell::cage::own_parent;
use crate::failure::Failure;
use crate::root::{Root, shell_word};
use crate::words;

/// Less free space than this needs attention.
const ROOM_MIN: u64 = 64 * 1024 * 1024;

/// Whether there is a root to look into.
pub fn root(root: &Root, report: &mut Report) -> bool {
    report.fact("root", root.path.display().to_string());
    let state = root.path.join(".state");
    if let Err(error) = std::fs::metadata(&state) {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let what = if missing { "no ctx root here yet".to_owned() } else { error.to_string() };
        let fix = format!("`ctx serve --root {}` creates it", shell_word(&root.path));
        report.problem(Finding::new(what).at(root.path.display().to_string()).fix(fix));
        return false;
    }
    match rustix::fs::statvfs(&root.path) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            report.fact(
                "disk",
                format!("{} free of {}", size(free), size(disk.f_blocks.saturating_mul(disk.f_frsize))),
            );
            if free < ROOM_MIN {
                let fix = "free some space: when the disk is full, sessions refuse messages";
                report.problem(Finding::new(format!("only {} left on the disk", size(free))).fix(fix));
            }
        }
        Err(error) => report.note(Finding::new(format!("cannot read the free disk space: {error}"))),
    }
    true
}

/// How the daemon is; whether one answers.
pub fn daemon(root: &Root, report: &mut Report) -> bool {
    match Api::new(root).get::<Status>("/status") {
        Ok(status) => {
            let Status { pid, version, uptime_ms, sessions, .. } = status;
            let uptime = words::duration(uptime_ms);
            report.fact(
                "daemon",
                format!("up for {uptime}, pid {pid}, version {version}, {sessions} sessions"),
            );
            if version != env!("CARGO_PKG_VERSION") {
                let what =
                    format!("the daemon has version {version}, this command {}", env!("CARGO_PKG_VERSION"));
                report.note(Finding::new(what).fix("restart the daemon to use this version"));
            }
            shells(i32::try_from(pid).ok().and_then(Pid::from_raw), report);
            true
        }
        Err(failure) if failure.exit() == 69 => {
            shells(None, report);
            report.fact("daemon", "down");
            false
        }
        Err(failure) => {
            report.fact("daemon", "unexpected answer");
            let why = match failure {
                Failure::Said { message, .. } => message,
                Failure::Told { .. } | Failure::ReaderGone => "the connection broke".to_owned(),
            };
            report.problem(Finding::new(format!("unexpected answer from the daemon: {why}")));
            true
        }
    }
}

/// Starts a cage with nothing in it but the system.
fn try_cage(bwrap: &Path) -> Result<(), CageError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut cage = Cage::new(CageOwner::new(uid, gid), Path::new("/"));
    (cage.mounts, cage.cwd) = (system_mounts(Net::None), "/".into());
    let io = Io { stdin: Stdio::null(), stdout: Stdio::null(), stderr: Stdio::piped() };
    let command = ["/bin/sh", "-c", ":"].map(OsString::from);
    let running = RunningCage::start(bwrap, &cage, &Means::default(), &own_parent(), &command, io)?;
    match running.wait() {
        ended if ended.has_started && ended.code == 0 => Ok(()),
        _ => Err(CageError::NotStarted { detail: String::new() }),
    }
}

/// What holds the limits of cages that this user would start.
fn cages(report: &mut Report) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match find_bwrap(&path) {
        Ok(bwrap) => match try_cage(&bwrap) {
            Ok(()) => report.fact("cages", Means::detect().to_string()),
            Err(error) => {
                report.fact("cages", "none: they do not start");
                let fix = "cages need user namespaces; `sysctl user.max_user_namespaces` must not be 0, and AppArmor and \
                           `kernel.unprivileged_userns_clone` must allow bubblewrap to make them";
                report.note(Finding::new(error.to_string()).fix(fix));
            }
        },
        Err(error) => {
            report.fact("cages", "none: bubblewrap is not installed");
            let finding = Finding::new(error.to_string());
            report.note(finding.fix(error.hint().unwrap_or_default()));
        }
    }
}

/// How the processes of shells are found: of the daemon that runs, or of one that this user would start.
fn shells(daemon: Option<Pid>, report: &mut Report) {
    cages(report);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let [own, others] = ctx_host::processes_found_by(daemon, &path);
    let is_root = match daemon {
        Some(pid) => {
            std::fs::metadata(format!("/proc/{}", pid.as_raw_nonzero())).is_ok_and(|data| data.uid() == 0)
        }
        None => rustix::process::geteuid().is_root(),
    };
    report.fact(
        "shells",
        match is_root && own != others {
            true => format!("processes are {own}; those of other users are {others}"),
            false => format!("processes are {own}"),
        },
    );
}

/// `.state` is open to pass through; what is in it is the daemon's alone, but for the API's socket.
pub fn state_dir(root: &Root, is_up: bool, report: &mut Report) {
    let dir = root.path.join(".state");
    if let Ok(data) = std::fs::metadata(&dir) {
        mode(".state", &data, 0o711, report);
    }
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) => {
            let what = format!("you cannot read it ({error}); its logs and the index were not checked");
            return report.note(Finding::new(what).at(".state"));
        }
    };
    for name in [".state/forks", ".state/trash"] {
        let left = std::fs::read_dir(root.path.join(name)).is_ok_and(|mut entries| entries.next().is_some());
        if left && !is_up {
            let what = "left over from an interrupted fork or purge";
            report.note(Finding::new(what).at(name).fix("the daemon removes it at its next start"));
        }
    }
    for entry in entries.flatten() {
        let name = format!(".state/{}", entry.file_name().to_string_lossy());
        let Ok(data) = std::fs::symlink_metadata(entry.path()) else { continue };
        let kind = data.file_type();
        if kind.is_symlink() {
            report.problem(
                Finding::new("is a symlink, which the daemon does not create here").at(name).fix("remove it"),
            );
        } else if kind.is_file() {
            mode(&name, &data, 0o600, report);
        } else if kind.is_dir() {
            // Others pass through it to what is theirs.
            let wanted = if matches!(&*name, ".state/scratch" | ".state/hold") { 0o711 } else { 0o700 };
            mode(&name, &data, wanted, report);
        } else if !kind.is_socket() {
            report.note(Finding::new("is not a file, directory or socket").at(name));
        }
    }
}

/// Rights that are wider than they should be.
fn mode(name: &str, data: &Metadata, wanted: u32, report: &mut Report) {
    let has = data.mode() & 0o777;
    if has & !wanted != 0 || (name == ".state" && has != wanted) {
        let what = format!("its mode is {has:04o}, expected {wanted:04o}");
        let fix = format!("chmod {wanted:o} {}", shell_word(Path::new(name)));
        report.problem(Finding::new(what).at(name).fix(format!("in the root: {fix}")));
    }
}
