//! The tools as a host lists them: names, descriptions, and the schemas of what goes in and comes out.

use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use rmcp::schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

use super::args::{CheckpointArgs, CreateArgs, ExecArgs, NoArgs, OutputArgs, RestoreArgs, SessionArgs};

/// Claude Code puts a longer result into a file unless a tool says how long its own may be.
const RESULT_CHARS_KEY: &str = "anthropic/maxResultSizeChars";
/// More than an answer ever has.
const RESULT_CHARS_MAX: u32 = 1_000_000;

/// The tools this door knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolName {
    Create,
    Exec,
    List,
    Destroy,
    Output,
    Interrupt,
    Checkpoint,
    Checkpoints,
    Restore,
}

impl ToolName {
    pub const ALL: [ToolName; 9] = [
        ToolName::Create,
        ToolName::Exec,
        ToolName::List,
        ToolName::Destroy,
        ToolName::Output,
        ToolName::Interrupt,
        ToolName::Checkpoint,
        ToolName::Checkpoints,
        ToolName::Restore,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ToolName::Create => "session_create",
            ToolName::Exec => "session_exec",
            ToolName::List => "session_list",
            ToolName::Destroy => "session_destroy",
            ToolName::Output => "session_output",
            ToolName::Interrupt => "session_interrupt",
            ToolName::Checkpoint => "session_checkpoint",
            ToolName::Checkpoints => "session_checkpoints",
            ToolName::Restore => "session_restore",
        }
    }

    pub fn parse(name: &str) -> Option<ToolName> {
        ToolName::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    fn description(self) -> &'static str {
        match self {
            ToolName::Create => {
                "Open a bash shell that keeps its state between commands, the way a terminal does. Returns a \
                 session_id for session_exec. One shell is enough for most work; open a second one to do \
                 something else at the same time. Close it with session_destroy."
            }
            ToolName::Exec => {
                "Run a bash command in a shell of session_create and get stdout, stderr, exit_code and cwd apart. cd, variables and \
                 functions carry over to the next command. Output is redacted, stripped of colours and bounded; \
                 the whole of it stays readable with session_output. A command that runs too long is stopped \
                 with exit code 124 and the shell lives on. If shell_restarted is true the command ended the \
                 shell: cwd and exported variables are as they were before it, the rest is lost. late_output is \
                 what background jobs printed since the last command."
            }
            ToolName::List => {
                "List the open shells: id, cwd, how long each has been idle, how many commands it ran, which one runs now \
                 and how many wait."
            }
            ToolName::Destroy => "Close a shell and end every process it started, background jobs included.",
            ToolName::Output => {
                "Read the whole output of an earlier command, or of one that still runs: page by page, from a line, its \
                 tail, or by pattern. Use it when a result was truncated; with grep you need not read it all."
            }
            ToolName::Interrupt => {
                "Stop the command that runs in a shell, as Ctrl-C would. The shell and its state live on."
            }
            ToolName::Checkpoint => {
                "Save the files of the shell's workspace before a risky change, so that session_restore can bring them \
                 back. Needs a shell made with `workspace`. What .gitignore names and .git are not saved."
            }
            ToolName::Checkpoints => "List the checkpoints of the shell's workspace, the oldest first.",
            ToolName::Restore => {
                "Make the files of the shell's workspace as they were at a checkpoint: files made since are removed. \
                 Ignored files are not touched. Says which files changed; `undo` is a checkpoint that brings back \
                 what was there before. With dry_run nothing is changed."
            }
        }
    }

    fn input(self) -> JsonObject {
        match self {
            ToolName::Create => {
                let mut schema = input_of::<CreateArgs>();
                // A schema that is put in by hand is taken for one that must be given.
                schema.remove("required");
                schema
            }
            ToolName::Exec => input_of::<ExecArgs>(),
            ToolName::List => input_of::<NoArgs>(),
            ToolName::Destroy | ToolName::Interrupt => input_of::<SessionArgs>(),
            ToolName::Output => input_of::<OutputArgs>(),
            ToolName::Checkpoint => input_of::<CheckpointArgs>(),
            ToolName::Checkpoints => input_of::<SessionArgs>(),
            ToolName::Restore => input_of::<RestoreArgs>(),
        }
    }

    /// The names of its arguments.
    pub fn arguments(self) -> JsonObject {
        match self.input().remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => JsonObject::new(),
        }
    }

    fn output(self) -> Value {
        let mut schema = self.answer();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.entry("hint").or_insert_with(|| text("What you may want to know."));
        }
        schema
    }

    fn answer(self) -> Value {
        match self {
            ToolName::Create => {
                object(json!({"session_id": text("Names the shell in all other tools.")}), &[])
            }
            ToolName::Exec => exec_output(),
            ToolName::List => list_output(),
            ToolName::Destroy => object(json!({"destroyed": {"type": "boolean"}}), &[]),
            ToolName::Output => object(
                json!({
                    "call": count("The command's number."),
                    "stream": {"type": "string", "enum": ["stdout", "stderr", "late_output"]},
                    "offset": count("Where this page begins, in bytes."),
                    "next_offset": count("Where the next page begins; absent at the end."),
                    "total_bytes": count("Bytes of the whole output."),
                    "lost_bytes": count("Bytes beyond what a shell may keep."),
                    "text": text("The text; with grep, the matching lines with their numbers, and marked pieces of long ones."),
                    "base64": text("The bytes, where they are not valid UTF-8."),
                    "hint": text("Why there is no text."),
                }),
                &["next_offset", "lost_bytes", "base64", "hint"],
            ),
            ToolName::Interrupt => object(
                json!({
                    "interrupted": {"type": "boolean", "description": "Whether a command was running."},
                    "call": count("Its number."),
                }),
                &["call"],
            ),
            ToolName::Checkpoint => {
                object(json!({"checkpoint_id": text("Names it in session_restore.")}), &[])
            }
            ToolName::Checkpoints => {
                let one = object(
                    json!({
                        "id": {"type": "string"},
                        "label": {"type": "string"},
                        "created": text("When it was made."),
                        "files": count("How many files it has."),
                    }),
                    &["label"],
                );
                object(json!({"checkpoints": {"type": "array", "items": one}}), &[])
            }
            ToolName::Restore => {
                let file = object(
                    json!({"path": {"type": "string"}, "change": {"type": "string", "enum": ["created", "changed", "removed"]}}),
                    &[],
                );
                let kept = object(json!({"path": {"type": "string"}, "why": {"type": "string"}}), &[]);
                object(
                    json!({
                        "restored_to": text("The checkpoint."),
                        "files_changed": {"type": "array", "items": file},
                        "files_changed_total": count("How many, where not all are named."),
                        "kept": {"type": "array", "items": kept},
                        "undo": text("A checkpoint of what was there before."),
                        "dry_run": {"type": "boolean"},
                    }),
                    &["files_changed_total", "kept", "undo", "dry_run"],
                )
            }
        }
    }

    /// The tool as `tools/list` shows it.
    pub fn tool(self) -> Tool {
        let read_only = matches!(self, ToolName::List | ToolName::Output | ToolName::Checkpoints);
        let mut annotations = ToolAnnotations::default();
        annotations.read_only_hint = Some(read_only);
        annotations.destructive_hint =
            Some(matches!(self, ToolName::Exec | ToolName::Destroy | ToolName::Restore));
        annotations.open_world_hint = Some(self == ToolName::Exec);
        let mut tool = Tool::new(self.as_str(), self.description(), Arc::new(self.input()));
        if let Value::Object(schema) = self.output() {
            tool.output_schema = Some(Arc::new(schema));
        }
        tool.annotations = Some(annotations);
        if matches!(self, ToolName::Exec | ToolName::Output) {
            let mut meta = MetaObject(JsonObject::new());
            meta.insert(RESULT_CHARS_KEY.to_owned(), json!(RESULT_CHARS_MAX));
            tool.meta = Some(meta);
        }
        tool
    }
}

