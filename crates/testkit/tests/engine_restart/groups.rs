//! The groups of UDP sockets outlive their engine: what others send to them is heard by the next one, and what was left out is not.

use testkit::{
    PATIENCE, Program,
    world::{self, Mode, World, finish},
};

use super::kill_engine;

/// Joins a group, another one for its peer alone, a third without its peer, and one of IPv6; tells what it hears.
const MEMBER: &str = r"import select, socket, sys
own, peer = map(socket.inet_aton, sys.argv[1:3])
group = lambda n: socket.inet_aton('239.77.0.%d' % n)
v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); v4.bind(('', 9000))
v4.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group(1) + own)
v4.setsockopt(socket.IPPROTO_IP, 39, group(2) + own + peer)  # IP_ADD_SOURCE_MEMBERSHIP
v4.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group(3) + own)
v4.setsockopt(socket.IPPROTO_IP, 38, group(3) + own + peer)  # IP_BLOCK_SOURCE
v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); v6.bind(('::', 9001))
v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, 'ff15::77') + bytes(4))
print('ready', flush=True)
while True:
    for s in select.select([v4, v6], [], [])[0]: print('from', s.recv(100).decode(), flush=True)";

/// Sends to each of these groups, for ever.
const SENDER: &str = r"import socket, sys, time
s4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s4.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
s6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex('eth0'))
while True:
    for n in 1, 2, 3: s4.sendto(b'%d' % n, ('239.77.0.%d' % n, 9000))
    s6.sendto(b'6', ('ff15::77', 9001)); time.sleep(0.02)";

/// How often each line was said that begins with "from".
fn heard(member: &Program, from: &str) -> usize {
    let line = format!("from {from}");
    member.stdout().lines().filter(|one| *one == line).count()
}

#[test]
fn groups_are_heard_over_a_kill_and_an_upgrade() {
    if !world::can_run("restart-groups", &["python3"]) {
        return;
    }
    let world = World::new("restart-groups", Mode::Engine);
    let (own, peer) = (world.tested_address(), world.peer_address());
    let mut member = world.start_tested(&["python3", "-c", MEMBER, &own, &peer]);
    let is_ready = |one: &Program| one.stdout().contains("ready");
    member.wait_until("member", PATIENCE, is_ready).unwrap();
    let _sender = world.start_peer(&["python3", "-c", SENDER, &peer]);
    let shunt = testkit::shunt().display().to_string();
    let upgrade = || {
        let words = [&shunt, "upgrade", "--with", &shunt, "--json"];
        let done = finish(world.start("a", &words));
        assert!(done.status.success(), "{done:?}");
    };
    let disturbances: [&dyn Fn(); 4] = [&|| {}, &|| kill_engine(&world), &upgrade, &|| {
        kill_engine(&world)
    }];
    for disturb in disturbances {
        disturb();
        let before = ["1", "2", "6"].map(|group| heard(&member, group));
        member
            .wait_until("all groups", PATIENCE, |member| {
                let now = ["1", "2", "6"].map(|group| heard(member, group));
                now.iter()
                    .zip(before)
                    .all(|(now, before)| *now > before + 10)
            })
            .unwrap();
    }
    assert_eq!(heard(&member, "3"), 0, "its sender is left out");
}
