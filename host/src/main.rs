//! The command `batchgate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    batchgate::cli::main()
}
