//! One request on a connection of its own, without another process: what starting curl costs, thousands of times,
//! was most of the time of these tests. Not a client of others: those are curl and Python.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::DEADLINE;

use crate::support::{Http, Response};

/// Where to ask and as whom: enough for a thread of its own.
#[derive(Clone)]
pub struct Line {
    address: String,
    token: String,
}

impl Line {
    pub fn to(http: &Http) -> Line {
        Line::as_whom(http, &http.token)
    }

    pub fn as_whom(http: &Http, token: &str) -> Line {
        Line { address: http.address(), token: token.to_owned() }
    }

    /// None when the daemon goes away before it has answered whole.
    pub fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Option<Response> {
        self.ask_with(method, path, "", body)
    }

    /// With more headers, each with its line end.
    pub fn ask_with(&self, method: &str, path: &str, headers: &str, body: Option<&str>) -> Option<Response> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        let (address, token) = (&self.address, &self.token);
        let mut request = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n{headers}"
        );
        if let Some(body) = body {
            let len = body.len();
            request += &format!("Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}");
        } else {
            request += "\r\n";
        }
        // A refusal may come before everything is sent.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        // What has come before the connection broke may be whole.
        let _ = stream.read_to_end(&mut answer);
        response(&answer)
    }
}

/// None for an answer that is cut off.
fn response(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (String::from_utf8(answer[..end].to_vec()).ok()?, &answer[end + 4..]);
    let headers = head.to_lowercase();
    let field = |name: &str| headers.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let body = if field("transfer-encoding:") == Some("chunked") {
        chunks(body)?
    } else {
        let len = field("content-length:").map_or(Some(0), |len| len.parse::<usize>().ok())?;
        body.get(..len)?.to_vec()
    };
    let text = String::from_utf8(body).ok()?;
    Some(Response { status, headers, text })
}

fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        if len == 0 {
            return Some(body);
        }
        body.extend(rest.get(end + 2..end + 2 + len)?);
        rest = rest.get(end + 2 + len + 2..)?;
    }
}
