//! Answers with as many failed items as its first item's data says: their indexes twice over, and most of them of no
//! item there is.

batchgate_guest::export!(process);

fn process(items: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    let many: u64 = items[0]
        .text()?
        .parse()
        .map_err(batchgate_guest::BatchError::fatal)?;
    let failure = |n| batchgate_guest::ItemFailure {
        index: n / 2,
        message: String::new(),
        retryable: true,
    };
    Err(batchgate_guest::BatchError::Partial(
        (0..many).map(failure).collect(),
    ))
}
