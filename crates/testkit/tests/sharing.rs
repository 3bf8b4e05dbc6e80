//! One interface and one address, shared with the kernel: unmodified programs on Shunt and on the kernel of host `a`
//! at the same time, with peers on host `b`.
//!
//! A program or privilege that is missing skips the test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "sharing/world.rs"]
mod world;

use std::io::Write as _;
use std::time::Duration;

use testkit::{Finished, Host, Lab, PATIENCE, Program, host};
use world::{TOOL, World, shunt};

fn finished(program: Program) -> Finished {
    program
        .finish(PATIENCE, || false)
        .and_then(Finished::success)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn ip(host: &Host, arguments: &str) {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    testkit::run(host, "ip", &arguments);
}

#[test]
fn listeners_of_both_stacks_serve_one_address_at_once() {
    World::new("share-listen").iter().for_each(both_listen);
}

fn both_listen(world: &World) {
    for address in world.shared() {
        let any = if address.contains(':') {
            "::"
        } else {
            "0.0.0.0"
        };
        let _one = world.server(true, &["echo", &address, "7000"]);
        let _any = world.server(true, &["echo", any, "7001"]);
        let _kernels = world.server(false, &["echo", &address, "7002"]);
        let before = world.status("connections");
        let held = ["7000", "7001", "7002"].map(|port| {
            let mut client = world.on_kernel(world.b(), &["hold", &address, port]);
            client
                .wait_until("answer", PATIENCE, |client| {
                    client.stdout().contains("held")
                })
                .unwrap_or_else(|error| panic!("{error}"));
            client
        });
        assert_eq!(
            world.status("connections") - before,
            2,
            "the others are the kernel's"
        );
        for client in held {
            drop(client);
        }
        let ping = if address.contains(':') { "-6" } else { "-4" };
        testkit::run(
            world.b(),
            "ping",
            &[ping, "-c", "2", "-i", "0.2", "-W", "2", &address],
        );
        for port in ["7000", "7001", "7002"] {
            finished(world.on_kernel(world.b(), &["bulk", &address, port, "3000000"]));
        }
        let refused = world.on_kernel(world.b(), &["refused", &address, "7009"]);
        finished(refused);
    }
}

#[test]
fn clients_of_both_stacks_leave_from_one_address() {
    World::new("share-connect").iter().for_each(both_connect);
}

fn both_connect(world: &World) {
    for (own, peer) in world.shared().into_iter().zip(world.peer()) {
        let mut server = world.on_kernel(world.b(), &["echo", &peer, "7100"]);
        server
            .wait_until("server", PATIENCE, |server| {
                server.stdout().contains("ready")
            })
            .unwrap();
        let clients = [
            world.on_shunt(&["bulk", &peer, "7100", "3000000", &own]),
            world.on_kernel(world.a(), &["bulk", &peer, "7100", "3000000", &own]),
            world.on_shunt(&["bulk", &peer, "7100", "3000000"]),
        ];
        for client in clients {
            let said = finished(client).stdout;
            assert!(said.contains(&own), "{said} from {own}");
        }
        assert!(world.status("time_waits") > 0, "one of them was on Shunt");
    }
}

#[test]
fn a_port_belongs_to_one_stack_at_a_time() {
    let Some(world) = World::new("share-ports") else {
        return;
    };
    let [address, _] = world.shared();
    for (kind, server) in [("tcp", "echo"), ("udp", "udp")] {
        let _on_shunt = world.server(true, &[server, &address, "7200"]);
        let _on_kernel = world.server(false, &[server, &address, "7201"]);
        for (taken, on_shunt) in [
            ("7200", false),
            ("7200", true),
            ("7201", true),
            ("7201", false),
        ] {
            for ip in [address.as_str(), "0.0.0.0"] {
                let arguments = ["bind", kind, ip, taken];
                let said = if on_shunt {
                    finished(world.on_shunt(&arguments)).stdout
                } else {
                    finished(world.on_kernel(world.a(), &arguments)).stdout
                };
                assert!(
                    said.contains("EADDRINUSE"),
                    "{kind} {ip} {taken} {on_shunt}: {said}"
                );
            }
        }
    }
}

#[test]
fn programs_of_the_host_itself_meet_on_the_shared_address() {
    let Some(world) = World::new("share-local") else {
        return;
    };
    for address in world.shared() {
        let _on_shunt = world.server(true, &["echo", &address, "7300"]);
        let _on_kernel = world.server(false, &["echo", &address, "7301"]);
        let _udp = world.server(true, &["udp", &address, "7302"]);
        for port in ["7300", "7301"] {
            finished(world.on_kernel(world.a(), &["bulk", &address, port, "300000"]));
            finished(world.on_shunt(&["bulk", &address, port, "300000"]));
        }
        finished(world.on_kernel(world.a(), &["ask", &address, "7302", "1000"]));
        finished(world.on_shunt(&["ask", &address, "7302", "1000"]));
    }
}

#[test]
fn datagrams_and_fragments_come_to_the_stack_whose_port_it_is_and_once() {
    World::new("share-udp")
        .iter()
        .for_each(both_exchange_datagrams);
}

fn both_exchange_datagrams(world: &World) {
    for (address, peer) in world.shared().into_iter().zip(world.peer()) {
        let any = if address.contains(':') {
            "::"
        } else {
            "0.0.0.0"
        };
        let _one = world.server(true, &["udp", &address, "7400"]);
        let _any = world.server(true, &["udp", any, "7401"]);
        let _kernels = world.server(false, &["udp", &address, "7402"]);
        for port in ["7400", "7401", "7402"] {
            for bytes in ["10", "1400", "8000", "40000"] {
                finished(world.on_kernel(world.b(), &["ask", &address, port, bytes]));
            }
        }
        assert_eq!(world.status("datagram_sockets"), 2);
        let mut server = world.on_kernel(world.b(), &["udp", &peer, "7403"]);
        server
            .wait_until("server", PATIENCE, |server| {
                server.stdout().contains("ready")
            })
            .unwrap();
        for bytes in ["10", "8000"] {
            finished(world.on_shunt(&["ask", &peer, "7403", bytes]));
            finished(world.on_kernel(world.a(), &["ask", &peer, "7403", bytes]));
        }
    }
}

#[test]
fn addresses_that_come_and_go_are_followed_within_a_second_or_two() {
    let Some(world) = World::new("share-follow") else {
        return;
    };
    let _server = world.server(true, &["echo", "0.0.0.0", "7500"]);
    let [own, _] = world.shared();
    finished(world.on_kernel(world.b(), &["bulk", &own, "7500", "1000"]));
    ip(world.a(), "addr add 10.77.0.177/24 dev eth0");
    let connections = || world.status("time_waits") + world.status("connections");
    // The kernel's own listener beside it would answer too: the engine has to be the one.
    testkit::wait_for(
        "connection to the new address",
        Duration::from_secs(5),
        || {
            let before = connections();
            let client = world.on_kernel(world.b(), &["hold", "10.77.0.177", "7500"]);
            let mut client = client;
            client
                .wait_until("answer", PATIENCE, |client| {
                    client.stdout().contains("held")
                })
                .unwrap();
            connections() > before
        },
    );
    ip(world.a(), "addr del 10.77.0.177/24 dev eth0");
    finished(world.on_kernel(world.b(), &["bulk", &own, "7500", "1000"]));
    let interfaces = || testkit::run(world.a(), &shunt(), &["status", "--json"]).stdout;
    testkit::wait_for(
        "the address to be forgotten",
        Duration::from_secs(5),
        || !interfaces().contains("10.77.0.177"),
    );
}

#[test]
fn an_mtu_that_changes_is_followed_by_what_is_open() {
    let Some(world) = World::new("share-mtu") else {
        return;
    };
    let [peer, _] = world.peer();
    let mut echo = world.on_kernel(world.b(), &["echo", &peer, "7600"]);
    echo.wait_until("server", PATIENCE, |echo| echo.stdout().contains("ready"))
        .unwrap_or_else(|error| panic!("{error}"));
    let mut client = world.on_shunt(&["mtu", &peer, "7600"]);
    for mtu in ["1500", "1400", "4000", "1300"] {
        for end in [world.a(), world.b()] {
            ip(end, &format!("link set eth0 mtu {mtu}"));
        }
        let told = format!("mtu {mtu} {mtu}.");
        client
            .wait_until(&told, PATIENCE, |client| client.stdout().contains(&told))
            .unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(world.status("connections"), 1, "the engine's");
}

#[test]
fn a_vlan_interface_is_shared_like_any_other() {
    let prepare = |lab: &Lab| {
        for (name, address) in [("a", "10.78.0.1/24"), ("b", "10.78.0.2/24")] {
            let host = host(lab, name);
            let line = "link add link eth0 name eth0.5 type vlan id 5";
            let line: Vec<&str> = line.split(' ').collect();
            let made = testkit::start(host, "ip", &line).finish(PATIENCE, || false);
            if made.and_then(Finished::success).is_err() {
                // A kernel without VLANs: there is nothing to share, and the engine says so.
                return;
            }
            ip(host, &format!("addr add {address} dev eth0.5"));
            ip(host, "link set eth0.5 up");
        }
    };
    let line = ["engine", "--nic", "eth0.5", "--share"];
    let Some(world) = World::with("share-vlan", &line, prepare) else {
        return;
    };
    let _on_shunt = world.server(true, &["echo", "10.78.0.1", "7600"]);
    let _on_kernel = world.server(false, &["echo", "10.78.0.1", "7601"]);
    let [untagged, _] = world.shared();
    let _beside = world.server(false, &["echo", &untagged, "7600"]);
    for (address, port) in [
        ("10.78.0.1", "7600"),
        ("10.78.0.1", "7601"),
        (&untagged, "7600"),
    ] {
        finished(world.on_kernel(world.b(), &["bulk", address, port, "300000"]));
    }
    assert_eq!(world.status("listeners"), 1);
}

#[test]
fn a_connection_that_the_kernel_had_before_stays_with_it() {
    let Some(world) = World::new("share-before") else {
        return;
    };
    let [own, _] = world.shared();
    let _kernels = world.server(false, &["leave", &own, "7700"]);
    let mut client = world.on_kernel(world.b(), &["linger", &own, "7700"]);
    let said = |client: &Program, word: &str| client.stdout().contains(word);
    client
        .wait_until("first answer", PATIENCE, |client| said(client, "held"))
        .unwrap();
    let _on_shunt = world.server(true, &["echo", &own, "7700"]);
    finished(world.on_kernel(world.b(), &["bulk", &own, "7700", "1000"]));
    if world.is_steered() {
        // The connection itself may be over.
        assert!(world.status_of("/copies/received_bytes") >= 1_000);
    }
    client
        .wait_until("later answers", PATIENCE, |client| said(client, "done"))
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_server_that_is_started_again_hears_of_every_connection() {
    let Some(world) = World::new("share-again") else {
        return;
    };
    let [own, _] = world.shared();
    let _old = world.server(true, &["leave", &own, "7710", "shared"]);
    let mut client = world.on_kernel(world.b(), &["linger", &own, "7710"]);
    let held = |client: &Program| client.stdout().contains("held");
    client
        .wait_until("first answer", PATIENCE, held)
        .unwrap_or_else(|error| panic!("{error}"));
    let _new = world.server(true, &["echo", &own, "7710", "shared"]);
    for from in [world.a(), world.b()] {
        for _ in 0..8 {
            finished(world.on_kernel(from, &["bulk", &own, "7710", "1000"]));
        }
    }
}

#[test]
fn the_host_goes_on_when_the_engine_is_killed() {
    World::new("share-killed").iter().for_each(the_engine_dies);
}

fn the_engine_dies(world: &World) {
    let [own, _] = world.shared();
    let on_shunt = world.server(true, &["echo", &own, "7800"]);
    let _on_kernel = world.server(false, &["echo", &own, "7801"]);
    let through_kernel = world.on_kernel(world.b(), &["bulk", &own, "7801", "200000000"]);
    let mut of_shunt = world.on_kernel(world.b(), &["lost", &own, "7800"]);
    of_shunt
        .wait_until("answer", PATIENCE, |client| {
            client.stdout().contains("held")
        })
        .unwrap();
    world.engine.signal(rustix::process::Signal::KILL).unwrap();
    // The peer of the engine's connection hears from the kernel: RST.
    let lost = finished(of_shunt).stdout;
    assert!(lost.contains("reset"), "{lost}");
    finished(through_kernel);
    drop(on_shunt);
    let _again = world.server(false, &["echo", &own, "7800"]);
    finished(world.on_kernel(world.b(), &["bulk", &own, "7800", "3000000"]));
    testkit::run(world.b(), "ping", &["-c", "1", "-W", "2", &own]);
}

/// The same by AF_XDP; `None`: it cannot be had, and that was said.
fn over_af_xdp(test: &str) -> Option<World> {
    let line = ["engine", "--share", "--driver", "af_xdp"];
    let world = World::with(test, &line, |_| {})?;
    let status = testkit::run(world.a(), &shunt(), &["status", "--json"]).stdout;
    if status.contains("serves instead of af_xdp") {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {status}");
        return None;
    }
    Some(world)
}

#[test]
fn listeners_of_both_stacks_share_by_af_xdp() {
    over_af_xdp("share-xdp-listen").iter().for_each(both_listen);
}

#[test]
fn clients_of_both_stacks_share_by_af_xdp() {
    over_af_xdp("share-xdp-connect")
        .iter()
        .for_each(both_connect);
}

#[test]
fn datagrams_and_fragments_share_by_af_xdp() {
    over_af_xdp("share-xdp-udp")
        .iter()
        .for_each(both_exchange_datagrams);
}

#[test]
fn the_host_goes_on_when_an_engine_that_shares_by_af_xdp_is_killed() {
    over_af_xdp("share-xdp-killed")
        .iter()
        .for_each(the_engine_dies);
}

#[test]
fn rules_that_could_drop_are_named_and_sharing_refused_unless_accepted() {
    let guard = |lab: &Lab| {
        let guarded = testkit::start(host(lab, "a"), "python3", &["-c", TOOL, "guard"]);
        let guarded = guarded.finish(PATIENCE, || false).unwrap();
        let is_there = guarded.clone().success().is_ok();
        if is_there {
            let refused = testkit::start(host(lab, "a"), &shunt(), &["engine", "--share"]);
            let said = refused.finish(PATIENCE, || false).unwrap();
            let named = "table inet guard chain input handle 2: drop";
            assert!(said.stderr.contains(named), "{}", said.stderr);
            assert!(said.stderr.contains("--ignore-firewall") && said.success().is_err());
        } else {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: share-guard: {}",
                guarded.stderr
            );
        }
    };
    let line = ["engine", "--share", "--ignore-firewall"];
    let Some(world) = World::with("share-guard", &line, guard) else {
        return;
    };
    let [own, _] = world.shared();
    let _on_shunt = world.server(true, &["echo", &own, "7900"]);
    finished(world.on_kernel(world.b(), &["bulk", &own, "7900", "300000"]));
}

#[test]
fn without_configuration_a_program_shares_the_interface_of_the_default_route() {
    let Some(world) = World::new("share-default") else {
        return;
    };
    let [own, _] = world.shared();
    let World { lab, engine } = world;
    drop(engine);
    let [a, b] = ["a", "b"].map(|name| host(&lab, name));
    ip(
        a,
        &format!("route add default via {}", b.spec().address.address),
    );
    let line = [
        "run", "--", "python3", "-c", TOOL, "echo", "0.0.0.0", "7950",
    ];
    let mut command = testkit::command(a, &shunt(), &line);
    command.env_remove("SHUNT_NIC").env_remove("SHUNT_ADDRESS");
    let mut server = Program::start("server", command).unwrap();
    server
        .wait_until("server", PATIENCE, |server| {
            server.stdout().contains("ready")
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let client = testkit::start(b, "python3", &["-c", TOOL, "bulk", &own, "7950", "300000"]);
    finished(client);
    let engines = ["status", "--engine", "@shunt/run/eth0", "--json"];
    let text = testkit::run(a, &shunt(), &engines).stdout;
    assert!(
        text.contains("steered") || text.contains("doubled"),
        "{text}"
    );
}
