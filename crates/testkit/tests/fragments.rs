//! Datagrams that are longer than a packet, as they look on the wire: an unmodified program sends the same ones
//! from the kernel and from Shunt, its peer takes down every packet, and the two lists have to be alike.
//!
//! Left out of the comparison is what no two hosts have alike: identifications, the sender's address and the
//! checksums over it (a wrong one is not received, and then the sender waits in vain).

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use testkit::{Finished, Lab, PATIENCE, Program, host};

/// Takes down what leaves the addresses `argv[1:]`, and answers each datagram with its length.
const WATCHING: &str = r#"
import hashlib, select, socket, struct, sys
own = {socket.inet_pton(socket.AF_INET6 if ":" in one else socket.AF_INET, one) for one in sys.argv[1:]}
wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
wire.bind(("eth0", 3))
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
four.bind(("0.0.0.0", 7000))
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
six.bind(("::", 7000))

def told(protocol, offset, rest):
    rest = bytearray(rest)
    if protocol == 17 and offset == 0:
        rest[6:8] = b"\0\0"
    return f"protocol={protocol} bytes={len(rest)} {hashlib.sha1(rest).hexdigest()[:12]}"

def version_4(packet):
    tos, length, _, place, ttl, protocol = struct.unpack("!xBHHHBB", packet[:10])
    flags = " DF" * (place >> 14 & 1) + " MF" * (place >> 13 & 1)
    offset = (place & 0x1fff) * 8
    rest = packet[(packet[0] & 15) * 4:length]
    return f"4 tos={tos} length={length} ttl={ttl}{flags} at={offset} {told(protocol, offset, rest)}"

def version_6(packet):
    first, length, following, hops = struct.unpack("!IHBB", packet[:8])
    label = "labelled" if first & 0xfffff else "unlabelled"
    rest, offset, part = packet[40:40 + length], 0, ""
    if following == 44:
        following, place = struct.unpack("!BxH", rest[:4])
        offset = place & 0xfff8
        part = f" fragment at={offset}" + " MF" * (place & 1)
        rest = rest[8:]
    return f"6 class={first >> 20 & 255} {label} length={length} hops={hops}{part} {told(following, offset, rest)}"

print("listening", flush=True)
while True:
    ready, _, _ = select.select([wire, four, six], [], [])
    if wire in ready:
        packet, name = wire.recvfrom(70000)
        if name[1] == 0x0800 and packet[12:16] in own:
            print(version_4(packet), flush=True)
        if name[1] == 0x86dd and packet[8:24] in own and packet[6] in (17, 44):
            print(version_6(packet), flush=True)
        continue
    for one in ready:
        datagram, peer = one.recvfrom(70000)
        if datagram == b"the end":
            sys.exit()
        one.sendto(str(len(datagram)).encode(), peer)
"#;

/// Sends from its own addresses `argv[1]` and `argv[2]` to the peer's, each datagram when the one before has arrived.
const SENDING: &str = r#"
import socket, sys
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER = 10, 23
LONGEST = {4: 65507, 6: 65527}
def send(version, lengths, *options):
    own, peer = (sys.argv[1], sys.argv[3]) if version == 4 else (sys.argv[2], sys.argv[4])
    one = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    one.settimeout(50)
    one.bind((own, 7001))
    for name, value in options:
        one.setsockopt(socket.IPPROTO_IP if version == 4 else socket.IPPROTO_IPV6, name, value)
    for length in lengths:
        one.sendto(bytes(n * 7 + n // 251 & 255 for n in range(length)), (peer, 7000))
        assert int(one.recv(100)) == length
    return one, peer
# At the edges of one packet, two and three, and the longest there is.
send(4, [0, 1, 1472, 1473, 2952, 2953, 4432, 4433, LONGEST[4]])
send(6, [0, 1, 1452, 1453, 2888, 2889, 4336, 4337, LONGEST[6]])
for discovery in 0, 3, 5:
    send(4, [1472] + [5000] * (discovery != 3), (IP_MTU_DISCOVER, discovery))
    send(6, [1452] + [5000] * (discovery != 3), (IPV6_MTU_DISCOVER, discovery))
send(4, [10, 3000], (socket.IP_TOS, 0x28), (socket.IP_TTL, 9))
one, peer = send(6, [10, 3000], (socket.IPV6_TCLASS, 0x28), (socket.IPV6_UNICAST_HOPS, 9))
one.sendto(b"the end", (peer, 7000))
"#;

fn success(program: Program) -> Finished {
    let done = program.finish(PATIENCE, || false).unwrap();
    assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
    done
}

/// What the peer saw of the program, started by `prefix` with these addresses of its own.
fn seen(lab: &Lab, prefix: &[&str], own: &[String; 2]) -> Vec<String> {
    let peer = host(lab, "b");
    let mut watching = testkit::start(peer, "python3", &["-c", WATCHING, &own[0], &own[1]]);
    let listens = |watching: &Program| watching.stdout().contains("listening");
    watching.wait_until("peer", PATIENCE, listens).unwrap();
    let spec = peer.spec();
    let peers = [
        spec.address.address.to_string(),
        spec.address_v6().to_string(),
    ];
    let line = [
        prefix,
        &[
            "python3", "-c", SENDING, &own[0], &own[1], &peers[0], &peers[1],
        ],
    ]
    .concat();
    success(testkit::start(host(lab, "a"), line[0], &line[1..]));
    let text = success(watching).stdout;
    text.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn long_datagrams_leave_in_the_packets_that_the_kernel_makes_of_them() {
    let Some((lab, _engine)) = testkit::served_hosts("fragments", &["python3"]) else {
        return;
    };
    let spec = host(&lab, "a").spec();
    let kernels = [
        spec.address.address.to_string(),
        spec.address_v6().to_string(),
    ];
    let engines = [
        spec.engine_address.address.to_string(),
        spec.engine_address_v6().to_string(),
    ];
    let of_kernel = seen(&lab, &["env"], &kernels);
    let shunt = testkit::shunt().display().to_string();
    let prefix = [&shunt[..], "run", "--policy", "engine-only", "--"];
    let of_shunt = seen(&lab, &prefix, &engines);
    // The two longest alone are 45 and 46 packets.
    assert!(of_kernel.len() > 150, "{of_kernel:#?}");
    for (number, (kernel, shunt)) in of_kernel.iter().zip(&of_shunt).enumerate() {
        assert_eq!(kernel, shunt, "packet {number}");
    }
    assert_eq!(of_kernel.len(), of_shunt.len());
}
