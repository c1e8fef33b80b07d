//! The format of a log: one record a line, an envelope around a body.
//!
//! `{"schema_version":1,"seq":4,"time":"…","type":"user",<body fields>,"more":true}` and LF. Keys stand in this
//! order when we write them; readers accept any order. `more` says that the command goes on with the next
//! record. `batch` stands on the last record of a write of several records and counts them: when a crash
//! leaves a hole in that write, its end does not pass for a command of its own.

use std::borrow::Cow;
use std::fmt::Write as _;

use ctx_session::Timestamp;
use serde::Deserialize;

/// The version of the envelope that this code writes, and the newest it reads.
///
/// Changelog (each version has a golden log in `tests/golden/` that must stay readable):
/// - 1: `schema_version`, `seq`, `time`, `type`, body, `more`, `batch`; `through` in a record of type `lost`.
pub const FORMAT_VERSION: u64 = 1;

/// The type of the record that a repair puts where records are lost. It stands for all from its own seq to
/// `through`, so that the seqs after it keep their place.
pub const LOST: &str = "lost";

/// A longer line is not a record: it is skipped without being kept in memory.
pub const RECORD_BYTES_MAX: usize = 8 << 20;

/// The records of one command, or of one write, together.
pub const COMMAND_BYTES_MAX: usize = 32 << 20;
/// The largest log that is opened: far more than any conversation needs, and little enough to be read in bounded time if
/// it is one large hole.
pub(crate) const LOG_BYTES_MAX: u64 = 16 << 30;

const _: () = assert!(RECORD_BYTES_MAX < COMMAND_BYTES_MAX);

/// What the envelope may add to a body.
const ENVELOPE_BYTES_MAX: usize = 160;

/// The envelope of a line, borrowed from it.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    pub schema_version: u64,
    pub seq: u64,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(default)]
    pub more: bool,
    #[serde(default)]
    batch: Option<u64>,
}

impl Envelope<'_> {
    /// How many records the write had that this record ends.
    pub fn batch(&self) -> u64 {
        self.batch.unwrap_or(1).clamp(1, self.seq.saturating_add(1))
    }
}

/// Why a line is not a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotARecord {
    Bad(String),
    NewerVersion(u64),
}

/// Reads a line, without its LF.
pub(crate) fn parse(line: &[u8]) -> Result<(Envelope<'_>, Timestamp, &str), NotARecord> {
    let bad = |reason: &str| NotARecord::Bad(reason.to_owned());
    if line.is_empty() {
        return Err(bad("an empty line"));
    }
    // Serde would take an array for the envelope as well.
    if line.trim_ascii_start().first() == Some(&b'[') {
        return Err(bad("not an object"));
    }
    let text = std::str::from_utf8(line).map_err(|_| bad("not UTF-8"))?;
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| match newer_version(text) {
        Some(version) => NotARecord::NewerVersion(version),
        None => NotARecord::Bad(plain_reason(&error, line)),
    })?;
    if envelope.schema_version > FORMAT_VERSION {
        return Err(NotARecord::NewerVersion(envelope.schema_version));
    }
    if envelope.schema_version == 0 {
        return Err(bad("`schema_version` is out of range"));
    }
    if envelope.seq == u64::MAX {
        return Err(bad("seq is out of range"));
    }
    let time = envelope.time.parse().map_err(|_| bad("`time` is not a time"))?;
    Ok((envelope, time, text))
}

/// The version of a line that is whole and says that it is of a newer one, whatever else that has changed.
fn newer_version(text: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u64,
    }
    let found = serde_json::from_str::<Version>(text).ok()?;
    (found.schema_version > FORMAT_VERSION).then_some(found.schema_version)
}

/// A record of a newer format as it would be with our version, if it is one of ours then.
pub(crate) fn with_our_version(line: &[u8]) -> Option<Vec<u8>> {
    const KEY: &[u8] = b"{\"schema_version\":";
    let rest = line.strip_prefix(KEY)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ours = [KEY, FORMAT_VERSION.to_string().as_bytes(), rest.get(digits..)?].concat();
    parse(&ours).is_ok().then_some(ours)
}

