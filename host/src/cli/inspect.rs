//! `batchgate inspect`: what a component is and asks for.

use crate::wasm::{Inspection, SandboxConfig, own_program};
use anyhow::Context;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the world that a component was built for, what it imports and exports, and the limits it
/// would run under
///
/// Runs none of its code. Exit code 2 if it fits no world or asks for what this host does not offer.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The component, binary or text (.wat)
    component: PathBuf,
    /// Print one JSON object: world, exports, imports, needs
    #[arg(long)]
    json: bool,
}

/// Prints what a component is. An error is one of the component, which then cannot be used.
pub fn run(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let sandbox = SandboxConfig {
        compiler: own_program(),
        ..SandboxConfig::default()
    };
    let inspection = Inspection::of(&args.component, &sandbox)?;
    let text = if args.json {
        serde_json::to_string(&inspection).context("the result cannot be written as JSON")?
    } else {
        inspection.text(&sandbox)
    };
    super::print_line(&text)?;
    Ok(ExitCode::SUCCESS)
}
