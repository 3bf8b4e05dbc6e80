//! HAProxy between clients and two servers.

use testkit::rows::{End, Row, Server};

use crate::{CONTENT, Cores, Engine, Inline, Supervised, Xdp};

const BACKENDS: Server = Server {
    line: r#"for kind in client_body proxy fastcgi uwsgi scgi; do echo "${kind}_temp_path $HOME/$kind;"; done >paths
                cat >nginx.conf <<END
                pid $HOME/nginx.pid;
                events {}
                http {
                    access_log off; sendfile on;
                    include $HOME/paths;
                    server { listen $CLIENT:81; root $HOME; location /name { return 200 one\\n; } }
                    server { listen $CLIENT:82; root $HOME; location /name { return 200 two\\n; } }
                }
END
                exec nginx -e $HOME/nginx-errors -g 'daemon off;' -c $HOME/nginx.conf"#,

    at: End::Client,
    unmapped: true,
    ..Server::new("", 82)
};

const CONFIGURATION: &str = r"cat >haproxy.cfg <<END
    global
        maxconn 200
    defaults
        mode http
        timeout connect 5s
        timeout client 10s
        timeout server 10s
        retries 0
    frontend kept
        bind $SERVER:8000
        default_backend kept
    frontend closed
        bind $SERVER:8001
        default_backend closed
    frontend tcp
        bind $SERVER:8002
        mode tcp
        option splice-auto
        default_backend tcp
    frontend reused
        bind $SERVER:8003
        default_backend reused
    backend kept
        option http-keep-alive
        server one $CLIENT:81 check inter 100
        server two $CLIENT:82 check inter 100
    backend closed
        option http-server-close
        option tcp-check
        server one $CLIENT:81 check inter 100
        server two $CLIENT:82 check inter 100
    backend tcp
        mode tcp
        option splice-auto
        server one $CLIENT:81 check inter 100
        server two $CLIENT:82 check inter 100
    backend reused
        http-reuse always
        option httpchk GET /name
        server one $CLIENT:81 check inter 100
        server two $CLIENT:82 check inter 100
END
    exec haproxy -f haproxy.cfg";

/// Two servers that say who they are, by turns behind HAProxy: over HTTP with the connections to them kept and not
/// kept, and over TCP, spliced and not.
#[test]
fn haproxy_before_two_servers() {
    Row {
        name: "haproxy",
        needs: &["haproxy", "nginx", "curl", "openssl"],
        before: CONTENT,
        servers: &[
            BACKENDS,
            Server::new(CONFIGURATION, 8003),
        ],
        clients: &[
            // A connection for each request, by turns, from each way to have a backend; twenty of each.
            "for port in 8000 8001 8002 8003; do
                for i in $(seq 20); do curl -sS -w '%{http_code}\n' http://$SERVER:$port/name; done | sort | uniq -c
            done",
            // Kept on the client's side.
            "for port in 8000 8001 8002 8003; do
                for i in $(seq 20); do echo url=http://$SERVER:$port/name; done >urls
                curl -sS -K urls | sort | uniq -c | wc -l
            done",
            "for port in 8000 8001 8002 8003; do
                for i in $(seq 8); do echo url=http://$SERVER:$port/content; echo output=got-$i; done >urls
                curl --no-progress-meter -Z --parallel-max 4 -K urls
                sha256sum got-* | cut -c-64 | uniq -c
            done",
        ],
        tested: &[(End::Server, &[Engine, Cores, Xdp, Inline, Supervised])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}
