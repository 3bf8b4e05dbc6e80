//! The native interface between two engines on one wire: both zero-copy halves, ends of every kind, many sockets,
//! hostile use, and what is copied. `native_programs.rs` has whole programs and the kernel as peer.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod engine_support;

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use engine_support::{ADDRESSES, EngineThread, PATIENCE, engines, engines_of_cores, pattern};
use native::{
    Engine, Event, Polled, Poller, Readiness, ReceiveItem, SendItem, TcpListener, TcpStream,
    UdpSocket, poll, receive_many, send_many,
};
use rustix::io::Errno;

const NO_EVENT: Event = Event {
    token: 0,
    ready: Readiness::empty(),
};

fn errno(error: &Error) -> Errno {
    native::to_errno(error)
}

fn failed<T>(result: std::io::Result<T>) -> Errno {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => errno(&error),
    }
}

fn attach(engines: &[EngineThread; 2]) -> [Engine; 2] {
    [0, 1].map(|side: usize| Engine::attach(&engines[side].name).unwrap())
}

fn listener(engine: Engine, side: usize) -> (TcpListener, SocketAddr) {
    let local = SocketAddr::from((ADDRESSES[side], 0));
    let listener = TcpListener::bind(engine, local, 2_000).unwrap();
    listener.set_timeout(Some(PATIENCE));
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Two ends of a connection, the first on the first engine.
fn pair(attached: [Engine; 2]) -> [TcpStream; 2] {
    let (listener, address) = listener(attached[1], 1);
    let near = TcpStream::connect_timeout(attached[0], address, PATIENCE).unwrap();
    let (far, peer) = listener.accept().unwrap();
    assert_eq!(near.local_addr().unwrap(), peer);
    assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
    let both = [near, far];
    both.iter()
        .for_each(|stream| stream.set_timeout(Some(PATIENCE)));
    both
}

/// Sends `len` bytes of the pattern, made where they lie.
fn produce(stream: &mut native::SendHalf, len: usize) {
    let mut done = 0;
    while done < len {
        let mut room = stream.reserve(len - done).unwrap();
        let bytes = pattern(done, room.len());
        let filled = room.fill(0, &bytes);
        assert_eq!(filled, room.len());
        room.commit(filled).unwrap();
        done += filled;
    }
}

/// Takes the stream to its end, where the bytes lie; the steps are uneven. Returns how long it was.
fn check_all(stream: &mut native::ReceiveHalf) -> usize {
    let (mut at, mut step) = (0, 1);
    while let Some(lent) = stream.borrow(usize::MAX).unwrap() {
        let [first, second] = lent.slices();
        let whole = [first, second].concat();
        assert!(whole == pattern(at, whole.len()), "bytes differ after {at}");
        let taken = whole.len().min(step);
        step = step * 7 % 300_007;
        lent.consume(taken).unwrap();
        at += taken;
    }
    at
}

fn copies(engine: &EngineThread) -> [u64; 4] {
    let status = engine.status();
    [
        "sent_bytes",
        "copied_to_send_bytes",
        "received_bytes",
        "copied_to_receive_bytes",
    ]
    .map(|field| status["copies"][field].as_u64().unwrap())
}

#[test]
fn what_is_made_and_read_in_the_windows_arrives_and_no_program_copies_it() {
    const LEN: usize = 20_000_003;
    let engines = engines();
    let [near, far] = pair(attach(&engines));
    let (mut sending, _back) = near.split();
    let (_forth, mut receiving) = far.split();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            produce(&mut sending, LEN);
            sending.finish().unwrap();
        });
        assert_eq!(check_all(&mut receiving), LEN);
    });
    let len = LEN as u64;
    assert_eq!(copies(&engines[0]), [len, 0, 0, 0]);
    // The one copy is the engine's, from a frame into the window.
    testkit::wait_for("last step", PATIENCE, || copies(&engines[1])[2] == len);
    assert_eq!(copies(&engines[1]), [0, 0, len, len]);
}

#[test]
fn calls_that_copy_are_counted_as_copies() {
    let engines = engines();
    let [mut near, mut far] = pair(attach(&engines));
    let text = pattern(0, 100_000);
    std::thread::scope(|scope| {
        scope.spawn(|| near.write_all(&text).unwrap());
        let mut received = vec![0; text.len()];
        far.read_exact(&mut received).unwrap();
        assert!(received == text);
    });
    let len = text.len() as u64;
    assert_eq!(copies(&engines[0]), [len, len, 0, 0]);
    drop(far);
    testkit::wait_for("last step", PATIENCE, || copies(&engines[1])[2] == len);
    assert_eq!(copies(&engines[1]), [0, 0, len, 2 * len]);
}

