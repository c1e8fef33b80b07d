//! `ctx open`: a browser that is signed in by a code that nobody else sees.

use std::os::unix::fs::PermissionsExt;

use crate::support::build;

#[test]
fn open_gives_the_browser_a_private_file_and_prints_the_address_without_one() {
    let daemon = build().arg("--listen").arg("127.0.0.1:0").start();
    let printed = daemon.ctx(&["open"]).ok();
    let again = daemon.ctx(&["open", "--print"]).ok();
    for url in [&printed, &again] {
        assert!(url.starts_with("http://127.0.0.1:") && url.contains("/api/v1/docs#code="), "{url}");
        assert_eq!(url.lines().count(), 1);
    }
    assert_ne!(printed, again);
    // A browser that notes down what it was given, as `ps` would show it.
    let browser = daemon.path("browser");
    let noted = daemon.path("noted");
    let script = format!("#!/bin/sh\necho \"$*\" >{0}\ncat \"$1\" >>{0}\n", noted.display());
    std::fs::write(&browser, script).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = daemon.command(&["open"]);
    command.env("BROWSER", &browser);
    testkit::finish(&mut command).ok();
    let seen = std::fs::read_to_string(&noted).unwrap();
    let (argument, page) = seen.split_once('\n').unwrap();
    assert!(!argument.contains("code"), "{argument}");
    assert_eq!(std::fs::metadata(argument).unwrap().permissions().mode() & 0o777, 0o600);
    let url = page.split('"').find(|part| part.starts_with("http://")).unwrap();
    let code = url.split("code=").nth(1).unwrap();
    let login = url.split("docs").next().unwrap().to_owned() + "login";
    let body = format!("{{\"code\":\"{code}\"}}");
    let trade = || {
        let mut curl = std::process::Command::new("curl");
        testkit::finish(curl.args(["-sS", "--data-binary", &body, &login])).ok()
    };
    assert!(trade().contains("\"token\":\"ctx_"), "traded for a token");
    assert!(trade().contains("EKEYREJECTED"), "once");
    assert!(!daemon.log().contains(code), "and in no log");
}
