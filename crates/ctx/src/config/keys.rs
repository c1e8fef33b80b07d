//! Every key: its section, what kind of value it takes, and what it means. `ctx config init` writes these
//! lines; a test holds that no key is missing and none is invented.

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number, not negative.
    Number,
    /// A whole number from 1 up: with none of it nothing would work.
    Count,
    /// US dollars, with cents or without; 0: no limit.
    Dollars,
    Text,
    /// Words: a list of strings, or a string with spaces between them.
    Words,
    /// Names that are allowed: the same, but an empty list allows none, as does an empty variable. An empty string in
    /// the file is no list, as is nothing.
    Allowed,
    /// `true` or `false`.
    Flag,
    OneOf(&'static [&'static str]),
}

impl Kind {
    /// The least number that makes sense.
    pub fn least(self) -> u64 {
        match self {
            Kind::Count => 1,
            Kind::Number
            | Kind::Dollars
            | Kind::Text
            | Kind::Words
            | Kind::Allowed
            | Kind::Flag
            | Kind::OneOf(_) => 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub section: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    pub meaning: &'static str,
}

impl Key {
    /// `limits.running_per_project`; the name alone for a key above all sections.
    pub fn path(&self) -> String {
        if self.section.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.section, self.name) }
    }

    /// `CTX_LIMITS_RUNNING_PER_PROJECT`.
    pub fn variable(&self) -> String {
        format!("CTX_{}", self.path().replace('.', "_")).to_uppercase()
    }

    /// Where the key is in the configuration as JSON.
    pub fn pointer(&self) -> String {
        format!("/{}", self.path().replace('.', "/"))
    }
}

/// Sections with a line on each, in the order of the file.
pub const SECTIONS: &[(&str, &str)] = &[
    ("cage", "The cages that agents' commands run in."),
    ("import", "Sessions of other agents."),
    ("limits", "Limits."),
    ("log", "The daemon's log, on stderr."),
    ("serve", "The daemon."),
    ("shells", "The shells that `ctx mcp` gives to agents."),
    ("shells.ssh", "Shells on other machines."),
    ("snapshots", "Saved states of files."),
];

const fn count(name: &'static str, meaning: &'static str) -> Key {
    Key { section: "limits", name, kind: Kind::Count, meaning }
}

const fn number(name: &'static str, meaning: &'static str) -> Key {
    Key { section: "limits", name, kind: Kind::Number, meaning }
}

const fn dollars(name: &'static str, meaning: &'static str) -> Key {
    Key { section: "limits", name, kind: Kind::Dollars, meaning }
}

