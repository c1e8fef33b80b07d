//! Ways to a provider: through a proxy, and to a server whose certificate an authority of the operator's own has signed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use ctx_agent::model::Event;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testkit::models::{ModelServer, Reply, Wire};

use crate::remote::{heard, models, request, setup, user};
use crate::support::Root;

fn said(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn a_proxy_that_is_configured_is_used_and_its_password_is_not_told() {
    let (proxy, root) = (ModelServer::start(), Root::new());
    let mut far = setup(&proxy, Wire::Chat);
    far.base_url = "http://models.invalid/v1".to_owned();
    far.proxy = Some(proxy.url().replace("http://", "http://me:hunter2@"));
    proxy.reply(Reply::text("by proxy"));
    let (events, error) = heard(&models(&root, far.clone()), request(vec![user("hi")])).await;
    assert_eq!((said(&events).as_str(), error), ("by proxy", None));
    let asked = &proxy.asked()[0];
    assert_eq!(asked.path, "http://models.invalid/v1/chat/completions");
    assert!(asked.header("proxy-authorization").is_some(), "{asked:?}");
    far.base_url = "https://models.invalid/v1".to_owned();
    let (_, error) = heard(&models(&root, far), request(vec![user("hi")])).await;
    let (error, asked) = (error.unwrap(), proxy.asked());
    assert_eq!((asked[1].method.as_str(), asked[1].path.as_str()), ("CONNECT", "models.invalid:443"));
    assert_eq!(error.reason(), "unreachable");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

/// A server that speaks TLS with the certificate of the fixtures, and answers one request in the chat format.
fn tls_server() -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    let chain = CertificateDer::pem_file_iter(fixtures.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(fixtures.join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = BufReader::new(rustls::StreamOwned::new(session, tcp));
            let mut length = 0;
            let mut line = String::new();
            // A client that does not trust us goes.
            while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            if length == 0 || stream.read_exact(&mut body).is_err() {
                continue;
            }
            let events = "data: {\"choices\":[{\"delta\":{\"content\":\"sealed\"},\"finish_reason\":\"stop\"}]}\n\n\
                          data: [DONE]\n\n";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{events}", events.len());
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    format!("https://{address}/v1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_an_own_authority_is_trusted_where_the_operator_says_so() {
    let (unused, root) = (ModelServer::start(), Root::new());
    let mut sealed = setup(&unused, Wire::Chat);
    sealed.base_url = tls_server();
    let (_, error) = heard(&models(&root, sealed.clone()), request(vec![user("hi")])).await;
    let error = error.unwrap();
    assert_eq!(error.reason(), "unreachable");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    sealed.ca_file = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls/ca.pem"));
    let (events, error) = heard(&models(&root, sealed.clone()), request(vec![user("hi")])).await;
    assert_eq!((said(&events).as_str(), error), ("sealed", None));
    sealed.ca_file = Some("/nowhere/ca.pem".into());
    let (_, error) = heard(&models(&root, sealed), request(vec![user("hi")])).await;
    assert_eq!(error.unwrap().code().name(), "EBADMSG");
}
