//! Write Batchgate plugins in Rust: a plugin is a function from items to a result.
//!
//! ```
//! use batchgate_guest::{BatchError, Item};
//!
//! batchgate_guest::export!(process);
//!
//! fn process(items: Vec<Item>) -> Result<u64, BatchError> {
//!     for item in &items {
//!         let row: serde_json::Value = item.json()?;
//!         println!("{}: {row}", item.key);
//!     }
//!     Ok(items.len() as u64)
//! }
//! # use batchgate_guest::testing::item;
//! # assert_eq!(process(vec![item(0, "a", "{}")]).unwrap(), 1);
//! # assert!(process(vec![item(0, "a", "{")]).is_err());
//! ```
//!
//! The crate that holds it is a `cdylib`, built for `wasm32-wasip2`:
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//! ```
//!
//! - **Items**: [`Item::text`], [`Item::text_lossy`], [`Item::json`] into any serde type.
//! - **Errors**: `?` works on the usual ones; which are sent again is in the table at
//!   [`error`]. [`Classify`] decides otherwise, [`Failures`] lists single items.
//! - **Imports**: [`config`], [`call`], [`limiter`], and `http` with the feature of that name.
//! - **Tests** run natively against the fake host in `testing`.
//!
//! A plugin must not panic: a panic leaves the fate of the whole batch unknown.
//!
//! Features: `json` (default), `http`.

/// For [`export!`] alone.
#[doc(hidden)]
pub mod bindings;
pub mod call;
pub mod config;
pub mod error;
#[cfg(feature = "http")]
pub mod http;
mod item;
pub mod limiter;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod time;

pub use bindings::processor::batchgate::batch::types::{
    BatchError, Failure, Item, ItemFailure, RateLimit,
};
pub use error::{Classify, Failures};

/// Makes a function the plugin's export, once in a crate.
///
/// `export!(process)` with `fn process(items: Vec<Item>) -> Result<u64, BatchError>`,
/// which returns how many items were written; the rest of the batch counts as skipped.
///
/// `export!(process, describe)` adds `fn describe(items: Vec<Item>) -> String`: how a batch
/// is written in the failures file.
///
/// `export!(async process)` with `async fn process(items: Vec<Item>) -> Result<u64, BatchError>`
/// makes a plugin that awaits: one instance of it serves many calls at once
/// (`calls_per_instance`), so what is shared must not be borrowed across an `.await`, and only what
/// awaits ([`time::sleep`], `send_async` of a request) lets the others go on.
///
/// ```
/// use batchgate_guest::{BatchError, Item, time};
///
/// batchgate_guest::export!(async process);
///
/// async fn process(items: Vec<Item>) -> Result<u64, BatchError> {
///     for item in &items {
///         println!("{}: {}", item.key, item.text()?);
///         time::sleep(std::time::Duration::from_millis(10)).await;
///     }
///     Ok(items.len() as u64)
/// }
/// # use batchgate_guest::testing::{block_on, item};
/// # assert_eq!(block_on(process(vec![item(0, "a", "x")])).unwrap(), 1);
/// # assert!(block_on(process(vec![item(0, "a", b"\xff")])).is_err());
/// ```
#[macro_export]
macro_rules! export {
    (async $process:path $(,)?) => {
        const _: () = {
            // Names a wrong type plainly, and is all there is natively.
            const fn fits<P, R>(_: &P)
            where
                P: Fn(Vec<$crate::Item>) -> R,
                R: ::core::future::Future<Output = Result<u64, $crate::BatchError>>,
            {
            }
            fits(&$process);

            #[cfg(target_family = "wasm")]
            #[allow(unsafe_code)]
            const _: () = {
                use $crate::bindings::async_processor;
                struct Plugin;
                impl async_processor::exports::batchgate::batch::async_processor::Guest for Plugin {
                    async fn process_batch(
                        items: Vec<$crate::Item>,
                    ) -> Result<u64, $crate::BatchError> {
                        $process(items).await
                    }
                }
        async_processor::export_async_processor!(Plugin with_types_in async_processor);
            };
        };
    };
    ($process:path) => {
        const _: () = {
            // Names a wrong type plainly, and is all there is natively.
            const PROCESS: fn(Vec<$crate::Item>) -> Result<u64, $crate::BatchError> = $process;
            #[cfg(not(target_family = "wasm"))]
            const _: fn(Vec<$crate::Item>) -> Result<u64, $crate::BatchError> = PROCESS;

            #[cfg(target_family = "wasm")]
            #[allow(unsafe_code)]
            const _: () = {
                use $crate::bindings::processor;
                struct Plugin;
                impl processor::exports::batchgate::batch::processor::Guest for Plugin {
                    fn process_batch(items: Vec<$crate::Item>) -> Result<u64, $crate::BatchError> {
                        PROCESS(items)
                    }
                }
        processor::export_processor!(Plugin with_types_in processor);
            };
        };
    };
    ($process:path, $describe:path $(,)?) => {
        $crate::export!($process);
        const _: () = {
            const DESCRIBE: fn(Vec<$crate::Item>) -> String = $describe;
            #[cfg(not(target_family = "wasm"))]
            const _: fn(Vec<$crate::Item>) -> String = DESCRIBE;

            #[cfg(target_family = "wasm")]
            #[allow(unsafe_code)]
            const _: () = {
                use $crate::bindings::describer;
                struct Plugin;
                impl describer::exports::batchgate::batch::describer::Guest for Plugin {
                    fn describe_batch(items: Vec<$crate::Item>) -> String {
                        DESCRIBE(items)
                    }
                }
        describer::export_describer!(Plugin with_types_in describer);
            };
        };
    };
}
