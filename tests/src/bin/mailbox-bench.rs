//! Measures the mailboxes: rates, flushes a message, and ratios to a raw loop of one thread in the same round.
//!
//! `cargo run --release -p posthouse-tests --bin mailbox-bench -- --dir DIR`. DIR should lie on a journaled ext4
//! or XFS with direct I/O (a loop device: `losetup --direct-io=on`), with room for 1,100,000 inodes. Exit code 1:
//! a figure was not reached.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark: what fails ends it")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use posthouse_tests::bench::device::{Device, describe};
use posthouse_tests::bench::table::{Better, Figure, Row, print};
use posthouse_tests::bench::{Sample, claims, deliver, ends, ground, memory, teammates};

/// Benchmarks of Posthouse's mailboxes.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to work; a directory of its own is made in it and removed.
    #[arg(long)]
    dir: PathBuf,
    /// Small counts and one round: shows that it works, its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Only the rows that are measured against the raw loop.
    #[arg(long)]
    against_raw: bool,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Keep what was written.
    #[arg(long)]
    keep: bool,
    #[arg(long, hide = true)]
    child: Option<String>,
}

/// How much of everything.
struct Size {
    rounds: usize,
    raw: u64,
    /// Seconds that a row should take at its target.
    seconds: f64,
    backlogs: [u64; 3],
    at_backlog: u64,
    /// Task claims of each claimer.
    claims: usize,
    idle: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(role) = &arguments.child {
        child(&arguments.dir, role);
        return ExitCode::SUCCESS;
    }
    let size = if arguments.quick {
        Size {
            rounds: 1,
            raw: 50,
            seconds: 0.2,
            backlogs: [100, 1_000, 10_000],
            at_backlog: 30,
            claims: 4,
            idle: 100,
        }
    } else {
        let backlogs = [1_000, 100_000, 1_000_000];
        Size {
            rounds: arguments.rounds,
            raw: 1_000,
            seconds: 1.0,
            backlogs,
            at_backlog: 200,
            claims: 100,
            idle: 10_000,
        }
    };
    let data = arguments.dir.join(format!("mailbox-bench-{}", std::process::id()));
    std::fs::create_dir_all(&data).unwrap();
    println!("{}\n", describe(&data));
    let rows = if arguments.against_raw { deliveries(&data, &size) } else { run(&data, &size) };
    let all = print(&rows);
    if !arguments.keep {
        std::fs::remove_dir_all(&data).unwrap();
    }
    ExitCode::from(u8::from(!all && !arguments.quick))
}

fn child(data: &Path, role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    match words.as_slice() {
        ["deliver", name, process, each] => {
            deliver::child(data, name, process.parse().unwrap(), each.parse().unwrap());
        }
        ["open", size] => memory::open_child(data, size.parse().unwrap()),
        ["idle", count] => memory::idle_child(data, count.parse().unwrap()),
        ["teammates", count] => teammates::child(data, count.parse().unwrap()),
        _ => panic!("no role {role:?}"),
    }
}

type Work = fn(&Device, &Path, usize, u64) -> Sample;

/// A row that is measured against the raw loop: its work, what it must reach, and in how many flushes.
const AGAINST_RAW: [(&str, Work, f64, Option<f64>); 5] = [
    ("deliver, 1 sender", deliver::one_sender, 1.0, Some(4.0)),
    ("deliver to one mailbox, 64 threads", deliver::threads_64, 12.0, Some(0.3)),
    ("deliver to one mailbox, 8 processes x 8 threads", deliver::processes_8, 10.0, None),
    ("deliver_many of 512", deliver::many_512, 20.0, None),
    ("claim + durable ack, 64 mailboxes at once", ends::mailboxes_64, 14.0, None),
];

/// The rows against the raw loop alone.
fn deliveries(data: &Path, size: &Size) -> Vec<Row> {
    let device = Device::of(data);
    let (mut raws, mut samples) = (Vec::new(), vec![Vec::new(); AGAINST_RAW.len()]);
    for round in 0..size.rounds {
        against_raw_once(&device, data, size, round, &mut raws, &mut samples);
    }
    rows_against_raw(&raws, &samples)
}

/// One round of the raw loop and of what is measured against it.
fn against_raw_once(
    device: &Device,
    data: &Path,
    size: &Size,
    round: usize,
    raws: &mut Vec<Sample>,
    samples: &mut [Vec<Sample>],
) {
    let raw = ground::raw(device, data, round, size.raw);
    for ((_, work, target, _), samples) in AGAINST_RAW.iter().zip(samples) {
        let count = raw.rate() * target * size.seconds;
        samples.push(work(device, data, round, (count as u64).max(256)));
    }
    raws.push(raw);
}

