//! Shells on another machine, by the system's `ssh`: its config, agent, jump hosts and known hosts hold.
//!
//! The first channel is the master of a multiplexed connection; the others go over it and need no login of their own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::private::{ASKPASS, KNOWN, PASSWORD, PrivateDir, SOCKET};
use super::{RemoteConfig, checked_name, is_allowed};
use crate::error::ShellError;
use ctx_cage::rights::Rights;

/// What a caller says of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SshRequest {
    /// A name, an address, or an alias of the ssh config.
    pub host: String,
    pub user: Option<String>,
    pub port: Option<u16>,
    /// A private key in the operator's directory for keys.
    pub key_path: Option<String>,
    pub password: Option<String>,
    /// `SHA256:…` of the host's key.
    pub fingerprint: Option<String>,
}

impl SshRequest {
    /// Whether the names in it can be used at all.
    pub fn check(&self) -> Result<(), ShellError> {
        checked_name("host", &self.host, |c| c.is_ascii_alphanumeric() || "._-:%[]".contains(c))?;
        if let Some(user) = &self.user {
            checked_name("user", user, |c| c.is_ascii_alphanumeric() || "._-+\\@".contains(c))?;
        }
        Ok(())
    }
}

/// What the ssh config makes of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    pub user: String,
    pub hostname: String,
    pub port: String,
    /// Every path that the lists of known hosts may hold: `ssh -G` puts a space between two paths and quotes none.
    pub known_hosts: Vec<String>,
    /// Whether this ssh can exchange keys by GSSAPI, which no host key takes part in.
    pub has_gssapi_keys: bool,
}

impl Resolved {
    /// From what `ssh -G` prints.
    pub fn read(said: &str) -> Resolved {
        let mut resolved = Resolved::default();
        for line in said.lines() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "user" => resolved.user = value.to_owned(),
                "hostname" => resolved.hostname = value.to_owned(),
                "port" => resolved.port = value.to_owned(),
                "userknownhostsfile" | "globalknownhostsfile" => {
                    let words: Vec<&str> = value.split(' ').collect();
                    let from = |start| words.get(start..).unwrap_or_default();
                    let paths = (0..words.len())
                        .flat_map(|start| (1..=from(start).len()).map(move |len| (start, len)))
                        .filter_map(|(start, len)| Some(from(start).get(..len)?.join(" ")));
                    resolved.known_hosts.extend(paths);
                }
                "gssapikeyexchange" => resolved.has_gssapi_keys = true,
                _ => {}
            }
        }
        resolved
    }
}

/// A machine that may be gone to.
#[derive(Debug)]
pub(super) struct Machine {
    request: SshRequest,
    key: Option<PathBuf>,
    resolved: Resolved,
    first_use: bool,
    config: Option<PathBuf>,
    beat: Duration,
}

/// Refuses what the operator does not allow, and what ssh could take for something else than a name.
pub(super) fn check(
    request: &SshRequest,
    config: &RemoteConfig,
    rights: &Rights,
) -> Result<Option<PathBuf>, ShellError> {
    request.check()?;
    if let Some(fingerprint) = &request.fingerprint {
        let digest = fingerprint.strip_prefix("SHA256:").unwrap_or_default();
        if digest.len() != 43
            || !digest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
        {
            return Err(ShellError::invalid(
                "fingerprint",
                "fingerprint must be SHA256: and 43 characters, as `ssh-keygen -lf` prints it",
            ));
        }
    }
    if request.password.as_ref().is_some_and(|password| password.contains(['\0', '\n'])) {
        return Err(ShellError::invalid("password", "the password holds a line break or a NUL"));
    }
    // With the user's rights: which other files there are is not told by whether the key was found.
    let key = |path: &String| {
        rights
            .act(|| key_in(path, &config.key_dir))
            .unwrap_or_else(|error| Err(ShellError::Denied { message: error.to_string() }))
    };
    request.key_path.as_ref().map(key).transpose()
}

/// The key itself, which must be in the directory for keys, also behind links.
fn key_in(path: &str, dir: &Path) -> Result<PathBuf, ShellError> {
    let refused =
        || ShellError::invalid("key_path", format!("key_path must name a key in {}", dir.display()));
    let dir = dir.canonicalize().map_err(|_| refused())?;
    let key = dir.join(path).canonicalize().map_err(|_| refused())?;
    if key.starts_with(&dir) && key.is_file() { Ok(key) } else { Err(refused()) }
}

impl Machine {
    pub fn new(
        request: SshRequest,
        key: Option<PathBuf>,
        resolved: Resolved,
        config: &RemoteConfig,
    ) -> Result<Machine, ShellError> {
        let names = [&request.host, &resolved.hostname];
        if !names.iter().any(|name| is_allowed(config.hosts.as_deref(), name)) {
            return Err(ShellError::Denied {
                message: format!(
                    "the operator does not allow the host `{}` ([shells.ssh] hosts)",
                    request.host
                ),
            });
        }
        if !is_allowed(config.users.as_deref(), &resolved.user) {
            return Err(ShellError::Denied {
                message: format!(
                    "the operator does not allow the user `{}` ([shells.ssh] users)",
                    resolved.user
                ),
            });
        }
        Ok(Machine {
            request,
            key,
            resolved,
            first_use: config.first_use,
            config: config.ssh_config.clone(),
            beat: config.beat,
        })
    }

