//! Fast Open (RFC 7413) at listeners and for connections: cookies given and kept, bounds, and when it is left be.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{Duration, FastOpen, Instant, State};
use std::net::{Ipv4Addr, SocketAddr};
use wire::tcp::{FastOpenCookie, Flags, Header, Options};

const NOW: Instant = Instant::from_us(1_000_000_000);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const BOTH: FastOpenModes = FastOpenModes::CLIENT.union(FastOpenModes::SERVER);

fn node(memory: &mut HeapTables, change: impl FnOnce(&mut Config)) -> Node<'_> {
    let mut config = config(ME);
    config.fast_open = BOTH;
    change(&mut config);
    let mut stack = Stack::new(memory.tables(), config).unwrap();
    configure(&mut stack, NOW, ME);
    let mut node = Node::with(stack, Shared::default());
    node.knows(NOW, 254);
    node.transmit(NOW);
    node
}

fn memory() -> HeapTables {
    HeapTables::new(64, 4, 64).unwrap()
}

fn with_cookie(cookie: Option<FastOpenCookie>) -> Options {
    Options {
        mss: Some(1_460),
        fast_open: cookie,
        ..Options::default()
    }
}

/// A SYN from `port` of `from`; returns the answer, if there is one.
fn syn(
    node: &mut Node<'_>,
    now: Instant,
    (from, port): (Ipv4Addr, u16),
    cookie: Option<FastOpenCookie>,
    data: &[u8],
) -> Option<Header> {
    let header = Header {
        options: with_cookie(cookie),
        ..header(port, 80, 700, 0, Flags::SYN)
    };
    node.deliver(now, &segment(from, ip(ME), &header, data));
    let sent = segments(&node.transmit(now));
    let answer = sent
        .into_iter()
        .find(|(_, reply, _)| reply.destination_port == port)?;
    Some(answer.1)
}

/// The cookie that a client is given.
fn cookie_for(node: &mut Node<'_>, from: Ipv4Addr) -> FastOpenCookie {
    let answer = syn(node, NOW, (from, 4_000), Some(FastOpenCookie::REQUEST), b"");
    let answer = answer.expect("a SYN-ACK");
    let reset = header(4_000, 80, 701, 0, Flags::RST);
    node.deliver(NOW, &segment(from, ip(ME), &reset, &[]));
    answer.options.fast_open.expect("a cookie")
}

fn takes_data(answer: Option<Header>) -> bool {
    answer.expect("a SYN-ACK").ack > 701
}

#[test]
fn a_cookie_that_was_given_opens_with_data_and_an_answer_before_the_handshake_is_over() {
    let (mut memory, later) = (memory(), NOW + ms(5));
    let mut node = node(&mut memory, |_| {});
    let listener = node.listen(80, 8);
    node.stack.set_fast_open(listener, 8).unwrap();
    let cookie = cookie_for(&mut node, CLIENT);
    assert_eq!(cookie.as_bytes().len(), 8);
    let answer = syn(&mut node, later, (CLIENT, 5_000), Some(cookie), b"GET /").unwrap();
    assert_eq!((answer.ack, answer.options.fast_open), (706, None));
    assert_eq!(node.ready(80), 1);
    let owner = node.accept(listener).unwrap();
    assert_eq!(node.received(owner), b"GET /");
    assert_eq!(node.view(owner).state, State::SynReceived);
    node.write(later, owner, b"hello");
    let sent = segments(&node.transmit(later));
    assert_eq!(sent[0].2, b"hello");
    let ack = header(5_000, 80, 706, answer.seq.wrapping_add(6), Flags::ACK);
    node.deliver(later, &segment(CLIENT, ip(ME), &ack, &[]));
    assert_eq!(node.view(owner).state, State::Established);
    assert_eq!(node.view(owner).acknowledged, 5);
    assert_eq!(node.stack.counters().fast_open_passive, 1);
    assert_eq!(node.stack.counters().fast_open_cookie_requests, 1);
}

