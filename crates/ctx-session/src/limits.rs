//! Every number that bounds something, with its default.
//!
//! The config file and the environment may change any of them; nothing else in ctx holds a limit of its own.

use serde::{Deserialize, Serialize};

use crate::money::Usd;

/// The limits that hold in a daemon. Field names are the keys of `[limits]` in the config file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Sessions that may run at once in one project.
    pub running_per_project: u32,
    /// Sessions that may run at once for one operator, over all projects.
    pub running_per_operator: u32,
    /// Longest text of one message, in bytes.
    pub message_bytes: usize,
    /// Longest client id of a message, in bytes.
    pub client_id_bytes: usize,
    /// Longest title of a session, in bytes.
    pub title_bytes: usize,
    /// Longest frame on a Unix socket, in bytes, without its line end.
    pub frame_bytes: usize,
    /// Tool output above this is stored once as a blob and shown as a preview.
    pub tool_output_bytes: usize,
    /// Subagents of one run that may work at once.
    pub subagents_per_run: u32,
    /// How long a subagent may work whose cage names no other `walltime`, in milliseconds.
    pub subagent_walltime_ms: u64,
    /// Steps (model calls) that one run may take, and each of its subagents.
    pub steps_per_run: u32,
    /// Longest text, and largest tool calls, of one model call, in bytes; longer text is cut and says so. One
    /// record must hold it, and JSON may need six bytes for one.
    pub answer_bytes: usize,
    /// How often one model call is tried when the model is at its rate limit.
    pub model_attempts: u32,
    /// The wait before the second attempt, in milliseconds; it doubles with every further one.
    pub model_retry_ms: u64,
    /// The longest wait between two attempts, in milliseconds.
    pub model_retry_max_ms: u64,
    /// How long a model may take until its answer begins, in milliseconds.
    pub model_first_byte_ms: u64,
    /// How long a model may send nothing in the middle of its answer, in milliseconds.
    pub model_idle_ms: u64,
    /// Most bytes of a file that one `fs.read` returns.
    pub fs_read_bytes: usize,
    /// Most entries of a directory that one `fs.list` returns.
    pub fs_list_entries: usize,
    /// Most bytes of one instruction file (`AGENTS.md`) that go into a run's prompt.
    pub instruction_file_bytes: usize,
    /// Largest control file, in bytes.
    pub control_file_bytes: usize,
    /// Live events kept in memory per active session, in bytes.
    pub live_ring_bytes: usize,
    /// How long an idle session stays loaded, in milliseconds.
    pub idle_unload_ms: u64,
    /// How long a cancelled or shut-down run may take to stop by itself, in milliseconds.
    pub stop_grace_ms: u64,
    /// Connections of one user to agents' sockets at a time.
    pub socket_connections: usize,
    /// How long a socket client may leave a frame unread before it is let go, in milliseconds.
    pub socket_stall_ms: u64,
    /// Connections of one user over TCP at a time, and as many on the API's socket; WebSockets are among them.
    pub http_connections: usize,
    /// How long a client may take to send a request's head or its body, in milliseconds.
    pub request_ms: u64,
    /// Requests a second that one token may make.
    pub requests_per_second: u32,
    /// How often a WebSocket client is pinged, in milliseconds; one that is silent twice as long is gone.
    pub ping_ms: u64,
    /// How long a WebSocket client may leave frames unread before it is detached as slow, in milliseconds.
    pub slow_ms: u64,
    /// How long frames are kept for an operator who is detached, in milliseconds.
    pub reattach_ms: u64,
    /// Frames kept for one session's detached operator, in bytes.
    pub reattach_bytes: usize,
    /// Checkpoints of one session that are in its active list; older ones are archived.
    pub checkpoints_per_session: usize,
    /// Compactions that a session lists one by one; then the oldest become one row.
    pub compactions_per_session: usize,
    /// How many of the oldest become that row.
    pub compactions_aggregated: usize,
    /// How long a compaction may take before the oldest exchanges are dropped instead, in milliseconds.
    pub compaction_ms: u64,
    /// How long a tool call waits for an answer before it is denied, in milliseconds.
    pub approval_ms: u64,
    /// Frames kept for all of one user's sessions together, in bytes; who detached first is let go first.
    pub reattach_bytes_total: usize,
    /// Sessions of one user that may be loaded at a time; idle ones are unloaded by themselves.
    pub loaded_per_operator: usize,
    /// Temp sessions of one user at a time; they are kept in memory.
    pub temp_per_operator: usize,
    /// Terminals of one session that may be open at a time.
    pub terminals_per_session: usize,
    /// Terminals of one user that may be open at a time and belong to no session.
    pub terminals_per_operator: usize,
    /// Lines above the screen that a terminal keeps.
    pub terminal_scrollback_lines: usize,
    /// How long nothing may happen in a terminal before its clients get a notice, in milliseconds.
    pub terminal_idle_ms: u64,
    /// Output of a terminal that one WebSocket client gets in a second, in bytes; then it gets a fresh screen.
    pub terminal_client_bytes: u64,
    /// Largest transcript of a terminal, in bytes; beyond it the oldest part is dropped.
    pub transcript_bytes: u64,
    /// What the model calls of one session may cost; 0: no limit. The call after the one that reaches it is refused.
    pub spend_session_usd: Usd,
    /// What those of one operator's sessions of a project may cost in a day (UTC); 0: no limit.
    pub spend_project_day_usd: Usd,
    /// What those of all of an operator's sessions may cost in a day (UTC); 0: no limit.
    pub spend_operator_day_usd: Usd,
}

