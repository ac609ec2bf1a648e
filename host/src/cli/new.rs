//! `batchgate new`: a plugin to start from.

use crate::template::{self, Language};
use anyhow::Context;
use std::io::Write;
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
    let mut stdout = std::io::stdout().lock();
    writeln!(
        stdout,
        "{name}/ is there; next: cd {name} && {next}   (README.md has the rest)",
        name = args.name,
        next = args.lang.first_command()
    )
    .and_then(|()| stdout.flush())
    .context("standard output cannot be written to")?;
    Ok(ExitCode::SUCCESS)
}
