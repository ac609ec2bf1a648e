//! `batchgate simulate`: a controller against simulated servers, in virtual time.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use batchgate_policy::controller::{self, Config};
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::log::escape_line;
use crate::simulate::{
    Comparison, Scenario, Summary, Sweep, compare, random_scenarios, summarize, sweep,
};

/// Seeds of each scenario, unless told otherwise.
const SEEDS: u64 = 20;

/// Run a controller against simulated servers, in virtual time
///
/// Efficiency: items done, as a share of what the best fixed settings would have done in the same
/// time. Overdrive: batches in flight, as a multiple of the fewest workers that get 98 % of the
/// best rate. The same seeds give the same figures.
#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// Files of scenarios.
    #[arg(
        value_name = "SCENARIOS.json",
        required_unless_present_any = ["sweep", "random"],
        conflicts_with_all = ["sweep", "random"]
    )]
    scenarios: Vec<PathBuf>,
    /// So many random scenarios: curves, noise, changes and size limits that nothing here was
    /// fitted to; and how the controllers compare over all of them.
    #[arg(long, value_name = "COUNT", conflicts_with = "sweep",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    random: Option<u32>,
    /// Which random scenarios: another number, other ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "random")]
    random_seed: u64,
    /// The sweep of noise levels and thresholds behind the defaults of `history`.
    #[arg(long)]
    sweep: bool,
    /// The controller, by name; repeat to compare several.
    #[arg(long = "controller", value_name = "NAME", default_value = controller::DEFAULT)]
    controllers: Vec<String>,
    /// Seeds of each scenario, from 0 on [default: 20; for the sweep 5, and 20 for its last table].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: Option<u64>,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

/// Simulates. Every error is one of the scenarios or of a name.
pub fn run(args: SimulateArgs) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    match execute(&args, &mut out).and_then(|()| Ok(out.flush()?)) {
        // Who reads no further has seen enough.
        Err(error) if closed(&error) => Ok(ExitCode::SUCCESS),
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

fn closed(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn execute(args: &SimulateArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    for name in &args.controllers {
        controller::by_name(name, &Config::default())?;
    }
    // A controller's name was checked above, for any configuration.
    let build = |name: &str, config: &Config| {
        controller::by_name(name, config).expect("the name was checked")
    };
    if args.sweep {
        for name in &args.controllers {
            let bar = progress(Sweep::runs(args.seeds));
            let tables = sweep(|config| build(name, config), args.seeds, &mut || bar.inc(1));
            bar.finish_and_clear();
            write_sweep(name, &tables, args.json, out)?;
        }
        return Ok(());
    }

    let mut scenarios = match args.random {
        Some(count) => random_scenarios(args.random_seed, count),
        None => Vec::new(),
    };
    for path in &args.scenarios {
        scenarios.extend(Scenario::load(path)?);
    }
    let seeds = args.seeds.unwrap_or(SEEDS);
    let bar = progress(seeds * (scenarios.len() * args.controllers.len()) as u64);
    if !args.json {
        writeln!(out, "{HEADER}")?;
    }
    let mut summaries = Vec::new();
    for scenario in &scenarios {
        for name in &args.controllers {
            let config = &scenario.job.config;
            let build = || build(name, config);
            let summary = summarize(scenario, name, build, seeds, &mut || bar.inc(1))?;
            bar.suspend(|| write_summary(&summary, args.json, out))?;
            summaries.push(summary);
        }
    }
    bar.finish_and_clear();
    if args.random.is_some() {
        write_comparisons(&compare(&summaries, args.controllers.len()), args.json, out)?;
    }
    Ok(())
}

/// A bar on standard error; none where that is no terminal.
fn progress(runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(runs).with_style(style)
}

const HEADER: &str =
    "scenario                controller  seeds  efficiency (worst)  overdrive    calls  rejected";

fn write_summary(summary: &Summary, json: bool, out: &mut dyn Write) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, summary)?;
        writeln!(out)?;
    } else {
        writeln!(
            out,
            "{:22}  {:10}  {:5}  {:8.0} % ({:3.0} %)  {:9.2}  {:7}  {:8}",
            escape_line(&summary.scenario),
            summary.controller,
            summary.seeds,
            summary.efficiency_median * 100.0,
            summary.efficiency_worst * 100.0,
            summary.overdrive_median,
            summary.calls_median,
            summary.rejected_median,
        )?;
    }
    // A scenario may take a while, so each is shown as it is done.
    out.flush()
}

