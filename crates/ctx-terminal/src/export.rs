//! What can be made of a transcript: asciicast for players, plain text, and a search in that text.

use std::io::{self, Write};
use std::time::Duration;

use ctx_session::Timestamp;
use serde::Serialize;

use super::boundary::incomplete_tail;
use super::protocol::Size;
use super::transcript::{Chunk, ChunkKind};
use ctx_text::ansi::Cleaner;

/// A longer line is searched in pieces.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// The chunks of a transcript, as [`super::open_transcript`] gives them.
pub trait Chunked: Iterator<Item = io::Result<Chunk>> {}

impl<T: Iterator<Item = io::Result<Chunk>>> Chunked for T {}

/// The line that stands for output that is not there.
fn line(note: &str) -> String {
    format!("[ctx: {note}]")
}

/// Writes asciicast v2, which `asciinema play` and web players replay.
pub fn asciicast(
    mut transcript: impl Chunked,
    started: Timestamp,
    command: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut size = Size::new(80, 24);
    let mut dropped = None;
    // A part begins with these.
    let first = loop {
        match transcript.next().transpose()? {
            Some(Chunk { kind: kind @ ChunkKind::Dropped(_), .. }) => dropped = kind.note(),
            Some(Chunk { kind: ChunkKind::Resize(first), .. }) => size = first,
            other => break other,
        }
    };
    let header = serde_json::json!({
        "version": 2, "width": size.cols, "height": size.rows,
        "timestamp": started.as_millis() / 1_000, "command": command.join(" "),
    });
    writeln!(out, "{header}")?;
    // The end of a character that a chunk has cut off is written with its beginning.
    let mut cut: Vec<u8> = Vec::new();
    if let (Some(chunk), Some(note)) = (&first, dropped) {
        event(out, chunk.at, "o", &format!("{}\r\n", line(&note)))?;
    }
    for chunk in first.map(Ok).into_iter().chain(transcript) {
        let chunk = chunk?;
        match chunk.kind {
            ChunkKind::Dropped(_) => {}
            // A marker: text would change the screen.
            ref kind @ (ChunkKind::Missing(_) | ChunkKind::Damaged) => {
                event(out, chunk.at, "m", &kind.note().unwrap_or_default())?;
            }
            ChunkKind::Resize(size) => event(out, chunk.at, "r", &format!("{}x{}", size.cols, size.rows))?,
            ChunkKind::Output(bytes) => {
                cut.extend_from_slice(&bytes);
                let rest = cut.split_off(cut.len() - incomplete_tail(&cut));
                event(out, chunk.at, "o", &String::from_utf8_lossy(&cut))?;
                cut = rest;
            }
        }
    }
    Ok(())
}

fn event(out: &mut impl Write, at: Duration, kind: &str, data: &str) -> io::Result<()> {
    let line = serde_json::to_string(&(at.as_secs_f64(), kind, data))?;
    writeln!(out, "{line}")
}

/// Writes the text of a transcript, without escape sequences.
pub fn text(transcript: impl Chunked, out: &mut impl Write) -> io::Result<()> {
    let mut cleaner = Cleaner::new();
    let mut piece = String::new();
    for chunk in transcript {
        let kind = chunk?.kind;
        if let Some(note) = kind.note() {
            cleaner.finish(&mut piece);
            let end = if piece.is_empty() { "" } else { "\n" };
            writeln!(out, "{piece}{end}{}", line(&note))?;
            piece.clear();
        }
        match kind {
            ChunkKind::Dropped(_) | ChunkKind::Missing(_) | ChunkKind::Damaged | ChunkKind::Resize(_) => {}
            ChunkKind::Output(bytes) => {
                cleaner.push(&bytes, &mut piece);
                out.write_all(piece.as_bytes())?;
                piece.clear();
            }
        }
    }
    cleaner.finish(&mut piece);
    out.write_all(piece.as_bytes())
}

