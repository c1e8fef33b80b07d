//! How a session begins as a copy of another: "Fork" of the design.
//!
//! Its log is its own first record, the source's records after the first up to a place, and `forked`. What that last
//! record means is in [`Session::apply`](crate::Session::apply). Allowed from every state: the source is only read.

use crate::code::Refusal;
use crate::ids::SessionId;
use crate::name::Name;
use crate::record::{Body, Forked, ForkedFrom, Scope, SessionBody, SessionMeta};
use crate::request::RequestKey;

/// What a fork does not take from its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    pub id: SessionId,
    /// None: the session is called by its id.
    pub name: Option<Name>,
    pub scope: Scope,
    pub space: Option<Name>,
    /// Who forks; the fork is theirs.
    pub owner: u32,
    pub client: Option<String>,
    pub requested: Option<RequestKey>,
    pub app: String,
}

impl Fork {
    /// Whether this source can be forked so. A temp session is kept nowhere: there is no log to copy.
    pub fn check(&self, source: &SessionMeta) -> Result<(), Refusal> {
        match (source.scope, self.scope, &self.space) {
            (Scope::Temp, _, _) => {
                Err(Refusal::invalid("resume_from", "a temp session is not stored and cannot be forked"))
            }
            (Scope::Private | Scope::Shared, Scope::Temp, _) => {
                Err(Refusal::invalid("scope", "a fork is stored: its scope must be private or shared"))
            }
            (Scope::Private | Scope::Shared, Scope::Private, Some(_)) => {
                Err(Refusal::invalid("space", "a private session cannot have a space"))
            }
            (Scope::Private | Scope::Shared, Scope::Shared, None) => {
                Err(Refusal::invalid("space", "a shared session needs a space"))
            }
            (Scope::Private | Scope::Shared, Scope::Private, None)
            | (Scope::Private | Scope::Shared, Scope::Shared, Some(_)) => Ok(()),
        }
    }

    /// The first record of the fork and its last, when the copy ends with the source's record `seq`.
    pub fn records(&self, source: &SessionMeta, seq: u64) -> (SessionMeta, Body) {
        let meta = SessionMeta {
            session_id: self.id,
            name: self.name.clone().unwrap_or_else(|| Name::from(self.id)),
            scope: self.scope,
            space: self.space.clone(),
            owner: self.owner,
            client: self.client.clone(),
            requested: self.requested.clone(),
            forked_from: Some(ForkedFrom { session_id: source.session_id, seq }),
            app: self.app.clone(),
            ..source.clone()
        };
        (meta, Body::Session(SessionBody::Forked(Forked { by: self.owner })))
    }
}