fn write_comparisons(all: &[Comparison], json: bool, out: &mut dyn Write) -> io::Result<()> {
    if !json {
        writeln!(
            out,
            "\ncontroller  scenarios  efficiency (worst tenth)  at least 85 %  not behind the first"
        )?;
    }
    for row in all {
        if json {
            serde_json::to_writer(&mut *out, row)?;
            writeln!(out)?;
            continue;
        }
        writeln!(
            out,
            "{:10}  {:9}  {:8.0} %      ({:3.0} %)  {:13}  {:20}",
            row.controller,
            row.scenarios,
            row.efficiency_median * 100.0,
            row.efficiency_tenth * 100.0,
            row.good,
            row.not_behind_first,
        )?;
    }
    Ok(())
}

fn write_sweep(name: &str, tables: &Sweep, json: bool, out: &mut dyn Write) -> io::Result<()> {
    if json {
        return write_sweep_lines(name, tables, out);
    }
    writeln!(
        out,
        "Sweep 1: knee at 6 workers, 2000 rounds x {} seeds, last 1000 rounds ({name})",
        tables.seeds
    )?;
    writeln!(
        out,
        "    sigma  worker_min_ratio  at_6   >=8   rel_throughput"
    )?;
    for row in &tables.knee {
        writeln!(
            out,
            "    {:5.1}  {:16.2}  {:3.0}%  {:3.0}%  {:13.1}%",
            row.sigma,
            row.worker_probe_min_ratio,
            row.at_6 * 100.0,
            row.at_least_8 * 100.0,
            row.relative_throughput * 100.0
        )?;
    }
    writeln!(
        out,
        "\nSweep 2: a server that does not change, workers fixed at 6: false cuts in 100 rounds"
    )?;
    writeln!(out, "    sigma  congestion_ratio  false_cuts")?;
    for row in &tables.false_cuts {
        writeln!(
            out,
            "    {:5.1}  {:16.1}  {:10.1}",
            row.sigma, row.congestion_ratio, row.per_100_rounds
        )?;
    }
    writeln!(
        out,
        "\nSweep 3: a flat top (from 4 workers on) and a curve without a knee, 2000 rounds x {} seeds, last 1000 rounds",
        tables.seeds
    )?;
    writeln!(
        out,
        "    sigma  worker_min_ratio  plateau_workers  concave_throughput"
    )?;
    for row in &tables.flat_top {
        writeln!(
            out,
            "    {:5.1}  {:16.2}  {:15.2}  {:17.1}%",
            row.sigma,
            row.worker_probe_min_ratio,
            row.plateau_workers,
            row.concave_throughput * 100.0
        )?;
    }
    writeln!(
        out,
        "\nSweep 4: batches completed before 6 workers, the knee, are first reached from 3; and before they are within one of it for 20 rounds"
    )?;
    writeln!(out, "    sigma  median    max  never  stays: median    max")?;
    for row in &tables.convergence {
        writeln!(
            out,
            "    {:5.1}  {:6.0}  {:5}  {:5}  {:13.0}  {:5}",
            row.sigma, row.median, row.most, row.never, row.stays_median, row.stays_most
        )?;
    }
    Ok(())
}

