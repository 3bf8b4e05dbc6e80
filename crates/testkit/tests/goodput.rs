//! Goodput over loss, delay and buffer on virtual time, as a golden file: a change of behaviour shows as
//! a difference of numbers. `SHUNT_GOLDEN=write cargo test -p testkit --test goodput` writes it anew.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::fmt::Write as _;
use std::path::PathBuf;

use netem::Impairment;
use testkit::network::{Scenario, run};

const RATE_BPS: u64 = 10_000_000;
const BYTES: u64 = 1_000_000;
const SEEDS: u64 = 5;
const LOSSES: [f64; 4] = [0.0, 0.001, 0.01, 0.03];
const RTTS_MS: [u64; 3] = [2, 20, 100];
const BUFFERS_KIB: [u64; 3] = [16, 64, 256];

/// Mean goodput of some seeds, kbit/s.
fn goodput_kbit(loss: f64, rtt_ms: u64, buffer_kib: u64) -> u64 {
    let impairment = Impairment {
        loss,
        delay_us: rtt_ms * 500,
        rate_bps: Some(RATE_BPS),
        queue_bytes: buffer_kib * 1024,
        ..Impairment::default()
    };
    let kbit = |seed| {
        let scenario = Scenario::transfer(BYTES, impairment, seed);
        let report = run(&scenario, false).unwrap_or_else(|failure| panic!("{failure}"));
        BYTES * 8_000 / report.finished_us
    };
    (0..SEEDS).map(kbit).sum::<u64>() / SEEDS
}

fn table() -> String {
    let mut text = format!(
        "goodput in kbit/s of {BYTES} bytes over {} kbit/s, mean of {SEEDS} seeds\n\
         loss %  rtt ms  buffer 16 KiB  64 KiB  256 KiB\n",
        RATE_BPS / 1_000
    );
    for loss in LOSSES {
        for rtt_ms in RTTS_MS {
            let [small, middle, large] =
                BUFFERS_KIB.map(|buffer_kib| goodput_kbit(loss, rtt_ms, buffer_kib));
            writeln!(
                text,
                "{:>6.1}  {rtt_ms:>6}  {small:>13}  {middle:>6}  {large:>7}",
                loss * 100.0
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn goodput_over_loss_delay_and_buffer_is_as_recorded() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/goodput.txt");
    let now = table();
    if std::env::var("SHUNT_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, now).unwrap();
        return;
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    let differs = recorded.lines().zip(now.lines()).filter(|(a, b)| a != b);
    let differences: Vec<String> = differs.map(|(a, b)| format!("- {a}\n+ {b}")).collect();
    assert!(
        recorded == now,
        "the table differs from {}:\n{}\n{}",
        file.display(),
        recorded.lines().nth(1).unwrap_or_default(),
        differences.join("\n")
    );
}
