//! A simulated disk: in memory, honest about what is durable, and able to fail and to crash.
//!
//! It tells apart what programs see (the cache) from what a crash leaves. Writes and truncations become durable
//! by a sync of the file, names by a sync of their directory. A sync that fails leaves its writes in the
//! cache and takes them for written, as Linux does. Every operation that changes something can be recorded with the
//! state the disk was in, and [`Moment::crash`] gives the disks that a crash at that moment could leave.

mod crash;
mod state;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::disk::{DirEntry, Disk, DiskFile, OpenMode, Replace};
use crate::memory::Node;
use crate::path::Owner;
use crate::writer::lock;
use state::{FileOp, NameOp, State};

pub use crash::{Moment, Rng};

/// An operation that changes something, or makes it durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Write,
    Truncate,
    Sync,
    /// Making a file or directory, renaming, removing.
    Name,
    SyncDir,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens, and the disk is full.
    NoSpace,
    /// So many bytes are written, and no error is reported.
    Short(usize),
    /// It fails. Half of a write may have happened; a sync takes what it did not write for written.
    Io,
}

#[derive(Debug)]
struct Planned {
    op: Op,
    /// How many such operations go well first.
    after: u32,
    fault: Fault,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    faults: Vec<Planned>,
    read_only: bool,
    /// How many bytes may still be written.
    room: Option<u64>,
    moments: Option<Vec<Moment>>,
    ops: u64,
}

/// The simulated disk. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    inner: Arc<Mutex<Inner>>,
}

impl SimDisk {
    pub fn new() -> Self {
        SimDisk::default()
    }

    fn with_state(state: State) -> Self {
        SimDisk { inner: Arc::new(Mutex::new(Inner { state, ..Inner::default() })) }
    }

    /// From now on every operation is recorded.
    pub fn record(&self) {
        lock(&self.inner).moments = Some(Vec::new());
    }

    /// The moments recorded so far: one in the middle of each operation, in order.
    pub fn take_moments(&self) -> Vec<Moment> {
        lock(&self.inner).moments.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// How many operations there were.
    pub fn ops(&self) -> u64 {
        lock(&self.inner).ops
    }

    /// This very moment, between two operations.
    pub fn now(&self) -> Moment {
        let inner = lock(&self.inner);
        Moment { op: inner.ops, state: inner.state.clone() }
    }

    /// Has an operation fail, once, after so many of its kind went well.
    pub fn fail(&self, op: Op, after: u32, fault: Fault) {
        lock(&self.inner).faults.push(Planned { op, after, fault });
    }

    /// Forgets the faults that are still to come.
    pub fn heal(&self) {
        lock(&self.inner).faults.clear();
    }

    pub fn set_read_only(&self, read_only: bool) {
        lock(&self.inner).read_only = read_only;
    }

    /// Lets only so many more bytes be written; `None` for as many as wanted.
    pub fn set_room(&self, room: Option<u64>) {
        lock(&self.inner).room = room;
    }

    /// The contents of a file, as programs see it.
    pub fn contents(&self, path: &str) -> Option<Vec<u8>> {
        let inner = lock(&self.inner);
        let id = inner.state.names.file(path).ok()?;
        inner.state.inodes.get(id).map(|inode| inode.cached.clone())
    }

    /// Puts a file there, durable, with the directories it needs: damage, or a log from elsewhere.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        lock(&self.inner).state.put(path, bytes);
    }

    /// Every file there is.
    pub fn files(&self) -> Vec<String> {
        let inner = lock(&self.inner);
        let names = inner.state.names.0.iter();
        names.filter(|(_, node)| matches!(node, Node::File(_))).map(|(path, _)| path.clone()).collect()
    }
}

impl Inner {
    /// Counts an operation and says how it is to fail. `half_done` is what a crash in its middle finds begun.
    fn begin(&mut self, op: Op, half_done: impl FnOnce(&mut State)) -> io::Result<Option<Fault>> {
        if self.read_only && !matches!(op, Op::Sync | Op::SyncDir) {
            return Err(Errno::ROFS.into());
        }
        self.ops += 1;
        if let Some(moments) = &mut self.moments {
            let mut state = self.state.clone();
            half_done(&mut state);
            moments.push(Moment { op: self.ops, state });
        }
        let due = self.faults.iter().position(|planned| planned.op == op && planned.after == 0);
        let fault = due.map(|index| self.faults.remove(index).fault);
        for planned in self.faults.iter_mut().filter(|planned| planned.op == op) {
            planned.after = planned.after.saturating_sub(1);
        }
        Ok(fault)
    }

    fn name_op(&mut self, op: NameOp) -> io::Result<()> {
        let fault = self.begin(Op::Name, |state| {
            // One that cannot be done is not begun either.
            let _ = state.change_name(op.clone());
        })?;
        refuse(fault)?;
        self.state.change_name(op)
    }

