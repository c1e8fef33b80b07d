//! `ctx delegate-guard`: not for people. The daemon starts itself by this name to look after a command that it delegates to.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::failure::Failure;

/// How the daemon calls it.
pub const NAME: &str = "delegate-guard";

/// Run a command whose processes end with it, and with the daemon
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// UID:GID:GROUP,GROUP
    #[arg(long = "as", value_parser = parse_user)]
    user: Option<User>,
    #[arg(long = "in")]
    dir: Option<PathBuf>,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let user = args.user.clone().map(|User { uid, gid, groups }| (uid, gid, groups));
    let run_as = ctx_agent::GuardAs { user, dir: args.dir.clone() };
    std::process::exit(i32::from(ctx_agent::guard(&run_as, &args.command)))
}

/// As whom the command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        write!(f, "{}:{}:{}", self.uid, self.gid, groups.join(","))
    }
}

fn parse_user(text: &str) -> Result<User, String> {
    let numbers = |text: &str| text.split(',').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>();
    let parts: Vec<&str> = text.split(':').collect();
    let user = match parts.as_slice() {
        [uid, gid, groups] => uid.parse().ok().zip(gid.parse().ok()).zip(match *groups {
            "" => Some(Vec::new()),
            some => numbers(some),
        }),
        _ => None,
    };
    let user = user.map(|((uid, gid), groups)| User { uid, gid, groups });
    user.ok_or_else(|| "must be UID:GID:GROUP,GROUP".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_read_as_it_is_written() {
        for user in [User { uid: 7, gid: 8, groups: vec![] }, User { uid: 0, gid: 0, groups: vec![4, 27] }] {
            assert_eq!(parse_user(&user.to_string()), Ok(user));
        }
        for bad in ["", "7", "7:8", "7:8:x", "7:8:4,", "a:b:", "7:8:9:10", "-1:0:"] {
            assert!(parse_user(bad).is_err(), "{bad}");
        }
    }
}
