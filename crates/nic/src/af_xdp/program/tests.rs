//! The program run by the kernel on frames of ours, against a naive oracle.

use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use bpf::{Error, MapKind, Program, ProgramKind};

/// A verdict that nothing else of the program gives (`XDP_TX`): it would be taken.
const TAKEN: u32 = 3;
const PASSED: u32 = 2;

fn load(taken: &Taken<'_>) -> Result<Program, Error> {
    let sockets = Map::create(MapKind::Sockets, "sockets", 4, 4, 1)?;
    let program = assemble_with(taken, &sockets, 3).unwrap();
    Program::load(ProgramKind::Xdp { fragments: true }, "shunt", &program)
}

/// Says past libtest's capture, in the form that is counted, why a test cannot run.
fn permitted<T>(test: &str, made: Result<T, Error>) -> Option<T> {
    use std::io::Write as _;
    match made {
        Ok(made) => Some(made),
        Err(error @ (Error::NotPermitted { .. } | Error::Unsupported { .. })) => {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn verdict(program: &Program, frame: &[u8]) -> u32 {
    program.run_on(frame).unwrap().verdict
}

const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];
const V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1),
];

/// A frame to one station; `ends` are source and destination.
fn frame_of_v4(ends: [Ipv4Addr; 2], protocol: u8, options: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([
        8,
        0,
        0x45 + options,
        0,
        0,
        40,
        0,
        1,
        0,
        0,
        64,
        protocol,
        0,
        0,
    ]);
    frame.extend(ends.concat_octets());
    frame.extend(vec![1; usize::from(options) * 4]);
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.resize(frame.len() + 40, 0);
    frame
}

fn frame_of_v6(ends: [Ipv6Addr; 2], protocol: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
    frame.extend(ends.iter().flat_map(Ipv6Addr::octets));
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.resize(frame.len() + 20, 0);
    frame
}

trait ConcatOctets {
    fn concat_octets(&self) -> Vec<u8>;
}

impl ConcatOctets for [Ipv4Addr; 2] {
    fn concat_octets(&self) -> Vec<u8> {
        self.iter().flat_map(Ipv4Addr::octets).collect()
    }
}

#[test]
fn what_is_for_the_engine_is_taken_and_nothing_else() {
    let own = [V4[1].into(), V6[1].into()];
    let taken = Taken {
        whose: Whose::Of(&own),
        cores: None,
        stamps: false,
    };
    let test = "what_is_for_the_engine_is_taken_and_nothing_else";
    let Some(program) = permitted(test, load(&taken)) else {
        return;
    };
    let (v4, v6) = (frame_of_v4(V4, 6, 0, [1, 2]), frame_of_v6(V6, 17, [1, 2]));
    for frame in [&v4, &v6] {
        assert_eq!(verdict(&program, frame), TAKEN);
        let mut group = frame.clone();
        group[0] |= 1;
        assert_eq!(verdict(&program, &group), PASSED, "the kernel needs it too");
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(verdict(&program, &tagged), PASSED);
    }
    let back = [V4[1], V4[0]];
    assert_eq!(verdict(&program, &frame_of_v4(back, 6, 0, [1, 2])), PASSED);
    let back = [V6[1], V6[0]];
    assert_eq!(verdict(&program, &frame_of_v6(back, 6, [1, 2])), PASSED);
    let mut near = V6[1].octets();
    for at in [0, 7, 8, 15] {
        near[at] ^= 1;
        let ends = [V6[0], near.into()];
        assert_eq!(verdict(&program, &frame_of_v6(ends, 6, [1, 2])), PASSED);
        near[at] ^= 1;
    }
    let mut arp = v4.clone();
    arp[13] = 6;
    assert_eq!(verdict(&program, &arp), PASSED);
    assert_eq!(verdict(&program, &v4[..33]), PASSED, "ends in its header");
    assert_eq!(verdict(&program, &v6[..53]), PASSED, "ends in its header");
}

#[test]
fn two_hundred_addresses_are_not_too_many() {
    let mut own: Vec<IpAddr> = (0..100)
        .map(|last| IpAddr::from([192, 168, 7, last]))
        .collect();
    let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
    own.extend((0..100).map(v6));
    let taken = Taken {
        whose: Whose::Of(&own),
        cores: None,
        stamps: false,
    };
    let Some(program) = permitted("two_hundred_addresses_are_not_too_many", load(&taken)) else {
        return;
    };
    for (last, expected) in [(99_u8, TAKEN), (100, PASSED)] {
        let ends = [V4[0], Ipv4Addr::new(192, 168, 7, last)];
        assert_eq!(
            verdict(&program, &frame_of_v4(ends, 6, 0, [1, 2])),
            expected
        );
        let IpAddr::V6(to) = v6(last.into()) else {
            panic!()
        };
        assert_eq!(
            verdict(&program, &frame_of_v6([V6[0], to], 6, [1, 2])),
            expected
        );
    }
}

