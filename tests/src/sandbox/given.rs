//! What a guest is given, files, environment and settings, and what of it may leave.

use super::*;
use batchgate_policy::outcome::CallEnd;

#[test]
fn nothing_is_given_that_the_job_does_not_name() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "inside").unwrap();
        let secret = folder.path().join("secret.txt");
        std::fs::write(&secret, "outside").unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("a.txt"), "inside").unwrap();
        std::os::unix::fs::symlink(&secret, inner.join("link")).unwrap();

        let message = async |slot: &mut _, script: &str| match call(slot, script).await.end {
            CallEnd::Failed { message, .. } => message,
            end => panic!("{script}: {end:?}"),
        };
        let mut bare = slot("scripted", &SandboxConfig::default()).await;
        for script in [
            r#"{"do":"read","path":"/etc/passwd"}"#,
            r#"{"do":"read","path":"/data/a.txt"}"#,
            r#"{"do":"write","path":"/tmp/x"}"#,
            r#"{"do":"env","name":"PATH"}"#,
            r#"{"do":"config","name":"token"}"#,
        ] {
            let said = message(&mut bare, script).await;
            assert!(
                !said.contains("root:") && !said.contains("/bin") && said != "written",
                "{script}: {said}"
            );
        }

        let dir = |writable| batchgate::wasm::Dir {
            host: inner.clone(),
            guest: "/data".to_owned(),
            writable,
        };
        let sandbox = SandboxConfig {
            dirs: vec![dir(false)],
            env: vec!["PATH".to_owned()],
            config: vec![config("name", "value", false)],
            ..SandboxConfig::default()
        };
        let mut given = slot("scripted", &sandbox).await;
        assert_eq!(
            message(&mut given, r#"{"do":"read","path":"/data/a.txt"}"#).await,
            "inside"
        );
        assert_ne!(
            message(&mut given, r#"{"do":"read","path":"/data/../secret.txt"}"#).await,
            "outside"
        );
        assert_ne!(
            message(&mut given, r#"{"do":"read","path":"/data/link"}"#).await,
            "outside"
        );
        assert_ne!(
            message(&mut given, r#"{"do":"write","path":"/data/b.txt"}"#).await,
            "written"
        );
        assert_eq!(
            message(&mut given, r#"{"do":"env","name":"PATH"}"#).await,
            std::env::var("PATH").unwrap()
        );
        assert_eq!(
            message(&mut given, r#"{"do":"config","name":"name"}"#).await,
            "value"
        );

        let sandbox = SandboxConfig {
            dirs: vec![dir(true)],
            ..SandboxConfig::default()
        };
        let mut writable = slot("scripted", &sandbox).await;
        assert_eq!(
            message(&mut writable, r#"{"do":"write","path":"/data/b.txt"}"#).await,
            "written"
        );
        assert!(inner.join("b.txt").exists());

        // What is neither a file nor a folder is not opened, so nothing waits for it.
        let made = std::process::Command::new("mkfifo")
            .arg(inner.join("pipe"))
            .status();
        assert!(made.unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(inner.join("socket")).unwrap();
        for name in ["pipe", "socket"] {
            for action in ["read", "write"] {
                let script = format!(r#"{{"do":"{action}","path":"/data/{name}"}}"#);
                let said = message(&mut writable, &script).await;
                assert!(said.contains("not permitted"), "{script}: {said}");
            }
        }
    });
}

#[test]
fn secrets_and_long_texts_do_not_leave() {
    block_on(async {
        let sandbox = SandboxConfig {
            config: vec![
                config("token", "s3cr3t-value", true),
                config("plain", "visible", false),
            ],
            max_error_bytes: 1000,
            ..SandboxConfig::default()
        };
        let mut slot = slot("scripted", &sandbox).await;
        let message = async |slot: &mut _, script: &str| match call(slot, script).await.end {
            CallEnd::Failed { message, .. } => message,
            end => panic!("{script}: {end:?}"),
        };
        assert_eq!(
            message(&mut slot, r#"{"do":"config","name":"token"}"#).await,
            "(secret token)"
        );
        assert_eq!(
            message(&mut slot, r#"{"do":"config","name":"plain"}"#).await,
            "visible"
        );
        let long = message(&mut slot, r#"{"do":"err_text","bytes":5000}"#).await;
        assert!(
            long.ends_with("… (4000 bytes cut)") && long.len() < 1100,
            "{long}"
        );
    });
}

/// The same of WASI 0.3, which opens files in its own way.
#[test]
fn what_is_no_file_is_not_opened_by_the_async_world_either() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "inside").unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(folder.path().join("pipe"))
            .status();
        assert!(made.unwrap().success());
        let socket = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(socket).unwrap();
        std::os::unix::fs::symlink("pipe", folder.path().join("link")).unwrap();
        let sandbox = SandboxConfig {
            dirs: vec![batchgate::wasm::Dir {
                host: folder.path().to_owned(),
                guest: "/data".to_owned(),
                writable: true,
            }],
            ..SandboxConfig::default()
        };
        let mut slot = slot("wasi03", &sandbox).await;
        for (path, learned) in [
            ("file", "opened"),
            ("new", "opened"),
            ("pipe", "ErrorCode::NotPermitted"),
            ("link", "ErrorCode::NotPermitted"),
            ("socket", "ErrorCode::NotPermitted"),
            ("missing/file", "ErrorCode::NoEntry"),
        ] {
            for how in ["create", "open"] {
                let report = call(&mut slot, &format!("{how} {path}")).await;
                let CallEnd::Failed { message, .. } = report.end else {
                    panic!("{how} {path}: {:?}", report.end);
                };
                assert_eq!(message, learned, "{how} {path}");
            }
        }
    });
}
