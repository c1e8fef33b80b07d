//! Which crate may use which: dependencies point down only, and some crates keep some libraries out.

use std::path::Path;

use crate::Complaint;

/// A crate, the crates of ours it may use, and libraries it must not know.
pub struct Rule {
    pub name: &'static str,
    pub may_use: &'static [&'static str],
    pub must_not_know: &'static [&'static str],
}

const ASYNC: &[&str] = &["tokio", "tokio-util", "futures-util", "async-trait"];
const ASYNC_AND_HTTP: &[&str] = &["tokio", "tokio-util", "futures-util", "axum", "hyper", "rmcp"];

/// The drawing of `ARCHITECTURE.md` as data.
pub const RULES: &[Rule] = &[
    Rule {
        name: "ctx-session",
        may_use: &[],
        must_not_know: &["tokio", "rustix", "libc", "rand", "axum", "rusqlite", "tracing"],
    },
    Rule { name: "ctx-journal", may_use: &["ctx-session"], must_not_know: ASYNC_AND_HTTP },
    Rule { name: "ctx-views", may_use: &["ctx-session", "ctx-journal"], must_not_know: ASYNC_AND_HTTP },
    Rule {
        name: "ctx-text",
        may_use: &[],
        must_not_know: &["tokio", "rustix", "nix", "libc", "rand", "axum", "rusqlite", "tracing"],
    },
    Rule { name: "ctx-cage", may_use: &["ctx-session"], must_not_know: ASYNC_AND_HTTP },
    Rule { name: "ctx-snapshot", may_use: &["ctx-session", "ctx-cage"], must_not_know: ASYNC_AND_HTTP },
    Rule {
        name: "ctx-terminal",
        may_use: &["ctx-session", "ctx-text", "ctx-cage"],
        must_not_know: &["axum", "hyper", "rmcp", "rusqlite"],
    },
    Rule {
        name: "ctx-host",
        may_use: &["ctx-session", "ctx-text", "ctx-cage", "ctx-snapshot"],
        must_not_know: &["axum", "hyper", "rmcp", "rusqlite", "seccompiler"],
    },
    Rule {
        name: "ctx-agent",
        may_use: &["ctx-session", "ctx-text", "ctx-cage", "ctx-snapshot", "ctx-terminal", "ctx-host"],
        // It is a client of MCP servers.
        must_not_know: &["axum", "rusqlite"],
    },
    Rule {
        name: "ctx-engine",
        may_use: &["ctx-session", "ctx-journal", "ctx-views"],
        must_not_know: &["axum", "hyper", "rmcp", "rusqlite"],
    },
    Rule { name: "ctx-interop", may_use: &["ctx-session"], must_not_know: ASYNC_AND_HTTP },
    Rule { name: "ctx-api", may_use: &["ctx-session"], must_not_know: ASYNC },
    Rule {
        name: "ctx-doors",
        may_use: &[
            "ctx-session",
            "ctx-engine",
            "ctx-api",
            "ctx-text",
            "ctx-snapshot",
            "ctx-terminal",
            "ctx-host",
        ],
        must_not_know: &["rusqlite"],
    },
    Rule {
        name: "ctx",
        may_use: &[
            "ctx-session",
            "ctx-journal",
            "ctx-views",
            "ctx-text",
            "ctx-cage",
            "ctx-snapshot",
            "ctx-terminal",
            "ctx-host",
            "ctx-agent",
            "ctx-engine",
            "ctx-api",
            "ctx-doors",
            "ctx-interop",
        ],
        must_not_know: &["rusqlite"],
    },
    Rule { name: "testkit", may_use: &["ctx-session", "ctx-journal", "ctx-api"], must_not_know: &[] },
    Rule { name: "xtask", may_use: &[], must_not_know: &[] },
];

/// Complains of every manifest that breaks a rule, and of crates that have none.
pub fn check(root: &Path) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let Ok(entries) = std::fs::read_dir(root.join("crates")) else { return complaints };
    for entry in entries.flatten() {
        let path = entry.path().join("Cargo.toml");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let complain = |message: String| Complaint { path: path.clone(), line: 0, message };
        match text.parse::<toml::Table>() {
            Ok(manifest) => complaints.extend(check_manifest(&manifest).into_iter().map(complain)),
            Err(error) => complaints.push(complain(error.to_string())),
        }
    }
    complaints.sort();
    complaints
}

fn check_manifest(manifest: &toml::Table) -> Vec<String> {
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    let name = name.unwrap_or_default();
    let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
        return vec![format!("`{name}` has no rule in xtask's edges: say what it may use")];
    };
    let dependencies = manifest.get("dependencies").and_then(|table| table.as_table());
    let names = dependencies.into_iter().flat_map(|table| table.keys());
    let mut complaints = Vec::new();
    for dependency in names {
        let ours = RULES.iter().any(|rule| rule.name == dependency);
        if ours && !rule.may_use.contains(&dependency.as_str()) {
            complaints.push(format!("`{name}` may not use `{dependency}`: dependencies point down only"));
        }
        if rule.must_not_know.contains(&dependency.as_str()) {
            complaints.push(format!("`{name}` must not know `{dependency}`"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(manifest: &str) -> Vec<String> {
        check_manifest(&manifest.parse().unwrap())
    }

    #[test]
    fn an_edge_that_points_up_is_a_complaint() {
        let manifest =
            "[package]\nname = \"ctx-journal\"\n[dependencies]\nctx-session = \"1\"\nctx-engine = \"1\"";
        assert_eq!(
            complaints(manifest),
            ["`ctx-journal` may not use `ctx-engine`: dependencies point down only"]
        );
    }

    #[test]
    fn a_library_that_a_crate_must_not_know_is_a_complaint() {
        let manifest = "[package]\nname = \"ctx-session\"\n[dependencies]\ntokio = \"1\"";
        assert_eq!(complaints(manifest), ["`ctx-session` must not know `tokio`"]);
    }
}
