//! Says at once that every item was written.

batchgate_guest::export!(process);

fn process(items: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    Ok(items.len() as u64)
}
