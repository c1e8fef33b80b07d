//! Settings of services and deployments: lists of variables, keys of all kinds, values that look like names of code; and
//! what looks like them.

use std::sync::Arc;

use ctx_host::shell::text::redact::{Secrets, redact_text};

use crate::text_redact_corpus::{ALNUM, BASE64, Letters, Sample, in_pieces, not_harmed, sample};

/// A password as people let one be made.
const MADE: &str = "Kx7pQ2mZ9w";

/// The kind, what stands before the secret, the secret, and what stands behind it.
type Row = (&'static str, &'static str, &'static str, &'static str);

pub(crate) fn samples() -> Vec<Sample> {
    let all = [LISTS, KEYS, NAME_LIKE, COMMANDS, CODE].concat();
    let row = |(kind, before, secret, after): &Row| sample(kind, before, (*secret).to_owned(), after);
    let mut samples: Vec<Sample> = all.iter().map(row).collect();
    // As `az storage account keys list` prints one.
    let mut l = Letters(41);
    let key = format!("{}+ASt{}==", l.take(BASE64, 76), l.take(ALNUM, 6));
    samples.push(sample("azure-storage-key", "\"permissions\": \"FULL\",\n\"value\": \"", key, "\"\n"));
    samples
}

/// A name and its value, as two settings of an entry.
const LISTS: &[Row] = &[
    // In diffs and plans
    ("password", "@@ -1,3 +1,3 @@\n+  - name: DB_PASSWORD\n+    value: ", MADE, "\n"),
    ("password", "@@ -1,3 +1,3 @@\n-  - name: DB_PASSWORD\n-    value: \"", MADE, "\"\n"),
    ("password", "   - name: DB_PASSWORD\n-    value: $(OLD!)\n+    value: ", MADE, "\n"),
    ("password", "+name: DB_PASSWORD\n+value: ", MADE, "\n"),
    ("password", "-name: DB_PASSWORD\n-value: ", MADE, "\n"),
    (
        "password",
        "\u{1b}[32m+\u{1b}[m\u{1b}[32m  - name: DB_PASSWORD\u{1b}[m\n\u{1b}[32m+\u{1b}[m\u{1b}[32m    value: ",
        MADE,
        "\u{1b}[m\n",
    ),
    ("password", "   - name: DB_PASSWORD\n\u{1b}[31m-    value: ", MADE, "\u{1b}[m\n"),
    ("password", "+    \"name\": \"DB_PASSWORD\",\n+    \"value\": \"", MADE, "\",\n"),
    ("password", "      + name  = \"DB_PASSWORD\"\n      + value = \"", MADE, "\"\n"),
    ("password", "      - name  = \"DB_PASSWORD\"\n      - value = \"", MADE, "\" -> null\n"),
    ("password", "        name  = \"DB_PASSWORD\"\n      ~ value = \"", MADE, "\" -> (known after apply)\n"),
    ("password", "< - name: DB_PASSWORD\n<   value: ", MADE, "\n"),
    // Behind the numbers and names of files
    ("password", "3:  - name: DB_PASSWORD\n4:    value: ", MADE, "\n"),
    ("password", "f.yml:3:  - name: DB_PASSWORD\nf.yml-4-    value: ", MADE, "\n"),
    ("password", "a/b-c:3:name: DB_PASSWORD\na/b-c-4-value: ", MADE, "\n"),
    ("password", "f.yml-3-name: DB_PASSWORD\nf.yml:4:value: ", MADE, "\n"),
    ("password", "k8s/f.yml:  - name: DB_PASSWORD\nk8s/f.yml-    value: ", MADE, "\n"),
    ("password", "     3\t  - name: DB_PASSWORD\n     4\t    value: ", MADE, "\n"),
    ("password", "   3   │   - name: DB_PASSWORD\n   4   │     value: ", MADE, "\n"),
    ("password", "web-1  | - name: DB_PASSWORD\nweb-1  |   value: ", MADE, "\n"),
    // Quoted, commented out and with comments
    ("password", "> - name: DB_PASSWORD\n>   value: ", MADE, "\n"),
    ("password", "#  - name: DB_PASSWORD\n#    value: ", MADE, "\n"),
    ("password", "  # - name: DB_PASSWORD # of the shop\n  #   value: ", MADE, "\n"),
    ("password", "// name: \"DB_PASSWORD\",\n// value: \"", MADE, "\",\n"),
    ("password", "- name: DB_PASSWORD  # of the shop: old\n  value: ", MADE, " # new\n"),
    ("password", "- name: DB_PASSWORD\n  # see docs: there\n\n  # and here\n  value: ", MADE, "\n"),
    ("password", "+- name: DB_PASSWORD\n+  # see docs\n+  value: ", MADE, "\n"),
    // In the next line, in tags, as parameters and as outputs
    ("password", "- name: DB_PASSWORD\n  value: >-\n    ", MADE, "\n"),
    ("password", "+- name: DB_PASSWORD\r\n+  value: |\r\n+    ", MADE, "\r\n"),
    ("password", "<property><name>DB_PASSWORD</name><value>", MADE, "</value></property>\n"),
    ("password", "  <name>db.password</name>\n  <value>", MADE, "</value>\n"),
    ("password", "--parameters ParameterKey=DBPassword,ParameterValue=", MADE, " ParameterKey=A\n"),
    ("password", "{\"ParameterKey\": \"DBPassword\", \"ParameterValue\": \"", MADE, "\"}\n"),
    (
        "password",
        "{\n  \"db_password\": {\n    \"sensitive\": true,\n    \"type\": \"string\",\n    \"value\": \"",
        "sunshines",
        "\"\n  }\n",
    ),
    ("token", "{\"api_token\":{\"sensitive\":true,\"type\":\"string\",\"value\":\"", "sunshine-12", "\"}}\n"),
    // Between brackets
    ("password", "{name: DB_PASSWORD, value: ", MADE, "}\n"),
    ("password", "env: [{name: DB_PASSWORD, value: ", MADE, "}]\n"),
    ("password", "--set name=DB_PASSWORD,value=", "hunter22", " x\n"),
    ("password", "        - name: DB_PASSWORD\n          value: ", MADE, "\n        - name: MODE\n"),
    ("password", "- name: DB_PASSWORD\r\n  value: \"", MADE, "\"\r\n"),
    ("password", "- name: DB_PASSWORD\n  value: '", "sunshines", "'\n"),
    ("token", "- name: \"API_TOKEN\"\n  value: ", "abcdEFGH1234", "\n"),
    ("password", "{\"name\":\"DB_PASSWORD\",\"value\":\"", MADE, "\"},{\"name\":\"A\"}\n"),
    ("password", "{\\\"name\\\":\\\"DB_PASSWORD\\\",\\\"value\\\":\\\"", MADE, "\\\"}\n"),
    (
        "aws-secret-key",
        "{\n    \"Name\": \"AWS_SECRET_ACCESS_KEY\",\n    \"Value\": \"",
        "wJalrXUtnFEMI7K7MDENGbPxRfiCYzEXAMPLEKEY",
        "\"\n},\n",
    ),
    (
        "password",
        "\"Name\": \"/prod/db/password\",\n\"Type\": \"SecureString\",\n\"Value\": \"",
        MADE,
        "\",\n",
    ),
    ("password", "    <add key=\"DbPassword\" value=\"", MADE, "\"/>\n"),
    ("secret", "<add key='ClientSecret'\n     value='", MADE, "' />\n"),
    ("password", "  name  = \"DB_PASSWORD\"\n  value = \"", MADE, "\"\n"),
    ("api-key", "- name: FERNET_KEY\n  value: ", "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=", "\n"),
];