/// A line of another version as record `seq` of ours. Where that is the next record of a command that began as ours, the
/// version is damaged: a command is written by one ctx.
pub(crate) fn as_record_of_ours(line: &[u8], seq: u64) -> Option<Vec<u8>> {
    let ours = with_our_version(line).filter(|ours| ours.len() == line.len())?;
    let is_it = parse(&ours).is_ok_and(|(envelope, _, _)| envelope.seq == seq);
    is_it.then_some(ours)
}

/// The seq that is due after a record: the next one, unless the record stands for several that are lost.
pub(crate) fn seq_after(kind: &str, seq: u64, text: &str) -> u64 {
    #[derive(Deserialize)]
    struct Lost {
        through: u64,
    }
    let lost = if kind == LOST { serde_json::from_str::<Lost>(text).ok() } else { None };
    let through = lost.map(|lost| lost.through).filter(|through| (seq..u64::MAX).contains(through));
    through.unwrap_or(seq) + 1
}

fn plain_reason(error: &serde_json::Error, line: &[u8]) -> String {
    if memchr::memchr(0, line).is_some() {
        "NUL bytes".to_owned()
    } else if error.is_eof() {
        "cut off".to_owned()
    } else if memchr::memmem::find(line, b"}{\"schema_version\":").is_some() {
        "two records run together".to_owned()
    } else {
        // The line number inside a line is always 1; what stands before it is what helps.
        let text = error.to_string();
        text.split(" at line ").next().unwrap_or(&text).to_owned()
    }
}

/// What a body is checked for before it is written: the same parser that will read it back.
#[derive(Deserialize)]
struct BodyCheck<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    schema_version: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    seq: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    time: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    more: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    batch: Option<serde::de::IgnoredAny>,
}

/// Refuses a body that could not be read back: not one line of JSON, no `type` in front, a key of the envelope.
pub(crate) fn check_body(body: &str) -> Result<(), String> {
    if !body.starts_with("{\"type\":\"") || !body.ends_with('}') {
        return Err("it is not an object that begins with `type`".to_owned());
    }
    if memchr::memchr(b'\n', body.as_bytes()).is_some() {
        return Err("it is more than one line".to_owned());
    }
    if body.len() > RECORD_BYTES_MAX - ENVELOPE_BYTES_MAX {
        return Err(format!("it has {} bytes, and {RECORD_BYTES_MAX} is the most for a record", body.len()));
    }
    let check: BodyCheck<'_> =
        serde_json::from_str(body).map_err(|error| format!("it is not good JSON: {error}"))?;
    let reserved = [
        ("schema_version", check.schema_version.is_some()),
        ("seq", check.seq.is_some()),
        ("time", check.time.is_some()),
        ("more", check.more.is_some()),
        ("batch", check.batch.is_some()),
    ];
    if let Some((key, _)) = reserved.iter().find(|(_, there)| *there) {
        return Err(format!("`{key}` belongs to the envelope"));
    }
    if check.kind.is_empty() {
        return Err("`type` is empty".to_owned());
    }
    Ok(())
}

/// How many bytes the records of a command take at most.
pub(crate) fn encoded_len_max(bodies: &[String]) -> usize {
    bodies.iter().map(|body| body.len() + ENVELOPE_BYTES_MAX).sum()
}

/// The times of a command's records.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Times<'t> {
    /// One for all: the command's own.
    One(Timestamp),
    /// One for each, as a source of records has them.
    Each(&'t [Timestamp]),
}

impl Times<'_> {
    fn of(&self, index: usize) -> Timestamp {
        match self {
            Times::One(time) => *time,
            Times::Each(times) => times.get(index).or(times.last()).copied().unwrap_or_default(),
        }
    }
}

/// Writes checked bodies as the lines of one command, the first with `first` as its seq.
pub(crate) fn encode(out: &mut Vec<u8>, first: u64, times: Times<'_>, bodies: &[String]) {
    let mut head = String::with_capacity(ENVELOPE_BYTES_MAX);
    for (index, body) in bodies.iter().enumerate() {
        let seq = first + index as u64;
        head.clear();
        let time = times.of(index);
        // Writing to a String does not fail.
        let _ = write!(head, "{{\"schema_version\":{FORMAT_VERSION},\"seq\":{seq},\"time\":\"{time}\",");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body.get(1..body.len() - 1).unwrap_or_default().as_bytes());
        let more = index + 1 < bodies.len();
        out.extend_from_slice(if more { b",\"more\":true}\n" } else { b"}\n" });
    }
}

