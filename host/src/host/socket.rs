//! The local socket at which a host tells its status, and the question for it.
//!
//! Invariant: only the host's user can open it, from the moment it exists. Whoever connects is told the
//! status as one JSON object; nothing is read from anyone.

use super::status::Status;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// A longer status is none.
const MAX_STATUS: u64 = 64 << 20;

/// Its name in the user's runtime folder.
const NAME: &str = "batchgate-host.sock";

/// The socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It cannot be made.
    #[error("the socket {} cannot be made: {cause}; name another with --socket", path.display())]
    Make {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Another host has it.
    #[error("another host tells its status at {}; stop that host, or name another socket with --socket", .0.display())]
    Taken(PathBuf),
    /// Something else is there.
    #[error("{} is there and no socket; name another with --socket", .0.display())]
    InTheWay(PathBuf),
    /// A folder for it is not the user's own.
    #[error("{} may be used by others than you; name a socket in a folder of your own with --socket", .0.display())]
    Foreign(PathBuf),
    /// Nobody answers.
    #[error("no host answers at {}: {cause}; start one with `batchgate host --jobs FOLDER`, or name its socket with --socket", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Something else answered.
    #[error("what answers at {} is no host of this version: {cause}", path.display())]
    Strange {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: serde_json::Error,
    },
}

/// A socket that tells a status until it is dropped.
pub(super) struct Socket {
    path: PathBuf,
    /// The file's own number, since another host may have put its own there.
    inode: Option<u64>,
    serving: JoinHandle<()>,
}

impl Socket {
    pub(super) fn serve(
        path: &Path,
        status: impl Fn() -> Status + Send + Sync + 'static,
    ) -> Result<Self, SocketError> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.mode() & 0o170_000 != 0o140_000 => {
                return Err(SocketError::InTheWay(path.to_owned()));
            }
            // One that nobody listens at was left behind.
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(SocketError::Taken(path.to_owned()));
            }
            _ => {}
        }
        let make = |cause| SocketError::Make {
            path: path.to_owned(),
            cause,
        };
        let listener = listen(path).map_err(make)?;
        let inode = std::fs::symlink_metadata(path).ok().map(|m| m.ino());
        let status = Arc::new(status);
        let serving = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(answer(stream, status.clone()));
                    }
                    // Such as too many open files: it may pass.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
        Ok(Self {
            path: path.to_owned(),
            inode,
            serving,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.serving.abort();
        let there = std::fs::symlink_metadata(&self.path).ok().map(|m| m.ino());
        if there.is_some() && there == self.inode {
            // If it cannot be removed, the next host finds that nobody listens.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Made in a folder that nobody else can enter, and moved to its place once it is closed to others.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let closed = tempfile::Builder::new()
        .prefix(".bg")
        .rand_bytes(4)
        .tempdir_in(parent)?;
    let made = closed.path().join("s");
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&made, path)?;
    Ok(listener)
}

async fn answer(mut stream: tokio::net::UnixStream, status: Arc<impl Fn() -> Status>) {
    let Ok(text) = serde_json::to_vec(&status()) else {
        return;
    };
    let write = async {
        stream.write_all(&text).await?;
        stream.shutdown().await
    };
    // Whoever asked may have gone away.
    let _ = tokio::time::timeout(PATIENCE, write).await;
}

/// Asks the host at this socket how it stands.
pub fn ask(path: &Path) -> Result<Status, SocketError> {
    let silent = |cause| SocketError::Silent {
        path: path.to_owned(),
        cause,
    };
    let stream = UnixStream::connect(path).map_err(silent)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(silent)?;
    let mut text = Vec::new();
    stream
        .take(MAX_STATUS)
        .read_to_end(&mut text)
        .map_err(silent)?;
    serde_json::from_slice(&text).map_err(|cause| SocketError::Strange {
        path: path.to_owned(),
        cause,
    })
}

/// The socket in the user's runtime folder; where the system has none, in a folder of the user's own among
/// the temporary ones, which is made for a host.
pub fn default_socket(for_host: bool) -> Result<PathBuf, SocketError> {
    let user = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from(format!("/run/user/{user}")));
    if runtime.is_dir() {
        return Ok(runtime.join(NAME));
    }
    let own = std::env::temp_dir().join(format!("batchgate-{user}"));
    if for_host {
        match std::fs::DirBuilder::new().mode(0o700).create(&own) {
            Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
                return Err(SocketError::Make { path: own, cause });
            }
            _ => {}
        }
    }
    match std::fs::symlink_metadata(&own) {
        // Among the temporary folders anyone may have made one of this name.
        Ok(metadata)
            if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o077 != 0 =>
        {
            Err(SocketError::Foreign(own))
        }
        _ => Ok(own.join(NAME)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            pid: 1,
            folder: "jobs".into(),
            budget: None,
            jobs: Vec::new(),
        }
    }

    async fn asked(path: &Path) -> Result<Status, SocketError> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || ask(&path))
            .await
            .expect("no panic")
    }

    #[tokio::test]
    async fn tells_its_user_alone_and_nobody_after_its_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("host.sock");
        let socket = Socket::serve(&path, status).expect("made");
        let mode = std::fs::metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(asked(&path).await.expect("told"), status());
        // Nothing is left of its making.
        assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 1);

        assert!(matches!(
            Socket::serve(&path, status),
            Err(SocketError::Taken(_))
        ));
        drop(socket);
        assert!(!path.exists());
        let silent = asked(&path).await.expect_err("gone").to_string();
        assert!(
            silent.contains("host.sock") && silent.contains("--socket"),
            "{silent}"
        );
    }

    #[tokio::test]
    async fn one_that_was_left_behind_is_replaced_and_nothing_else_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("host.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        let _socket = Socket::serve(&path, status).expect("made");
        assert!(asked(&path).await.is_ok());
        let file = dir.path().join("file");
        std::fs::write(&file, "text").expect("written");
        assert!(matches!(
            Socket::serve(&file, status),
            Err(SocketError::InTheWay(_))
        ));
        let nowhere = dir.path().join("none/host.sock");
        assert!(matches!(
            Socket::serve(&nowhere, status),
            Err(SocketError::Make { .. })
        ));
    }
}