/// Keys that are told by their values, in files of variables.
const KEYS: &[Row] = &[
    ("api-key", "OPENAI_KEY=", "kZ8xQ2mZ9wKx7pQ2", "\n"),
    ("api-key", "export ALGOLIA_ADMIN_KEY=", "3f786850e387550fdab836ed7e6dc881", "\n"),
    ("api-key", "JWT_KEY=\"", "kZ8xQ2mZ9wKx7pQ2mZ9w", "\"\n"),
    ("api-key", "FERNET_KEY=", "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=", "\n"),
    ("api-key", "SESSION_KEY = '", "kZ8xQ2mZ9wKx7pQ2mZ9w", "'\n"),
    ("api-key", "LICENSE_KEY=", "ABCD-1234-EFGH-5678", "\n"),
    ("api-key", "\"LICENSE_KEY\": \"", "0b5c1c52-dead-4a1e-b3ef-0123456789ab", "\",\n"),
    ("datadog-key", "DD-APPLICATION-KEY: ", "3f786850e387550fdab836ed7e6dc881de23001b", "\n"),
];

/// Values with a dot or an underscore, as names of code have them.
const NAME_LIKE: &[Row] = &[
    ("token", "kubeadm join 10.0.0.1:6443 --token ", "i1ppo0.pj1pn1lxxnq77ogq", " --discovery-x\n"),
    ("token", "token: ", "i1ppo0.pj1pn1lxxnq77ogq", "\n"),
    ("token", "token: ", "Kx7pQ2mZ9w.Kx7pQ2mZ9w", "\n"),
    ("password", "password: ", "_Kx7pQ2mZ9w", "\n"),
    ("password", "db_password: ", "Ab1_Kx7pQ2mZ9w_4", "\n"),
    ("password", "--password ", "Ab.Kx7pQ2mZ9w", " -x\n"),
];

