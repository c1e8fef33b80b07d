//! What a look found: facts, notes, and problems with what to do about them.

use std::fmt;

use serde_json::json;

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Report {
    pub facts: Vec<(&'static str, String)>,
    findings: Vec<(Weight, Finding)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Good to know.
    Note,
    /// Needs attention.
    Problem,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub what: String,
    /// Relative to the root, where it is beneath it.
    pub path: Option<String>,
    pub line: Option<u64>,
    /// What to do.
    pub fix: Option<String>,
}

impl Finding {
    pub fn new(what: impl Into<String>) -> Finding {
        Finding { what: what.into(), path: None, line: None, fix: None }
    }

    pub fn at(mut self, path: impl Into<String>) -> Finding {
        self.path = Some(path.into());
        self
    }

    pub fn line(mut self, line: u64) -> Finding {
        self.line = Some(line);
        self
    }

    pub fn fix(mut self, what: impl Into<String>) -> Finding {
        self.fix = Some(what.into());
        self
    }

    pub fn as_json(&self) -> serde_json::Value {
        json!({ "what": self.what, "path": self.path, "line": self.line, "fix": self.fix })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.line) {
            (Some(path), Some(line)) => write!(f, "{path}:{line}: {}", self.what),
            (Some(path), None) => write!(f, "{path}: {}", self.what),
            (None, _) => f.write_str(&self.what),
        }
    }
}

impl Report {
    pub fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        self.facts.push((name, value.into()));
    }

    pub fn note(&mut self, finding: Finding) {
        self.findings.push((Weight::Note, finding));
    }

    pub fn problem(&mut self, finding: Finding) {
        self.findings.push((Weight::Problem, finding));
    }

    pub fn of(&self, weight: Weight) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |(has, _)| *has == weight).map(|(_, finding)| finding)
    }

    pub fn is_well(&self) -> bool {
        self.of(Weight::Problem).next().is_none()
    }
}

/// A size as people read it.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let unit = units.get(unit).copied().unwrap_or_default();
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_unit() {
        for (bytes, wanted) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")] {
            assert_eq!(size(bytes), wanted);
        }
    }
}
