use super::*;
use std::collections::BTreeSet;

/// What builds and tests leave in the folders, as their .gitignore files say.
const LEFT: [&str; 12] = [
    "target",
    "node_modules",
    "types",
    "build",
    "tools",
    "imports",
    "wit_exports",
    "bindings",
    ".venv",
    "__pycache__",
    "uploader.wasm",
    // The SDK's test of its own copy of the WIT.
    "tests",
];

fn walk(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if LEFT.contains(&name) {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, found);
        } else {
            let relative = path.strip_prefix(root).unwrap();
            found.insert(relative.to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn the_lists_are_whole() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (folder, files) in [
        ("examples/rust", files::RUST),
        ("examples/rust-async", files::RUST_ASYNC),
        ("examples/js", files::JS),
        ("examples/python", files::PYTHON),
        ("examples/python-async", files::PYTHON_ASYNC),
        ("examples/c", files::C),
        ("examples/go", files::GO),
        ("guest-sdk", files::SDK),
    ] {
        let root = repository.join(folder);
        let mut found = BTreeSet::new();
        walk(&root, &root, &mut found);
        let listed: BTreeSet<_> = files.iter().map(|file| file.path.to_owned()).collect();
        assert_eq!(
            listed, found,
            "{folder}: list its files in template/files.rs"
        );
    }
}

#[test]
fn a_plugin_in_rust_carries_its_sdk() {
    for language in [Language::Rust, Language::RustAsync] {
        let parent = tempfile::tempdir().unwrap();
        let folder = new(parent.path(), "mine", language).unwrap();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(
            manifest.contains(r#"path = "batchgate-guest""#),
            "{manifest}"
        );
        assert!(
            manifest.ends_with("[workspace]\nexclude = [\"batchgate-guest\"]\n"),
            "{manifest}"
        );
        assert!(folder.join("batchgate-guest/src/lib.rs").exists());
    }
}

#[test]
fn a_new_plugin_refers_to_no_other_example() {
    for &language in Language::value_variants() {
        for file in language.files() {
            let text = adapted(language, file);
            for other in ["../rust", "../python", "../../guest-sdk"] {
                assert!(
                    !text.contains(other),
                    "{language:?}: {}: {other}",
                    file.path
                );
            }
        }
    }
}

#[test]
fn what_is_there_is_left_alone() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::write(parent.path().join("file"), "mine").unwrap();
    std::fs::create_dir(parent.path().join("folder")).unwrap();
    for name in ["file", "folder"] {
        let error = new(parent.path(), name, Language::C)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is there already"), "{error}");
    }
    let text = std::fs::read_to_string(parent.path().join("file")).unwrap();
    assert_eq!(text, "mine");
    assert_eq!(
        std::fs::read_dir(parent.path().join("folder"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn a_name_is_that_of_a_folder() {
    let parent = tempfile::tempdir().unwrap();
    let long = "x".repeat(65);
    for name in [
        "", ".", "..", "a/b", "/tmp/x", "-x", "1x", "a b", "naïve", "x\n", &long,
    ] {
        let error = new(parent.path(), name, Language::C).unwrap_err();
        assert!(matches!(error, NewError::Name(_)), "{name:?}: {error}");
    }
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    assert!(new(parent.path(), "My_plugin-2", Language::C).is_ok());
}

#[test]
fn each_readme_starts_with_getting_the_tools() {
    for (language, command) in [
        (Language::Rust, "rustup target add wasm32-wasip2"),
        (Language::RustAsync, "rustup target add wasm32-wasip2"),
        (Language::Js, "npm ci"),
        (
            Language::Python,
            "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
        ),
        (
            Language::PythonAsync,
            "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
        ),
        (Language::C, "make tools"),
        (Language::Go, "make tools"),
    ] {
        assert_eq!(language.first_command(), command);
    }
}
