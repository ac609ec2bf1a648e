//! What the WIT says, as Rust. Generated; the other modules give it a friendlier face.
//!
//! Each export has a world of its own, so that a component exports exactly what its
//! `export!` names.
#![allow(missing_docs, unsafe_code, unused_qualifications, clippy::all)]

pub mod processor {
    wit_bindgen::generate!({
        path: "wit",
        world: "batchgate:batch/batch-processor",
        pub_export_macro: true,
        export_macro_name: "export_processor",
    });
}

pub mod async_processor {
    wit_bindgen::generate!({
        path: "wit",
        world: "batchgate:batch/async-batch-processor",
        with: {
            "batchgate:batch/types@0.1.0": crate::bindings::processor::batchgate::batch::types,
            "batchgate:batch/limiter@0.1.0": crate::bindings::processor::batchgate::batch::limiter,
            "batchgate:batch/call@0.1.0": crate::bindings::processor::batchgate::batch::call,
        },
        pub_export_macro: true,
        export_macro_name: "export_async_processor",
    });
}

pub mod describer {
    wit_bindgen::generate!({
        inline: "
            package batchgate:sdk;
            world describer { export batchgate:batch/describer@0.1.0; }
        ",
        path: "wit",
        world: "batchgate:sdk/describer",
        with: { "batchgate:batch/types@0.1.0": crate::bindings::processor::batchgate::batch::types },
        pub_export_macro: true,
        export_macro_name: "export_describer",
    });
}

#[cfg(target_family = "wasm")]
pub mod config {
    wit_bindgen::generate!({
        inline: "
            package batchgate:sdk;
            world config { import wasi:config/store@0.2.0-rc.1; }
        ",
        path: "wit",
        world: "batchgate:sdk/config",
        generate_all,
    });
}

#[cfg(target_family = "wasm")]
pub mod clock {
    wit_bindgen::generate!({
        inline: "
            package batchgate:sdk;
            world clock { import wasi:clocks/monotonic-clock@0.3.0; }
        ",
        path: "wit",
        world: "batchgate:sdk/clock",
        generate_all,
    });
}

#[cfg(all(target_family = "wasm", feature = "http"))]
pub mod http {
    wit_bindgen::generate!({
        inline: "
            package batchgate:sdk;
            world http { import wasi:http/client@0.3.0; }
        ",
        path: "wit",
        world: "batchgate:sdk/http",
        generate_all,
    });
}
