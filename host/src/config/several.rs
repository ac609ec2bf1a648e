//! Jobs that run together: loads them, and sees that none writes over another's files.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, Problem};
use super::filled::Filled;
use super::host_file::HostFile;
use super::job::Job;
use super::origin::one_line;
use super::overrides::Overrides;
use crate::link;
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

/// Whether a job can run under a host file: that it writes over nothing of it.
pub fn fits_host_file(job: &Job, path: &Path, host: &HostFile) -> Result<(), ConfigError> {
    let mut problems = Vec::new();
    let used = host_uses(path, host).into_iter().chain(uses(job));
    overlaps(used, &mut problems);
    ConfigError::unless_empty(problems)
}

/// Whether a job can run in the host of a folder: that nothing it writes would be taken for a job file of it.
pub fn fits_folder(job: &Job, folder: &Path) -> Result<(), ConfigError> {
    let inside = link::end_of(folder);
    let taken = |used: &Use<'_>| {
        used.written
            && used.path.parent() == Some(&inside)
            && used.path.extension().is_some_and(|end| end == "toml")
    };
    let problems = uses(job).into_iter().filter(taken).map(|used| {
        let message = format!(
            "is in the folder of job files, {}, and would overwrite or become one; choose another",
            one_line(folder)
        );
        job.filled.problem(used.table, &[used.key], message)
    });
    ConfigError::unless_empty(problems.collect())
}

/// A file that a job or the host file uses.
struct Use<'a> {
    /// None of the host file's.
    job: Option<&'a Job>,
    filled: &'a Filled,
    table: &'a str,
    key: &'static str,
    /// The same however it is spelled.
    path: PathBuf,
    written: bool,
    /// Written by this job and nobody else.
    exclusive: bool,
}

impl Use<'_> {
    fn is_given(&self) -> bool {
        self.filled.given(self.table, self.key)
    }

    /// For a message about another.
    fn name(&self) -> String {
        match self.filled.origin(self.table, self.key) {
            Some(at) => format!("{} ({at})", self.key),
            None => format!("{} ({})", self.key, one_line(&self.path)),
        }
    }
}

fn clashes(jobs: &[&Job], problems: &mut Vec<Problem>) {
    overlaps(jobs.iter().flat_map(|job| uses(job)), problems);
    let stdin = jobs.iter().filter(|job| job.top.input == Input::Stdin);
    for job in stdin.skip(1) {
        let message = "is standard input, which another job reads; give one of them a file";
        problems.push(job.filled.problem("", &["input"], message.to_owned()));
    }
}

fn overlaps<'a>(used: impl Iterator<Item = Use<'a>>, problems: &mut Vec<Problem>) {
    let mut seen: Vec<Use<'_>> = Vec::new();
    for used in used {
        if let Some(other) = seen.iter().find(|other| clash(other, &used)) {
            // The line shown is one where another file can be named.
            let (blamed, other) = match used.is_given() {
                true => (&used, other),
                false => (other, &used),
            };
            let message = format!("names the same file as {}; choose another", other.name());
            let problem = blamed.filled.problem(blamed.table, &[blamed.key], message);
            problems.push(problem);
        }
        seen.push(used);
    }
}

fn clash(a: &Use<'_>, b: &Use<'_>) -> bool {
    // A run over its own failed items may write those that fail again to the same file.
    let again = |a: &Use<'_>, b: &Use<'_>| a.key == "input" && b.key == "failed_items";
    let same_job = a
        .job
        .zip(b.job)
        .is_some_and(|(a, b)| std::ptr::eq(a, b) && a.top.source_config().format == Format::Failed);
    // Only the memory of another job may be the same file as one.
    let apart = a.key != b.key && [a.key, b.key].contains(&"tuner_memory");
    (a.exclusive || b.exclusive || apart)
        && a.path == b.path
        && !a.path.starts_with("/dev")
        && !(same_job && (again(a, b) || again(b, a)))
}

fn uses(job: &Job) -> Vec<Use<'_>> {
    /// Who else may use it.
    #[derive(PartialEq)]
    enum Kind {
        Read,
        Shared,
        Own,
    }
    use Kind::{Own, Read, Shared};
    let input = match &job.top.input {
        Input::Path(path) => Some(path),
        Input::Stdin => None,
    };
    let file = job.filled.file().map(Path::to_owned);
    let files: [(&'static str, &'static str, Option<&PathBuf>, Kind); 13] = [
        ("", "the job file", file.as_ref(), Read),
        ("", "component", Some(&job.top.component), Read),
        ("", "input", input, Read),
        (
            "adaptive",
            "tuner_memory",
            job.adaptive.tuner_memory.as_ref(),
            Shared,
        ),
        (
            "rate_limit",
            "state_file",
            job.rate_limit.state_file.as_ref(),
            Shared,
        ),
        ("control", "db", job.control.db.as_ref(), Shared),
        ("usage", "db", job.usage.db.as_ref(), Shared),
        ("sandbox", "ca_file", job.sandbox.ca_file.as_ref(), Read),
        ("", "rejects_csv", job.top.rejects_csv.as_ref(), Own),
        ("", "summary", job.top.summary.as_ref(), Own),
        ("pool", "failures_csv", job.pool.failures_csv.as_ref(), Own),
        ("pool", "failed_items", job.pool.failed_items.as_ref(), Own),
        ("journal", "db", job.journal.db.as_ref(), Own),
    ];
    let given = files.into_iter().filter_map(|(table, key, path, kind)| {
        path.map(|path| Use {
            job: Some(job),
            filled: &job.filled,
            table,
            key,
            path: resolved(path),
            written: kind != Read,
            exclusive: kind == Own,
        })
    });
    given.collect()
}

fn host_uses<'a>(path: &Path, host: &'a HostFile) -> Vec<Use<'a>> {
    let used = |table, key, path: &Path, written| Use {
        job: None,
        filled: &host.filled,
        table,
        key,
        path: resolved(path),
        written,
        exclusive: false,
    };
    let db = host.control.db.as_deref();
    let limiters = host.limiters.values();
    let state_files = limiters.filter_map(|limiter| limiter.state_file.as_deref());
    std::iter::once(used("", "the host file", path, false))
        .chain(db.map(|db| used("control", "db", db, true)))
        .chain(state_files.map(|path| used("limiters", "state_file", path, true)))
        .collect()
}

/// A device is who names it: where `/dev/stdout` leads is another thing for each.
fn resolved(path: &Path) -> PathBuf {
    match path.starts_with("/dev") {
        true => path.to_owned(),
        false => link::end_of(path),
    }
}
