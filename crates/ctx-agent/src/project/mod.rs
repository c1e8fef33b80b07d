//! Project files: `.ctx/project.yaml` in a project's directory, read strictly, with a place for every complaint.
//!
//! `yaml` makes a tree with positions, `read` takes it apart, `parse`, `cage` and `mcp` say what the keys mean (`spec`), `files` reads
//! the file and its prompts from a directory and makes the snapshot that a session keeps, `grants` says what of it needs
//! the operator's agreement, `plain` is the agent of a directory without a file. Nothing here knows registries or sessions.

mod cage;
mod files;
mod grants;
mod mcp;
mod parse;
mod plain;
mod read;
mod show;
mod spec;
pub mod template;
mod yaml;

pub use ctx_cage::Net;
pub use files::{Found, Looked, Snapshot, Trust, in_order, looked_like, read_project};
pub use grants::grants;
pub use mcp::read_mcp;
pub use parse::{Named, Parsed, PromptAt, as_json, parse};
pub use plain::{PlainAgent, show_plain};
pub use show::{Shown, directory_of, forget, show, shown_for};
pub use spec::{
    Cage, Git, Given, Host, McpServer, OWN, Plays, Primary, ProjectLimits, ProjectSpec, Subagent, TOOLS,
};
pub use yaml::At;

/// Where the project file is, in a project's directory.
pub const PROJECT_FILE: &str = ".ctx/project.yaml";

/// Where an agent sees its project.
pub const WORK: &str = "/work";

/// The JSON schema of the file, as published.
pub const SCHEMA: &str = include_str!("../../../../docs/schema/project.schema.json");
