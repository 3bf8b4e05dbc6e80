//! Does one thing to a flow many times, for whoever counts instructions: `packetbench receive 1000`, or
//! `receive-v6` over IPv6, or
//! `receive-kept` with tables whose changes can be undone.

use packetbench::{Family, Flow, memory};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(times)) = (arguments.next(), arguments.next()) else {
        eprintln!("packetbench receive|send|connect[-v6|-kept] TIMES");
        return;
    };
    let times: u32 = times.parse().expect("the second argument is a number");
    let (what, family, is_kept) = match what.split_once('-') {
        Some((what, "v6")) => (what, Family::V6, false),
        Some((what, "kept")) => (what, Family::V4, true),
        _ => (&*what, Family::V4, false),
    };
    let mut memory = memory(is_kept);
    let mut flow = Flow::established(&mut memory, family);
    let before = flow.frames();
    for _ in 0..times {
        match what {
            "receive" => flow.receive_segment(),
            "send" => flow.send_two_segments(),
            "connect" => flow.connect_and_reset(),
            other => panic!("{other} is none of receive, send, connect"),
        }
    }
    println!("{} frames", flow.frames() - before);
}