#[test]
fn who_asks_by_the_experimental_option_is_answered_by_it() {
    let (mut memory, later) = (memory(), NOW + ms(5));
    let mut node = node(&mut memory, |_| {});
    let listener = node.listen(80, 8);
    node.stack.set_fast_open(listener, 8).unwrap();
    let usual = cookie_for(&mut node, CLIENT);
    let experimental = |cookie: FastOpenCookie| cookie.in_form(true);
    let request = Some(experimental(FastOpenCookie::REQUEST));
    let answer = syn(&mut node, later, (CLIENT, 5_000), request, b"early").unwrap();
    let told = (answer.ack, answer.options.fast_open);
    assert_eq!(told, (701, Some(experimental(usual))), "the same cookie");
    let cookie = Some(experimental(usual));
    let answer = syn(&mut node, later, (CLIENT, 5_001), cookie, b"GET /").unwrap();
    assert_eq!((answer.ack, answer.options.fast_open), (706, None));
    assert_eq!(node.ready(80), 1);
}

#[test]
fn a_cookie_is_good_for_its_own_client_only() {
    let mut memory = memory();
    let mut node = node(&mut memory, |_| {});
    let listener = node.listen(80, 8);
    node.stack.set_fast_open(listener, 8).unwrap();
    let cookie = cookie_for(&mut node, CLIENT);
    let other = Ipv4Addr::new(192, 0, 2, 8);
    let answer = syn(&mut node, NOW, (other, 5_000), Some(cookie), b"evil").unwrap();
    assert_eq!(answer.ack, 701, "the data is not taken");
    let told = answer.options.fast_open.unwrap();
    assert_ne!(told, cookie);
    assert_eq!(node.ready(80), 0);
    assert_eq!(node.stack.counters().fast_open_passive_fail, 1);
    assert!(takes_data(syn(
        &mut node,
        NOW,
        (other, 5_001),
        Some(told),
        b"good"
    )));
}

#[test]
fn a_listener_that_did_not_ask_for_it_serves_none_of_it() {
    for (modes, max) in [(BOTH, 0), (FastOpenModes::CLIENT, 8)] {
        let mut memory = memory();
        let mut node = node(&mut memory, |config| config.fast_open = modes);
        let listener = node.listen(80, 8);
        node.stack.set_fast_open(listener, max).unwrap();
        let request = Some(FastOpenCookie::REQUEST);
        let answer = syn(&mut node, NOW, (CLIENT, 5_000), request, b"data").unwrap();
        assert_eq!((answer.ack, answer.options.fast_open), (701, None));
    }
}

#[test]
fn modes_without_cookies_and_without_the_option() {
    let mut memory = memory();
    let modes = BOTH | FastOpenModes::SERVER_WITHOUT_COOKIE | FastOpenModes::SERVER_WITHOUT_OPTION;
    let mut node = node(&mut memory, |config| config.fast_open = modes);
    node.listen(80, 8);
    assert!(takes_data(syn(&mut node, NOW, (CLIENT, 5_000), None, b"x")));
    let without_data = syn(&mut node, NOW, (CLIENT, 5_001), None, b"").unwrap();
    assert_eq!(without_data.ack, 701);
    assert_eq!(node.ready(80), 1, "no data, no haste");
}

#[test]
fn no_more_requests_are_open_at_once_than_the_listener_says_and_resets_count_for_a_minute() {
    let mut memory = memory();
    let mut node = node(&mut memory, |_| {});
    let listener = node.listen(80, 16);
    node.stack.set_fast_open(listener, 2).unwrap();
    let cookie = Some(cookie_for(&mut node, CLIENT));
    let answers: Vec<_> = (5_000..5_004)
        .map(|port| syn(&mut node, NOW, (CLIENT, port), cookie, b"x").unwrap())
        .collect();
    let taken: Vec<_> = answers.iter().map(|answer| answer.ack - 701).collect();
    assert_eq!(taken, [1, 1, 0, 0]);
    assert_eq!(node.stack.counters().fast_open_listen_overflows, 2);
    // The first one's handshake ends: room for one.
    let ack = header(5_000, 80, 702, answers[0].seq.wrapping_add(1), Flags::ACK);
    node.deliver(NOW, &segment(CLIENT, ip(ME), &ack, &[]));
    assert!(takes_data(syn(
        &mut node,
        NOW,
        (CLIENT, 5_010),
        cookie,
        b"x"
    )));
    // A reset makes none before a minute is over.
    let reset = header(5_001, 80, 702, 0, Flags::RST);
    node.deliver(NOW, &segment(CLIENT, ip(ME), &reset, &[]));
    let soon = NOW + ms(59_000);
    let answer = syn(&mut node, soon, (CLIENT, 5_011), cookie, b"x");
    assert!(!takes_data(answer));
    let later = NOW + ms(60_000);
    let answer = syn(&mut node, later, (CLIENT, 5_012), cookie, b"x");
    assert!(takes_data(answer));
}

