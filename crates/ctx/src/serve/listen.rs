//! Binds the TCP address of the HTTP API before the daemon announces itself.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};

use ctx_doors::http::Hosts;
use ctx_session::Code;
use tokio::net::TcpListener;

use crate::failure::Failure;

/// Taken unless another is asked for; any free port of the same host when it is in use.
const DEFAULT: &str = "127.0.0.1:7300";

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub struct Listen {
    /// HOST:PORT; port 0: any free one.
    pub address: Option<String>,
    /// An address that others can reach is meant.
    pub allow_remote: bool,
    /// Names that a proxy in front of us is reached by.
    pub host_names: Vec<String>,
}

/// An address that is ours.
pub(super) struct Taken {
    pub listener: TcpListener,
    pub address: SocketAddr,
    pub hosts: Hosts,
    /// Others can reach it, and there is no TLS.
    pub is_remote: bool,
}

pub(super) async fn take(listen: &Listen) -> Result<Taken, Failure> {
    let text = listen.address.as_deref().unwrap_or(DEFAULT);
    let wanted = resolve(text)?;
    let is_remote = !wanted.ip().is_loopback();
    if is_remote && !listen.allow_remote {
        return Err(Failure::new(
            Code::Einval,
            format!("other machines can reach {text}, and ctx has no TLS"),
        )
        .hint("listen on 127.0.0.1 behind a proxy with TLS, or pass --allow-remote"));
    }
    let bound = match TcpListener::bind(wanted).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse && listen.address.is_none() => {
            TcpListener::bind((wanted.ip(), 0)).await
        }
        bound => bound,
    };
    let listener = bound.map_err(|error| {
        Failure::new(Code::Ehostdown, format!("cannot listen on {text}: {error}"))
            .hint("name another address with --listen HOST:PORT; port 0 takes any free one")
    })?;
    let address = listener.local_addr().map_err(|error| Failure::io(text, error))?;
    let hosts = Hosts { listen: Some(address.ip()), names: listen.host_names.clone() };
    Ok(Taken { listener, address, hosts, is_remote })
}

fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let bad = || {
        Failure::new(Code::Einval, format!("`{text}` is not an address"))
            .hint("write HOST:PORT, such as 127.0.0.1:7300 or [::1]:0")
    };
    text.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(bad)
}
