//! Opens handles to resources of the host and never closes one: `{"handles": N}` of each item's data at each call,
//! without end if there is no number. `{"kb": N}` leaks memory as well.

use serde::Deserialize;

batchgate_guest::export!(process);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Leak {
    handles: Option<u64>,
    kb: usize,
}

fn process(items: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    for item in &items {
        let leak: Leak = item.json()?;
        std::mem::forget(vec![1_u8; leak.kb << 10]);
        for _ in 0..leak.handles.unwrap_or(u64::MAX) {
            std::mem::forget(wasip2::clocks::monotonic_clock::subscribe_duration(1));
        }
    }
    Ok(items.len() as u64)
}
