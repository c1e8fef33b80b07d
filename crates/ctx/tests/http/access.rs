//! Who may come in: tokens, codes, tickets, Host and Origin, and what others do not see.

use serde_json::{Value, json};

use crate::support::{Http, builder};

#[test]
fn a_token_is_printed_alone_works_and_ends_with_its_revocation() {
    let http = Http::start();
    assert!(http.token.starts_with("ctx_") && !http.token.contains(char::is_whitespace));
    assert_eq!(http.get("/status")["sessions"], 0);
    let listed = http.daemon.ctx(&["token", "list"]).ok();
    assert!(!listed.contains(&http.token), "the list shows no secret");
    let id = listed.lines().nth(1).and_then(|row| row.split_whitespace().next()).expect("an id").to_owned();
    http.daemon.ctx(&["token", "revoke", &id]).ok();
    assert_eq!(http.call("GET", "/status", None).code(401), "EKEYREJECTED");
    assert!(http.daemon.ctx(&["token", "revoke", &id]).fails(1).contains("no such token"));
}

#[test]
fn a_token_survives_a_restart_and_only_its_hash_is_on_disk() {
    let mut http = Http::start();
    http.daemon.kill();
    http.daemon.start_again();
    assert_eq!(http.get("/status")["sessions"], 0);
    let secret = http.token.trim_start_matches("ctx_").to_owned();
    let found = std::process::Command::new("grep")
        .args(["-rlF", &secret])
        .arg(http.daemon.root())
        .output()
        .expect("grep runs");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "a secret is on disk");
    assert!(!http.daemon.log().contains(&secret), "a secret is in the log");
}

