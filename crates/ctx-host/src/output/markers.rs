//! Finds a frame's markers in a stream of bytes, wherever the reads happen to cut it.
//!
//! What a marker looks like is in `frame::marker`.

#![expect(clippy::indexing_slicing, reason = "positions come from searches in the same bytes")]

use crate::frame::marker::{END_TAG, MARK_BYTE, MARK_LEN, Nonce, SEAL_TAG, START_TAG};
use crate::frame::report::{Split, split};
use crate::transport::Stream;

/// More than any environment holds; a report that grows past it is cut, and the restart uses the one before.
const REPORT_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before the start marker: what earlier background jobs printed.
    Late,
    Body,
    Report,
    Done,
}

/// A part of the stream, by the markers around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// Printed before the start marker, by jobs of earlier commands.
    Late(&'a [u8]),
    /// Printed by the command.
    Body(&'a [u8]),
    /// Printed behind the end, or by jobs into the report: late output of the next frame.
    After(&'a [u8]),
}

impl<'a> Part<'a> {
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Part::Late(bytes) | Part::Body(bytes) | Part::After(bytes) => bytes,
        }
    }
}

/// The scanner of one stream of one frame.
#[derive(Debug)]
pub struct Scanner {
    mark: [u8; MARK_LEN],
    stream: Stream,
    phase: Phase,
    /// The beginning of a possible marker at the end of the last read.
    carry: Vec<u8>,
    report: Vec<u8>,
    /// What the report before said behind its answer: the same again holds nothing else.
    expected: Vec<u8>,
    /// Whether a part of the report could not be read, so that the next one is to be trusted rather.
    pub spoilt: bool,
    /// Whether the start marker is in: where it is not, nothing of the command was run.
    pub started: bool,
    /// Whether all is in that a dead shell has printed.
    pub sealed: bool,
}

impl Scanner {
    pub fn new(nonce: &Nonce, stream: Stream) -> Self {
        let mark = nonce.mark();
        let (phase, carry, report, expected) = (Phase::Late, Vec::new(), Vec::new(), Vec::new());
        Scanner { mark, stream, phase, carry, report, expected, spoilt: false, started: false, sealed: false }
    }

    /// The command's output starts here, without a mark.
    pub fn begin(&mut self) {
        (self.phase, self.started) = (Phase::Body, true);
    }

