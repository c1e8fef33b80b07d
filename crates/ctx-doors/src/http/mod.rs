//! HTTP under `/api/v1`, on TCP and on `.state/api.sock`. Handlers translate; the gates say who asks; the
//! document that describes it all is made from the handlers themselves.

mod access;
mod approvals;
mod bind;
mod calls;
mod catalog;
mod checkpoints;
mod compactions;
mod docs;
mod error;
mod extract;
mod files;
mod gate;
mod idempotency;
mod imports;
mod issues;
mod json;
mod keys;
mod lifecycle;
mod listener;
mod lookup;
mod mcp;
mod messages;
mod patch;
mod pins;
mod places;
mod projects;
mod providers;
mod queries;
mod records;
mod restart;
mod runs;
mod session_terminals;
mod sessions;
mod shells;
pub mod snapshots;
mod sockets;
mod spaces;
mod status;
mod terminals;

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::DefaultBodyLimit;
use axum::http::HeaderValue;
use axum::{Router, middleware};
use ctx_engine::{Caller, Engine};
use ctx_session::{Code, Refusal, Timestamp};
use ctx_snapshot::runs::RunFiles;
use ctx_terminal::Terminals;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use access::Access;
pub use catalog::{Catalog, Told};
pub use error::ApiError;
pub use gate::Hosts;
pub use messages::shape as message_of;
pub use terminals::shown_terminal;
pub(crate) use terminals::size_of;

use crate::seats::{Seat, Seats};
use crate::shells::Shells;
use crate::ws::Hub;
use places::Strangers;

/// Longest body of a request.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many requests of a user may hold a thread that waits for what is theirs, and how many a large body.
const WAITING_PER_USER: usize = 32;
const LARGE_PER_USER: usize = 2;

/// What every handler needs. It is cloned for every request.
#[derive(Clone)]
pub struct Api(Arc<Whole>);

struct Whole {
    parts: ApiParts,
    waiting: Seats,
    large: Seats,
}

/// What an API is made of.
pub struct ApiParts {
    pub engine: Engine,
    pub about: About,
    pub access: Access,
    pub catalog: Arc<dyn Catalog>,
    pub hub: Hub,
    pub shells: Shells,
    pub terminals: Arc<Terminals>,
    /// Saves files around runs; None: there is nowhere to save them.
    pub files: Option<Arc<RunFiles>>,
}

impl From<ApiParts> for Api {
    fn from(parts: ApiParts) -> Api {
        let (waiting, large) = (Seats::new(WAITING_PER_USER), Seats::new(LARGE_PER_USER));
        Api(Arc::new(Whole { parts, waiting, large }))
    }
}

impl Api {
    /// A seat for a request that waits for a user's own files and processes, which may never answer.
    fn waits(&self, caller: Caller) -> Result<Seat, Refusal> {
        self.0.waiting.take(caller.uid).ok_or_else(too_much_at_once)
    }

    /// A seat for a request with a large body.
    fn brings_much(&self, caller: Caller) -> Result<Seat, Refusal> {
        self.0.large.take(caller.uid).ok_or_else(too_much_at_once)
    }
}

fn too_much_at_once() -> Refusal {
    Refusal::new(Code::Ebusy, "you have too many requests of this kind at once; wait for one of them to end")
}

impl Deref for Api {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.0.parts
    }
}

/// What the daemon says of itself.
#[derive(Debug)]
pub struct About {
    pub version: String,
    pub root: String,
    /// Where it listens over TCP.
    pub address: Option<String>,
    pub started_at: Timestamp,
    pub started: Instant,
    /// Commands of agents run without a cage: every answer says so.
    pub is_uncaged: bool,
}

/// Every route there is, and the document that describes them.
fn routes(version: &str) -> (Router<Api>, utoipa::openapi::OpenApi) {
    let v1 = OpenApiRouter::new()
        .routes(routes!(status::status))
        .routes(routes!(status::healthz))
        .routes(routes!(projects::list, projects::add))
        .routes(routes!(projects::read, projects::change, projects::remove))
        .routes(routes!(projects::trust))
        .routes(routes!(sessions::list, sessions::create))
        .routes(routes!(restart::restart))
        .routes(routes!(sessions::read, sessions::change, sessions::end))
        .routes(routes!(messages::list, messages::post))
        .routes(routes!(pins::pin, pins::unpin))
        .routes(routes!(sessions::resume))
        .routes(routes!(sessions::discard))
        .routes(routes!(runs::list))
        .routes(routes!(runs::read))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::retry))
        .routes(routes!(checkpoints::list, checkpoints::create))
        .routes(routes!(checkpoints::read))
        .routes(routes!(checkpoints::edit))
        .routes(routes!(checkpoints::resume))
        .routes(routes!(checkpoints::rollback))
        .routes(routes!(files::changes))
        .routes(routes!(files::undo))
        .routes(routes!(snapshots::all))
        .routes(routes!(snapshots::prune))
        .routes(routes!(snapshots::read))
        .routes(routes!(snapshots::changes))
        .routes(routes!(snapshots::bring_back))
        .routes(routes!(compactions::list, compactions::create))
        .routes(routes!(compactions::read, compactions::change))
        .routes(routes!(compactions::approve))
        .routes(routes!(compactions::reject))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::answer))
        .routes(routes!(bind::bind, bind::unbind))
        .routes(routes!(issues::list, issues::create))
        .routes(routes!(issues::read, issues::change))
        .routes(routes!(issues::todos, issues::change_todos))
        .routes(routes!(records::stream))
        .routes(routes!(catalog::models))
        .routes(routes!(providers::list))
        .routes(routes!(providers::take))
        .routes(routes!(providers::take_for_servers))
        .routes(routes!(providers::try_out))
        .routes(routes!(catalog::agents))
        .routes(routes!(catalog::tools))
        .routes(routes!(shells::list, shells::create))
        .routes(routes!(shells::exec))
        .routes(routes!(shells::destroy))
        .routes(routes!(shells::records))
        .routes(routes!(terminals::list, terminals::open))
        .routes(routes!(terminals::read, terminals::close))
        .routes(routes!(terminals::screen))
        .routes(routes!(terminals::input))
        .routes(routes!(terminals::transcript))
        .routes(routes!(session_terminals::list, session_terminals::open))
        .routes(routes!(session_terminals::close))
        .routes(routes!(session_terminals::transcript))
        .routes(routes!(mcp::post, mcp::get, mcp::delete))
        .routes(routes!(imports::list, imports::add))
        .routes(routes!(imports::undo))
        .routes(routes!(lookup::search))
        .routes(routes!(lookup::search_sessions))
        .routes(routes!(lookup::stats))
        .routes(routes!(lookup::audit))
        .routes(routes!(spaces::list, spaces::add))
        .routes(routes!(spaces::remove))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(keys::code))
        .routes(routes!(keys::login))
        .routes(routes!(keys::ticket))
        .routes(routes!(sockets::session))
        .routes(routes!(sockets::system))
        .routes(routes!(docs::document))
        .routes(routes!(docs::page));
    let described = OpenApiRouter::with_openapi(docs::about(version)).nest("/api/v1", v1);
    described.split_for_parts()
}

