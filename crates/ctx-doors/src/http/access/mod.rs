//! Who may come in over TCP: tokens, single-use codes and tickets, and how often each may ask.
//!
//! Secrets are made here and leave once, in an answer. What is kept is their SHA-256; no type with a secret in it
//! can be printed.

mod passes;
mod rate;
mod tokens;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_api::http::{Code as LoginCode, Ticket, Token, TokenMade};
use ctx_engine::{Caller, Clock};
use ctx_session::request::RequestKey;
use ctx_session::{Code, Refusal, Timestamp, Ulid};
use sha2::{Digest, Sha256};

use passes::Passes;
use rate::Rate;
use tokens::{Row, Tokens};

/// How long a login code or a ticket is good for.
const PASS_LIFE: Duration = Duration::from_secs(60);
/// How long a browser's token is good for.
const LOGIN_LIFE_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
const LABEL_BYTES_MAX: usize = 256;
/// Tokens that one user may have: the file with all of them is written anew for each.
const TOKENS_PER_USER_MAX: usize = 256;

type Hash = [u8; 32];

fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// 32 random bytes of the kernel's, in hex.
fn secret(prefix: &str) -> Result<String, Refusal> {
    use std::fmt::Write;
    let mut bytes = [0u8; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled != Ok(bytes.len()) {
        return Err(Refusal::new(Code::Eio, "the kernel gave no random bytes"));
    }
    let mut text = prefix.to_owned();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// A token that has been shown: whom it stands for, and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub caller: Caller,
    pub id: Ulid,
}

/// Everything that lets people in. Cloning it is cheap.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
}

struct Inner {
    tokens: Tokens,
    codes: Passes,
    tickets: Passes,
    rate: Rate,
    clock: Box<dyn Clock>,
}

impl Access {
    /// Reads the tokens of a root. A file that cannot be read is an error: nobody could be turned away.
    pub fn open(
        path: PathBuf,
        clock: impl Clock,
        requests_per_second: u32,
    ) -> Result<Access, tokens::TokensError> {
        let inner = Inner {
            tokens: Tokens::open(path, clock.now())?,
            codes: Passes::new(PASS_LIFE),
            tickets: Passes::new(PASS_LIFE),
            rate: Rate::new(requests_per_second),
            clock: Box::new(clock),
        };
        Ok(Access { inner: Arc::new(inner) })
    }

    fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Whom a bearer token stands for.
    pub(super) fn key(&self, token: &str) -> Option<Key> {
        self.inner.tokens.find(&hash(token), self.now())
    }

    /// Whether a token is still good; connections that stay open ask from time to time.
    pub(crate) fn is_good(&self, id: Ulid) -> bool {
        self.inner.tokens.has(id, self.now())
    }

    /// Whether one more request may be made now.
    pub(super) fn may_ask(&self, key: Key) -> Result<(), Refusal> {
        if self.inner.rate.take(key.id, Instant::now()) {
            return Ok(());
        }
        Err(Refusal::new(Code::Eagain, "too many requests with this token; wait a second"))
    }

    pub(super) fn tokens_of(&self, caller: Caller, all: bool) -> Vec<Token> {
        self.inner.tokens.list(self.now(), |row| all || row.uid == caller.uid)
    }

