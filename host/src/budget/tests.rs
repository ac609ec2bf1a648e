use super::sensors::tests::Machine;
use super::*;
use batchgate_policy::budget as policy;
use std::path::PathBuf;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn config(min: u32, desired: u32, max: u32) -> Config {
    Config {
        policy: policy::Config {
            levels: Levels { min, desired, max },
            max_tasks_per_minute: None,
            step: 0.05,
            current: 5 * SECOND,
            history: 30 * SECOND,
            limits: EachSignal {
                cpu: 0.4,
                memory: 0.2,
                lag: 0.6,
                breaches: 0.3,
            },
        },
        scale_every: 10 * SECOND,
        cpu_threshold: 0.95,
        memory_threshold: 0.9,
        system_memory_threshold: 0.97,
        lag_threshold: Duration::from_millis(50),
        breach_threshold: 1,
        retuning: None,
    }
}

/// A budget of a machine whose files a test writes.
fn budget(config: Config) -> (ScaledBudget, Machine) {
    let machine = Machine::new();
    let root = machine.root.path().to_owned();
    let sensors = move || sensors::Sensors::under(&root, None);
    (ScaledBudget::new(config, sensors), machine)
}

fn member(budget: &ScaledBudget, label: &str) -> Arc<Member> {
    let consumer = Consumer::new(label, Share::default());
    Member::join(budget.borrow(), consumer).expect("joins")
}

/// Starts all that it may.
fn fill(member: &Arc<Member>, workers: u32) -> Vec<Slot> {
    let start = |held: &u32| member.try_start(workers - held, None, || true).ok();
    let mut slots = Vec::new();
    while let Some(slot) = start(&(slots.len() as u32)) {
        slots.push(slot);
    }
    slots
}

