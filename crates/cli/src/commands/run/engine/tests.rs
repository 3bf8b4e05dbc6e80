//! What flags describe an engine, and what is said where they do not.

use super::*;
use clap::Parser as _;

const NOTHING: Wanted = Wanted {
    nic: None,
    address: Vec::new(),
    gateway: Vec::new(),
    ignore_firewall: false,
    driver: None,
    xdp_mode: None,
    profile: None,
    offloads: Offloads::NONE_OFF,
    allow_deep_idle: false,
};

#[test]
fn a_driver_says_which_engine_wherever_the_interface_comes_from() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        wanted: Wanted,
        #[arg(long)]
        engine: Option<String>,
    }
    let parse = |words: &[&str]| Line::try_parse_from([&["run"], words].concat());
    let alone =
        parse(&["--driver", "af_xdp"]).map(|line| (line.wanted.is_described(), line.engine));
    assert_eq!(alone.ok(), Some((true, None)));
    assert!(parse(&["--driver", "af_xdp", "--engine", "@one"]).is_err());
}

#[test]
fn an_engine_that_was_named_and_does_not_answer_is_an_error_that_names_the_flag() {
    let error = find(&["@shunt/test/nobody".into()], &NOTHING, "")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--engine") && error.contains("shunt engine"),
        "{error}"
    );
}

#[test]
fn an_engine_inside_the_program_needs_an_interface_and_the_packet_socket_driver() {
    let tap = Wanted {
        nic: Some("shunt0".to_owned()),
        driver: Some(DriverName::Tap),
        ..NOTHING
    };
    let error = inside(&tap, "").unwrap_err().to_string();
    assert!(error.contains("--driver af_packet"), "{error}");
}

#[test]
fn the_flags_that_are_missing_are_named_and_no_others() {
    let both = missing(&NOTHING);
    assert!(
        both.contains("--nic IFACE --address") && both.contains("shunt lab up"),
        "{both}"
    );
    let address = missing(&Wanted {
        nic: Some("eth0".to_owned()),
        ..NOTHING
    });
    assert!(!address.contains("--nic"), "{address}");
}
