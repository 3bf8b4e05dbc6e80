//! After which turns more is to be expected: those that did something for a program or a connection.

use crate::harness::{ADDRESSES, Program, Wired, small_limits};
use hostif::Op;

#[test]
fn what_the_stack_answers_by_itself_serves_nobody() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let programs = [&mut active, &mut passive];
    let (near, _far) = Program::connected(&mut wired, programs, &listener);
    wired.run_until_idle();
    let poll = |wired: &mut Wired, side: usize| {
        let now = wired.now;
        let core = &mut wired.cores[side];
        (core.poll(now, None) > 0, core.has_served())
    };
    assert_eq!(poll(&mut wired, 0), (false, false), "nothing to do");
    active.send(&near, b"word");
    assert_eq!(poll(&mut wired, 0), (true, true), "a note");
    assert_eq!(poll(&mut wired, 1), (true, true), "data");
    wired.run_until_idle();
    // A SYN to a port where nobody listens is answered with RST (RFC 9293 §3.10.7.1).
    let socket = active.open(&mut wired).unwrap();
    let connect = Op::Connect {
        remote: (ADDRESSES[1], 9).into(),
        local: None,
    };
    active.post(Some(socket.id), connect);
    assert_eq!(poll(&mut wired, 0), (true, true), "a command");
    assert_eq!(poll(&mut wired, 1), (true, false), "nobody's");
    assert_eq!(
        poll(&mut wired, 0),
        (true, true),
        "an error for the program"
    );
}