/// Given to commands, statements and requests, or printed by them.
const COMMANDS: &[Row] = &[
    ("password", "CREATE USER tom WITH PASSWORD '", MADE, "';\n"),
    ("password", "alter user tom with password '", MADE, "';\n"),
    ("password", "CREATE USER 'tom'@'%' IDENTIFIED BY '", MADE, "';\n"),
    ("password", "IDENTIFIED WITH mysql_native_password BY '", MADE, "';\n"),
    ("password", "az login --service-principal -u x -p ", MADE, " --tenant t\n"),
    ("password", "oc login https://x.example.org:6443 -u tom -p ", MADE, "\n"),
    ("password", "helm registry login r.example.org -u tom -p ", MADE, "\n"),
    ("password", "nerdctl login -u tom -p", MADE, " r.example.org\n"),
    ("password", "openssl enc -d -pass pass:", MADE, " -in x\n"),
    ("password", "openssl rsa -passin pass:", MADE, "\n"),
    ("password", "curl -U tom:", MADE, " https://example.org\n"),
    ("password", "curl -s --proxy-user 'tom:", MADE, "' https://example.org\n"),
    ("cookie", "curl -b 'lang=en; sid=", "Kx7pQ2mZ9wKx7pQ2mZ9w", "' https://example.org\n"),
    ("cookie", "curl -sb sid=", "Kx7pQ2mZ9wKx7pQ2mZ9w", " https://example.org\n"),
    ("cookie", "curl --cookie \"sid=", "Kx7pQ2mZ9wKx7pQ2mZ9w", "\" https://example.org\n"),
    ("cookie", "b'Set-Cookie: sid=", "Kx7pQ2mZ9wKx7pQ2mZ9w", "\\r\\nHost: a\\r\\n'\n"),
    ("cookie", "b'Cookie: lang=en; sid=", "Kx7pQ2mZ9wKx7pQ2mZ9w", "\\r\\nHost: a\\r\\n'\n"),
    ("cookie", "{\"Cookie\": \"sid=", "Kx7pQ2mZ9wKx7pQ2mZ9w", "\"}\n"),
    ("cookie", "{'set-cookie': ['sid=", "Kx7pQ2mZ9wKx7pQ2mZ9w", "; Path=/']}\n"),
    ("secret", "    \"SecretString\": \"", MADE, "\",\n"),
    ("password", "\npassword        ", MADE, "\nusername        tom\n"),
    ("password", "\ndb_password    ", MADE, "\n"),
];

/// In code, and in what programs print of their settings.
const CODE: &[Row] = &[
    ("password", "Config { user: \"tom\", db_password: Some(\"", MADE, "\"), token: None }\n"),
    ("password", "const PASSWORD: &str = \"", MADE, "\";\n"),
    ("token", "static TOKEN: &'static str = \"", MADE, "\";\n"),
    ("password", "    password: str = \"", MADE, "\"\n"),
    ("password", "    password: Optional[str] = '", MADE, "'\n"),
    ("password", "password = b'", MADE, "'\n"),
    ("password", "DBPASS=", MADE, "\n"),
    ("password", "  dbPass = \"", MADE, "\"\n"),
];

#[test]
fn settings_without_a_secret_are_not_harmed() {
    not_harmed(LOOK_ALIKES);
}

#[test]
fn the_second_part_of_a_token_in_two_is_hidden_too() {
    let secrets = Arc::new(Secrets::none());
    let token =
        format!("{}_{}", concat!("sn", "trys_eyJpYXQiOjE3MTIzNDU2Nzh9Kx7pQ2mZ9wKx7="), "EqV8".repeat(11));
    let text = format!("auth {token} ok\n");
    assert_eq!(redact_text(&secrets, &text), "auth [REDACTED:sentry-token] ok\n");
    for at in 0..text.len() {
        let (head, tail) = text.as_bytes().split_at(at);
        assert_eq!(in_pieces(&secrets, &[head, tail]), b"auth [REDACTED:sentry-token] ok\n", "cut at {at}");
    }
}

