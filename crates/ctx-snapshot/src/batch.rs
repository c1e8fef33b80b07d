//! New content on its way into a store: packed, written under a passing name, synced together and then named by its hash.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::SnapshotError;
use super::store::{LEVEL, Store, io_at, private_dir};
use super::tree::Hash;

/// Files that are synced together; a few are synced one by one.
const BATCH: usize = 1000;
const FEW: usize = 32;
/// Content from here on is left to other threads while the next is read and hashed.
const LARGE: usize = 1 << 20;
const WRITERS: usize = 2;

/// New content on its way into a store. What is not flushed is not kept.
pub struct Batch<'a> {
    store: &'a Store,
    waiting: HashMap<Hash, PathBuf>,
    packer: zstd::bulk::Compressor<'static>,
    large: Option<LargeWriters>,
    /// Bytes written to the store.
    pub written: u64,
}

impl<'a> Batch<'a> {
    pub fn new(store: &'a Store) -> Result<Batch<'a>, SnapshotError> {
        let packer = zstd::bulk::Compressor::new(LEVEL).map_err(SnapshotError::io("zstd"))?;
        Ok(Batch { store, waiting: HashMap::new(), packer, large: None, written: 0 })
    }

    pub fn put(&mut self, bytes: &[u8]) -> Result<Hash, SnapshotError> {
        let hash = Hash::of(bytes);
        let path = self.store.object_path(hash);
        // What is there is read: content that was damaged on the disk is written again.
        if self.waiting.contains_key(&hash) || self.store.piece(hash).is_ok() {
            return Ok(hash);
        }
        let (temp, file) = self.store.temp(&path)?;
        self.waiting.insert(hash, temp);
        let written = match bytes.len() {
            LARGE.. => self.put_large(file, bytes).map(|()| 0),
            _ => write_packed(&mut self.packer, &file, bytes),
        };
        self.written += written.map_err(io_at(&path))?;
        if self.waiting.len() >= BATCH {
            self.flush()?;
        }
        Ok(hash)
    }

    fn put_large(&mut self, file: File, bytes: &[u8]) -> io::Result<()> {
        let writers = match self.large.take() {
            Some(writers) => writers,
            None => LargeWriters::start()?,
        };
        match writers.queue.send((file, bytes.to_vec())) {
            Ok(()) => self.large = Some(writers),
            // All have stopped at errors, which their end tells.
            Err(_) => self.written += writers.end()?,
        }
        Ok(())
    }

    /// Everything is on disk and has its name when this returns.
    pub fn flush(&mut self) -> Result<(), SnapshotError> {
        let dir = self.store.dir();
        if let Some(writers) = self.large.take() {
            self.written += writers.end().map_err(io_at(dir))?;
        }
        let synced = match self.waiting.len() {
            0 => return Ok(()),
            1..=FEW => self.waiting.values().try_for_each(|temp| File::open(temp)?.sync_all()),
            _ => File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?)),
        };
        synced.map_err(io_at(dir))?;
        let mut dirs = BTreeSet::from([dir.join("objects")]);
        for (hash, temp) in std::mem::take(&mut self.waiting) {
            let path = self.store.object_path(hash);
            if let Some(dir) = path.parent() {
                if !dir.exists() {
                    private_dir(dir)?;
                }
                dirs.insert(dir.to_owned());
            }
            std::fs::rename(&temp, &path).map_err(io_at(&path))?;
        }
        // The names are on disk too.
        let synced = match dirs.len() {
            ..=FEW => dirs.iter().try_for_each(|dir| File::open(dir)?.sync_all()),
            _ => File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?)),
        };
        synced.map_err(io_at(dir))
    }
}

/// How many bytes they became.
fn write_packed(packer: &mut zstd::bulk::Compressor<'_>, mut file: &File, bytes: &[u8]) -> io::Result<u64> {
    let packed = packer.compress(bytes)?;
    file.write_all(&packed)?;
    Ok(packed.len() as u64)
}

/// Threads that pack, write and sync, so that the disk works while the next is read, hashed and packed.
struct LargeWriters {
    queue: SyncSender<(File, Vec<u8>)>,
    threads: Vec<JoinHandle<io::Result<u64>>>,
}

impl LargeWriters {
    fn start() -> io::Result<LargeWriters> {
        let (queue, waiting) = sync_channel(1);
        let waiting = Arc::new(Mutex::new(waiting));
        let start = |_| {
            let (waiting, packer) = (waiting.clone(), zstd::bulk::Compressor::new(LEVEL)?);
            let name = "snapshot".to_owned();
            std::thread::Builder::new().name(name).spawn(move || write_large(&waiting, packer))
        };
        Ok(LargeWriters { queue, threads: (0..WRITERS).map(start).collect::<io::Result<_>>()? })
    }

    /// Waits until all is written; how many bytes that are.
    fn end(self) -> io::Result<u64> {
        drop(self.queue);
        let failed = |_| Err(io::Error::other("a thread that writes has failed"));
        let ends: Vec<_> =
            self.threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed)).collect();
        ends.into_iter().sum()
    }
}

fn write_large(
    waiting: &Mutex<Receiver<(File, Vec<u8>)>>,
    mut packer: zstd::bulk::Compressor<'_>,
) -> io::Result<u64> {
    let mut written = 0;
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((file, bytes)) = next else { return Ok(written) };
        written += write_packed(&mut packer, &file, &bytes)?;
        file.sync_data()?;
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some(writers) = self.large.take() {
            let _ = writers.end();
        }
        for temp in self.waiting.values() {
            let _ = std::fs::remove_file(temp);
        }
    }
}
