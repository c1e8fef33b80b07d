//! The daemon's log: structured lines on stderr.

use ctx_session::Code;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};
use crate::failure::Failure;

pub(super) fn start(log: &Log) -> Result<(), Failure> {
    // What the SDK says of each connection is its own business, unless someone asks for it.
    let level =
        if log.level.contains("rmcp") { log.level.clone() } else { format!("{},rmcp=warn", log.level) };
    let filter = EnvFilter::try_new(level).map_err(|error| {
        Failure::new(Code::Einval, format!("log level `{}`: {error}", log.level))
            .hint("use error, warn, info, debug or trace, or a filter such as info,ctx_engine=debug")
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A daemon whose stderr nobody reads any more goes on; complaining there would end it.
        .log_internal_errors(false);
    let started = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.with_ansi(crate::output::Paint::for_stderr().is_on()).try_init(),
    };
    started.map_err(|error| Failure::new(Code::Eio, format!("the log cannot be started: {error}")))
}