#[test]
fn each_direction_ends_by_itself() {
    let engines = engines_of_cores([2, 2]);
    let [mut near, mut far] = pair(attach(&engines));
    assert_eq!(near.send(b"question").unwrap(), 8);
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(failed(near.send(b"more")), Errno::PIPE);
    assert_eq!(failed(near.reserve(1).map(drop)), Errno::PIPE);
    let mut text = Vec::new();
    far.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"question");
    assert!(far.borrow(1).unwrap().is_none(), "and again");
    far.write_all(b"answer").unwrap();
    drop(far);
    let mut text = Vec::new();
    near.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"answer");
}

#[test]
fn a_reset_is_an_error_after_what_had_arrived_and_a_refusal_is_one_at_once() {
    let engines = engines();
    let attached = attach(&engines);
    let [mut near, mut far] = pair(attached);
    far.send(b"last words").unwrap();
    assert_eq!(near.borrow(usize::MAX).unwrap().unwrap().len(), 10);
    far.abort();
    testkit::wait_for("reset", PATIENCE, || {
        near.readiness().contains(Readiness::ERR | Readiness::HUP)
    });
    let lent = near.borrow(usize::MAX).unwrap().unwrap();
    assert_eq!(lent.slices()[0], b"last words");
    lent.consume(10).unwrap();
    assert_eq!(failed(near.borrow(1).map(drop)), Errno::CONNRESET);
    assert!(near.borrow(1).unwrap().is_none(), "told once, as by recv");
    assert_eq!(failed(near.send(b"x")), Errno::PIPE);

    let nobody = SocketAddr::from((ADDRESSES[1], 9));
    let refused = TcpStream::connect(attached[0], nobody).map(drop);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 9));
    let unreachable = TcpStream::connect(attached[0], elsewhere).map(drop);
    assert_eq!(failed(unreachable), Errno::NETUNREACH);
}

#[test]
fn calls_do_not_wait_where_they_may_not_nor_longer_than_they_may() {
    let engines = engines();
    let attached = attach(&engines);
    let (listener, _) = listener(attached[1], 1);
    assert_eq!(failed(listener.try_accept().map(drop)), Errno::AGAIN);
    listener.set_timeout(Some(Duration::from_millis(1)));
    assert_eq!(failed(listener.accept().map(drop)), Errno::TIMEDOUT);
    let [mut near, mut far] = pair(attached);
    let (sending, receiving) = near.halves();
    assert_eq!(failed(receiving.try_borrow(1).map(drop)), Errno::AGAIN);
    assert_eq!(failed(receiving.try_receive(&mut [0])), Errno::AGAIN);
    assert_eq!(sending.try_send(b"x").unwrap(), 1);
    near.set_timeout(Some(Duration::from_millis(50)));
    assert_eq!(fill(&mut near), Errno::TIMEDOUT);
    // An acknowledgement that comes late may still make a little room.
    let sending = near.halves().0;
    let refused = loop {
        match sending.try_reserve(usize::MAX) {
            Ok(room) => room.commit(1).unwrap(),
            Err(error) => break errno(&error),
        }
    };
    assert_eq!(refused, Errno::AGAIN);
    assert_eq!(failed(near.receive(&mut [0])), Errno::TIMEDOUT);
    assert!(far.borrow(usize::MAX).unwrap().is_some());
}

/// Sends until nothing more fits, for as long as the peer does not read.
fn fill(stream: &mut TcpStream) -> Errno {
    loop {
        match stream.reserve(usize::MAX) {
            Ok(room) => {
                let len = room.len();
                room.commit(len).unwrap();
            }
            Err(error) => return errno(&error),
        }
    }
}

