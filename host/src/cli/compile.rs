//! `batchgate compile`: compiles a component for the host that starts it, under limits of its own.

use std::process::ExitCode;

/// Compile a component for the host that starts this, from stdin to stdout
#[derive(Debug, clap::Args)]
pub struct CompileArgs {
    /// What the host hands itself
    arguments: Vec<String>,
}

/// Compiles. An error is the line that the host shows as its own.
#[allow(clippy::print_stderr)]
pub fn run(args: &CompileArgs) -> ExitCode {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match crate::wasm::compile_for_parent(&args.arguments, input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("{line}");
            ExitCode::from(super::UNUSABLE)
        }
    }
}
