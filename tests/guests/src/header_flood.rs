//! Puts header fields into a request until it is stopped.

use wasip2::http::types::Fields;

batchgate_guest::export!(process);

fn process(_: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    let fields = Fields::new();
    for n in 0_u64.. {
        if let Err(error) = fields.append(&format!("x-{n}"), &[b'x'; 1000]) {
            return Err(batchgate_guest::BatchError::failed(format!(
                "after {n}: {error:?}"
            )));
        }
    }
    Ok(0)
}
