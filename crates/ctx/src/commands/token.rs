//! `ctx token`: tokens for the HTTP API. A secret is printed once, alone, and nowhere else.

use std::io::Write;

use ctx_api::http::{List, NewToken, Token, TokenMade};
use ctx_session::Timestamp;

use crate::client::Api;
use crate::failure::Failure;
use crate::output;
use crate::root::Root;

/// Make, list and revoke tokens for the HTTP API
///
/// A token stands for you: who has it can do over HTTP what you can do here. Only its hash is kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  TOKEN=$(ctx token new --label laptop)
  curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:7300/api/v1/status
  ctx token list
  ctx token revoke 01K9ZZ3F0Q6M8B5V4X2C7D1E0R")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make a token and print it, alone, on stdout
    New {
        /// What it is for, to know it by in the list
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
        /// For another user; only the daemon's owner may
        #[arg(long, value_name = "UID")]
        uid: Option<u32>,
    },
    /// List tokens, without their secrets
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, by the id that `ctx token list` shows
    Revoke {
        #[arg(value_name = "ID")]
        id: String,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what {
        What::New { label, uid } => {
            let made: TokenMade = api.post_with("/tokens", &NewToken { label, uid })?;
            let mut out = output::stdout();
            writeln!(out, "{}", made.token)?;
            out.flush()?;
        }
        What::List { json } => list(api.get("/tokens")?, json)?,
        What::Revoke { id } => {
            // Only an id goes into a path: whatever else was typed is not sent anywhere.
            let id: ctx_session::Ulid = id.parse().map_err(|_| {
                Failure::new(ctx_session::Code::Einval, "that is no id of a token")
                    .hint("`ctx token list` shows the ids; the token itself is not needed")
            })?;
            api.delete(&format!("/tokens/{id}"))?;
        }
    }
    Ok(())
}

fn list(tokens: List<Token>, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(&tokens.items);
    }
    let mut out = output::stdout();
    for token in tokens.items {
        let made = Timestamp::from_millis(token.created_at);
        writeln!(
            out,
            "{}  {made}  uid {}  {}",
            token.id,
            token.uid,
            output::one_line(&token.label.unwrap_or_default())
        )?;
    }
    out.flush()?;
    Ok(())
}
