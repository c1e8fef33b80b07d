//! The gates: who asks, before any handler is reached. On a Unix socket the kernel says; over TCP a token does,
//! after the checks that keep web pages of others out.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, HOST, ORIGIN, WARNING, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ctx_engine::Caller;
use ctx_session::{Code, Refusal};
use http_body_util::Limited;
use tokio::net::UnixStream;

use super::access::{Access, Key};
use super::error::ApiError;
use super::extract::Who;
use super::places::Standing;

/// The peer of a Unix socket; None when the kernel does not know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(Option<Caller>);

impl Peer {
    /// Whose place the connection takes; one whose user is unknown is turned away with its first request.
    pub fn uid(self) -> u32 {
        self.0.map_or(u32::MAX, |caller| caller.uid)
    }

    pub fn known(caller: Caller) -> Peer {
        Peer(Some(caller))
    }
}

/// Asks the kernel who is at the other end.
pub(super) fn peer(stream: &UnixStream) -> Peer {
    Peer(crate::unix::caller(stream).ok())
}

/// The token a request came with, for what stays open longer than a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WithToken(pub Option<ctx_session::Ulid>);

/// Nobody comes in unknown.
pub(super) async fn unix(
    Extension(Peer(peer)): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(caller) = peer else {
        let refusal = Refusal::new(Code::Ekeyrejected, "the peer of this socket is unknown");
        return ApiError(refusal).into_response();
    };
    request.extensions_mut().insert(Who(caller));
    request.extensions_mut().insert(WithToken(None));
    next.run(request).await
}

/// How the TCP gate is set.
#[derive(Clone)]
pub(super) struct TcpGate {
    pub access: Access,
    pub hosts: Arc<Hosts>,
    pub marks: Marks,
}

/// What a client may call us. A name of someone else's that leads here is DNS rebinding.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// The address we listen on.
    pub listen: Option<IpAddr>,
    /// Names that a proxy in front of us is reached by.
    pub names: Vec<String>,
}