#[test]
fn listeners_with_the_same_key_take_each_others_cookies_and_renew_those_of_the_older_one() {
    let mut memory = memory();
    let mut node = node(&mut memory, |_| {});
    let listener = node.listen(80, 8);
    node.stack.set_fast_open(listener, 8).unwrap();
    node.stack.set_fast_open_keys(listener, &[[1; 16]]).unwrap();
    let old = cookie_for(&mut node, CLIENT);
    node.stack
        .set_fast_open_keys(listener, &[[2; 16], [1; 16]])
        .unwrap();
    let answer = syn(&mut node, NOW, (CLIENT, 5_000), Some(old), b"x").unwrap();
    let new = answer.options.fast_open.expect("a newer one");
    assert_eq!(answer.ack, 702);
    let answer = syn(&mut node, NOW, (CLIENT, 5_001), Some(new), b"x").unwrap();
    assert_eq!((answer.ack, answer.options.fast_open), (702, None));
    node.stack.set_fast_open_keys(listener, &[[3; 16]]).unwrap();
    assert!(!takes_data(syn(
        &mut node,
        NOW,
        (CLIENT, 5_002),
        Some(new),
        b"x"
    )));
    assert!(
        node.stack
            .set_fast_open_keys(listener, &[[0; 16]; 3])
            .is_err()
    );
}

#[test]
fn open_requests_are_counted_again_after_a_restart() {
    let mut memory = memory();
    {
        let mut node = node(&mut memory, |_| {});
        let listener = node.listen(80, 8);
        node.stack.set_fast_open(listener, 1).unwrap();
        let cookie = Some(cookie_for(&mut node, CLIENT));
        assert!(takes_data(syn(
            &mut node,
            NOW,
            (CLIENT, 5_000),
            cookie,
            b"x"
        )));
    }
    let mut config = config(ME);
    config.fast_open = BOTH;
    let (mut stack, _) = Stack::rebuild(memory.tables(), config).unwrap();
    configure(&mut stack, NOW, ME);
    let mut node = Node::with(stack, Shared::default());
    node.knows(NOW, 254);
    let request = Some(FastOpenCookie::REQUEST);
    let answer = syn(&mut node, NOW, (CLIENT, 5_001), request, b"").unwrap();
    assert_eq!(answer.options.fast_open, None, "no room");
}

/// A connection with Fast Open wanted; its SYN and how much it may carry.
fn connect(node: &mut Node<'_>, now: Instant, data: &[u8]) -> (u64, u32, Header, Vec<u8>) {
    node.transmit(now);
    let connect = node.asked(None, SocketAddr::from((CLIENT, 443)));
    let owner = connect.owner;
    let (id, room) = node
        .stack
        .connect_fast(now, &connect, !data.is_empty(), &mut node.host)
        .unwrap();
    node.programs
        .borrow_mut()
        .sockets
        .get_mut(&owner)
        .unwrap()
        .connection = id;
    if room > 0 {
        assert!(node.transmit(now).is_empty(), "the SYN waits");
        node.write(now, owner, data);
    }
    let (_, syn, payload) = segments(&node.transmit(now)).remove(0);
    (owner, room, syn, payload)
}

fn answer_syn(node: &mut Node<'_>, now: Instant, syn: &Header, ack: u32, options: Options) {
    let reply = Header {
        options,
        ..header(
            443,
            syn.source_port,
            900,
            syn.seq.wrapping_add(ack),
            Flags::SYN | Flags::ACK,
        )
    };
    node.deliver(now, &segment(CLIENT, ip(ME), &reply, &[]));
}

