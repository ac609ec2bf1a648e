//! The uploader of `../rust` for the async world: one instance has many requests under way at once.
//!
//! What is posted, and what the server's answer means, is that example's own file.

#[path = "../../rust/src/answer.rs"]
mod answer;

use batchgate_guest::{BatchError, Item};

batchgate_guest::export!(async process);

async fn process(items: Vec<Item>) -> Result<u64, BatchError> {
    let request = answer::request(&items)?;
    answer::answer(&items, request.send_async().await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchgate_guest::http::Response;
    use batchgate_guest::testing::{block_on, item, respond_with, set_config};

    #[test]
    fn a_batch_is_posted_and_answered() {
        set_config("api_url", "http://api.test/items");
        respond_with(|request| {
            assert_eq!(request.body, br#"[{"key":"a","data":"1"}]"#);
            Ok(Response {
                status: 503,
                ..Response::default()
            })
        });
        let error = block_on(process(vec![item(0, "a", "1")])).unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
}
