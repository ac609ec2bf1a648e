use super::*;
use std::fs;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A machine of 4 processors and 8 GiB, of files that a test writes.
pub(in crate::budget) struct Machine {
    pub(in crate::budget) root: TempDir,
}

impl Machine {
    pub(in crate::budget) fn new() -> Self {
        let machine = Self {
            root: tempfile::tempdir().expect("a folder"),
        };
        machine.write("proc/self/cgroup", "0::/\n");
        machine.write("proc/self/mountinfo", "");
        machine.write("proc/meminfo", &meminfo(8192, 6144));
        machine.processors(0, 0);
        machine.own(1 << 30, Some(100 * MIB));
        machine
    }

    pub(in crate::budget) fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Ticks of 10 ms that all processors together were busy and idle.
    pub(in crate::budget) fn processors(&self, busy: u64, idle: u64) {
        let each = "cpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\ncpu3 0 0 0 0\n";
        let text = format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n{each}intr 1\n");
        self.write("proc/stat", &text);
    }

    /// Bytes of address space resident, and of the proportional share.
    pub(in crate::budget) fn own(&self, resident: u64, proportional: Option<u64>) {
        let pages = resident / rustix::param::page_size() as u64;
        self.write("proc/self/statm", &format!("9999999 {pages} 0 0 0 0 0\n"));
        if let Some(bytes) = proportional {
            let kb = bytes / 1024;
            let text =
                format!("0-1 ---p 0 0:0 0 [rollup]\nRss: 1 kB\nPss: {kb} kB\nPss_Dirty: 1 kB\n");
            self.write("proc/self/smaps_rollup", &text);
        }
    }