fn list_output() -> Value {
    let shell = object(
        json!({
            "session_id": {"type": "string"},
            "log": text("The ULID of the shell's log."),
            "transport": {"type": "string"},
            "cwd": {"type": "string"},
            "idle_secs": count("Seconds since the last command."),
            "commands": count("Commands it has run."),
            "running": object(json!({"call": count("Its number."), "command": {"type": "string"}, "secs": count("For how long.")}), &[]),
            "waiting": count("Commands that wait for their turn."),
        }),
        &["running", "waiting"],
    );
    object(json!({"sessions": {"type": "array", "items": shell}}), &[])
}

fn exec_output() -> Value {
    let report = json!({
        "type": ["object", "null"],
        "description": "What was kept of stdout and stderr, where a budget was asked for or something was cut: for each, mode, \
            lines_total and lines_kept; chars_total and chars_kept where characters were cut.",
    });
    object(
        json!({
            "call": count("The command's number in this shell, for session_output."),
            "command": text("The command, redacted; of a long one the beginning."),
            "stdout": {"type": "string"},
            "stderr": {"type": "string"},
            "exit_code": {"type": "integer", "description": "124: timed out; 130: interrupted; 128+n: ended by signal n."},
            "duration_ms": count("How long it took."),
            "cwd": text("Where the shell is now."),
            "truncated": {"type": "boolean", "description": "Whether something was printed that is not shown."},
            "timed_out": {"type": "boolean"},
            "shell_restarted": {"type": "boolean", "description": "Whether the shell was restarted."},
            "late_output": text("What background jobs printed since the last command."),
            "budget": report,
            "hint": {"type": ["string", "null"], "description": "What you may want to do next."},
        }),
        &[],
    )
}