/// A machine that is busy, or not, for so many seconds.
async fn seconds(machine: &Machine, ticks: &mut (u64, u64), seconds: u64, busy: bool) {
    for _ in 0..seconds {
        match busy {
            true => ticks.0 += 400,
            false => ticks.1 += 400,
        }
        machine.processors(ticks.0, ticks.1);
        tokio::time::sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_given_back_once_however_it_ends() {
    let (budget, _machine) = budget(config(1, 2, 2));
    budget.start().await.expect("starts");
    let job = member(&budget, "job");
    let slots = fill(&job, 9);
    assert_eq!((slots.len(), budget.borrow().view().in_use), (2, 2));
    drop(slots);
    assert_eq!(budget.borrow().view().in_use, 0);
    // A task that panics, and one that is abandoned.
    let slot = job.slot().await.expect("free");
    let panicked = tokio::spawn(async move {
        let _held = slot;
        panic!("as a call may");
    });
    assert!(panicked.await.is_err());
    let slot = job.slot().await.expect("free");
    let abandoned = tokio::spawn(async move {
        let _held = slot;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    abandoned.abort();
    let _ = abandoned.await;
    assert_eq!(budget.borrow().view().in_use, 0);
    // One call's slot is the next one's.
    let slot = job.slot().await.expect("free");
    let next = job.try_start(1, Some(slot), || true).expect("its own");
    assert_eq!(budget.borrow().view().in_use, 1);
    assert_eq!(
        job.try_start(1, Some(next), || false).err(),
        Some(Refusal::Further)
    );
    assert_eq!(budget.borrow().view().in_use, 0);
    // Another's slot is no exchange, and it is given back all the same.
    let other = member(&budget, "other");
    let slot = other.slot().await.expect("free");
    let _own = job.try_start(1, Some(slot), || true).expect("free");
    assert_eq!(budget.borrow().view().in_use, 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_joiner_waits_for_a_slot_and_gets_the_next() {
    let (budget, _machine) = budget(config(1, 4, 4));
    budget.start().await.expect("starts");
    let first = member(&budget, "first");
    let mut slots = fill(&first, 9);
    let late = member(&budget, "late");
    let waiting = tokio::spawn({
        let late = late.clone();
        async move { late.slot().await }
    });
    tokio::time::sleep(SECOND).await;
    assert!(!waiting.is_finished());
    let mut woken = first.woken();
    let ended = slots.pop();
    let refused = first.try_start(6, ended, || true).err();
    assert!(matches!(&refused, Some(Refusal::Held { reason, .. }) if reason == "budget share"));
    let slot = waiting.await.expect("no panic").expect("a slot");
    let view = budget.borrow().view();
    let held: Vec<_> = view
        .consumers
        .iter()
        .map(|c| (c.label.as_str(), c.in_flight))
        .collect();
    assert_eq!(held, [("first", 3), ("late", 1)]);
    // It leaves, and what it had is the first one's again.
    drop((slot, late));
    woken.changed().await.expect("woken");
    assert_eq!((slots.len(), fill(&first, 6).len()), (3, 1));
    assert_eq!(budget.borrow().view().consumers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn starts_stops_and_starts_again_by_its_owner_alone() {
    let (budget, machine) = budget(config(1, 4, 4));
    let job = member(&budget, "job");
    assert_eq!(
        job.try_start(1, None, || true).err(),
        Some(Refusal::Stopped)
    );
    assert!(Refusal::Stopped.to_string().contains("stopped"));
    budget.start().await.expect("starts");
    budget.start().await.expect("as before");
    // One job's end leaves the sensors running.
    drop(job);
    let mut ticks = (0, 0);
    seconds(&machine, &mut ticks, 8, true).await;
    let view = budget.borrow().view();
    assert_eq!(
        (view.state.as_str(), view.overloaded, view.slots),
        ("running", true, 1)
    );
    assert!(
        view.signals.iter().all(|signal| signal.current.is_some()),
        "{view:?}"
    );

    let job = member(&budget, "job");
    let mut woken = job.woken();
    let slot = job.slot().await.expect("min is held");
    let stopped = budget.borrow();
    budget.stop().await;
    budget.stop().await;
    woken.changed().await.expect("whoever waits is told");
    assert_eq!(job.slot().await.err(), Some(Refusal::Stopped));
    assert_eq!(
        (stopped.view().state.as_str(), stopped.view().in_use),
        ("stopped", 1)
    );
    // What was measured before says nothing about now.
    budget.start().await.expect("starts again");
    assert!(!stopped.view().overloaded);
    assert_eq!(fill(&job, 9).len(), 3);
    drop(slot);
    drop(budget);
    assert_eq!(job.slot().await.err(), Some(Refusal::Stopped));
}

#[tokio::test(start_paused = true)]
async fn load_makes_it_fall_to_min_and_rise_again() {
    let (budget, machine) = budget(config(2, 10, 100));
    machine.v2("50000 100000\n", "536870912\n");
    machine.own(1 << 20, Some(1 << 20));
    budget.start().await.expect("starts");
    let job = member(&budget, "job");
    let mut slots = fill(&job, 50);
    assert_eq!(slots.len(), 10);
    let mut used = 0;
    let mut busy = async |percent: u64, seconds: u64| {
        for _ in 0..seconds {
            used += 5_000 * percent;
            machine.v2_use(used, 0, 0);
            tokio::time::sleep(SECOND).await;
        }
    };
    // The machine idles, and half a core is used up.
    busy(100, 35).await;
    let view = budget.borrow().view();
    assert!(view.overloaded && view.desired < 10, "{view:?}");
    assert_eq!(view.slots, 2);
    assert!(
        view.verdict
            .contains("overloaded: cpu 100% of the time (limit 40%)")
    );
    // Nothing is taken back, min is held, and not more.
    slots.truncate(2);
    assert!(job.try_start(1, None, || true).is_err());
    slots.truncate(1);
    slots.extend(fill(&job, 50));
    assert_eq!(slots.len(), 2);
    busy(10, 60).await;
    slots.extend(fill(&job, 48));
    let calm = budget.borrow().view();
    assert!(
        !calm.overloaded && slots.len() as u32 == calm.desired,
        "{calm:?}"
    );
    busy(10, 60).await;
    slots.extend(fill(&job, 48));
    assert!(budget.borrow().view().desired > calm.desired);
}

#[tokio::test(start_paused = true)]
async fn memory_lag_and_breaches_are_signals_too() {
    let (budget, machine) = budget(config(1, 10, 100));
    machine.v2("max\n", "536870912\n");
    machine.own(1 << 20, Some(1 << 20));
    budget.start().await.expect("starts");
    let job = member(&budget, "job");
    let verdict = || budget.borrow().view().verdict;
    let mut ticks = (0, 0);
    seconds(&machine, &mut ticks, 10, false).await;
    assert_eq!(verdict(), "not overloaded");
    machine.v2_use(0, 512 << 20, 0);
    seconds(&machine, &mut ticks, 6, false).await;
    assert_eq!(verdict(), "overloaded: memory 100% of the time (limit 20%)");
    machine.v2_use(0, 0, 0);
    seconds(&machine, &mut ticks, 6, false).await;
    for _ in 0..6 {
        job.breach();
        seconds(&machine, &mut ticks, 1, false).await;
    }
    assert_eq!(verdict(), "not overloaded", "one a second is allowed");
    for _ in 0..6 {
        job.breach();
        job.breach();
        seconds(&machine, &mut ticks, 1, false).await;
    }
    assert!(
        verdict().starts_with("overloaded: breaches 100% of the time"),
        "{}",
        verdict()
    );
    seconds(&machine, &mut ticks, 6, false).await;
    // The time jumps while the runtime cannot run: what a blocked thread does to timers.
    for _ in 0..12 {
        tokio::time::advance(2 * SECOND).await;
        tokio::task::yield_now().await;
    }
    assert!(
        verdict().contains("runtime lag 100% of the time (limit 60%)"),
        "{}",
        verdict()
    );
}

#[tokio::test(start_paused = true)]
async fn a_sensor_that_fails_is_unknown_and_holds_growth_and_that_is_said_once() {
    let log = Lines::default();
    let _log = log.listen();
    let (budget, machine) = budget(config(1, 10, 100));
    budget.start().await.expect("starts");
    let job = member(&budget, "job");
    let slots = fill(&job, 50);
    let meminfo = machine.root.path().join("proc/meminfo");
    let whole = std::fs::read(&meminfo).expect("read");
    std::fs::remove_file(&meminfo).expect("removed");
    let mut ticks = (0, 0);
    seconds(&machine, &mut ticks, 35, false).await;
    let view = budget.borrow().view();
    assert_eq!(
        (view.desired, view.verdict.as_str()),
        (10, "not overloaded; unknown: memory")
    );
    std::fs::write(&meminfo, whole).expect("written");
    seconds(&machine, &mut ticks, 10, false).await;
    let words = [
        "WARN budget: memory cannot be measured",
        "memory can be measured again",
    ];
    assert_eq!(words.map(|word| log.with(word).len()), [1, 1]);
    assert!(budget.borrow().view().desired > 10 && slots.len() == 10);
}

#[tokio::test(start_paused = true)]
async fn a_sensor_that_is_stuck_is_unknown_and_that_is_said_once() {
    let log = Lines::default();
    let _log = log.listen();
    let (budget, machine) = budget(config(1, 10, 100));
    // Whoever opens this waits for someone to write to it.
    let stat = machine.root.path().join("proc/stat");
    std::fs::remove_file(&stat).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&stat).status();
    assert!(made.expect("mkfifo runs").success());
    budget.start().await.expect("starts");
    let job = member(&budget, "job");
    let slots = fill(&job, 50);
    // Time does not pass by itself while a thread is blocked.
    for _ in 0..70 {
        tokio::time::advance(SECOND / 2).await;
        tokio::task::yield_now().await;
    }
    let view = budget.borrow().view();
    assert_eq!((view.desired, slots.len()), (10, 10));
    assert!(
        view.verdict.ends_with("unknown: cpu, memory"),
        "{}",
        view.verdict
    );
    std::fs::write(&stat, "").expect("written");
    for signal in ["cpu", "memory"] {
        let said = log.with(&format!("WARN budget: {signal} has not been measured"));
        assert_eq!(said.len(), 1, "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn how_it_stands_is_said_at_a_change_and_at_most_once_a_minute() {
    let log = Lines::default();
    let _log = log.listen();
    let (budget, machine) = budget(config(1, 5, 5));
    budget.start().await.expect("starts");
    let job = member(&budget, "job");
    let _slots = fill(&job, 3);
    let mut ticks = (0, 0);
    // Signals come to be known within the first seconds.
    seconds(&machine, &mut ticks, 10, false).await;
    let begun = log.with("DEBUG budget: in use").len();
    seconds(&machine, &mut ticks, 170, false).await;
    let calm = log.with("DEBUG budget: in use");
    assert!((2..=3).contains(&(calm.len() - begun)), "{calm:?}");
    assert!(
        calm[begun..]
            .iter()
            .all(|line| line.ends_with("budget: in use 3, desired 5 of 1..5, not overloaded")),
        "{calm:?}"
    );
    seconds(&machine, &mut ticks, 5, true).await;
    seconds(&machine, &mut ticks, 5, false).await;
    let said = log.with("DEBUG budget: in use").split_off(calm.len());
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains(", overloaded: cpu ") && said[0].ends_with("% of the time (limit 40%)")
    );
    assert!(said[1].ends_with(", not overloaded"));
}

/// What is logged on this thread, without the time.
#[derive(Clone, Default)]
struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || lines.clone())
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn with(&self, words: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().expect("no panic").clone()).expect("UTF-8");
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.filter(|line| line.contains(words)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_waited_for() {
    let mut config = config(1, 10, 10);
    config.policy.max_tasks_per_minute = Some(3);
    let (budget, _machine) = budget(config);
    budget.start().await.expect("starts");
    let job = member(&budget, "job");
    let from = Instant::now();
    for _ in 0..4 {
        drop(job.slot().await.expect("a slot"));
    }
    let waited = from.elapsed();
    assert!((60 * SECOND..62 * SECOND).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn is_retuned_by_the_control_store_and_a_start_that_failed_can_be_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let store: PathBuf = folder.path().join("control.sqlite");
    std::fs::write(&store, "this is no database, however long one looks at it").expect("written");
    let (budget, _machine) = budget(Config {
        retuning: Some(Retuning {
            store: store.clone(),
            every: SECOND,
        }),
        ..config(1, 10, 20)
    });
    let job = member(&budget, "job");
    assert!(budget.start().await.is_err());
    assert_eq!(job.slot().await.err(), Some(Refusal::Stopped));
    std::fs::remove_file(&store).expect("removed");
    let set = |key: &str, value: &str| {
        crate::store::control::set(&store, key, value, None).expect("set");
    };
    set("budget_max", "4");
    budget.start().await.expect("starts");
    let mut slots = fill(&job, 50);
    assert_eq!(slots.len(), 4, "in force from the start");
    let mut woken = job.woken();
    woken.mark_unchanged();
    set("budget_max", "30");
    set("budget_desired", "25");
    woken.changed().await.expect("woken");
    slots.extend(fill(&job, 50));
    assert_eq!(slots.len(), 25);
    set("budget_min", "31");
    tokio::time::sleep(2 * SECOND).await;
    let view = budget.borrow().view();
    assert_eq!((view.min, view.desired, view.max), (1, 25, 30), "refused");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_jobs_of_one_slot_each_share_fifty_without_starvation() {
    let (budget, _machine) = budget(config(1, 50, 50));
    budget.start().await.expect("starts");
    let waits = Arc::new(std::sync::Mutex::new(Vec::new()));
    let jobs: Vec<_> = (0..200u64)
        .map(|number| {
            let job = member(&budget, "small");
            let waits = waits.clone();
            tokio::spawn(async move {
                for call in 0..20 {
                    let asked = Instant::now();
                    let slot = job.slot().await.expect("a slot");
                    waits.lock().expect("no panic").push(asked.elapsed());
                    let length = 50 + (number * 7 + call * 13) % 100;
                    tokio::time::sleep(Duration::from_millis(length)).await;
                    drop(slot);
                }
            })
        })
        .collect();
    for job in jobs {
        job.await.expect("no panic");
    }
    let waits = waits.lock().expect("no panic");
    let mean = waits.iter().sum::<Duration>() / waits.len() as u32;
    let longest = waits.iter().max().copied().expect("waits");
    assert_eq!(waits.len(), 4000);
    assert!(longest <= 3 * mean, "{longest:?} of {mean:?}");
}

#[tokio::test(start_paused = true)]
async fn starting_workers_are_a_share_of_what_all_who_joined_want() {
    let (budget, _machine) = budget(config(1, 10, 100));
    budget.start().await.expect("starts");
    let jobs = ["a", "b", "c"].map(|label| member(&budget, label));
    jobs[0].demand(1);
    jobs[1].demand(20);
    jobs[2].demand(20);
    assert_eq!(jobs.each_ref().map(|job| job.share()), [1, 5, 4]);
}

#[tokio::test]
async fn no_two_consumers_are_the_same_and_guarantees_have_a_bound() {
    let (budget, _machine) = budget(config(1, 2, 4));
    let one = Consumer::new("job", Share::default());
    let two = Consumer::new("job", Share::default());
    assert_ne!(one.to_string(), two.to_string());
    let share = Share {
        guarantee: 3,
        ..Share::default()
    };
    let _first = Member::join(budget.borrow(), Consumer::new("a", share)).expect("joins");
    let refused = Member::join(budget.borrow(), Consumer::new("b", share)).err();
    let refused = refused.expect("too much").to_string();
    assert!(
        refused.contains("6 slots") && refused.contains("max = 4"),
        "{refused}"
    );
}
