//! sendfile by reference (docs/decisions/0007-sendfile-by-reference.md): files that are under way, that their program has given back, and
//! whose connection it has closed.

use crate::tests::crashes::scene::{End, SOME, Scene};
use crate::tests::files::{file, pattern, send_file, share};
use hostif::Op;
use std::sync::atomic::Ordering;

pub fn play(mut scene: Scene) {
    let listener = scene.listen(1);
    let content = pattern(3 * SOME);
    let file = file(&content);
    let [near, far] = scene.connected(0, &listener);
    let handle = share(&scene.programs[0], &mut scene.wired, &file).unwrap();
    // Between bytes of the window, in two extents.
    scene.losses.leaving.store(1, Ordering::Relaxed);
    let before = scene.bytes(100);
    assert_eq!(scene.programs[0].send(&near.socket, &before), 100);
    send(&scene, &near, handle, (0, SOME));
    send(&scene, &near, handle, (2 * SOME, SOME));
    let after = scene.bytes(100);
    assert_eq!(scene.programs[0].send(&near.socket, &after), 100);
    let expected = [&before, &content[..SOME], &content[2 * SOME..], &after].concat();
    scene.receive(&near, &far, &expected, |_| {});
    scene.carry(&far, &near, 100);

    // The file is given back, and the connection closed, while the bytes are under way.
    scene.losses.leaving.store(2, Ordering::Relaxed);
    send(&scene, &near, handle, (SOME, SOME));
    scene.programs[0].post(None, Op::CloseBacking { handle });
    drop(file);
    scene.close(&near);
    scene.hears(&far, &content[SOME..2 * SOME]);
    scene.hears_the_end(&far);
    scene.close(&far);
    scene.close(&listener.0);
    let extents = &scene.wired.cores[0].layer.link.extents;
    assert_eq!(extents.left().count(), 0, "something is left in files");
    scene.nothing_is_left();
}

fn send(scene: &Scene, near: &End, handle: u32, (offset, len): (usize, usize)) {
    let (program, [offset, len]) = (
        &scene.programs[near.program],
        [offset, len].map(|n| n as u64),
    );
    send_file(program, &near.socket, handle, offset, len);
}
