//! Which components load, and what is said of the others.

use super::*;
use crate::support::{batchgate, target};
use batchgate::wasm::{Inspection, World};

fn repository() -> std::path::PathBuf {
    target().parent().unwrap().to_owned()
}

#[test]
fn worlds_are_found() {
    for (name, world) in [
        ("noop", World::Batch),
        ("describer", World::DescribingBatch),
        ("rust", World::Batch),
    ] {
        assert_eq!(
            load(&guest(name), &SandboxConfig::default()).world(),
            world,
            "{name}"
        );
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let table = [
        (
            guest("core_module"),
            "is a core WebAssembly module, not a component",
        ),
        (guest("empty"), "exports no batchgate:batch/processor@0.1.0"),
        (guest("wrong_world"), "it exports example:tool/tool@1.0.0"),
        (
            guest("wrong_version"),
            "exports batchgate:batch/processor@9.0.0, and this host runs version 0.1.0",
        ),
        (
            guest("wrong_signature"),
            "its process-batch has another type than this host's",
        ),
        (
            guest("unknown_import"),
            "imports example:magic/wand@1.0.0, which this host does not offer",
        ),
        (file("empty", b""), "is empty"),
        (file("text", b"hello"), "is not WebAssembly"),
        (file("binary", b"\xff\xfe\x00"), "is not WebAssembly"),
        (
            file("module.wat", b"(module)"),
            "is a core WebAssembly module in text form",
        ),
        (
            file("broken.wat", b"(component"),
            "is not a component that this host can run",
        ),
        (
            file("broken.wasm", b"\0asm\x0d\0\x01\0\xff\xff"),
            "is not a component that this host can run",
        ),
        (
            file(
                "large.wat",
                format!("(component){}", " ".repeat(1 << 20)).as_bytes(),
            ),
            "is text of 1048587 bytes, and text is read up to 1 MiB; make it binary first: wasm-tools parse",
        ),
        (fifo(folder.path()), "is not a regular file"),
        ("/dev/zero".into(), "is not a regular file"),
        (folder.path().to_owned(), "is a directory"),
        (folder.path().join("missing"), "No such file"),
    ];
    for (path, expected) in table {
        let Err(error) = Component::load(&path, &SandboxConfig::default()) else {
            panic!("{} loads", path.display())
        };
        let error = error.to_string();
        assert!(error.contains(expected), "{error}");
        assert!(
            error.starts_with(&format!("component {}: ", path.display())),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
    let small = SandboxConfig {
        max_component_bytes: 1024,
        ..SandboxConfig::default()
    };
    let error = Component::load(&guest("noop"), &small)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("more than 1 KiB (max_component_bytes)"),
        "{error}"
    );
}

/// A pipe to which nobody writes.
fn fifo(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    path
}

#[test]
fn commands_wait_for_no_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let fifo = fifo.to_str().unwrap();
    for arguments in [
        &["run", fifo][..],
        &["inspect", fifo],
        &["check", fifo],
        &["run", "--component", fifo, "--input", "/dev/null"],
        &["simulate", fifo],
    ] {
        let ran = batchgate().args(arguments).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.contains("is not a regular file"),
            "{arguments:?}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    }
}

#[test]
fn compiling_has_a_limit_on_time() {
    let hurried = SandboxConfig {
        compiler: Some(batchgate().get_program().into()),
        max_compile_time: Duration::from_millis(1),
        ..SandboxConfig::default()
    };
    let error = Component::load(&guest("scripted"), &hurried);
    let error = error.err().unwrap().to_string();
    assert!(
        error.ends_with("cannot be compiled in 0.001 s (max_compile_time)"),
        "{error}"
    );
}

#[test]
fn what_the_job_names_must_be_there() {
    let default = SandboxConfig::default;
    let folder = tempfile::tempdir().unwrap();
    let dir = batchgate::wasm::Dir {
        host: "/no/such/folder".into(),
        guest: "/data".into(),
        writable: false,
    };
    let table = [
        (
            SandboxConfig {
                allow_hosts: vec!["ftp://a.com".into()],
                ..default()
            },
            "allow_hosts: \"ftp://a.com\": its scheme",
        ),
        (
            SandboxConfig {
                ca_file: Some("/no/such/file".into()),
                ..default()
            },
            "ca_file: /no/such/file: cannot be read",
        ),
        (
            SandboxConfig {
                ca_file: Some(fifo(folder.path())),
                ..default()
            },
            "fifo: cannot be read: is not a regular file",
        ),
        (
            SandboxConfig {
                ca_file: Some(guest("noop")),
                ..default()
            },
            "certificate",
        ),
        (
            SandboxConfig {
                env: vec!["NO_SUCH_NAME_HERE".into()],
                ..default()
            },
            "\"NO_SUCH_NAME_HERE\" is not set",
        ),
        (
            SandboxConfig {
                dirs: vec![dir],
                ..default()
            },
            "dirs: /no/such/folder: ",
        ),
    ];
    for (sandbox, expected) in table {
        let error = Component::load(&guest("noop"), &sandbox)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn inspection_says_what_a_component_needs() {
    let sandbox = SandboxConfig::default();
    let rust = Inspection::of(&guest("rust"), &sandbox).unwrap();
    assert_eq!(rust.world, "batch-processor");
    assert!(
        rust.exports
            .iter()
            .any(|export| export == "batchgate:batch/processor@0.1.0"),
        "{rust:?}"
    );
    assert!(
        rust.imports
            .iter()
            .any(|import| import.starts_with("wasi:http/outgoing-handler@0.2")),
        "{rust:?}"
    );
    assert!(
        rust.needs.contains(&"allow_hosts") && rust.needs.contains(&"config"),
        "{rust:?}"
    );
    let json = serde_json::to_value(&rust).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["exports", "imports", "needs", "world"]);
    let text = rust.text(&sandbox);
    assert!(
        text.contains("memory") && text.contains("256 MiB") && text.contains("cpu_timeout"),
        "{text}"
    );
}

/// Tables and core instances are counted before any of the guest's code runs.
#[test]
fn too_many_parts_are_refused_by_name() {
    let whole =
        std::fs::read_to_string(repository().join("tests/guests/wat/recursion.wat")).unwrap();
    let module = "(core module $module\n";
    let folder = tempfile::tempdir().unwrap();
    let tables = "(table 1 funcref)\n".repeat(11);
    let instances =
        "(core module $part)\n".to_owned() + &"(core instance (instantiate $part))\n".repeat(11);
    let few = SandboxConfig {
        max_tables: 10,
        max_instances: 10,
        ..SandboxConfig::default()
    };
    for (name, text, expected) in [
        (
            "tables.wat",
            whole.replace(module, &format!("{module}{tables}")),
            "limit of 10 tables exceeded (max_tables)",
        ),
        (
            "instances.wat",
            whole.replace(module, &format!("{instances}{module}")),
            "limit of 10 core instances or memories exceeded (max_instances)",
        ),
    ] {
        assert_ne!(text, whole);
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let plugin = plugin_with(load(&path, &few), Arc::default());
        let Err(error) = block_on(plugin.start_slot(0)) else {
            panic!("{name} starts")
        };
        assert!(error.contains(expected), "{error}");
    }
}

/// The program itself compiles in a process of its own, whose memory is limited.
#[test]
fn compiling_has_a_limit_on_memory() {
    let apart = SandboxConfig {
        compiler: Some(batchgate().get_program().into()),
        ..SandboxConfig::default()
    };
    assert_eq!(load(&guest("noop"), &apart).world(), World::Batch);
    let tight = SandboxConfig {
        max_compile_memory: 16 << 20,
        ..apart.clone()
    };
    let error = Component::load(&guest("scripted"), &tight)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("cannot be compiled in 16 MiB of memory (max_compile_memory)"),
        "{error}"
    );
    // What is wrong with a component reads the same.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.wat");
    std::fs::write(&path, "(component").unwrap();
    let said = |sandbox| Component::load(&path, sandbox).err().unwrap().to_string();
    assert_eq!(said(&apart), said(&SandboxConfig::default()));
}
