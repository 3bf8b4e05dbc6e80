//! Samples as engines would give them.

use super::*;
use crate::{
    figures::errors::errors,
    top::program::{Attached, Calls},
};
use serde_json::json;
use std::time::Instant;

/// A connection to that port with so many bytes in both directions.
pub fn connection(port: u16, bytes: u64) -> Connection {
    Connection {
        label: "@shunt/engine".to_owned(),
        protocol: "tcp".to_owned(),
        state: "ESTAB".to_owned(),
        local: "10.0.0.1:6379".to_owned(),
        remote: format!("10.0.0.2:{port}"),
        pid: Some(42),
        program: "redis-server".to_owned(),
        queues: (0, 3),
        srtt_us: Some(150),
        counted: Counted {
            sent_bytes: bytes,
            received_bytes: bytes,
            ..Counted::default()
        },
    }
}

/// A sample with these connections.
pub fn moved(connections: Vec<Connection>) -> Sample {
    Sample {
        at: Instant::now(),
        engines: Vec::new(),
        connections,
        left_out: 0,
    }
}

fn engine(label: &str, pid: u32, received_bytes: u64, silent: Option<&str>) -> Engine {
    Engine {
        label: label.to_owned(),
        pid: Some(pid),
        program: if silent.is_some() { "python3" } else { "shunt" }.to_owned(),
        silent: silent.map(str::to_owned),
        mode: "process".to_owned(),
        device: "eth0 af_packet".to_owned(),
        programs: 1,
        attached: match silent {
            None => vec![Attached {
                pid: 43,
                name: "nginx".to_owned(),
                notify: "each".to_owned(),
                counted: Calls {
                    calls: received_bytes / 1_000,
                    wake_ups: received_bytes / 10_000,
                    ..Calls::default()
                },
            }],
            Some(_) => Vec::new(),
        },
        call_rates: Vec::new(),
        errors: errors(
            &json!({ "stack_counters": { "TcpInCsumErrors": 1 + received_bytes / 100_000 } }),
        )
        .into_iter()
        .map(|error| (error, 0.0))
        .collect(),
        connections: 2,
        cores: 1,
        lost_frames: 0,
        memory_kib: 100,
        counted: Counted {
            received_bytes,
            ..Counted::default()
        },
        round_trips: Default::default(),
        polls: Default::default(),
    }
}

/// Two samples a second apart: two connections, of which the second moves 2000 bytes a second each way.
pub fn two_samples(sort: Sort) -> Model {
    let mut model = Model::new(sort, String::new());
    let mut first = moved(vec![connection(1000, 50), connection(2000, 1_000)]);
    first.engines = vec![
        engine("@shunt/engine", 7, 0, None),
        engine("@shunt/silent", 9, 0, Some("does not answer (stopped)")),
    ];
    let mut second = moved(vec![connection(1000, 50), connection(2000, 3_000)]);
    second.engines.clone_from(&first.engines);
    second.engines[0] = engine("@shunt/engine", 7, 1_000_000, None);
    second.at = first.at + Duration::from_secs(1);
    model.update(first);
    model.update(second);
    model
}

fn ports(model: &Model) -> Vec<&str> {
    let remotes = model.connections.iter();
    remotes
        .map(|(one, _)| one.remote.rsplit(':').next().unwrap())
        .collect()
}

#[test]
fn rates_are_what_was_added_in_a_second_and_sort_the_rows() {
    let mut model = two_samples(Sort::Rate);
    assert!(model.has_rates);
    assert_eq!(ports(&model), ["2000", "1000"]);
    let rates = model.connections[0].1;
    assert!((rates.sent_bytes_per_s - 2_000.0).abs() < 1.0, "{rates:?}");
    model.reversed = true;
    model.arrange();
    assert_eq!(ports(&model), ["1000", "2000"]);
}

#[test]
fn programs_add_up_their_connections() {
    let model = two_samples(Sort::Rate);
    let [program, _idle] = &model.programs[..] else {
        panic!("{:?}", model.programs)
    };
    assert_eq!((program.pid, program.connections), (42, 2));
    assert!((program.rates.both() - 4_000.0).abs() < 1.0);
    assert_eq!(program.queues, (0, 6));
}

#[test]
fn a_filter_looks_into_every_column() {
    let mut model = two_samples(Sort::Rate);
    for (filter, expected) in [
        (":1000", &["1000"][..]),
        ("REDIS", &["2000", "1000"]),
        ("42", &["2000", "1000"]),
        ("nobody", &[]),
    ] {
        filter.clone_into(&mut model.filter);
        model.arrange();
        assert_eq!(ports(&model), expected, "{filter}");
    }
}

#[test]
fn the_selection_stays_on_a_row() {
    let mut model = two_samples(Sort::Rate);
    model.move_by(isize::MAX);
    assert_eq!(model.selected, 1);
    model.filter = ":1000".to_owned();
    model.arrange();
    assert_eq!(model.selected, 0);
    model.move_by(isize::MIN);
    model.filter = "nobody".to_owned();
    model.arrange();
    model.move_by(1);
    assert_eq!(model.selected, 0);
}

#[test]
fn a_counter_that_fell_has_no_rate() {
    let rates = Rates::between(
        connection(1, 500).counted,
        connection(1, 20).counted,
        Duration::from_secs(1),
    );
    assert!(rates.both() < 1e-9);
}

#[test]
fn a_program_without_a_connection_is_listed_too() {
    let mut model = two_samples(Sort::Rate);
    let listed = |model: &Model| {
        let mut listed: Vec<_> = model
            .programs
            .iter()
            .filter(|one| one.label == "@shunt/engine")
            .map(|one| (one.pid, one.program.clone(), one.connections))
            .collect();
        listed.sort();
        listed
    };
    let both = [
        (42, "redis-server".to_owned(), 2),
        (43, "nginx".to_owned(), 0),
    ];
    assert_eq!(listed(&model), both);
    model.filter = "NGINX".to_owned();
    model.arrange();
    assert_eq!(listed(&model), both[1..]);
}

#[test]
fn calls_wake_ups_and_errors_have_rates() {
    let model = two_samples(Sort::Rate);
    let idle = model.programs.iter().find(|one| one.pid == 43).unwrap();
    assert_eq!(idle.notify, "each");
    assert!((idle.calls.calls_per_s - 1_000.0).abs() < 1.0, "{idle:?}");
    assert!((idle.calls.wake_ups_per_s - 100.0).abs() < 1.0, "{idle:?}");
    let [(error, rate)] = &model.engines[0].0.errors[..] else {
        panic!("{:?}", model.engines[0])
    };
    assert_eq!((error.name, error.count), ("tcp_in_csum_errors", 11));
    assert!((rate - 10.0).abs() < 0.1, "{rate}");
}