#[test]
fn a_family_without_addresses_is_left_to_the_kernel_whatever_else_is_asked() {
    let test = "a_family_without_addresses_is_left_to_the_kernel_whatever_else_is_asked";
    let (v4, v6) = (frame_of_v4(V4, 6, 0, [1, 2]), frame_of_v6(V6, 6, [1, 2]));
    let own: [IpAddr; 2] = [V4[1].into(), V6[1].into()];
    for own in [&own[..0], &own[..1], &own[1..]] {
        for cores in [None, Some((1, MIXED)), Some((1, OF_CARD))] {
            let taken = Taken {
                whose: Whose::Of(own),
                cores,
                stamps: false,
            };
            let Some(program) = permitted(test, load(&taken)) else {
                return;
            };
            for (frame, is_own) in [
                (&v4, IpAddr::is_ipv4 as fn(&IpAddr) -> bool),
                (&v6, IpAddr::is_ipv6),
            ] {
                let expected = if own.iter().any(is_own) {
                    TAKEN
                } else {
                    PASSED
                };
                assert_eq!(verdict(&program, frame), expected, "{own:?}");
            }
        }
    }
}

const MIX: Mix = Mix {
    key: 0x9abc_def1,
    multipliers: [0x85eb_ca6b, 0xc2b2_ae35, 0x27d4_eb2f],
    shifts: [16, 13, 16],
};

const MIXED: Hash = Hash::Mixed(MIX);
const OF_CARD: Hash = Hash::OfCard(0x9a35);

/// As `af_packet::steering` documents it.
fn core_of(hash: Hash, addresses: u32, ports: [u16; 2], cores: u16) -> u32 {
    if let Hash::OfCard(rotations) = hash {
        let folded = [addresses >> 16, addresses, ports[0].into(), ports[1].into()];
        let folded = folded.into_iter().fold(0, |sum, part| sum ^ part);
        let folded = u16::try_from(folded & 0xffff).unwrap();
        let rotated = (0..16).filter(|by| rotations >> by & 1 == 1);
        let sum = rotated.fold(0, |sum, by| sum ^ folded.rotate_right(by));
        return u32::from((sum >> 8 & 127) % cores);
    }
    let mut h = (addresses ^ MIX.key).wrapping_mul(MIX.multipliers[0]);
    h = (h ^ h >> MIX.shifts[0] ^ u32::from(ports[0] ^ ports[1])).wrapping_mul(MIX.multipliers[1]);
    h = (h ^ h >> MIX.shifts[1]).wrapping_mul(MIX.multipliers[2]);
    (h >> MIX.shifts[2]) % u32::from(cores)
}

#[test]
fn with_several_cores_a_queue_takes_what_the_hash_gives_its_core() {
    let taken = |(hash, cores)| Taken {
        whose: Whose::Anybodys,
        cores: Some((cores, hash)),
        stamps: false,
    };
    let test = "with_several_cores_a_queue_takes_what_the_hash_gives_its_core";
    let kinds = [(MIXED, 2), (MIXED, 3), (OF_CARD, 2), (OF_CARD, 3)];
    let programs: Result<Vec<_>, _> = kinds.iter().map(|kind| load(&taken(*kind))).collect();
    let Some(programs) = permitted(test, programs) else {
        return;
    };
    let expected = |addresses, ports, (hash, cores)| {
        // The kernel runs the program as if the frame came from queue 0.
        if core_of(hash, addresses, ports, cores) == 0 {
            TAKEN
        } else {
            PASSED
        }
    };
    let words_of_v6 = V6.iter().flat_map(Ipv6Addr::octets).collect::<Vec<_>>();
    let (words_of_v6, _) = words_of_v6.as_chunks::<4>();
    let of_v6 = words_of_v6
        .iter()
        .fold(0, |sum, word| sum ^ u32::from_be_bytes(*word));
    let of_v4 = u32::from(V4[0]) ^ u32::from(V4[1]);
    let mut taken_by_first = 0;
    for (program, kind) in programs.iter().zip(kinds) {
        for port in 0..64 {
            let ports = [1_000 + port, 80];
            let options = u8::try_from(port % 11).unwrap();
            let verdict_of_v4 = verdict(program, &frame_of_v4(V4, 6, options, ports));
            assert_eq!(verdict_of_v4, expected(of_v4, ports, kind), "{port}");
            let verdict_of_v6 = verdict(program, &frame_of_v6(V6, 6, ports));
            assert_eq!(verdict_of_v6, expected(of_v6, ports, kind), "{port}");
            taken_by_first += u32::from(verdict_of_v4 == TAKEN);
        }
        assert_eq!(
            verdict(program, &frame_of_v4(V4, 17, 0, [1, 2])),
            TAKEN,
            "UDP"
        );
        let mut fragment = frame_of_v4(V4, 6, 0, [1, 2]);
        fragment[20] = 0x20;
        assert_eq!(verdict(program, &fragment), TAKEN);
    }
    assert!(
        (60..180).contains(&taken_by_first),
        "{taken_by_first} of 256"
    );
}

