//! What the simulated disk holds: what programs see, what is durable, and what is between the two.

use std::io;

use crate::disk::Replace;
use crate::memory::{Names, Node, write_slice};
use crate::path::{Owner, parent_of};
use crate::sim::crash::{Fate, Rng};

#[derive(Clone, Debug)]
pub(super) enum FileOp {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Clone, Debug)]
pub(super) enum NameOp {
    Link(String, Node<usize>),
    Unlink(String),
    Rename(String, String, Replace),
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    /// What programs see.
    pub cached: Vec<u8>,
    /// What a crash leaves for certain.
    pub durable: Vec<u8>,
    /// What a sync would make durable.
    pub pending: Vec<FileOp>,
    /// What a failed sync did not write, and no later one will: on disk or not, nobody knows.
    pub doubtful: Vec<FileOp>,
    pub owner: Owner,
    pub locked_by: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub inodes: Vec<Inode>,
    pub names: Names<usize>,
    pub durable_names: Names<usize>,
    pub pending_names: Vec<NameOp>,
}

impl NameOp {
    pub fn apply(&self, names: &mut Names<usize>) -> io::Result<()> {
        match self {
            NameOp::Link(path, node) => names.link(path, node.clone()),
            NameOp::Unlink(path) => names.unlink(path),
            NameOp::Rename(from, to, replace) => names.rename(from, to, *replace),
        }
    }

    fn is_in(&self, dir: &str) -> bool {
        match self {
            NameOp::Link(path, _) | NameOp::Unlink(path) => parent_of(path) == dir,
            NameOp::Rename(from, to, _) => parent_of(from) == dir || parent_of(to) == dir,
        }
    }
}

impl FileOp {
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            FileOp::Write(offset, data) => write_slice(bytes, data, *offset),
            FileOp::Truncate(len) => bytes.resize(usize::try_from(*len).unwrap_or(usize::MAX), 0),
        }
    }
}

impl Inode {
    pub fn change(&mut self, op: FileOp) {
        op.apply(&mut self.cached);
        self.pending.push(op);
    }

    pub fn sync(&mut self) {
        for op in self.pending.drain(..) {
            op.apply(&mut self.durable);
            // What is written anew, or cut off, is in doubt no more.
            self.doubtful.retain(|doubtful| match (doubtful, &op) {
                (FileOp::Write(offset, _), FileOp::Truncate(len)) => offset < len,
                (FileOp::Write(offset, data), FileOp::Write(from, new)) => {
                    *offset < *from || offset + data.len() as u64 > from + new.len() as u64
                }
                (FileOp::Truncate(_), FileOp::Write(..) | FileOp::Truncate(_)) => false,
            });
        }
    }

    pub fn fail_sync(&mut self) {
        self.doubtful.append(&mut self.pending);
    }

    /// What is read next is what is on disk; what was in doubt is decided.
    pub fn forget_cached(&mut self, offset: u64, rng: &mut Rng) {
        let in_reach = self.doubtful.iter().all(|op| match op {
            FileOp::Write(at, _) | FileOp::Truncate(at) => *at >= offset,
        });
        if !in_reach || self.doubtful.is_empty() {
            return;
        }
        for op in std::mem::take(&mut self.doubtful) {
            Fate::any(rng).apply(&op, &mut self.durable, rng);
        }
        self.cached = self.durable.clone();
        for op in &self.pending {
            op.apply(&mut self.cached);
        }
    }
}

impl State {
    pub fn inode(&mut self, id: usize) -> io::Result<&mut Inode> {
        self.inodes.get_mut(id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub fn new_inode(&mut self, owner: Owner) -> usize {
        let (cached, durable, pending, doubtful) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        self.inodes.push(Inode { cached, durable, pending, doubtful, owner, locked_by: None });
        self.inodes.len() - 1
    }

    pub fn change_name(&mut self, op: NameOp) -> io::Result<()> {
        op.apply(&mut self.names)?;
        self.pending_names.push(op);
        Ok(())
    }

    pub fn sync_names(&mut self, dir: &str) {
        for op in std::mem::take(&mut self.pending_names) {
            // What is in a directory that is not durable itself has to wait for that.
            if !op.is_in(dir) || op.apply(&mut self.durable_names).is_err() {
                self.pending_names.push(op);
            }
        }
    }

    pub fn put(&mut self, path: &str, bytes: &[u8]) {
        for (end, _) in path.match_indices('/') {
            let dir = path.get(..end).unwrap_or_default();
            self.names.0.insert(dir.to_owned(), Node::Dir);
            self.durable_names.0.insert(dir.to_owned(), Node::Dir);
        }
        let id = self.new_inode(Owner::user(0, 0));
        if let Ok(inode) = self.inode(id) {
            inode.cached = bytes.to_vec();
            inode.durable = bytes.to_vec();
        }
        self.names.0.insert(path.to_owned(), Node::File(id));
        self.durable_names.0.insert(path.to_owned(), Node::File(id));
    }
}