/// An object whose properties are all required but those named.
fn object(properties: Value, optional: &[&str]) -> Value {
    let names = properties.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
    let names: Vec<String> = names;
    let required: Vec<&String> = names.iter().filter(|name| !optional.contains(&name.as_str())).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn count(description: &str) -> Value {
    json!({"type": "integer", "description": description})
}

/// The schema of a tool's arguments, without references: some hosts do not follow them.
fn input_of<T: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut object = match schema.to_value() {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    };
    object.remove("title");
    object.remove("$schema");
    object.values_mut().for_each(|schema| {
        without_formats(schema);
        of_one_type(schema);
    });
    object.entry("type").or_insert_with(|| json!("object"));
    object.entry("properties").or_insert_with(|| json!({}));
    object
}

/// Takes out the formats that only Rust knows, `uint64` and its like: some hosts refuse a schema for them.
fn without_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
            }
            fields.values_mut().for_each(without_formats);
        }
        Value::Array(values) => values.iter_mut().for_each(without_formats),
        _ => {}
    }
}

/// Says of an argument that may be left out what it is otherwise, and of a word which ones there are. That null is taken
/// as well is not said: Gemini refuses every request of a host whose tools have a list of types, or a choice of schemas,
/// for an argument.
fn of_one_type(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(kinds)) = fields.get("type")
                && let [kind, Value::String(null)] = kinds.as_slice()
                && null == "null"
            {
                let kind = kind.clone();
                fields.insert("type".to_owned(), kind);
            }
            if let Some(Value::Array(choice)) = fields.get("anyOf")
                && let [Value::Object(one), null] = choice.as_slice()
                && *null == json!({"type": "null"})
            {
                let one = one.clone();
                fields.remove("anyOf");
                for (key, value) in one {
                    fields.entry(key).or_insert(value);
                }
            }
            let words = fields.get("oneOf").and_then(Value::as_array).and_then(|choice| words_of(choice));
            if let Some(words) = words {
                fields.remove("oneOf");
                fields.insert("type".to_owned(), json!("string"));
                fields.insert("enum".to_owned(), Value::Array(words));
            }
            fields.values_mut().for_each(of_one_type);
        }
        Value::Array(values) => values.iter_mut().for_each(of_one_type),
        _ => {}
    }
}

/// The words of a choice that is one between words.
fn words_of(choice: &[Value]) -> Option<Vec<Value>> {
    let words = choice.iter().map(|one| match (one.get("const"), one.get("enum")) {
        (Some(word), _) => Some(vec![word.clone()]),
        (None, Some(Value::Array(words))) => Some(words.clone()),
        (None, _) => None,
    });
    words.collect::<Option<Vec<_>>>().map(|words| words.concat())
}

#[cfg(test)]
mod tests {
    use super::super::args::PAGE_BYTES_MAX;
    use super::*;
    use ctx_host::ShellLimits;
    use ctx_text::budget::CONTEXT_MAX;
    use ctx_text::pattern::PATTERN_BYTES_MAX;

    #[test]
    fn every_tool_has_both_schemas_and_names_what_it_knows() {
        for name in ToolName::ALL {
            let tool = name.tool();
            assert_eq!(tool.input_schema.get("additionalProperties"), Some(&json!(false)), "{name:?}");
            assert_eq!(tool.input_schema.get("type"), Some(&json!("object")), "{name:?}");
            assert!(tool.output_schema.is_some(), "{name:?}");
            assert!(tool.description.is_some_and(|text| text.len() > 40), "{name:?}");
            let input = serde_json::to_string(&tool.input_schema).unwrap();
            assert!(!input.contains("$ref") && !input.contains("$schema"), "{name:?}");
            assert_eq!(ToolName::parse(name.as_str()), Some(name));
        }
    }

    /// Gemini CLI and others check arguments before they send them.
    #[test]
    fn only_what_must_be_given_is_required() {
        let required = |tool: ToolName| tool.input().get("required").cloned().unwrap_or_default();
        assert_eq!(required(ToolName::Create), Value::Null);
        assert_eq!(required(ToolName::Exec), json!(["session_id", "command"]));
        assert_eq!(required(ToolName::Output), json!(["session_id", "call"]));
    }

