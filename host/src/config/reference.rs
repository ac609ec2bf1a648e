//! The reference of the job file, from the definitions.

use std::fmt::Write;

use super::job::chapters;
use super::kind::Shape;
use super::table::Definition;

const INTRODUCTION: &str = "\
This part is generated from the definitions in `host/src/config`, and a test keeps it true. To
write it anew: `UPDATE_REFERENCE=1 cargo test --release -p batchgate the_reference`.

A job file is TOML, in UTF-8. Only `component` and `input` are required. An unknown key or table
is an error that names the nearest known one, a value that does not fit is an error that names the
line and the range, and all errors of a file are reported at once.

- Every key is a command-line option of `batchgate run` as well, with the same range. Options
  beat the file. A list is given by repeating its option, which replaces the file's list; a single
  empty value empties it. A switch is `--option` or `--option=false`.
- With several job files the options apply to each of them, except those marked *one job*, which
  are refused.
- Paths in a file are relative to the file's folder, those on the command line to the current
  folder.
- `–` means none. Durations are seconds. In sizes, `kB`, `MB`, `GB` and `TB` count by 1000, `KiB`,
  `MiB`, `GiB` and `TiB` by 1024.
- A start (`workers`, `batch_size`) outside its bounds is moved into them; a lower bound above its
  upper one is an error.
";

const HOST_FILE: &str = "
### The host file

`batchgate run --budget HOST.toml` and `batchgate host --budget HOST.toml` name a file of what
jobs share. It may have `[budget]` and `[control]`, with the keys above, and for each shared
limiter a table `[limiters.NAME]` with the keys of `[rate_limit]` but `name`. A job takes such a
limiter with `name = \"NAME\"` in its `[rate_limit]`. What these keys say of waits,
refusals and HTTP holds for each such job that does not set the same key in its own `[rate_limit]`; the caps,
`scope`, the day and the cooldown's lengths belong to the limiter alone.

```toml
[budget]
max = 16

[limiters.crm]
max_per_sec = 5
```
";

/// The reference, as it stands in `README.md`: the sections below a heading of the second level.
pub fn job_file_reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for chapter in chapters() {
        let title = match chapter.table {
            "" => "Above all tables".to_owned(),
            table => format!("`[{table}]`"),
        };
        put(
            &mut text,
            format_args!("\n### {title}\n\n{}\n", chapter.about),
        );
        if chapter.definitions.is_empty() {
            put(
                &mut text,
                format_args!("On the command line: `--config-set KEY=VALUE`, repeatable.\n"),
            );
            continue;
        }
        text.push_str("\n| Key = default | Meaning | Allowed | Option |\n|---|---|---|---|\n");
        for definition in &chapter.definitions {
            row(&mut text, definition);
        }
    }
    text.push_str(HOST_FILE);
    text
}

fn row(text: &mut String, definition: &Definition) {
    let Definition { key, doc, .. } = definition;
    let default = match definition.default.as_str() {
        none @ ("–" | "required") => format!("`{key}` {none}"),
        default => format!("`{key} = {default}`"),
    };
    let mut option = format!("`--{}`", definition.option());
    match definition.shape {
        Shape::Many => option.push_str(", repeatable"),
        Shape::Switch | Shape::One => {}
    }
    if definition.one_job {
        option.push_str(", *one job*");
    }
    let cells = [default.as_str(), doc, &definition.expects, &option];
    put(
        text,
        format_args!(
            "| {} |\n",
            cells.map(|cell| cell.replace('|', "\\|")).join(" | ")
        ),
    );
}

fn put(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a String takes all text");
}