fn rows_against_raw(raws: &[Sample], samples: &[Vec<Sample>]) -> Vec<Row> {
    let mut rows =
        vec![Row { work: "raw loop, 1 thread".to_owned(), rates: rates(raws), figures: Vec::new() }];
    for ((work, _, target, flushes), samples) in AGAINST_RAW.iter().zip(samples) {
        rows.push(against_raw(work, samples, raws, *target, *flushes));
    }
    let threads = samples.get(1).map(|samples| rates(samples)).unwrap_or_default();
    if let (Some(row), Some(processes)) = (rows.get_mut(3), samples.get(2)) {
        row.figures.push(figure("of 64 threads", ratios(&rates(processes), &threads), 0.8, Better::More));
    }
    rows
}

fn run(data: &Path, size: &Size) -> Vec<Row> {
    let begun = Instant::now();
    let device = Device::of(data);
    for backlog in size.backlogs {
        let claimed = (size.at_backlog + 5) * size.rounds as u64;
        ends::prepare_backlog(data, backlog, claimed);
        eprintln!("[{:>4.0} s] a backlog of {backlog} is placed", begun.elapsed().as_secs_f64());
    }
    let mut raws: Vec<Sample> = Vec::new();
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); AGAINST_RAW.len()];
    let mut at_backlogs: Vec<Vec<Sample>> = vec![Vec::new(); size.backlogs.len()];
    let mut claimed: Vec<claims::Rates> = Vec::new();
    for round in 0..size.rounds {
        against_raw_once(&device, data, size, round, &mut raws, &mut samples);
        for (backlog, samples) in size.backlogs.iter().zip(&mut at_backlogs) {
            samples.push(ends::at_backlog(&device, data, *backlog, size.at_backlog));
        }
        claimed.push(claims::run(&data.join(format!("claims-{round}")), size.claims));
        eprintln!("[{:>4.0} s] round {} of {}", begun.elapsed().as_secs_f64(), round + 1, size.rounds);
    }
    let mut rows = rows_against_raw(&raws, &samples);
    let small = at_backlogs.first().map(|samples| rates(samples)).unwrap_or_default();
    for (at, (backlog, samples)) in size.backlogs.iter().zip(&at_backlogs).enumerate() {
        let target = [1.0, 0.85, 0.75].get(at).copied().unwrap_or(0.75);
        let figures = match at {
            0 => Vec::new(),
            _ => vec![figure("of the smallest", ratios(&rates(samples), &small), target, Better::More)],
        };
        rows.push(Row { work: format!("claim + ack at backlog {backlog}"), rates: rates(samples), figures });
    }
    let (rate, append): (Vec<f64>, Vec<f64>) = claimed.iter().map(|rates| (rates.claims, rates.raw)).unzip();
    let figures = vec![figure("raw synced appends", ratios(&rate, &append), 10.0, Better::More)];
    rows.push(Row {
        work: format!("task claims by {} claimers, durable", claims::CLAIMERS),
        rates: rate,
        figures,
    });
    let largest = size.backlogs.last().copied().unwrap_or_default();
    let (opening, bytes) = memory::open(data, largest);
    let no_rate = |work: String, figure: Figure| Row { work, rates: Vec::new(), figures: vec![figure] };
    rows.push(no_rate(
        format!("open at {largest} ready, warm"),
        figure("of a bare read", vec![opening], 2.0, Better::Less),
    ));
    rows.push(no_rate(
        "memory a ready message".to_owned(),
        figure("bytes", vec![bytes], 120.0, Better::Less),
    ));
    rows.push(no_rate(
        format!("{} idle mailboxes, without teammates", size.idle),
        figure("MB", vec![memory::idle(data, size.idle)], 100.0, Better::Less),
    ));
    rows.push(no_rate(
        format!("{} idle mailboxes with teammates", size.idle),
        figure("MB", vec![teammates::idle(data, size.idle)], 100.0, Better::Less),
    ));
    eprintln!("[{:>4.0} s] done", begun.elapsed().as_secs_f64());
    rows
}

fn against_raw(work: &str, samples: &[Sample], raws: &[Sample], target: f64, flushes: Option<f64>) -> Row {
    let mut figures = vec![figure("raw", ratios(&rates(samples), &rates(raws)), target, Better::More)];
    let counted: Vec<f64> = samples.iter().filter_map(Sample::flushes_a_message).collect();
    figures.push(figure("flushes a message", counted, flushes.unwrap_or(f64::INFINITY), Better::Less));
    Row { work: work.to_owned(), rates: rates(samples), figures }
}

const fn figure(unit: &'static str, values: Vec<f64>, target: f64, better: Better) -> Figure {
    Figure { unit, values, target, better }
}

fn rates(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(Sample::rate).collect()
}

fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| of / to).collect()
}
