//! One of a command's two streams on its way: from the pipe, past the markers, into what is kept and shown.
//!
//! Output is worked on where it is read, which is the shortest way. Where a command prints faster than that,
//! threads of its own read it and work on it (`away`), and other shells do not wait for it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use super::background::Late;
use super::bulk_reader::{Away, Back, Job, REST_MAX, gone};
use super::markers::{Nonce, Scanner, Stream};
use super::pipeline::{LaneEnd, Look, Seen, Work};
use super::spool_writer::Keeper;
use crate::shell::request::Progress;
use crate::shell::state::Shared;
use crate::shell::text::output::OutputStream;
use crate::shell::transport::Source;

/// The first read of a command; most print less.
pub(crate) const READ_BYTES_MIN: usize = 8 << 10;
/// A read of a command that prints much.
pub(crate) const READ_BYTES_MAX: usize = 256 << 10;
/// Output that is always worked on in place.
const HERE_BYTES_MIN: u64 = 1 << 20;
/// A read of this size after that says that the command prints faster than we work: only then threads are
/// worth the way there and back.
pub(crate) const FAST_READ_BYTES: usize = 64 << 10;

/// More than the runtime needs for a turn.
const TURN: Duration = Duration::from_millis(2);

enum Place {
    Here(Box<Work>, Keeper),
    Away(Away),
    /// Between the two, or its threads have died.
    Gone,
}

/// One of the two streams of a running command.
pub(crate) struct Lane {
    pub seen: Seen,
    buffer: Vec<u8>,
    place: Place,
}

impl Lane {
    pub fn new(
        nonce: &Nonce,
        stream: Stream,
        output: OutputStream,
        before: Option<Late>,
        shared: &Arc<Shared>,
        mut buffer: Vec<u8>,
        progress: Option<watch::Sender<Progress>>,
    ) -> Self {
        buffer.resize(READ_BYTES_MIN, 0);
        let (scanner, after) = (Scanner::new(nonce, stream), Late::new(shared));
        let (redactor, shown) = output.steps();
        let work =
            Work { look: Look { scanner, redactor, bytes: 0, before, after, stream, progress }, shown };
        let place = Place::Here(Box::new(work), Keeper::new(stream, Arc::clone(shared)));
        Lane { seen: Seen::default(), buffer, place }
    }

    /// The command starts here: nothing stands in the pipe.
    pub fn begin(&mut self) {
        if let Place::Here(work, _) = &mut self.place {
            work.look.scanner.begin();
        }
    }

    /// The command has ended, and nothing stands in the pipe. Not where threads have it.
    pub fn finish(&mut self) -> bool {
        let Place::Here(work, keeper) = &mut self.place else { return false };
        self.seen = work.finish(&mut |redacted| keeper.keep(redacted));
        true
    }

    /// Waits for bytes and takes them, or for the threads that do. Nothing is lost when the wait is given up.
    /// While threads work, they have what `from` reads from.
    pub async fn next(&mut self, from: &mut Source) -> io::Result<()> {
        if let Place::Away(away) = &mut self.place {
            let back = away.back().await;
            return self.come_back(back, from);
        }
        let count = self.take(from).await?;
        let is_fast = self.seen.bytes > HERE_BYTES_MIN && count >= FAST_READ_BYTES;
        if is_fast && !self.seen.answered {
            self.move_away(from)?;
        }
        Ok(())
    }

    /// Whether bytes that were read may still be worked on.
    pub fn is_behind(&self) -> bool {
        !matches!(self.place, Place::Here(..))
    }

    /// Waits for bytes and takes them here.
    async fn take(&mut self, from: &mut Source) -> io::Result<usize> {
        let count = from.read(&mut self.buffer).await?;
        let Place::Here(work, keeper) = &mut self.place else { return Err(gone()) };
        let read = self.buffer.get(..count).unwrap_or_default();
        self.seen = work.take(read, &mut |redacted| keeper.keep(redacted));
        if count == self.buffer.len() {
            self.buffer.resize(READ_BYTES_MAX, 0);
        }
        Ok(count)
    }

    fn move_away(&mut self, from: &mut Source) -> io::Result<()> {
        self.place = match (std::mem::replace(&mut self.place, Place::Gone), std::mem::take(from)) {
            (Place::Here(work, keeper), Source::Pipe(pipe)) if let Some(permit) = keeper.try_thread() => {
                let pipe = pipe.into_nonblocking_fd()?;
                Place::Away(Away::start(Job { pipe, work, keeper }, permit))
            }
            (place, source) => {
                *from = source;
                place
            }
        };
        Ok(())
    }

    fn come_back(&mut self, back: io::Result<Back>, from: &mut Source) -> io::Result<()> {
        self.place = Place::Gone;
        let Back { job: Job { pipe, work, keeper }, seen } = back?;
        *from = Source::Pipe(Receiver::from_owned_fd_unchecked(pipe)?);
        self.place = Place::Here(work, keeper);
        self.seen = seen?;
        Ok(())
    }

