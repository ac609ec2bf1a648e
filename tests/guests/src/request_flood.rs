//! Fills requests with all that they can hold, and sends none of them.

use wasip2::http::types::{Fields, Method, OutgoingRequest};

batchgate_guest::export!(process);

fn process(_: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    let path = format!("/{}", "p".repeat(60_000));
    let method = Method::Other("M".repeat(1_000_000));
    let value = "v".repeat(15_000);
    loop {
        let fields = Fields::new();
        let _ = fields.append("x", value.as_bytes());
        let request = OutgoingRequest::new(fields);
        let _ = request.set_method(&method);
        let _ = request.set_path_with_query(Some(&path));
        let _ = request.set_path_with_query(Some(&path[..8_000]));
        let _ = request.set_authority(Some(&path[1..]));
        let body = request
            .body()
            .map_err(|()| batchgate_guest::BatchError::fatal("no body"))?;
        if let Ok(stream) = body.write() {
            let _ = stream
                .check_write()
                .and_then(|most| stream.write(&vec![1; most as usize]));
            std::mem::forget(stream);
        }
        std::mem::forget(body);
        std::mem::forget(request);
    }
}
