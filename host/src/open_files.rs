//! Raises this process's limit of open files as far as it may, since each connection is one.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. Where that fails the old limit holds, and connections
/// beyond it wait.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files could not be raised: {error}");
    }
}
