//! Who is signalled of a socket's events: what the engine makes happen on the end that the program has. That the kernel
//! makes signals of it is what the parity program `sigio` tells.

use super::scene::Scene;
use crate::harness::{Program, Socket, Wired};
use hostif::Flags;
use hostif::control::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;

fn end_of(wired: &mut Wired, program: &Program, socket: &Socket) -> Result<OwnedFd, Errno> {
    let request = Request::Signals { socket: socket.id };
    match program.request(wired, &request, &[])? {
        (Reply::Signals, mut ends) => Ok(ends.remove(0)),
        (other, _) => panic!("{other:?} is no end"),
    }
}

fn hung_up(end: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(end, PollFlags::RDHUP)];
    rustix::event::poll(&mut watched, Some(&Timespec::default())).unwrap();
    watched[0].revents().contains(PollFlags::RDHUP)
}

#[test]
fn who_does_not_hold_a_socket_gets_no_end_of_it() {
    let mut scene = Scene::new();
    let (near, _far) = scene.connected();
    let Scene { wired, active, .. } = &mut scene;
    assert!(end_of(wired, active, &near).is_ok());
    let mut stale = near.clone();
    stale.id.generation += 1;
    assert_eq!(end_of(wired, active, &stale).err(), Some(Errno::BADF));
    let other = wired.attach(0);
    assert_eq!(end_of(wired, &other, &near).err(), Some(Errno::BADF));
}

#[test]
fn the_end_is_one_for_all_who_ask_and_hangs_up_with_the_connection() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let end = end_of(&mut scene.wired, &scene.active, &near).unwrap();
    let again = end_of(&mut scene.wired, &scene.active, &near).unwrap();
    let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
    assert_eq!(inode(&end), inode(&again));
    scene.passive.send(&far, b"data");
    scene.wired.run_until_idle();
    assert!(!hung_up(&end));
    let left = rustix::net::recv(&end, &mut [0_u8; 8], RecvFlags::DONTWAIT);
    assert_eq!(left.err(), Some(Errno::AGAIN), "the engine took it back");
    // What nobody has read makes a reset of the end.
    scene.active.send(&near, b"unread");
    scene.wired.run_until_idle();
    drop(scene.passive);
    scene.wired.run_until_idle();
    assert!(near.flags().contains(Flags::ERROR));
    assert!(hung_up(&end));
}
