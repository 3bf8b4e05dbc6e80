//! Programs that attach, fork, hand descriptors on, and end: with open connections, and with descriptors of them open elsewhere.

use crate::tests::crashes::scene::{End, Scene};
use crate::tests::crashes::sys::DESCRIPTORS_OF_TESTS;
use hostif::Flags;
use hostif::control::{Reply, Request};
use rustix::fd::{AsFd as _, OwnedFd};
use tcp::Duration;

pub fn play(mut scene: Scene) {
    let listener = scene.listen(1);
    let parent = attach(&mut scene);
    let [near, far] = scene.connected(parent, &listener);
    scene.carry(&near, &far, 100);
    let child = fork(&mut scene, parent);
    let of_child = End {
        program: child,
        ..near.clone()
    };
    scene.carry(&of_child, &far, 100);
    scene.carry(&far, &near, 100);
    // The child goes on with it alone.
    scene.close(&near);
    scene.carry(&far, &of_child, 100);
    scene.carry(&of_child, &far, 100);

    // Both end, and somebody has the descriptor: it goes on with what came meanwhile.
    let elsewhere = copy(&scene, parent);
    leave(&mut scene, parent);
    leave(&mut scene, child);
    let meanwhile = scene.bytes(100);
    assert_eq!(scene.programs[1].send(&far.socket, &meanwhile), 100);
    scene.wired.advance(Duration::from_secs(1));
    let program = attach(&mut scene);
    let of_heir = End { program, ..near };
    adopt(&mut scene, &of_heir, &elsewhere);
    drop(elsewhere);
    scene.receive(&far, &of_heir, &meanwhile, |_| {});
    scene.carry(&of_heir, &far, 100);
    scene.end([&of_heir, &far]);

    // With a connection that nobody else has, right after it has written.
    let [near, far] = scene.connected(program, &listener);
    let words = scene.bytes(100);
    assert_eq!(scene.programs[program].send(&near.socket, &words), 100);
    leave(&mut scene, program);
    scene.hears(&far, &words);
    scene.hears_the_end(&far);
    scene.close(&far);

    // As a listener, with a connection that it has not accepted.
    let last = attach(&mut scene);
    let own = scene.listen(last);
    let far = scene.connect(1, &own);
    leave(&mut scene, last);
    scene.hears_a_reset(&far);
    scene.close(&far);
    scene.close(&listener.0);
    scene.nothing_is_left();
}

/// A program that comes to the engine by its control socket.
pub fn attach(scene: &mut Scene) -> usize {
    let program = scene.wired.attach_by_socket(0).unwrap();
    scene.programs.push(program);
    scene.programs.len() - 1
}

/// A child that has what its parent has.
fn fork(scene: &mut Scene, parent: usize) -> usize {
    let channel = scene.programs[parent].fork(&mut scene.wired).unwrap();
    let child = scene.wired.greet(0, channel).unwrap();
    scene.programs.push(child);
    scene.programs.len() - 1
}

/// What another process would have of a program's descriptor.
fn copy(scene: &Scene, program: usize) -> OwnedFd {
    let backing = &scene.programs[program].backing;
    rustix::io::fcntl_dupfd_cloexec(backing, DESCRIPTORS_OF_TESTS).unwrap()
}

/// The program ends, as its descriptors do.
pub fn leave(scene: &mut Scene, program: usize) {
    let program = &mut scene.programs[program];
    program.backing = crate::harness::kernel_socket();
    rustix::net::shutdown(&program.control, rustix::net::Shutdown::Both).unwrap();
    scene.wired.run_until_idle();
}

/// Takes up the socket of which somebody has a descriptor.
fn adopt(scene: &mut Scene, end: &End, fd: &OwnedFd) {
    let program = &scene.programs[end.program];
    let asked = program.request(&mut scene.wired, &Request::Adopt, &[fd.as_fd()]);
    let (Reply::Adopted(adopted), _) = asked.unwrap() else {
        panic!("nothing was adopted");
    };
    assert_eq!(adopted.socket, end.socket.id);
    let region = adopted.region;
    assert_eq!(region, end.socket.region().id());
    let map = Request::MapRegion { region };
    program.request(&mut scene.wired, &map, &[]).unwrap();
    assert!(end.socket.flags().contains(Flags::CONNECTED));
}
