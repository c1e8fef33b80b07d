//! A log as the journal keeps it: a body inside an envelope, one line each. Written and read here by hand, so
//! that the tests of the rules need no journal.

use ctx_session::conversation::{self, Change};
use ctx_session::record::{Decoded, SessionBody};
use ctx_session::{Body, Record, Session, Timestamp};
use serde_json::Value;

/// The line that a record becomes.
pub fn to_line(record: &Record) -> String {
    let body = record.body.to_json();
    let fields = body.strip_prefix('{').expect("a body is a JSON object");
    format!(r#"{{"schema_version":1,"seq":{},"time":"{}",{fields}"#, record.seq, record.time)
}

/// The record that a line holds.
pub fn from_line(line: &str) -> Record {
    let envelope: Value = serde_json::from_str(line).expect("a line is JSON");
    let time: Timestamp = envelope["time"].as_str().expect("a time").parse().expect("RFC 3339");
    let kind = envelope["type"].as_str().expect("a type");
    match Body::decode(kind, line) {
        Decoded::Known(body) => Record { seq: envelope["seq"].as_u64().expect("a seq"), time, body },
        Decoded::Unknown => panic!("unknown type in {line}"),
        Decoded::Malformed(why) => panic!("{why} in {line}"),
    }
}

/// What a daemon that starts on this log makes of it.
pub fn replay(records: &[Record]) -> Session {
    let lines: Vec<String> = records.iter().map(to_line).collect();
    let mut records = lines.iter().map(|line| from_line(line));
    let first = records.next().expect("a log has a first record");
    let Body::Session(SessionBody::Meta(meta)) = first.body else {
        panic!("the first record is not session_meta")
    };
    let mut session = Session::new(*meta, first.seq, first.time);
    for record in records {
        session.apply(&record);
    }
    session
}

/// `messages.jsonl` as the log gives it.
pub fn messages_jsonl(records: &[Record]) -> String {
    let lines = records.iter().flat_map(conversation::changes).map(|change: Change| change.to_line());
    lines.map(|line| line + "\n").collect()
}

/// A record's type as the log writes it.
pub fn kind(body: &Body) -> String {
    let json: Value = serde_json::from_str(&body.to_json()).expect("a body is JSON");
    json["type"].as_str().expect("a type").to_owned()
}
