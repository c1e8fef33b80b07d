//! Commands that set up models, projects, spaces and access.

pub mod completions;
pub mod config;
pub mod mcp_server;
pub mod model;
pub mod project;
pub mod space;
pub mod token;
