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
mod gate;
mod idempotency;
mod issues;
mod keys;
mod lifecycle;
mod listener;
mod lookup;
mod mcp;
mod messages;
mod pins;
mod projects;
mod queries;
mod records;
mod restart;
mod runs;
mod sessions;
mod shells;
mod sockets;
mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use ctx_engine::Engine;
use ctx_session::Timestamp;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use access::Access;
pub use catalog::Catalog;
pub use error::ApiError;
pub use gate::Hosts;

use crate::shells::Shells;
use crate::ws::Hub;

/// Longest body of a request.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What every handler needs.
#[derive(Clone)]
pub struct Api {
    pub engine: Engine,
    pub about: Arc<About>,
    pub access: Access,
    pub catalog: Arc<dyn Catalog>,
    pub hub: Hub,
    pub shells: Shells,
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
}

/// Every route there is, and the document that describes them.
fn routes(version: &str) -> (Router<Api>, utoipa::openapi::OpenApi) {
    let v1 = OpenApiRouter::new()
        .routes(routes!(status::status))
        .routes(routes!(status::healthz))
        .routes(routes!(projects::list, projects::add))
        .routes(routes!(projects::read, projects::change, projects::remove))
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
        .routes(routes!(checkpoints::list, checkpoints::create))
        .routes(routes!(checkpoints::read))
        .routes(routes!(checkpoints::edit))
        .routes(routes!(checkpoints::resume))
        .routes(routes!(checkpoints::rollback))
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
        .routes(routes!(catalog::agents))
        .routes(routes!(catalog::tools))
        .routes(routes!(shells::list, shells::create))
        .routes(routes!(shells::exec))
        .routes(routes!(shells::destroy))
        .routes(routes!(shells::records))
        .routes(routes!(mcp::post, mcp::get, mcp::delete))
        .routes(routes!(lookup::search))
        .routes(routes!(lookup::stats))
        .routes(routes!(lookup::audit))
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
    pub fn new(api: Api) -> Door {
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

    /// Serves the API on a Unix socket until `stop`.
    pub async fn serve_unix(self, listener: UnixListener, stop: CancellationToken) {
        let bounds = listener::Bounds::of(self.api.engine.limits(), None);
        let router = self.router.layer(middleware::from_fn(gate::unix));
        listener::serve(listener, bounds, router, gate::peer, stop).await;
    }

    /// Serves the API over TCP until `stop`. `warn`: others can reach this address.
    pub async fn serve_tcp(self, listener: TcpListener, hosts: Hosts, warn: bool, stop: CancellationToken) {
        let marks = gate::Marks { warn };
        let bounds = listener::Bounds::of(self.api.engine.limits(), Some(marks));
        let gate = gate::TcpGate { access: self.api.access.clone(), hosts: Arc::new(hosts), marks };
        let router = self.router.layer(middleware::from_fn_with_state(gate, gate::tcp));
        let known = |stream: &TcpStream| {
            // Frames are small and wanted at once.
            let _ = stream.set_nodelay(true);
        };
        listener::serve(listener, bounds, router, known, stop).await;
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