impl Hosts {
    fn allows(&self, host: &str) -> bool {
        let name = without_port(host);
        if let Ok(address) = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            let everywhere = self.listen.is_some_and(|listen| listen.is_unspecified());
            return address.is_loopback() || everywhere || self.listen == Some(address);
        }
        name.eq_ignore_ascii_case("localhost") || self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Longest body of a request that shows no token.
const STRANGERS_BODY_MAX: usize = 64 * 1024;

/// What anyone may read: they hold nothing of anyone.
fn is_public(path: &str) -> bool {
    matches!(path, "/api/v1/healthz" | "/api/v1/openapi.json" | "/api/v1/docs" | "/api/v1/login")
}

pub(super) async fn tcp(State(gate): State<TcpGate>, mut request: Request, next: Next) -> Response {
    let mut response = match admit(&gate, &mut request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => ApiError(refusal).into_response(),
    };
    gate.marks.put_on(&mut response);
    response
}

/// An answer that is given before the whole request has arrived says that the connection ends with it: what is left of the
/// body could not be told from the next request.
pub(super) async fn close_unread(request: Request, next: Next) -> Response {
    let has_body = !request.body().is_end_stream();
    let mut response = next.run(request).await;
    let is_unread = matches!(
        response.status(),
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::METHOD_NOT_ALLOWED
    );
    if has_body && is_unread {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// What every answer over TCP carries, whoever gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    /// Reached from elsewhere without TLS of our own: every answer says so.
    pub warn: bool,
}

impl Marks {
    pub fn put_on(self, response: &mut Response) {
        let headers = response.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        if self.warn {
            let warning =
                r#"199 ctx "this address is open to others and has no TLS; tokens can be read on the way""#;
            headers.insert(WARNING, HeaderValue::from_static(warning));
        }
    }
}

/// Finds out who asks. Host and Origin are checked first and for public routes too; the rate counts for tokens alone, since a ticket is good
/// once.
fn admit(gate: &TcpGate, request: &mut Request) -> Result<(), Refusal> {
    check_origin(&gate.hosts, request.headers(), request.uri())?;
    if is_public(request.uri().path()) {
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = Body::new(Limited::new(body, STRANGERS_BODY_MAX));
        return Ok(());
    }
    let (caller, token) = match (bearer(request.headers()), ticket(request.uri())) {
        (Some(token), _) => {
            let Key { caller, id } = gate.access.key(token).ok_or_else(rejected)?;
            gate.access.may_ask(Key { caller, id })?;
            (caller, Some(id))
        }
        (None, Some(ticket)) => gate.access.take_ticket(ticket).ok_or_else(rejected)?,
        (None, None) => return Err(rejected()),
    };
    if let Some(standing) = request.extensions().get::<Standing>() {
        standing.belongs_to(caller.uid)?;
    }
    request.extensions_mut().insert(Who(caller));
    request.extensions_mut().insert(WithToken(token));
    Ok(())
}

fn rejected() -> Refusal {
    let message = "a token is needed: send `Authorization: Bearer` with a token from `ctx token new`";
    Refusal::new(Code::Ekeyrejected, message)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// A ticket opens a WebSocket and nothing else.
fn ticket(uri: &Uri) -> Option<&str> {
    let mut path = uri.path().strip_prefix("/api/v1/")?.split('/');
    let is_socket = match (path.next(), path.next(), path.next(), path.next()) {
        (Some("system"), Some("socket"), None, None) => true,
        (Some("sessions"), Some(_), Some("socket"), None) => true,
        (_, _, _, _) => false,
    };
    let query = uri.query().filter(|_| is_socket)?;
    query.split('&').find_map(|pair| pair.strip_prefix("ticket="))
}

/// A request must name us as we are known, and must not come from a page of someone else's.
fn check_origin(hosts: &Hosts, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(|| uri.authority().map(|authority| authority.as_str()));
    let Some(host) = host.filter(|host| hosts.allows(host)) else {
        let message = "unknown Host; use the daemon's address, localhost or a name given with --host-name";
        return Err(Refusal::new(Code::Eacces, message));
    };
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok();
    let page = origin.and_then(|o| o.strip_prefix("http://").or_else(|| o.strip_prefix("https://")));
    if page.is_some_and(|page| page.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(Refusal::new(Code::Eacces, "requests from pages of other origins are refused"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(listen: &str) -> Hosts {
        Hosts { listen: listen.parse().ok(), names: vec!["ctx.example".to_owned()] }
    }

    #[test]
    fn only_our_own_names_are_ours() {
        let local = hosts("127.0.0.1");
        for good in
            ["localhost", "localhost:7300", "LOCALHOST:1", "127.0.0.1:7300", "[::1]:7300", "ctx.example"]
        {
            assert!(local.allows(good), "{good}");
        }
        for bad in
            ["evil.example", "localhost.evil.example:7300", "192.168.1.7:7300", "", "127.0.0.1.nip.io", "::"]
        {
            assert!(!local.allows(bad), "{bad}");
        }
        assert!(hosts("192.168.1.7").allows("192.168.1.7:7300"));
        assert!(hosts("0.0.0.0").allows("10.0.0.3:7300"));
        assert!(!hosts("0.0.0.0").allows("evil.example"));
    }

    fn check(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        check_origin(&hosts("127.0.0.1"), &headers, &Uri::from_static("/api/v1/status")).is_ok()
    }

    #[test]
    fn pages_of_others_are_kept_out() {
        assert!(check("127.0.0.1:7300", None));
        assert!(check("127.0.0.1:7300", Some("http://127.0.0.1:7300")));
        for foreign in
            ["http://evil.example", "http://127.0.0.1:3000", "null", "file://", "http://localhost:7300"]
        {
            assert!(!check("127.0.0.1:7300", Some(foreign)), "{foreign}");
        }
        assert!(!check("evil.example:7300", Some("http://evil.example:7300")));
    }

    #[test]
    fn a_ticket_is_looked_for_on_sockets_alone() {
        assert_eq!(ticket(&Uri::from_static("/api/v1/system/socket?a=1&ticket=t")), Some("t"));
        assert_eq!(ticket(&Uri::from_static("/api/v1/status?ticket=t")), None);
    }
}