    /// The command's output has ended, without a mark. Only where no report follows.
    pub fn end(&mut self, sink: &mut dyn FnMut(Part<'_>)) {
        let rest = std::mem::take(&mut self.carry);
        self.emit(&rest, sink);
        self.phase = Phase::Done;
    }

    /// Most reports say what the one before said, and to compare is faster than to take apart.
    pub fn expect(&mut self, before: Vec<u8>) {
        self.expected = before;
    }

    pub fn is_as_expected(&self) -> bool {
        behind_answer(&self.report).is_some_and(|report| report == self.expected)
    }

    /// What is expected of the next report.
    pub fn into_expected(self) -> Vec<u8> {
        if self.is_as_expected() {
            return self.expected;
        }
        behind_answer(&self.report).filter(|_| !self.spoilt).unwrap_or_default().to_vec()
    }

    /// Whether the end marker is in.
    pub fn done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// What is carried behind the end: output, where no more of a marker comes.
    pub fn rest(&mut self) -> Vec<u8> {
        if self.done() { std::mem::take(&mut self.carry) } else { Vec::new() }
    }

    /// Whether the command has ended: on stdout that is when its exit code and directory are in, and the shell has its
    /// streams back, so that it can run another. What it reports behind that is for the next command.
    pub fn answered(&self) -> bool {
        match self.phase {
            Phase::Late | Phase::Body => false,
            Phase::Report => {
                behind_answer(&self.report).is_some_and(|rest| memchr::memchr(0, rest).is_some())
            }
            Phase::Done => true,
        }
    }

    /// What the shell said of itself behind the end marker, so far.
    pub fn report(&self) -> &[u8] {
        &self.report
    }

    /// Takes the next bytes of the stream and hands out what they hold.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        if self.carry.is_empty() {
            self.scan(bytes, sink);
            return;
        }
        let mut joined = std::mem::take(&mut self.carry);
        joined.extend_from_slice(bytes);
        self.scan(&joined, sink);
    }

    /// The stream has ended: a carried beginning of a marker was output after all.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Part<'_>)) {
        let rest = std::mem::take(&mut self.carry);
        self.emit(&rest, sink);
        self.enter(Phase::Done, false, sink);
        self.sealed = true;
    }

    fn scan(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        while !self.sealed {
            match self.find(bytes) {
                Found::Marker { at, sealed } => {
                    let (before, rest) = bytes.split_at(at);
                    self.emit(before, sink);
                    let ends = rest.get(MARK_LEN) != Some(&START_TAG);
                    bytes = &rest[MARK_LEN + 1..];
                    (self.started, self.sealed) = (self.started || !sealed, sealed);
                    let next = if sealed { Phase::Done } else { self.next_phase(ends) };
                    self.enter(next, !sealed, sink);
                }
                Found::Beginning { at } => {
                    let (before, rest) = bytes.split_at(at);
                    self.emit(before, sink);
                    self.carry = rest.to_vec();
                    return;
                }
                Found::Nothing => break,
            }
        }
        self.emit(bytes, sink);
    }

    fn find(&self, bytes: &[u8]) -> Found {
        for at in memchr::memchr_iter(MARK_BYTE, bytes) {
            let rest = &bytes[at..];
            match rest.split_at_checked(MARK_LEN) {
                Some((mark, after)) if mark == self.mark => match after.first() {
                    Some(&SEAL_TAG) => return Found::Marker { at, sealed: true },
                    Some(tag) if self.is_ended_by(*tag) => return Found::Marker { at, sealed: false },
                    Some(_) => (),
                    None => return Found::Beginning { at },
                },
                Some(_) => (),
                None if self.mark.starts_with(rest) => return Found::Beginning { at },
                None => (),
            }
        }
        Found::Nothing
    }

    /// Whether a tag ends the present phase. A shell whose stderr was replaced marks no start there.
    fn is_ended_by(&self, tag: u8) -> bool {
        match self.phase {
            Phase::Late => tag == START_TAG || tag == END_TAG && self.stream == Stream::Stderr,
            Phase::Body => tag == END_TAG,
            Phase::Report => tag == b'.',
            Phase::Done => false,
        }
    }

    fn next_phase(&self, ends: bool) -> Phase {
        match (self.phase, self.stream) {
            (Phase::Late, _) if ends => Phase::Done,
            (Phase::Late, _) => Phase::Body,
            (Phase::Body, Stream::Stdout) => Phase::Report,
            (Phase::Body, Stream::Stderr) | (Phase::Report | Phase::Done, _) => Phase::Done,
        }
    }

    /// Behind the report, what jobs have printed into it is handed out.
    fn enter(&mut self, next: Phase, whole: bool, sink: &mut dyn FnMut(Part<'_>)) {
        if std::mem::replace(&mut self.phase, next) == Phase::Report {
            if whole && self.is_as_expected() {
                return;
            }
            let Split { own, foreign, spoilt } = split(&self.report, whole);
            (self.report, self.spoilt) = (own, spoilt);
            self.emit(&foreign, sink);
        }
    }

    fn emit(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        if bytes.is_empty() {
            return;
        }
        match self.phase {
            Phase::Late => sink(Part::Late(bytes)),
            Phase::Done => sink(Part::After(bytes)),
            Phase::Body => sink(Part::Body(bytes)),
            Phase::Report => {
                let room = REPORT_BYTES_MAX.saturating_sub(self.report.len());
                self.report.extend_from_slice(&bytes[..room.min(bytes.len())]);
            }
        }
    }
}

/// What the shell says behind the exit code, the options and the directory, which it writes at once.
fn behind_answer(report: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr_iter(0, report).nth(2)?;
    report.get(end + 1..)
}

enum Found {
    Marker {
        at: usize,
        sealed: bool,
    },
    /// The bytes end in what may become a marker.
    Beginning {
        at: usize,
    },
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BITS: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;

