//! The doors: protocols through which clients come in. Each turns bytes into commands and events into bytes, finds
//! out who is asking, and holds no rule of its own.

pub mod http;
pub mod mcp;
mod parts;
pub mod seats;
pub mod shells;
pub mod socket;
pub mod unix;
pub mod ws;
