//! `batchgate mock-api`: a stand-in API to rehearse against, until it is interrupted.

use crate::mock_api::{Options, Server};
use anyhow::Context;
use std::io::Write;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Run a stand-in API to rehearse against, with known limits and a known latency
///
/// POST /items takes a JSON array or JSON lines of objects with a "key". The first line of output is
/// the base URL; GET /stats, /log and /keys there tell what happened. An interruption ends it.
/// Latency: (overhead + per item * n) * penalty(requests in flight) * exp(N(0, sigma)).
#[derive(Debug, clap::Args)]
pub struct MockApiArgs {
    #[command(flatten)]
    options: Options,
}

/// Serves until SIGINT or SIGTERM. Every error is one of the options or the address: nothing was
/// served.
pub fn run(args: MockApiArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime could not be started")?;
    let served = runtime.block_on(serve(args.options));
    // Requests whose latency is not over are not waited for.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(options: Options) -> anyhow::Result<()> {
    // Before the URL is out, since whoever reads it may signal at once.
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let server = Server::start(options).await?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", server.base_url)
        .and_then(|()| stdout.flush())
        .context("the base URL could not be written to standard output")?;
    drop(stdout);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    server.shutdown().await;
    Ok(())
}
