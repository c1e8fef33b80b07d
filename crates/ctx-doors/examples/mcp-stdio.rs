//! The MCP door alone on stdin and stdout, without a log: for tests of the door and for trying it out.

use std::process::ExitCode;
use std::sync::Arc;

use ctx_doors::mcp::{ServerName, serve_stdio};
use ctx_host::{HostConfig, NoLog};

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(_) => return ExitCode::from(70),
    };
    let config = HostConfig::from_process(std::env::temp_dir().join("ctx-mcp-stdio"), "ctx example");
    let name = ServerName { name: "ctx".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    match runtime.block_on(serve_stdio(config, name, Arc::new(NoLog), || {})) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(69),
    }
}