#[test]
fn more_than_was_reserved_or_lent_is_refused_and_harms_nothing() {
    let engines = engines();
    let [mut near, mut far] = pair(attach(&engines));
    let mut room = near.reserve(10).unwrap();
    assert_eq!(room.len(), 10);
    assert_eq!(room.fill(8, b"abc"), 2, "no more than fits");
    assert_eq!(room.fill(11, b"abc"), 0);
    assert_eq!(failed(room.commit(11)), Errno::INVAL);
    drop(near.reserve(usize::MAX).unwrap());
    near.reserve(5).unwrap().commit(0).unwrap();
    let mut room = near.reserve(5).unwrap();
    assert_eq!(room.fill(0, b"hello"), 5);
    room.commit(5).unwrap();
    let lent = far.borrow(usize::MAX).unwrap().unwrap();
    assert_eq!(lent.slices()[0], b"hello");
    assert_eq!(failed(lent.consume(6)), Errno::INVAL);
    assert_eq!(far.borrow(2).unwrap().unwrap().len(), 2);
    far.borrow(usize::MAX).unwrap().unwrap().consume(4).unwrap();
    assert_eq!(far.borrow(usize::MAX).unwrap().unwrap().slices()[0], b"o");
}

#[test]
fn a_thousand_sockets_are_polled_and_only_those_with_news_are_told() {
    const COUNT: usize = 1_000;
    let engines = engines();
    let attached = attach(&engines);
    let (listener, address) = listener(attached[1], 1);
    let mut near: Vec<TcpStream> = (0..COUNT)
        .map(|_| TcpStream::start_connect(attached[0], address, None).unwrap())
        .collect();
    let mut far: Vec<TcpStream> = (0..COUNT).map(|_| listener.accept().unwrap().0).collect();
    let mut poller = Poller::new(attached[1]).unwrap();
    for (token, stream) in far.iter().enumerate() {
        poller.add(stream, token as u64, Readiness::IN).unwrap();
    }
    let mut events = vec![NO_EVENT; COUNT];
    assert_eq!(poller.poll(&mut events), 0);
    let speaks = |index: usize| index.is_multiple_of(3);
    let peers: Vec<SocketAddr> = far.iter().map(|one| one.peer_addr().unwrap()).collect();
    let mut expected: Vec<u64> = Vec::new();
    for (index, stream) in near.iter_mut().enumerate().filter(|(at, _)| speaks(*at)) {
        stream.set_timeout(Some(PATIENCE));
        stream.send(&index.to_le_bytes()).unwrap();
        let own = stream.local_addr().unwrap();
        let token = peers.iter().position(|peer| *peer == own).unwrap();
        expected.push(token as u64);
    }
    expected.sort_unstable();
    let mut told = Vec::new();
    while told.len() < expected.len() {
        let ready = poller.wait(&mut events[..100], Some(PATIENCE)).unwrap();
        assert!(ready > 0, "{} of {} told", told.len(), expected.len());
        for event in &events[..ready] {
            assert_eq!(event.ready, Readiness::IN);
            let stream = &mut far[usize::try_from(event.token).unwrap()];
            stream.borrow(8).unwrap().unwrap().consume(8).unwrap();
            told.push(event.token);
        }
    }
    told.sort_unstable();
    assert_eq!(told, expected);
    assert_eq!(poller.poll(&mut events), 0);

    let mut polled: Vec<Polled<'_>> = far
        .iter()
        .map(|socket| Polled {
            socket,
            interest: Readiness::IN | Readiness::OUT,
            ready: Readiness::empty(),
        })
        .collect();
    assert_eq!(poll(&mut polled, Some(Duration::ZERO)).unwrap(), COUNT);
    assert!(polled.iter().all(|one| one.ready == Readiness::OUT));
}

