//! The markers of a frame, which show where a command's output begins and ends.
//!
//! A marker is the byte 0x1e, the frame's nonce in 32 hexadecimal digits, and a tag: `S` where the
//! command's output starts, `E` where it ends, `.` where the shell's own report ends; `X` is put behind the
//! output of a shell that has died. The shell itself writes the first three, but for the `E` of stderr: we do, when
//! stdout has ended, by which time all is in the pipe that the command printed. Mostly we write the `S` too, before we
//! send the frame. Where the pipe is empty neither is needed. The nonce is fresh for every frame, so output that merely looks like a marker is output.

/// The byte every marker begins with.
pub(crate) const MARK_BYTE: u8 = 0x1e;
/// The mark byte and 32 digits.
pub(crate) const MARK_LEN: usize = 33;
pub(crate) const START_TAG: u8 = b'S';
pub(crate) const END_TAG: u8 = b'E';
/// Ends a stream in whatever phase it is.
pub(crate) const SEAL_TAG: u8 = b'X';

/// The secret of one frame, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// From 128 random bits.
    pub fn new(bits: u128) -> Self {
        Nonce(format!("{bits:032x}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands before a command's output.
    pub fn start(&self) -> Vec<u8> {
        self.tagged(START_TAG)
    }

    /// What stands behind it.
    pub fn end(&self) -> Vec<u8> {
        self.tagged(END_TAG)
    }

    /// What ends both streams of a shell that has died.
    pub fn seal(&self) -> Vec<u8> {
        self.tagged(SEAL_TAG)
    }

    fn tagged(&self, tag: u8) -> Vec<u8> {
        [&self.mark()[..], &[tag]].concat()
    }

    pub(crate) fn mark(&self) -> [u8; MARK_LEN] {
        let mut mark = [MARK_BYTE; MARK_LEN];
        for (slot, byte) in mark.iter_mut().skip(1).zip(self.0.bytes()) {
            *slot = byte;
        }
        mark
    }
}
