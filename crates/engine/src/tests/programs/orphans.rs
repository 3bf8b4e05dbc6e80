//! Descriptors that are open where no session says so: what they keep, who may take them up, and their end.

use crate::harness::{Program, Socket, Wired};
use crate::tests::scene::Scene;
use core::net::SocketAddr;
use hostif::Flags;
use hostif::Op;
use hostif::control::{Adopted, Reply, Request};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use tcp::Duration;

/// What another process would have of a program's descriptor.
fn copy(program: &Program) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&program.backing, 0).unwrap()
}

fn adopt(wired: &mut Wired, program: &Program, fd: &OwnedFd) -> Result<Adopted, Errno> {
    match program.request(wired, &Request::Adopt, &[fd.as_fd()])? {
        (Reply::Adopted(adopted), _) => Ok(adopted),
        (other, _) => panic!("{other:?} adopts nothing"),
    }
}

/// Connects to the listener from the port that the kernel holds for the program; which one.
fn connect_from_its_port(scene: &mut Scene) -> u16 {
    let port = scene.active.port();
    let local = Some(SocketAddr::from(([0; 4], port)));
    let near = scene.active.open(&mut scene.wired).unwrap();
    let remote = scene.listener.1;
    let connect = Op::Connect { remote, local };
    scene
        .active
        .try_call(&mut scene.wired, near.id, connect)
        .unwrap();
    scene.wired.run_until_idle();
    port
}

fn ended(far: &Socket) -> bool {
    far.flags().intersects(Flags::FIN | Flags::ERROR)
}

/// The program closes its descriptor; the connection goes with the other.
fn outlives_its_close(mut scene: Scene, near: &Socket, far: &Socket, elsewhere: OwnedFd) {
    scene.active.close(near);
    scene.active.backing = crate::harness::kernel_socket();
    scene.wired.advance(Duration::from_secs(1));
    assert!(!ended(far));
    drop(elsewhere);
    scene.wired.advance(Duration::from_ms(128));
    assert!(far.flags().contains(Flags::FIN));
}

#[test]
fn who_has_the_descriptor_of_a_dead_program_goes_on_with_its_connection() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let elsewhere = copy(&scene.active);
    scene.active.send(&near, b"one");
    drop(scene.active);
    scene.wired.advance(Duration::from_secs(60));
    assert!(!ended(&far));
    scene.passive.send(&far, b"two");
    scene.wired.run_until_idle();
    let mut heir = scene.wired.attach(0);
    let adopted = adopt(&mut scene.wired, &heir, &elsewhere).unwrap();
    assert_eq!(
        (adopted.socket, adopted.region),
        (near.id, near.region().id())
    );
    let map = Request::MapRegion {
        region: adopted.region,
    };
    heir.request(&mut scene.wired, &map, &[]).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(heir.receive(&near, &mut bytes), 3);
    assert_eq!(heir.send(&near, b"three"), 5);
    scene.wired.run_until_idle();
    assert_eq!(scene.passive.receive(&far, &mut bytes), 8);
    assert_eq!(&bytes, b"onethree");
    drop(elsewhere);
    heir.close(&near);
    scene.wired.advance(Duration::from_ms(1));
    // The engine had the only descriptor left.
    assert!(far.flags().contains(Flags::FIN));
    assert!(!far.flags().contains(Flags::ERROR));
}

#[test]
fn a_connection_ends_soon_after_its_last_descriptor() {
    let mut scene = Scene::new();
    let (_near, far) = scene.connected();
    let elsewhere = copy(&scene.active);
    drop(scene.active);
    scene.wired.advance(Duration::from_secs(1));
    assert!(!ended(&far));
    drop(elsewhere);
    scene.wired.advance(Duration::from_ms(128));
    assert!(far.flags().contains(Flags::FIN));
    scene.passive.close(&far);
    scene.wired.advance(Duration::from_secs(600));
    assert_eq!(scene.wired.holdings()[0][..2], [0, 0]);
}