pub const KEYS: &[Key] = &[
    Key {
        section: "",
        name: "autostart",
        kind: Kind::Flag,
        meaning: "Whether a command that needs the daemon starts one when none is running.",
    },
    Key {
        section: "cage",
        name: "mode",
        kind: Kind::OneOf(&["on", "off"]),
        meaning: "off: commands of agents run without a cage, with all rights of the session's owner.",
    },
    Key {
        section: "cage",
        name: "mounts",
        kind: Kind::Text,
        meaning: "Further mounts as SOURCE:TARGET:ro or SOURCE:TARGET:rw, with spaces between them.",
    },
    Key {
        section: "cage",
        name: "path",
        kind: Kind::Text,
        meaning: "Directories inside that come first in PATH, with colons between them.",
    },
    Key {
        section: "cage",
        name: "env",
        kind: Kind::Text,
        meaning: "Names of environment variables that are passed on, with spaces between them.",
    },
    Key {
        section: "cage",
        name: "net",
        kind: Kind::OneOf(&["none", "host"]),
        meaning: "Network of a cage: none, or host for that of this machine.",
    },
    Key {
        section: "import",
        name: "follow",
        kind: Kind::Words,
        meaning: "Agents whose new sessions the daemon imports by itself: codex, claude, opencode, goose, gemini, aider.",
    },
    count("running_per_project", "Sessions that may run at once in one project."),
    count("running_per_operator", "Sessions that may run at once for one operator, over all projects."),
    count("message_bytes", "Longest text of one message, in bytes."),
    count("client_id_bytes", "Longest client id of a message, in bytes."),
    count("title_bytes", "Longest title of a session, in bytes."),
    count("frame_bytes", "Longest frame on a Unix socket, in bytes, without its line end."),
    number("tool_output_bytes", "Tool output above this is kept as a blob and shown as a preview, in bytes."),
    count("subagents_per_run", "Subagents of one run that may work at once."),
    number(
        "subagent_walltime_ms",
        "How long a subagent may work whose cage names no other walltime, in milliseconds.",
    ),
    count("steps_per_run", "Steps (model calls) that one run may take, and each of its subagents."),
    count("answer_bytes", "Longest answer of one model call, in bytes; a longer one is cut and says so."),
    count("model_attempts", "How often one model call is tried when the model is at its rate limit."),
    number("model_retry_ms", "The wait before the second attempt; it doubles with every further one."),
    number(
        "model_retry_max_ms",
        "The longest wait between two attempts; a model that asks for a longer one is not asked again.",
    ),
    count("model_first_byte_ms", "How long a model may take until its answer begins."),
    count("model_idle_ms", "How long a model may send nothing in the middle of its answer."),
    count("fs_read_bytes", "Most bytes of a file that one fs.read returns."),
    count("fs_list_entries", "Most entries of a directory that one fs.list returns."),
    number("instruction_file_bytes", "Most bytes of one instruction file (AGENTS.md) that go into a prompt."),
    count("control_file_bytes", "Largest control file, in bytes."),
    count("live_ring_bytes", "Live events kept in memory per active session, in bytes."),
    number("idle_unload_ms", "How long an idle session stays loaded."),
    number("stop_grace_ms", "How long a cancelled or shut-down run may take to stop by itself."),
    count("socket_connections", "Connections of one user to agents' sockets at a time."),
    count("socket_stall_ms", "How long a socket client may leave a frame unread before it is disconnected."),
    count(
        "http_connections",
        "Connections of one user at a time over TCP, and the same number on the API's socket, WebSockets included.",
    ),
    count("request_ms", "How long a client may take to send a request's head or its body."),
    count("requests_per_second", "Requests a second that one token may make."),
    count(
        "ping_ms",
        "How often a WebSocket client is pinged; one that is silent for two intervals is disconnected.",
    ),
    count("slow_ms", "How long a WebSocket client may leave frames unread before it is detached as slow."),
    number("reattach_ms", "How long frames are kept for an operator who is detached."),
    number("reattach_bytes", "Frames kept for one session's detached operator, in bytes."),
    number("checkpoints_per_session", "Checkpoints in a session's active list; older ones are archived."),
    number("compactions_per_session", "Compactions that a session lists one by one."),
    number(
        "compactions_aggregated",
        "Number of the oldest compactions that become one row when there are more.",
    ),
    number(
        "compaction_ms",
        "How long a compaction may take before the oldest exchanges are dropped instead.",
    ),
    number("approval_ms", "How long a tool call waits for an answer before it is denied."),
    number("reattach_bytes_total", "Frames kept for all of one user's sessions together, in bytes."),
    count("loaded_per_operator", "Sessions of one user that may be loaded at a time."),
    count("temp_per_operator", "Temp sessions of one user at a time; they are kept in memory."),
    count("terminals_per_session", "Terminals of one session that may be open at a time."),
    count("terminals_per_operator", "Terminals of one user, without a session, that may be open at a time."),
    number("terminal_scrollback_lines", "Lines above the screen that a terminal keeps."),
    count("terminal_idle_ms", "How long nothing may happen in a terminal before its clients get a notice."),
    count("terminal_client_bytes", "Terminal output that one WebSocket client gets in a second, in bytes."),
    count(
        "transcript_bytes",
        "Largest transcript of a terminal, in bytes; beyond it the oldest part is dropped.",
    ),
    dollars(
        "spend_session_usd",
        "What the model calls of one session may cost, in US dollars; 0 for no limit.",
    ),
    dollars(
        "spend_project_day_usd",
        "What those of one operator's sessions of a project may cost in a day (UTC); 0 for no limit.",
    ),
    dollars(
        "spend_operator_day_usd",
        "What those of all of an operator's sessions may cost in a day (UTC); 0 for no limit.",
    ),
    Key {
        section: "log",
        name: "format",
        kind: Kind::OneOf(&["text", "json"]),
        meaning: "Format of log lines: text for people, json for programs.",
    },
    Key {
        section: "log",
        name: "level",
        kind: Kind::Text,
        meaning: "Log level: error, warn, info, debug, trace, or a filter such as info,ctx_engine=debug.",
    },
    Key {
        section: "serve",
        name: "workspace",
        kind: Kind::Text,
        meaning: "Directory of the project default. Default: where the daemon was started.",
    },
    Key {
        section: "serve",
        name: "listen",
        kind: Kind::Text,
        meaning: "HOST:PORT of the HTTP API; port 0 means any free port. Default: 127.0.0.1:7300, or a free port.",
    },
    Key {
        section: "shells",
        name: "max",
        kind: Kind::Count,
        meaning: "Maximum number of open shells of one server.",
    },
    Key {
        section: "shells",
        name: "idle_secs",
        kind: Kind::Count,
        meaning: "A shell that ran no command for this many seconds is closed.",
    },
    Key {
        section: "shells",
        name: "policy_file",
        kind: Kind::Text,
        meaning: "Absolute path of a file with allow and deny lines for programs. Default: all programs may run.",
    },
    Key {
        section: "shells",
        name: "program",
        kind: Kind::Text,
        meaning: "Shell program. Default: bash, else sh.",
    },
    Key {
        section: "shells",
        name: "workspace_roots",
        kind: Kind::Text,
        meaning: "Directories in which workspaces may lie, with colons between them. Default: where the server was started.",
    },
    Key {
        section: "shells",
        name: "remote_workspace_roots",
        kind: Kind::Text,
        meaning: "The same on other machines and in containers. Default: the home directory there.",
    },
    Key {
        section: "shells",
        name: "key_dir",
        kind: Kind::Text,
        meaning: "Directory that a key_path must lie in. Default: .ssh in the home directory.",
    },
    Key {
        section: "shells",
        name: "containers",
        kind: Kind::Allowed,
        meaning: "Containers that shells may run in, by their whole names; [] for none. Default: all.",
    },
    Key {
        section: "shells",
        name: "container_engine",
        kind: Kind::Text,
        meaning: "Program that runs commands in containers. Default: docker, else podman.",
    },
    Key {
        section: "shells.ssh",
        name: "hosts",
        kind: Kind::Allowed,
        meaning: "Hosts that shells may run on, by their whole names; [] for none. Default: all.",
    },
    Key {
        section: "shells.ssh",
        name: "users",
        kind: Kind::Allowed,
        meaning: "Users that shells may log in as, by their whole names; [] for none. Default: all.",
    },
    Key {
        section: "shells.ssh",
        name: "first_use",
        kind: Kind::OneOf(&["refuse", "accept"]),
        meaning: "What to do with a host whose key is not known.",
    },
    Key {
        section: "shells.ssh",
        name: "config",
        kind: Kind::Text,
        meaning: "Config file of ssh. Default: the user's own.",
    },
    Key {
        section: "snapshots",
        name: "budget_mib",
        kind: Kind::Count,
        meaning: "Mebibytes that all snapshots may take; the oldest that no checkpoint needs are removed when there are more.",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Config;

    #[test]
    fn the_table_has_every_key_of_the_config_and_no_other() {
        let shape = serde_json::to_value(Config::default()).unwrap();
        fn paths(before: &str, value: &serde_json::Value, found: &mut BTreeSet<String>) {
            match value.as_object() {
                Some(keys) => {
                    for (key, value) in keys {
                        let path = if before.is_empty() { key.clone() } else { format!("{before}.{key}") };
                        paths(&path, value, found);
                    }
                }
                None => drop(found.insert(before.to_owned())),
            }
        }
        let mut real = BTreeSet::new();
        paths("", &shape, &mut real);
        let told: BTreeSet<String> = KEYS.iter().map(Key::path).collect();
        assert_eq!(told, real, "config/keys.rs and the structs must agree");
        assert_eq!(told.len(), KEYS.len(), "no key twice");
    }

    #[test]
    fn every_section_is_introduced() {
        let used: BTreeSet<&str> =
            KEYS.iter().map(|key| key.section).filter(|section| !section.is_empty()).collect();
        let told: BTreeSet<&str> = SECTIONS.iter().map(|(section, _)| *section).collect();
        assert_eq!(used, told);
    }
}
