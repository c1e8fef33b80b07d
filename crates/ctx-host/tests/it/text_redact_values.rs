//! Values after telling names: passphrases with blanks, letters alone, separators inside; and the texts for forms, types
//! and names of code that look like them.

use std::sync::Arc;

use ctx_host::shell::text::redact::{Secrets, redact_text};

use crate::text_redact_corpus::{BASE64, Letters, Sample, in_pieces, not_harmed, sample};

/// Secrets that people choose, and what is joined to its name loosely.
pub(crate) fn samples() -> Vec<Sample> {
    let rows: &[(&'static str, &str, &str, &str)] = &[
        // Blanks, in quotes
        ("password", "{\"password\": \"", "correct horse battery staple 9", "\"}\n"),
        ("password", "DB_PASSWORD=\"", "correct horse 9 battery", "\"\n"),
        ("secret", "\"client_secret\": \"", "abc def 9ghijkl mno", "\",\n"),
        ("password", "password = '", "correct horse battery staple", "'\n"),
        ("password", "export RESTIC_PASSWORD='", "correct horse battery staple", "'\n"),
        ("password", "{\\\"password\\\":\\\"", "Correct Horse 9 Battery", "\\\"}\n"),
        ("password", "<password>", "correct horse 9 battery", "</password>\n"),
        ("password", "--passphrase \"", "blue-7 lamp, quiet & river!", "\" file\n"),
        // Letters alone
        ("password", "POSTGRES_PASSWORD: ", "NyBEeqZQGoCu", "\n"),
        ("password", "password = ", "NyBEeqZQGoCu", "\n"),
        ("password", "password: ", "qzkvtwhxjrbd", "\n"),
        ("api-key", "api_key: ", "NyBEeqZQGoCuXwPz", "\n"),
        ("api-key", "api_key=", "NyBEeqZQGoCuXwPz", "\n"),
        ("token", "token: ", "NyBEeqZQGoCuXwPz", "\n"),
        ("token", "\"token\": \"", "NyBEeqZQGoCuXwPz", "\"\n"),
        ("secret", "client_secret = ", "hWqL-tZvXbN_kRmGpJ", "\n"),
        ("password", "  MYSQL_ROOT_PASSWORD: ", "plainwords", "\n"),
        ("password", "DB_PASSWORD: ", "my-plain-word", " # of the shop\r\n"),
        // Separators inside
        ("password", "DB_PASSWORD=", "Tr0ub4dor&3xyz99", "\n"),
        ("password", "DB_PASSWORD=", "Tr0ub4dor;3xyz99", " psql\n"),
        ("password", "DB_PASSWORD=", "Tr0ub4dor,3xyz99", "\n"),
        ("password", "DB_PASSWORD=", "Tr0ub4dor<3xyz>99q", "\n"),
        ("password", "DB_PASSWORD=", "ab&9xyz99", "\n"),
        ("password", "--password=", "Tr0ub4dor&3xyz99", "\n"),
        ("password", "mysql --password ", "Tr0ub4dor;<3xyz99", " -u x\n"),
        ("password", "mysql -p", "Tr0ub4dor&3xyz99", " shop\n"),
        ("password", "password: ", "Tr0ub4dor,,3xyz99", "\n"),
        ("password", "?password=", "x1y2&z3w4q5", "&user=tom\n"),
        ("url-password", "mysql://root:", "Pa9@ss@wq7x", "@db/x\n"),
        ("url-password", "postgres://tom@example.org:", "Pa9sswq7x", "@db:5432/x\n"),
        // Given to a command
        ("password", "redis-cli -h db -p 6379 -a ", "x1y2z3w4", " ping\n"),
        ("password", "redis-cli -a '", "x1 y2 z3w4", "' ping\n"),
    ];
    let mut samples: Vec<Sample> = rows
        .iter()
        .map(|(kind, before, secret, after)| sample(kind, before, (*secret).to_owned(), after))
        .collect();
    let mut l = Letters(23);
    samples.push(sample("secret", "    client-key-data: ", l.take(BASE64, 300), "\n"));
    // A long value, the end of which is far behind what is weighed.
    let long = format!("{}&{};{}<x", l.take(BASE64, 300), l.take(BASE64, 300), l.take(BASE64, 300));
    samples.push(sample("password", "DB_PASSWORD=", long, "\n"));
    samples
}

#[test]
fn what_follows_a_value_stays_where_it_is_another_thing() {
    let secrets = Arc::new(Secrets::none());
    for (text, want) in [
        ("/x?password=x1y2z3&user=tom\n", "/x?password=[REDACTED:password]&user=tom\n"),
        ("/x?password=x1y2z3&amp;user=tom\n", "/x?password=[REDACTED:password];user=tom\n"),
        ("Server=x;Pwd=x1y2z3;Database=y\n", "Server=x;Pwd=[REDACTED:password];Database=y\n"),
        ("{password:x1y2z3,user:tom}\n", "{password:[REDACTED:password],user:tom}\n"),
        ("{password: x1y2z3, user: tom}\n", "{password: [REDACTED:password], user: tom}\n"),
        ("DB_PASSWORD=x1y2z3 && psql\n", "DB_PASSWORD=[REDACTED:password] && psql\n"),
        ("DB_PASSWORD=x1y2z3&& psql\n", "DB_PASSWORD=[REDACTED:password]&& psql\n"),
        ("DB_PASSWORD=x1y2z3; psql\n", "DB_PASSWORD=[REDACTED:password]; psql\n"),
        ("<code>PASSWORD=x1y2z3</code>\n", "<code>PASSWORD=[REDACTED:password]</code>\n"),
        ("<db password=x1y2z3><x>\n", "<db password=[REDACTED:password]><x>\n"),
        ("<password>x1 y2 z3</password><a>\n", "<password>[REDACTED:password]</password><a>\n"),
        ("https://tom:a@b9@host/x@y\n", "https://tom:[REDACTED:url-password]@host/x@y\n"),
        (
            "https://tom:pw9x@h1,https://ann:pw8y@h2/x\n",
            "https://tom:[REDACTED:url-password]@h1,https://ann:[REDACTED:url-password]@h2/x\n",
        ),
        ("redis-cli -a x1y2z3 get a | cat\n", "redis-cli -a [REDACTED:password] get a | cat\n"),
    ] {
        assert_eq!(redact_text(&secrets, text), want);
        for at in 0..text.len() {
            let (head, tail) = text.as_bytes().split_at(at);
            let cut = in_pieces(&secrets, &[head, tail]);
            assert_eq!(String::from_utf8_lossy(&cut), want, "cut at {at}");
        }
    }
}

#[test]
fn a_value_as_long_as_can_be_is_hidden_to_its_end_wherever_its_separators_fall() {
    let secrets = Arc::new(Secrets::none());
    let mut l = Letters(31);
    for len in 100..160 {
        let value = format!("{}&{}", l.take(BASE64, len), l.take(BASE64, 40));
        let text = format!("DB_PASSWORD={value} next\n");
        assert_eq!(redact_text(&secrets, &text), "DB_PASSWORD=[REDACTED:password] next\n", "{len}");
    }
    // And one that never ends is not held.
    let endless = format!("DB_PASSWORD=x1{}", "&y2".repeat(100_000));
    assert_eq!(redact_text(&secrets, &endless), "DB_PASSWORD=[REDACTED:password]");
}

#[test]
fn texts_types_and_names_after_telling_names_are_not_harmed() {
    not_harmed(LOOK_ALIKES);
}

const LOOK_ALIKES: &[&str] = &[
    // Texts for forms, in a few languages
    "\"password\": \"Enter your password\", \"secret\": \"Client secret\", \"passphrase\": \"Type it again\"\n",
    "\"password\": \"must have at least 8 characters\", \"passwd\": \"Your password must be 8-20 characters long.\"\n",
    "password: \"Please use 8 or more characters\"\n  password: 'Passwort (mindestens 8 Zeichen)'\n",
    "\"password\": \"Mindestens 8 Zeichen\", \"password\": \"Mot de passe\", \"password\": \"Contraseña 2\"\n",
    "\"password\": \"Au moins 8 caractères\", \"password\": \"Minimaal 8 tekens\", \"password\": \"hasło ma 8 znaków\"\n",
    "DB_PASSWORD=\"the password of your database\"\nPASSWORD_HINT: \"line 2 of it\"\nerr_password=\"invalid: code 12\"\n",
    "\"password\": \"line 2\", \"secret\": \"2024-01-01 12:00:00\", 'password': '%d of %d', \"password\": \"{0} left of 3\"\n",
    "\"token\": \"identifier 12 abc\", \"api_key\": \"key number 1 here\", \"pass\": \"12 tests, 3 skipped\"\n",
    "<password>Enter your password</password> <secret>see the chapter 4</secret> impl From<Password> for Foo1 Bar {\n",
    "printf(\"password: \"); x = 5; puts(\"no\");\nprint(\"Enter password:\", file=sys.stderr); n = 3; f(\"x\")\n",
    // Types and names
    "password: String,\ntoken: parseToken,\napi_key = settings.API_KEY\nsecret: getSecretFromVault\n",
    "token: CancellationTokenSource\npassword: PasswordEncoder\ntoken = JsonWebTokenProvider\nsecret: KubernetesSecretRef\n",
    "password: SecretString,\ntoken: HttpXsrfTokenExtractor\napi_key: OptionalApiKeyHeader\npassword = inputPasswordField\n",
    "PASSWORD: string\nDB_PASSWORD: string;\nDB_PASSWORD: str\nDB_PASSWORD: process.env.DB_PASSWORD\nDB_PASSWORD: db_password\n",
    "ERR_BAD_PASSWORD: the word is wrong\nERROR_TOKEN: unexpected\nBAD_PASSWORD: required field\nMY_PASSWORD: <your-password>\n",
    "token: XMLHttpRequest\nsecret = createHttpsProxyAgent\ntoken=toJsonSqlValue\npassword: unauthorizedRequest\n",
    "token: authentication\npassword: authenticating\nsecret: rotation-every-thirty-days\ntoken: jsonwebtoken\n",
    "function f(e,t){return e.PASSWORD=t,e.TOKEN=n}\nTOKEN_A=1,TOKEN_B=2\nPASSWORD=null,user1\nPASSWORD=$X;y1z2\n",
    "f(password=password,user1)\nlogin(token=token,n=5)\ntoken=auth.token,id2\n",
    // Shapes of tokens that are none
    "re_3MoKhQ2eZvKYlo2C1fbs0SBz re_compiles_everything_2_times_over re_export_1234567890123456789012345\n",
    "3f786850e387550fdab836ed7e6dc881-us-east-1 3f786850e387550fdab836ed7e6dc881de-us12 x3f786850e387550fdab836ed7e6dc881-us1\n",
    "3f786850e387550fdab836ed7e6dc881-usx 3f786850e387550fdab836ed7e6dc88-us12 3f786850e387550fdab836ed7e6dc881-us123\n",
    "pat-na1-xxxxxxxx pat-eu1-not-a-uuid-at-all sk-lf-xxx tvly-YOUR_API_KEY csk-learn pcsk_config glc_context/a/b\n",
    "sk.eyJ sk.eyJ1.x tk.eyJ0 task.eyJ1Ijoi pk.eyJ1IjoidG9tIiwiYSI6ImNqMTIzNDU2Nzg5MGFiY2QifQ\n",
    "    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUN5RENDQWJDZ0F3SUJBZ0lCQURBTkJna3Foa2lHOXcw\n",
    "    client-key-data: DATA+OMITTED\n    client-key-data: REDACTED\n    user-data: 1234567890abcdef1234\n",
    "redis-cli -h db -p 6379 ping\nredis-cli --stat -a\nredis-cli -a $PASSWORD ping\nredis-cli -n 1 lrange key 0 -1\n",
    "mysql://root@db:3306/x mailto:a:b@c https://example.org/@a:b@c ssh://git@github.com:22/x@y http://h:80/a@b\n",
];