/// The whole API, made once for every listener: its routes and their descriptions are large.
#[derive(Clone)]
pub struct Door {
    api: Api,
    /// A gate is still to be put before it.
    router: Router,
}

impl Door {
    pub fn new(parts: ApiParts) -> Door {
        let api = Api::from(parts);
        let version = api.about.version.clone();
        // The document is described again when someone asks for it; few do.
        let (routes, document) = routes(&version);
        let without_query = queries::Without::of(&document);
        let memory = idempotency::Memory::new(Duration::from_millis(api.engine.limits().request_ms));
        let router = routes
            .fallback(error::no_route)
            .method_not_allowed_fallback(error::no_method)
            .layer(middleware::from_fn_with_state(without_query, queries::refuse_unknown))
            .layer(axum::Extension(docs::Document::new(move || self::routes(&version).1)))
            .layer(middleware::from_fn_with_state(memory, idempotency::once))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(api.clone());
        Door { api, router }
    }

    /// How long a request's head may take, and how many connections each user may have.
    fn limits(&self) -> (Duration, Seats) {
        let limits = self.api.engine.limits();
        (Duration::from_millis(limits.request_ms), Seats::new(limits.http_connections))
    }

    /// Lets every answer say that there are no cages, where there are none.
    fn marked(&self, router: Router) -> Router {
        if !self.api.about.is_uncaged {
            return router;
        }
        router.layer(middleware::map_response(async |mut answer: axum::response::Response| {
            answer.headers_mut().insert(ctx_api::http::CAGE_HEADER, HeaderValue::from_static("off"));
            answer
        }))
    }

    /// The API behind the gate of the Unix socket, which needs to be told of each request's peer.
    fn behind_unix_gate(&self) -> Router {
        let gated = self.router.clone().layer(middleware::from_fn(gate::unix));
        self.marked(gated.layer(middleware::from_fn(gate::close_unread)))
    }

    /// The API as one peer of the Unix socket is served it, for callers in the same process.
    pub fn for_peer(&self, caller: Caller) -> Router {
        self.behind_unix_gate().layer(axum::Extension(gate::Peer::known(caller)))
    }

    /// Serves the API on a Unix socket until `stop`.
    pub async fn serve_unix(self, listener: UnixListener, stop: CancellationToken) {
        let (head, seats) = self.limits();
        listener::serve(listener, head, self.behind_unix_gate(), listener::Users(seats), stop).await;
    }

    /// Serves the API over TCP until `stop`. `warn`: others can reach this address.
    pub async fn serve_tcp(self, listener: TcpListener, hosts: Hosts, warn: bool, stop: CancellationToken) {
        let (head, users) = self.limits();
        let marks = gate::Marks { warn };
        let gate = gate::TcpGate { access: self.api.access.clone(), hosts: Arc::new(hosts), marks };
        let router = self.router.clone().layer(middleware::from_fn_with_state(gate, gate::tcp));
        let router = self.marked(router.layer(middleware::from_fn(gate::close_unread)));
        let entrance = listener::Anyone { strangers: Strangers::default(), users };
        listener::serve(listener, head, router, entrance, stop).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The routes are registered through the handlers' own descriptions; this holds that none is registered beside.
    #[test]
    fn every_route_is_in_the_document() {
        let (_, document) = super::routes("0");
        let document = serde_json::to_value(&document).unwrap();
        let paths: BTreeSet<&str> =
            document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let source = include_str!("mod.rs");
        let handlers = source.split("routes!(").skip(1).filter_map(|rest| rest.split(')').next());
        let registered: usize =
            handlers.filter(|list| !list.contains('"')).map(|list| list.split(',').count()).sum();
        let operations: usize =
            document["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len()).sum();
        assert_eq!(registered, operations, "{paths:?}");
        assert!(!source.contains(concat!(".rou", "te(\"")), "routes are added with routes! alone");
        for path in ["/api/v1/sessions/{id}", "/api/v1/tokens/{tid}", "/api/v1/sessions/{id}/socket"] {
            assert!(paths.contains(path), "{path} is not in {paths:?}");
        }
    }
}
