//! A plain HTTP client for the benchmarks: one kept connection, as little of its own as possible.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// One kept connection.
pub struct Http {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    address: String,
    token: String,
}

impl Http {
    pub fn connect(address: &str, token: &str) -> Http {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        let reader = BufReader::with_capacity(64 * 1024, stream.try_clone().expect("a second handle"));
        Http { stream, reader, address: address.to_owned(), token: token.to_owned() }
    }

    /// A request's bytes, to be sent again and again.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
        .into_bytes()
    }

    pub fn send(&mut self, request: &[u8]) {
        self.stream.write_all(request).expect("a request");
    }

    /// The answer's status; its body is left in `body`.
    pub fn answer(&mut self, body: &mut Vec<u8>) -> u16 {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let mut length = 0;
        loop {
            line.clear();
            self.reader.read_line(&mut line).expect("a header");
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        body.resize(length, 0);
        self.reader.read_exact(body).expect("a body");
        status
    }

    /// A whole call; its JSON.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Value {
        let request = self.request(method, path, body);
        self.send(&request);
        let mut bytes = Vec::new();
        let status = self.answer(&mut bytes);
        assert!(status < 300, "{method} {path}: {status} {}", String::from_utf8_lossy(&bytes));
        if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).expect("JSON") }
    }
}
