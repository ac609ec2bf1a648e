//! Which components load, and what is said of the others.

use super::*;
use batchgate::wasm::{Inspection, World};

#[test]
fn worlds_are_found() {
    for (name, world) in [("noop", World::Batch), ("describer", World::DescribingBatch), ("rust", World::Batch)] {
        assert_eq!(load(&guest(name), &SandboxConfig::default()).world(), world, "{name}");
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
        (guest("core_module"), "is a core WebAssembly module, not a component"),
        (guest("empty"), "exports no batchgate:batch/processor@0.1.0"),
        (guest("wrong_world"), "it exports example:tool/tool@1.0.0"),
        (guest("wrong_version"), "exports batchgate:batch/processor@9.0.0, and this host runs version 0.1.0"),
        (guest("wrong_signature"), "its process-batch has another type than this host's"),
        (guest("unknown_import"), "imports example:magic/wand@1.0.0, which this host does not offer"),
        (file("empty", b""), "is empty"),
        (file("text", b"hello"), "is not WebAssembly"),
        (file("binary", b"\xff\xfe\x00"), "is not WebAssembly"),
        (file("module.wat", b"(module)"), "is a core WebAssembly module in text form"),
        (file("broken.wat", b"(component"), "is not a component that this host can run"),
        (file("broken.wasm", b"\0asm\x0d\0\x01\0\xff\xff"), "is not a component that this host can run"),
        (folder.path().to_owned(), "is a directory"),
        (folder.path().join("missing"), "No such file"),
    ];
    for (path, expected) in table {
        let Err(error) = Component::load(&path, &SandboxConfig::default()) else { panic!("{} loads", path.display()) };
        let error = error.to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with(&format!("component {}: ", path.display())), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let small = SandboxConfig { max_component_bytes: 1024, ..SandboxConfig::default() };
    let error = Component::load(&guest("noop"), &small).err().unwrap().to_string();
    assert!(error.contains("more than 1 KiB (max_component_bytes)"), "{error}");
}

#[test]
fn what_the_job_names_must_be_there() {
    let default = SandboxConfig::default;
    let dir = batchgate::wasm::Dir { host: "/no/such/folder".into(), guest: "/data".into(), writable: false };
    let table = [
        (SandboxConfig { allow_hosts: vec!["ftp://a.com".into()], ..default() }, "allow_hosts: \"ftp://a.com\": its scheme"),
        (SandboxConfig { ca_file: Some("/no/such/file".into()), ..default() }, "ca_file: /no/such/file: cannot be read"),
        (SandboxConfig { ca_file: Some(guest("noop")), ..default() }, "certificate"),
        (SandboxConfig { env: vec!["NO_SUCH_NAME_HERE".into()], ..default() }, "\"NO_SUCH_NAME_HERE\" is not set"),
        (SandboxConfig { dirs: vec![dir], ..default() }, "dirs: /no/such/folder: "),
    ];
    for (sandbox, expected) in table {
        let error = Component::load(&guest("noop"), &sandbox).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn inspection_says_what_a_component_needs() {
    let sandbox = SandboxConfig::default();
    let rust = Inspection::of(&guest("rust"), &sandbox).unwrap();
    assert_eq!(rust.world, "batch-processor");
    assert!(rust.exports.iter().any(|export| export == "batchgate:batch/processor@0.1.0"), "{rust:?}");
    assert!(rust.imports.iter().any(|import| import.starts_with("wasi:http/outgoing-handler@0.2")), "{rust:?}");
    assert!(rust.needs.contains(&"allow_hosts") && rust.needs.contains(&"config"), "{rust:?}");
    let json = serde_json::to_value(&rust).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["exports", "imports", "needs", "world"]);
    let text = rust.text(&sandbox);
    assert!(text.contains("memory") && text.contains("256 MiB") && text.contains("cpu_timeout"), "{text}");
}

/// Compiled code is taken from the cache, and a damaged entry is made anew.
#[test]
fn compiled_code_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let sandbox = SandboxConfig { cache_dir: Some(cache.clone()), ..SandboxConfig::default() };
    let entry = || {
        let files = std::fs::read_dir(&cache).unwrap().map(|file| file.unwrap().path());
        let entries: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "cwasm")).collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries[0].clone()
    };
    let modified = || std::fs::metadata(entry()).unwrap().modified().unwrap();
    let works = || {
        let component = load(&guest("scripted"), &sandbox);
        block_on(async move {
            let mut slot = plugin_with(component, Arc::default()).start_slot(0).await.unwrap();
            assert_eq!(format!("{:?}", call(&mut slot, "{}").await.end), "Written(1)");
        });
    };
    works();
    let first = modified();
    works();
    assert_eq!(modified(), first, "the entry was used");

    let whole = std::fs::read(entry()).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&whole[..whole.len() / 2], &flipped, b""] {
        std::fs::write(entry(), damaged).unwrap();
        works();
        assert_eq!(std::fs::read(entry()).unwrap().len(), whole.len(), "the entry was made anew");
    }
    std::fs::remove_file(entry().with_extension("sha256")).unwrap();
    works();

    // One that others may write to is not trusted, nor is a folder that cannot be made an error.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
    let before = modified();
    works();
    assert_eq!(modified(), before);
    let nowhere = SandboxConfig { cache_dir: Some("/proc/no".into()), ..SandboxConfig::default() };
    load(&guest("noop"), &nowhere);
}