/// Manifests, pipelines, forms, translations, code and summaries.
const LOOK_ALIKES: &[&str] = &[
    // Lists of variables
    "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: db-password-1\n      key: password\n",
    "- name: DB_PASSWORD\n  value: $(OTHER)\n- name: API_TOKEN\n  value: \"${API_TOKEN}\"\n- name: X_TOKEN\n  value: ''\n",
    "- name: MODE\n  value: abc123def456\n- name: TOKEN_TTL\n  value: 3600\n- name: TOKEN_URL\n  value: \"https://x1.example.org\"\n",
    "- name: DB_PASSWORD\n  value: {{ .Values.db.password }}\n- name: DB_PASSWORD\n  value: !Ref DbPassword1\n",
    "- name: PASSWORD_FILE\n  value: /run/secrets/db1\n- name: SECRET_NAME\n  value: my-secret-2\n- name: DB_SECRET\n  value: /a/b1\n",
    "{\"name\":\"token\",\"value\":token} { name: \"DB_PASSWORD\", value: dbPassword }, {name: \"X_TOKEN\", value: props.token1()}\n",
    "{\"Name\":\"DB_SECRET\",\"Value\":\"arn:aws:secretsmanager:eu-west-1:1:secret:x1\"} {\"Key\":\"Name\",\"Value\":\"web-12\"}\n",
    "{\"name\":\"DB_PASSWORD\",\"valueFrom\":\"arn:aws:ssm:eu-west-1:1:parameter/db1\"}\n",
    "{\"key\":\"password\",\"value\":\"Passwort\"},{\"key\":\"PASSWORD\",\"value\":\"Passwort\"},{\"name\":\"password\",\"value\":\"Contrasena\"}\n",
    "<input name=\"password\" type=\"password\" value=\"Enter\">\n<option name=\"token\" value=\"none\"> <add key=\"Mode1\" value=\"x1y2z3w4\"/>\n",
    "fn f(key: &str, value: u32) {}\nlet value = key;\nmap.insert(key, value=1);\nname: token,\nvalue: x1,\n",
    "struct Pair { name: String, value: String }\nvalue: Some(1)\nkey: token\nvalue: next_token1()\nsubvalue: Kx7pQ2mZ9w\n",
    // The same in diffs, plans, searches and code
    "+  - name: DB_PASSWORD\n+    valueFrom:\n+      secretKeyRef:\n+        name: db-password-1\n+        key: password\n+  - name: A1\n+    value: x1y2z3w4\n",
    "-    - name: API_TOKEN\n-      valueFrom:\n-        secretKeyRef: {name: api-1, key: token}\n+    - name: MODE\n+      value: abc123def456\n",
    "+- name: password_label\n+  value: Passwort\n+- name: password\n+  value: Contrasena\n 4:- name: password.hint\n 5:  value: \"Mindestens 8\"\n",
    "+ <input name=\"password\"\n+   value=\"Enter\">\n+ <input type=\"hidden\" name=\"step1\"\n+  value=\"x1y2z3w4\">\n",
    "- value: x1y2z3w4\n  name: DB_PASSWORD\n- value: abc123def456\n  name: MODE\n+- value: abc123def456\n+  name: MODE\n",
    "f.yml-3-  name: DB_PASSWORD\n--\nf.yml:9:  value: abc123def456\nname: DB_PASSWORD\n---\nvalue: abc123def456\n",
    "{\n  \"name\": \"DB_PASSWORD\"\n},\n{\n  \"value\": \"abc123def456\"\n}\n+ name: DB_PASSWORD\n+ the best value: abc123def456\n",
    "cookies.set(name=\"token\", value=session_token_1)\n{name: 'password', value: password1}\n{name:\"token\",value:oauth2_token_12}\n",
    "cookies.set(\n    name=\"token\",\n    value=config.session_token_1,\n)\n{\n  name: 'password',\n  value: password1\n}\n",
    "<name>password</name>\n<value>Passwort</value>\n<key>Mode1</key><value>x1y2z3w4</value>\n<b>DB_PASSWORD</b><value>x1y2z3w4</value>\n",
    "ParameterKey=Mode,ParameterValue=x1y2z3w4 ParameterKey=DBPassword,UsePreviousValue=true\n",
    "\"password\": {\"type\": \"string\", \"value\": \"abc123def456\"}, \"mode\": {\"sensitive\": true, \"value\": \"abc123def456\"}\n",
    "'Set-Cookie: number=7\\r\\nSet-Cookie: string=seven'\n\"Cookie: lang=en\\r\\nHost: a1.example.org\\r\\n\"\n",
    // Keys of caches, tables and buckets
    "CACHE_KEY=linux-cargo-3f786850e387550fdab836ed7e6dc881de23001b\nBUILD_KEY=linux-x86-64-rust-1-95-0-release\n",
    "PUBLIC_KEY=kZ8xQ2mZ9wKx7pQ2mZ9w\nSTRIPE_KEY=pk_live_kZ8xQ2mZ9wKx7pQ2mZ9w\nRECAPTCHA_SITE_KEY=kZ8xQ2mZ9wKx7pQ2mZ9w\n",
    "S3_KEY=releases/2024/01/app-1.2.3.tar.gz\nSTORE_KEY=user_profile_v2_2024_01_01\nSORT_KEY=kZ8xQ2mZ9wKx7pQ2mZ9w\n",
    "GPG_KEY=A035C8C19219BA821ECEA86B64E628F8D684696D\nKEY=3f786850e387550fdab836ed7e6dc881\nkey=3f786850e387550fdab836ed7e6dc881\n",
    "const ROUTE_KEY = getKey1234567890();\nROUTE_KEY=$ROUTE1234567890abc\nX_KEY = 12345678901234567890\ncache_key=3f786850e387550fdab836ed\n",
    // Counts and code
    "Tests: pass=12345 fail=0\npass=12/15 skip=3\npass=100% (12345)\n{pass:12345,fail:0}\nok: pass=1234, fail=1\n",
    "e.pass=t}(this,function(){return{token:e1,user:2,password:e2}});t.password=n1),e.secret=r[0]},x.token=a1}]\n",
    "dot2_token: node.dot2_token1,\ntoken: X509_v3.ext2\npassword: _field_1\nflags_token: WIN32_ERROR_2X\nsecret: int8x16_t2.x\n",
    "the --token option is told by node.js or else\n",
    // Statements, commands and requests
    "the password 'abc123' is wrong\nALTER USER tom WITH PASSWORD '$PASSWORD';\nIDENTIFIED BY '<password>'\nIDENTIFIED BY PASSWORD '*94BD'\n",
    "PASSWORD 'the 8 characters'\nwith password 'at least 8'\nIDENTIFIED AS 'x1y2'\nIDENTIFIED BY key1\n",
    "gcloud auth login -p x1y2z3\nuser login -p 8080\nafter login the -p 12345 option\ndocker login -u tom --password-stdin\n",
    "openssl -passin env:X1 -passout file:/a/b1\nopenssl -pass pass:$PASS\nbypass:12ab pass:test_12\n",
    "curl -b cookies.txt x\ncurl -b lang=en x\ncurl -U tom x\ncurl --proxy http://p:8080 x\ncurl --cookie-jar c1=d2 x\n",
    "\"Cookie\": \"lang=en\", cookie: cookie1, setCookie(\"a=b\"), cookies: {a: 1}, \"cookie\": {\"a\": \"x1y2z3w4v5u6t7\"}\n",
    "\"SecretString\": \"${x}\", \"SecretString\": {\"a\": 1}, SecretString: String, impl From<SecretString> for X1\n",
    "password        string\npassword        VARCHAR2(20)\npassword    scram-sha-256\npassword  sufficient  pam_unix.so Sha512\n",
    "the password    Kx7pQ2mZ9w\npassword Kx7pQ2mZ9w\npassword_hash    Kx7pQ2mZ9w\n",
    "BYPASS=x1y2z3 compass = \"n1e2s3w4\" firstPass = \"x1y2z3\" renderPass=0x12ab34 LOWPASS=440hz9\n",
    "pub const ERR_PASSWORD: &str = \"bad_password\";\nconst TOKEN: &str = \"x-auth-token\";\npassword: Some(\"secret\")\n",
    "token: Some(token1), password: String = get1(), password: str = None, token: Token == x1, secret: fn() => \"x1y2z3w4\"\n",
    "UNRESERVED_PAT = r\"(?:[A-Z0-9]|[a-z]){8}\"\npassword: T = r\"[a-z0-9]\"\n\"value\": \"eyJhIjoxfQ==\", \"value\": \"+ASt==\"\n",
];
