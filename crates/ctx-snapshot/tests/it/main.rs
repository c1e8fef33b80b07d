//! Snapshots of real directories: every kind of file, restores that are cut short, and room.

mod faults;
mod room;
mod sessions;
mod stuck;
mod support;
mod zoo;
