//! Any claims and any packets: the programs say what a list that is looked through says.

use proptest::prelude::*;

use super::*;

fn end() -> impl Strategy<Value = SocketAddr> {
    (0_u8..3, 0_u16..3).prop_map(|(host, port)| SocketAddr::from(([10, 0, 0, host], port)))
}

fn claim() -> impl Strategy<Value = Claim> {
    let transport = || prop_oneof![Just(Transport::Tcp), Just(Transport::Udp)];
    let any = Ipv4Addr::UNSPECIFIED;
    prop_oneof![
        end().prop_map(|end| Claim::Address(end.ip())),
        (transport(), end()).prop_map(|(transport, local)| Claim::Port {
            transport,
            local,
            is_dual: false
        }),
        (transport(), 0_u16..3).prop_map(move |(transport, port)| Claim::Port {
            transport,
            local: SocketAddr::from((any, port)),
            is_dual: false
        }),
        (transport(), end(), end()).prop_map(|(transport, local, remote)| Claim::Flow {
            transport,
            local,
            remote
        }),
    ]
}

fn is_claimed(claims: &[Claim], packet: &Packet) -> bool {
    let (source, destination) = (packet.source, packet.destination);
    let has_address = claims.contains(&Claim::Address(destination.ip()));
    claims.iter().any(|claim| match *claim {
        Claim::Port {
            transport, local, ..
        } => {
            number(transport) == packet.protocol
                && local.port() == destination.port()
                && (local == destination || (local.ip().is_unspecified() && has_address))
        }
        Claim::Flow {
            transport,
            local,
            remote,
        } => number(transport) == packet.protocol && (local, remote) == (destination, source),
        Claim::Address(_) | Claim::KernelsFlow { .. } => false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn exactly_what_is_claimed_is_taken(
        operations in proptest::collection::vec((claim(), any::<bool>()), 0..24),
        packets in proptest::collection::vec((end(), end(), any::<bool>()), 1..16),
    ) {
        let Some(scene) = Scene::new("exactly_what_is_claimed_is_taken") else {
            return Ok(());
        };
        let mut claims: Vec<Claim> = Vec::new();
        for (claim, takes) in operations {
            if takes {
                scene.take(claim);
                claims.push(claim);
            } else {
                scene.tables.leave(claim);
                if let Some(held) = claims.iter().position(|held| *held == claim) {
                    claims.remove(held);
                }
            }
        }
        for (source, destination, is_udp) in packets {
            let protocol = if is_udp { 17 } else { 6 };
            let packet = Packet { protocol, ..Packet::tcp(source, destination) };
            let expected = if is_claimed(&claims, &packet) { ENGINE } else { KERNEL };
            prop_assert_eq!(scene.who_gets(&packet.frame()), expected, "{:?}", packet);
        }
    }
}
