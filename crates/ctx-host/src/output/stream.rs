//! One of a command's two streams, from its pipe through the pipeline.
//!
//! Output is worked on where it is read, which takes the least time. If a command prints faster than that, threads of
//! its own read it and work on it (`bulk_reader`), so that other shells do not wait for it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use super::background::LateOutput;
use super::bulk_reader::{BulkEnd, BulkJob, BulkReader, READ_BYTES_MAX, REST_MAX, threads_gone};
use super::markers::Scanner;
use super::pipeline::{Intake, Pipeline, Storage, StreamEnd, StreamProgress};
use crate::frame::marker::Nonce;
use crate::request::Progress;
use crate::state::ShellState;
use crate::transport::Source;
use crate::transport::Stream;
use ctx_text::output::OutputStream;

/// The first read of a command; most print less.
pub(crate) const READ_BYTES_MIN: usize = 8 << 10;
/// Output that is always worked on in place.
const IN_PLACE_BYTES_MIN: u64 = 1 << 20;
/// A read of this size after that says that the command prints faster than we work: only then threads are
/// worth the way there and back.
const FAST_READ_BYTES: usize = 64 << 10;

/// More than the runtime needs for a turn.
const TURN: Duration = Duration::from_millis(2);

/// Who works on a stream.
enum Processing {
    InPlace(Box<Pipeline>),
    InThreads(BulkReader),
    /// Nobody: it is between the two, or its threads have died.
    Gone,
}

/// One of the two streams of a running command.
pub(crate) struct CommandStream {
    pub progress: StreamProgress,
    buffer: Vec<u8>,
    processing: Processing,
}

impl CommandStream {
    pub fn new(
        nonce: &Nonce,
        stream: Stream,
        output: OutputStream,
        before: Option<LateOutput>,
        shared: &Arc<ShellState>,
        mut buffer: Vec<u8>,
        progress: Option<watch::Sender<Progress>>,
    ) -> Self {
        buffer.resize(READ_BYTES_MIN, 0);
        let (scanner, after) = (Scanner::new(nonce, stream), LateOutput::new(shared));
        let (redactor, shown) = output.steps();
        let intake = Intake { scanner, redactor, bytes: 0, before, after, stream, progress };
        let storage = Storage { stream, shared: Arc::clone(shared), shown, error: None };
        let processing = Processing::InPlace(Box::new(Pipeline { intake, storage }));
        CommandStream { progress: StreamProgress::default(), buffer, processing }
    }

    /// The command starts here: the pipe is empty.
    pub fn begin(&mut self) {
        if let Processing::InPlace(pipeline) = &mut self.processing {
            pipeline.intake.scanner.begin();
        }
    }

    /// The command has ended, and the pipe is empty. Not where threads have it.
    pub fn finish(&mut self) -> bool {
        let Processing::InPlace(pipeline) = &mut self.processing else { return false };
        self.progress = pipeline.finish();
        true
    }

    /// Waits for bytes and takes them, or for the threads that do. Nothing is lost when the wait is given up.
    /// While threads work, they have what `from` reads from.
    pub async fn next(&mut self, from: &mut Source) -> io::Result<()> {
        if let Processing::InThreads(reader) = &mut self.processing {
            let end = reader.end().await;
            return self.end_threads(end, from);
        }
        let count = self.take(from).await?;
        let is_fast = self.progress.bytes > IN_PLACE_BYTES_MIN && count >= FAST_READ_BYTES;
        if is_fast && !self.progress.answered {
            self.start_threads(from)?;
        }
        Ok(())
    }

    /// Whether bytes that were read may still be worked on.
    pub fn is_behind(&self) -> bool {
        !matches!(self.processing, Processing::InPlace(..))
    }

    /// Waits for bytes and works on them in place.
    #[expect(clippy::indexing_slicing, reason = "a read returns at most as many bytes as its buffer has")]
    async fn take(&mut self, from: &mut Source) -> io::Result<usize> {
        let count = from.read(&mut self.buffer).await?;
        let Processing::InPlace(pipeline) = &mut self.processing else { return Err(threads_gone()) };
        self.progress = pipeline.take(&self.buffer[..count]);
        if count == self.buffer.len() {
            self.buffer.resize(READ_BYTES_MAX, 0);
        }
        Ok(count)
    }

