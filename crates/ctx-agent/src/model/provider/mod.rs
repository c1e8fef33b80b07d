//! Models of real providers: a request becomes JSON of the provider's wire format, its stream of events becomes ours.
//!
//! `setup` says how a provider is reached, `http` goes there, `sse` reads streams. `talk` makes the conversation fit what every
//! provider accepts; `openai_chat`, `openai_responses`, `anthropic` and `gemini` are the wire formats, over `wire`; `failure` reads
//! refusals; `known` is the data file of models. What is pure says so.

mod anthropic;
mod failure;
mod gemini;
mod http;
pub mod known;
mod openai_chat;
mod openai_responses;
pub mod setup;
pub mod sse;
pub mod talk;
pub mod wire;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ctx_session::Limits;
use ctx_session::model_name::in_api;
use ctx_session::record::Usage;
use serde_json::Value;

use super::{Answer, Event, Finish, Model, ModelError, Request, ToolCall};
use crate::BoxFuture;
use http::{Ask, reasons};
use known::Known;
use setup::{Kind, Secret, Setup};
use sse::Sse;
use talk::Names;
use wire::{Heard, Options, Piece, Reader, Trouble};

/// Servers that do not know OpenAI's responses, by their address: they are asked in the older format.
static ONLY_CHAT: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// How long the end of an answer is waited for once it is whole.
const REST_TIME: Duration = Duration::from_secs(2);

/// One model of a provider.
pub struct Remote {
    setup: Setup,
    options: Options,
    known: Option<&'static Known>,
    window: u64,
    limits: Arc<Limits>,
}

/// The wire format of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Responses,
    Chat,
    Messages,
    Gemini,
}

impl Format {
    /// The body of a request, as the provider gets it.
    pub fn body(self, request: &Request, names: &Names, options: &Options) -> Value {
        match self {
            Format::Responses => openai_responses::body(request, names, options),
            Format::Chat => openai_chat::body(request, names, options),
            Format::Messages => anthropic::body(request, names, options),
            Format::Gemini => gemini::body(request, names, options),
        }
    }

    pub fn reader(self) -> Box<dyn Reader> {
        match self {
            Format::Responses => Box::<openai_responses::Responses>::default(),
            Format::Chat => Box::<openai_chat::Chat>::default(),
            Format::Messages => Box::<anthropic::Messages>::default(),
            Format::Gemini => Box::<gemini::Gemini>::default(),
        }
    }
}

/// What the operator set for a model in its control files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    pub reasoning: Option<String>,
    pub max_output: Option<u64>,
    pub window: Option<u64>,
}

impl Remote {
    /// The model that its provider calls `id`.
    pub fn new(setup: Setup, id: &str, wishes: Wishes, limits: Arc<Limits>) -> Remote {
        let known = known::find(id);
        let options = Options {
            id: id.to_owned(),
            reasons: known.is_some_and(|known| known.can("reasoning")),
            thinks_by_budget: known.is_some_and(|known| !known.can("adaptive")),
            sees: known.is_none_or(|known| known.can("images")),
            reasoning: wishes.reasoning,
            max_output: wishes.max_output,
            output: known.map(|known| known.output),
        };
        let window = wishes.window.or(known.map(|known| known.window)).unwrap_or(known::WINDOW_UNKNOWN);
        Remote { setup, options, known, window, limits }
    }

    fn format(&self) -> Format {
        match self.setup.kind {
            Kind::Openai if knows_only_chat(&self.setup.base_url) => Format::Chat,
            Kind::Openai => Format::Responses,
            Kind::OpenaiChat | Kind::Ollama => Format::Chat,
            Kind::Anthropic => Format::Messages,
            Kind::Gemini => Format::Gemini,
        }
    }

    fn url(&self, format: Format) -> String {
        let base = api_base(&self.setup);
        match format {
            Format::Responses => format!("{base}/responses"),
            Format::Chat => format!("{base}/chat/completions"),
            Format::Messages => format!("{base}/messages"),
            Format::Gemini => format!("{base}/models/{}:streamGenerateContent?alt=sse", self.options.id),
        }
    }

