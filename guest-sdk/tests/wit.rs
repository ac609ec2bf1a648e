//! The SDK carries its own copy of the contract, so that it can stand alone.

use std::fs::read_to_string;
use std::path::Path;

#[test]
fn the_copy_is_the_contract() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read =
        |path: &str| read_to_string(sdk.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(
        read("wit/batch.wit") == read("../wit/batch.wit"),
        "guest-sdk/wit/batch.wit differs from wit/batch.wit: copy it"
    );
}