const GIVEN: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn a_cookie_is_asked_for_kept_and_used() {
    let mut memory = memory();
    let mut node = node(&mut memory, |_| {});
    let given = FastOpenCookie::new(&GIVEN);
    let (first, room, syn, payload) = connect(&mut node, NOW, b"");
    assert_eq!((room, payload.len()), (0, 0));
    assert_eq!(syn.options.fast_open, Some(FastOpenCookie::REQUEST));
    answer_syn(&mut node, NOW, &syn, 1, with_cookie(given));
    assert_eq!(node.view(first).state, State::Established);
    let (second, room, syn, payload) = connect(&mut node, NOW, b"hello");
    assert_eq!(room, 1_460 - 40);
    assert_eq!((syn.options.fast_open, payload), (given, b"hello".to_vec()));
    answer_syn(&mut node, NOW, &syn, 6, with_cookie(None));
    assert_eq!(node.view(second).acknowledged, 5);
    assert_eq!(node.stack.counters().fast_open_active, 1);
}

#[test]
fn a_cookie_that_nobody_asked_for_is_not_kept() {
    let mut memory = memory();
    let mut node = node(&mut memory, |_| {});
    node.connect(NOW, CLIENT, 443);
    let (_, syn, _) = segments(&node.transmit(NOW)).remove(0);
    answer_syn(
        &mut node,
        NOW,
        &syn,
        1,
        with_cookie(FastOpenCookie::new(&GIVEN)),
    );
    let (_, room, syn, _) = connect(&mut node, NOW, b"");
    assert_eq!(room, 0);
    assert_eq!(syn.options.fast_open, Some(FastOpenCookie::REQUEST));
}

#[test]
fn a_path_that_swallows_data_in_syns_is_left_in_peace_for_an_hour() {
    let mut memory = memory();
    let mut node = node(&mut memory, |_| {});
    let given = FastOpenCookie::new(&GIVEN);
    let (_, _, syn, _) = connect(&mut node, NOW, b"");
    answer_syn(&mut node, NOW, &syn, 1, with_cookie(given));
    let (owner, _, _, _) = connect(&mut node, NOW, b"hello");
    let later = NOW + ms(1_001);
    node.timers(later);
    let sent = segments(&node.transmit(later));
    let (_, again, payload) = sent
        .into_iter()
        .find(|(_, header, _)| header.flags == Flags::SYN)
        .unwrap();
    assert_eq!((again.options.fast_open, payload.len()), (None, 0));
    answer_syn(&mut node, later, &again, 1, with_cookie(None));
    let data = segments(&node.transmit(later));
    assert!(data.iter().any(|(_, _, payload)| payload == b"hello"));
    assert_eq!(node.view(owner).state, State::Established);
    let (_, room, syn, _) = connect(&mut node, later, b"");
    assert_eq!((room, syn.options.fast_open), (0, None));
    let an_hour = later + Duration::from_secs(3_600);
    assert!(connect(&mut node, an_hour, b"x").1 > 0);
}

#[test]
fn three_timeouts_in_a_row_make_the_path_suspect() {
    let mut memory = memory();
    let mut node = node(&mut memory, |_| {});
    let given = FastOpenCookie::new(&GIVEN);
    let (_, _, syn, _) = connect(&mut node, NOW, b"");
    answer_syn(&mut node, NOW, &syn, 1, with_cookie(given));
    connect(&mut node, NOW, b"hello");
    let mut now = NOW;
    for wait in [1_001, 2_002, 4_004] {
        now += ms(wait);
        node.timers(now);
        node.transmit(now);
    }
    assert_eq!(node.stack.counters().fast_open_blackholes, 1);
    assert_eq!(connect(&mut node, now, b"").2.options.fast_open, None);
}

