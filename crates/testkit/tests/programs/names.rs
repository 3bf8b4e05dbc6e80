//! Name servers, and other programs that look which addresses there are before they use one.

use testkit::rows::{Row, Server};
use testkit::world::{self, Mode, World};

use crate::{Cores, Engine, Inline, Supervised, Xdp, each};

/// A server listens before it has read its zone.
const ASK: &str = "for n in $(seq 200); do
    [ -n \"$(dig @$SERVER -p 5300 +tcp +time=20 +tries=3 +short www.example.test A)\" ] && break
    sleep 0.1
done
for way in +notcp +tcp; do
    dig @$SERVER -p 5300 $way +time=20 +tries=3 +short www.example.test A
    dig @$SERVER -p 5300 $way +time=20 +tries=3 +short big.example.test TXT | sort | sha256sum
done";

/// It listens at each address that the interfaces have, and at no other.
#[test]
fn bind9_at_any_address() {
    Row {
        name: "bind9",
        needs: &["named", "dig"],
        servers: &[Server::new(
            r#"cat >named.conf <<END
            options { directory "$HOME"; pid-file none; session-keyfile "$HOME/key"; listen-on port 5300 { any; };
                listen-on-v6 { none; }; recursion no; dnssec-validation no; };
            controls { };
            zone "example.test" { type primary; file "$HOME/zone"; };
END
            printf '$TTL 60\n@ IN SOA ns. root. 1 60 60 60 60\n@ IN NS ns.\nwww IN A 10.1.2.3\n' >zone
            for n in 1 2 3 4 5 6 7 8 9; do printf 'big IN TXT "%0250d"\n' $n; done >>zone
            exec named -f -c named.conf"#,
            5300,
        )],
        clients: &[ASK],
        // It has no right to packet sockets any more when it makes its first socket: not inline.
        tested: &each(&[Engine, Cores, Xdp, Supervised]),
        ..Row::EMPTY
    }
    .check();
}

/// It closes connections that come to an address which no interface has.
#[test]
fn dnsmasq_over_tcp() {
    Row {
        name: "dnsmasq",
        needs: &["dnsmasq", "dig"],
        servers: &[Server::new(
            "exec dnsmasq --keep-in-foreground --conf-file=/dev/null --pid-file= --user=root --port=5300 --no-resolv \
            --no-hosts --address=/www.example.test/10.1.2.3 \
            --txt-record=big.example.test,$(printf '%0200d' 1),$(printf '%0200d' 2)",
            5300,
        )],
        clients: &[ASK],
        tested: &each(&[Engine, Cores, Xdp, Inline, Supervised]),
        ..Row::EMPTY
    }
    .check();
}

/// Asks as old programs do, and prints what it is told.
const CONFIGURATION: &str = "
import array, fcntl, socket, struct
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
room = array.array('B', bytes(4096))
told = fcntl.ioctl(one, 0x8912, struct.pack('iL', 4096, room.buffer_info()[0]))
told = room.tobytes()[:struct.unpack('iL', told)[0]]
for at in range(0, len(told), 40):
    print(told[at:at + 16].split(bytes(1))[0].decode(), socket.inet_ntoa(told[at + 20:at + 24]))
";

#[test]
fn an_engines_own_address_is_among_those_of_the_host() {
    if !world::can_run("addresses", &["hostname", "ip", "python3"]) {
        return;
    }
    let ways = [
        Mode::Engine,
        Mode::Cores,
        Mode::Inline,
        Mode::Supervised,
        Mode::Kernel,
    ];
    for way in ways {
        let world = World::new("addresses", way);
        let own = world.tested_address();
        let named = world.run_tested(&["hostname", "-I"]).stdout;
        let count = named.split(' ').filter(|word| *word == own).count();
        assert_eq!(count, 1, "{way:?}: {named}");
        let shown = world.run_tested(&["ip", "-o", "-4", "addr", "show", "dev", "eth0"]);
        let line = format!("inet {own}/24 brd ");
        assert!(shown.stdout.contains(&line), "{way:?}: {shown:?}");
        let told = world.run_tested(&["python3", "-c", CONFIGURATION]).stdout;
        let count = told
            .lines()
            .filter(|line| *line == format!("eth0 {own}"))
            .count();
        assert_eq!(count, 1, "{way:?}: {told}");
    }
}

/// Two bad arguments, and what the library's own question finds out of an odd place.
const ODD_PLACES: &str = "
import ctypes, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for argument in (0, 1, 1 << 40):
    print(libc.ioctl(one.fileno(), 0x8912, ctypes.c_void_p(argument)), ctypes.get_errno())
room = ctypes.create_string_buffer(4096)
for len, start in ((4096, 1 << 40), (50, ctypes.addressof(room)), (4096, ctypes.addressof(room) + 3)):
    odd = ctypes.create_string_buffer(24)
    asked = ctypes.c_void_p(ctypes.addressof(odd) + 1)
    ctypes.memmove(asked, struct.pack('iL', len, start), 16)
    print(libc.ioctl(one.fileno(), 0x8912, asked), struct.unpack('i', odd.raw[1:5])[0] % 40)
";

#[test]
fn who_asks_for_addresses_with_bad_arguments_is_told_so() {
    if !world::can_run("addresses-odd", &["python3"]) {
        return;
    }
    let [told, kernel] = [Mode::Engine, Mode::Kernel].map(|way| {
        let told = World::new("addresses-odd", way).run_tested(&["python3", "-c", ODD_PLACES]);
        (told.status.code(), told.stdout, told.stderr)
    });
    assert_eq!(told, kernel);
}

#[test]
fn a_program_of_the_kernel_alone_is_told_of_no_engine() {
    if !world::can_run("addresses-kernel", &["hostname", "python3"]) {
        return;
    }
    let world = World::new("addresses-kernel", Mode::Engine);
    let own = world.tested_address();
    let shunt = testkit::shunt().to_str().unwrap();
    for program in [&["hostname", "-I"][..], &["python3", "-c", CONFIGURATION]] {
        let run = [shunt, "run", "--policy", "kernel-only", "--"];
        let told = world::finish(world.start("a", &[&run, program].concat()));
        assert!(told.status.success(), "{told:?}");
        assert!(!told.stdout.contains(&own), "{told:?}");
    }
}
