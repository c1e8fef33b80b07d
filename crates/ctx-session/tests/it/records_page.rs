//! `docs/records.md` is made from the tables of records and their samples. `UPDATE_EXPECT=1 cargo test -p ctx-session`
//! writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write;

use ctx_session::project::ProjectBody;
use ctx_session::record::{Body, Decoded, Kind};
use expect_test::expect_file;
use serde_json::{Map, Value};

use crate::records::samples;

const INTRO: &str = "\
# Records

Every kind of record, made from the tables in `crates/ctx-session/src/record/table.rs` and `project/record.rs` by the
test `records_page`. Each line of a log also has `schema_version`, `seq` and `time`, and `more` where the next line
belongs to the same command. A reader ignores fields and types that it does not know. Events are the names that the
audit log ([audit.md](audit.md)) and the WebSocket have for a record.
";

/// Project records, with each optional field both there and not.
const PROJECT_SAMPLES: &[&str] = &[
    r#"{"type":"project_added","project":"music","directory":"/home/tom/music","owner":1000,"by":1000}"#,
    r#"{"type":"project_added","project":"notes","directory":"/home/tom/notes","owner":1000,"by":1000,"plain":true}"#,
    r#"{"type":"project_moved","directory":"/home/tom/tunes","by":1000}"#,
    r#"{"type":"project_removed","by":1000}"#,
    r#"{"type":"project_trusted","dsl_hash":"aa11","by":1000}"#,
    r#"{"type":"project_read","dsl_hash":"aa11","dsl_snapshot":"bb22"}"#,
    r#"{"type":"requested","request":"ee55","asked":"ff66","issue_id":"000000000000000000EC000003"}"#,
    r#"{"type":"requested","request":"ee55","asked":"ff66"}"#,
    r#"{"type":"issue_created","issue_id":"000000000000000000EC000003","number":1,"title":"Tune it","body":"All of it","criteria":[{"text":"it hums","done":false}],"by":1000}"#,
    r#"{"type":"issue_created","issue_id":"000000000000000000EC000003","number":1,"title":"Tune it","by":1000}"#,
    r#"{"type":"issue_changed","issue_id":"000000000000000000EC000003","title":"Tune","body":"It","criteria":[],"status":"in_progress","by":1000,"session_id":"000000000000000000EC000001"}"#,
    r#"{"type":"issue_changed","issue_id":"000000000000000000EC000003","by":1000}"#,
    r#"{"type":"issue_claimed","issue_id":"000000000000000000EC000003","session_id":"000000000000000000EC000001","by":1000}"#,
    r#"{"type":"todo_added","issue_id":"000000000000000000EC000003","todo_id":"000000000000000000EC000004","text":"strings","by":1000,"session_id":"000000000000000000EC000001"}"#,
    r#"{"type":"todo_added","issue_id":"000000000000000000EC000003","todo_id":"000000000000000000EC000004","text":"strings","by":1000}"#,
    r#"{"type":"todo_changed","issue_id":"000000000000000000EC000003","todo_id":"000000000000000000EC000004","status":"done","note":"all six","by":1000,"session_id":"000000000000000000EC000001"}"#,
    r#"{"type":"todo_changed","issue_id":"000000000000000000EC000003","todo_id":"000000000000000000EC000004","by":1000}"#,
];

fn fields_of(json: &str) -> Map<String, Value> {
    serde_json::from_str(json).unwrap()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The rows of a kind's fields, as its samples have them.
fn field_rows(samples: &[Map<String, Value>]) -> String {
    let names: BTreeSet<&String> = samples.iter().flat_map(Map::keys).collect();
    let mut rows = String::new();
    for name in names.into_iter().filter(|name| *name != "type") {
        let types: BTreeSet<&str> =
            samples.iter().filter_map(|fields| fields.get(name)).map(type_of).collect();
        let types: Vec<&str> = types.into_iter().collect();
        let optional =
            if samples.iter().all(|fields| fields.contains_key(name)) { "" } else { "may be absent" };
        writeln!(rows, "| `{name}` | {} | {optional} |", types.join(" or ")).unwrap();
    }
    rows
}

fn section(page: &mut String, kinds: &[Kind], samples: &[String]) {
    let mut group = "";
    for kind in kinds {
        if group != kind.group {
            group = kind.group;
            writeln!(page, "\n### {group}").unwrap();
        }
        let all: Vec<Map<String, Value>> =
            samples.iter().map(|json| fields_of(json)).filter(|fields| fields["type"] == kind.name).collect();
        let example = samples.iter().filter(|json| fields_of(json)["type"] == kind.name);
        let example = example.max_by_key(|json| fields_of(json).len()).unwrap();
        writeln!(page, "\n#### `{}`\n", kind.name).unwrap();
        let events: Vec<String> = kind.events.iter().map(|event| format!("`{}`", event.as_str())).collect();
        let events = if events.is_empty() { "none".to_owned() } else { events.join(", ") };
        writeln!(page, "Version {}. Events: {events}.\n", kind.version).unwrap();
        let rows = field_rows(&all);
        if !rows.is_empty() {
            writeln!(page, "| field | type | |\n|---|---|---|\n{rows}").unwrap();
        }
        writeln!(page, "```json\n{example}\n```").unwrap();
    }
}

#[test]
fn the_page_of_records_is_what_the_tables_say() {
    let mut page = INTRO.to_owned();
    let bodies: Vec<String> = samples().iter().map(Body::to_json).collect();
    page.push_str("\n## A session's log\n");
    section(&mut page, Body::KINDS, &bodies);
    page.push_str("\n## A project's log\n");
    let projects = PROJECT_SAMPLES.iter().map(|line| {
        let kind = fields_of(line)["type"].as_str().unwrap().to_owned();
        let Decoded::Known(body) = ProjectBody::decode(&kind, line) else { panic!("{line}") };
        assert_eq!(body.to_json(), *line, "a sample is written as it is read");
        body.to_json()
    });
    section(&mut page, ProjectBody::KINDS, &projects.collect::<Vec<_>>());
    expect_file!["../../../../docs/records.md"].assert_eq(&page);
}

#[test]
fn every_sample_s_event_is_in_the_row_of_its_kind() {
    for body in samples() {
        let kind = Body::kind(body.name()).unwrap();
        let event = body.event();
        assert!(event.is_none_or(|event| kind.events.contains(&event)), "{body:?}");
        assert_eq!(event.is_none(), kind.events.is_empty(), "{body:?}");
    }
}
