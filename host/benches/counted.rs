//! Runs a part of the call path so often as it is told, for a counter of instructions: `bench/count.py` runs it under
//! one.
//!
//! Usage: `counted PART TIMES`; without them, the parts' names.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod bare;
mod fixture;
mod parts;

use parts::{PARTS, part};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [name, times] => {
            let mut part = part(name);
            (0..times.parse().unwrap()).for_each(|_: u64| part());
        }
        _ => PARTS.iter().for_each(|(name, _)| println!("{name}")),
    }
}
