//! `ctx validate-name`: whether something may be called so.

use ctx_session::{Code, Name};

use crate::failure::Failure;

/// Check whether a name can be an object's
///
/// Agents, tools, providers and models are called by a letter or digit and then up to 63 letters, digits and the characters
/// . _ + - ; not by a name that ends in .sock or .d. Says which rule a bad name breaks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx validate-name my-agent && ctx agent new my-agent
  ctx validate-name coder.d       exit code 2

exit codes: 0 success, 1 failed, 2 a bad name")]
pub struct Args {
    /// The name to check
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    name: String,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    Name::new(&args.name).map(drop).map_err(|rule| Failure::new(Code::Einval, rule.to_string()))
}
