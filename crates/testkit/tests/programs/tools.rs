//! Tools that talk, measure and encrypt.

use testkit::rows::{End, Ready, Row, Server};

use crate::{ALONE, CONTENT, Cores, Engine, Inline, Supervised, Xdp, each};

#[test]
fn telnet_and_telnetd_by_inetd() {
    Row {
        name: "telnet",
        needs: &["inetutils-inetd", "telnetd", "telnet"],
        possible: "telnet --version | grep -q inetutils || { echo another telnet >&2; exit 1; }",
        before: "printf '#!/bin/sh\\nread word; echo you said $word; stty -a | grep -o rows; exit\\n' >login
        chmod +x login; mkfifo keyboard",
        servers: &[Server::new(
            r#"cat >inetd.conf <<END
$SERVER:7023 stream tcp nowait root $(command -v telnetd) telnetd -E $HOME/login
$SERVER:7024 stream tcp nowait root $(command -v cat) cat
END
            exec inetutils-inetd -d $HOME/inetd.conf"#,
            7024,
        )],
        clients: &[
            // The keyboard stays open until the server ends the session.
            "exec 3<>keyboard; echo hello >&3
            (telnet $SERVER 7023 <&3 || true) | tr -d '\\r' | grep -E 'you said|rows'",
            "exec 3<>keyboard; telnet $SERVER 1 <&3 || echo $?",
        ],
        tested: &[
            (End::Server, &[Engine, Cores, Supervised]),
            (End::Client, ALONE),
        ],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn socat_echoes_and_forwards() {
    Row {
        name: "socat",
        needs: &["socat", "openssl"],
        before: CONTENT,
        servers: &[
            Server::new(
                "exec socat TCP-LISTEN:7000,bind=$SERVER,reuseaddr,fork PIPE",
                7000,
            ),
            Server::new(
                "exec socat TCP-LISTEN:7001,bind=$SERVER,reuseaddr,fork EXEC:'sha256sum'",
                7001,
            ),
            // Not by a pipe: socat writes 8 KiB as soon as it has room for 4, and waits for itself where both ends are full.
            Server::new(
                "exec socat TCP-LISTEN:7002,bind=$SERVER,reuseaddr,fork EXEC:cat",
                7002,
            ),
        ],
        clients: &[
            "for i in $(seq 10); do echo word $i | socat -t 10 - TCP:$SERVER:7000; done",
            "socat -t 10 - TCP:$SERVER:7002 <content | sha256sum",
            "socat -t 10 - TCP:$SERVER:7001 <content",
            "socat - TCP:$SERVER:1 </dev/null 2>said || grep -o 'E connect.*' said",
        ],
        tested: &[
            (End::Server, &[Engine, Cores, Supervised]),
            (End::Client, &[Engine, Cores, Xdp, Inline, Supervised]),
        ],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn openssl_s_server_and_s_client() {
    Row {
        name: "openssl",
        needs: &["openssl"],
        before: "openssl enc -aes-128-ctr -K 00 -iv 00 -in /dev/zero 2>/dev/null | head -c 8000000 >content
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=name \
            -keyout key -out certificate 2>/dev/null",
        servers: &[Server::new(
            "exec openssl s_server -quiet -WWW -accept $SERVER:4433 -cert certificate -key key",
            4433,
        )],
        clients: &[
            // How it ends is told by what it got: s_client calls an end without a word an error in some versions.
            "printf 'GET /content HTTP/1.0\\r\\n\\r\\n' >request
            (openssl s_client -quiet -ign_eof -connect $SERVER:4433 -CAfile certificate <request 2>/dev/null || true) |
                sha256sum",
            "for version in 2 3; do
                (echo Q | openssl s_client -brief -tls1_$version -connect $SERVER:4433 -CAfile certificate 2>&1 || true) |
                    grep -E 'Protocol|Verification'
            done",
            "openssl s_client -connect $SERVER:1 </dev/null 2>&1 | grep -c refused || true",
        ],
        tested: &each(&[Engine, Xdp, Inline, Supervised]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn iperf3_both_ways_and_in_parallel() {
    Row {
        name: "iperf3",
        needs: &["iperf3"],
        servers: &[Server {
            ready: Ready::Says("listening"),
            ..Server::new("exec iperf3 --forceflush -s -B $SERVER", 0)
        }],
        clients: &[
            // Counted by bytes, so that both ends say how much arrived; the rest is speed. Between two tests the server
            // listens for nobody for a moment.
            r#"for way in '' '-P 3' '-R' '--bidir'; do
                for try in $(seq 100); do
                    iperf3 -c $SERVER -n 20M $way --json >said || true
                    grep -qE 'Connection refused|busy running|reset by peer' said || break
                    sleep 0.05
                done
                ! grep '"error"' said
                grep -c '"sum_received"' said || { cat said; false; }
            done"#,
            "iperf3 -c $SERVER -p 1 || echo $?",
        ],
        tested: &each(&[Engine, Cores, Xdp, Inline, Supervised]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn sockperf_ping_pong() {
    Row {
        name: "sockperf",
        needs: &["sockperf"],
        servers: &[Server::new("exec sockperf server --tcp -i $SERVER -p 7000", 7000)],
        clients: &[
            "sockperf ping-pong --tcp -i $SERVER -p 7000 -t 1 --pps 500 2>&1 |
                grep -oE '# dropped messages = [0-9]+; # duplicated messages = [0-9]+; # out-of-order messages = [0-9]+'",
        ],
        tested: &each(&[Engine, Xdp, Inline]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Linked statically: no library can be loaded before it.
#[test]
fn busybox_static() {
    Row {
        name: "busybox",
        needs: &["busybox", "openssl"],
        possible: "! readelf -l $(command -v busybox) | grep -q INTERP || { echo not a static one >&2; exit 1; }",
        before: CONTENT,
        servers: &[
            Server::new("exec busybox httpd -f -p $SERVER:8000 -h $HOME", 8000),
            Server::new("exec busybox nc -ll -p 7000 -e cat", 7000),
        ],
        clients: &[
            "busybox wget -q -O - http://$SERVER:8000/content | sha256sum",
            "busybox wget -q -O - http://$SERVER:8000/absent || echo $?",
            "echo from a static program | busybox nc -w 5 $SERVER 7000",
            "busybox wget -q -O - http://$SERVER:1/ || echo $?",
        ],
        tested: &each(&[Engine, Cores, Xdp]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Valgrind maps no vDSO, and strace stops at each call. Valgrind tells its log of a signal mask that is set in no known way, by which the
/// library asks the kernel whether memory is there. A library that is loaded before ours, and has functions of the same names, calls
/// libc's own, as torsocks does.
#[test]
fn curl_below_programs_and_a_library_that_watch_it() {
    Row {
        name: "watched",
        needs: &["valgrind", "strace", "cc", "curl", "busybox", "openssl"],
        before: CONTENT,
        servers: &[Server::new(
            "exec busybox httpd -f -p $SERVER:8000 -h $HOME",
            8000,
        )],
        clients: &[
            "valgrind --tool=none --log-file=log curl -sS http://$SERVER:8000/content | sha256sum",
            "strace -f -o calls curl -sS http://$SERVER:8000/content | sha256sum",
            r#"cat >first.c <<END
            #include <dlfcn.h>
            int close(int fd) {
                static int (*next)(int);
                if (!next)
                    next = (int (*)(int))dlsym(dlopen("libc.so.6", RTLD_LAZY), "close");
                return next(fd);
            }
END
            cc -shared -fPIC -o first.so first.c
            LD_PRELOAD="./first.so $LD_PRELOAD" curl -sS http://$SERVER:8000/content | sha256sum"#,
        ],
        tested: &[(End::Client, &[Engine, Inline, Supervised])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}