    fn start_threads(&mut self, from: &mut Source) -> io::Result<()> {
        let processing = std::mem::replace(&mut self.processing, Processing::Gone);
        self.processing = match (processing, std::mem::take(from)) {
            (Processing::InPlace(pipeline), Source::Pipe(pipe))
                if let Ok(permit) = Arc::clone(&pipeline.storage.shared.threads).try_acquire_owned() =>
            {
                let pipe = pipe.into_nonblocking_fd()?;
                Processing::InThreads(BulkReader::start(BulkJob { pipe, pipeline }, permit))
            }
            (processing, source) => {
                *from = source;
                processing
            }
        };
        Ok(())
    }

    fn end_threads(&mut self, end: io::Result<BulkEnd>, from: &mut Source) -> io::Result<()> {
        self.processing = Processing::Gone;
        let BulkEnd { job: BulkJob { pipe, pipeline }, progress } = end?;
        *from = Source::Pipe(Receiver::from_owned_fd_unchecked(pipe)?);
        self.processing = Processing::InPlace(pipeline);
        self.progress = progress?;
        Ok(())
    }

    /// Takes what is in the pipe, for a while: a program may print without end.
    pub async fn take_rest(&mut self, from: &mut Source) -> io::Result<()> {
        let give_up = Instant::now() + REST_MAX;
        if let Processing::InThreads(reader) = &mut self.processing {
            reader.stop();
            self.next(from).await?;
        }
        // Threads that had come to their end already did not see what came since, and of a pipe that they gave back the
        // runtime knows only after its next turn that there is something in it.
        while !self.progress.answered && Instant::now() < give_up {
            tokio::select! {
                biased;
                took = self.take(from) => took.map(drop)?,
                () = tokio::time::sleep(TURN) => break,
            }
        }
        Ok(())
    }