    /// Takes what stands in the pipe, for a while: a program may print without end.
    pub async fn take_rest(&mut self, from: &mut Source) -> io::Result<()> {
        let give_up = Instant::now() + REST_MAX;
        if let Place::Away(away) = &mut self.place {
            away.stop();
            self.next(from).await?;
        }
        // Threads that had come to their end already did not see what came since, and of a pipe that they gave back the
        // runtime knows only after its next turn that there is something in it.
        while !self.seen.answered && Instant::now() < give_up {
            tokio::select! {
                biased;
                took = self.take(from) => took.map(drop)?,
                () = tokio::time::sleep(TURN) => break,
            }
        }
        Ok(())
    }

    /// Ends the stream, where no threads have it.
    pub fn end(self) -> io::Result<LaneEnd> {
        match self.place {
            Place::Here(work, keeper) => Ok(work.end(keeper, self.buffer)),
            Place::Away(_) | Place::Gone => Err(gone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::output::spool::Spool;
    use crate::shell::state::Status;
    use crate::shell::text::budget::Plan;
    use crate::shell::text::redact::Secrets;
    use rustix::pipe::{fcntl_setpipe_size, pipe};
    use std::fs::File;
    use std::io::Write;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::{Notify, Semaphore};
    use tokio_util::sync::CancellationToken;

    /// Does not end with a block of the spool.
    const MUCH: usize = (8 << 20) + (32 << 10);
    const LINE: &[u8] = b"a line of what a command prints\n";
    /// Takes us longer to look at than anybody to print, so that there is always something to read.
    const REDRAWN: &[u8] = b"\r\r\r\r\r\r\r\r";

    struct Bench {
        lane: Lane,
        source: Source,
        /// What the command prints into, which has started.
        command: File,
        shared: Arc<Shared>,
        nonce: Nonce,
        _dir: tempfile::TempDir,
    }

    impl Bench {
        fn new(threads: usize) -> Bench {
            let dir = tempfile::tempdir().unwrap();
            let status = Status {
                cwd: String::new(),
                secrets: Arc::new(Secrets::none()),
                used: Instant::now(),
                commands: 1,
                running: Some(1),
                waiting: 0,
            };
            let shared = Arc::new(Shared {
                id: "1_local".to_owned(),
                log: ctx_session::Ulid(1),
                transport: "local",
                spool: Mutex::new(Spool::new(dir.path(), 1 << 30)),
                status: Mutex::new(status),
                interrupt: Notify::new(),
                closing: CancellationToken::new(),
                threads: Arc::new(Semaphore::new(threads)),
                hold: tokio::sync::watch::channel(false).1,
            });
            shared.spool().begin(1);
            let (read, write) = pipe().unwrap();
            fcntl_setpipe_size(&write, 4 * FAST_READ_BYTES).unwrap();
            let mut command = File::from(write);
            let nonce = Nonce::new(7);
            command.write_all(format!("\x1e{}S", nonce.as_str()).as_bytes()).unwrap();
            let output = OutputStream::new(shared.secrets(), &Plan::default());
            let lane = Lane::new(&nonce, Stream::Stderr, output, None, &shared, Vec::new(), None);
            let source = Source::Pipe(Receiver::from_owned_fd(read).unwrap());
            Bench { lane, source, command, shared, nonce, _dir: dir }
        }

        /// Reads in place until threads do.
        async fn move_away(&mut self) {
            while !self.lane.is_behind() {
                let is_full = || rustix::io::ioctl_fionread(&self.command).unwrap() >= FAST_READ_BYTES as u64;
                while !is_full() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                self.lane.next(&mut self.source).await.unwrap();
            }
        }

        /// Reads until something holds.
        async fn read_until(&mut self, holds: impl Fn(&Lane) -> bool) {
            let reading = async {
                while !holds(&self.lane) {
                    self.lane.next(&mut self.source).await.unwrap();
                }
            };
            tokio::time::timeout(Duration::from_secs(60), reading).await.unwrap();
        }
    }

    /// Prints from a thread of its own, as much as is wanted or until nobody reads.
    fn print(command: &File, line: &[u8], size: usize) -> std::thread::JoinHandle<()> {
        let (mut command, lines) = (command.try_clone().unwrap(), line.repeat((32 << 10) / line.len()));
        std::thread::spawn(move || {
            let mut left = size;
            while left > 0 && command.write_all(&lines).is_ok() {
                left = left.saturating_sub(lines.len());
            }
        })
    }

    #[tokio::test]
    async fn a_command_that_prints_much_gets_threads_until_it_is_quiet_and_again() {
        let mut bench = Bench::new(1);
        for turn in 1..=2 {
            let printing = print(&bench.command, LINE, MUCH);
            bench.move_away().await;
            bench.read_until(|lane| !lane.is_behind() && lane.seen.bytes == (turn * MUCH) as u64).await;
            assert_eq!(bench.shared.threads.available_permits(), 1);
            let stored = bench.shared.spool().end(Stream::Stderr);
            assert!(stored + (16 << 10) > bench.lane.seen.bytes, "a quiet command's output can be read");
            printing.join().unwrap();
        }
        let printing = print(&bench.command, LINE, MUCH);
        let end = format!("\x1e{}Ebehind the end", bench.nonce.as_str());
        let mut command = bench.command.try_clone().unwrap();
        let ending = std::thread::spawn(move || {
            printing.join().unwrap();
            command.write_all(end.as_bytes()).unwrap();
        });
        bench.move_away().await;
        bench.read_until(|lane| lane.seen.answered).await;
        ending.join().unwrap();
        let mut end = bench.lane.end().unwrap();
        assert_eq!(end.bytes, (3 * MUCH) as u64);
        assert!(end.unkept.is_none());
        assert_eq!(end.after.take().unwrap().kept.text, "behind the end");
        assert!(matches!(bench.source, Source::Pipe(_)), "the next command reads from it");
    }

    #[tokio::test]
    async fn a_command_that_only_drips_any_more_keeps_no_threads() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, LINE, MUCH);
        bench.move_away().await;
        let (mut command, drips) = (bench.command.try_clone().unwrap(), Arc::new(AtomicBool::new(true)));
        let goes_on = Arc::clone(&drips);
        let dripping = std::thread::spawn(move || {
            printing.join().unwrap();
            while goes_on.load(Ordering::Relaxed) {
                command.write_all(LINE).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        bench.read_until(|lane| !lane.is_behind() && lane.seen.bytes > MUCH as u64).await;
        drips.store(false, Ordering::Relaxed);
        dripping.join().unwrap();
        // Otherwise a second or more of drips, until one comes late.
        let drips = bench.lane.seen.bytes - MUCH as u64;
        assert!(drips < 16 << 10, "{drips} bytes");
    }

    #[tokio::test]
    async fn what_a_pipe_holds_that_threads_gave_back_is_taken_when_the_shell_is_closed() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, LINE, MUCH);
        bench.move_away().await;
        bench.read_until(|lane| !lane.is_behind() && lane.seen.bytes == MUCH as u64).await;
        printing.join().unwrap();
        // As if the threads had ended just now.
        let Source::Pipe(pipe) = std::mem::take(&mut bench.source) else { panic!("a pipe") };
        let pipe = pipe.into_nonblocking_fd().unwrap();
        bench.command.write_all(b"last words\n").unwrap();
        bench.source = Source::Pipe(Receiver::from_owned_fd_unchecked(pipe).unwrap());
        bench.lane.take_rest(&mut bench.source).await.unwrap();
        assert_eq!(bench.lane.seen.bytes, MUCH as u64 + 11);
    }

    #[tokio::test]
    async fn without_threads_output_is_worked_on_in_place() {
        let mut bench = Bench::new(0);
        let printing = print(&bench.command, LINE, MUCH);
        bench.read_until(|lane| lane.is_behind() || lane.seen.bytes == MUCH as u64).await;
        assert!(!bench.lane.is_behind());
        printing.join().unwrap();
    }

    #[tokio::test]
    async fn what_stands_in_the_pipe_is_taken_when_the_shell_is_closed() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, LINE, MUCH);
        bench.move_away().await;
        while !printing.is_finished() {
            // Its threads may have come back, where it was long in printing.
            let next = bench.lane.next(&mut bench.source);
            drop(tokio::time::timeout(Duration::from_millis(1), next).await);
        }
        bench.lane.take_rest(&mut bench.source).await.unwrap();
        assert_eq!(bench.lane.end().unwrap().bytes, MUCH as u64);
    }

    #[tokio::test]
    async fn a_program_without_end_does_not_keep_its_shell_from_being_closed() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, REDRAWN, usize::MAX);
        bench.move_away().await;
        let rest = bench.lane.take_rest(&mut bench.source);
        tokio::time::timeout(Duration::from_secs(30), rest).await.unwrap().unwrap();
        assert!(!bench.lane.is_behind());
        drop(bench);
        printing.join().unwrap();
    }

    #[tokio::test]
    async fn threads_end_with_a_lane_that_is_dropped() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, REDRAWN, usize::MAX);
        bench.move_away().await;
        drop(bench.lane);
        let ended = tokio::time::timeout(Duration::from_secs(30), bench.shared.threads.acquire()).await;
        assert!(ended.unwrap().is_ok());
        printing.join().unwrap();
    }
}
