//! Jobs that run together: loads them, and sees that none writes over another's files.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, Problem};
use super::job::Job;
use super::overrides::Overrides;
use crate::source::{Format, Input};

/// The jobs of these files, in their order, with the options applied to each; without files
/// the one job that the options describe. All problems of all files are reported together.
pub fn load_jobs(paths: &[PathBuf], overrides: &Overrides) -> Result<Vec<Job>, ConfigError> {
    let mut problems = Vec::new();
    let mut jobs = Vec::new();
    let loaded = match paths {
        [] => vec![Job::from_options_only(overrides)],
        [path] => vec![Job::load(path, overrides)],
        several => {
            let message =
                "makes no sense for several jobs; set it in the job files, or run one job";
            problems.extend(
                overrides
                    .for_one_job()
                    .map(|option| Problem::at(option, message)),
            );
            several
                .iter()
                .map(|path| Job::load(path, overrides))
                .collect()
        }
    };
    for result in loaded {
        match result {
            Ok(job) => jobs.push(job),
            Err(error) => problems.extend(error.into_problems()),
        }
    }
    // An option that is wrong is wrong for each job, and said once.
    let mut said = Vec::new();
    for problem in problems {
        if !said.contains(&problem) {
            said.push(problem);
        }
    }
    if said.is_empty() {
        clashes(&jobs.iter().collect::<Vec<_>>(), &mut said);
    }
    ConfigError::unless_empty(said)?;
    Ok(jobs)
}

/// Whether a job can run beside others: that neither writes over the other's files.
pub fn fits_beside(job: &Job, others: &[&Job]) -> Result<(), ConfigError> {
    let mut problems = Vec::new();
    let mut jobs = others.to_vec();
    jobs.push(job);
    clashes(&jobs, &mut problems);
    ConfigError::unless_empty(problems)
}

/// A file that a job uses.
struct Use<'a> {
    job: &'a Job,
    table: &'static str,
    key: &'static str,
    /// As far as it can be told without asking the file system.
    path: PathBuf,
    /// Written by this job and nobody else.
    exclusive: bool,
}

fn clashes(jobs: &[&Job], problems: &mut Vec<Problem>) {
    let mut seen: Vec<Use<'_>> = Vec::new();
    for used in jobs.iter().flat_map(|job| uses(job)) {
        if let Some(other) = seen.iter().find(|other| clash(other, &used)) {
            let at = other.job.filled.origin(other.table, other.key);
            let at = at.map(|at| format!(" ({at})")).unwrap_or_default();
            let message = format!("names the same file as {}{at}; choose another", other.key);
            problems.push(used.job.filled.problem(used.table, &[used.key], message));
        }
        seen.push(used);
    }
    let stdin = jobs.iter().filter(|job| job.top.input == Input::Stdin);
    for job in stdin.skip(1) {
        let message = "is standard input, which another job reads; give one of them a file";
        problems.push(job.filled.problem("", &["input"], message.to_owned()));
    }
}

fn clash(a: &Use<'_>, b: &Use<'_>) -> bool {
    // A run over its own failed items may write those that fail again to the same file.
    let again = |a: &Use<'_>, b: &Use<'_>| a.key == "input" && b.key == "failed_items";
    let same_job = std::ptr::eq(a.job, b.job) && a.job.top.source_config().format == Format::Failed;
    (a.exclusive || b.exclusive)
        && a.path == b.path
        && !a.path.starts_with("/dev")
        && !(same_job && (again(a, b) || again(b, a)))
}

fn uses(job: &Job) -> Vec<Use<'_>> {
    let input = match &job.top.input {
        Input::Path(path) => Some(path),
        Input::Stdin => None,
    };
    let file = job.filled.file().map(Path::to_owned);
    let files: [(&'static str, &'static str, Option<&PathBuf>, bool); 13] = [
        ("", "the job file", file.as_ref(), false),
        ("", "component", Some(&job.top.component), false),
        ("", "input", input, false),
        (
            "adaptive",
            "tuner_memory",
            job.adaptive.tuner_memory.as_ref(),
            false,
        ),
        (
            "rate_limit",
            "state_file",
            job.rate_limit.state_file.as_ref(),
            false,
        ),
        ("control", "db", job.control.db.as_ref(), false),
        ("usage", "db", job.usage.db.as_ref(), false),
        ("sandbox", "ca_file", job.sandbox.ca_file.as_ref(), false),
        ("", "rejects_csv", job.top.rejects_csv.as_ref(), true),
        ("", "summary", job.top.summary.as_ref(), true),
        ("pool", "failures_csv", job.pool.failures_csv.as_ref(), true),
        ("pool", "failed_items", job.pool.failed_items.as_ref(), true),
        ("journal", "db", job.journal.db.as_ref(), true),
    ];
    let given = files
        .into_iter()
        .filter_map(|(table, key, path, exclusive)| {
            path.map(|path| Use {
                job,
                table,
                key,
                path: absolute(path),
                exclusive,
            })
        });
    given.collect()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
