//! Nothing: the tests are in the one test binary, `src/main.rs`.
