//! Logs that go: by one rename of a whole directory out of the tree, after which it is taken apart.
//!
//! Where someone has to hear that a log went, a notice is on disk before it goes, and is removed when it was heard:
//!
//! - a notice without a log: it did not go
//! - a notice and a log, or what is left of its directory: it went, and perhaps nobody has heard
//! - a log without a notice: it went, and whoever had to has heard
//!
//! What a crash leaves is here and nowhere else, and [`Journal::sweep`](crate::Journal::sweep) removes it.

use std::io;

use crate::disk::{OpenMode, Replace, read_whole, write_full};
use crate::error::JournalError;
use crate::file::FileJournal;
use crate::fork::WORKING;
use crate::path::{LogPath, Owner, join, parent_of};

use crate::recover::io_error;

const TRASH: &str = ".state/trash";
/// In a directory of the trash.
const LOG: &str = "log";
const NOTICE: &str = "notice";
const NOTICE_BYTES_MAX: u64 = 1 << 20;

impl FileJournal {
    pub(crate) fn remove_dir_of(&self, log: &LogPath) -> Result<(), JournalError> {
        let trashed = self.rename_to_trash(log, None)?;
        self.remove_tree(&trashed).map_err(|error| JournalError::Io {
            path: trashed,
            action: "remove",
            error,
        })
    }

    pub(crate) fn trash_dir_of(&self, log: &LogPath, notice: &str) -> Result<(), JournalError> {
        self.rename_to_trash(log, Some(notice)).map(drop)
    }

    /// Moves a log's directory out of the tree, which is when it is gone; where to.
    fn rename_to_trash(&self, log: &LogPath, notice: Option<&str>) -> Result<String, JournalError> {
        self.open_file(log, OpenMode::Read)?;
        let io = |error| io_error(log, "remove", error);
        let trashed = self.make_working_dir(TRASH, Owner::own()).map_err(io)?;
        // What is in a directory is durable when the directory itself is.
        let moved = self
            .disk
            .sync_dir(TRASH)
            .and_then(|()| notice.map_or(Ok(()), |notice| self.put_notice(&trashed, notice)))
            .and_then(|()| self.disk.rename(log.dir(), &join(&trashed, LOG), Replace::No));
        if let Err(error) = moved {
            // What cannot be removed now is swept at the next start.
            let _ = self.remove_tree(&trashed);
            return Err(io(error));
        }
        self.registry.clear_doubt(log);
        let synced = self.disk.sync_dir(parent_of(log.dir())).and_then(|()| self.disk.sync_dir(&trashed));
        synced.map_err(|error| io_error(log, "sync the directory of", error))?;
        Ok(trashed)
    }

    fn put_notice(&self, trashed: &str, notice: &str) -> io::Result<()> {
        let file = self.disk.open(&join(trashed, NOTICE), OpenMode::CreateNew(Owner::own()))?;
        write_full(&*file, notice.as_bytes(), 0)?;
        file.sync()?;
        self.disk.sync_dir(trashed)
    }

    /// The notice of a log that went, if there is one.
    fn notice(&self, trashed: &str) -> io::Result<Option<String>> {
        let entries = self.disk.list(trashed)?;
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        if !has(NOTICE) || !has(LOG) {
            return Ok(None);
        }
        let file = self.disk.open(&join(trashed, NOTICE), OpenMode::Read)?;
        let bytes = read_whole(&*file, NOTICE_BYTES_MAX)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(crate) fn clear_trash(&self, tell: &mut dyn FnMut(&str) -> bool) -> Result<(), JournalError> {
        let mut cleared = Ok(());
        // One that cannot be removed holds up no other.
        for trashed in self.in_place(TRASH)? {
            let one = self.clear_one(&trashed, tell);
            cleared =
                cleared.and(one.map_err(|error| JournalError::Io { path: trashed, action: "remove", error }));
        }
        cleared
    }

    fn clear_one(&self, trashed: &str, tell: &mut dyn FnMut(&str) -> bool) -> io::Result<()> {
        // One that is on its way in has no log yet.
        let Some(notice) = self.notice(trashed)? else { return Ok(()) };
        // Its bytes go first: telling may need the room. What is left of its directory says that it went.
        let removed = self.remove_in(&join(trashed, LOG));
        // Whoever has to hear of it does so also when bytes are left.
        if !tell(&notice) {
            return removed;
        }
        removed?;
        self.disk.remove_file(&join(trashed, NOTICE))?;
        self.disk.sync_dir(trashed)?;
        self.remove_tree(trashed)
    }

    pub(crate) fn sweep_working_dirs(&self) -> Result<(), JournalError> {
        for path in self.in_place(WORKING)?.into_iter().chain(self.in_place(TRASH)?) {
            let swept = match self.notice(&path) {
                Ok(Some(_)) => Ok(()),
                Ok(None) => self.remove_tree(&path),
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => self.disk.remove_file(&path),
                Err(error) => Err(error),
            };
            swept.map_err(|error| JournalError::Io { path, action: "sweep", error })?;
        }
        Ok(())
    }

    fn in_place(&self, place: &str) -> Result<Vec<String>, JournalError> {
        match self.disk.list(place) {
            Ok(entries) => Ok(entries.iter().map(|entry| join(place, &entry.name)).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(JournalError::Io { path: place.to_owned(), action: "list", error }),
        }
    }
}
