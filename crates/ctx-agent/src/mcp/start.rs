//! Starting a server: its program in a cage with pipes, or a connection to where it is.

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ctx_cage::{Cage, Io, RunningCage, find_bwrap};
use ctx_session::{Code, Name, Refusal};
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::service::{ClientInitializeError, RunningService, serve_client};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use super::server::{Hears, LastWords, Process, Server};
use super::{McpGround, ServerWant};
use crate::cage::make_home;
use crate::cut;
use crate::guard::{GIVEN, Guarded};
use crate::project::Given;
use crate::redact::Redaction;

/// How long a server may take until it can be asked.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a connection may take to be made.
const CONNECT_TIME: Duration = Duration::from_secs(15);
/// The longest line that a program may send.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A value that a server is given, and where it came from when that is its owner's shell.
struct Value {
    text: String,
    variable: Option<String>,
    secret: String,
}

/// Starts a server and asks what it offers.
pub(super) async fn start(name: &Name, want: &ServerWant, ground: &McpGround) -> Result<Server, Refusal> {
    let env = values(&want.server.env, want, ground)?;
    let headers = values(&want.server.headers, want, ground)?;
    let secrets = env
        .iter()
        .chain(&headers)
        .filter_map(|(_, value)| Some((value.variable.as_deref()?, value.secret.as_str())));
    let redaction = Redaction::of_values(secrets);
    let last_words = LastWords::default();
    let (connected, process) = match &want.server.url {
        Some(url) => (timed(connect(url, headers)).await, Process::Elsewhere),
        None => {
            let mut started = program(want, env, ground).await?;
            read_stderr(started.stderr.take(), &last_words);
            let transport =
                AsyncRwTransport::new(started.stdout, started.stdin).with_max_line_length(LINE_BYTES_MAX);
            (timed(serve_client(Hears::default(), transport)).await, started.process)
        }
    };
    let service = match connected {
        Ok(service) => service,
        Err(failed) => {
            let refusal = not_connected(failed, &process, &last_words, &redaction).await;
            return Err(refusal);
        }
    };
    let server = Server {
        name: name.clone(),
        want: want.clone(),
        service,
        process,
        last_words,
        redaction,
        offered: Mutex::new(Vec::new().into()),
        used: Mutex::new(Instant::now()),
        busy: AtomicUsize::new(0),
    };
    server.list().await?;
    Ok(server)
}

/// Why no connection came about.
enum Failed {
    Late,
    Said(Box<ClientInitializeError>),
    Input(String),
}

async fn timed(
    work: impl Future<Output = Result<RunningService<RoleClient, Hears>, impl Into<Failed>>>,
) -> Result<RunningService<RoleClient, Hears>, Failed> {
    match tokio::time::timeout(START_MAX, work).await {
        Ok(connected) => connected.map_err(Into::into),
        Err(_) => Err(Failed::Late),
    }
}

impl From<ClientInitializeError> for Failed {
    fn from(error: ClientInitializeError) -> Failed {
        Failed::Said(Box::new(error))
    }
}

/// In words that say what to look at. A program that ended says more than its broken pipe.
async fn not_connected(
    failed: Failed,
    process: &Process,
    last_words: &LastWords,
    redaction: &Redaction,
) -> Refusal {
    let (code, mut message) = match failed {
        Failed::Late => (Code::Etimedout, format!("it did not answer within {} s", START_MAX.as_secs())),
        Failed::Input(message) => (Code::Einval, message),
        Failed::Said(error) => match *error {
            ClientInitializeError::JsonRpcError(data) => {
                (Code::Eproto, format!("it refused: {}", data.message))
            }
            ClientInitializeError::TransportError { error, .. } => {
                (Code::Ehostdown, reasons(error.error.as_ref()))
            }
            other => (Code::Ehostdown, other.to_string()),
        },
    };
    if let Process::Caged(cage) = process {
        // It is ending, or is ended here; what it says meanwhile is read.
        last_words.wait().await;
        if let Some(ended) = cage.ended() {
            message = format!("it ended with code {}", ended.code);
        }
    }
    let last = last_words.line(redaction);
    if !last.is_empty() {
        message = format!("{message}; the last it said was: {last}");
    }
    Refusal::new(code, redaction.text(message).0)
}

/// An error with what caused it.
fn reasons(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    cut(&text, 1000).to_owned()
}

/// The values of an entry; the refusal names a variable that nobody has.
fn values(
    given: &std::collections::BTreeMap<String, Given>,
    want: &ServerWant,
    ground: &McpGround,
) -> Result<Vec<(String, Value)>, Refusal> {
    let value = |(name, given): (&String, &Given)| {
        let value = match given {
            Given::Text(text) => Value { text: text.clone(), variable: None, secret: String::new() },
            Given::FromEnv { from_env, prefix } => {
                let found = ground.variables.value(want.uid, from_env).ok_or_else(|| {
                    let message = format!(
                        "${from_env} is not known; run a ctx command in this project in a shell that has it"
                    );
                    Refusal::new(Code::Ekeyrejected, message)
                })?;
                let secret = found.expose().trim().to_owned();
                Value { text: format!("{prefix}{secret}"), variable: Some(from_env.clone()), secret }
            }
        };
        Ok((name.clone(), value))
    };
    given.iter().map(value).collect()
}

