//! The journal: makes records durable and reads them back.
//!
//! One format and one journal for session, project, shell and audit logs. A log is a file of JSON lines
//! (`format`); commands are written whole and synced before anyone hears of them (`writer`); a log is taken
//! up again through recovery (`recover`), which cuts a torn tail and reads around damage (`scan`). All of it
//! stands on the small [`Disk`] trait: [`RealDisk`] beneath a root directory, [`sim::SimDisk`] that can crash.
//!
//! The journal does not know what records mean, and it knows no async runtime: calls block.

pub mod access;
mod blob;
mod damage;
mod disk;
mod error;
mod file;
mod fork;
pub mod format;
mod lines;
mod memory;
mod path;
mod real;
mod recover;
pub mod repair;
mod scan;
mod seek;
pub mod sim;
mod soon;
mod takeover;
mod trash;
mod writer;

use std::ops::ControlFlow;

use ctx_session::Timestamp;

pub use blob::BlobRef;
pub use damage::{Damage, DamageKind};
pub use disk::{DirEntry, Disk, DiskFile, OpenMode, Replace};
pub use error::{AppendError, JournalError};
pub use file::FileJournal;
pub use fork::{Fork, ForkEnds};
pub use format::{COMMAND_BYTES_MAX, FORMAT_VERSION, LOST, RECORD_BYTES_MAX};
pub use memory::MemoryDisk;
pub use path::{BadLogPath, LogPath, Owner};
pub use real::RealDisk;
pub use takeover::{FirstLine, Taken, take_over};
pub use writer::lock;

/// One record as it stands in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: u64,
    pub time: Timestamp,
    /// The record's `type`.
    pub kind: String,
    /// Whether further records of the same command follow.
    pub more: bool,
    /// The line's number from 1, or 0 where reading did not begin at the start of the log.
    pub line: u64,
    /// Where the line begins, in bytes.
    pub offset: u64,
    /// The line as it stands, without its LF.
    pub text: String,
}

impl Entry {
    /// The seq of the record that is due behind this one: one that stands for several lost ones says how many.
    pub fn seq_after(&self) -> u64 {
        format::seq_after(&self.kind, self.seq, &self.text)
    }
}

/// What an append has made durable: records `first..next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    pub first: u64,
    pub next: u64,
}

/// A log that went through recovery and can be appended to.
pub struct Opened {
    pub writer: Box<dyn LogWriter>,
    /// What was found and read around. The session opens all the same; a person should hear of it.
    pub damage: Vec<Damage>,
}

/// Takes records from the last backwards, beside the first.
pub type OnEnd<'a> = &'a mut dyn FnMut(Option<&Entry>, Entry) -> ControlFlow<()>;

