//! `ctx open`: opens the daemon's page in a browser, signed in by a code that works once.
//!
//! The code is never an argument of a process, where others could see it: the browser is given a private file that
//! leads to the page. Nobody waits for the browser to be closed.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ctx_api::http::{Code as LoginCode, NewCode, Status};
use ctx_session::Code;

use crate::client::Api;
use crate::failure::Failure;
use crate::output;
use crate::root::{Root, xdg};

/// What opens pages on a desktop, best first.
const OPENERS: [&str; 3] = ["xdg-open", "sensible-browser", "x-www-browser"];
/// An opener that has no browser says so within this time.
const FAILS_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Open the daemon's page in a browser
///
/// Creates a code that works once, within 60 seconds, and opens the page with it. The page exchanges the code for
/// a token that lives as long as the browser tab, a week at most. $BROWSER may name the browser: a list separated
/// by `:`, with `%s` for the address. Without a browser the address is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx open
  ctx open --print                print the address, to open it elsewhere

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// Print the address with its code instead of opening it
    #[arg(long)]
    print: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    let status: Status = api.get("/status")?;
    let address = status.address.as_deref().and_then(|address| address.parse::<SocketAddr>().ok());
    let address = address.ok_or_else(|| {
        Failure::new(Code::Ehostdown, "the daemon does not listen on TCP, so a browser cannot reach it")
    })?;
    let made: LoginCode = api.post_with("/codes", &NewCode {})?;
    let page = format!("http://{}/api/v1/docs#code={}", reachable(address), made.code);
    if !args.print && has_browser() {
        let file = leading_to(&page)?;
        if open(&file) {
            output::say(format_args!("opened http://{} in your browser", reachable(address)));
            return Ok(());
        }
    }
    let mut out = output::stdout();
    writeln!(out, "{page}")?;
    out.flush()?;
    Ok(())
}

/// An address that can be asked: one that stands for all is this machine's own.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (std::net::Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, v6.port()).into(),
        other => other,
    }
}

fn set(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn has_browser() -> bool {
    ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(|name| set(name).is_some())
}

/// A private file that leads a browser to the page. Those of earlier times go.
fn leading_to(page: &str) -> Result<PathBuf, Failure> {
    let dir = xdg("XDG_STATE_HOME", ".local/state")?.join("ctx/open");
    let failed = |error| Failure::io(dir.display(), error);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
    for old in std::fs::read_dir(&dir).map_err(failed)?.flatten() {
        let _ = std::fs::remove_file(old.path());
    }
    let path = dir.join(format!("{}.html", crate::talk::client_id()));
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    let text = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>ctx</title><script>location.replace(\"{page}\")</script>\n"
    );
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(path)
}

/// Whether a browser took it.
fn open(file: &Path) -> bool {
    let own = set("BROWSER").map(|names| names.to_string_lossy().into_owned()).unwrap_or_default();
    own.split(':').chain(OPENERS).filter_map(|opener| command(opener, file)).any(takes)
}

/// An opener with its page; None if it is empty. `%s` stands for the page, which else comes last.
fn command(opener: &str, file: &Path) -> Option<Command> {
    let mut words = opener.split_whitespace();
    let mut command = Command::new(words.next()?);
    let mut given = false;
    for word in words {
        given |= word == "%s";
        if word == "%s" {
            command.arg(file)
        } else {
            command.arg(word)
        };
    }
    if !given {
        command.arg(file);
    }
    Some(command)
}

/// Starts it, out of reach of this terminal's keys. One that fails does so at once; one that goes on is a browser.
fn takes(mut command: Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut browser) = quiet.process_group(0).spawn() else { return false };
    let begun = Instant::now();
    loop {
        match browser.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if begun.elapsed() < FAILS_WITHIN => std::thread::sleep(LOOK_AGAIN),
            // It goes on, and ends with nobody waiting for it.
            Ok(None) | Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_goes_where_the_browser_wants_it() {
        let args = |opener: &str| {
            let command = command(opener, Path::new("/p"))?;
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            Some(words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(args("firefox").as_deref(), Some("firefox /p"));
        assert_eq!(args("chromium --new-window").as_deref(), Some("chromium --new-window /p"));
        assert_eq!(args("w %s -x").as_deref(), Some("w /p -x"));
        assert_eq!(args("  "), None);
    }

    #[test]
    fn an_address_for_all_is_asked_at_home() {
        for (listens, asked) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("127.0.0.1:7300", "127.0.0.1:7300"),
            ("192.168.1.7:1", "192.168.1.7:1"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), asked);
        }
    }
}
