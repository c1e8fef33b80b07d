//! What a terminal has on disk: a directory of its own in that of its user, which only that user can open.
//!
//! `about.json` says what it is and never changes, `transcript` grows, `sock` is there while the holder is, `end.json`
//! says how it ended (until then `.end.json` keeps space on the disk for it), `settled` that its session's log has that end too. A directory with neither a holder that answers nor
//! an end is that of a holder that was killed.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ctx_session::{SessionId, Timestamp, Ulid};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::model::Screen;
use super::protocol::Size;
use ctx_cage::Cage;

pub const SOCKET: &str = "sock";
pub const TRANSCRIPT: &str = "transcript";
const ABOUT: &str = "about.json";
const END: &str = "end.json";
/// No file of ours that is read as a whole is larger: the largest has the text of a screen.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// What is kept free for an end: more than the text of a usual screen takes.
const END_BYTES: u64 = 64 * 1024;
pub(super) const SETTLED: &str = "settled";

/// What a holder is started with; it comes on its stdin, because the environment is nobody else's business.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub about: About,
    /// The terminal's own directory; the one above it is there.
    pub dir: PathBuf,
    pub env: Vec<(String, String)>,
    pub size: Size,
    /// As whom the holder and the program run: uid, gid and groups. None: as whoever starts the holder.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// What the program runs in; None: in nothing.
    #[serde(default)]
    pub cage: Option<CageAround>,
    #[serde(default)]
    pub bounds: Bounds,
}

/// The cage of a terminal's program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CageAround {
    pub cage: Cage,
    pub bwrap: PathBuf,
    /// Who is responsible for it, in the names of its control groups.
    pub parent: String,
}

/// How much a holder keeps, and when it says that nothing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    pub scrollback_lines: usize,
    /// Of the transcript; the oldest half is dropped when there is more.
    pub transcript_bytes: u64,
    pub idle_ms: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds::of(&ctx_session::Limits::default())
    }
}

impl Bounds {
    pub fn of(limits: &ctx_session::Limits) -> Bounds {
        Bounds {
            scrollback_lines: limits.terminal_scrollback_lines,
            transcript_bytes: limits.transcript_bytes,
            idle_ms: limits.terminal_idle_ms,
        }
    }
}

/// What a terminal is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub id: Ulid,
    #[serde(default)]
    pub name: Option<String>,
    pub command: Vec<String>,
    pub cwd: PathBuf,
    pub created_at: Timestamp,
    /// The session it belongs to. The holder has no use for it; the daemon reads it back.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// The session's agent opened it, and may use it.
    #[serde(default)]
    pub is_agents: bool,
    #[serde(default)]
    pub is_caged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The program ended.
    Exited,
    /// The operator closed the terminal.
    Closed,
    /// The holder is gone without a word: it was killed, or the machine stopped.
    HolderLost,
}

/// How a terminal ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub reason: EndReason,
    /// The program's exit code; 128 and the number for a signal, as shells have it.
    pub exit_code: Option<i32>,
    pub ended_at: Timestamp,
    pub bytes: u64,
    pub lines: u64,
    /// What was on the screen; without a size where a full disk had no room for it.
    pub screen: Screen,
    /// Why the transcript has gaps.
    #[serde(default)]
    pub transcript_error: Option<String>,
}

pub(super) fn write_about(dir: &Path, about: &About) -> io::Result<()> {
    write(dir, ABOUT, about)
}

/// Space on the disk for the end of a terminal, because the disk may be full by then.
#[derive(Debug)]
pub(super) struct EndSpace(File);

impl EndSpace {
    pub fn reserve(dir: &Path) -> io::Result<EndSpace> {
        let file = private(&dir.join(unfinished(END)))?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, END_BYTES) {
            // Not every file system can keep space.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(EndSpace(file)),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the end; without the screen where there is no room for it.
    pub fn fill(mut self, dir: &Path, end: &End) -> io::Result<()> {
        self.overwrite(end).or_else(|_| self.overwrite(&End { screen: Screen::default(), ..end.clone() }))?;
        std::fs::rename(dir.join(unfinished(END)), dir.join(END))
    }

    fn overwrite(&mut self, end: &End) -> io::Result<()> {
        let text = serde_json::to_vec(end)?;
        self.0.rewind()?;
        self.0.write_all(&text)?;
        self.0.set_len(text.len() as u64)?;
        self.0.sync_data()
    }
}

pub(super) fn read_about(dir: &Path) -> io::Result<About> {
    read(&dir.join(ABOUT))
}

/// None: it has not ended, or its holder could not say how.
pub(super) fn read_end(dir: &Path) -> Option<End> {
    read(&dir.join(END)).ok()
}

/// Whether its end is written; a terminal that lives has none.
pub(super) fn has_end(dir: &Path) -> bool {
    dir.join(END).exists()
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    let mut text = Vec::new();
    regular(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Opens a file of a terminal. Its user can put anything in its place: a link, or a pipe that nobody writes to.
pub(super) fn regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Written whole or not at all.
fn write(dir: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let unfinished = dir.join(unfinished(name));
    let mut file = private(&unfinished)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_data()?;
    std::fs::rename(unfinished, dir.join(name))
}

/// What a file is called until it is whole.
fn unfinished(name: &str) -> String {
    format!(".{name}")
}

/// A new file that only its user can read. In its place may be a pipe that nobody reads: then this is an error.
pub(super) fn private(path: &Path) -> io::Result<std::fs::File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    options.custom_flags(flags.bits().cast_signed()).open(path)
}

/// Makes an empty file, unless something is there already.
pub(super) fn mark(path: &Path) -> io::Result<()> {
    match std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_file_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("settled");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        mark(&pipe).unwrap();
        assert!(private(&pipe).is_err());
        mark(&dir.path().join("new")).unwrap();
        assert!(dir.path().join("new").is_file());
    }
}
