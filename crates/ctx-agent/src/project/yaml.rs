//! YAML as a tree in which everything knows its place. Anchors, aliases, tags and further documents have no use in a
//! project file and are complained of.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use serde_json::Value;

use super::read::Complaints;

/// Deeper than any project file.
const DEPTH_MAX: usize = 16;

/// A place in the text, both from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub line: u64,
    pub column: u64,
}

impl At {
    pub const START: At = At { line: 1, column: 1 };

    /// Line and column.
    pub fn pair(self) -> (u64, u64) {
        (self.line, self.column)
    }

    fn of(marker: Marker) -> At {
        At { line: (marker.line() as u64).max(1), column: marker.col() as u64 + 1 }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub at: At,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Null,
    Bool(bool),
    /// A number as it is written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Kind {
    /// What to call it in a message.
    pub fn what(&self) -> &'static str {
        match self {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }
}

impl Node {
    /// The same as JSON, for the schema. Keys that are no texts are written as they are.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(text) => serde_json::from_str(text.trim_start_matches('+'))
                .unwrap_or_else(|_| text.parse::<f64>().map_or(Value::Null, Value::from)),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Kind::Map(pairs) => {
                let field = |(key, value): &(Node, Node)| match &key.kind {
                    Kind::Text(name) => (name.clone(), value.to_json()),
                    _ => (key.to_json().to_string(), value.to_json()),
                };
                Value::Object(pairs.iter().map(field).collect())
            }
        }
    }
}

/// A list or a mapping that is being read.
struct Open {
    at: At,
    is_map: bool,
    /// Items; of a mapping keys and values in turn.
    items: Vec<Node>,
}

impl Open {
    fn close(self) -> Node {
        if !self.is_map {
            return Node { at: self.at, kind: Kind::List(self.items) };
        }
        let mut pairs = Vec::with_capacity(self.items.len() / 2);
        let mut items = self.items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((key, value));
        }
        Node { at: self.at, kind: Kind::Map(pairs) }
    }
}

/// Reads a text. None when it is no YAML, or none that can be gone on with; the complaints say why.
pub fn load(text: &str, complaints: &mut Complaints) -> Option<Node> {
    let mut open: Vec<Open> = Vec::new();
    let mut root: Option<Node> = None;
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(found) => found,
            Err(error) => {
                complaints.add(At::of(*error.marker()), format!("invalid YAML: {}", error.info()));
                return None;
            }
        };
        let at = At::of(span.start);
        refuse_extras(&event, at, complaints);
        let done = match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => None,
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    complaints.add(at, "a project file is one document; remove what follows `---`");
                    return root;
                }
                None
            }
            Event::Alias(_) => Some(Node { at, kind: Kind::Null }),
            Event::Scalar(text, style, _, _) => Some(Node { at, kind: scalar(&text, style) }),
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() == DEPTH_MAX => {
                complaints.add(at, "nested too deeply for a project file");
                return None;
            }
            Event::SequenceStart(..) => {
                open.push(Open { at, is_map: false, items: Vec::new() });
                None
            }
            Event::MappingStart(..) => {
                open.push(Open { at, is_map: true, items: Vec::new() });
                None
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(Open::close),
        };
        match (done, open.last_mut()) {
            (Some(node), Some(parent)) => parent.items.push(node),
            (Some(node), None) => root = Some(node),
            (None, _) => {}
        }
    }
    root
}

/// What a project file has no use for.
fn refuse_extras(event: &Event<'_>, at: At, complaints: &mut Complaints) {
    let (anchor, tagged) = match event {
        Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
        Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
        Event::Alias(_) => (1, false),
        Event::Nothing
        | Event::StreamStart
        | Event::StreamEnd
        | Event::DocumentStart(_)
        | Event::DocumentEnd
        | Event::SequenceEnd
        | Event::MappingEnd => (0, false),
    };
    if anchor > 0 {
        complaints.add(at, "anchors and aliases (& and *) are not supported; write the value out");
    }
    if tagged {
        complaints.add(at, "tags (!) are not supported; write the plain value");
    }
}

/// What a scalar means in the core schema of YAML 1.2: only a plain one can be anything but a text.
fn scalar(text: &str, style: ScalarStyle) -> Kind {
    match (style, text) {
        (ScalarStyle::Plain, "" | "~" | "null" | "Null" | "NULL") => Kind::Null,
        (ScalarStyle::Plain, "true" | "True" | "TRUE") => Kind::Bool(true),
        (ScalarStyle::Plain, "false" | "False" | "FALSE") => Kind::Bool(false),
        (ScalarStyle::Plain, text) if is_number(text) => Kind::Number(text.to_owned()),
        _ => Kind::Text(text.to_owned()),
    }
}

/// Digits are looked for before Rust parses the text: Rust also takes the words `inf` and `nan` for numbers.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let special = matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN");
    let based = |prefix: &str, radix: u32| {
        text.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_digit(radix)))
    };
    let first = unsigned.bytes().next().is_some_and(|b| b.is_ascii_digit() || b == b'.');
    let decimal = first
        && unsigned.bytes().any(|b| b.is_ascii_digit())
        && unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && unsigned.parse::<f64>().is_ok();
    special || decimal || based("0x", 16) || based("0o", 8)
}

/// The place of a byte.
pub fn place_of(bytes: &[u8], at: usize) -> At {
    let before = String::from_utf8_lossy(bytes.get(..at).unwrap_or(bytes)).into_owned();
    let in_line = before.rsplit('\n').next().unwrap_or_default();
    At { line: before.matches('\n').count() as u64 + 1, column: in_line.chars().count() as u64 + 1 }
}
