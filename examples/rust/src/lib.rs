//! Posts each batch to `api_url` as a JSON array of `{"key": …, "data": …}`, and says what
//! the server's status means for it (the table in `answer.rs`).
//!
//! `data` is the item's data as text; what is not UTF-8 in it arrives as U+FFFD.

mod answer;
#[cfg(test)]
mod tests;

use batchgate_guest::{BatchError, Item};

batchgate_guest::export!(process);

fn process(items: Vec<Item>) -> Result<u64, BatchError> {
    let request = answer::request(&items)?;
    answer::answer(&items, request.send())
}
