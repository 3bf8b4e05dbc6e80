//! Stores and databases.

use testkit::rows::{End, Ready, Row, Server};

use crate::{Cores, Engine, Inline, Supervised, Xdp, each};

const REDIS: Server = Server::new(
    "exec redis-server --bind $SERVER --save '' --protected-mode no",
    6379,
);

#[test]
fn redis_and_its_own_clients() {
    Row {
        name: "redis",
        needs: &["redis-server", "redis-cli", "redis-benchmark"],
        servers: &[REDIS],
        clients: &[
            "redis-cli -h $SERVER PING
            head -c 100000 /dev/zero | tr '\\0' x | redis-cli -h $SERVER -x SET key
            redis-cli -h $SERVER GET key | sha256sum
            redis-cli -h $SERVER NO-SUCH-COMMAND || echo $?
            redis-cli -h $SERVER -p 1 PING || echo $?",
            // The last words of each test name what was done; how fast is not compared.
            "redis-benchmark -h $SERVER -c 50 -n 2000 -t set,get,lpush,lrange_100 --csv | cut -d, -f1
            redis-benchmark -h $SERVER -c 10 -P 16 -n 8000 -t get --csv | cut -d, -f1
            redis-cli -h $SERVER LLEN mylist",
        ],
        tested: &each(&[Engine, Cores, Xdp, Inline, Supervised]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// A replica asks its master for everything and then follows it: both are servers, and clients of each other's hosts.
#[test]
fn redis_replication_between_two() {
    Row {
        name: "redis-replica",
        needs: &["redis-server", "redis-cli"],
        servers: &[
            Server {
                at: End::Client,
                line: "exec redis-server --bind $CLIENT --save '' --protected-mode no --repl-diskless-sync-delay 0",
                ..REDIS
            },
            Server {
                line: "mkdir replica; exec redis-server --bind $SERVER --save '' --protected-mode no --dir replica \
                    --replicaof $CLIENT 6379",
                ..REDIS
            },
        ],
        clients: &[
            "for try in $(seq 200); do
                redis-cli -h $SERVER INFO replication | grep -q master_link_status:up && break
                sleep 0.05
            done
            seq 20000 | sed 's/.*/SET key-& value-&/' | redis-cli -h $CLIENT --pipe | tail -1
            for i in $(seq 20); do redis-cli -h $CLIENT RPUSH list $i; done >/dev/null
            printf 'SET last word\\nWAIT 1 15000\\n' | redis-cli -h $CLIENT
            redis-cli -h $SERVER GET last
            redis-cli -h $SERVER LRANGE list 0 -1 | tr '\\n' ' '
            redis-cli -h $SERVER DBSIZE
            redis-cli -h $SERVER INFO replication | grep -E 'role|link_status'",
        ],
        tested: &each(&[Engine, Cores, Inline]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn memcached_and_many_clients() {
    Row {
        name: "memcached",
        needs: &["memcached", "memcslap", "memccat", "memccp"],
        servers: &[Server::new("exec memcached -u nobody -l $SERVER -t 4", 11211)],
        clients: &[
            "head -c 500000 /dev/zero | tr '\\0' x >value
            memccp --servers=$SERVER value
            memccat --servers=$SERVER value | sha256sum",
            "memcslap --servers=$SERVER --concurrency=8 --execute-number=500 --test=set >said && grep -c . said",
        ],
        // No engine within it: it gives up its privileges before it opens a socket.
        tested: &each(&[Engine, Cores, Xdp, Supervised]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Who cannot be accepted for want of a descriptor waits until one is closed.
#[test]
fn memcached_with_fewer_descriptors_than_clients() {
    Row {
        name: "memcached-limit",
        needs: &["memcached", "python3"],
        servers: &[Server::new(
            "exec memcached -u nobody -l $SERVER -t 2 -c 60 -o no_maxconns_fast",
            11211,
        )],
        clients: &["python3 $PEERS/fifty_clients.py $SERVER"],
        // As above.
        tested: &[(End::Server, &[Engine, Cores, Supervised])],
        ..Row::EMPTY
    }
    .check();
}

/// A process for each connection, with privileges dropped before.
#[test]
fn postgres_and_pgbench() {
    Row {
        name: "postgres",
        needs: &["postgres", "initdb", "pgbench", "psql", "setpriv"],
        // It refuses root, and asks for its user's name.
        possible: "setpriv --reuid=nobody --regid=nogroup --clear-groups true",
        before: "mkdir data socket; chown nobody data socket
        setpriv --reuid=nobody --regid=nogroup --clear-groups \
            initdb -D data -A trust -U postgres -E UTF8 --no-sync >/dev/null
        echo host all postgres 0.0.0.0/0 trust >>data/pg_hba.conf",
        servers: &[Server {
            // It accepts before, and turns everybody away.
            ready: Ready::Says("ready to accept connections"),
            ..Server::new(
                "exec setpriv --reuid=nobody --regid=nogroup --clear-groups \
                    postgres -D data -h $SERVER -k $HOME/socket -F",
                5432,
            )
        }],
        clients: &[
            "export PGHOST=$SERVER PGUSER=postgres
            pgbench -i -q 2>&1 | tail -1 | sed 's/ in .*//'
            pgbench -n -c 8 -j 2 -t 25 | grep -E 'processed|failed'
            pgbench -n -C -S -c 4 -t 10 | grep -E 'processed|failed'
            psql -Atc 'select (select sum(delta) from pgbench_history) = (select sum(tbalance) from pgbench_tellers)'
            psql -Atc \"select repeat('0123456789', 300000)\" | sha256sum
            psql -p 1 -c 'select 1' 2>&1 || echo $?",
        ],
        // Its privileges go before it has a socket: not inline.
        tested: &[(End::Server, &[Engine, Cores]), (End::Client, &[Engine])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}
