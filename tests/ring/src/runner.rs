// SPDX-License-Identifier: GPL-2.0
//! Runs cases, each in a child process under a watchdog, and prints the KTAP report.

use crate::cases::{Case, OverC};
use crate::vocabulary::proc::wait_readable;
use crate::vocabulary::{Context, Driver, Length};
use anyhow::{Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe, setpgid};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a run is to be like.
pub struct Options {
    pub driver: Driver,
    pub seed: u64,
    pub length: Length,
    /// The number of the run, less than 4095.
    pub run: u64,
    /// How many times longer than usual a step may take.
    pub slow: u64,
}

impl Options {
    /// What the CIDs and ports of case number `at` follow: 32 bits, and different in each case of each run.
    fn numbers_after(&self, at: usize) -> u64 {
        (self.run << 20) + 1000 + 4096 * at as u64
    }
}

/// A seed from the clock.
pub fn fresh_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.as_nanos() as u64 % 1_000_000_000
}

/// What a child reported.
#[derive(Default)]
struct Report {
    /// None when it passed.
    failure: Option<String>,
    /// It had come to where the C driver differs.
    differs: bool,
    notes: Vec<String>,
    skipped: Option<String>,
}

/// What a case came to.
enum Verdict {
    Right,
    /// It failed where the C driver is known to, as it must: the reason, and what was seen.
    Explained(String),
    /// What is wrong.
    Wrong(String),
    Skipped(String),
}

/// Runs the cases and prints the report.
pub fn run(cases: &[Case], options: &Options) -> ExitCode {
    println!("KTAP version 1");
    println!("# seed {}, driver {:?}", options.seed, options.driver);
    println!("1..{}", cases.len());
    let begun = Instant::now();
    let (mut right, mut explained, mut wrong, mut skipped) = (0, 0, 0, 0);
    for (at, case) in cases.iter().enumerate() {
        let start = Instant::now();
        let report = run_case(case, at, options);
        let ms = start.elapsed().as_millis();
        for note in &report.notes {
            println!("# {}: {note}", case.name);
        }
        let name = format!("{} - {}", at + 1, case.name);
        match judge(case, report, options.driver) {
            Verdict::Right => {
                right += 1;
                println!("ok {name} # {ms} ms");
            }
            Verdict::Explained(why) => {
                explained += 1;
                println!("ok {name} # XFAIL {why}");
            }
            Verdict::Wrong(why) => {
                wrong += 1;
                println!("# {}: {why}\nnot ok {name} # {ms} ms", case.name);
            }
            Verdict::Skipped(why) => {
                skipped += 1;
                println!("ok {name} # SKIP {why}");
            }
        }
    }
    println!(
        "# {right} right, {explained} fail as explained over C, {wrong} wrong, {skipped} skipped; seed {}, {} ms",
        options.seed,
        begun.elapsed().as_millis()
    );
    ExitCode::from(u8::from(wrong > 0 || cases.is_empty()))
}

/// What a report comes to over this driver.
fn judge(case: &Case, report: Report, driver: Driver) -> Verdict {
    if let (Some(why), None) = (report.skipped, &report.failure) {
        return Verdict::Skipped(why);
    }
    match (case.over_c, driver, report.failure) {
        (OverC::Differs(why) | OverC::Races(why), Driver::C, Some(seen)) if report.differs => {
            Verdict::Explained(format!("{why}; seen: {seen}"))
        }
        (OverC::Differs(_), Driver::C, None) => {
            Verdict::Wrong("passes over C, where it is explained to fail".into())
        }
        (_, _, Some(seen)) => Verdict::Wrong(seen),
        (_, _, None) => Verdict::Right,
    }
}

fn run_case(case: &Case, at: usize, options: &Options) -> Report {
    let (reader, writer) = match pipe() {
        Ok((reader, writer)) => (File::from(reader), File::from(writer)),
        Err(errno) => {
            return Report {
                failure: Some(format!("pipe(): {errno}")),
                ..Default::default()
            };
        }
    };
    // SAFETY: This process has one thread.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            drop(reader);
            child(case, at, options, writer);
        }
        Ok(ForkResult::Parent { child }) => {
            drop(writer);
            let _ = setpgid(child, child);
            watch(case.limit * options.slow, child, reader)
        }
        Err(errno) => Report {
            failure: Some(format!("fork(): {errno}")),
            ..Default::default()
        },
    }
}

fn child(case: &Case, at: usize, options: &Options, report: File) -> ! {
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let panics = report.try_clone();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.to_string().replace('\n', " ");
        let _ = panics
            .as_ref()
            .map(|mut report| writeln!(report, "F {text}"));
        std::process::exit(0);
    }));
    let mut cx = Context::new(
        options.driver,
        options.length,
        options.seed,
        case.name,
        options.numbers_after(at),
        report,
    );
    let result = (case.run)(&mut cx);
    cx.verdict(&result);
    std::process::exit(0);
}

/// Reads what the child says until it ends, or until a step takes `limit` seconds; then it is killed.
fn watch(limit: u64, child: Pid, mut from: File) -> Report {
    let mut report = Report::default();
    let mut step = String::from("start of the case");
    let mut verdict = false;
    let mut text = Vec::new();
    let failure = loop {
        match wait_readable(&from, Duration::from_secs(limit)) {
            Ok(true) => {}
            _ => break Some(format!("stuck for {limit} s in: {step}")),
        }
        let mut part = [0; 4096];
        let len = from.read(&mut part).unwrap_or(0);
        if len == 0 {
            break None;
        }
        text.extend_from_slice(&part[..len]);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&text[..end]).into_owned();
            text.drain(..=end);
            let (letter, rest) = line.split_at(1);
            let rest = rest.trim_start().to_string();
            match letter {
                "S" => step = rest,
                "D" => report.differs = true,
                "N" => report.notes.push(rest),
                "K" => report.skipped = Some(rest),
                "F" => {
                    report.failure = Some(format!("{rest} (step: {step})"));
                    verdict = true;
                    step = "end of the process".into();
                }
                _ => {
                    verdict = true;
                    step = "end of the process".into();
                }
            }
        }
    };
    if failure.is_some() {
        report.failure = failure;
    }
    let end = reap(child, report.failure.is_some());
    if report.failure.is_none() {
        report.failure = match end {
            Ok(()) if verdict => None,
            Ok(()) => Some(format!("ended without a verdict in: {step}")),
            Err(error) => Some(format!("{error:#} in: {step}")),
        };
    }
    report
}

/// Awaits the end of the child, killing it and its own children first if need be.
fn reap(child: Pid, stuck: bool) -> Result<()> {
    let group = Pid::from_raw(-child.as_raw());
    if stuck {
        let _ = kill(group, Signal::SIGKILL);
    }
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1))
            }
            WaitStatus::StillAlive => return Err(anyhow!("the process cannot be ended")),
            WaitStatus::Signaled(_, signal, _) if !stuck => {
                return Err(anyhow!("killed by {signal}"));
            }
            _ => break,
        }
    }
    let _ = kill(group, Signal::SIGKILL);
    Ok(())
}