    /// Makes a token; it is on disk when this returns.
    pub(super) async fn make_token(
        &self,
        caller: Caller,
        label: Option<String>,
        expires_at: Option<u64>,
        new: (Ulid, Option<RequestKey>),
    ) -> Result<TokenMade, Refusal> {
        let (id, requested) = new;
        if let Some(key) = &requested {
            self.refuse_second_token(key)?;
        }
        if expires_at.is_some_and(|end| end <= self.now().as_millis()) {
            return Err(Refusal::invalid("expires_at", "a token cannot expire in the past"));
        }
        if label.as_ref().is_some_and(|label| label.len() > LABEL_BYTES_MAX) {
            return Err(Refusal::invalid("label", format!("a label has at most {LABEL_BYTES_MAX} bytes")));
        }
        if self.tokens_of(caller, false).len() >= TOKENS_PER_USER_MAX {
            let message =
                format!("you have {TOKENS_PER_USER_MAX} tokens; revoke one with `ctx token revoke`");
            return Err(Refusal::new(Code::Eagain, message));
        }
        let token = secret("ctx_")?;
        let row = Row {
            id,
            uid: caller.uid,
            gid: caller.gid,
            hash: hash(&token),
            label,
            created_at: self.now().as_millis(),
            expires_at,
            requested,
        };
        let now = self.now();
        self.change(move |tokens| tokens.add(row, now)).await?;
        Ok(TokenMade { id: id.to_string(), uid: caller.uid, token, expires_at })
    }

    /// The secret of a token is told once: who asks again with the same key is told which token to revoke.
    fn refuse_second_token(&self, key: &RequestKey) -> Result<(), Refusal> {
        match self.inner.tokens.made_by(key)? {
            None => Ok(()),
            Some(id) => {
                let message = format!(
                    "the token {id} was created with this key, and its secret was only in that answer; revoke it \
                     and use a new key"
                );
                Err(Refusal::new(Code::Eexist, message))
            }
        }
    }

    /// Revokes a token; false: there is none that this caller may revoke.
    pub(super) async fn revoke(&self, caller: Caller, all: bool, id: Ulid) -> Result<bool, Refusal> {
        self.change(move |tokens| tokens.remove(id, |row| all || row.uid == caller.uid)).await
    }

    /// Changes the tokens on a blocking thread, because every change writes and syncs the whole file.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tokens) -> Result<T, tokens::TokensError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner.tokens)).await;
        match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Refusal::new(error.code(), error.to_string())),
            Err(error) => Err(Refusal::new(Code::Eio, format!("changing the tokens broke: {error}"))),
        }
    }

    pub(super) fn make_code(&self, caller: Caller, key: Option<Key>) -> Result<LoginCode, Refusal> {
        let code = secret("")?;
        self.inner.codes.add(hash(&code), caller, key.map(|key| key.id), Instant::now());
        Ok(LoginCode { code, expires_at: self.pass_end() })
    }

    pub(super) fn make_ticket(&self, caller: Caller, key: Option<Key>) -> Result<Ticket, Refusal> {
        let ticket = secret("")?;
        self.inner.tickets.add(hash(&ticket), caller, key.map(|key| key.id), Instant::now());
        Ok(Ticket { ticket, expires_at: self.pass_end() })
    }

    fn pass_end(&self) -> u64 {
        let life = u64::try_from(PASS_LIFE.as_millis()).unwrap_or(u64::MAX);
        self.now().as_millis().saturating_add(life)
    }

    /// Trades a code for a token. Good once, and only while the token it was made with is.
    pub(super) async fn login(&self, code: &str, id: Ulid) -> Result<TokenMade, Refusal> {
        let taken = self.inner.codes.take(&hash(code), Instant::now());
        let good = taken.filter(|(_, token)| token.is_none_or(|id| self.is_good(id)));
        let Some((caller, _)) = good else {
            let message = "this code is unknown, expired or used; get another with `ctx open`";
            return Err(Refusal::new(Code::Ekeyrejected, message));
        };
        let expires_at = self.now().as_millis().saturating_add(LOGIN_LIFE_MS);
        self.make_token(caller, Some("browser".to_owned()), Some(expires_at), (id, None)).await
    }

    /// Takes a ticket. Good once, and only while the token it was made with is.
    pub(super) fn take_ticket(&self, ticket: &str) -> Option<(Caller, Option<Ulid>)> {
        let (caller, token) = self.inner.tickets.take(&hash(ticket), Instant::now())?;
        token.is_none_or(|id| self.is_good(id)).then_some((caller, token))
    }
}
