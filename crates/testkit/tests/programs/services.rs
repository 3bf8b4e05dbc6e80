//! Message brokers, databases and web servers that people put behind each other.

use testkit::rows::{End, Ready, Row, Server};

use crate::{ALONE, CONTENT, Cores, Engine, FAMILY, each};

/// A thread for each connection; its users are not asked for.
#[test]
fn mariadb_and_its_own_clients() {
    Row {
        name: "mariadb",
        needs: &["mariadbd", "mariadb-install-db", "mariadb", "mysqlslap"],
        before: "mariadb-install-db --no-defaults --datadir=$HOME/data --user=root --skip-test-db >/dev/null 2>&1",
        servers: &[Server::new(
            "exec mariadbd --no-defaults --user=root --datadir=$HOME/data --socket=$HOME/socket --pid-file=$HOME/pid \
                --bind-address=$SERVER --port=3306 --skip-name-resolve --skip-grant-tables \
                --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=16M",
            3306,
        )],
        clients: &[
            "ask() { mariadb --no-defaults -h $SERVER -u root -N --max-allowed-packet=16M \"$@\"; }
            ask -e 'create database things; create table things.one (number int primary key, words text)'
            for i in $(seq 300); do echo \"insert into things.one values ($i, repeat('word $i', $i));\"; done | ask things
            ask things -e 'select count(*), sum(length(words)) from one'
            ask things -e 'select words from one order by number' | sha256sum
            ask -e \"select repeat('0123456789', 300000)\" | sha256sum
            ask -P 1 -e 'select 1' 2>&1 || echo $?",
            "mysqlslap --no-defaults -h $SERVER -u root --concurrency=8 --iterations=2 --number-of-queries=200 \
                --auto-generate-sql | grep -E 'clients running|queries per'",
        ],
        tested: &[(End::Server, FAMILY), (End::Client, &[Engine])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// What was published before is kept for those who come later, and who listens hears of what is new.
#[test]
fn mosquitto_and_its_own_clients() {
    Row {
        name: "mosquitto",
        needs: &["mosquitto", "mosquitto_pub", "mosquitto_sub"],
        servers: &[Server::new(
            "printf 'listener 1883 %s\nallow_anonymous true\nuser root\n' $SERVER >configuration
            exec mosquitto -c configuration",
            1883,
        )],
        clients: &[
            "for i in $(seq 20); do mosquitto_pub -h $SERVER -t things/$i -m value-$i -q $((i % 3)) -r; done
            head -c 200000 /dev/zero | tr '\\0' x | mosquitto_pub -h $SERVER -t things/large -s -r -q 2
            mosquitto_sub -h $SERVER -t 'things/#' -v -q 2 -C 21 | sort | sha256sum
            mosquitto_sub -h $SERVER -t news -C 5 -q 1 >news & listener=$!
            for i in $(seq 300); do
                kill -0 $listener 2>/dev/null || break
                mosquitto_pub -h $SERVER -t news -m new -q 1
            done
            wait $listener; cat news
            mosquitto_pub -h $SERVER -p 1 -t things -m none || echo $?",
        ],
        tested: &each(ALONE),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// A daemon in Go as Debian builds it, which also connects to itself.
#[test]
fn etcd_and_its_own_client() {
    Row {
        name: "etcd",
        needs: &["etcd", "etcdctl"],
        servers: &[Server {
            ready: Ready::Says("serving client traffic insecurely"),
            ..Server::new(
                "exec etcd --data-dir data --listen-client-urls http://$SERVER:2379 --advertise-client-urls http://$SERVER:2379 \
                    --listen-peer-urls http://$SERVER:2380 --initial-advertise-peer-urls http://$SERVER:2380 \
                    --initial-cluster default=http://$SERVER:2380 --logger=zap --unsafe-no-fsync",
                2379,
            )
        }],
        clients: &[
            "export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://$SERVER:2379
            etcdctl watch --prefix key- >seen & watcher=$!
            for i in $(seq 20); do etcdctl put key-$i value-$i; done | uniq -c
            etcdctl get --prefix key- | sha256sum
            head -c 500000 /dev/zero | tr '\\0' x | etcdctl put large
            etcdctl get large | sha256sum
            for i in $(seq 300); do etcdctl put key-last value >/dev/null; grep -q key-last seen && break; sleep 0.05; done
            grep -c key-last seen | sed 's/[1-9].*/the watcher heard/'
            kill $watcher
            etcdctl --command-timeout=2s --endpoints=http://$SERVER:1 get key 2>/dev/null || echo $?",
        ],
        tested: &each(&[Engine, Cores]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// A thread that waits for events hands requests to others; kept connections go back to it.
#[test]
fn apache_with_the_event_module() {
    Row {
        name: "apache",
        needs: &["apache2", "ab", "curl", "openssl"],
        before: CONTENT,
        servers: &[Server {
            unmapped: true,
            ..Server::new(
                "cat >apache.conf <<END
                ServerRoot $HOME
                ServerName test
                PidFile $HOME/pid
                ErrorLog $HOME/errors
                Listen $SERVER:8080
                LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
                LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
                StartServers 2
                User nobody
                Group nogroup
                DocumentRoot $HOME
                <Directory $HOME>
                    Require all granted
                </Directory>
END
                exec apache2 -DFOREGROUND -f $HOME/apache.conf",
                8080,
            )
        }],
        clients: &[
            "curl -sS http://$SERVER:8080/content | sha256sum
            curl -sS -r 1000-1015 -w '%{http_code}' -o /dev/null http://$SERVER:8080/content
            curl -sSf -o /dev/null http://$SERVER:8080/absent || echo $?",
            "for i in $(seq 40); do echo url=http://$SERVER:8080/each; echo output=got-$i; done >urls
            curl --no-progress-meter -Z --parallel-max 10 -K urls
            sha256sum got-* | cut -c-64 | uniq -c",
            "echo small >small
            ab -q -k -c 20 -n 2000 http://$SERVER:8080/small | grep -E '^(Complete|Failed) requests'
            ab -q -c 20 -n 500 http://$SERVER:8080/small | grep -E '^(Complete|Failed) requests'",
        ],
        tested: &[(End::Server, FAMILY), (End::Client, &[Engine])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn lighttpd() {
    Row {
        name: "lighttpd",
        needs: &["lighttpd", "curl", "openssl"],
        before: CONTENT,
        servers: &[Server::new(
            "cat >lighttpd.conf <<END
            server.document-root = \"$HOME\"
            server.bind = \"$SERVER\"
            server.port = 8080
            server.max-keep-alive-requests = 100
END
            exec lighttpd -D -f lighttpd.conf 2>errors",
            8080,
        )],
        clients: &[
            "curl -sS http://$SERVER:8080/content | sha256sum
            curl -sS -r 1000-1015 -w '%{http_code}' -o /dev/null http://$SERVER:8080/content
            curl -sSf -o /dev/null http://$SERVER:8080/absent || echo $?",
            "for i in $(seq 40); do echo url=http://$SERVER:8080/each; echo output=got-$i; done >urls
            curl --no-progress-meter -Z --parallel-max 10 -K urls
            sha256sum got-* | cut -c-64 | uniq -c",
        ],
        tested: &[(End::Server, ALONE)],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// FastCGI from a web server on another host; its processes share a listener.
#[test]
fn php_fpm_behind_nginx() {
    const NGINX: &str = r#"for kind in client_body proxy fastcgi uwsgi scgi; do echo "${kind}_temp_path $HOME/$kind;"; done >paths
        cat >nginx.conf <<END
        pid $HOME/nginx.pid;
        events {}
        http {
            access_log off; client_max_body_size 8m;
            include $HOME/paths;
            server {
                listen $CLIENT:80;
                location / {
                    fastcgi_pass $SERVER:9000;
                    fastcgi_param SCRIPT_FILENAME $HOME/page.php;
                    fastcgi_param REQUEST_METHOD \$request_method;
                    fastcgi_param QUERY_STRING \$query_string;
                    fastcgi_param CONTENT_TYPE \$content_type;
                    fastcgi_param CONTENT_LENGTH \$content_length;
                }
            }
        }
END
        exec nginx -e $HOME/nginx-errors -g 'daemon off;' -c $HOME/nginx.conf"#;
    Row {
        name: "php-fpm",
        needs: &["php-fpm8.2", "nginx", "curl"],
        before: "cat >page.php <<'END'
<?php
$body = file_get_contents('php://input');
echo strlen($body), ' ', hash('sha256', $body), ' ', str_repeat($_GET['word'] ?? 'none ', (int) ($_GET['times'] ?? 1)), \"\n\";
END",
        servers: &[
            Server {
                unmapped: true,
                ..Server::new(
                    "cat >fpm.conf <<END
[global]
error_log = $HOME/fpm-errors
[pool]
user = nobody
group = nogroup
listen = $SERVER:9000
pm = static
pm.max_children = 3
pm.max_requests = 20
END
                    exec php-fpm8.2 --nodaemonize --no-php-ini --fpm-config fpm.conf",
                    9000,
                )
            },
            Server {
                at: End::Client,
                unmapped: true,
                ..Server::new(NGINX, 80)
            },
        ],
        clients: &[
            "for i in $(seq 60); do curl -sS \"http://$CLIENT/?word=word&times=$i\"; done | sha256sum
            head -c 3000000 /dev/zero | curl -sS --data-binary @- http://$CLIENT/
            curl -sS \"http://$CLIENT/?word=0123456789&times=300000\" | sha256sum",
        ],
        tested: &[(End::Server, FAMILY)],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Ruby: workers with threads, behind a listener that they share.
#[test]
fn puma_with_workers() {
    Row {
        name: "puma",
        needs: &["puma", "curl"],
        before: "cat >config.ru <<'END'
run lambda { |env|
  body = env['rack.input'].read
  [200, { 'content-type' => 'text/plain', 'content-length' => body.bytesize.to_s }, [body]]
}
END",
        servers: &[Server {
            ready: Ready::Says("Worker 1 (PID"),
            ..Server::new("exec puma -b tcp://$SERVER:9292 -t 4:8 -w 2 config.ru", 9292)
        }],
        clients: &[
            "for i in $(seq 30); do curl -sS -d request-$i http://$SERVER:9292/; echo; done
            head -c 3000000 /dev/zero | curl -sS --data-binary @- http://$SERVER:9292/ | sha256sum
            for i in $(seq 40); do echo url=http://$SERVER:9292/; echo data=word; echo output=got-$i; done >urls
            curl --no-progress-meter -Z --parallel-max 10 -K urls
            sha256sum got-* | cut -c-64 | uniq -c",
        ],
        tested: &[(End::Server, &[Engine, Cores])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}
