//! What holds for every route there is, found in the document, so that none that comes later is forgotten: a stranger
//! sees nothing, bad input changes nothing, and no secret is left anywhere.

use serde_json::{Value, json};
use testkit::{finish, until};

use crate::support::{Http, Response, builder};

const SECRET: &str = "the heron nests at dawn";

/// A daemon with a session that something was said in, a shell, and their ids.
struct Mine {
    http: Http,
    session: String,
    run: String,
    shell: String,
}

impl Mine {
    fn new() -> Mine {
        let http = Http::of(builder());
        let session = http.session(r#"{"name":"heron"}"#);
        let title = json!({ "title": SECRET }).to_string();
        http.call("PUT", &format!("/sessions/{session}"), Some(&title)).json(200);
        let run = http.post(&session, SECRET)["run_id"].as_str().unwrap().to_owned();
        http.wait_for(&session, "idle");
        let shell = http.call("POST", "/shells", None).json(201)["id"].as_str().unwrap().to_owned();
        let command = json!({ "command": format!("echo {SECRET}") }).to_string();
        http.call("POST", &format!("/shells/{shell}/exec"), Some(&command)).json(200);
        until("the index", || (!http.get("/search?q=heron")["items"].as_array()?.is_empty()).then_some(()));
        Mine { http, session, run, shell }
    }

    /// Every operation of the document, with my ids in its path, and whether it takes a body.
    fn operations(&self) -> Vec<(String, String, bool)> {
        let document: Value = self.http.curl("/openapi.json", &[]).json(200);
        let mut found = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let path = path.trim_start_matches("/api/v1");
            let id = if path.starts_with("/projects/") { "default" } else { &self.session };
            let path = path
                .replace("{project}", "default")
                .replace("{id}", id)
                .replace("{rid}", &self.run)
                .replace("{sid}", &self.shell);
            // What is not there yet has an id of the right form.
            let path: String = path
                .split('/')
                .map(|part| if part.starts_with('{') { "01ARZ3NDEKTSV4RRFFQ69G5FAV" } else { part })
                .collect::<Vec<_>>()
                .join("/");
            for (method, operation) in item.as_object().unwrap() {
                found.push((method.to_uppercase(), path.clone(), operation["requestBody"].is_object()));
            }
        }
        assert!(found.len() > 30, "{found:?}");
        found
    }

    /// What is mine, whatever others made.
    fn own(&self) -> String {
        let text = |path: String| self.http.call("GET", &path, None).text;
        let Mine { session, shell, .. } = self;
        [
            text(format!("/sessions/{session}")),
            text(format!("/sessions/{session}/records")),
            text(format!("/shells/{shell}/records")),
        ]
        .join("\n")
    }

