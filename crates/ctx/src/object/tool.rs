//! Runs a tool for a person, in this process.

use std::io::Write;
use std::sync::Arc;

use ctx_agent::Services;
use ctx_agent::object::once::{Person, once};
use ctx_agent::shells::{AgentShells, CageGround, ShellGround};
use ctx_agent::tool::{Output, ToolError};
use ctx_cage::Means;
use ctx_host::RemoteConfig;
use ctx_session::Code;
use ctx_text::policy::Policy;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::input::Input;
use crate::failure::Failure;
use crate::root::Root;
use crate::talk::{Form, client_id};
use crate::{output, words};

pub(super) fn run(root: &Root, name: &str, input: &Input, form: Form) -> Result<(), Failure> {
    if !root.path.join(format!("tool/{name}.d")).is_dir() {
        return Err(Failure::new(Code::Enoent, format!("tool/{name}.d is not there, so this is no tool")));
    }
    let arguments = input.arguments()?;
    let run = client_id();
    let mut out = std::io::stdout();
    if form == Form::Json {
        writeln!(out, "{}", json!({"type": "start", "run": run, "tool": name}))?;
        out.flush()?;
    }
    let made = make(name, arguments)?;
    match (form, &made) {
        (Form::Text, Ok(output)) => {
            let text = output.diff.as_deref().unwrap_or(&output.text);
            writeln!(out, "{}", text.trim_end_matches('\n'))?;
        }
        (Form::Text, Err(_)) => {}
        (Form::Json, Ok(Output { text, diff, .. })) => {
            let content = json!([{"type": "text", "text": text}]);
            let mut message = json!({"type": "message", "run": run, "role": "tool", "content": content});
            if let (Some(diff), Some(fields)) = (diff, message.as_object_mut()) {
                fields.insert("diff".to_owned(), json!(diff));
            }
            writeln!(out, "{message}\n{}", json!({"type": "done", "run": run, "status": "ok"}))?;
        }
        (Form::Json, Err(ToolError { code, message })) => {
            writeln!(out, "{}", json!({"type": "error", "run": run, "code": code, "message": message}))?;
            writeln!(out, "{}", json!({"type": "done", "run": run, "status": "error"}))?;
        }
    }
    match made {
        Ok(_) => Ok(()),
        Err(ToolError { code, message }) if form == Form::Text => Err(Failure::new(code, message)),
        Err(ToolError { code, .. }) => Err(Failure::Told { exit: code.exit() }),
    }
}

fn make(name: &str, arguments: serde_json::Value) -> Result<Result<Output, ToolError>, Failure> {
    let cwd = std::env::current_dir().map_err(|error| Failure::io("the working directory", error))?;
    // Only a shell needs a place for its output, and removes it.
    let spool_dir = std::env::temp_dir().join(format!("ctx-tool-{}", std::process::id()));
    let cages = CageGround {
        path: std::env::var_os("PATH").unwrap_or_default(),
        means: Means::default(),
        parent: "tool".to_owned(),
        scratch_dir: spool_dir.clone(),
    };
    let app = concat!("ctx ", env!("CARGO_PKG_VERSION")).to_owned();
    let shells = Arc::new(AgentShells::new(ShellGround {
        cages,
        spool_dir: spool_dir.clone(),
        app,
        remote: RemoteConfig::default(),
        policy: Policy::default(),
    }));
    let services =
        Services { shells: Some(Arc::clone(&shells)), now: Some(words::now), ..Services::default() };
    let stop = CancellationToken::new();
    let person = Person {
        uid: rustix::process::geteuid().as_raw(),
        cwd,
        home: std::env::home_dir(),
        services,
        stop: stop.clone(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("cannot start the async runtime", error))?;
    let made = runtime.block_on(async {
        let made = tokio::select! {
            made = once(name, arguments, person) => Ok(made),
            _ = tokio::signal::ctrl_c() => {
                stop.cancel();
                output::say("cancelled");
                Err(Failure::Told { exit: 1 })
            }
        };
        shells.shut_down().await;
        made
    });
    runtime.shutdown_background();
    let _ = std::fs::remove_dir_all(&spool_dir);
    made
}
