//! The command line of `batchgate run`: a few flags of its own, and every option of the job
//! file, made from the same definitions.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::config::{Chapter, ConfigError, Definition, Job, Overrides, Shape, chapters, load_jobs};
use crate::report::log::LogFormat;

/// Sends the items of each job to its component in batches, and tunes how many at once.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Job files. None is needed if --component and --input are given. With several, all are
    /// checked before the first starts, and the options below apply to each of them.
    #[arg(value_name = "JOB.toml")]
    pub jobs: Vec<PathBuf>,
    /// Keep workers and batch size as they are configured, without tuning.
    #[arg(long)]
    pub fixed: bool,
    /// Check the job, the component and the input's header, and send nothing.
    #[arg(long, conflicts_with = "dry_run")]
    pub check: bool,
    /// Read the whole input and send nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Stop after so many items of the input.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// The host file with what the jobs share: a budget of calls in flight, and limiters.
    #[arg(long, value_name = "HOST.toml")]
    pub budget: Option<PathBuf>,
    /// Print one summary object a job on standard output, a line each, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// How log lines, on standard error, are written.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Which log lines are written: off, error, warn, info, debug or trace; by default what
    /// the variable BATCHGATE_LOG says, else info.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Resume from the journal although the input, the component or the key setting changed.
    #[arg(long)]
    pub accept_changes: bool,
    /// Neither read nor write compiled components.
    #[arg(long, conflicts_with = "cache_dir")]
    pub no_cache: bool,
    /// Where compiled components are kept; by default in the user's cache folder.
    #[arg(long, value_name = "FOLDER")]
    pub cache_dir: Option<PathBuf>,
    /// Every option of the job file.
    #[command(flatten)]
    pub overrides: Overrides,
}

impl RunOptions {
    /// The jobs, in the order given; without job files the one that the options describe.
    pub fn load_jobs(&self) -> Result<Vec<Job>, ConfigError> {
        load_jobs(&self.jobs, &self.overrides)
    }
}

const CONFIG_SET: &str = "config-set";

impl Args for Overrides {
    fn augment_args(command: Command) -> Command {
        let command = chapters().into_iter().fold(command, with_chapter);
        command
            .after_help("Every key of the job file is an option as well: see --help.")
            .after_long_help("Options beat the job file. Several job files get the same options.")
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Overrides {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut overrides = Self::default();
        overrides.update_from_arg_matches(matches)?;
        Ok(overrides)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for definition in chapters()
            .into_iter()
            .flat_map(|chapter| chapter.definitions)
        {
            let Some(values) = matches.get_many::<OsString>(&id(&definition)) else {
                continue;
            };
            let values: Vec<OsString> = values.cloned().collect();
            match (definition.shape, values.as_slice()) {
                (Shape::Many, values) => self.set_many(&definition, values),
                (_, [.., last]) => self.set(&definition, last.clone()),
                (_, []) => {}
            }
        }
        for pair in matches.get_many::<String>(CONFIG_SET).into_iter().flatten() {
            match pair.split_once('=') {
                Some((key, value)) if !key.is_empty() => self.set_config(key, value.into()),
                // The text is not quoted: it may hold a secret.
                _ => {
                    let message = "--config-set needs KEY=VALUE\n";
                    return Err(clap::Error::raw(ErrorKind::ValueValidation, message));
                }
            }
        }
        Ok(())
    }
}

fn with_chapter(command: Command, chapter: Chapter) -> Command {
    let heading = match chapter.table {
        "" => "Job".to_owned(),
        table => format!("[{table}]"),
    };
    if chapter.table == "config" {
        let config_set = Arg::new(CONFIG_SET)
            .long(CONFIG_SET)
            .value_name("KEY=VALUE")
            .help("Give the component a value, read through `wasi:config`. Repeatable. Other users of the machine can see it; take secrets from the environment, in a job file.")
            .help_heading(heading)
            .hide_short_help(true)
            .action(ArgAction::Append);
        return command.arg(config_set);
    }
    chapter
        .definitions
        .iter()
        .fold(command, |command, definition| {
            command.arg(argument(definition).help_heading(heading.clone()))
        })
}

fn argument(definition: &Definition) -> Arg {
    // What one needs to run without a job file stands in the short help.
    let essential = matches!(
        definition.key,
        "component" | "input" | "workers" | "batch_size" | "max_workers"
    );
    let argument = Arg::new(id(definition))
        .long(definition.option())
        .value_name(definition.placeholder)
        .value_parser(ValueParser::os_string())
        .allow_negative_numbers(true)
        .hide_short_help(!essential)
        .help(definition.doc)
        .long_help(long_help(definition));
    match definition.shape {
        Shape::One => argument.action(ArgAction::Set),
        Shape::Many => argument.action(ArgAction::Append),
        Shape::Switch => argument
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
    }
}

fn long_help(definition: &Definition) -> String {
    let default = match definition.default.as_str() {
        "–" => "default: none",
        "required" => "required",
        default => &format!("default: {default}"),
    };
    let repeatable = if definition.shape == Shape::Many {
        "; repeatable"
    } else {
        ""
    };
    format!(
        "{} [{default}; {}{repeatable}]",
        definition.doc, definition.expects
    )
}

/// Unlike the option's name, sure to be no other argument's.
fn id(definition: &Definition) -> String {
    format!("{}.{}", definition.table, definition.key)
}

#[cfg(test)]
mod tests;
