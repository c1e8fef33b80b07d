//! How shells are made behind the sshd and in the container of `testkit`.

use ctx_host::{Destination, HostConfig, SshRequest};
use testkit::elsewhere::{Container, Sshd};

/// A login with the server's key.
pub fn request(sshd: &Sshd) -> SshRequest {
    SshRequest {
        host: "127.0.0.1".to_owned(),
        port: Some(sshd.port),
        key_path: Some("id".to_owned()),
        fingerprint: Some(sshd.fingerprint.clone()),
        ..SshRequest::default()
    }
}

pub fn behind_sshd(config: &mut HostConfig) -> Destination {
    let sshd = Sshd::shared();
    config.remote.key_dir = sshd.dir.clone();
    Destination::Ssh(request(sshd))
}

pub fn in_container(config: &mut HostConfig) -> Destination {
    let container = Container::shared();
    config.remote.engine = Some(container.engine.clone());
    Destination::Container(container.name.clone())
}
