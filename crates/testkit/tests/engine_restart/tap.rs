//! An engine over a TAP interface, with the kernel of its own host on the other end, is killed, or another build takes its place.

use std::path::Path;

use testkit::world::{self, Mode, World, finish};
use testkit::{PATIENCE, Program};

use super::{TRANSFER, WAITER, disturbed_between, kill_engine, kill_until_given_up, status};

/// The interface, and the engine's address on it.
const NIC: &str = "shunt0";
const ENGINE: &str = "10.99.0.2";

/// An engine that makes such an interface; `None`: it cannot be made here.
fn world(test: &str) -> Option<World> {
    if !Path::new("/dev/net/tun").exists() {
        world::skip(test, "there is no /dev/net/tun");
        return None;
    }
    if !world::can_run(test, &["python3", "ip"]) {
        return None;
    }
    let mut world = World::without_engine(test, Mode::Engine);
    let flags = ["--driver", "tap", "--nic", NIC, "--address", "10.99.0.2/24"];
    world.engine = world.start_engine(&flags);
    let words = ["ip", "address", "add", "10.99.0.1/24", "dev", NIC];
    let added = finish(world.start("a", &words));
    assert!(added.status.success(), "{added:?}");
    Some(world)
}

/// Both ends of a script with these words: the tested one listens, its peer is on the kernel of the same host.
fn ends(world: &World, script: &'static str, [ours, theirs]: [&[&'static str]; 2]) -> [Program; 2] {
    let words = |role: &'static str, more: &[&'static str]| {
        [&["python3", "-c", script, role][..], more, &[ENGINE]].concat()
    };
    let mut tested = world.start_tested(&words("listen", ours));
    let is_ready = |tested: &Program| tested.stdout().contains("ready");
    tested.wait_until("server", PATIENCE, is_ready).unwrap();
    [tested, world.start("a", &words("connect", theirs))]
}

#[test]
fn a_transfer_over_a_tap_interface_goes_on_over_kills_and_upgrades() {
    let Some(world) = world("restart-tap") else {
        return;
    };
    let shunt = testkit::shunt().display().to_string();
    let upgrade = || {
        let words = [&shunt, "upgrade", "--with", &shunt, "--json"];
        let done = finish(world.start("a", &words.map(|word: &str| word)));
        assert!(done.status.success(), "{done:?}");
    };
    // What the kernel knows of the other end goes on to be true.
    let neighbours = || finish(world.start("a", &["ip", "neighbour", "show", "dev", NIC])).stdout;
    let address_of = |said: String| {
        let words: Vec<_> = said.split_whitespace().map(str::to_owned).collect();
        let at = words.iter().position(|word| word == "lladdr");
        at.map(|at| words[at + 1].clone())
    };
    let mut known = None;
    for tested_sends in [true, false] {
        let mut works: [&[&str]; 2] = [&["send"], &["receive"]];
        if !tested_sends {
            works.reverse();
        }
        let both = ends(&world, TRANSFER, works);
        disturbed_between(both, tested_sends, |round| {
            known = known.take().or_else(|| address_of(neighbours()));
            if round % 2 == 0 {
                kill_engine(&world);
            } else {
                upgrade();
            }
        });
    }
    assert!(known.is_some());
    assert_eq!(address_of(neighbours()), known, "another hardware address");
    let kept = &status(&world)["kept"];
    assert_eq!(
        (&kept["restarts"], &kept["upgrades"]),
        (&6.into(), &6.into()),
        "{kept}"
    );
}

#[test]
fn a_service_over_a_tap_interface_that_is_given_up_resets_its_connections() {
    let Some(world) = world("restart-tap-reset") else {
        return;
    };
    let mut both = ends(&world, WAITER, [&[], &[]]);
    for end in &mut both {
        let is_up = |end: &Program| end.stdout().contains("up");
        end.wait_until("connection", PATIENCE, is_up).unwrap();
    }
    kill_until_given_up(&world);
    let log = world.engine.as_ref().unwrap().stderr();
    assert!(log.contains("1 connections that no engine serves"), "{log}");
    for end in both {
        let done = finish(end);
        assert!(done.stdout.contains("reset"), "{done:?} {log}");
    }
}