#[test]
fn switched_off_it_is_refused() {
    let mut memory = memory();
    let mut node = node(&mut memory, |config| {
        config.fast_open = FastOpenModes::SERVER
    });
    let connect = Connect {
        owner: 1,
        local_address: None,
        local_port: None,
        remote: SocketAddr::from((CLIENT, 443)),
        receive_capacity: CAPACITY,
        send_capacity: CAPACITY,
        options: ::tcp::SocketOptions::default(),
        ip: IpOptions::default(),
    };
    let refused = node.stack.connect_fast(NOW, &connect, true, &mut node.host);
    assert_eq!(refused, Err(Error::NotSupported));
}

#[test]
fn without_cookies_data_goes_with_the_first_syn() {
    let mut memory = memory();
    let mut node = node(&mut memory, |config| {
        config.fast_open |= FastOpenModes::CLIENT_WITHOUT_COOKIE;
    });
    let (_, _, syn, payload) = connect(&mut node, NOW, b"hello");
    assert_eq!((syn.options.fast_open, payload), (None, b"hello".to_vec()));
}

#[test]
fn who_has_nothing_to_send_asks_for_a_cookie_or_shows_it() {
    let mut memory = memory();
    let mut node = node(&mut memory, |config| config.fast_open = BOTH);
    let (_, room, syn, payload) = connect(&mut node, NOW, b"");
    let request = Some(FastOpenCookie::REQUEST);
    assert_eq!((room, syn.options.fast_open, payload), (0, request, vec![]));
    let options = Options {
        mss: Some(1_200),
        fast_open: FastOpenCookie::new(&[7; 8]),
        ..Options::default()
    };
    answer_syn(&mut node, NOW, &syn, 1, options);
    let (_, room, syn, payload) = connect(&mut node, NOW, b"");
    let known = FastOpenCookie::new(&[7; 8]);
    assert_eq!((room, syn.options.fast_open, payload), (0, known, vec![]));
    assert!(node.transmit(NOW).is_empty());
}

#[test]
fn two_stacks_open_fast_the_second_time() {
    let mut memory = [memory(), memory()];
    let mut pair = Pair::new(&mut memory, 1);
    for node in &mut pair.nodes {
        node.stack.ip.link.config.fast_open = BOTH;
    }
    let listener = pair.nodes[1].listen(80, 8);
    pair.nodes[1].stack.set_fast_open(listener, 8).unwrap();
    for (round, expected) in [FastOpen::Asking, FastOpen::Accepted]
        .into_iter()
        .enumerate()
    {
        let now = pair.now;
        let node = &mut pair.nodes[0];
        let connect = node.asked(None, SocketAddr::from((ip(2), 80)));
        let owner = connect.owner;
        let (id, _) = node
            .stack
            .connect_fast(now, &connect, true, &mut node.host)
            .unwrap();
        let mut programs = node.programs.borrow_mut();
        programs.sockets.get_mut(&owner).unwrap().connection = id;
        drop(programs);
        node.write(now, owner, b"a request");
        pair.run(ms(500));
        let accepted = pair.nodes[1].accept(listener).unwrap();
        assert_eq!(pair.nodes[1].received(accepted), b"a request");
        let tcp = &pair.nodes[0].stack.tcp.record(id.index).tcp;
        assert_eq!(tcp.fast_open(), expected, "round {round}");
    }
}

#[test]
fn cookies_for_every_syn_or_for_none() {
    let mut first = memory();
    let mut always = node(&mut first, |config| config.syn_cookies = SynCookies::Always);
    always.listen(80, 8);
    assert!(syn(&mut always, NOW, (CLIENT, 5_000), None, b"").is_some());
    assert_eq!(always.stack.connections().count(), 0);
    assert_eq!(always.stack.counters().syn_cookies_sent, 1);
    let mut second = memory();
    let mut never = node(&mut second, |config| config.syn_cookies = SynCookies::Never);
    never.listen(80, 0);
    assert!(syn(&mut never, NOW, (CLIENT, 5_000), None, b"").is_some());
    assert!(syn(&mut never, NOW, (CLIENT, 5_001), None, b"").is_none());
    assert_eq!(never.stack.counters().syn_cookies_sent, 0);
    assert_eq!(never.stack.counters().listen_drops, 1);
}