#[test]
fn a_set_tells_as_long_as_something_holds_and_its_descriptor_fits_into_another_loop() {
    let engines = engines_of_cores([1, 2]);
    let attached = attach(&engines);
    let [mut near, mut far] = pair(attached);
    let mut poller = Poller::new(attached[1]).unwrap();
    poller.add(&far, 5, Readiness::IN).unwrap();
    assert_eq!(failed(poller.add(&far, 5, Readiness::IN)), Errno::EXIST);
    assert_eq!(failed(poller.add(&near, 6, Readiness::IN)), Errno::INVAL);
    assert_eq!(failed(poller.modify(6, Readiness::IN)), Errno::NOENT);
    let mut events = [NO_EVENT; 4];
    let readable = |poller: &Poller| {
        let fd = poller.as_fd();
        let mut fds = [rustix::event::PollFd::new(
            &fd,
            rustix::event::PollFlags::IN,
        )];
        let patience = rustix::event::Timespec::try_from(PATIENCE).unwrap();
        rustix::event::poll(&mut fds, Some(&patience)).unwrap() == 1
    };
    poller.arm().unwrap();
    assert_eq!(poller.poll(&mut events), 0);
    near.send(b"news").unwrap();
    assert!(readable(&poller));
    poller.disarm();
    for _ in 0..3 {
        assert_eq!(poller.poll(&mut events), 1);
        assert_eq!((events[0].token, events[0].ready), (5, Readiness::IN));
    }
    poller.modify(5, Readiness::OUT).unwrap();
    assert_eq!(poller.poll(&mut events), 1);
    assert_eq!(events[0].ready, Readiness::OUT);
    poller.modify(5, Readiness::IN).unwrap();
    far.borrow(4).unwrap().unwrap().consume(4).unwrap();
    assert_eq!(poller.poll(&mut events), 0);
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(poller.wait(&mut events, Some(PATIENCE)).unwrap(), 1);
    assert!(far.borrow(1).unwrap().is_none());
    poller.remove(5).unwrap();
    assert_eq!(failed(poller.remove(5)), Errno::NOENT);
    assert!(poller.is_empty());
    let timeout = Some(Duration::from_millis(1));
    assert_eq!(poller.wait(&mut events, timeout).unwrap(), 0);
}

#[test]
fn many_streams_are_served_in_one_call() {
    const COUNT: usize = 50;
    let engines = engines();
    let attached = attach(&engines);
    let (mut near, mut far): (Vec<_>, Vec<_>) = (0..COUNT)
        .map(|_| {
            let [near, far] = pair(attached);
            (near, far)
        })
        .unzip();
    let texts: Vec<Vec<u8>> = (0..COUNT).map(|index| pattern(index, 10 + index)).collect();
    let mut items: Vec<SendItem<'_>> = near
        .iter_mut()
        .zip(&texts)
        .map(|(stream, text)| SendItem::new(stream.halves().0, text))
        .collect();
    assert_eq!(send_many(&mut items), COUNT);
    let sent = |(item, text): (&SendItem<'_>, &Vec<u8>)| {
        item.result.as_ref().is_ok_and(|sent| *sent == text.len())
    };
    assert!(items.iter().zip(&texts).all(sent));
    for stream in &far {
        testkit::wait_for("bytes", PATIENCE, || {
            stream.readiness().contains(Readiness::IN)
        });
    }
    let mut buffers = vec![[0; 100]; COUNT];
    let mut items: Vec<ReceiveItem<'_>> = far
        .iter_mut()
        .zip(&mut buffers)
        .map(|(stream, buffer)| ReceiveItem::new(stream.halves().1, buffer))
        .collect();
    assert_eq!(receive_many(&mut items), COUNT);
    for (item, text) in items.iter().zip(&texts) {
        let received = *item.result.as_ref().unwrap();
        assert_eq!(item.bytes[..received], text[..received]);
    }
    assert_eq!(receive_many(&mut items), 0, "nothing is left");
    let all_again = |item: &ReceiveItem<'_>| {
        let error = item.result.as_ref().unwrap_err();
        errno(error) == Errno::AGAIN
    };
    assert!(items.iter().all(all_again));
}

#[test]
fn datagrams_find_their_way_with_a_peer_and_without() {
    let engines = engines();
    let attached = attach(&engines);
    let server = UdpSocket::bind(attached[1], SocketAddr::from((ADDRESSES[1], 0))).unwrap();
    server.set_timeout(Some(PATIENCE));
    let address = server.local_addr().unwrap();
    let client = UdpSocket::towards(attached[0], address).unwrap();
    client.set_timeout(Some(PATIENCE));
    assert_eq!(client.send(b"question").unwrap(), 8);
    let mut bytes = [0; 100];
    let (len, source) = server.receive(&mut bytes).unwrap();
    assert_eq!(&bytes[..len], b"question");
    assert_eq!(server.send_to(b"", source).unwrap(), 0);
    assert_eq!(server.send_to(&pattern(0, 30_000), source).unwrap(), 30_000);
    assert_eq!(client.receive(&mut bytes).unwrap(), (0, address));
    assert_eq!(
        client.receive(&mut bytes).unwrap(),
        (100, address),
        "cut to the buffer"
    );
    assert_eq!(failed(client.try_receive(&mut bytes)), Errno::AGAIN);
    assert_eq!(failed(server.send(b"whom?")), Errno::DESTADDRREQ);
    assert_eq!(failed(client.send(&[0; 70_000])), Errno::MSGSIZE);
    drop(server);
    // The first may come before the engine has heard that nobody is there any more.
    let is_refusal = |error: Error| errno(&error) == Errno::CONNREFUSED;
    testkit::wait_for("refusal", PATIENCE, || {
        let sent = client.try_send(b"anybody?", None).map(drop);
        let heard = sent.and_then(|()| client.try_receive(&mut bytes).map(drop));
        heard.is_err_and(is_refusal)
    });
}