/// Writes every byte that the program wrote.
pub fn raw(transcript: impl Chunked, out: &mut impl Write) -> io::Result<()> {
    for chunk in transcript {
        if let ChunkKind::Output(bytes) = chunk?.kind {
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}

/// A line of a transcript that has what was looked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// From 1, in what the transcript still has.
    pub line: u64,
    /// Seconds since the start when the line was complete.
    pub at: f64,
    pub text: String,
}

/// The lines that have a text, without regard to case; the first `limit` of them.
pub fn search(transcript: impl Chunked, wanted: &str, limit: usize) -> io::Result<Vec<Found>> {
    let wanted = wanted.to_lowercase();
    let mut found = Vec::new();
    let mut cleaner = Cleaner::new();
    let (mut line, mut rest, mut last) = (0, String::new(), Duration::ZERO);
    let mut check = |text: &str, at: Duration| {
        line += 1;
        if found.len() < limit && text.to_lowercase().contains(&wanted) {
            found.push(Found { line, at: at.as_secs_f64(), text: text.trim_end().to_owned() });
        }
    };
    for chunk in transcript {
        let chunk = chunk?;
        let ChunkKind::Output(bytes) = chunk.kind else { continue };
        cleaner.push(&bytes, &mut rest);
        last = chunk.at;
        if let Some(end) = rest.rfind('\n') {
            let open = rest.split_off(end + 1);
            rest.lines().for_each(|text| check(text, last));
            rest = open;
        }
        if rest.len() > LINE_BYTES_MAX {
            check(&rest, last);
            rest.clear();
        }
    }
    cleaner.finish(&mut rest);
    rest.lines().for_each(|text| check(text, last));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::transcript::{Chunks, Writer};
    use super::*;
    use expect_test::expect;

    fn sample() -> impl Chunked {
        sample_after(0)
    }

    fn sample_after(before: u64) -> impl Chunked {
        let mut writer = Writer::new(Vec::new(), before, Duration::ZERO, Size::new(40, 10)).unwrap();
        for (millis, bytes) in [
            (100, b"\x1b[31mred\x1b[0m caf\xc3".as_slice()),
            (250, b"\xa9\r\n"),
            (300, b"50%\r"),
            (1_200, b"100% Done\r\n\xff"),
        ] {
            writer.output(Duration::from_millis(millis), bytes).unwrap();
        }
        writer.resize(Duration::from_millis(1_300), Size::new(50, 12)).unwrap();
        Chunks::new(std::io::Cursor::new(writer.get_ref().clone()))
    }

    #[test]
    fn an_asciicast_has_the_header_the_times_and_whole_characters() {
        let mut cast = Vec::new();
        let started = Timestamp::from_millis(1_700_000_000_123);
        asciicast(sample(), started, &["sh".to_owned(), "-i".to_owned()], &mut cast).unwrap();
        expect![[r#"
            {"command":"sh -i","height":10,"timestamp":1700000000,"version":2,"width":40}
            [0.1,"o","\u001b[31mred\u001b[0m caf"]
            [0.25,"o","é\r\n"]
            [0.3,"o","50%\r"]
            [1.2,"o","100% Done\r\n�"]
            [1.3,"r","50x12"]
        "#]]
        .assert_eq(&String::from_utf8(cast).unwrap());
    }

    #[test]
    fn the_text_is_what_was_shown_and_can_be_searched() {
        let mut plain = Vec::new();
        text(sample(), &mut plain).unwrap();
        assert_eq!(String::from_utf8(plain).unwrap(), "red café\n100% Done\n\u{fffd}");
        let found = search(sample(), "done", 10).unwrap();
        assert_eq!(found, [Found { line: 2, at: 1.2, text: "100% Done".to_owned() }]);
        assert_eq!(search(sample(), "\x1b", 10).unwrap(), []);
    }

    #[test]
    fn what_is_gone_is_said() {
        let (mut plain, mut cast) = (Vec::new(), Vec::new());
        text(sample_after(7), &mut plain).unwrap();
        let said = "[ctx: 7 bytes of output before this were dropped: limits.transcript_bytes]";
        assert!(String::from_utf8(plain).unwrap().starts_with(&format!("{said}\nred")));
        asciicast(sample_after(7), Timestamp::from_millis(0), &[], &mut cast).unwrap();
        assert!(String::from_utf8(cast).unwrap().lines().nth(1).unwrap().contains(said));
    }
}
