//! Redaction by what stands around a secret: its name, a URL, a header, an option, the lines of a key, a variable.

use std::sync::Arc;

use ctx_text::redact::{Secrets, redact_bytes, redact_text};

use testkit::tokens::key_block;

use crate::redact::in_pieces;

#[track_caller]
fn check(text: &str, want: &str) {
    assert_eq!(redact_text(&Arc::new(Secrets::none()), text), want, "{text}");
}

/// Rows of a text with the secret in `«»`, and the kind that is shown in its place.
#[track_caller]
fn check_rows(rows: &[(&str, &str)]) {
    for (kind, row) in rows {
        let mut parts = row.split(['«', '»']);
        let [before, secret, after] = std::array::from_fn(|_| parts.next().unwrap_or_default());
        assert!(!secret.is_empty(), "{row}");
        check(&format!("{before}{secret}{after}"), &format!("{before}[REDACTED:{kind}]{after}"));
        check(
            &format!("x\n{before}{secret}{after}\ny\n"),
            &format!("x\n{before}[REDACTED:{kind}]{after}\ny\n"),
        );
    }
}

#[test]
fn a_value_beside_a_telling_name_is_replaced() {
    check_rows(&[
        ("password", "password=«abc123xyz»"),
        ("password", "PGPASSWORD=«abc123xyz» psql"),
        ("password", "export DB_PASSWORD='«abc123xyz»'"),
        ("password", "docker run -e MYSQL_ROOT_PASSWORD=«abc123xyz» mysql:8"),
        ("password", "docker run -e 'DB_PASS=«abc123xyz»' x"),
        ("password", "  db_password: «abc123xyz»"),
        ("password", "- smtpPassword:   \"«abc123xyz»\""),
        ("password", "{\"password\":\"«abc123xyz»\",\"x\":1}"),
        ("password", "{\\\"password\\\":\\\"«abc123xyz»\\\",\\\"x\\\":1}"),
        ("password", "'passwd' => '«abc123xyz»',"),
        ("password", "Server=x;Pwd=«abc123xyz»;Database=y"),
        ("password", "Driver=x;PWD=«abc123xyz»;Database=y"),
        ("password", "passphrase = «abc123xyz»"),
        ("password", "wget --password=«abc123xyz» https://example.org"),
        ("secret", "client_secret=«abc123xyz»&grant_type=x"),
        ("secret", "  secret_key_base: «3f786850e387550fdab836ed7e6dc881»"),
        ("secret", "const clientSecret = \"«abc123xyz»\";"),
        ("token", "?access_token=«abc123xyz»&x=1"),
        ("token", "//registry.example.org/:_authToken=«abc123xyz»"),
        ("token", "refreshToken: '«abc123xyz»',"),
        ("token", "os.environ[\"API_TOKEN\"] = \"«abc123xyz»\""),
        ("token", "API_TOKEN := «abc123xyz»"),
        ("api-key", "x-api-key: «abc123xyz»"),
        ("api-key", "apiKey: '«abc123xyz»',"),
        ("api-key", "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»"),
        ("api-key", "\"SecretAccessKey\": \"«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»\","),
        ("api-key", "AccountName=x;AccountKey=«Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsu==»;End"),
        ("api-key", "DD_API_KEY=«3f786850e387550fdab836ed7e6dc881»\r"),
        ("password", "\"A=1\\nDB_PASSWORD=«abcd1234efgh»\\nC=2\""),
        ("password", "\"A=1\\nPASS=«abcd1234efgh»\\nC=2\""),
        ("password", "PASS=«hunter2abc»"),
        ("password", "  pass: «hunter2abc»"),
        ("password", "  DB_PASS: «hunter2abc»"),
        ("password", "{\"PASS\": \"«hunter2abc»\"}"),
        ("password", "A=1\0DB_PASSWORD=«abcd1234efgh»\0C=2"),
        ("password", "set `DB_PASSWORD=«abcd1234efgh»` first"),
        ("password", "user=a,password=«abcd1234efgh»,x=1"),
        ("password", "password: «abcd1234efgh»   # prod"),
        ("password", "db_password = «abcd1234efgh» # prod"),
        ("password", "DB_PASSWORD=«Abc12345.»"),
        ("password", "  db_password: «Abc12345.»"),
        ("password", "{\"db_password\":\"«Abc12345.»\"}"),
        ("password", "+  db_password: «abc123xyz»"),
        ("password", "-  db_password: «abc123xyz»"),
        ("password", "+db_password = «abc123xyz»"),
        ("password", "conf/c.yml:3:  db_password: «abc123xyz»"),
        ("password", "3:db_password: «abc123xyz»"),
        ("password", "     3\tdb_password: «abc123xyz»"),
        ("token", "> X-Auth-Token: «abc123xyz»"),
        ("token", "< X-Auth-Token: «abc123xyz»\r"),
        ("api-key", "curl -H 'X-Api-Key: «abcdefgh12345678»' https://x"),
        ("api-key", "curl -H \"X-Api-Key: «abcdefgh12345678»\" https://x"),
        ("api-key", "{\"header\":\"x-api-key: «abcdefgh12345678»\",\"n\":1}"),
    ]);
}

