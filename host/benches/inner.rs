//! Time of each part of the call path, for a batch of 50 items.
//!
//! Usage: `cargo bench --bench inner [PART]`. Needs `make guests`.
#![allow(clippy::unwrap_used)]

mod bare;
mod fixture;
mod parts;

fn main() {
    divan::main();
}

#[divan::bench(args = parts::PARTS.iter().map(|(name, _)| name))]
fn part(bencher: divan::Bencher<'_, '_>, name: &str) {
    let part = std::cell::RefCell::new(parts::part(name));
    bencher.bench_local(|| part.borrow_mut()());
}
