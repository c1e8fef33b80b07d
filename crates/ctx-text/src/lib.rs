//! Pure text work on what a shell prints: redaction, ANSI, budgets and the fence.
//!
//! Bytes are pushed in and text comes out. Nothing here touches a process, a file or a clock.

pub mod ansi;
pub mod budget;
pub mod ends;
pub mod fence;
pub mod output;
pub mod pattern;
pub mod policy;
pub mod redact;