#[test]
fn a_long_value_beside_a_telling_name_is_replaced() {
    let long = "a1B2-".repeat(3 << 10);
    for around in ["API_TOKEN=@\n", "{\"token\":\"@\",\"n\":1}\n", "token: @\n"] {
        check(&around.replace('@', &long), &around.replace('@', "[REDACTED:token]"));
    }
    check(&format!("Cookie: sid={long}\n"), "Cookie: [REDACTED:cookie]\n");
    check(
        &format!("Authorization: Negotiate {long} x\n"),
        "Authorization: Negotiate [REDACTED:authorization] x\n",
    );
    // Many names in one value.
    let names = "x_token=".repeat(1 << 10);
    check(&format!("{names}a1\n"), "x_token=[REDACTED:token]\n");
}

#[test]
fn what_is_no_literal_beside_a_telling_name_stays() {
    for text in [
        "let token = lexer.next_token2();\nif token == Token::Eof1 { return Err(Error::Token(token)) }\n",
        "password: string;\nconst password = getPassword1();\nuser.password = req.body.password\n",
        "function f(e,t){return e.token=t.token,e.password=this.password2,t.secret=void 0,e.apiKey=n.apiKey}\n",
        "error: unexpected token: expected identifier1\nerror: invalid token: `foo12345`\n",
        "max_tokens=4096 total_tokens: 128000 tokens: 12\n\"max_tokens\": 100000000\n",
        "token_type=bearer12 secret_name: my-secret1 password_hash_rounds=12345678\n",
        "api_key: ${API_KEY1}\npassword=$PASSWORD1\ntoken=<your-token-1>\nsecret: {{ .Values.secret1 }}\n",
        "export GITHUB_TOKEN=\"$(gh auth token)\"\npassword=********\npassword: null\n\"token\": null, \"secret\": true\n",
        "primary_key: id12345678\ncache-key: linux-cargo-3f786850e387550\npublic_key=abc123def456ghi789\n",
        "test auth::token_is_refreshed1 ... ok\ntest password::is_hashed ... ok\n   Compiling secrecy v0.10.3\n",
        "type Secret = { key: string; token: Token1234; password?: string }\nstruct Login { password: String1234 }\n",
        "key=value1234 hotkey=ctrl+shift+p1 monkey=banana12 bypass=abcdef12 compass: north123\n",
        "assert(password.length >= 8, \"password must have 8 characters\");\nlabel: \"Enter your password: \"\n",
        "private_key_path=/etc/ssl/key1.pem secret_file=/run/secrets/db1 password_file: ./secrets/password1.txt\n",
        "if (token === 'abc12345') {} while(tok!=NULL){} #define TOKEN_EQ 257\nimport { token } from './x'\n",
        "2024-01-01T00:00:00Z INFO token: refreshing in 300s password: checking1 it secret: loading1 it\n",
        "pub const ERROR_NO_TOKEN: WIN32_ERROR = 1008u32;\ndot2_token: node.dot2_token,\n",
        "PASS: tests/t0001-basic.sh\nPASS: test-utf8\nXPASS: t0002\nPASS:\ttest_2\n",
        "PWD=/tmp/r3/proj2/app1\nOLDPWD=/srv/app2/current\ndeclare -x PWD=\"/tmp/r3/proj2/app1\"\n",
        "checksum = \"3f786850e387550fdab836ed7e6dc881de23001b\"\npassword: correct-horse\ntoken=12345678\n",
        "src/a.rs:12:  let token: Token1234\nc.yml:3:  password: correct-horse\n+  the token: abc123xyz\n'the token: abc12345'\n",
        "12:34:56.123456 up123456:3 build:1234567:short-1 00:1b:44:11:3a:b7 [::1]:8080 123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew1\n",
    ] {
        check(text, text);
    }
}

