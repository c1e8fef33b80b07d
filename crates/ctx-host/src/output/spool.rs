//! The whole output of every command, redacted, on disk: a budget hides, it does not lose.
//!
//! One file per stream and shell, appended to. It has no name: when the server ends, however it ends, the
//! kernel frees it. When a shell has printed more than its share, the oldest output is given up.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};

use crate::transport::Stream;

/// The calls whose place is remembered.
const CALLS_MAX: usize = 10_000;

/// What a shell's commands have printed.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    bytes_max: u64,
    stdout: Tape,
    stderr: Tape,
    late: Tape,
    /// Late output that no result has shown yet.
    unassigned: Span,
    calls: VecDeque<Call>,
    /// Bytes of all calls that are remembered.
    kept: u64,
}

#[derive(Debug, Default)]
struct Tape {
    /// Made when the first byte comes: most shells never print to one of the streams.
    file: Option<Arc<File>>,
    end: u64,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    number: u64,
    stdout: Span,
    stderr: Span,
    /// What jobs of earlier calls printed, as the result of this call shows it.
    late: Span,
}

/// What can be read of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    Stdout,
    Stderr,
    /// What was printed between the commands before.
    Late,
}

impl From<Stream> for Output {
    fn from(stream: Stream) -> Output {
        match stream {
            Stream::Stdout => Output::Stdout,
            Stream::Stderr => Output::Stderr,
        }
    }
}

/// Where a call's output lies on its tape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u64,
    pub len: u64,
    /// Bytes that were printed and not kept: one call printed more than a shell may keep, or the disk took no more.
    pub lost: u64,
}

/// One stream of a call, as it was when it was asked for.
#[derive(Debug, Clone)]
pub struct KeptOutput {
    file: Option<Arc<File>>,
    pub span: Span,
}

/// Why there is nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// No call has this number, ever: they count from 1.
    Never,
    /// No call has this number yet.
    NotYet,
    /// It was given up for newer output.
    GivenUp,
}

impl Spool {
    /// Files are made in `dir`, which must not be in memory where outputs may be large.
    pub fn new(dir: &Path, bytes_max: u64) -> Self {
        Spool {
            dir: dir.to_owned(),
            bytes_max,
            stdout: Tape::default(),
            stderr: Tape::default(),
            late: Tape::default(),
            unassigned: Span::default(),
            calls: VecDeque::new(),
            kept: 0,
        }
    }

    /// A new call begins; what is kept from now on is its output.
    pub fn begin(&mut self, number: u64) {
        if self.calls.len() == CALLS_MAX {
            self.give_up_oldest();
        }
        let span = |tape: &Tape| Span { start: tape.end, len: 0, lost: 0 };
        let late = Span::default();
        self.calls.push_back(Call { number, stdout: span(&self.stdout), stderr: span(&self.stderr), late });
    }

    /// The result of the present call shows all late output so far.
    pub fn assign_late(&mut self) {
        let late = std::mem::take(&mut self.unassigned);
        self.unassigned.start = self.late.end;
        if let Some(call) = self.calls.back_mut() {
            call.late = late;
        }
    }

    /// Keeps the next bytes of late output.
    pub fn keep_late(&mut self, bytes: &[u8]) -> io::Result<()> {
        let has_room = self.make_room(bytes.len() as u64);
        let kept = self.late.append(&self.dir, bytes, has_room, &mut self.unassigned)?;
        self.kept += kept;
        Ok(())
    }

    /// Keeps the next bytes of the present call, all of them or none.
    pub fn keep(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let has_room = self.make_room(bytes.len() as u64);
        let Some(call) = self.calls.back_mut() else { return Ok(()) };
        let (tape, span) = match stream {
            Stream::Stdout => (&mut self.stdout, &mut call.stdout),
            Stream::Stderr => (&mut self.stderr, &mut call.stderr),
        };
        self.kept += tape.append(&self.dir, bytes, has_room, span)?;
        Ok(())
    }

    /// Gives up older calls until there is room for so many bytes, where there can be.
    fn make_room(&mut self, size: u64) -> bool {
        while self.kept + size > self.bytes_max && self.calls.len() > 1 {
            self.give_up_oldest();
        }
        self.kept + size <= self.bytes_max
    }

    fn give_up_oldest(&mut self) {
        if let Some(call) = self.calls.pop_front() {
            let spans = [(&self.stdout, call.stdout), (&self.stderr, call.stderr), (&self.late, call.late)];
            for (tape, span) in spans {
                self.kept = self.kept.saturating_sub(span.len);
                tape.punch(span);
            }
        }
    }

    /// A call's output, to be read without the spool: what is read may be much, and the shell goes on.
    pub fn kept(&self, number: u64, output: impl Into<Output>) -> Result<KeptOutput, Gone> {
        let call = self.calls.iter().find(|call| call.number == number);
        let newest = self.calls.back().map_or(0, |call| call.number);
        let call = call.ok_or(match number {
            0 => Gone::Never,
            number if number > newest => Gone::NotYet,
            _ => Gone::GivenUp,
        })?;
        let (tape, span) = match output.into() {
            Output::Stdout => (&self.stdout, call.stdout),
            Output::Stderr => (&self.stderr, call.stderr),
            Output::Late => (&self.late, call.late),
        };
        Ok(KeptOutput { file: tape.file.clone(), span })
    }
}

