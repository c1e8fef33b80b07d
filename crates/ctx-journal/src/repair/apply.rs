//! Puts a repaired log in place. The log is at every moment either the old one or the new one, whole; the old
//! bytes are on disk under another name before the new ones take their place.

use std::io;

use ctx_session::Timestamp;

use super::{Judge, Plan, RepairError, plan};
use crate::disk::{Disk, DiskFile, OpenMode, Replace, read_whole, write_full};
use crate::file::FileJournal;
use crate::format::LOG_BYTES_MAX;
use crate::path::{LogPath, Owner};
use crate::recover::io_error;

/// Bytes that are written in one call; the kernel takes no more than 2 GiB.
const WRITE_BYTES: usize = 8 << 20;
/// How many repairs of the same millisecond are told apart.
const NAMES_MAX: u32 = 1000;
/// Working files; what a crash leaves of them is used again.
const KEEPING: &str = "keeping";
const REPAIRING: &str = "repairing";

/// What was done. Paths are relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    pub plan: Plan,
    /// Where the log is as it was; nothing when it was sound.
    pub original: Option<String>,
    /// Where what was left out is.
    pub set_aside: Option<String>,
}

impl FileJournal {
    /// What a repair of a log would do. Takes no lock and changes nothing: of a log that is being written to, the
    /// end may look unfinished.
    pub fn plan_repair(&self, log: &LogPath, now: Timestamp, judge: Judge<'_>) -> Result<Plan, RepairError> {
        let file = self.open_file(log, OpenMode::Read)?;
        let bytes = read_whole(&*file, LOG_BYTES_MAX).map_err(|error| io_error(log, "read", error))?;
        plan(log, &bytes, now, judge)
    }

    /// Repairs a log that nobody has open. `before` is called when all is ready, just before the log changes: to
    /// remove the views that show the old one.
    pub fn repair(
        &self,
        log: &LogPath,
        now: Timestamp,
        judge: Judge<'_>,
        before: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<Repaired, RepairError> {
        let io = |action| move |error| RepairError::from(io_error(log, action, error));
        // Held to the end, so that no writer comes in between.
        let file = self.open_locked(log)?;
        file.sync().map_err(io("sync"))?;
        let bytes = read_whole(&*file, LOG_BYTES_MAX).map_err(io("read"))?;
        let plan = plan(log, &bytes, now, judge)?;
        if plan.is_sound() {
            return Ok(Repaired { plan, original: None, set_aside: None });
        }
        let mended = plan.mended(&bytes);
        check(&plan, &mended, now)?;
        let place =
            Place { disk: &*self.disk, log, owner: file.owner().map_err(io("read the owner of"))?, now };
        let original = place.keep("before-repair", &bytes).map_err(io("keep a copy of"))?;
        let aside = plan.set_aside(&bytes);
        let set_aside = if aside.is_empty() {
            None
        } else {
            Some(place.keep("quarantine", &aside).map_err(io("keep what is left out of"))?)
        };
        let working = place.write(REPAIRING, &mended).map_err(io("write anew"))?;
        before().map_err(|error| RepairError::Views { log: log.clone(), error })?;
        self.disk.rename(&working, log.as_str(), Replace::Yes).map_err(io("replace"))?;
        self.disk.sync_dir(log.dir()).map_err(io("sync the directory of"))?;
        Ok(Repaired { plan, original: Some(original), set_aside })
    }
}

/// Where the files beside a log go.
struct Place<'a> {
    disk: &'a dyn Disk,
    log: &'a LogPath,
    owner: Owner,
    now: Timestamp,
}

impl Place<'_> {
    /// Writes a file under a working name and makes it durable; its path.
    fn write(&self, suffix: &str, bytes: &[u8]) -> io::Result<String> {
        let path = format!("{}.{suffix}", self.log);
        let file = self.disk.open(&path, OpenMode::Create(self.owner))?;
        let written = file.truncate(0).and_then(|()| write_all(&*file, bytes)).and_then(|()| file.sync());
        if let Err(error) = written {
            // The log is as it was, and half a file helps nobody.
            let _ = self.disk.remove_file(&path);
            return Err(error);
        }
        Ok(path)
    }

    /// Keeps bytes in a file of their own that is there for good and whole; its path.
    fn keep(&self, what: &str, bytes: &[u8]) -> io::Result<String> {
        let working = self.write(KEEPING, bytes)?;
        let name = format!("{}.{what}-{}", self.log, self.now.to_file_name());
        for attempt in 1..=NAMES_MAX {
            let path = if attempt == 1 { name.clone() } else { format!("{name}-{attempt}") };
            match self.disk.rename(&working, &path, Replace::No) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                renamed => {
                    renamed?;
                    self.disk.sync_dir(self.log.dir())?;
                    return Ok(path);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

fn write_all(file: &dyn DiskFile, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    for part in bytes.chunks(WRITE_BYTES) {
        write_full(file, part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Looks at what is to be written once more: sound, and with every record that was promised.
fn check(plan: &Plan, mended: &[u8], now: Timestamp) -> Result<(), RepairError> {
    let unsound = |what: String| RepairError::Unsound { log: plan.log.clone(), what };
    let again =
        super::plan(&plan.log, mended, now, Judge::STRANGER).map_err(|error| unsound(error.to_string()))?;
    match again.changes.first() {
        Some(change) => Err(unsound(format!("line {}: {}", change.line, change.why.join(", ")))),
        None if again.records != plan.records => {
            Err(unsound(format!("{} records of {}", again.records, plan.records)))
        }
        None => Ok(()),
    }
}