    /// Sends a request. A server of another maker that refuses the newer format is asked once more in the older one; its address is remembered
    /// while this process lives, so that later calls cost one request.
    async fn begin(&self, request: &Request) -> Result<Streaming, ModelError> {
        let shown = in_api(&request.model);
        let key = self.setup.key(&shown).await?;
        let blind = (!self.options.sees).then(|| Request { images: Arc::default(), ..request.clone() });
        let request = blind.as_ref().unwrap_or(request);
        let names = Names::of(&request.tools);
        let first_byte = Duration::from_millis(self.limits.model_first_byte_ms);
        let ask = Ask { setup: &self.setup, model: &shown, key: key.as_ref() };
        let mut format = self.format();
        let send = async |format: Format| {
            ask.stream(&self.url(format), &format.body(request, &names, &self.options), first_byte).await
        };
        let mut response = send(format).await;
        // A server of another maker may not know the newer format.
        let is_elsewhere = self.setup.base_url != self.setup.kind.address();
        if format == Format::Responses && is_elsewhere && matches!(response, Err(ModelError::Protocol { .. }))
        {
            format = Format::Chat;
            response = send(format).await;
            if response.is_ok() {
                remember_only_chat(&self.setup.base_url);
            }
        }
        Ok(Streaming {
            response: Some(response?),
            setup: self.setup.clone(),
            key,
            model: shown,
            named: request.model.clone(),
            names,
            known: self.known,
            idle: Duration::from_millis(self.limits.model_idle_ms),
            sse: Sse::default(),
            reader: format.reader(),
            ready: VecDeque::new(),
            has_spoken: false,
            is_over: false,
            failed: None,
        })
    }
}

impl Model for Remote {
    fn window(&self) -> Option<u64> {
        Some(self.window)
    }

    fn has_price(&self) -> bool {
        // What runs on the user's own machine costs nothing.
        self.known.is_some() || self.setup.kind == Kind::Ollama
    }

    fn call(&self, request: Request) -> BoxFuture<'_, Result<Box<dyn Answer>, ModelError>> {
        Box::pin(async move { Ok(Box::new(self.begin(&request).await?) as Box<dyn Answer>) })
    }
}

fn knows_only_chat(base_url: &str) -> bool {
    let known = ONLY_CHAT.lock().unwrap_or_else(PoisonError::into_inner);
    known.as_ref().is_some_and(|known| known.contains(base_url))
}

fn remember_only_chat(base_url: &str) {
    let mut known = ONLY_CHAT.lock().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_default().insert(base_url.to_owned());
}

/// Where the routes of a provider begin.
fn api_base(setup: &Setup) -> String {
    let base = &setup.base_url;
    let has_version = |base: &str| base.rsplit('/').next().is_some_and(|last| last.starts_with('v'));
    match setup.kind {
        Kind::Openai | Kind::OpenaiChat => base.clone(),
        Kind::Ollama | Kind::Anthropic if !has_version(base) => format!("{base}/v1"),
        Kind::Gemini if !has_version(base) => format!("{base}/v1beta"),
        Kind::Ollama | Kind::Anthropic | Kind::Gemini => base.clone(),
    }
}

/// The models that a provider offers, by its own names.
pub async fn offered(setup: &Setup) -> Result<Vec<String>, ModelError> {
    let name = setup.name.as_str();
    let key = setup.key(name).await?;
    let ask = Ask { setup, model: name, key: key.as_ref() };
    let list = ask.get(&format!("{}/models", api_base(setup))).await?;
    let items = list.get("data").or_else(|| list.get("models")).and_then(Value::as_array);
    let Some(items) = items else {
        let detail = "its list of models has an unknown form; check base_url".to_owned();
        return Err(ModelError::Protocol { model: name.to_owned(), detail });
    };
    let id = |item: &Value| {
        let id = item.get("id").or_else(|| item.get("name")).and_then(Value::as_str)?;
        Some(id.strip_prefix("models/").unwrap_or(id).to_owned())
    };
    Ok(items.iter().filter_map(id).collect())
}

/// An answer under way.
struct Streaming {
    /// None once it is read to its end elsewhere.
    response: Option<reqwest::Response>,
    setup: Setup,
    key: Option<Secret>,
    /// As people call it, for messages.
    model: String,
    /// As the request calls it.
    named: String,
    names: Names,
    known: Option<&'static Known>,
    idle: Duration,
    sse: Sse,
    reader: Box<dyn Reader>,
    ready: VecDeque<Event>,
    /// Something was passed on, so that the call cannot be made again.
    has_spoken: bool,
    is_over: bool,
    /// How it broke off, once what it cost until then is passed on.
    failed: Option<ModelError>,
}

impl Answer for Streaming {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Event>, ModelError>> {
        Box::pin(async move {
            loop {
                if let Some(event) = self.ready.pop_front() {
                    // Usage is shown to nobody: a call that breaks after it can still be made again.
                    self.has_spoken |= !matches!(event, Event::Usage(_));
                    return Ok(Some(event));
                }
                if self.is_over {
                    return Ok(None);
                }
                if let Some(error) = self.failed.take() {
                    return Err(error);
                }
                if let Err(error) = self.read_on().await {
                    let cost = self.reader.counted().map(|counted| self.event(Piece::Usage(counted)));
                    self.ready.extend(cost);
                    self.failed = Some(error);
                }
            }
        })
    }
}

