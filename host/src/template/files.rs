//! The files that a new plugin starts from: the examples' own, as they were when this program was built.
//!
//! Each list is whole: a test compares it with the folder.

/// One file of a template.
pub(super) struct File {
    /// Where it goes, from the plugin's folder.
    pub path: &'static str,
    /// What is in it.
    pub text: &'static str,
}

macro_rules! files {
    ($root:literal: $($path:literal),+ $(,)?) => {
        &[$(File {
            path: $path,
            text: include_str!(concat!("../../../", $root, "/", $path)),
        }),+]
    };
}

pub(super) const RUST: &[File] = files!(
    "examples/rust":
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "README.md",
    "src/answer.rs",
    "src/lib.rs",
    "src/tests.rs",
);

pub(super) const RUST_ASYNC: &[File] = files!(
    "examples/rust-async":
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "README.md",
    "src/lib.rs",
);

/// What that one takes from the example in Rust.
pub(super) const RUST_SHARED: &[File] = files!("examples/rust": "src/answer.rs");

pub(super) const JS: &[File] = files!(
    "examples/js":
    ".gitignore",
    "README.md",
    "package-lock.json",
    "package.json",
    "src/answer.js",
    "src/http.js",
    "src/uploader.js",
    "test/answer.test.js",
    "tsconfig.json",
    "wit/deps/batchgate-batch/batch.wit",
    "wit/deps/wasi-clocks/clocks.wit",
    "wit/deps/wasi-config/store.wit",
    "wit/deps/wasi-http/http.wit",
    "wit/deps/wasi-io/io.wit",
    "wit/world.wit",
);

pub(super) const PYTHON: &[File] = files!(
    "examples/python":
    ".gitignore",
    "README.md",
    "answer.py",
    "app.py",
    "http_client.py",
    "requirements.txt",
    "test_answer.py",
    "wit/deps/batchgate-batch/batch.wit",
    "wit/deps/wasi-clocks/clocks.wit",
    "wit/deps/wasi-config/store.wit",
    "wit/deps/wasi-http/http.wit",
    "wit/deps/wasi-io/io.wit",
    "wit/world.wit",
);

pub(super) const PYTHON_ASYNC: &[File] = files!(
    "examples/python-async":
    ".gitignore",
    "README.md",
    "app.py",
    "http_client.py",
    "requirements.txt",
    "test_app.py",
    "wit/deps/batchgate-batch/batch.wit",
    "wit/deps/wasi-clocks-0.3/clocks.wit",
    "wit/deps/wasi-config/store.wit",
    "wit/deps/wasi-http-0.3/http.wit",
    "wit/world.wit",
);

/// What that one takes from the example in Python.
pub(super) const PYTHON_SHARED: &[File] = files!("examples/python": "answer.py");

pub(super) const C: &[File] = files!(
    "examples/c":
    ".gitignore",
    "Makefile",
    "README.md",
    "src/answer.c",
    "src/answer.h",
    "src/http.c",
    "src/http.h",
    "src/json.c",
    "src/json.h",
    "src/plugin.c",
    "src/text.c",
    "src/text.h",
    "test/test_answer.c",
    "wit/deps/batchgate-batch/batch.wit",
    "wit/deps/wasi-clocks/clocks.wit",
    "wit/deps/wasi-config/store.wit",
    "wit/deps/wasi-http/http.wit",
    "wit/deps/wasi-io/io.wit",
    "wit/world.wit",
);

pub(super) const GO: &[File] = files!(
    "examples/go":
    ".gitignore",
    "Makefile",
    "README.md",
    "answer/answer.go",
    "answer/answer_test.go",
    "exports/export_batchgate_batch_processor/process_batch.go",
    "go.mod",
    "main.go",
    "wasihttp/post.go",
    "wit/deps/batchgate-batch/batch.wit",
    "wit/deps/wasi-clocks/clocks.wit",
    "wit/deps/wasi-config/store.wit",
    "wit/deps/wasi-http/http.wit",
    "wit/deps/wasi-io/io.wit",
    "wit/world.wit",
);

/// The SDK, which a plugin in Rust carries.
pub(super) const SDK: &[File] = files!(
    "guest-sdk":
    "Cargo.lock",
    "Cargo.toml",
    "README.md",
    "clippy.toml",
    "src/bindings.rs",
    "src/call.rs",
    "src/config.rs",
    "src/error.rs",
    "src/http/mod.rs",
    "src/http/wasi.rs",
    "src/http/wasi_async.rs",
    "src/item.rs",
    "src/lib.rs",
    "src/limiter.rs",
    "src/testing.rs",
    "src/time.rs",
    "wit/batch.wit",
    "wit/deps/wasi-clocks-0.3/clocks.wit",
    "wit/deps/wasi-config/store.wit",
    "wit/deps/wasi-http-0.3/http.wit",
);
