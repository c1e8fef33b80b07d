//! Makes what users own in an old root the daemon's, once.
//!
//! Until November 2026 the files of a session belonged to its user. A process of theirs may still hold such a file open to
//! write it, and it may have other names; so nothing of it is kept but its contents: they are copied into a new file,
//! which takes the old one's place in one step. What is the daemon's already only gets its readers, so a
//! start that was interrupted goes on with the next.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::process::{getegid, geteuid};

use crate::access::{Kind, let_read};
use crate::path::{EVENTS, Owner, join};

/// What a file is written to before it takes the old one's place.
const WORKING: &str = ".taken-over";
/// What a file may hold beyond the blocks it occupies: more is no log, but a claim about its size.
const HOLES_MAX: u64 = 1 << 20;
/// How deep the files of a session lie below what is taken over; a directory of a user's may be deeper than the stack.
const DEPTH_MAX: usize = 8;

/// Told a log's path and its owner until now; its first line, if that must say something else; an error if the log
/// cannot be taken over.
pub type FirstLine<'a> = &'a dyn Fn(&str, u32, &[u8]) -> Result<Option<Vec<u8>>, String>;

/// What became of a tree.
#[derive(Debug, Default)]
pub struct Taken {
    /// Logs that were someone else's.
    pub logs: u64,
    /// What stays foreign, and why.
    pub left: Vec<(String, String)>,
    /// Something failed that may work another time: a full disk, most likely.
    pub unfinished: Option<(String, String)>,
}

/// Takes over a directory with everything in it, or (`whole` unset) the directory alone. Not being there is no error.
pub fn take_over(
    root: &Path,
    dir: &str,
    owner: Owner,
    whole: bool,
    first_line: FirstLine<'_>,
) -> io::Result<Taken> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let mut taking = Taking { owner, first_line, taken: Taken::default() };
    match rustix::fs::openat2(&root, dir, flags, Mode::empty(), beneath) {
        Ok(opened) if whole => taking.tree(&opened, dir, 0)?,
        Ok(opened) => taking.own_dir(&opened)?,
        Err(rustix::io::Errno::NOENT) => {}
        Err(error) => taking.taken.left.push((dir.to_owned(), error.to_string())),
    }
    Ok(taking.taken)
}

struct Taking<'a> {
    owner: Owner,
    first_line: FirstLine<'a>,
    taken: Taken,
}

impl Taking<'_> {
    fn tree(&mut self, dir: &OwnedFd, path: &str, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(judged("it lies deeper than anything of ctx"));
        }
        // First of all, so that nobody changes names any more.
        self.own_dir(dir)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            names.extend(
                entry
                    .file_name()
                    .to_str()
                    .ok()
                    .filter(|name| !matches!(*name, "." | ".."))
                    .map(str::to_owned),
            );
        }
        for name in names {
            let below = join(path, &name);
            match self.entry(dir, &name, &below, depth) {
                Ok(()) => {}
                Err(error) if is_judged(&error) => self.taken.left.push((below, error.to_string())),
                Err(error) => {
                    self.taken.unfinished.get_or_insert((below, error.to_string()));
                }
            }
        }
        Ok(rustix::fs::fsync(dir)?)
    }

    fn entry(&mut self, dir: &OwnedFd, name: &str, path: &str, depth: usize) -> io::Result<()> {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let open =
            |flags| rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.tree(&open(OFlags::RDONLY | OFlags::DIRECTORY)?, path, depth + 1),
            // The daemon's own: taken over before, or another name of something that is not this user's to read.
            FileType::RegularFile if stat.st_uid == geteuid().as_raw() => {
                let is_of_space = self.owner.space.is_some() && stat.st_nlink == 1;
                if is_of_space { let_read(open(OFlags::RDONLY)?, Kind::File, self.owner) } else { Ok(()) }
            }
            FileType::RegularFile if self.is_anothers(&stat) => Err(judged("it belongs to another user")),
            FileType::RegularFile => {
                self.copy(dir, name, path, File::from(open(OFlags::RDONLY | OFlags::NONBLOCK)?))
            }
            // Links, pipes and sockets are nothing of ours, and nothing here follows them.
            _ => Ok(()),
        }
    }

    /// In a directory that is kept for one user, only that user's files were ever ctx's.
    fn is_anothers(&self, stat: &Stat) -> bool {
        self.owner.uid != geteuid().as_raw() && stat.st_uid != self.owner.uid
    }

    fn copy(&mut self, dir: &OwnedFd, name: &str, path: &str, mut old: File) -> io::Result<()> {
        let stat = rustix::fs::fstat(&old)?;
        let (size, held) = sizes(&stat);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || size > held.saturating_add(HOLES_MAX)
        {
            return Err(judged(&format!("it claims {size} bytes and holds {held}")));
        }
        let mut before = Vec::new();
        if name == EVENTS {
            before = self.begin_log(path, stat.st_uid, &mut old)?;
        }
        let _ = rustix::fs::unlinkat(dir, WORKING, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut new = File::from(rustix::fs::openat(dir, WORKING, flags, Mode::RUSR | Mode::WUSR)?);
        let written = io::Write::write_all(&mut new, &before)
            .and_then(|()| io::copy(&mut io::Read::take(old, size), &mut new))
            .and_then(|_| new.sync_all())
            .and_then(|()| let_read(&new, Kind::File, self.owner))
            .and_then(|()| Ok(rustix::fs::renameat(dir, WORKING, dir, name)?));
        if let Err(error) = written {
            // It must not take the room that the rest needs.
            let _ = rustix::fs::unlinkat(dir, WORKING, AtFlags::empty());
            return Err(error);
        }
        self.taken.logs += u64::from(name == EVENTS);
        Ok(())
    }

    /// What the log begins with from now on; the file is read to behind what that stands for.
    fn begin_log(&self, path: &str, uid: u32, old: &mut File) -> io::Result<Vec<u8>> {
        use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
        let mut line = Vec::new();
        BufReader::new(old.take(crate::RECORD_BYTES_MAX as u64)).read_until(b'\n', &mut line)?;
        let bare = line.strip_suffix(b"\n").unwrap_or(&line);
        let becomes = (self.first_line)(path, uid, bare).map_err(|why| judged(&why))?;
        let behind = if becomes.is_some() { line.len() as u64 } else { 0 };
        old.seek(SeekFrom::Start(behind))?;
        Ok(becomes.map(|text| [text, b"\n".to_vec()].concat()).unwrap_or_default())
    }

    fn own_dir(&self, dir: &OwnedFd) -> io::Result<()> {
        let own = (geteuid().as_raw(), getegid().as_raw());
        let stat = rustix::fs::fstat(dir)?;
        if (stat.st_uid, stat.st_gid) != own {
            rustix::fs::fchown(dir.as_fd(), Some(Uid::from_raw(own.0)), Some(Gid::from_raw(own.1)))?;
        }
        rustix::fs::fchmod(dir, Mode::RWXU)?;
        let_read(dir, Kind::Dir, self.owner)
    }
}

/// A judgement on a file, which another try would not change.
fn judged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn is_judged(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// The size of a file, and of what it occupies on the disk.
fn sizes(stat: &Stat) -> (u64, u64) {
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    (number(stat.st_size), number(stat.st_blocks).saturating_mul(512))
}
