//! The commented file that `ctx config init` writes: every key with its default, each commented out.

use super::Config;
use super::keys::{KEYS, SECTIONS};

pub fn template() -> String {
    let shape = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut text = String::from(
        "# Configuration of ctx. Every line below shows a default; remove the `#` to change it.\n\
         # Environment variables override this file: CTX_LIMITS_RUNNING_PER_PROJECT=16 sets\n\
         # running_per_project of [limits]. `ctx config show` prints every value and its origin.\n",
    );
    for (section, about) in SECTIONS {
        text.push_str(&format!("\n# {about}\n[{section}]\n"));
        for key in KEYS.iter().filter(|key| key.section == *section) {
            let value = match shape.get(key.section).and_then(|section| section.get(key.name)) {
                Some(serde_json::Value::Null) | None => "\"\"".to_owned(),
                Some(value) => value.to_string(),
            };
            text.push_str(&format!("\n# {}\n# {} = {value}\n", key.meaning, key.name));
        }
    }
    text
}
