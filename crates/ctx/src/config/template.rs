//! The commented file that `ctx config init` writes: every key with its default, each commented out.

use super::Config;
use super::keys::{KEYS, Key, SECTIONS};

/// Providers have names of the operator's own, so there are no defaults to show.
const PROVIDERS: &str = "
# Providers of models have a section [models.NAME] each. `ctx model add` writes one; docs/guides/models.md has the keys.
# MCP servers have a section [mcp.NAME] each. `ctx mcp-server add` writes one; docs/guides/mcp-servers.md has the keys.
";

pub fn template() -> String {
    let shape = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut text = String::from(
        "# Configuration of ctx. Every line below shows a default; remove the `#` to change it.\n\
         # Environment variables override this file: CTX_LIMITS_RUNNING_PER_PROJECT=16 sets\n\
         # running_per_project of [limits]. `ctx config show` prints every value and its origin.\n",
    );
    let keys_of = |section: &str| {
        let line = |key: &Key| {
            let value = match shape.pointer(&key.pointer()) {
                Some(serde_json::Value::Null) | None => "\"\"".to_owned(),
                Some(value) => value.to_string(),
            };
            format!("\n# {}\n# {} = {value}\n", key.meaning, key.name)
        };
        KEYS.iter().filter(|key| key.section == section).map(line).collect::<String>()
    };
    // In TOML what belongs to no section stands above all of them.
    text.push_str(&keys_of(""));
    for (section, about) in SECTIONS {
        text.push_str(&format!("\n# {about}\n[{section}]\n{}", keys_of(section)));
    }
    text.push_str(PROVIDERS);
    text
}