#[test]
fn without_a_good_token_nothing_is_answered() {
    let http = Http::start();
    let id = http.session("{}");
    let routes = [
        ("GET", "/status".to_owned()),
        ("GET", "/projects/default/sessions".to_owned()),
        ("POST", "/projects/default/sessions".to_owned()),
        ("GET", format!("/sessions/{id}")),
        ("DELETE", format!("/sessions/{id}?confirm=true")),
        ("POST", format!("/sessions/{id}/messages")),
        ("GET", format!("/sessions/{id}/records")),
        ("GET", format!("/sessions/{id}/socket")),
        ("POST", "/tokens".to_owned()),
        ("POST", "/tickets".to_owned()),
        ("GET", "/nothing".to_owned()),
    ];
    let wrong = format!("Authorization: Bearer {}0", http.token);
    for (method, path) in &routes {
        let bare = http.curl(path, &["-X", method]);
        assert_eq!(bare.code(401), "EKEYREJECTED", "{method} {path}");
        assert!(bare.headers.contains("www-authenticate: bearer"));
        for auth in [
            wrong.as_str(),
            "Authorization: Bearer",
            "Authorization: Basic eDp5",
            "Authorization: Bearer x y",
        ] {
            let refused = http.curl(path, &["-X", method, "-H", auth]);
            assert_eq!(refused.code(401), "EKEYREJECTED", "{method} {path} {auth}");
            assert!(!refused.text.contains(&http.token));
        }
    }
    assert_eq!(http.curl("/healthz", &[]).text, "ok\n");
    assert_eq!(http.get("/projects/default/sessions")["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_login_code_is_good_once() {
    let http = Http::start();
    let code = http.call("POST", "/codes", None).json(201)["code"].as_str().unwrap().to_owned();
    let body = json!({ "code": code }).to_string();
    let login = || http.curl("/login", &["--data-binary", &body]);
    let made = login().json(201);
    let token = made["token"].as_str().unwrap();
    assert_eq!(http.call_as(token, "GET", "/status", None).json(200)["sessions"], 0);
    assert_eq!(login().code(401), "EKEYREJECTED");
    for bad in [json!({ "code": 5 }), json!({}), json!({ "code": &code, "more": 1 })] {
        let refused = http.curl("/login", &["--data-binary", &bad.to_string()]);
        assert_eq!(refused.code(400), "EINVAL");
        assert!(!refused.text.contains(&code), "a code is not repeated");
    }
}

#[test]
fn a_login_code_is_no_better_than_the_token_that_made_it() {
    let http = Http::start();
    let made = http.call("POST", "/tokens", Some("{}")).json(201);
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let code = http.call_as(token, "POST", "/codes", None).json(201)["code"].clone();
    assert_eq!(http.call("DELETE", &format!("/tokens/{id}"), None).status, 204);
    let login = http.curl("/login", &["--data-binary", &json!({ "code": code }).to_string()]);
    assert_eq!(login.code(401), "EKEYREJECTED");
}

#[test]
fn a_label_cannot_draw_on_the_owners_terminal() {
    let http = Http::start();
    let label = json!({ "label": "\u{1b}[2J\nforged" }).to_string();
    http.call("POST", "/tokens", Some(&label)).json(201);
    let listed = http.daemon.ctx(&["token", "list"]).ok();
    assert!(!listed.contains('\u{1b}'), "{listed:?}");
    assert!(listed.lines().all(|line| !line.starts_with("forged")), "{listed:?}");
}

#[test]
fn a_session_of_a_token_for_another_user_is_kept_for_that_user() {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let uid_of = |line: &str| line.split(':').nth(2)?.parse::<u32>().ok();
    let uid = users.lines().filter_map(uid_of).find(|uid| *uid != 0).expect("such a user");
    let http = Http::start();
    let token = http.call("POST", "/tokens", Some(&json!({ "uid": uid }).to_string())).json(201);
    let token = token["token"].as_str().unwrap();
    http.call_as(token, "POST", "/projects/default/sessions", Some(r#"{"name":"theirs"}"#)).json(201);
    let log = format!("home/{uid}/agent/coder/session/theirs/events.jsonl");
    let file = std::fs::File::open(http.daemon.root().join(log)).unwrap();
    assert_eq!(ctx_journal::access::kept_for(&file).unwrap().uid, uid);
}

#[test]
fn a_body_that_nobody_reads_is_refused_and_changes_nothing() {
    let http = Http::start();
    let id = http.session("{}");
    for path in [format!("/sessions/{id}/restart"), "/tickets".to_owned()] {
        assert_eq!(http.call("POST", &path, Some(r#"{"no_such_field":1}"#)).code(400), "EINVAL", "{path}");
    }
    assert_eq!(http.state(&id), "idle");
}

#[test]
fn pages_of_others_and_foreign_names_are_kept_out() {
    let http = Http::start();
    let bearer = format!("Authorization: Bearer {}", http.token);
    let with = |header: &str| http.curl("/status", &["-H", &bearer, "-H", header]);
    for foreign in ["Origin: http://evil.example", "Origin: null", "Origin: http://localhost:3000"] {
        assert_eq!(with(foreign).code(403), "EACCES", "{foreign}");
    }
    for host in ["Host: evil.example", "Host: localhost.evil.example", "Host: 10.1.2.3:80"] {
        assert_eq!(with(host).code(403), "EACCES", "{host}");
    }
    with("Host: localhost:1").json(200);
    let own = format!("Origin: http://{}", http.address());
    with(&own).json(200);
    // Preflights get nothing either.
    let preflight = http.curl("/status", &["-X", "OPTIONS", "-H", "Origin: http://evil.example"]);
    assert_eq!(preflight.code(403), "EACCES");
    assert!(!preflight.headers.contains("access-control-allow"));
}

#[test]
fn another_users_token_sees_nothing() {
    let http = Http::start();
    let id = http.session(r#"{"name":"mine"}"#);
    let posted = http.post(&id, "a secret of mine");
    let run = posted["run_id"].as_str().unwrap();
    let theirs = http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    let as_them = |method: &str, path: &str, body: Option<&str>| http.call_as(&theirs, method, path, body);
    let sessions = as_them("GET", "/projects/default/sessions", None).json(200);
    assert_eq!(sessions["items"], json!([]));
    assert_eq!(as_them("GET", "/status", None).json(200)["sessions"], 0);
    for (method, path) in [
        ("GET", format!("/sessions/{id}")),
        ("PUT", format!("/sessions/{id}")),
        ("DELETE", format!("/sessions/{id}?confirm=true")),
        ("GET", format!("/sessions/{id}/messages")),
        ("GET", format!("/sessions/{id}/runs")),
        ("GET", format!("/sessions/{id}/runs/{run}")),
        ("POST", format!("/sessions/{id}/runs/{run}/cancel")),
        ("GET", format!("/sessions/{id}/records")),
        ("POST", format!("/sessions/{id}/resume")),
        ("DELETE", format!("/sessions/{id}/queued-message")),
        ("GET", format!("/sessions/{id}/socket")),
    ] {
        let answer = as_them(method, &path, None);
        assert_eq!(answer.code(404), "ENOENT", "{method} {path}");
        assert!(!answer.text.contains("secret"));
    }
    let body = r#"{"text":"hi"}"#;
    assert_eq!(as_them("POST", &format!("/sessions/{id}/messages"), Some(body)).code(404), "ENOENT");
    let tokens = as_them("GET", "/tokens", None).json(200);
    assert_eq!(tokens["items"].as_array().map(Vec::len), Some(1), "only their own");
    assert_eq!(as_them("POST", "/tokens", Some(r#"{"uid":0}"#)).code(403), "EACCES");
    http.wait_for(&id, "idle");
}

#[test]
fn too_many_requests_of_one_token_are_refused_with_a_time_to_wait() {
    let http = Http::of(builder().env("CTX_LIMITS_REQUESTS_PER_SECOND", "5"));
    let mut refused = None;
    for _ in 0..200 {
        let answer = http.call("GET", "/status", None);
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a refusal");
    assert_eq!(refused.code(429), "EAGAIN");
    assert!(refused.headers.contains("retry-after: 1"), "{}", refused.headers);
    // The owner's socket has no such limit.
    http.daemon.ctx(&["status"]).ok();
}

#[test]
fn an_address_that_others_reach_needs_to_be_meant() {
    let http = Http::start();
    let said = http.daemon.ctx(&["serve", "--root", "other", "--listen", "0.0.0.0:0"]).fails(2);
    assert!(said.contains("--allow-remote"), "{said}");
    let open = Http::of(
        testkit::TestDaemon::build(env!("CARGO_BIN_EXE_ctx"))
            .arg("--listen")
            .arg("0.0.0.0:0")
            .arg("--allow-remote"),
    );
    let port = open.address().rsplit(':').next().unwrap().to_owned();
    let bearer = format!("Authorization: Bearer {}", open.token);
    let host = format!("Host: 127.0.0.1:{port}");
    let answer = open.curl("/status", &["-H", &bearer, "-H", &host]);
    answer.json(200);
    assert!(answer.headers.contains("warning: 199"), "{}", answer.headers);
    assert!(!http.call("GET", "/status", None).headers.contains("warning:"));
}

#[test]
fn the_same_api_is_on_the_socket_for_whoever_the_kernel_says() {
    let http = Http::start();
    let id = http.session("{}");
    let socket = http.daemon.root().join(".state/api.sock");
    let out = std::process::Command::new("curl")
        .args(["-sS", "--unix-socket"])
        .arg(&socket)
        .arg(format!("http://ctx/api/v1/sessions/{id}"))
        .output()
        .expect("curl runs");
    let shown: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(shown, http.get(&format!("/sessions/{id}")));
}

#[test]
fn tokens_that_are_too_old_are_gone_from_the_store() {
    let mut http = Http::start();
    let file = http.daemon.root().join(".state/tokens");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let old = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    line["id"] = json!(old);
    line["sha256"] = json!("ab".repeat(32));
    line["expires_at"] = json!(1_000);
    std::fs::write(&file, format!("{text}{line}\n")).unwrap();
    http.daemon.kill();
    http.daemon.start_again();
    let listed = http.get("/tokens");
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    assert!(listed["items"][0].as_object().unwrap().contains_key("expires_at"), "{listed}");
    assert!(!std::fs::read_to_string(&file).unwrap().contains(old));
}