#[test]
fn credentials_in_urls_and_headers_are_replaced() {
    check_rows(&[
        ("url-password", "postgres://user:«hunter2x»@db:5432/x"),
        ("url-password", "git clone https://tom:«correct-horse»@git.example.org/x"),
        ("url-password", "DATABASE_URL=\"mysql://root:«p%40ss@word!»@localhost/shop\""),
        ("url-password", "postgres://app:«Tr0ub4dor$3x9»@db/x"),
        ("url-password", "https://tom:«p*ssW0rd99»@h/"),
        ("url-password", "https://tom:«a{b}[d](e)9»@h/"),
        ("url-password", "redis://u:«ab,cdE12345»@h"),
        ("url-password", "https://tom:«%40hunter2»@h/"),
        ("url-password", "https://tom:«$3cret-9»@h/"),
        ("url-password", "git clone https://«a1B2c3D4e5F6g7H8i9J0»@git.example.org/x"),
        ("authorization", "INFO Authorization: Bearer «abc123def456ghi» status=200"),
        ("authorization", "{authorization: Bearer «abc123def456ghi», host: x}"),
        ("authorization", "Authorization: Basic «dG9tOnNlY3JldDEyMw==» (x)"),
        ("authorization", "Authorization: Bearer «abcdefghijklmnopqrst»"),
        ("authorization", "Authorization: ApiKey «12345678» x"),
        ("authorization", "map[Authorization:[Bearer «abc123def456ghi789»]]"),
        ("authorization", "map[Authorization:[Bearer «abc123def456ghi789»] Host:[x]]"),
        ("authorization", "{\\\"Authorization\\\": \\\"Bearer «abc123def456ghi»\\\", \\\"x\\\": 1}"),
        ("authorization", "Authorization: Bearer «abcDEF123456»\r"),
        ("authorization", "> authorization: Basic «dG9tOmh1bnRlcg==»"),
        ("authorization", "curl -H 'Authorization: token «abcdef123456»' https://x"),
        ("authorization", "{\"Authorization\": \"Bearer «abcDEF123456»\", \"x\": 1}"),
        ("authorization", "Proxy-Authorization: Basic «dG9tOmh1bnRlcg==»"),
        ("authorization", "Authorization: «abcdef123456»"),
        ("authorization", "Authorization: Bearer \"«abc123def456ghi»\""),
        ("authorization", "-H 'Authorization: Bearer \"«abc123def456ghi»\"'"),
        (
            "authorization",
            "Authorization: Digest «username=\"Mufasa\", realm=\"a@b.org\", response=\"6629fae4\"»",
        ),
        (
            "authorization",
            "authorization: AWS4-HMAC-SHA256 «Credential=x/y, SignedHeaders=host, Signature=3f786850»",
        ),
        ("cookie", "Cookie: «lang=en; sid=abcdef123456»"),
        ("cookie", "Cookie: «theme=a; prefs=[1]; sid=abcdefgh12345678»"),
        ("cookie", "Cookie: «a=${A}; sid=abcdefgh12345678; b={b}»"),
        ("cookie", "curl -H 'Cookie: «lang=en; sid=abcdef123456»' x"),
        ("cookie", "< set-cookie: «_app_session=abcdef123456»; path=/; HttpOnly"),
    ]);
    for text in [
        "https://example.org/@scope/pkg?x=1\nssh://git@github.com/x/y.git\nhttp://localhost:3000/a@b\n",
        "https://averylongnameofsomeone@host/x https://some-user-of-host-1234@dev.example.org/x https://tom1234567@h\n",
        "Authorization: Bearer \"$TOKEN1234\"\nheaders.authorization = 'Bearer \"' + token1 + '\"'\n",
        "postgres://user:password@localhost/db https://user:$TOKEN@host https://{user}:{password}@host http://a:<pw>@b\n",
        "Authorization: Bearer $TOKEN1234\nAuthorization: Bearer <token-1234>\nAuthorization: Bearer ${{ secrets.X1 }}\n",
        "Basic usage: the authorization: required, authorization = optional\nAuthorization: Bearer authentication\n",
        "headers[\"Authorization\"] = \"Bearer \" + token1\nauthorization: Option<HeaderValue1>,\n",
        "Set-Cookie: a=b\nCookie: $COOKIE\ncookie: Cookie::parse(header1)?\n",
        "Cookie: session_id=${SESSION}; csrf_token=$CSRF\nCookie: session=<session-id>\nCookie: sid=xxxxxxxxxxxx\n",
        "https://tom:%s@h https://tom:%(pw)s@h https://tom:%PASS%@h https://tom:***@h https://tom:xxxx@h https://tom:${X:-y}@h\n",
        "https://[REDACTED:github-token]@host/x https://tom:[REDACTED:url-password]@host/x https://tom:{{ pw }}@h\n",
        "curl -H \"Authorization: Bearer $(get-token --for x1)\" x\nAuthorization: Bearer {token_1234}\nAuthorization: Token ********\n",
    ] {
        check(text, text);
    }
}

