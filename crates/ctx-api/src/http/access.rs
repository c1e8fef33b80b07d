//! Tokens, login codes and tickets. Only what is made carries its secret, and only once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// To revoke it by; not a secret.
    pub id: String,
    /// The user it stands for.
    pub uid: u32,
    pub label: Option<String>,
    pub created_at: u64,
    pub expires_at: Option<u64>,
}

/// `POST /tokens`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// For another user: the daemon's owner alone may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// When it stops being good, in epoch milliseconds. Without: when it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// A new token. The secret is shown this once; only its hash is kept.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    pub id: String,
    pub uid: u32,
    pub token: String,
    pub expires_at: Option<u64>,
}

/// `POST /codes`: a single-use code that can be traded for a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCode {}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Code {
    pub code: String,
    pub expires_at: u64,
}

/// `POST /login`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub code: String,
}

/// `POST /tickets`: opens one WebSocket, as `?ticket=`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ticket {
    pub ticket: String,
    pub expires_at: u64,
}