/// A program with its pipes.
struct Started {
    process: Process,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
}

async fn program(
    want: &ServerWant,
    env: Vec<(String, Value)>,
    ground: &McpGround,
) -> Result<Started, Refusal> {
    let env = env.into_iter().map(|(name, value)| (name, value.text));
    match want.cage.clone()? {
        Some(mut cage) => {
            cage.env.extend(env);
            cage.cwd = want.cwd.clone();
            caged(cage, &want.server.command, ground).await
        }
        None => plain(want, env.collect()),
    }
}

async fn caged(cage: Cage, command: &[String], ground: &McpGround) -> Result<Started, Refusal> {
    let cages = ground.cages.clone();
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    let start = move || {
        let bwrap = find_bwrap(&cages.path)?;
        make_home(&cage)?;
        let io = Io { stdin: Stdio::piped(), stdout: Stdio::piped(), stderr: Stdio::piped() };
        RunningCage::start(&bwrap, &cage, &cages.means, &cages.parent, &command, io)
    };
    let broken =
        |error: &dyn std::fmt::Display| Refusal::new(Code::Eio, format!("it could not be started: {error}"));
    let started = tokio::task::spawn_blocking(start).await.map_err(|error| broken(&error))?;
    let mut running = started.map_err(|error| {
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        Refusal::new(error.code(), format!("{error}{hint}"))
    })?;
    let (stdin, stdout) = (running.stdin.take(), running.stdout.take());
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else { return Err(broken(&"it has no pipes")) };
    let stderr = running.stderr.take().and_then(|stderr| ChildStderr::from_std(stderr).ok());
    Ok(Started {
        stdin: ChildStdin::from_std(stdin).map_err(|error| broken(&error))?,
        stdout: ChildStdout::from_std(stdout).map_err(|error| broken(&error))?,
        stderr,
        process: Process::Caged(running),
    })
}

/// Without a cage, as the session's owner and in the care of a guard. Its stderr is the guard's, and says nothing.
fn plain(want: &ServerWant, env: Vec<(String, String)>) -> Result<Started, Refusal> {
    let broken =
        |error: &dyn std::fmt::Display| Refusal::new(Code::Eio, format!("it could not be started: {error}"));
    let Guarded { words, env: own } = (want.guard)().map_err(|why| broken(&why))?;
    let (closing, held) = std::io::pipe().map_err(|error| broken(&error))?;
    let mut words = words.iter();
    let first = words.next().ok_or_else(|| broken(&"there is no guard to run it in"))?;
    let mut command = Command::new(first);
    command.args(words).arg("--in").arg(&want.cwd).arg("--").args(&want.server.command);
    let given = env.into_iter().map(|(name, value)| (format!("{GIVEN}{name}"), value));
    command.env_clear().envs(own).envs(given).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(closing);
    let mut child = command.spawn().map_err(|error| broken(&error))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else { return Err(broken(&"it has no pipes")) };
    let process = Process::Plain { child: Mutex::new(child), held: Mutex::new(Some(held)) };
    Ok(Started { process, stdin, stdout, stderr: None })
}

/// Reads what a program says on stderr, so that it never waits for a reader; the end is kept.
fn read_stderr(stderr: Option<ChildStderr>, last_words: &LastWords) {
    let (Some(mut stderr), last_words) = (stderr, last_words.clone()) else { return last_words.finish() };
    tokio::spawn(async move {
        let mut bytes = vec![0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut bytes).await {
            last_words.add(bytes.get(..count).unwrap_or_default());
        }
        last_words.finish();
    });
}

/// Connects to a server by its URL. All header values are marked as sensitive, because any of them may be a key: then no debug text has it.
async fn connect(
    url: &str,
    headers: Vec<(String, Value)>,
) -> Result<RunningService<RoleClient, Hears>, Failed> {
    let mut sent = HashMap::new();
    for (name, value) in headers {
        let wrong =
            || Failed::Input(format!("the header {name} cannot be sent: its value is not plain text"));
        let header = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
        let mut text = HeaderValue::try_from(value.text).map_err(|_| wrong())?;
        text.set_sensitive(true);
        sent.insert(header, text);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(sent)
        .max_sse_event_size(LINE_BYTES_MAX)
        .reinit_on_expired_session(true);
    let client = client().map_err(Failed::Input)?;
    let transport = StreamableHttpClientTransport::with_client(client, config);
    Ok(serve_client(Hears::default(), transport).await?)
}

/// The client for all servers. Redirects are not followed: what a server is given goes only where the operator said. Idle
/// connections are not kept, because reusing one whose answer was not read to its end waits for the kernel.
fn client() -> Result<reqwest::Client, String> {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client.clone());
    }
    // An earlier one stays, and is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .user_agent(concat!("ctx/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIME)
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|error| reasons(&error))?;
    Ok(CLIENT.get_or_init(|| client).clone())
}
