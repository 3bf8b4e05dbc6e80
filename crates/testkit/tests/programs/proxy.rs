//! Proxies between clients and two servers.

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
        server one $CLIENT:81 check inter 100 fall 100
        server two $CLIENT:82 check inter 100 fall 100
    backend closed
        option http-server-close
        option tcp-check
        server one $CLIENT:81 check inter 100 fall 100
        server two $CLIENT:82 check inter 100 fall 100
    backend tcp
        mode tcp
        option splice-auto
        server one $CLIENT:81 check inter 100 fall 100
        server two $CLIENT:82 check inter 100 fall 100
    backend reused
        http-reuse always
        option httpchk GET /name
        server one $CLIENT:81 check inter 100 fall 100
        server two $CLIENT:82 check inter 100 fall 100
END
    exec haproxy -f haproxy.cfg";

/// Two servers that say who they are, by turns behind HAProxy: over HTTP with the connections to them kept and not
/// kept, and over TCP, spliced and not.
/// A check that takes longer than the time between two has failed, which on a busy machine one does now and then: a server is down
/// after ten seconds of such.
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
                for i in $(seq 8); do echo url=http://$SERVER:$port/each; echo output=got-$i; done >urls
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

/// One process whose threads have a listener each on one end, as Envoy's have.
#[test]
fn haproxy_with_a_listener_for_each_thread() {
    Row {
        name: "haproxy-shards",
        needs: &["haproxy", "curl"],
        servers: &[Server::new(
            r#"cat >haproxy.cfg <<END
    global
        nbthread 4
    defaults
        mode http
        timeout connect 5s
        timeout client 10s
        timeout server 10s
    frontend threads
        bind $SERVER:8000 shards by-thread
        http-request return status 200 content-type text/plain lf-string "%[thread]\n"
END
    exec haproxy -f haproxy.cfg"#,
            8000,
        )],
        clients: &[
            "for i in $(seq 100); do curl -sSf http://$SERVER:8000/; done >said; wc -l <said; sort -u said | wc -l",
        ],
        tested: &[(End::Server, &[Engine, Cores, Xdp, Inline, Supervised])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// It gives up its privileges before its first socket: no engine within it.
#[test]
fn squid_before_two_servers() {
    Row {
        name: "squid",
        needs: &["squid", "nginx", "curl", "openssl"],
        before: CONTENT,
        servers: &[
            BACKENDS,
            Server::new(
                "mkdir own; chmod 777 own
                cat >squid.conf <<END
                http_port $SERVER:3128
                acl all_ports port 1-65535
                http_access allow all
                cache_mem 64 MB
                maximum_object_size_in_memory 32 MB
                access_log none
                cache_log $HOME/own/log
                pid_filename none
                coredump_dir $HOME/own
                visible_hostname test
                pinger_enable off
                shutdown_lifetime 0 seconds
END
                exec squid -N -f squid.conf",
                3128,
            ),
        ],
        clients: &[
            "for i in $(seq 10); do
                curl -sS -x http://$SERVER:3128 -w '%{http_code}\n' http://$CLIENT:81/name http://$CLIENT:82/name
            done | sort | uniq -c
            curl -sS -x http://$SERVER:3128 http://$CLIENT:81/content | sha256sum
            curl -sS -p -x http://$SERVER:3128 http://$CLIENT:82/content | sha256sum
            curl -sS -o /dev/null -w '%{http_code}\n' -x http://$SERVER:3128 http://$CLIENT:1/",
            // From its memory.
            "for i in $(seq 8); do echo url=http://$CLIENT:81/each; echo output=got-$i; done >urls
            curl --no-progress-meter -x http://$SERVER:3128 -Z --parallel-max 4 -K urls
            sha256sum got-* | cut -c-64 | uniq -c",
        ],
        tested: &[(End::Server, &[Engine, Cores])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// A process with many threads behind one that keeps it; its configuration is compiled.
#[test]
fn varnish_before_two_servers() {
    Row {
        name: "varnish",
        needs: &["varnishd", "nginx", "curl", "openssl", "cc"],
        before: CONTENT,
        servers: &[
            BACKENDS,
            Server::new(
                "cat >both.vcl <<END
                vcl 4.1;
                import directors;
                backend one { .host = \"$CLIENT\"; .port = \"81\"; }
                backend two { .host = \"$CLIENT\"; .port = \"82\"; }
                sub vcl_init { new turns = directors.round_robin(); turns.add_backend(one); turns.add_backend(two); }
                sub vcl_recv {
                    set req.backend_hint = turns.backend();
                    if (req.url == \"/name\") { return (pass); }
                }
END
                exec varnishd -F -j none -n $HOME/varnish -a $SERVER:6081 -f $HOME/both.vcl -s malloc,64m",
                6081,
            ),
        ],
        clients: &[
            "for i in $(seq 20); do curl -sS -w '%{http_code}\n' http://$SERVER:6081/name; done | sort | uniq -c
            curl -sS http://$SERVER:6081/content | sha256sum
            curl -sS -r 1000-1015 -w '%{http_code}' -o /dev/null http://$SERVER:6081/content",
            "for i in $(seq 40); do echo url=http://$SERVER:6081/each; echo output=got-$i; done >urls
            curl --no-progress-meter -Z --parallel-max 10 -K urls
            sha256sum got-* | cut -c-64 | uniq -c",
        ],
        tested: &[(End::Server, &[Engine, Cores])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}