#[test]
fn the_port_of_a_dead_program_stays_taken_until_its_time_wait_is_over() {
    let mut scene = Scene::new();
    let port = connect_from_its_port(&mut scene);
    let far = scene
        .passive
        .accept(&mut scene.wired, &scene.listener.0)
        .unwrap();
    let is_taken = || {
        let socket = crate::harness::kernel_socket_on(([127, 0, 0, 1], port).into());
        socket.err() == Some(Errno::ADDRINUSE)
    };
    drop(scene.active);
    scene.wired.advance(Duration::from_ms(128));
    scene.passive.close(&far);
    scene.wired.advance(Duration::from_secs(59));
    assert!(is_taken());
    scene.wired.advance(Duration::from_secs(600));
    assert!(!is_taken());
}

#[test]
fn a_port_that_the_engine_chose_is_the_kernels_to_give() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let (local, _) = near.header().addresses();
    let port = local.unwrap().port();
    drop(scene.active);
    scene.wired.advance(Duration::from_ms(128));
    scene.passive.close(&far);
    scene.wired.advance(Duration::from_secs(1));
    assert!(crate::harness::kernel_socket_on(([127, 0, 0, 1], port).into()).is_ok());
}

#[test]
fn a_socket_that_was_shared_outlives_the_last_close() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let elsewhere = copy(&scene.active);
    let socket = Some(near.id);
    let (reply, _) = scene
        .active
        .request(&mut scene.wired, &Request::Share { socket }, &[])
        .unwrap();
    assert_eq!(reply, Reply::Shared);
    outlives_its_close(scene, &near, &far, elsewhere);
}

#[test]
fn a_child_that_ended_without_a_close_may_have_executed_a_program() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let channel = scene.active.fork(&mut scene.wired).unwrap();
    let elsewhere = copy(&scene.active);
    drop(channel);
    scene.wired.run_until_idle();
    outlives_its_close(scene, &near, &far, elsewhere);
}

#[test]
fn only_the_descriptor_itself_adopts() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let other = scene.wired.attach(0);
    let strange = crate::harness::kernel_socket();
    let refused = adopt(&mut scene.wired, &other, &strange);
    assert_eq!(refused, Err(Errno::NOENT));
    let file = rustix::io::fcntl_dupfd_cloexec(&other.file, 0).unwrap();
    assert_eq!(adopt(&mut scene.wired, &other, &file), Err(Errno::NOTSOCK));
    // A socket that its program has closed is nobody's, though its end takes a while.
    let elsewhere = copy(&scene.active);
    scene.active.close(&near);
    scene.wired.run_until_idle();
    assert!(far.flags().contains(Flags::FIN));
    let late = adopt(&mut scene.wired, &other, &elsewhere);
    assert_eq!(late, Err(Errno::NOENT));
}

#[test]
fn a_program_of_another_user_adopts_nothing() {
    let mut scene = Scene::new();
    let (_near, far) = scene.connected();
    let elsewhere = copy(&scene.active);
    let other = scene.wired.attach(0);
    let own = rustix::process::geteuid().as_raw();
    // Nor does root: whose memory it is may keep the locks in it.
    for uid in [0, 65_534].into_iter().filter(|uid| *uid != own) {
        let session = scene.wired.cores[0].programs.get_mut(other.slot);
        let users = crate::programs::users::Users::direct();
        session.unwrap().user = users.user(uid).unwrap();
        let refused = adopt(&mut scene.wired, &other, &elsewhere);
        assert_eq!(refused, Err(Errno::ACCESS));
    }
    assert!(!ended(&far));
}

#[test]
fn what_the_peer_does_meanwhile_is_seen_by_the_heir() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let elsewhere = copy(&scene.active);
    scene.active.send(&near, b"never read");
    scene.wired.run_until_idle();
    drop(scene.active);
    scene.wired.run_until_idle();
    scene.passive.close(&far);
    scene.wired.run_until_idle();
    let heir = scene.wired.attach(0);
    adopt(&mut scene.wired, &heir, &elsewhere).unwrap();
    assert!(near.flags().contains(Flags::ERROR));
    assert_eq!(near.header().error(), 104, "ECONNRESET");
}

#[test]
fn a_listener_without_a_program_goes_on_listening() {
    let mut scene = Scene::new();
    let elsewhere = copy(&scene.passive);
    let (listener, address) = (scene.listener.0.clone(), scene.listener.1);
    drop(scene.passive);
    scene.wired.run_until_idle();
    let near = scene.active.connect(&mut scene.wired, address).unwrap();
    scene.wired.run_until_idle();
    assert!(near.flags().contains(Flags::CONNECTED));
    let mut heir = scene.wired.attach(1);
    adopt(&mut scene.wired, &heir, &elsewhere).unwrap();
    heir.accept(&mut scene.wired, &listener).unwrap();
}

