//! The MCP door: stateful shells as tools, for any MCP host.
//!
//! It turns tool calls into calls on the shells and their answers into results, with a schema for both ways.
//! It holds no rule: limits, paths, the log and the policy are the operator's and come in with the
//! configuration; arguments that a tool does not know have no effect, and the answer says so.

mod args;
mod exec;
mod failure;
pub mod hosts;
mod http;
mod lines;
mod outbox;
mod outline;
mod output;
mod parse;
mod schema;
mod server;
mod stdio;
mod streams;
mod text;
mod uses;

pub use http::McpHttp;
pub use server::{McpServer, ServerName};
pub use stdio::{McpError, serve_stdio};