#[test]
fn names_that_are_taken_or_foreign_are_refused() {
    let engines = engines();
    let attached = attach(&engines);
    let (_listener, address) = listener(attached[1], 1);
    let again = TcpListener::bind(attached[1], address, 1).map(drop);
    assert_eq!(failed(again), Errno::ADDRINUSE);
    let foreign = SocketAddr::from(([192, 0, 2, 1], 0));
    let foreign = TcpListener::bind(attached[1], foreign, 1).map(drop);
    assert_eq!(failed(foreign), Errno::ADDRNOTAVAIL);
    let absent = Engine::attach("@shunt/testkit/nobody").map(drop);
    let absent = absent.unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::ConnectionRefused);
    assert!(absent.to_string().contains("nobody"), "{absent}");
}

#[test]
fn an_engine_that_ends_is_an_error_to_all_its_sockets_and_to_all_who_wait() {
    let engines = engines();
    let attached = attach(&engines);
    let [mut near, mut far] = pair(attached);
    let (listener, _) = listener(attached[0], 0);
    let own = UdpSocket::bind(attached[0], SocketAddr::from((ADDRESSES[0], 0))).unwrap();
    own.set_timeout(Some(PATIENCE));
    far.send(b"before").unwrap();
    assert_eq!(near.borrow(usize::MAX).unwrap().unwrap().len(), 6);
    let mut poller = Poller::new(attached[0]).unwrap();
    poller.add(&listener, 1, Readiness::IN).unwrap();
    let [first, second] = engines;
    let (sending, receiving) = near.halves();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| failed(listener.accept().map(drop)));
        let polling = scope.spawn(|| {
            let mut events = [NO_EVENT];
            let ready = poller.wait(&mut events, Some(PATIENCE)).unwrap();
            (ready, events[0].ready)
        });
        let receiving = scope.spawn(|| {
            let lent = receiving.borrow(usize::MAX).unwrap().unwrap();
            assert_eq!(lent.slices()[0], b"before", "what had arrived is there");
            lent.consume(6).unwrap();
            failed(receiving.borrow(1).map(drop))
        });
        let hearing = scope.spawn(|| failed(own.receive(&mut [0; 8])));
        drop(first);
        assert_eq!(receiving.join().unwrap(), Errno::CONNRESET);
        assert_eq!(waiting.join().unwrap(), Errno::CONNRESET);
        assert_eq!(hearing.join().unwrap(), Errno::CONNRESET);
        let (ready, events) = polling.join().unwrap();
        assert_eq!(ready, 1);
        assert!(events.contains(Readiness::ERR) || events.contains(Readiness::HUP));
    });
    assert!(attached[0].is_gone());
    assert!(!attached[1].is_gone());
    assert_ne!(failed(sending.send(b"x")), Errno::AGAIN);
    let (_, address) = self::listener(attached[1], 1);
    let late = TcpStream::connect(attached[0], address).map(drop);
    assert_eq!(failed(late), Errno::CONNRESET);
    assert!(
        Engine::attach(attached[0].name()).is_err(),
        "nobody came after"
    );
    drop(second);
}

#[test]
fn an_engine_that_ends_is_noticed_by_a_program_that_only_looks() {
    let engines = engines();
    let attached = attach(&engines);
    let [near, _far] = pair(attached);
    let mut poller = Poller::new(attached[0]).unwrap();
    poller.add(&near, 1, Readiness::IN).unwrap();
    let [first, _second] = engines;
    drop(first);
    let mut events = [NO_EVENT];
    testkit::wait_for("end", PATIENCE, || poller.poll(&mut events) == 1);
    assert!(events[0].ready.contains(Readiness::ERR | Readiness::HUP));
    assert_eq!(
        errno(&near.take_error().unwrap().unwrap()),
        Errno::CONNRESET
    );
}
