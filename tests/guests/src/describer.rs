//! Writes everything but items whose data is `bad`, and describes a batch as its keys in
//! square brackets. A batch that holds the key `trap` traps the describer, one that holds
//! `loop` never returns from it.

use batchgate_guest::{BatchError, Item};

batchgate_guest::export!(process, describe);

fn process(items: Vec<Item>) -> Result<u64, BatchError> {
    if let Some(bad) = items.iter().find(|item| item.data == b"bad") {
        return Err(BatchError::failed(format!("key {} is bad", bad.key)));
    }
    Ok(items.len() as u64)
}

fn describe(items: Vec<Item>) -> String {
    let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
    if keys.contains(&"trap") {
        panic!("the describer was told to trap");
    }
    while keys.contains(&"loop") {
        std::hint::spin_loop();
    }
    format!("[{}]", keys.join(" "))
}
