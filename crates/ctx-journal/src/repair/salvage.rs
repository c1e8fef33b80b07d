//! Finds whole records in a line that is not one.

use std::ops::Range;

use memchr::memmem;
use serde::de::IgnoredAny;

use crate::format::{self, RECORD_BYTES_MAX};

/// How every record begins that we have written.
const BEGIN: &[u8] = b"{\"schema_version\":";

/// The whole records in a line, in order. Inside a record an object of this form can stand only as a value, so
/// what follows a `:`, `,` or `[` is part of something else and is left alone.
pub(super) fn records(line: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for start in memmem::find_iter(line, BEGIN) {
        let inside = found.last().is_some_and(|before| start < before.end);
        let is_value = start.checked_sub(1).and_then(|at| line.get(at)).is_some_and(|b| b":,[".contains(b));
        if inside || is_value {
            continue;
        }
        if let Some(end) = end_of(line.get(start..).unwrap_or_default()) {
            found.push(start..start + end);
        }
    }
    found
}

/// The keys of the envelope, which stand at the beginning of a line.
const KEYS: [&str; 4] = ["schema_version", "seq", "time", "type"];
/// They stand within so many bytes.
const ENVELOPE_BYTES: usize = 160;

/// A line that is a record but for one wrong byte in a key of its envelope, as it was.
pub(super) fn respelt(line: &[u8]) -> Option<Vec<u8>> {
    let head = line.get(..ENVELOPE_BYTES).unwrap_or(line);
    KEYS.iter().find_map(|key| {
        let key = format!("\"{key}\":").into_bytes();
        let is_one_off = |piece: &[u8]| piece.iter().zip(&key).filter(|(is, was)| is != was).count() == 1;
        let at = head.windows(key.len()).position(is_one_off)?;
        let (before, rest) = line.split_at_checked(at)?;
        let text = [before, &key, rest.get(key.len()..)?].concat();
        format::parse(&text).is_ok().then_some(text)
    })
}

/// Where the record ends that the bytes begin with, if they begin with one.
fn end_of(bytes: &[u8]) -> Option<usize> {
    let within = bytes.get(..RECORD_BYTES_MAX).unwrap_or(bytes);
    let mut values = serde_json::Deserializer::from_slice(within).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let end = values.byte_offset();
    format::parse(within.get(..end)?).is_ok().then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, rest: &str) -> String {
        format!(r#"{{"schema_version":1,"seq":{seq},"time":"2026-11-15T06:00:00.000Z","type":"x"{rest}}}"#)
    }

    fn found(line: &[u8]) -> Vec<String> {
        records(line).into_iter().map(|range| String::from_utf8_lossy(&line[range]).into_owned()).collect()
    }

    #[test]
    fn records_run_together_come_apart() {
        let a = record(1, "");
        let b = record(2, r#","text":"} {\"schema_version\":1""#);
        assert_eq!(found(format!("{a}{b}").as_bytes()), [a.clone(), b.clone()]);
        assert_eq!(found(format!("{a}x{b}\0\0").as_bytes()), [a, b]);
    }

    #[test]
    fn a_wrong_byte_in_a_key_of_the_envelope_is_put_right() {
        let whole = record(7, r#","text":"\"tyqe\":""#);
        for (key, wrong) in
            [("schema_version", "schema_versiom"), ("seq", "srq"), ("time", "tjme"), ("type", "tyqe")]
        {
            let line = whole.replacen(&format!("\"{key}\":"), &format!("\"{wrong}\":"), 1);
            assert!(format::parse(line.as_bytes()).is_err(), "{line}");
            assert_eq!(respelt(line.as_bytes()).as_deref(), Some(whole.as_bytes()), "{wrong}");
        }
        assert_eq!(respelt(whole.replacen("type", "txqe", 1).as_bytes()), None, "two are not put right");
        assert_eq!(respelt(b"rubbish"), None);
    }

    #[test]
    fn what_stands_before_and_behind_a_record_is_left_out() {
        let whole = record(7, "");
        let line =
            [b"\0\0\xff{\"schema_version\":1,\"se", whole.as_bytes(), b"{\"schema_version\":1"].concat();
        assert_eq!(found(&line), [whole]);
    }

    #[test]
    fn a_value_inside_a_damaged_record_is_not_a_record() {
        let nested = record(9, "");
        let line = format!(r#"{{"schema_version":1,"seq":x,"input":{nested},"list":[{nested},{nested}]}}"#);
        assert_eq!(found(line.as_bytes()), [] as [String; 0]);
    }
}