    /// What a host puts into every conversation.
    #[test]
    fn the_list_of_tools_is_short_and_can_be_found_by_the_word_bash() {
        let list = serde_json::to_string(&ToolName::ALL.map(ToolName::tool)).unwrap();
        assert!(list.len() < 16_000, "{} bytes", list.len());
        assert_eq!(list.matches("Which lines to keep").count(), 1, "a budget is described once");
        for tool in [ToolName::Create, ToolName::Exec] {
            assert!(tool.description().contains("bash"), "{tool:?}");
        }
    }

    /// Every object of a schema, however deep.
    fn visit(schema: &Value, see: &mut dyn FnMut(&JsonObject)) {
        match schema {
            Value::Object(fields) => {
                see(fields);
                fields.values().for_each(|value| visit(value, see));
            }
            Value::Array(values) => values.iter().for_each(|value| visit(value, see)),
            _ => {}
        }
    }

    #[test]
    fn every_argument_says_what_it_is_for_at_any_depth() {
        let mut seen = Vec::new();
        for name in ToolName::ALL {
            visit(&Value::Object(name.input()), &mut |object| {
                let properties = object.get("properties").and_then(Value::as_object).into_iter().flatten();
                for (argument, schema) in properties {
                    assert!(schema.get("description").is_some(), "{name:?} {argument}: {schema}");
                    seen.push(argument.clone());
                }
            });
        }
        assert!(["keep", "mode", "context"].iter().all(|nested| seen.iter().any(|one| one == nested)));
    }

    #[test]
    fn no_schema_has_a_format_that_json_schema_does_not_know() {
        for tool in ToolName::ALL {
            for schema in [Value::Object(tool.input()), tool.output()] {
                visit(&schema, &mut |object| assert_eq!(object.get("format"), None, "{tool:?}: {object:?}"));
            }
        }
    }

    /// Gemini knows no other.
    #[test]
    fn every_argument_is_of_one_type() {
        for tool in ToolName::ALL {
            visit(&Value::Object(tool.input()), &mut |object| {
                let is_of_one = |schema: &Value| schema.get("type").is_some_and(Value::is_string);
                let properties = object.get("properties").and_then(Value::as_object).into_iter().flatten();
                for (argument, schema) in properties {
                    assert!(is_of_one(schema), "{tool:?} {argument}: {schema}");
                    assert!(schema["type"] != "array" || is_of_one(&schema["items"]), "{tool:?}: {schema}");
                }
                for word in ["anyOf", "oneOf", "allOf", "default"] {
                    assert_eq!(object.get(word), None, "{tool:?}: {object:?}");
                }
            });
        }
    }

    #[test]
    fn the_bounds_in_the_schemas_are_those_that_hold() {
        let limits = ShellLimits::default();
        let timeout = limits.timeout_max.as_secs();
        for (tool, path, max) in [
            (ToolName::Create, "/properties/timeout_secs", timeout),
            (ToolName::Exec, "/properties/timeout_secs", timeout),
            (ToolName::Output, "/properties/limit", PAGE_BYTES_MAX),
        ] {
            let schema = Value::Object(tool.input());
            let found = schema.pointer(path).unwrap();
            assert_eq!(found["maximum"].as_f64(), Some(max as f64), "{tool:?} {found}");
            assert!(found["description"].as_str().unwrap().contains(&format!("at most {max}")), "{found}");
        }
        let default = format!("is {} unless", limits.timeout_default.as_secs());
        let schema = Value::Object(ToolName::Exec.input());
        assert!(schema["properties"]["timeout_secs"]["description"].as_str().unwrap().contains(&default));
        let mut context = None;
        visit(&schema, &mut |object| {
            let found = object.get("properties").and_then(|properties| properties.get("context"));
            context = found.cloned().or(context.take());
        });
        assert_eq!(context.unwrap()["maximum"], CONTEXT_MAX);
        let longest = format!("at most {PATTERN_BYTES_MAX} bytes");
        for (tool, argument) in [(ToolName::Exec, "pattern"), (ToolName::Output, "grep")] {
            let mut found = Vec::new();
            visit(&Value::Object(tool.input()), &mut |object| {
                found.extend(
                    object.get("properties").and_then(|properties| properties.get(argument)).cloned(),
                );
            });
            assert_eq!(found.len(), 1, "{tool:?}");
            assert!(found[0]["description"].as_str().unwrap().contains(&longest), "{tool:?} {found:?}");
        }
    }

    #[test]
    fn no_argument_reaches_what_is_the_operator_s() {
        let known =
            ToolName::ALL.map(|name| serde_json::to_string(&name.input()["properties"]).unwrap()).join(" ");
        for word in ["limit_", "shells_max", "idle", "log", "policy", "spool", "state", "program", "path"] {
            assert!(!known.contains(&format!("\"{word}")), "{word}");
        }
    }
}
