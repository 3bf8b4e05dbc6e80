//! What the engine names programs find, and they cannot write it.

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn has(holders: &Holders, end: &str) -> bool {
    holders.have(Transport::Udp, end.parse().unwrap())
}

#[test]
fn programs_find_the_ends_that_the_engine_names_and_no_others() {
    let engine = Holders::create().unwrap();
    let program = Holders::map(engine.file().unwrap()).unwrap();
    assert!(!has(&program, "127.0.0.1:53"));
    engine.name(
        Transport::Udp,
        53,
        [address("127.0.0.1"), address("127.0.0.1")].into_iter(),
    );
    engine.name(Transport::Udp, 80, [address("0.0.0.0")].into_iter());
    engine.name(
        Transport::Udp,
        81,
        [address("::"), address("0.0.0.0")].into_iter(),
    );
    engine.name(Transport::Udp, 65_535, [address("::1")].into_iter());
    for (end, expected) in [
        ("127.0.0.1:53", true),
        ("127.0.0.53:53", false),
        ("[::1]:53", false),
        ("127.9.9.9:80", true),
        ("[::1]:80", false),
        ("127.0.0.2:81", true),
        ("[::1]:81", true),
        ("[::1]:65535", true),
        ("127.0.0.1:0", false),
    ] {
        assert_eq!(has(&program, end), expected, "{end}");
    }
    engine.name(Transport::Udp, 53, [address("127.0.0.2")].into_iter());
    assert!(!has(&program, "127.0.0.1:53") && has(&program, "127.0.0.2:53"));
    assert!(!program.have(Transport::Tcp, "127.0.0.2:53".parse().unwrap()));
    engine.name(Transport::Udp, 53, core::iter::empty());
    assert!(!has(&program, "127.0.0.2:53"));
}

#[test]
fn what_finds_no_room_is_not_named_and_what_was_there_stays() {
    let engine = Holders::create().unwrap();
    let many = (1..=20_u8).map(|last| IpAddr::from([127, 0, 0, last]));
    engine.name(Transport::Udp, 7, many.clone());
    let named = many.filter(|one| engine.have(Transport::Udp, SocketAddr::new(*one, 7)));
    assert_eq!(named.count(), ADDRESSES_MAX);
    assert!(has(&engine, "127.0.0.1:7") && !has(&engine, "127.0.0.20:7"));
}

#[test]
fn a_program_cannot_write_it() {
    let engine = Holders::create().unwrap();
    let file = engine.file().unwrap();
    assert!(Mapping::new(file, BYTES).is_err());
    assert!(rustix::io::pwrite(file, &[1], 64).is_err());
    assert!(rustix::fs::ftruncate(file, 0).is_err());
}

#[test]
fn another_file_is_refused() {
    let other = sys::create(c"other", BYTES).unwrap();
    assert!(Holders::map(other.as_fd()).is_err());
}