/// Logs by path. Files here; a database could stand behind the same trait, so nothing above may depend on files.
pub trait Journal: Send + Sync + 'static {
    /// Makes a log with its first command, and the directories it needs. The log exists only when that
    /// command is on disk. [`JournalError::AlreadyThere`] if there is one.
    fn create(
        &self,
        log: &LogPath,
        owner: Owner,
        time: Timestamp,
        bodies: &[String],
    ) -> Result<Box<dyn LogWriter>, JournalError>;

    /// Takes a log up: locks it, cuts and keeps a torn tail, hands every usable record to `on_entry` in
    /// order. What it hands out is on disk.
    fn open(
        &self,
        log: &LogPath,
        now: Timestamp,
        on_entry: &mut dyn FnMut(Entry),
    ) -> Result<Opened, JournalError> {
        self.open_from(log, now, 0, on_entry)
    }

    /// [`Journal::open`], handing out records with a seq of at least `from` alone, which was the last of a command
    /// when it was read or written before. What stands before it is read only where that place is not found.
    fn open_from(
        &self,
        log: &LogPath,
        now: Timestamp,
        from: u64,
        on_entry: &mut dyn FnMut(Entry),
    ) -> Result<Opened, JournalError>;

    /// Reads records with a seq of at least `from`, whole commands only, without lock and without changing
    /// anything. Of a log that is open in this process, only what is committed.
    fn read(
        &self,
        log: &LogPath,
        from: u64,
        on_entry: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<Vec<Damage>, JournalError>;

    /// The first record, if the first line is one.
    fn head(&self, log: &LogPath) -> Result<Option<Entry>, JournalError>;

    /// [`Journal::head`], and [`Journal::read_back`] with what it says, in one look at the log. Cheap: the start of
    /// the daemon looks at ten thousand.
    fn ends(&self, log: &LogPath, on_end: OnEnd<'_>) -> Result<Option<Entry>, JournalError>;

    /// Records from the last backwards, reading no more of the log than is asked for. A torn or unfinished
    /// tail is passed over.
    fn read_back(
        &self,
        log: &LogPath,
        on_entry: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<(), JournalError>;

    /// Moves a log with its directory and all that is in it; an open writer goes on.
    fn rename(&self, from: &LogPath, to: &LogPath) -> Result<(), JournalError>;

    /// Makes a log out of another: its own first record, the bytes of the other after its first record up to a place,
    /// damaged lines and all, and a last record; and the other's blobs. `ends` is told the seq of the last record
    /// copied, and gives the two. The log exists only when it is whole and on disk, and then shares nothing with
    /// the other. Reads no more than finding the place needs. The seq of its last record.
    fn fork(&self, fork: &Fork<'_>, ends: &dyn Fn(u64) -> ForkEnds) -> Result<u64, JournalError>;

    /// Removes what a crash left of forks not whole and of logs on their way out, but for those whose notice nobody
    /// has heard. For the one who owns the root, before anything else is asked.
    fn sweep(&self) -> Result<(), JournalError>;

    /// Takes a log out of the tree with its directory and all that is in it, in one step: then it is gone, also after
    /// a crash. Its bytes and the notice stay until [`Journal::empty_trash`].
    fn move_to_trash(&self, log: &LogPath, notice: &str) -> Result<(), JournalError>;

    /// Removes for good what was taken away. Each notice is told then; where it is not heard (`false`), it stays for the
    /// next time. A crash in between may have one told twice. One caller at a time.
    fn empty_trash(&self, tell: &mut dyn FnMut(&str) -> bool) -> Result<(), JournalError>;

    /// Removes a log with its directory and all that is in it, in one step. A log in a shared directory goes alone.
    fn remove(&self, log: &LogPath) -> Result<(), JournalError>;

    /// Every log named `events.jsonl` beneath a directory (`""` is the root), in no particular order. A part that
    /// is `*` stands for any name, so that what is beside the logs need not be walked.
    fn list(&self, under: &str) -> Result<Vec<LogPath>, JournalError>;

    /// Whether someone else could have written a log: it is listed, and it is not opened.
    fn is_foreign(&self, log: &LogPath) -> bool;

    /// Stores bytes under their hash beside the log. They are on disk when this returns, so that the record
    /// that names them can follow.
    fn put_blob(&self, log: &LogPath, bytes: &[u8]) -> Result<BlobRef, JournalError>;

    /// The bytes stored under a hash; checked against it.
    fn get_blob(&self, log: &LogPath, sha256: &str) -> Result<Vec<u8>, JournalError>;
}

/// The one writer of a log. Threads may share it: appends that wait for a sync go together in the next.
///
/// `bodies` are the records of one command, JSON objects whose first key is `type`.
pub trait LogWriter: Send + Sync {
    /// Appends a command at an expected seq and returns when it is on disk.
    fn append(&self, expected: u64, time: Timestamp, bodies: &[String]) -> Result<Committed, AppendError>;

    /// [`LogWriter::append`] with a time for each record: records that happened elsewhere keep the time they have.
    fn append_dated(
        &self,
        expected: u64,
        times: &[Timestamp],
        bodies: &[String],
    ) -> Result<Committed, AppendError>;

    /// Appends a command wherever the log stands and returns when it is on disk.
    fn append_next(&self, time: Timestamp, bodies: &[String]) -> Result<Committed, AppendError>;

    /// Appends a command wherever the log stands and returns when it is written; it is synced within
    /// 200 ms. For shell and audit logs, which no conversation depends on.
    fn append_soon(&self, time: Timestamp, bodies: &[String]) -> Result<Committed, AppendError>;

    /// Makes what `append_soon` wrote durable now.
    fn flush(&self) -> Result<(), AppendError>;

    /// The seq that the next record gets.
    fn next_seq(&self) -> u64;

    /// Where the last command that was written ends in the file.
    fn end(&self) -> u64;
}