    /// `user@host`, with the port where that is not the usual one.
    pub fn name(&self) -> String {
        let port =
            if self.resolved.port == "22" { String::new() } else { format!(":{}", self.resolved.port) };
        format!("{}@{}{port}", self.resolved.user, self.request.host)
    }

    /// What `ssh -G` is asked with.
    pub fn question(request: &SshRequest, config: &RemoteConfig) -> Vec<OsString> {
        let mut words = config_words(config.ssh_config.as_deref());
        words.push("-G".into());
        words.extend(destination(request));
        words
    }

    /// The arguments of the first channel.
    pub fn first(&self, dir: &PrivateDir, interpreter: &str) -> Result<Vec<OsString>, ShellError> {
        let seconds = self.beat.as_secs().max(1);
        let mut options = vec![
            "ControlMaster=yes".to_owned(),
            "ControlPersist=no".to_owned(),
            "ConnectTimeout=15".to_owned(),
            format!("ServerAliveInterval={seconds}"),
            "ServerAliveCountMax=3".to_owned(),
            "ClearAllForwardings=yes".to_owned(),
            "PermitLocalCommand=no".to_owned(),
            "UpdateHostKeys=no".to_owned(),
            // The config could have these skip the check of the host's key.
            "NoHostAuthenticationForLocalhost=no".to_owned(),
            "VerifyHostKeyDNS=no".to_owned(),
            format!("StrictHostKeyChecking={}", if self.first_use { "accept-new" } else { "yes" }),
        ];
        if self.resolved.has_gssapi_keys {
            options.push("GSSAPIKeyExchange=no".to_owned());
        }
        if let Some(key) = &self.key {
            options.push(format!("IdentityFile={}", escaped(&key.to_string_lossy())));
            options.push("IdentitiesOnly=yes".to_owned());
        }
        match &self.request.password {
            Some(password) => {
                dir.put(PASSWORD, password.as_bytes(), 0o600)?;
                dir.put(ASKPASS, self.askpass(dir).as_bytes(), 0o700)?;
                options.push("PreferredAuthentications=password,keyboard-interactive".to_owned());
                options.push("PubkeyAuthentication=no".to_owned());
                options.push("NumberOfPasswordPrompts=1".to_owned());
            }
            None => options.push("BatchMode=yes".to_owned()),
        }
        if let Some(fingerprint) = &self.request.fingerprint {
            dir.put(KNOWN, self.known(fingerprint).as_bytes(), 0o700)?;
            let command = dir.path().join(KNOWN);
            options.push(format!("KnownHostsCommand={} %f %t %K %H", escaped(&command.to_string_lossy())));
        }
        Ok(self.words(dir, &options, interpreter))
    }

    /// The arguments of a further channel. Where the connection takes no more, ssh would make one of its own, to whoever
    /// answers there now: the program that it would go through ends at once.
    pub fn further(&self, dir: &PrivateDir, command: &str) -> Vec<OsString> {
        let options = ["ControlMaster=no", "BatchMode=yes", "ProxyCommand=exit 1"].map(str::to_owned);
        self.words(dir, &options, command)
    }

    fn words(&self, dir: &PrivateDir, options: &[String], command: &str) -> Vec<OsString> {
        let socket = dir.path().join(SOCKET);
        let mut words = config_words(self.config.as_deref());
        words.extend(["-T", "-S"].map(OsString::from));
        words.push(socket.into());
        for option in options.iter().map(String::as_str).chain(["EscapeChar=none", "RemoteCommand=none"]) {
            words.extend(["-o".into(), OsString::from(option)]);
        }
        words.extend(destination(&self.request));
        words.push(command.into());
        words
    }

    /// What ssh is told in its environment.
    pub fn env(&self, dir: &PrivateDir) -> Vec<(OsString, OsString)> {
        if self.request.password.is_none() {
            return Vec::new();
        }
        vec![
            ("SSH_ASKPASS".into(), dir.path().join(ASKPASS).into()),
            ("SSH_ASKPASS_REQUIRE".into(), "force".into()),
        ]
    }

    /// Answers this machine's question for the password and no other. A jump host may ask too, in the same words: then
    /// another ssh runs this, one that does not have our socket among its arguments.
    fn askpass(&self, dir: &PrivateDir) -> String {
        let quote = |path: PathBuf| crate::frame::quote::quote(&path.to_string_lossy());
        let whose = crate::frame::quote::quote(&format!("{}@{}", self.resolved.user, self.resolved.hostname));
        let (socket, file) = (quote(dir.path().join(SOCKET)), quote(dir.path().join(PASSWORD)));
        format!(
            "#!/bin/sh\ntr '\\0' '\\n' <\"/proc/$PPID/cmdline\" | grep -Fqxe {socket} || exit 1\n\
             w={whose}\ncase $1 in *\"$w\"*) exec cat {file} ;; esac\nexit 1\n"
        )
    }

