//! What a `cage` in a project file asks for.

use std::collections::BTreeMap;

use ctx_cage::{Net, parse_mount};

use super::read::Complaints;
use super::spec::{Cage, Git};
use super::yaml::{Kind, Node};

const PROCESSES_MAX: u32 = 1_000_000;

/// Reads a `cage`; what is wrong is reported and left out.
pub(super) fn cage(complaints: &mut Complaints, node: &Node, name: &str) -> Cage {
    let known = ["net", "memory", "walltime", "processes", "tmp", "mounts", "path", "env", "git"];
    let fields = complaints.fields(node, name, &known);
    let key = |key: &str| format!("{name}.{key}");
    Cage {
        net: fields
            .get("net")
            .and_then(|node| complaints.word(node, &key("net"), &[("none", Net::None), ("host", Net::Host)])),
        memory_bytes: fields.get("memory").and_then(|node| size(complaints, node, &key("memory"))),
        walltime_ms: fields.get("walltime").and_then(|node| {
            let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
            let wanted = "a time such as 10m: a number and ms, s, m or h";
            quantity(complaints, node, &key("walltime"), &units, wanted)
        }),
        processes: fields
            .get("processes")
            .and_then(|node| complaints.whole(node, &key("processes"), 1, PROCESSES_MAX)),
        tmp_bytes: fields.get("tmp").and_then(|node| size(complaints, node, &key("tmp"))),
        mounts: texts(complaints, fields.get("mounts"), &key("mounts"), |text| {
            parse_mount(text).map_err(|error| error.to_string())
        }),
        path: texts(complaints, fields.get("path"), &key("path"), |text| {
            let is_plain = text.starts_with('/') && !text.contains([':', '\0']);
            let wrong = || format!("`{}` must be an absolute path without a colon", key("path"));
            is_plain.then(|| text.to_owned()).ok_or_else(wrong)
        }),
        env: fields.get("env").map(|node| env(complaints, node, &key("env"))).unwrap_or_default(),
        git: fields
            .get("git")
            .and_then(|node| complaints.word(node, &key("git"), &[("ro", Git::Ro), ("rw", Git::Rw)])),
    }
}

/// A list of texts, each of which means something.
fn texts<T>(
    complaints: &mut Complaints,
    node: Option<&Node>,
    name: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let Some(node) = node else { return Vec::new() };
    let mut found = Vec::new();
    for item in complaints.list(node, name) {
        let Some(text) = complaints.text(item, name) else { continue };
        match read(text) {
            Ok(value) => found.push(value),
            Err(problem) => complaints.add(item.at, problem),
        }
    }
    found
}

/// Whether a variable of the environment can be called so.
pub(super) fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn env(complaints: &mut Complaints, node: &Node, name: &str) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for (key, at, value) in complaints.entries(node, name) {
        if !is_variable(key) || ["PATH", "HOME"].contains(&key) {
            let message = format!("`{name}`: a variable has letters, digits and _, and is not PATH or HOME");
            complaints.add(at, message);
            continue;
        }
        match complaints.text(value, &format!("{name}.{key}")) {
            Some(text) if text.contains('\0') => {
                complaints.add(value.at, format!("`{name}.{key}` holds a NUL byte"))
            }
            Some(text) => drop(env.insert(key.to_owned(), text.to_owned())),
            None => {}
        }
    }
    env
}

fn size(complaints: &mut Complaints, node: &Node, name: &str) -> Option<u64> {
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)];
    quantity(complaints, node, name, &units, "a size such as 512M: a number and K, M or G")
}

/// A whole number and a unit, without a space.
fn quantity(
    complaints: &mut Complaints,
    node: &Node,
    name: &str,
    units: &[(&str, u64)],
    wanted: &str,
) -> Option<u64> {
    let text = match &node.kind {
        Kind::Text(text) | Kind::Number(text) => text.as_str(),
        Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => "",
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(word, _)| *word == unit).map(|(_, factor)| *factor);
    let amount = number.parse::<u64>().ok().filter(|number| *number > 0);
    let found = amount.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    if found.is_none() {
        complaints.add(node.at, format!("`{name}` must be {wanted}"));
    }
    found
}