#[test]
fn claims_and_the_hash_both_have_their_say() {
    use crate::sharing::{Claim, Claims as _, Transport};
    let test = "claims_and_the_hash_both_have_their_say";
    let Some(tables) = permitted(test, Tables::create()) else {
        return;
    };
    let taken = Taken {
        whose: Whose::Claimed(&tables, [2; 6]),
        cores: Some((2, MIXED)),
        stamps: false,
    };
    let Some(program) = permitted(test, load(&taken)) else {
        return;
    };
    let of_v4 = u32::from(V4[0]) ^ u32::from(V4[1]);
    let frames: Vec<_> = (0..32)
        .map(|n| [1_000 + n, 80])
        .map(|ports| {
            (
                frame_of_v4(V4, 6, 3, ports),
                core_of(MIXED, of_v4, ports, 2),
            )
        })
        .collect();
    for (frame, _) in &frames {
        assert_eq!(verdict(&program, frame), PASSED, "not claimed yet");
    }
    let port = Claim::Port {
        transport: Transport::Tcp,
        local: (V4[1], 80).into(),
        is_dual: false,
    };
    tables.take(port).unwrap();
    for (frame, core) in &frames {
        let expected = if *core == 0 { TAKEN } else { PASSED };
        assert_eq!(verdict(&program, frame), expected);
    }
    assert!(frames.iter().any(|(_, core)| *core == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The kernel has proved that the program reads nothing outside; here it says the same as the oracle.
    #[test]
    fn the_program_agrees_with_the_oracle(
        frame in proptest::collection::vec(any::<u8>(), 14..90), ethertype in 0_usize..3, own in 0_usize..2,
    ) {
        let own = [IpAddr::V4(V4[own]), IpAddr::V6(V6[own])];
        let taken = Taken { whose: Whose::Of(&own), cores: None, stamps: false };
        let Ok(program) = load(&taken) else { return Ok(()) };
        let mut frame = frame;
        frame[0] &= 0xfe;
        frame[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [8, 6]][ethertype]);
        if frame.len() >= 34 && ethertype == 0 {
            frame[30..34].copy_from_slice(&V4[0].octets());
        }
        if frame.len() >= 54 && ethertype == 1 {
            frame[38..54].copy_from_slice(&V6[0].octets());
        }
        let is_own = own[0] == IpAddr::V4(V4[0]);
        let expected = match ethertype {
            0 => is_own && frame.len() >= 34,
            1 => is_own && frame.len() >= 54,
            _ => false,
        };
        prop_assert_eq!(verdict(&program, &frame), if expected { TAKEN } else { PASSED });
    }
}

#[test]
fn frames_of_one_ether_type_are_taken_and_nothing_else() {
    let taken = Taken {
        whose: Whose::Typed(0x88b5),
        cores: None,
        stamps: false,
    };
    let test = "frames_of_one_ether_type_are_taken_and_nothing_else";
    let Some(program) = permitted(test, load(&taken)) else {
        return;
    };
    let mut frame = vec![2; 30];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert_eq!(
        verdict(&program, &frame),
        TAKEN,
        "shorter than a packet of IP"
    );
    frame[13] = 0xb6;
    assert_eq!(verdict(&program, &frame), PASSED);
    assert_eq!(verdict(&program, &frame_of_v4(V4, 6, 0, [1, 2])), PASSED);
}