    /// Tells ssh which keys of hosts are known: the one with the fingerprint, unless known_hosts has the host and so
    /// decides too, and that every other is revoked.
    fn known(&self, fingerprint: &str) -> String {
        let files: Vec<String> =
            self.resolved.known_hosts.iter().map(|file| crate::frame::quote::quote(file)).collect();
        format!(
            "#!/bin/sh\n[ \"$3\" != NONE ] || exit 0\n\
             [ \"$1\" = '{fingerprint}' ] || {{ echo \"@revoked * $2 $3\"; exit 0; }}\n\
             for f in {}; do [ -e \"$f\" ] && ssh-keygen -F \"$4\" -f \"$f\" >/dev/null 2>&1 && exit 0; done\n\
             echo \"$4 $2 $3\"\n",
            files.join(" ")
        )
    }

    /// Why there is no connection, from what ssh has printed.
    pub fn failure(&self, said: &str) -> ShellError {
        let host = &self.request.host;
        let denied = |message: String| ShellError::Denied { message };
        if said.contains("REVOKED HOST KEY") {
            return denied(format!(
                "the key that `{host}` shows has another fingerprint; where it has several keys, give that of the one \
                 that ssh asks for, mostly ED25519 (`ssh-keyscan -p {} {} | ssh-keygen -lf -`)",
                self.resolved.port, self.resolved.hostname
            ));
        }
        if said.contains("IDENTIFICATION HAS CHANGED") {
            return denied(format!(
                "the host key of `{host}` has changed; if that is right, remove the old one with `ssh-keygen -R`"
            ));
        }
        if said.contains("open refused by peer") {
            return ShellError::Unreachable {
                message: format!(
                    "`{host}` refuses a further session on the connection; ctx needs three (MaxSessions of its sshd)"
                ),
            };
        }
        if said.contains("Host key verification failed") || said.contains("host key is known") {
            return denied(format!(
                "the host key of `{host}` is not known: connect once with ssh, give `fingerprint`, or let the operator \
                 allow first use ([shells.ssh] first_use = \"accept\")"
            ));
        }
        if said.contains("Permission denied") || said.contains("Too many authentication failures") {
            return denied(format!("`{host}` refused the login of {}", self.resolved.user));
        }
        super::unreachable(&format!("host `{host}`"), said)
    }
}

fn config_words(config: Option<&Path>) -> Vec<OsString> {
    config.map(|path| ["-F".into(), path.into()]).into_iter().flatten().collect()
}

fn destination(request: &SshRequest) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(port) = request.port {
        words.extend(["-p".into(), port.to_string().into()]);
    }
    if let Some(user) = &request.user {
        words.extend(["-l".into(), OsString::from(user)]);
    }
    words.extend(["--".into(), OsString::from(&request.host)]);
    words
}

/// A path as a value of an ssh option, in which `%` begins a token and a space a new word.
fn escaped(path: &str) -> String {
    format!("\"{}\"", path.replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_ssh_could_take_for_something_else_are_refused() {
        let config = RemoteConfig::default();
        for host in ["", "-oProxyCommand=x", "a b", "a\nb", "a;b", "$(x)", "a/b", "host\u{7}"] {
            let request = SshRequest { host: host.to_owned(), ..SshRequest::default() };
            assert!(
                matches!(
                    check(&request, &config, &Rights::own()),
                    Err(ShellError::Invalid { field: "host", .. })
                ),
                "{host:?}"
            );
        }
        let user = SshRequest { host: "h".into(), user: Some("-l".into()), ..SshRequest::default() };
        assert!(matches!(
            check(&user, &config, &Rights::own()),
            Err(ShellError::Invalid { field: "user", .. })
        ));
    }

    #[test]
    fn a_key_lies_in_the_directory_for_keys_also_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("keys");
        std::fs::create_dir(&keys).unwrap();
        for file in [keys.join("id"), dir.path().join("other")] {
            std::fs::write(file, "x").unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("other"), keys.join("link")).unwrap();
        assert!(key_in("id", &keys).is_ok());
        for path in ["../other", "link", "missing", "", "/etc/passwd"] {
            assert!(key_in(path, &keys).is_err(), "{path}");
        }
    }

    #[test]
    fn a_config_of_ssh_is_read() {
        let said =
            "user me\nhostname 10.0.0.1\nport 2222\nuserknownhostsfile /a b /c\nglobalknownhostsfile /d\n";
        let resolved = Resolved::read(said);
        assert_eq!((resolved.user.as_str(), resolved.port.as_str()), ("me", "2222"));
        assert_eq!(resolved.known_hosts, ["/a", "/a b", "/a b /c", "b", "b /c", "/c", "/d"]);
        assert!(!resolved.has_gssapi_keys && Resolved::read("gssapikeyexchange no").has_gssapi_keys);
    }
}