    /// All that could have changed.
    fn all(&self) -> String {
        let text = |path: &str| self.http.call("GET", path, None).text;
        let shells: Vec<Value> = self.http.get("/shells")["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|shell| shell["id"].clone())
            .collect();
        let projects: Vec<Value> = self.http.call("GET", "/projects", None).json(200)["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|project| project["id"].clone())
            .collect();
        [
            self.own(),
            text("/projects/default/sessions?archived=true"),
            text("/tokens"),
            json!(shells).to_string(),
            json!(projects).to_string(),
        ]
        .join("\n")
    }
}

fn is_refused(answer: &Response) -> bool {
    (400..500).contains(&answer.status)
}

#[test]
fn a_stranger_sees_nothing_at_any_route() {
    let mine = Mine::new();
    let theirs = mine.http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    let status = mine.http.call_as(&theirs, "GET", "/status", None).json(200);
    assert_eq!((&status["sessions"], &status["running"]), (&json!(0), &json!(0)));
    assert_eq!(status["loaded"], json!(0), "the owner's session is loaded, and is nobody else's business");
    assert_ne!(mine.http.get("/status")["loaded"], json!(0));
    let before = mine.own();
    for (method, path, _) in mine.operations() {
        let query = match path.as_str() {
            "/search" | "/search/sessions" => "?q=heron",
            _ if method == "DELETE" => "?confirm=true",
            _ => "",
        };
        for body in [None, Some(r#"{"text":"x"}"#), Some(r#"{"title":"x"}"#), Some(r#"{"command":"id"}"#)] {
            if body.is_some() && !["POST", "PUT", "PATCH"].contains(&method.as_str()) {
                continue;
            }
            let answer = mine.http.call_as(&theirs, &method, &format!("{path}{query}"), body);
            for word in ["heron", "nests", &mine.run] {
                assert!(!answer.text.contains(word), "{method} {path}: {}", answer.text);
            }
            let names_mine = [&mine.session, &mine.shell, &mine.run].iter().any(|id| path.contains(*id));
            assert!(!names_mine || is_refused(&answer), "{method} {path}: {} {}", answer.status, answer.text);
        }
    }
    assert_eq!(mine.own(), before, "and has changed nothing of mine");
}

/// Also not how much was done: their events are numbered among themselves, and paged by that.
#[test]
fn a_stranger_cannot_count_what_others_did() {
    let mine = Mine::new();
    let theirs = mine.http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    for _ in 0..2 {
        mine.http.call_as(&theirs, "POST", "/projects/default/sessions", Some("{}")).json(201);
        mine.http.session("{}");
    }
    let audit =
        |query: &str| mine.http.call_as(&theirs, "GET", &format!("/audit?limit=1{query}"), None).json(200);
    let newest = until("both events", || Some(audit("")).filter(|page| page["items"][0]["number"] == 1));
    let oldest = audit(&format!("&cursor={}", newest["next"].as_str().unwrap()));
    assert_eq!((&oldest["items"][0]["number"], &oldest["next"]), (&json!(0), &json!(null)));
    assert_eq!(oldest["items"][0]["user_id"], 54321);
}

#[test]
fn bad_bodies_are_refused_at_every_route_and_change_nothing() {
    let mine = Mine::new();
    let deep = format!("{{\"text\":{}1{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let huge = format!("{{\"limit\":{}}}", "9".repeat(5_000));
    let bodies: [&[u8]; 9] = [
        b"[]",
        b"7",
        b"\"text\"",
        b"{",
        b"{\"no_such_field\":1}",
        b"{\"text\":\"\xff\xfe\"}",
        b"{\"text\":\"\\ud800\"}",
        deep.as_bytes(),
        huge.as_bytes(),
    ];
    let before = mine.all();
    let bearer = format!("Authorization: Bearer {}", mine.http.token);
    let file = mine.http.daemon.path("body");
    let data = format!("@{}", file.display());
    for (method, path, takes_body) in mine.operations() {
        if !takes_body {
            continue;
        }
        for body in bodies {
            std::fs::write(&file, body).unwrap();
            let json =
                ["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"];
            let args = [&["-X", &method, "-H", &bearer, "--data-binary", &data], &json[..]].concat();
            let answer = mine.http.curl(&path, &args);
            let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            assert!(is_refused(&answer), "{method} {path} {shown}: {} {}", answer.status, answer.text);
        }
    }
    assert_eq!(mine.all(), before, "nothing has changed");
    assert_eq!(mine.http.get("/status")["sessions"], 1);
}

#[test]
fn no_secret_is_in_any_log_record_argument_or_error() {
    let http = Http::of(builder().env("CTX_LOG_LEVEL", "trace"));
    let code = http.call("POST", "/codes", None).json(201)["code"].as_str().unwrap().to_owned();
    let spent = http.call("POST", "/codes", None).json(201)["code"].as_str().unwrap().to_owned();
    let login = json!({ "code": &spent }).to_string();
    let browser =
        http.curl("/login", &["--data-binary", &login]).json(201)["token"].as_str().unwrap().to_owned();
    let ticket = http.call("POST", "/tickets", None).json(201)["ticket"].as_str().unwrap().to_owned();
    let revoked = http.call("POST", "/tokens", Some("{}")).json(201);
    http.call("DELETE", &format!("/tokens/{}", revoked["id"].as_str().unwrap()), None).json(204);
    let revoked = revoked["token"].as_str().unwrap().to_owned();
    let secrets = [http.token.clone(), code, spent, browser, ticket, revoked];
    let id = http.session("{}");
    // Shown where they belong, and where they do not.
    for secret in &secrets {
        let bearer = format!("Authorization: Bearer {}", http.token);
        for (path, header) in [
            ("/status".to_owned(), format!("Authorization: Bearer {secret}")),
            ("/status".to_owned(), format!("Authorization: Basic {secret}")),
            (format!("/status?token={secret}"), bearer.clone()),
            (format!("/sessions/{secret}"), bearer.clone()),
            (format!("/tokens/{secret}"), bearer.clone()),
            (format!("/sessions/{id}/messages?since={secret}"), bearer.clone()),
            (format!("/sessions/{id}/socket?ticket={secret}"), "X-None: 1".to_owned()),
            (format!("/projects/{secret}/sessions?cursor={secret}"), bearer.clone()),
        ] {
            let answer = http.curl(&path, &["-H", &header]);
            assert!(!answer.text.contains(secret.as_str()), "{path}: {}", answer.text);
        }
        let body = json!({ "code": secret, "more": secret }).to_string();
        assert!(!http.curl("/login", &["--data-binary", &body]).text.contains(secret.as_str()));
    }
    http.daemon.ctx(&["send", "hello"]).ok();
    let log = http.daemon.log();
    for secret in &secrets {
        let bare = secret.trim_start_matches("ctx_");
        assert!(!log.contains(bare), "a secret is in the daemon's log");
        let mut grep = std::process::Command::new("grep");
        assert_eq!(
            grep.args(["-rlF", bare]).arg(http.daemon.root()).output().unwrap().stdout,
            b"",
            "on disk"
        );
    }
    let mut arguments = std::process::Command::new("sh");
    let everyone =
        finish(arguments.args(["-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; true"])).ok();
    // Our own curl is gone; what is left is the daemon and those it started.
    for secret in &secrets {
        assert!(!everyone.contains(secret.as_str()), "a secret is an argument of a process");
    }
}
