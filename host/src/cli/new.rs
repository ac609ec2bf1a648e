//! `batchgate new`: a plugin to start from.

use crate::template::{self, Language};
use std::path::Path;
use std::process::ExitCode;

/// Create a plugin to start from, in a new folder
///
/// It is the example in that language, an uploader with its own tests, and all that it needs but the
/// tools: its README has the three commands that get them, build it and run it.
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// The plugin's name, and that of its folder in the current one
    name: String,
    /// The language that it is written in
    #[arg(long, value_enum)]
    lang: Language,
}

/// Writes the folder, and says what comes next. An error leaves nothing behind.
pub fn run(args: &NewArgs) -> anyhow::Result<ExitCode> {
    template::new(Path::new(""), &args.name, args.lang)?;
    super::print_line(&format!(
        "{name}/ is there; next: cd {name} && {next}   (README.md has the rest)",
        name = args.name,
        next = args.lang.first_command()
    ))?;
    Ok(ExitCode::SUCCESS)
}