impl Limits {
    /// Whether anything limits what model calls may cost.
    pub fn spends_are_limited(&self) -> bool {
        [self.spend_session_usd, self.spend_project_day_usd, self.spend_operator_day_usd]
            .iter()
            .any(|limit| limit.nano > 0)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            running_per_project: 4,
            running_per_operator: 16,
            message_bytes: 512 * 1024,
            client_id_bytes: 256,
            title_bytes: 1024,
            frame_bytes: 1024 * 1024,
            tool_output_bytes: 64 * 1024,
            subagents_per_run: 8,
            subagent_walltime_ms: 1_800_000,
            steps_per_run: 64,
            answer_bytes: 1024 * 1024,
            model_attempts: 5,
            model_retry_ms: 250,
            model_retry_max_ms: 30_000,
            model_first_byte_ms: 180_000,
            model_idle_ms: 120_000,
            fs_read_bytes: 1024 * 1024,
            fs_list_entries: 1_000,
            instruction_file_bytes: 32 * 1024,
            control_file_bytes: 256 * 1024,
            live_ring_bytes: 4 * 1024 * 1024,
            idle_unload_ms: 5_000,
            stop_grace_ms: 5_000,
            socket_connections: 1_024,
            socket_stall_ms: 600_000,
            http_connections: 1_024,
            request_ms: 30_000,
            requests_per_second: 200,
            ping_ms: 15_000,
            slow_ms: 10_000,
            reattach_ms: 600_000,
            checkpoints_per_session: 50,
            compactions_per_session: 1_000,
            compactions_aggregated: 100,
            compaction_ms: 60_000,
            approval_ms: 300_000,
            reattach_bytes: 50 * 1024 * 1024,
            reattach_bytes_total: 512 * 1024 * 1024,
            loaded_per_operator: 2_048,
            temp_per_operator: 64,
            terminals_per_session: 8,
            terminals_per_operator: 64,
            terminal_scrollback_lines: 10_000,
            terminal_idle_ms: 1_800_000,
            terminal_client_bytes: 1024 * 1024,
            transcript_bytes: 256 * 1024 * 1024,
            spend_session_usd: Usd::default(),
            spend_project_day_usd: Usd::default(),
            spend_operator_day_usd: Usd::default(),
        }
    }
}