impl KeptOutput {
    /// Reads from `offset` on; fewer bytes than asked for only at the end.
    pub fn read(&self, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.span.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; limit.min(left)];
        if let Some(file) = &self.file {
            file.read_exact_at(&mut bytes, self.span.start + offset)?;
        }
        Ok(bytes)
    }
}

impl Tape {
    fn file(&mut self, dir: &Path) -> io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            empty => Ok(empty.insert(Arc::new(nameless(dir)?))),
        }
    }

    /// Appends bytes to the tape and to the span at its end, and returns how many were kept: all of them or none.
    fn append(&mut self, dir: &Path, bytes: &[u8], has_room: bool, span: &mut Span) -> io::Result<u64> {
        let (size, end) = (bytes.len() as u64, self.end);
        let kept = match has_room && size > 0 {
            true => self.file(dir).and_then(|file| file.write_all_at(bytes, end)).map(|()| size),
            false => Ok(0),
        };
        let len = *kept.as_ref().unwrap_or(&0);
        (span.len, span.lost) = (span.len + len, span.lost + size - len);
        self.end += len;
        kept
    }

    /// Frees the disk blocks of a span; the bytes around it stay where they are.
    fn punch(&self, span: Span) {
        if let (Some(file), true) = (&self.file, span.len > 0) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if let Err(error) = fallocate(file.as_ref(), flags, span.start, span.len) {
                tracing::debug!(%error, "the file system keeps the blocks of old output");
            }
        }
    }
}

/// A file without a name, for this process alone.
fn nameless(dir: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok(File::from(file)),
        // Not every file system knows nameless files.
        Err(_) => {
            let path = dir.join(format!("output-{:032x}", crate::local::random::random_bits()));
            let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
            std::fs::remove_file(&path)?;
            Ok(File::from(file))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(spool: &Spool, number: u64, stream: Stream) -> Result<String, Gone> {
        Ok(String::from_utf8(spool.kept(number, stream)?.read(0, 1 << 20).unwrap()).unwrap())
    }

    #[test]
    fn each_call_keeps_its_own_streams() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), 1 << 20);
        spool.begin(1);
        spool.keep(Stream::Stdout, b"one ").unwrap();
        spool.keep(Stream::Stderr, b"oops").unwrap();
        spool.keep(Stream::Stdout, b"more").unwrap();
        spool.begin(2);
        spool.keep(Stream::Stdout, b"two").unwrap();
        assert_eq!(text(&spool, 1, Stream::Stdout).unwrap(), "one more");
        assert_eq!(text(&spool, 1, Stream::Stderr).unwrap(), "oops");
        assert_eq!(text(&spool, 2, Stream::Stdout).unwrap(), "two");
        assert_eq!(text(&spool, 2, Stream::Stderr).unwrap(), "");
        assert_eq!(text(&spool, 3, Stream::Stdout), Err(Gone::NotYet));
        assert_eq!(text(&spool, 0, Stream::Stdout), Err(Gone::Never));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the files have no names");
    }

    #[test]
    fn late_output_belongs_to_the_call_that_tells_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), 12);
        spool.begin(1);
        spool.assign_late();
        spool.keep_late(b"a job").unwrap();
        spool.begin(2);
        spool.keep_late(b"!").unwrap();
        spool.assign_late();
        spool.begin(3);
        spool.assign_late();
        let late = |spool: &Spool, call| {
            Ok(String::from_utf8(spool.kept(call, Output::Late)?.read(0, 99).unwrap()).unwrap())
        };
        assert_eq!(
            [1, 2, 3].map(|call| late(&spool, call)),
            ["", "a job!", ""].map(|text| Ok(text.to_owned()))
        );
        spool.keep_late(b"1234567").unwrap();
        assert_eq!(late(&spool, 2), Err(Gone::GivenUp), "its share is bounded as that of any output");
        spool.begin(4);
        spool.assign_late();
        assert_eq!(late(&spool, 4), Ok("1234567".to_owned()));
    }

    #[test]
    fn the_oldest_output_is_given_up_and_one_call_cannot_fill_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), 10);
        for number in 1..=3 {
            spool.begin(number);
            spool.keep(Stream::Stdout, b"12345").unwrap();
        }
        assert_eq!(text(&spool, 1, Stream::Stdout), Err(Gone::GivenUp));
        assert_eq!(text(&spool, 2, Stream::Stdout).unwrap(), "12345");
        spool.keep(Stream::Stdout, b"67890").unwrap();
        spool.keep(Stream::Stdout, b"too much").unwrap();
        assert_eq!(spool.kept(3, Stream::Stdout).unwrap().span.lost, 8);
        assert_eq!(text(&spool, 3, Stream::Stdout).unwrap(), "1234567890");
    }

    #[test]
    fn what_the_disk_does_not_take_is_counted_as_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), 1 << 20);
        spool.begin(1);
        spool.keep(Stream::Stdout, b"one").unwrap();
        // Open for reading alone, it takes nothing, as a full disk.
        let file = Some(Arc::new(File::open("/dev/null").unwrap()));
        (spool.stdout.file, spool.late.file) = (file.clone(), file);
        assert!(spool.keep(Stream::Stdout, b"four").is_err() && spool.keep_late(b"late").is_err());
        spool.assign_late();
        let lost = |output: Output| spool.kept(1, output).unwrap().span.lost;
        assert_eq!([lost(Output::Stdout), lost(Output::Stderr), lost(Output::Late)], [4, 0, 4]);
    }
}
