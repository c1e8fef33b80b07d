//! `ctx open`: a browser that is signed in by a code that nobody else sees.

use std::os::unix::fs::PermissionsExt;

use testkit::until;

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
    let seen = until("the browser", || {
        std::fs::read_to_string(&noted).ok().filter(|seen| seen.ends_with("</script>\n"))
    });
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

#[test]
fn open_waits_for_no_browser_and_prints_the_address_when_none_takes_it() {
    let daemon = build().arg("--listen").arg("127.0.0.1:0").start();
    let script = |name: &str, text: &str| {
        let path = daemon.path(name);
        std::fs::write(&path, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pid = daemon.path("pid");
    let stays = script("stays", &format!("echo $$ >{0}.new; mv {0}.new {0}; exec sleep 600", pid.display()));
    let broken = script("broken", "exit 3");
    let open = |browser: &str| {
        let mut command = daemon.command(&["open"]);
        // Of this machine's own openers none is asked.
        testkit::finish(command.env("BROWSER", browser).env("PATH", "/nonexistent"))
    };
    let opened = open(&format!("/nonexistent/browser:{broken}:{stays}"));
    assert_eq!((opened.code, opened.stdout.as_str()), (0, ""), "{}", opened.stderr);
    assert!(opened.stderr.contains("opened http://127.0.0.1:"), "{}", opened.stderr);
    let browser: i32 = until("the browser", || std::fs::read_to_string(&pid).ok()).trim().parse().unwrap();
    let browser = rustix::process::Pid::from_raw(browser).unwrap();
    rustix::process::kill_process(browser, rustix::process::Signal::KILL).expect("it goes on by itself");
    for none in ["/nonexistent/browser", &broken, " : "] {
        let printed = open(none).ok();
        assert!(printed.contains("/api/v1/docs#code="), "{printed}");
    }
}
