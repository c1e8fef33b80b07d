//! How commands reach the daemon: its API and the sockets of its agents.