    /// Pushes the bytes in pieces and returns (late, body, report, done).
    fn run(stream: Stream, pieces: &[&[u8]]) -> (Vec<u8>, Vec<u8>, Vec<u8>, bool) {
        let (mut late, mut body) = (Vec::new(), Vec::new());
        let mut scanner = Scanner::new(&Nonce::new(BITS), stream);
        for piece in pieces {
            scanner.push(piece, &mut |part| match part {
                Part::Late(bytes) | Part::After(bytes) => late.extend_from_slice(bytes),
                Part::Body(bytes) => body.extend_from_slice(bytes),
            });
        }
        let done = scanner.done();
        (late, body, scanner.report().to_vec(), done)
    }

    fn mark(tag: u8) -> Vec<u8> {
        let mut bytes = Nonce::new(BITS).mark().to_vec();
        bytes.push(tag);
        bytes
    }

    fn stdout_of(late: &[u8], body: &[u8], report: &[u8], after: &[u8]) -> Vec<u8> {
        [late, &mark(b'S'), body, &mark(b'E'), report, &mark(b'.'), after].concat()
    }

    #[test]
    fn the_parts_of_a_frame_come_apart() {
        let bytes = stdout_of(b"old", b"hello\n", b"0\0s\0/\0", b"next");
        let (late, body, report, done) = run(Stream::Stdout, &[&bytes]);
        assert_eq!((late.as_slice(), body.as_slice()), (&b"oldnext"[..], &b"hello\n"[..]));
        assert_eq!((report.as_slice(), done), (&b"0\0s\0/\0"[..], true));
    }

    #[test]
    fn stderr_ends_with_its_end_marker() {
        let bytes = [&mark(b'S')[..], b"oops", &mark(b'E')].concat();
        assert_eq!(run(Stream::Stderr, &[&bytes]), (vec![], b"oops".to_vec(), vec![], true));
    }

    #[test]
    fn stderr_that_was_replaced_ends_without_a_start() {
        let bytes = [b"job\n", &mark(b'E')[..], b"later"].concat();
        assert_eq!(run(Stream::Stderr, &[&bytes]), (b"job\nlater".to_vec(), vec![], vec![], true));
        let printed = [&mark(b'E')[..], b"x"].concat();
        assert_eq!(run(Stream::Stdout, &[&printed]), (printed, vec![], vec![], false), "there it is output");
    }

    #[test]
    fn a_seal_ends_a_stream_wherever_it_is() {
        let seal = Nonce::new(BITS).seal();
        assert_eq!(run(Stream::Stdout, &[b"x", &seal]), (b"x".to_vec(), vec![], vec![], true));
        let behind = [stdout_of(b"", b"all", b"", b"late"), seal.clone(), b"r".to_vec()].concat();
        assert_eq!(run(Stream::Stdout, &[&behind]), (b"later".to_vec(), b"all".to_vec(), vec![], true));
        let cut = [&mark(b'S')[..], b"half", &seal].concat();
        assert_eq!(run(Stream::Stdout, &[&cut]), (vec![], b"half".to_vec(), vec![], true));
    }

    #[test]
    fn a_marker_of_another_nonce_is_output() {
        let other = [&[MARK_BYTE][..], format!("{:032x}", BITS + 1).as_bytes(), b"E"].concat();
        let bytes = stdout_of(b"", &other, b"", b"");
        assert_eq!(run(Stream::Stdout, &[&bytes]).1, other);
    }

    proptest! {
        /// However the reads cut the stream, every byte lands where it belongs.
        #[test]
        fn cuts_do_not_matter(
            late in proptest::collection::vec(prop_oneof![Just(MARK_BYTE), Just(b'0'), any::<u8>()], 0..40),
            body in proptest::collection::vec(prop_oneof![Just(MARK_BYTE), Just(b'0'), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        ) {
            let bytes = stdout_of(&late, &body, b"report", b"later");
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (got_late, got_body, report, done) = run(Stream::Stdout, &pieces);
            prop_assert_eq!(got_late, [&late[..], b"later"].concat());
            prop_assert_eq!(got_body, body);
            prop_assert_eq!(report, b"report");
            prop_assert!(done);
        }
    }
}