    /// A cgroup of version 2, two levels down.
    pub(in crate::budget) fn v2(&self, cpu_max: &str, memory_max: &str) {
        self.write("proc/self/cgroup", "0::/jobs/one\n");
        self.write(
            "proc/self/mountinfo",
            "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        self.write("sys/fs/cgroup/jobs/cpu.max", cpu_max);
        self.write("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
        self.write("sys/fs/cgroup/jobs/memory.max", "max\n");
        self.write("sys/fs/cgroup/jobs/one/memory.max", memory_max);
        self.v2_use(0, 0, 0);
    }

    pub(in crate::budget) fn v2_use(&self, usec: u64, memory: u64, cache: u64) {
        for level in ["jobs", "jobs/one"] {
            let dir = format!("sys/fs/cgroup/{level}");
            let stat = format!("usage_usec {usec}\nuser_usec 1\n");
            self.write(&format!("{dir}/cpu.stat"), &stat);
            self.write(&format!("{dir}/memory.current"), &format!("{memory}\n"));
            let stat = format!("anon 1\ninactive_file {cache}\n");
            self.write(&format!("{dir}/memory.stat"), &stat);
        }
    }

    pub(in crate::budget) fn sensors(&self, memory: Option<u64>) -> Sensors {
        Sensors::under(self.root.path(), memory)
    }
}

fn meminfo(total_mib: u64, available_mib: u64) -> String {
    let kb = |mib: u64| mib * 1024;
    let (total, available) = (kb(total_mib), kb(available_mib));
    let zeros = [
        "MemFree",
        "Buffers",
        "Cached",
        "SwapCached",
        "Active",
        "Inactive",
        "SwapTotal",
    ];
    let more = [
        "SwapFree",
        "Dirty",
        "Writeback",
        "Mapped",
        "Slab",
        "Committed_AS",
    ];
    let last = ["VmallocTotal", "VmallocUsed", "VmallocChunk"];
    let mut text = format!("MemTotal: {total} kB\nMemAvailable: {available} kB\n");
    for name in zeros.iter().chain(&more).chain(&last) {
        text.push_str(&format!("{name}: 0 kB\n"));
    }
    text
}

const SECOND: Duration = Duration::from_secs(1);

#[track_caller]
fn near<E: std::fmt::Debug>(found: Result<f64, E>, expected: f64) {
    let found = found.expect("measured");
    assert!((found - expected).abs() < 0.01, "{found}, not {expected}");
}

#[track_caller]
fn memory(sensors: &mut Sensors, own: f64, system: f64) {
    let found = sensors.sample(SECOND).memory.expect("measured");
    let close = (found.own - own).abs() < 0.001 && (found.system - system).abs() < 0.001;
    assert!(close, "{found:?}, not {own} and {system}");
}

#[test]
fn without_a_cgroup_the_machine_counts() {
    let machine = Machine::new();
    let mut sensors = machine.sensors(None);
    assert!(matches!(
        sensors.sample(SECOND).cpu,
        Err(SensorError::First)
    ));
    machine.processors(300, 100);
    near(sensors.sample(2 * SECOND).cpu, 0.75);
    machine.processors(300, 500);
    near(sensors.sample(3 * SECOND).cpu, 0.0);
    // 100 MiB of a quarter of 8 GiB; 2 of 8 GiB.
    memory(&mut machine.sensors(None), 100.0 / 2048.0, 0.25);
    memory(&mut machine.sensors(Some(200 * MIB)), 0.5, 0.25);
}

#[test]
fn a_quota_and_a_limit_of_any_level_of_version_2_count() {
    let machine = Machine::new();
    // Half a core, of which 0.4 s were used in 1 s while the machine idled.
    machine.v2("50000 100000\n", "536870912\n");
    let mut sensors = machine.sensors(None);
    let _ = sensors.sample(SECOND);
    machine.v2_use(400_000, 128 * MIB, 0);
    machine.processors(0, 400);
    near(sensors.sample(2 * SECOND).cpu, 0.8);
    machine.v2_use(900_000, 128 * MIB, 0);
    near(sensors.sample(3 * SECOND).cpu, 1.0);
    memory(&mut machine.sensors(None), 100.0 / (0.8 * 512.0), 0.25);
    // What is only cached could be taken back.
    machine.v2_use(0, 500 * MIB, 244 * MIB);
    memory(&mut machine.sensors(None), 100.0 / (0.8 * 512.0), 0.5);
}

#[test]
fn a_quota_of_more_than_the_machine_is_none() {
    let machine = Machine::new();
    machine.v2("800000 100000\n", "99999999999999\n");
    let mut sensors = machine.sensors(None);
    let _ = sensors.sample(SECOND);
    machine.v2_use(4_000_000, 7 << 30, 0);
    machine.processors(200, 200);
    near(sensors.sample(2 * SECOND).cpu, 0.5);
    memory(&mut machine.sensors(None), 100.0 / 2048.0, 0.25);
}

#[test]
fn version_1_with_and_without_counting_in_the_same_group() {
    let machine = Machine::new();
    machine.write(
        "proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
         33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
         35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    );
    machine.write("sys/fs/cgroup/cpu/half/cpu.cfs_quota_us", "50000\n");
    machine.write("sys/fs/cgroup/cpu/half/cpu.cfs_period_us", "100000\n");
    machine.write("sys/fs/cgroup/cpu/half/cgroup.procs", "7\n8\nnonsense\n");
    machine.write("sys/fs/cgroup/cpuacct/cpuacct.usage", "0\n");
    machine.write(
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "9223372036854771712\n",
    );
    machine.write(
        "sys/fs/cgroup/memory/half/memory.limit_in_bytes",
        "536870912\n",
    );
    machine.write(
        "sys/fs/cgroup/memory/half/memory.usage_in_bytes",
        "402653184\n",
    );
    let stat = "cache 1\ntotal_inactive_file 134217728\n";
    machine.write("sys/fs/cgroup/memory/half/memory.stat", stat);

    let groups = "4:memory:/half\n2:cpuacct:/half\n1:cpu:/half\n0::/\n";
    machine.write("proc/self/cgroup", groups);
    machine.write("sys/fs/cgroup/cpuacct/half/cpuacct.usage", "0\n");
    let mut sensors = machine.sensors(None);
    let _ = sensors.sample(SECOND);
    machine.write("sys/fs/cgroup/cpuacct/half/cpuacct.usage", "250000000\n");
    near(sensors.sample(2 * SECOND).cpu, 0.5);
    memory(&mut machine.sensors(None), 100.0 / (0.8 * 512.0), 0.5);

    // Counted elsewhere: the time of the group's processes, 20 ticks of 10 ms.
    machine.write("proc/self/cgroup", "2:cpuacct:/\n1:cpu:/half\n0::/\n");
    let stat = |ticks: u64| {
        format!(
            "7 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {ticks} {ticks} 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        )
    };
    machine.write("proc/7/stat", &stat(0));
    let mut sensors = machine.sensors(None);
    let _ = sensors.sample(SECOND);
    machine.write("proc/7/stat", &stat(10));
    near(sensors.sample(2 * SECOND).cpu, 0.4);

    // A limit that is lifted, and none.
    machine.write("sys/fs/cgroup/cpu/half/cpu.cfs_quota_us", "-1\n");
    machine.processors(100, 100);
    near(sensors.sample(3 * SECOND).cpu, 0.5);
}

#[test]
fn a_mount_that_shows_a_part_of_the_hierarchy_has_our_group_at_its_top() {
    let machine = Machine::new();
    machine.v2("max\n", "max\n");
    for (root, group) in [
        ("/docker/1", "/docker/1"),
        ("/docker/1", "/"),
        ("/", "/../../2"),
    ] {
        machine.write("proc/self/cgroup", &format!("0::{group}\n"));
        let mount = format!("30 23 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        machine.write("proc/self/mountinfo", &mount);
        machine.write("sys/fs/cgroup/memory.max", "536870912\n");
        machine.write("sys/fs/cgroup/memory.current", "134217728\n");
        memory(&mut machine.sensors(None), 100.0 / (0.8 * 512.0), 0.25);
    }
}

#[test]
fn children_count_and_the_resident_size_stands_in_for_the_proportional_share() {
    let machine = Machine::new();
    machine.write("proc/self/task/1/children", "5 \n");
    machine.write("proc/5/task/5/children", "6 \n");
    for child in [5, 6] {
        machine.write(&format!("proc/{child}/statm"), "9 0 0 0 0 0 0\n");
        machine.write(&format!("proc/{child}/smaps_rollup"), "Pss: 51200 kB\n");
    }
    memory(&mut machine.sensors(Some(400 * MIB)), 0.5, 0.25);
    fs::remove_file(machine.root.path().join("proc/self/smaps_rollup")).expect("removed");
    machine.own(300 * MIB, None);
    memory(&mut machine.sensors(Some(400 * MIB)), 0.75, 0.25);
}

#[test]
fn the_proportional_share_is_read_no_more_often_than_it_is_cheap() {
    let machine = Machine::new();
    let mut sensors = machine.sensors(Some(1000 * MIB));
    let own = |sensors: &mut Sensors, at: u64| {
        let sample = sensors.sample(Duration::from_nanos(at));
        (sample.memory.expect("measured").own * 1000.0).round() as u64
    };
    machine.own(400 * MIB, Some(100 * MIB));
    assert_eq!(own(&mut sensors, 0), 100);
    // Reading a file takes more than 10 ns: what has changed since is the resident size's change.
    machine.own(500 * MIB, Some(700 * MIB));
    assert_eq!(own(&mut sensors, 1), 200);
    machine.own(350 * MIB, Some(700 * MIB));
    assert_eq!(own(&mut sensors, 2), 50);
    assert_eq!(own(&mut sensors, u64::MAX), 700);
}

#[test]
fn what_cannot_be_read_is_named() {
    let machine = Machine::new();
    machine.v2("50000 100000\n", "536870912\n");
    let cases = [
        ("proc/stat", "nothing\n", "proc/stat: has no line of times"),
        (
            "sys/fs/cgroup/jobs/cpu.max",
            "fast 100000\n",
            "jobs/cpu.max: \"fast\"",
        ),
        (
            "sys/fs/cgroup/jobs/cpu.stat",
            "usage 1\n",
            "jobs/cpu.stat: has no line",
        ),
        (
            "sys/fs/cgroup/jobs/one/memory.max",
            "-5\n",
            "one/memory.max: \"-5\" is no number",
        ),
        ("proc/meminfo", "MemTotal: 5 kB\n", "proc/meminfo: "),
        ("proc/self/mountinfo", "30 23\n", "mountinfo: "),
        ("proc/self/statm", "\n", "proc/self/statm: "),
    ];
    for (file, text, expected) in cases {
        let path = machine.root.path().join(file);
        let good = fs::read(&path).expect("read");
        fs::write(&path, text).expect("written");
        let mut sensors = machine.sensors(None);
        let _ = sensors.sample(SECOND);
        let sample = sensors.sample(2 * SECOND);
        let errors = [sample.cpu.err(), sample.memory.err()];
        let said: Vec<_> = errors.iter().flatten().map(ToString::to_string).collect();
        let found = said
            .iter()
            .any(|line| line.contains(expected) && !line.contains('\n'));
        assert!(found, "{file}: {said:?}");
        fs::write(&path, good).expect("written");
    }
    fs::remove_file(machine.root.path().join("proc/stat")).expect("removed");
    let error = machine
        .sensors(None)
        .sample(SECOND)
        .cpu
        .expect_err("no such file");
    assert!(
        error.to_string().contains("proc/stat: No such file"),
        "{error}"
    );
}

/// The kernel's own files are as expected.
#[cfg(target_os = "linux")]
#[test]
fn this_machine_can_be_measured() {
    let mut sensors = Sensors::new(None);
    let first = sensors
        .sample(Duration::ZERO)
        .memory
        .expect("memory is measured");
    assert!(first.own > 0.0 && first.system > 0.0, "{first:?}");
    // Time passes until the kernel counts some.
    let from = std::time::Instant::now();
    let ratio = loop {
        match sensors.sample(from.elapsed()).cpu {
            Ok(ratio) => break ratio,
            Err(SensorError::First) => assert!(from.elapsed() < 30 * SECOND),
            Err(error) => panic!("{error}"),
        }
    };
    assert!(ratio >= 0.0, "{ratio}");
}