/// A connection is used again when its answer was read to the end, which comes a moment after the last event.
impl Drop for Streaming {
    fn drop(&mut self) {
        let response = self.response.take().filter(|_| self.is_over);
        let (Some(mut response), Ok(runtime)) = (response, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let rest = async move { while let Ok(Some(_)) = response.chunk().await {} };
        runtime.spawn(tokio::time::timeout(REST_TIME, rest));
    }
}

impl Streaming {
    /// Reads until there is an event, or the end.
    async fn read_on(&mut self) -> Result<(), ModelError> {
        if let Some(message) = self.sse.pop() {
            let heard = self.reader.read(&message);
            return self.hear(heard);
        }
        let chunk = async {
            match &mut self.response {
                Some(response) => response.chunk().await,
                None => Ok(None),
            }
        };
        match tokio::time::timeout(self.idle, chunk).await {
            Ok(Ok(Some(bytes))) => self.sse.push(&bytes).map_err(|_| {
                let detail = "one event of its stream has more than 16 MiB".to_owned();
                ModelError::Protocol { model: self.model.clone(), detail }
            }),
            Ok(Ok(None)) => self.stream_ended("the stream ended in the middle".to_owned()),
            Ok(Err(error)) => self.stream_ended(reasons(&error)),
            Err(_) => Err(self.ask().late("model_idle_ms", self.idle)),
        }
    }

    /// However a stream ends: an answer that was over by then is whole.
    fn stream_ended(&mut self, how: String) -> Result<(), ModelError> {
        let heard = self.reader.end();
        self.hear(heard)?;
        if self.is_over { Ok(()) } else { Err(self.broke(how)) }
    }

    fn hear(&mut self, heard: Result<Heard, Trouble>) -> Result<(), ModelError> {
        let Heard { pieces, is_over } = heard.map_err(|trouble| self.trouble(trouble))?;
        self.is_over = is_over;
        for piece in pieces {
            let event = self.event(piece);
            self.ready.push_back(event);
        }
        Ok(())
    }

    fn event(&self, piece: Piece) -> Event {
        match piece {
            Piece::Text(text) => Event::Text(text),
            Piece::Reasoning(text) => Event::Reasoning(text),
            Piece::Call { id, name, input, kept } => Event::ToolCall(ToolCall {
                provider_call_id: id,
                name: self.names.ours(&name),
                input,
                provider: talk::keep(&self.named, kept),
            }),
            Piece::Usage(counted) => Event::Usage(Usage {
                input: counted.input,
                output: counted.output,
                cached: counted.cached,
                cost_nano_usd: self.known.map_or(0, |known| known.price.of(&counted)),
            }),
            Piece::Finish(finish) => Event::Finish(finish),
        }
    }

    /// The connection went. As long as nothing was said, that is the same as none at all.
    fn broke(&self, detail: String) -> ModelError {
        let model = self.model.clone();
        if self.has_spoken {
            ModelError::BrokenStream { model, detail }
        } else {
            ModelError::Unavailable { model, reason: "unreachable", detail, retry_after: None }
        }
    }

    fn trouble(&self, trouble: Trouble) -> ModelError {
        let model = self.model.clone();
        let error = match trouble {
            Trouble::Said(error) => failure::of_error(&model, None, None, &error),
            Trouble::NotProtocol(detail) => ModelError::Protocol { model, detail },
            Trouble::Refused(words) => ModelError::Refused { model, detail: failure::shown(&words) },
        };
        self.ask().hide(error)
    }

    fn ask(&self) -> Ask<'_> {
        Ask { setup: &self.setup, model: &self.model, key: self.key.as_ref() }
    }
}

/// Whether an answer of a model can be heard at all: one short call, to its end.
pub async fn try_out(model: &dyn Model, request: Request) -> Result<String, ModelError> {
    let name = in_api(&request.model);
    let mut answer = model.call(request).await?;
    let mut text = String::new();
    while let Some(event) = answer.next().await? {
        match event {
            Event::Text(piece) => text.push_str(&piece),
            Event::Finish(Finish::Stop | Finish::Length | Finish::ToolCalls) => return Ok(text),
            Event::Reasoning(_) | Event::ToolCall(_) | Event::Usage(_) => {}
        }
    }
    Err(ModelError::BrokenStream { model: name, detail: "it ended in the middle".to_owned() })
}
