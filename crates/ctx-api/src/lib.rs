//! The wire types of ctx's doors: what clients send and what they are sent.
//!
//! Only shapes live here, so that clients and doors cannot disagree. What a request may do is decided elsewhere.

pub mod http;
pub mod model;
pub mod socket;
pub mod ws;