/// A line a row: the table's name, the controller's, and the row's own fields.
fn write_sweep_lines(name: &str, tables: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    #[derive(serde::Serialize)]
    struct Line<'a, T> {
        sweep: &'a str,
        controller: &'a str,
        #[serde(flatten)]
        row: &'a T,
    }
    fn lines<T: serde::Serialize>(
        sweep: &str,
        controller: &str,
        rows: &[T],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for row in rows {
            serde_json::to_writer(
                &mut *out,
                &Line {
                    sweep,
                    controller,
                    row,
                },
            )?;
            writeln!(out)?;
        }
        Ok(())
    }
    lines("knee", name, &tables.knee, out)?;
    lines("false_cuts", name, &tables.false_cuts, out)?;
    lines("flat_top", name, &tables.flat_top, out)?;
    lines("convergence", name, &tables.convergence, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn output(line: &[&str]) -> Result<String, String> {
        let cli = Cli::try_parse_from([&["simulate"], line].concat())
            .map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        execute(&cli.args, &mut out).map_err(|error| format!("{error:#}"))?;
        Ok(String::from_utf8(out).expect("text"))
    }

    const OPEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/open.json");

    #[test]
    fn each_scenario_gives_a_line() {
        let lines = output(&[OPEN, "--seeds", "2", "--json"]).expect("simulated");
        let lines: Vec<serde_json::Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 11);
        let fields: Vec<&str> = lines[0]
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            fields,
            [
                "calls_median",
                "controller",
                "efficiency_median",
                "efficiency_worst",
                "overdrive_median",
                "rejected_median",
                "scenario",
                "seeds",
            ]
        );
        assert_eq!(
            (&lines[0]["scenario"], &lines[0]["controller"]),
            (&"knee6-s0.1-short".into(), &controller::DEFAULT.into())
        );
        assert_eq!(
            (&lines[0]["seeds"], &lines[0]["calls_median"]),
            (&2.into(), &500.0.into())
        );

        let text = output(&[OPEN, OPEN, "--seeds", "1"]).expect("simulated");
        assert_eq!(text.lines().count(), 1 + 2 * 11, "{text}");
        assert!(text.contains("\nknee6-s0.1-short "), "{text}");
    }

    #[test]
    fn random_scenarios_are_compared() {
        let line = [
            "--random",
            "3",
            "--controller",
            "history",
            "--controller",
            "curve",
        ];
        let text = |more: &[&str]| output(&[&line, more].concat()).expect("simulated");
        let lines: Vec<String> = text(&["--seeds", "1", "--json"])
            .lines()
            .map(str::to_owned)
            .collect();
        assert_eq!(lines.len(), 3 * 2 + 2, "{lines:?}");
        let last: serde_json::Value = serde_json::from_str(&lines[7]).expect("JSON");
        assert_eq!(
            (&last["controller"], &last["scenarios"]),
            (&"curve".into(), &3.into())
        );
        let other = text(&["--seeds", "1", "--json", "--random-seed", "2"]);
        assert!(!other.contains(&lines[0]), "another seed, other scenarios");
        assert!(text(&["--seeds", "1"]).contains("\ncurve               3 "));
    }

    #[test]
    fn the_sweep_gives_four_tables_of_rows() {
        let text = output(&["--sweep", "--seeds", "2"]).expect("swept");
        let rows = |text: &str| {
            text.lines()
                .filter(|line| line.starts_with("      0."))
                .count()
        };
        let tables: Vec<usize> = text.split("\n\n").map(rows).collect();
        assert_eq!(tables, [16, 12, 9, 4], "{text}");
        let lines = output(&["--sweep", "--seeds", "2", "--json"]).expect("swept");
        assert_eq!(lines.lines().count(), 16 + 12 + 9 + 4);
        assert!(
            lines.starts_with(r#"{"sweep":"knee","controller":"curve","sigma":0.1,"#),
            "{lines}"
        );
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        for (line, words) in [
            (
                vec![OPEN, "--controller", "x"],
                "no controller is called \"x\"",
            ),
            (vec!["/no/such.json"], "/no/such.json: cannot be read"),
            (
                vec![OPEN, "--seeds", "0"],
                "error: invalid value '0' for '--seeds <K>'",
            ),
            (vec![], "error: the following required arguments"),
            (vec![OPEN, "--sweep"], "error: the argument"),
        ] {
            let error = output(&line).expect_err("refused");
            assert!(error.starts_with(words), "{line:?}: {error}");
        }
    }
}