#[test]
fn who_breaks_the_protocol_leaves_nothing_behind_whatever_it_keeps_open() {
    let mut scene = Scene::new();
    let (_near, far) = scene.connected();
    let slot = scene.active.slot;
    scene.wired.cores[0].fault(slot, 0, "nothing that makes sense");
    scene.wired.run_until_idle();
    assert!(ended(&far));
}

#[test]
fn a_listener_stays_what_its_descriptor_stands_for() {
    let mut scene = Scene::new();
    let fd = copy(&scene.passive);
    // A process that has the listener too, and opens a socket for it because it does not know that.
    let late = scene.passive.open(&mut scene.wired).unwrap();
    let heir = scene.wired.attach(1);
    let listener = scene.listener.0.id;
    let adopted = adopt(&mut scene.wired, &heir, &fd).unwrap();
    assert_eq!(adopted.socket, listener);
    scene.passive.close(&late);
    scene.wired.run_until_idle();
    let adopted = adopt(&mut scene.wired, &heir, &fd).unwrap();
    assert_eq!(adopted.socket, listener);
}

#[test]
fn a_user_whose_thread_is_kept_does_not_make_the_engine_look_without_pause() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let users = crate::programs::users::Users::with_threads(50);
    let user = users.user(4_242).unwrap();
    let (go, may_go) = std::sync::mpsc::sync_channel::<()>(0);
    user.run(move || may_go.recv().expect("somebody says when"));
    let backing = user.keep(copy(&scene.active));
    scene.wired.cores[0]
        .layer
        .sockets
        .keep_backing(near.id.row(), Some(backing));
    drop(scene.active);
    scene.wired.serve();
    let next_look = scene.wired.cores[0].layer.orphans.next_look();
    assert!(next_look.is_some_and(|look| look > scene.wired.now));
    assert!(
        !ended(&far),
        "nobody knows yet whether a descriptor is open"
    );
    go.send(()).unwrap();
}

#[test]
fn who_closes_and_adopts_again_holds_what_it_adopted() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let fd = copy(&scene.active);
    let mut heir = scene.wired.attach(0);
    adopt(&mut scene.wired, &heir, &fd).unwrap();
    heir.close(&near);
    // The request comes by another way than the ring, and is seen first.
    adopt(&mut scene.wired, &heir, &fd).unwrap();
    scene.active.close(&near);
    scene.wired.run_until_idle();
    assert!(!ended(&far));
    assert_eq!(heir.send(&near, b"mine"), 4);
    scene.wired.run_until_idle();
    let mut bytes = [0; 8];
    assert_eq!(scene.passive.receive(&far, &mut bytes), 4);
}

#[test]
fn a_spared_descriptor_is_missed_only_by_who_comes_after_the_last_holder() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let elsewhere = copy(&scene.active);
    let spare = |scene: &mut Scene| scene.wired.cores[0].layer.sockets.spare_backings();
    assert!(spare(&mut scene));
    assert!(!spare(&mut scene), "none is left");
    let heir = scene.wired.attach(0);
    adopt(&mut scene.wired, &heir, &elsewhere).unwrap();
    drop(scene.active);
    scene.wired.run_until_idle();
    assert_eq!(heir.send(&near, b"mine"), 4);
    scene.wired.run_until_idle();
    let mut bytes = [0; 8];
    assert_eq!(scene.passive.receive(&far, &mut bytes), 4);
    drop(heir);
    scene.wired.run_until_idle();
    assert!(ended(&far), "nobody can tell whether `elsewhere` is open");
}

#[test]
fn what_is_open_elsewhere_and_what_holds_a_port_is_not_spared() {
    let mut scene = Scene::new();
    let (_near, far) = scene.connected();
    let share = Request::Share { socket: None };
    scene.active.request(&mut scene.wired, &share, &[]).unwrap();
    assert!(!scene.wired.cores[0].layer.sockets.spare_backings());
    let _elsewhere = copy(&scene.active);
    drop(scene.active);
    scene.wired.advance(Duration::from_secs(1));
    assert!(!ended(&far));

    let mut scene = Scene::new();
    connect_from_its_port(&mut scene);
    assert!(!scene.wired.cores[0].layer.sockets.spare_backings());
}