    /// Ends the stream, where no threads have it.
    pub fn end(self) -> io::Result<StreamEnd> {
        match self.processing {
            Processing::InPlace(pipeline) => Ok(pipeline.end(self.buffer)),
            Processing::InThreads(_) | Processing::Gone => Err(threads_gone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::spool::Spool;
    use crate::state::Status;
    use ctx_text::budget::Plan;
    use ctx_text::redact::Secrets;
    use rustix::pipe::{fcntl_setpipe_size, pipe};
    use std::fs::File;
    use std::io::Write;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::{Notify, Semaphore};
    use tokio_util::sync::CancellationToken;

    const MUCH: usize = (8 << 20) + (32 << 10);
    const LINE: &[u8] = b"a line of what a command prints\n";
    /// Takes us longer to look at than anybody to print, so that there is always something to read.
    const REDRAWN: &[u8] = b"\r\r\r\r\r\r\r\r";

    struct Bench {
        stream: CommandStream,
        source: Source,
        /// What the command prints into, which has started.
        command: File,
        shared: Arc<ShellState>,
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
                running: None,
                waiting: 0,
            };
            let shared = Arc::new(ShellState {
                id: "1_local".to_owned(),
                log: ctx_session::Ulid(1),
                transport: "local",
                spool: Mutex::new(Spool::new(dir.path(), 1 << 30)),
                status: Mutex::new(status),
                interrupt: Notify::new(),
                cage: None,
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
            let stream = CommandStream::new(&nonce, Stream::Stderr, output, None, &shared, Vec::new(), None);
            let source = Source::Pipe(Receiver::from_owned_fd(read).unwrap());
            Bench { stream, source, command, shared, nonce, _dir: dir }
        }

        /// Reads in place until threads do.
        async fn start_threads(&mut self) {
            while !self.stream.is_behind() {
                let is_full = || rustix::io::ioctl_fionread(&self.command).unwrap() >= FAST_READ_BYTES as u64;
                while !is_full() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                self.stream.next(&mut self.source).await.unwrap();
            }
        }

        /// Reads until something holds.
        async fn read_until(&mut self, holds: impl Fn(&CommandStream) -> bool) {
            let reading = async {
                while !holds(&self.stream) {
                    self.stream.next(&mut self.source).await.unwrap();
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
            bench.start_threads().await;
            bench
                .read_until(|stream| !stream.is_behind() && stream.progress.bytes == (turn * MUCH) as u64)
                .await;
            assert_eq!(bench.shared.threads.available_permits(), 1);
            let stored = bench.shared.spool().kept(1, Stream::Stderr).unwrap().span.len;
            assert!(
                stored + (16 << 10) > bench.stream.progress.bytes,
                "a quiet command's output can be read"
            );
            printing.join().unwrap();
        }
        let printing = print(&bench.command, LINE, MUCH);
        let end = format!("\x1e{}Ebehind the end", bench.nonce.as_str());
        let mut command = bench.command.try_clone().unwrap();
        let ending = std::thread::spawn(move || {
            printing.join().unwrap();
            command.write_all(end.as_bytes()).unwrap();
        });
        bench.start_threads().await;
        bench.read_until(|stream| stream.progress.answered).await;
        ending.join().unwrap();
        let mut end = bench.stream.end().unwrap();
        assert_eq!(end.bytes, (3 * MUCH) as u64);
        assert!(end.spool_error.is_none());
        assert_eq!(end.after.take().unwrap().kept.text, "behind the end");
        assert!(matches!(bench.source, Source::Pipe(_)), "the next command reads from it");
    }

    #[tokio::test]
    async fn a_command_that_only_drips_any_more_keeps_no_threads() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, LINE, MUCH);
        bench.start_threads().await;
        let (mut command, drips) = (bench.command.try_clone().unwrap(), Arc::new(AtomicBool::new(true)));
        let goes_on = Arc::clone(&drips);
        let dripping = std::thread::spawn(move || {
            printing.join().unwrap();
            while goes_on.load(Ordering::Relaxed) {
                command.write_all(LINE).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        bench.read_until(|stream| !stream.is_behind() && stream.progress.bytes > MUCH as u64).await;
        drips.store(false, Ordering::Relaxed);
        dripping.join().unwrap();
        // Otherwise a second or more of drips, until one comes late.
        let drips = bench.stream.progress.bytes - MUCH as u64;
        assert!(drips < 16 << 10, "{drips} bytes");
    }

    #[tokio::test]
    async fn what_a_pipe_holds_that_threads_gave_back_is_taken_when_the_shell_is_closed() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, LINE, MUCH);
        bench.start_threads().await;
        bench.read_until(|stream| !stream.is_behind() && stream.progress.bytes == MUCH as u64).await;
        printing.join().unwrap();
        // As if the threads had ended just now.
        let Source::Pipe(pipe) = std::mem::take(&mut bench.source) else { panic!("a pipe") };
        let pipe = pipe.into_nonblocking_fd().unwrap();
        bench.command.write_all(b"last words\n").unwrap();
        bench.source = Source::Pipe(Receiver::from_owned_fd_unchecked(pipe).unwrap());
        bench.stream.take_rest(&mut bench.source).await.unwrap();
        assert_eq!(bench.stream.progress.bytes, MUCH as u64 + 11);
    }

    #[tokio::test]
    async fn without_threads_output_is_worked_on_in_place() {
        let mut bench = Bench::new(0);
        let printing = print(&bench.command, LINE, MUCH);
        bench.read_until(|stream| stream.is_behind() || stream.progress.bytes == MUCH as u64).await;
        assert!(!bench.stream.is_behind());
        printing.join().unwrap();
    }

    #[tokio::test]
    async fn what_stands_in_the_pipe_is_taken_when_the_shell_is_closed() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, LINE, MUCH);
        bench.start_threads().await;
        while !printing.is_finished() {
            // Its threads may have come back, where it was long in printing.
            let next = bench.stream.next(&mut bench.source);
            drop(tokio::time::timeout(Duration::from_millis(1), next).await);
        }
        bench.stream.take_rest(&mut bench.source).await.unwrap();
        assert_eq!(bench.stream.end().unwrap().bytes, MUCH as u64);
    }

    #[tokio::test]
    async fn a_program_without_end_does_not_keep_its_shell_from_being_closed() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, REDRAWN, usize::MAX);
        bench.start_threads().await;
        let rest = bench.stream.take_rest(&mut bench.source);
        tokio::time::timeout(Duration::from_secs(30), rest).await.unwrap().unwrap();
        assert!(!bench.stream.is_behind());
        drop(bench);
        printing.join().unwrap();
    }

    #[tokio::test]
    async fn threads_end_with_a_stream_that_is_dropped() {
        let mut bench = Bench::new(1);
        let printing = print(&bench.command, REDRAWN, usize::MAX);
        bench.start_threads().await;
        drop(bench.stream);
        let ended = tokio::time::timeout(Duration::from_secs(30), bench.shared.threads.acquire()).await;
        assert!(ended.unwrap().is_ok());
        printing.join().unwrap();
    }
}
