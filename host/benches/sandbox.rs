//! What the sandbox's limits cost a call: the same guest and items as a slot runs them, beside two hosts without
//! limits, which tell the guest of the call, time it and report. In the one, nothing interrupts the guest. In the
//! other it could be interrupted, which costs a check at each of its functions and loops, and never is.
//!
//! Usage: `cargo bench --bench sandbox [GUEST.wasm]`. Needs `make guests`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod bare;
mod fixture;

use batchgate::slot::{Plugin, Slot};
use batchgate::wasm::{Component, SandboxConfig};
use fixture::{info, item, median, plugin, target, thread_time};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Both are measured in turns, one right after the other, and the middle one of their ratios counts: what disturbs the
/// machine for longer than a turn disturbs both. Time is the thread's own, in which it ran.
const TURNS: usize = 301;
const TURN: Duration = Duration::from_millis(5);

fn main() {
    let guest = std::env::args()
        .nth(1)
        .filter(|argument| !argument.starts_with("--"));
    let guest = guest.map_or_else(|| target().join("guests/noop.wasm"), PathBuf::from);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(&guest));
}

async fn measure(guest: &Path) {
    let component =
        Component::load(guest, &SandboxConfig::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut slot = plugin(component).start_slot(0).await.unwrap();
    let mut bare = bare::Instance::new(guest, false).await;
    let mut interruptible = bare::Instance::new(guest, true).await;
    println!("items   without limits  interruptible   with limits");
    for count in [1, 10, 50, 1000] {
        let items: Vec<_> = (0..count).map(item).collect();
        let (mut times, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
        for _ in 0..TURNS {
            let turn = [
                turn(async || drop(bare.call(&items, info()).await)).await,
                turn(async || drop(interruptible.call(&items, info()).await)).await,
                turn(async || drop(slot.call(&items, info()).await)).await,
            ];
            for (times, time) in times.iter_mut().zip(turn) {
                times.push(time);
            }
            ratios[0].push(turn[2] / turn[0]);
            ratios[1].push(turn[2] / turn[1]);
        }
        let [alone, interruptible, limited] = times.map(|times| median(times) * 1e6);
        let [more, more_than_interruptible] = ratios.map(|ratios| (median(ratios) - 1.0) * 100.0);
        println!(
            "{count:>5}   {alone:>11.2} us {interruptible:>11.2} us {limited:>10.2} us: \
             {more:+.1} %, {more_than_interruptible:+.1} % beside interruptible"
        );
    }
}

/// Seconds a call, over one turn.
async fn turn(mut call: impl AsyncFnMut()) -> f64 {
    let (started, mut calls) = (thread_time(), 0);
    loop {
        for _ in 0..10 {
            call().await;
        }
        calls += 10;
        let spent = thread_time() - started;
        if spent >= TURN {
            return spent.as_secs_f64() / f64::from(calls);
        }
    }
}