    /// How many of so many bytes there is room for.
    fn take_room(&mut self, want: usize) -> usize {
        let Some(room) = &mut self.room else { return want };
        let got = usize::try_from(*room).unwrap_or(usize::MAX).min(want);
        *room -= got as u64;
        got
    }
}

fn refuse(fault: Option<Fault>) -> io::Result<()> {
    match fault {
        None => Ok(()),
        Some(Fault::NoSpace) => Err(Errno::NOSPC.into()),
        Some(Fault::Io | Fault::Short(_)) => Err(Errno::IO.into()),
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        static HANDLES: AtomicU64 = AtomicU64::new(1);
        let mut inner = lock(&self.inner);
        let id = match (inner.state.names.file(path), mode) {
            (Ok(_), OpenMode::CreateNew(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(_), OpenMode::Write) if inner.read_only => return Err(Errno::ROFS.into()),
            (Ok(id), OpenMode::Read | OpenMode::Write | OpenMode::Create(_)) => id,
            (Err(error), OpenMode::Create(owner) | OpenMode::CreateNew(owner))
                if error.kind() == io::ErrorKind::NotFound =>
            {
                let id = inner.state.new_inode(owner);
                inner.name_op(NameOp::Link(path.to_owned(), Node::File(id)))?;
                id
            }
            (Err(error), _) => return Err(error),
        };
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(SimFile { inner: Arc::clone(&self.inner), id, handle }))
    }

    fn make_dir(&self, path: &str, _owner: Owner) -> io::Result<bool> {
        let mut inner = lock(&self.inner);
        if inner.state.names.0.contains_key(path) {
            return Ok(false);
        }
        inner.name_op(NameOp::Link(path.to_owned(), Node::Dir)).map(|()| true)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        inner.state.names.need_dir(path)?;
        refuse(inner.begin(Op::SyncDir, |_| ())?)?;
        inner.state.sync_names(path);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str, replace: Replace) -> io::Result<()> {
        lock(&self.inner).name_op(NameOp::Rename(from.to_owned(), to.to_owned(), replace))
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        inner.state.names.file(path)?;
        inner.name_op(NameOp::Unlink(path.to_owned()))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        lock(&self.inner).name_op(NameOp::Unlink(path.to_owned()))
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        lock(&self.inner).state.names.list(path)
    }
}

struct SimFile {
    inner: Arc<Mutex<Inner>>,
    id: usize,
    handle: u64,
}

impl SimFile {
    fn change(&self, inner: &mut Inner, op: FileOp) -> io::Result<()> {
        inner.state.inode(self.id)?.change(op);
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.inner).state.inode(self.id)?.cached.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut inner = lock(&self.inner);
        Ok(crate::memory::read_slice(&inner.state.inode(self.id)?.cached, buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut inner = lock(&self.inner);
        let write = |count: usize| FileOp::Write(offset, bytes.get(..count).unwrap_or(bytes).to_vec());
        let id = self.id;
        let fault = inner.begin(Op::Write, |state| {
            let _ = state.inode(id).map(|inode| inode.change(write(bytes.len())));
        })?;
        let (count, result) = match fault {
            Some(Fault::NoSpace) => return Err(Errno::NOSPC.into()),
            Some(Fault::Io) => (bytes.len() / 2, Err(Errno::IO.into())),
            Some(Fault::Short(count)) => (count.min(bytes.len()), Ok(count.min(bytes.len()))),
            None => {
                let count = inner.take_room(bytes.len());
                if count == 0 && !bytes.is_empty() {
                    return Err(Errno::NOSPC.into());
                }
                (count, Ok(count))
            }
        };
        self.change(&mut inner, write(count))?;
        result
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        let id = self.id;
        let fault = inner.begin(Op::Truncate, |state| {
            let _ = state.inode(id).map(|inode| inode.change(FileOp::Truncate(len)));
        })?;
        refuse(fault)?;
        self.change(&mut inner, FileOp::Truncate(len))
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        let fault = inner.begin(Op::Sync, |_| ())?;
        let inode = inner.state.inode(self.id)?;
        if fault.is_some() {
            inode.fail_sync()
        } else {
            inode.sync()
        }
        refuse(fault)
    }

    fn forget_cached(&self, offset: u64) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        let mut rng = Rng::new(inner.ops);
        inner.state.inode(self.id)?.forget_cached(offset, &mut rng);
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut inner = lock(&self.inner);
        let inode = inner.state.inode(self.id)?;
        let free = inode.locked_by.is_none();
        if free {
            inode.locked_by = Some(self.handle);
        }
        Ok(free)
    }

    fn unlock(&self) {
        if let Ok(inode) = lock(&self.inner).state.inode(self.id)
            && inode.locked_by == Some(self.handle)
        {
            inode.locked_by = None;
        }
    }

    fn id(&self) -> io::Result<u64> {
        Ok(self.id as u64)
    }

    fn owner(&self) -> io::Result<Owner> {
        Ok(lock(&self.inner).state.inode(self.id)?.owner)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
