//! `[usage]`: the record of every call.

use std::path::PathBuf;

use super::kind::{FilePath, Optional};
use super::table::table;

table! {
    /// The record of every call.
    Usage = "usage";
    /// The database that `batchgate usage` reads.
    db: Option<PathBuf> = None, Optional(FilePath);
}