#[test]
fn passwords_in_well_known_options_are_replaced() {
    check_rows(&[
        ("password", "curl -u tom:«hunter2» https://example.org/x"),
        ("password", "+ curl -sS --user 'tom:«correct horse»' https://example.org/?a=1&b=2"),
        ("password", "curl -utom:«hunter2» https://example.org/x"),
        ("password", "mysql -u root -p«hunter2» shop"),
        ("password", "curl -u tom:«Sup3r$ecret9» https://example.org/x"),
        ("password", "curl -su tom:«Sup3rSecret9» https://example.org/x"),
        ("password", "curl -fsSLutom:«Sup3rSecret9» https://example.org/x"),
        ("password", "mysql -uroot -p«S3cr=tPass9»"),
        ("password", "mysql -uroot -p'«secret=pass9»' shop"),
        ("password", "mysqldump -h db -p'«hunter2;x»' shop"),
        ("password", "docker login -u tom -p «hunter2» registry.example.org"),
        ("password", "docker login --password=«hunter2-hunter2» -u tom"),
        ("password", "docker  login -u tom  -p «hunter2» registry.example.org"),
        ("password", "docker --config /x login -u tom -p «hunter2»"),
        ("password", "podman login --tls-verify=false -p «hunter2» r"),
        ("password", "mysql.exe -p«hunter2» shop"),
        ("password", "mariadb-dump -p«hunter2» shop"),
        ("password", "/opt/mysql-8.0/bin/mysqladmin -p«hunter2» ping"),
        ("password", "sshpass -p «hunter2» ssh tom@host"),
        ("password", "sshpass -p'«hunter2»' ssh tom@host"),
    ]);
    check(
        "curl --proxy-user a:abc123x -u tom:hunter2 x\n",
        "curl --proxy-user a:[REDACTED:password] -u tom:[REDACTED:password] x\n",
    );
    check("curl -U $U:$P -u tom:hunter2 x\n", "curl -U $U:$P -u tom:[REDACTED:password] x\n");
    check("curl -u tom -u tom:hunter2 x\n", "curl -u tom -u tom:[REDACTED:password] x\n");
    check("curl x 2>&1 -u tom:hunter2\n", "curl x 2>&1 -u tom:[REDACTED:password]\n");
    let token = format!("ghp_{}", "a1B2c3D4".repeat(5));
    check(
        &format!("curl -H 'x: {token}' -u tom:hunter2 {token}\n"),
        "curl -H 'x: [REDACTED:github-token]' -u tom:[REDACTED:password] [REDACTED:github-token]\n",
    );
    for text in [
        "curl -u $USER:$PASS x\ncurl -u tom https://x\ncurl --user-agent a1:b2 x\ncurl https://example.org/a:b -o x1\n",
        "curl -XPUT host:9200/index_1\ncurl -sXPUT host:9200/index_1\ncurl -so u:1234567 x\n",
        "mysql -P 3306 -h db -p shop\nmysql --port=3306\nmysql -port=3306\nmysqld: ready\nmysql -p\"$PASSWORD\" shop\n",
        "docker login -p $TOKEN r\ndocker login -p $(get-token --for x) r\nsshpass -p \"$PASSWORD\" ssh x\nsshpass -e ssh x\ndocker login --password-stdin r\n",
        "mysql shop; mkdir -parents/of/it\n",
        "mariadb-plugin-connect\nmysql-proxy-0.8\nmysql-performance-schema x\nmysql-proxy-0.8.deb\n(mysql-proxying)\n",
        "docker run -p 127.0.0.1:80:80 login\ndocker login\ndocker -p logins\n",
    ] {
        check(text, text);
    }
}