/// Marks the last line of a write with how many records it has.
pub(crate) fn mark_batch(out: &mut Vec<u8>, records: u64) {
    if records > 1 && out.ends_with(b"}\n") {
        out.truncate(out.len() - 2);
        out.extend_from_slice(format!(",\"batch\":{records}}}\n").as_bytes());
    }
}

/// The beginning of a line for a message: short, and with what is not text replaced.
pub(crate) fn excerpt(line: &[u8]) -> String {
    let start = line.get(..120).unwrap_or(line);
    String::from_utf8_lossy(start).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time() -> Timestamp {
        Timestamp::from_millis(1_794_722_400_000)
    }

    #[test]
    fn a_command_is_written_in_the_documented_form() {
        let bodies = [
            r#"{"type":"user","text":"hi"}"#.to_owned(),
            r#"{"type":"run_created","turn_id":"1"}"#.to_owned(),
        ];
        let mut out = Vec::new();
        encode(&mut out, 1, Times::One(time()), &bodies);
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            concat!(
                r#"{"schema_version":1,"seq":1,"time":"2026-11-15T06:00:00.000Z","type":"user","text":"hi","more":true}"#,
                "\n",
                r#"{"schema_version":1,"seq":2,"time":"2026-11-15T06:00:00.000Z","type":"run_created","turn_id":"1"}"#,
                "\n"
            )
        );
        mark_batch(&mut out, 2);
        assert!(out.ends_with(b"\"turn_id\":\"1\",\"batch\":2}\n"));
    }

    #[test]
    fn the_envelope_is_read_in_any_order() {
        let line = br#"{"type":"x","more":true,"time":"2026-11-15T06:00:00.000Z","later":[1],"seq":7,"schema_version":1}"#;
        let (envelope, at, _) = parse(line).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!((envelope.seq, &*envelope.kind, envelope.more, at), (7, "x", true, time()));
    }

    #[test]
    fn what_is_not_a_record_is_refused_with_its_reason() {
        let good = r#"{"schema_version":1,"seq":7,"time":"2026-11-15T06:00:00.000Z","type":"x"}"#;
        let reason = |line: &[u8]| match parse(line) {
            Err(NotARecord::Bad(reason)) => reason,
            Err(NotARecord::NewerVersion(version)) => format!("version {version}"),
            Ok(_) => "good".to_owned(),
        };
        assert_eq!(reason(good.as_bytes()), "good");
        assert_eq!(reason(b""), "an empty line");
        assert_eq!(reason(b"\xff\xfe"), "not UTF-8");
        assert_eq!(reason(b"\0\0\0"), "NUL bytes");
        assert_eq!(reason(&good.as_bytes()[..30]), "cut off");
        assert_eq!(reason(format!("{good}{good}").as_bytes()), "two records run together");
        assert_eq!(reason(good.replace(":1,", ":2,").as_bytes()), "version 2");
        assert_eq!(reason(br#"{"schema_version":3,"at":1,"kind":["x"]}"#), "version 3");
        assert_eq!(reason(br#"{"schema_version":3,"at":1,"kin"#), "cut off");
        assert_eq!(reason(good.replace("2026-", "x026-").as_bytes()), "`time` is not a time");
        assert_eq!(reason(br#"[1,7,"2026-11-15T06:00:00.000Z","x"]"#), "not an object");
    }

    #[test]
    fn a_body_that_could_not_be_read_back_is_refused() {
        assert_eq!(check_body(r#"{"type":"x","a":{"seq":1}}"#), Ok(()));
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"a":1,"type":"x"}"#,
            r#"{"type":"x""#,
            r#"{"type":"x"}}"#,
            r#"{"type":"x","type":"y"}"#,
            r#"{"type":"","a":1}"#,
            r#"{"type":"x","seq":1}"#,
            r#"{"type":"x","more":true}"#,
            "{\"type\":\"x\",\n\"a\":1}",
        ] {
            assert!(check_body(bad).is_err(), "{bad}");
        }
        assert!(check_body(&format!(r#"{{"type":"x","a":"{}"}}"#, "y".repeat(RECORD_BYTES_MAX))).is_err());
    }
}
