//! A disk in memory, for logs that need not outlive the process: temp sessions.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::disk::{DirEntry, Disk, DiskFile, OpenMode, Replace};
use crate::path::{Owner, parent_of};
use crate::writer::lock;

/// Files in memory; gone with the last handle.
#[derive(Default)]
pub struct MemoryDisk {
    names: Mutex<Names<Arc<MemoryFile>>>,
}

struct MemoryFile {
    bytes: Mutex<Vec<u8>>,
    owner: Owner,
    locked: AtomicBool,
}

/// What a path stands for.
#[derive(Clone, Debug)]
pub(crate) enum Node<F> {
    Dir,
    File(F),
}

/// A tree of names by full path; the root is not in it. Used by both disks that live in memory.
#[derive(Clone, Debug)]
pub(crate) struct Names<F>(pub BTreeMap<String, Node<F>>);

impl<F> Default for Names<F> {
    fn default() -> Self {
        Names(BTreeMap::new())
    }
}

impl<F: Clone> Names<F> {
    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.0.get(path), Some(Node::Dir))
    }

    pub fn need_dir(&self, path: &str) -> io::Result<()> {
        if self.is_dir(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    pub fn file(&self, path: &str) -> io::Result<F> {
        match self.0.get(path) {
            Some(Node::File(file)) => Ok(file.clone()),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub fn link(&mut self, path: &str, node: Node<F>) -> io::Result<()> {
        self.need_dir(parent_of(path))?;
        if self.0.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.0.insert(path.to_owned(), node);
        Ok(())
    }

    fn beneath(&self, dir: &str) -> Vec<String> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let after = self.0.range(prefix.clone()..).map(|(path, _)| path);
        after.take_while(|path| path.starts_with(&prefix)).cloned().collect()
    }

    pub fn rename(&mut self, from: &str, to: &str, replace: Replace) -> io::Result<()> {
        self.need_dir(parent_of(to))?;
        if replace == Replace::No && self.0.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let Some(node) = self.0.remove(from) else { return Err(io::ErrorKind::NotFound.into()) };
        for path in self.beneath(from) {
            if let (Some(node), Some(rest)) = (self.0.remove(&path), path.get(from.len()..)) {
                self.0.insert(format!("{to}{rest}"), node);
            }
        }
        self.0.insert(to.to_owned(), node);
        Ok(())
    }

    pub fn unlink(&mut self, path: &str) -> io::Result<()> {
        if !self.beneath(path).is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.0.remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub fn list(&self, dir: &str) -> io::Result<Vec<DirEntry>> {
        self.need_dir(dir)?;
        let skip = if dir.is_empty() { 0 } else { dir.len() + 1 };
        let here = self.beneath(dir).into_iter().filter_map(|path| {
            let name = path.get(skip..).filter(|name| !name.contains('/'))?.to_owned();
            Some(DirEntry { name, is_dir: self.is_dir(&path) })
        });
        Ok(here.collect())
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut names = lock(&self.names);
        let found = names.file(path);
        let file = match (found, mode) {
            (Ok(_), OpenMode::CreateNew(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(file), OpenMode::Read | OpenMode::Write | OpenMode::Create(_)) => file,
            (Err(error), OpenMode::Create(owner) | OpenMode::CreateNew(owner))
                if error.kind() == io::ErrorKind::NotFound =>
            {
                let file =
                    Arc::new(MemoryFile { bytes: Mutex::default(), owner, locked: AtomicBool::new(false) });
                names.link(path, Node::File(Arc::clone(&file)))?;
                file
            }
            (Err(error), _) => return Err(error),
        };
        Ok(Box::new(Handle { file, has_lock: AtomicBool::new(false) }))
    }

    fn make_dir(&self, path: &str, _owner: Owner) -> io::Result<bool> {
        match lock(&self.names).link(path, Node::Dir) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        lock(&self.names).need_dir(path)
    }

    fn rename(&self, from: &str, to: &str, replace: Replace) -> io::Result<()> {
        lock(&self.names).rename(from, to, replace)
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        let mut names = lock(&self.names);
        names.file(path)?;
        names.unlink(path)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        lock(&self.names).unlink(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        lock(&self.names).list(path)
    }
}

struct Handle {
    file: Arc<MemoryFile>,
    has_lock: AtomicBool,
}

/// Copies what there is at an offset into the buffer.
pub(crate) fn read_slice(bytes: &[u8], buf: &mut [u8], offset: u64) -> usize {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let there = bytes.get(from..).unwrap_or_default();
    let count = there.len().min(buf.len());
    if let (Some(to), Some(there)) = (buf.get_mut(..count), there.get(..count)) {
        to.copy_from_slice(there);
    }
    count
}

/// Writes at an offset, filling a hole before it with zeros as a file system does.
pub(crate) fn write_slice(to: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = from.saturating_add(bytes.len());
    if to.len() < end {
        to.resize(end, 0);
    }
    if let Some(place) = to.get_mut(from..end) {
        place.copy_from_slice(bytes);
    }
}

impl DiskFile for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.file.bytes).len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(read_slice(&lock(&self.file.bytes), buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        write_slice(&mut lock(&self.file.bytes), bytes, offset);
        Ok(bytes.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        lock(&self.file.bytes).resize(usize::try_from(len).map_err(io::Error::other)?, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn forget_cached(&self, _offset: u64) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        let got = !self.file.locked.swap(true, Ordering::AcqRel);
        if got {
            self.has_lock.store(true, Ordering::Release);
        }
        Ok(got)
    }

    fn unlock(&self) {
        if self.has_lock.swap(false, Ordering::AcqRel) {
            self.file.locked.store(false, Ordering::Release);
        }
    }

    fn id(&self) -> io::Result<u64> {
        Ok(Arc::as_ptr(&self.file) as usize as u64)
    }

    fn owner(&self) -> io::Result<Owner> {
        Ok(self.file.owner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.unlock();
    }
}