#[test]
fn the_lines_of_a_private_key_are_replaced_by_one_mark() {
    for label in [
        "RSA PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
        "OpenVPN Static key V1",
    ] {
        let (block, lines) = key_block(label);
        let want = format!("-----BEGIN {label}-----\n[REDACTED:private-key]\n-----END {label}-----\n");
        check(&format!("x\n{block}next line\n"), &format!("x\n{want}next line\n"));
        check(&format!("{block}{block}"), &format!("{want}{want}"));
        check(&block.replace('\n', "\r\n"), &want.replace("-----\n", "-----\r\n"));
        let numbered =
            block.lines().enumerate().map(|(n, line)| format!("{n:>6}\t{line}\n")).collect::<String>();
        let seen = redact_text(&Arc::new(Secrets::none()), &numbered);
        assert!(lines.iter().all(|line| !seen.contains(&line[..20])) && seen.contains("END"), "{seen}");
        let json = format!("{{\"key\":\"{}\"}}\n", block.replace('\n', "\\n"));
        check(
            &json,
            &format!(
                "{{\"key\":\"-----BEGIN {label}-----[REDACTED:private-key]-----END {label}-----\\n\"}}\n"
            ),
        );
    }
    check(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\nMIIEpAIBAAKCAQEA7f8a9b\nQw==\n-----END RSA PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\n[REDACTED:private-key]\n-----END RSA PRIVATE KEY-----\n",
    );
    check(
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: x\nP2/56wAAA+wAAAA+ZGwtbW9kcAA\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\n",
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n[REDACTED:private-key]\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\n",
    );
    check(
        "Public-Lines: 1\nAAAAB3NzaC1yc2EAAAADAQAB\nPrivate-Lines: 1\nAAABAQC3xYzaB3cD4eF5gH6i\nPrivate-MAC: 00ff00ff\n",
        "Public-Lines: 1\nAAAAB3NzaC1yc2EAAAADAQAB\nPrivate-Lines: 1\n[REDACTED:private-key]\nPrivate-MAC: 00ff00ff\n",
    );
}

/// What stands before and behind each line of a key that is not shown as it is.
const AROUND_LINES: &[(&str, &str)] = &[
    ("", ""),
    ("+", ""),
    ("-", ""),
    (" ", ""),
    ("> ", ""),
    ("> > ", ""),
    ("\u{1b}[32m+\u{1b}[m\u{1b}[32m", "\u{1b}[m"),
    ("", "$"),
    ("# ", ""),
    ("  | ", "\r"),
    ("@:", ""),
    ("conf/k.pem:@:", ""),
    ("     @\t", ""),
    ("2024-01-01T00:00:@Z INFO app: ", ""),
    ("2024-01-01 00:00:@ INFO ", ""),
    ("[@] ", ""),
    ("web-1  | ", ""),
];

#[test]
fn the_lines_of_a_private_key_are_replaced_whatever_stands_before_and_behind_each() {
    let headers = [
        ("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00FF00FF00FF00FF\n\n"),
        ("PGP PRIVATE KEY BLOCK", "\n"),
        ("PGP PRIVATE KEY BLOCK", "Version: GnuPG v2\nComment: of tom\n\n"),
    ];
    for (label, headers) in headers {
        let (block, _) = key_block(label);
        let key = block.replacen('\n', &format!("\n{headers}"), 1).replace("\n-----END", "\nQw==\n-----END");
        for (before, behind) in AROUND_LINES {
            let lines = key
                .lines()
                .enumerate()
                .map(|(at, line)| format!("{}{line}{behind}\n", before.replace('@', &(at + 8).to_string())));
            let lines: Vec<String> = lines.collect();
            let (Some(first), Some(last)) = (lines.first(), lines.last()) else { panic!("no lines") };
            let want = format!("{first}[REDACTED:private-key]\n{last}{before}the next line\n");
            check(&format!("{}{before}the next line\n", lines.concat()), &want);
            let text = lines.concat();
            for at in (0..text.len()).step_by(7) {
                let secrets = Arc::new(Secrets::none());
                let (head, tail) = text.as_bytes().split_at(at);
                let whole = redact_bytes(&secrets, text.as_bytes());
                assert_eq!(in_pieces(&secrets, [head, tail]), whole, "{before}: cut at {at}");
            }
        }
    }
}

