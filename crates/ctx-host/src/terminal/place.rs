//! What a terminal has on disk: a directory of its own in that of its user, which only that user can open.
//!
//! `about.json` says what it is and never changes, `transcript` grows, `sock` is there while the holder is, `end.json`
//! says how it ended. A directory with neither a holder that answers nor an end is that of a holder that was killed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ctx_session::{Timestamp, Ulid};
use serde::{Deserialize, Serialize};

use super::model::Screen;
use super::protocol::Size;

pub const SOCKET: &str = "sock";
pub const TRANSCRIPT: &str = "transcript";
const ABOUT: &str = "about.json";
const END: &str = "end.json";
/// No file of ours that is read as a whole is larger: the largest has the text of a screen.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

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
    /// What was on the screen.
    pub screen: Screen,
}

pub(super) fn write_about(dir: &Path, about: &About) -> io::Result<()> {
    write(dir, ABOUT, about)
}

pub(super) fn write_end(dir: &Path, end: &End) -> io::Result<()> {
    write(dir, END, end)
}

pub(super) fn read_about(dir: &Path) -> io::Result<About> {
    read(&dir.join(ABOUT))
}

/// None: it has not ended, or its holder could not say how.
pub(super) fn read_end(dir: &Path) -> Option<End> {
    read(&dir.join(END)).ok()
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
    let unfinished = dir.join(format!(".{name}"));
    let mut file = private(&unfinished)?;
    io::Write::write_all(&mut file, &serde_json::to_vec(value)?)?;
    file.sync_data()?;
    std::fs::rename(unfinished, dir.join(name))
}

/// A new file that only its user can read.
pub(super) fn private(path: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)
}
