//! The programs against what they say of themselves, frame by frame, where BPF is permitted.

use std::io::Write as _;
use std::net::Ipv4Addr;

use super::*;

mod oracle;

const OURS: [&str; 2] = ["10.0.0.2", "2001:db8::2"];
const STRANGERS: [&str; 2] = ["10.0.0.3", "2001:db8::3"];

/// Tables, and both programs as classifiers: those can be run on frames. And the one for XDP.
struct Scene {
    tables: Tables,
    admit: Program,
    take: Program,
    xdp: Program,
}

/// The station of frames for this host, as the kernel sees it when it runs a classifier.
const STATION: [u8; 6] = [0; 6];
/// `XDP_PASS` and `XDP_TX`.
const PASSED: i32 = 2;
const TAKEN: i32 = 3;

fn for_xdp(tables: &Tables) -> Result<Program, BpfError> {
    let mut program = Assembler::new();
    let [ours, others] = [program.label(), program.label()];
    tables.judge(&mut program, STATION, [ours, others]);
    program.place(ours).exit_with(TAKEN);
    program.place(others).exit_with(PASSED);
    let program = program.finish().unwrap();
    Program::load(ProgramKind::Xdp { fragments: true }, "shunt_test", &program)
}

impl Scene {
    fn new(test: &str) -> Option<Self> {
        let load = |tables: &Tables, side| {
            let program = tables.program(side).unwrap();
            Program::load(ProgramKind::Classifier, "shunt_test", &program)
        };
        let made = Tables::create().and_then(|tables| {
            Ok(Self {
                admit: load(&tables, program::Side::Engine)?,
                take: load(&tables, program::Side::Kernel)?,
                xdp: for_xdp(&tables)?,
                tables,
            })
        });
        match made {
            Ok(scene) => Some(scene),
            Err(error) if error.is_privilege() => {
                let _ = writeln!(io::stderr(), "skipped: {test}: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether the engine gets the frame, and whether the kernel does.
    fn who_gets(&self, frame: &[u8]) -> (bool, bool) {
        let admitted = self.admit.run_on(frame).unwrap().verdict;
        let taken = self.take.run_on(frame).unwrap().verdict;
        assert!([0, u32::MAX].contains(&admitted) && [2, u32::MAX].contains(&taken));
        let gets = (admitted == u32::MAX, taken == u32::MAX);
        let by_xdp = self.xdp.run_on(frame).unwrap().verdict;
        let expected = if gets == ENGINE { TAKEN } else { PASSED };
        assert_eq!(
            i32::try_from(by_xdp),
            Ok(expected),
            "AF_XDP takes what is the engine's alone"
        );
        gets
    }

    fn take(&self, claim: Claim) {
        self.tables.take(claim).unwrap();
    }
}

const ENGINE: (bool, bool) = (true, false);
const KERNEL: (bool, bool) = (false, true);
const BOTH: (bool, bool) = (true, true);

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// A packet from one end to another; what follows its ports is zeros. `fragment`: offset in bytes, and whether more follow.
#[derive(Clone, Copy, Debug)]
struct Packet {
    source: SocketAddr,
    destination: SocketAddr,
    protocol: u8,
    fragment: Option<(u16, bool)>,
    /// Words of IPv4 options.
    options: u8,
    hardware: [u8; 6],
}

impl Packet {
    fn tcp(source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            source,
            destination,
            protocol: 6,
            fragment: None,
            options: 0,
            hardware: [0; 6],
        }
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = self.hardware.to_vec();
        frame.extend([2, 0, 0, 0, 0, 9]);
        let ports = [self.source.port(), self.destination.port()];
        let mut transport: Vec<u8> = ports.into_iter().flat_map(u16::to_be_bytes).collect();
        transport.resize(40, 0);
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([8, 0, 0x45 + self.options, 0, 0, 80, 0, 0]);
                let (offset, more) = self.fragment.unwrap_or((0, false));
                frame.extend(((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
                frame.extend([64, self.protocol, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                frame.resize(frame.len() + usize::from(self.options) * 4, 1);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let next = self.fragment.map_or(self.protocol, |_| 44);
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, next, 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                if let Some((offset, more)) = self.fragment {
                    frame.extend([self.protocol, 0]);
                    frame.extend((offset | u16::from(more)).to_be_bytes());
                    frame.extend([0, 0, 0, 7]);
                }
            }
            _ => panic!("one family"),
        }
        frame.extend(transport);
        frame
    }
}

fn claims_of(address: &str) -> [Claim; 3] {
    [
        Claim::Address(address.parse().unwrap()),
        Claim::Port {
            transport: Transport::Tcp,
            local: at(
                if address.contains(':') {
                    "::"
                } else {
                    "0.0.0.0"
                },
                80,
            ),
            is_dual: false,
        },
        Claim::Flow {
            transport: Transport::Tcp,
            local: at(address, 40_000),
            remote: at("10.0.0.9", 443),
        },
    ]
}

#[test]
fn nothing_is_taken_before_it_is_claimed_and_after_it_was_left() {
    let Some(scene) = Scene::new("nothing_is_taken_before_it_is_claimed") else {
        return;
    };
    let [address, port, flow] = claims_of(OURS[0]);
    let peer = at("10.0.0.9", 443);
    let to_port = Packet::tcp(peer, at(OURS[0], 80)).frame();
    let of_flow = Packet::tcp(peer, at(OURS[0], 40_000)).frame();
    assert_eq!(scene.who_gets(&to_port), KERNEL);
    scene.take(port);
    assert_eq!(scene.who_gets(&to_port), KERNEL, "of no address yet");
    scene.take(address);
    scene.take(port);
    assert_eq!(scene.who_gets(&to_port), ENGINE);
    assert_eq!(scene.who_gets(&of_flow), KERNEL);
    scene.take(flow);
    assert_eq!(scene.who_gets(&of_flow), ENGINE);
    let other_peer = Packet::tcp(at("10.0.0.9", 444), at(OURS[0], 40_000)).frame();
    assert_eq!(scene.who_gets(&other_peer), KERNEL);
    scene.tables.leave(flow);
    assert_eq!(scene.who_gets(&of_flow), KERNEL);
    scene.tables.leave(port);
    assert_eq!(scene.who_gets(&to_port), ENGINE, "it was taken twice");
    scene.tables.leave(port);
    assert_eq!(scene.who_gets(&to_port), KERNEL);
    scene.tables.leave(port);
    scene.tables.leave(flow);
    assert_eq!(scene.who_gets(&to_port), KERNEL, "left too often");
}

#[test]
fn forwarded_packets_and_other_protocols_are_the_kernels() {
    let Some(scene) = Scene::new("forwarded_packets_and_other_protocols") else {
        return;
    };
    for (ours, stranger) in OURS.into_iter().zip(STRANGERS) {
        let [address, port, _] = claims_of(ours);
        scene.take(address);
        scene.take(port);
        let peer = if ours.contains(':') {
            "2001:db8::9"
        } else {
            "10.0.0.9"
        };
        let packet = Packet::tcp(at(peer, 9), at(ours, 80));
        assert_eq!(scene.who_gets(&packet.frame()), ENGINE);
        let forwarded = Packet::tcp(at(peer, 9), at(stranger, 80));
        assert_eq!(scene.who_gets(&forwarded.frame()), KERNEL);
        for protocol in [17, 47, 50, 132] {
            let other = Packet { protocol, ..packet };
            assert_eq!(scene.who_gets(&other.frame()), KERNEL, "{protocol}");
        }
        let optioned = Packet {
            options: 3,
            ..packet
        };
        if ours == OURS[0] {
            assert_eq!(scene.who_gets(&optioned.frame()), ENGINE);
        }
    }
}

#[test]
fn frames_for_other_stations_and_tagged_ones_are_not_taken_by_xdp() {
    let Some(scene) = Scene::new("frames_for_other_stations_and_tagged_ones") else {
        return;
    };
    let [address, port, _] = claims_of(OURS[0]);
    scene.take(address);
    scene.take(port);
    let frame = Packet::tcp(at("10.0.0.9", 9), at(OURS[0], 80)).frame();
    let verdict = |frame: &[u8]| i32::try_from(scene.xdp.run_on(frame).unwrap().verdict).unwrap();
    assert_eq!(verdict(&frame), TAKEN);
    for byte in 0..6 {
        let mut other = frame.clone();
        other[byte] ^= 0x40;
        assert_eq!(verdict(&other), PASSED, "byte {byte}");
    }
    let mut tagged = frame;
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert_eq!(verdict(&tagged), PASSED);
}

#[test]
fn first_fragments_are_the_engines_alone_and_later_ones_go_to_both() {
    let Some(scene) = Scene::new("first_fragments_are_the_engines_alone") else {
        return;
    };
    for (ours, stranger) in OURS.into_iter().zip(STRANGERS) {
        let [address, port, _] = claims_of(ours);
        scene.take(address);
        scene.take(port);
        let packet = Packet::tcp(at(stranger, 9), at(ours, 80));
        let cut = |fragment| Packet {
            fragment: Some(fragment),
            ..packet
        };
        assert_eq!(scene.who_gets(&cut((0, true)).frame()), ENGINE);
        assert_eq!(scene.who_gets(&cut((1_480, true)).frame()), BOTH);
        assert_eq!(scene.who_gets(&cut((2_960, false)).frame()), BOTH);
        let forwarded = Packet {
            fragment: Some((1_480, true)),
            ..Packet::tcp(at(ours, 80), at(stranger, 9))
        };
        assert_eq!(scene.who_gets(&forwarded.frame()), KERNEL);
    }
}

#[test]
fn errors_of_icmp_go_to_both_and_echo_to_the_kernel() {
    let Some(scene) = Scene::new("errors_of_icmp_go_to_both") else {
        return;
    };
    for (ours, stranger) in OURS.into_iter().zip(STRANGERS) {
        scene.take(claims_of(ours)[0]);
        let (protocol, error, echo) = if ours.contains(':') {
            (58, 2, 128)
        } else {
            (1, 3, 8)
        };
        // The type stands where a port would begin.
        let of_type = |kind: u16, to| Packet {
            protocol,
            ..Packet::tcp(at(stranger, kind << 8), at(to, 0))
        };
        assert_eq!(scene.who_gets(&of_type(error, ours).frame()), BOTH);
        assert_eq!(scene.who_gets(&of_type(echo, ours).frame()), KERNEL);
        assert_eq!(scene.who_gets(&of_type(error, stranger).frame()), KERNEL);
    }
}

#[test]
fn what_is_for_many_goes_to_both_where_a_udp_socket_listens() {
    let Some(scene) = Scene::new("what_is_for_many_goes_to_both") else {
        return;
    };
    let of_udp = |ip, port| Claim::Port {
        transport: Transport::Udp,
        local: at(ip, port),
        is_dual: false,
    };
    scene.take(of_udp("0.0.0.0", 5_353));
    let packet = Packet {
        protocol: 17,
        hardware: [0x01, 0, 0x5e, 0, 0, 0xfb],
        ..Packet::tcp(at("10.0.0.9", 5_353), at("224.0.0.251", 5_353))
    };
    assert_eq!(scene.who_gets(&packet.frame()), BOTH);
    let other = Packet {
        destination: at("224.0.0.251", 5_354),
        ..packet
    };
    assert_eq!(scene.who_gets(&other.frame()), KERNEL);
    let everybody = Packet {
        hardware: [0xff; 6],
        destination: at("255.255.255.255", 5_353),
        ..packet
    };
    assert_eq!(scene.who_gets(&everybody.frame()), BOTH);
    // RFC 9293 §3.9.2.3: TCP knows no groups.
    let tcp = Packet {
        protocol: 6,
        ..packet
    };
    assert_eq!(scene.who_gets(&tcp.frame()), KERNEL);
}

#[test]
fn a_dual_port_and_one_of_a_single_address_are_told_apart() {
    let Some(scene) = Scene::new("a_dual_port_and_one_of_a_single_address") else {
        return;
    };
    for ours in OURS {
        scene.take(claims_of(ours)[0]);
    }
    scene.take(Claim::Address("10.0.0.7".parse().unwrap()));
    let claim = |ip, port, is_dual| Claim::Port {
        transport: Transport::Tcp,
        local: at(ip, port),
        is_dual,
    };
    scene.take(claim("::", 80, true));
    scene.take(claim("::", 81, false));
    scene.take(claim("10.0.0.7", 82, false));
    let gets = |to: &str, port| {
        let peer = if to.contains(':') {
            "2001:db8::9"
        } else {
            "10.0.0.9"
        };
        scene.who_gets(&Packet::tcp(at(peer, 9), at(to, port)).frame())
    };
    for (to, port, expected) in [
        (OURS[0], 80, ENGINE),
        (OURS[1], 80, ENGINE),
        (OURS[0], 81, KERNEL),
        (OURS[1], 81, ENGINE),
        (OURS[0], 82, KERNEL),
        ("10.0.0.7", 82, ENGINE),
    ] {
        assert_eq!(gets(to, port), expected, "{to} {port}");
    }
}

#[test]
fn a_connection_of_the_kernel_stays_the_kernels_on_a_claimed_port() {
    let Some(scene) = Scene::new("a_connection_of_the_kernel_stays_the_kernels") else {
        return;
    };
    let [address, port, _] = claims_of(OURS[0]);
    scene.take(address);
    scene.take(port);
    let (local, remote) = (at(OURS[0], 80), at("10.0.0.9", 5_000));
    scene.take(Claim::KernelsFlow { local, remote });
    assert_eq!(scene.who_gets(&Packet::tcp(remote, local).frame()), KERNEL);
    let other = at("10.0.0.9", 5_001);
    assert_eq!(scene.who_gets(&Packet::tcp(other, local).frame()), ENGINE);
    scene.tables.leave(Claim::KernelsFlow { local, remote });
    assert_eq!(scene.who_gets(&Packet::tcp(remote, local).frame()), ENGINE);
}

#[test]
fn claims_beyond_the_bound_are_refused_with_enobufs() {
    let Some(scene) = Scene::new("claims_beyond_the_bound_are_refused") else {
        return;
    };
    let flow = |n: u32| Claim::Flow {
        transport: Transport::Tcp,
        local: at(OURS[0], 40_000),
        remote: SocketAddr::new(Ipv4Addr::from_bits(n).into(), 443),
    };
    let mut taken = 0;
    let refused = loop {
        match scene.tables.take(flow(taken)) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(libc::ENOBUFS));
    assert_eq!(taken, CLAIMS_MAX);
    scene.tables.leave(flow(5));
    scene.take(flow(taken));
}

#[test]
fn frames_that_end_too_soon_are_the_kernels() {
    let Some(scene) = Scene::new("frames_that_end_too_soon_are_the_kernels") else {
        return;
    };
    for ours in OURS {
        let [address, port, _] = claims_of(ours);
        scene.take(address);
        scene.take(port);
        let peer = if ours.contains(':') {
            "2001:db8::9"
        } else {
            "10.0.0.9"
        };
        let frame = Packet::tcp(at(peer, 9), at(ours, 80)).frame();
        let ports_end = frame.len() - 36;
        // The kernel runs programs on frames with a whole IP header only.
        for len in ports_end - 4..ports_end {
            assert_eq!(scene.who_gets(&frame[..len]), KERNEL, "{len}");
        }
        assert_eq!(scene.who_gets(&frame[..ports_end]), ENGINE);
    }
}