#[test]
fn half_a_key_takes_nothing_else_with_it_and_neither_do_mentions_and_public_keys() {
    let (block, lines) = key_block("PRIVATE KEY");
    let half: String = block.lines().take(3).map(|line| format!("{line}\n")).collect();
    let want = "-----BEGIN PRIVATE KEY-----\n[REDACTED:private-key]\n";
    check(
        &format!("{half}cat: the file, it is gone\nls\n"),
        &format!("{want}cat: the file, it is gone\nls\n"),
    );
    check(half.trim_end(), want);
    // Lines of a log end with plain words.
    let log = "2026-01-01 12:00:00 INFO app: ";
    let served: String = (1..9).map(|n| format!("2026-01-01 12:00:0{n} INFO request {n} served\n")).collect();
    let text = format!("{log}-----BEGIN PRIVATE KEY-----\n{log}{}\n{served}", lines[0]);
    let hidden = format!("{log}-----BEGIN PRIVATE KEY-----\n[REDACTED:private-key]\n{served}");
    assert_eq!(redact_text(&Arc::new(Secrets::none()), &text), hidden);
    let endless = format!("-----BEGIN PRIVATE KEY-----\n{}", format!("{}\n", lines[0]).repeat(2000));
    let seen = redact_text(&Arc::new(Secrets::none()), &endless);
    assert!(seen.starts_with(want) && seen.len() > want.len() + 1000, "{} bytes", seen.len());
    for text in [
        "if text.starts_with(\"-----BEGIN RSA PRIVATE KEY-----\") {\n    found(it, and more);\n}\n",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\n-----END CERTIFICATE-----\n",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHqg8lY2ab12cd34ef56gh78ij90klMNOPqrstUVWXyz0 tom@host\n",
    ] {
        check(text, text);
    }
}

#[test]
fn the_values_of_secret_variables_are_replaced_wherever_they_stand() {
    let mut vars: Vec<(String, String)> =
        (0..600).map(|n| (format!("S{n}_TOKEN"), format!("value-{n:03}-x7"))).collect();
    vars.push(("DB_PASSWORD".to_owned(), "mypassword123456".to_owned()));
    vars.push(("OUTER_TOKEN".to_owned(), "ab-value-003-x7-cd".to_owned()));
    vars.push(("LONGER_TOKEN".to_owned(), "value-004-x7-and-more".to_owned()));
    for count in [vars.len(), 20] {
        let vars = &vars[vars.len() - count..];
        let secrets = Arc::new(Secrets::from_env(vars.iter().map(|(name, value)| (name, value))));
        for (name, value) in vars {
            let text = redact_text(&secrets, &format!("x{value}y {value}\n"));
            assert_eq!(text, format!("x[REDACTED:env:{name}]y [REDACTED:env:{name}]\n"), "{value}");
        }
    }
}

#[test]
fn a_value_of_several_lines_or_of_many_bytes_is_replaced_in_parts() {
    let key = "first-line-of-it-1\nsecond-line-of-it-2\nshort\n";
    let long = "7xY-".repeat(2 << 10);
    let secrets = Arc::new(Secrets::from_env([("MULTI_SECRET", key), ("LONG_TOKEN", &long)]));
    let text = redact_text(&secrets, &format!("{key}second-line-of-it-2 alone\nx {long} y\nz\n"));
    let mark = "[REDACTED:env:MULTI_SECRET]";
    assert_eq!(text, format!("{mark}\n{mark}\nshort\n{mark} alone\nx [REDACTED:env:LONG_TOKEN]\nz\n"));
}

#[test]
fn variables_that_hold_no_secret_are_not_hidden() {
    for (name, value, is_hidden) in [
        ("API_KEY", "12345678901234567890", true),
        ("SECRET_KEY", "correct_horse_battery", true),
        ("GITEA_PAT", "correct-horse-9", true),
        ("SORT_KEY", "created_at", false),
        ("API_KEY", "short", false),
        ("TOKEN_FILE", "/run/secrets/token-1", false),
        ("SSH_KEY", "/home/tom/.ssh/id_rsa", false),
        ("NAME", "correct-horse-9", false),
        ("PWD", "/home/tom/src", false),
        ("MY_TOKEN", "xxxxxxxxxxxx", false),
    ] {
        let secrets = Arc::new(Secrets::from_env([(name, value)]));
        let seen = redact_text(&secrets, &format!("it is {value}\n"));
        assert_eq!(!seen.contains(value), is_hidden, "{name}={value}: {seen}");
    }
}
