//! `batchgate check`: whether a plugin keeps the contract.

use crate::check::{Check, Verdict, check};
use anyhow::Context;
use std::path::PathBuf;
use std::process::ExitCode;

/// Try a plugin on inputs of every kind and against a server that refuses in every way
///
/// The plugin runs in the sandbox, beside a stand-in server whose URL it gets as its config value
/// api_url. Cases about a server's answers do not apply to a plugin that posts nothing there. Exit
/// code 0 if all cases passed, 1 if any failed, 2 if the component cannot be run.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The component, binary or text (.wat)
    component: PathBuf,
    /// The config key that takes the URL to post to
    #[arg(long, value_name = "KEY", default_value = "api_url")]
    url_key: String,
    /// A value of the plugin's config (repeatable)
    #[arg(long = "config-set", value_name = "KEY=VALUE", value_parser = key_value)]
    config: Vec<(String, String)>,
    /// Print one JSON object: component, world, cases
    #[arg(long)]
    json: bool,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// Prints how the plugin did. An error is one of the component, which then cannot be used.
pub fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    // Each situation loads the component; it is compiled once.
    let cache = tempfile::tempdir().context("no folder for temporary files")?;
    let plan = Check {
        component: args.component,
        url_key: args.url_key,
        config: args.config,
        cache_dir: cache.path().to_owned(),
    };
    let runtime = super::runtime()?;
    let report = runtime.block_on(check(&plan));
    runtime.shutdown_background();
    let report = report?;
    let text = if args.json {
        serde_json::to_string(&report).context("the report cannot be written as JSON")?
    } else {
        report.text()
    };
    super::print_line(&text)?;
    Ok(match report.count(Verdict::Failed) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}
