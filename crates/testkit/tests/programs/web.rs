//! Web servers, and what asks them.

use testkit::rows::{End, Ready, Row, Server};

use crate::{ALONE, CONTENT, Cores, Engine, FAMILY, HANDING_ON, Inline, Supervised, Xdp, each};

/// Several workers that send files by sendfile(2), and take requests with bodies.
const NGINX: Server = Server {
    unmapped: true,
    ..Server::new(
        r#"for kind in client_body proxy fastcgi uwsgi scgi; do echo "${kind}_temp_path $HOME/$kind;"; done >paths
        cat >nginx.conf <<END
        worker_processes 3;
        pid $HOME/nginx.pid;
        events {}
        http {
            access_log off; sendfile on; keepalive_requests 100;
            include $HOME/paths;
            server { listen $SERVER:80; root $HOME; }
        }
END
        exec nginx -e $HOME/nginx-errors -g 'daemon off;' -c $HOME/nginx.conf"#,
        80,
    )
};

const PYTHON: Server = Server::new("exec python3 -m http.server --bind $SERVER 8000", 8000);

#[test]
fn nginx_with_several_workers_and_curl() {
    Row {
        name: "nginx",
        needs: &["nginx", "curl", "openssl"],
        before: CONTENT,
        servers: &[NGINX],
        clients: &[
            "curl -sS http://$SERVER/content | sha256sum",
            "curl -sS -r 1000-1015 -w '%{http_code}' -o /dev/null http://$SERVER/content",
            "curl -sSf -o /dev/null http://$SERVER/absent || echo $?",
            "curl -s http://$SERVER:1/ || echo $?",
            // By SO_BINDTODEVICE.
            "[ $SERVER = 127.0.0.1 ] || curl -sSf --interface eth0 -I http://$SERVER/content | head -1",
            // Connections kept, ten at a time.
            "for i in $(seq 40); do echo url=http://$SERVER/each; echo output=got-$i; done >urls
            curl --no-progress-meter -Z --parallel-max 10 -K urls
            sha256sum got-* | cut -c-64 | uniq -c",
        ],
        tested: &[
            (End::Server, &[Engine, Cores, Xdp, Inline, Supervised]),
            (End::Client, &[Engine, Cores, Xdp, Inline, Supervised]),
        ],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// A listener for each worker, all on one end.
const NGINX_REUSEPORT: Server = Server {
    unmapped: true,
    ..Server::new(
        r#"for kind in client_body proxy fastcgi uwsgi scgi; do echo "${kind}_temp_path $HOME/$kind;"; done >paths
        cat >nginx.conf <<END
        worker_processes 3;
        pid $HOME/nginx.pid;
        events {}
        http {
            access_log off; keepalive_requests 100;
            include $HOME/paths;
            server { listen $SERVER:80 reuseport; location / { return 200 "\$pid\n"; } }
        }
END
        exec nginx -e $HOME/nginx-errors -g 'daemon off;' -c $HOME/nginx.conf"#,
        80,
    )
};

#[test]
fn nginx_with_a_listener_for_each_worker() {
    Row {
        name: "nginx-reuseport",
        needs: &["nginx", "curl"],
        servers: &[NGINX_REUSEPORT],
        clients: &[
            "for i in $(seq 90); do curl -sSf http://$SERVER/; done >said; wc -l <said; sort -u said | wc -l",
            // Other workers take the listeners over.
            "kill -HUP $(cat nginx.pid)
            for i in $(seq 60); do curl -sSf http://$SERVER/; done | wc -l",
        ],
        tested: &[
            (End::Server, &[Engine, Cores, Xdp, Supervised]),
            (End::Client, &[Engine]),
        ],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn python_and_wget() {
    Row {
        name: "python-wget",
        needs: &["python3", "wget", "openssl"],
        before: CONTENT,
        servers: &[PYTHON],
        clients: &[
            "wget -q --tries=1 -O - http://$SERVER:8000/content | sha256sum",
            "wget -q --tries=1 -O - http://$SERVER:8000/absent || echo $?",
            "wget -q --tries=1 -O - http://$SERVER:1/ || echo $?",
        ],
        tested: &each(ALONE),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn wget_after_hosts_that_do_not_answer() {
    Row {
        name: "wget-dead",
        needs: &["python3", "wget", "openssl"],
        before: CONTENT,
        servers: &[PYTHON],
        clients: &[
            // The handler of its alarm jumps out of connect. Addresses of the link that nobody has.
            "for n in 1 2 3 4 5 6; do dead=\"$dead http://${SERVER%.*}.20$n:8000/\"; done
            wget --connect-timeout=1 --read-timeout=8 --tries=1 -O got $dead http://$SERVER:8000/content 2>said || echo $?
            grep -c 'timed out' said
            sha256sum <got",
        ],
        tested: &[(End::Client, ALONE)],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn wrk_on_nginx() {
    Row {
        name: "wrk",
        needs: &["nginx", "wrk"],
        before: "head -c 500 /dev/zero | tr '\\0' x >page",
        servers: &[NGINX],
        clients: &[
            // So many in all, however few a busy machine serves in a second, and no word of errors or answers other than 2xx.
            "answered=0
            until [ $answered -gt 100 ]; do
                wrk -t 2 -c 20 -d 1s http://$SERVER/page >said
                ! grep -E 'Socket errors|Non-2xx' said
                answered=$((answered + $(awk '/requests in/ { print $1 }' said)))
            done",
        ],
        tested: &each(&[Engine, Cores]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn gunicorn_with_workers_that_share_a_listener() {
    Row {
        name: "gunicorn",
        needs: &["gunicorn", "curl"],
        servers: &[Server::new(
            "cat >application.py <<END
def application(environ, start):
    body = environ['wsgi.input'].read()
    start('200 OK', [('Content-Length', str(len(body)))])
    return [body]
END
            exec gunicorn --bind $SERVER:8000 --workers 3 application:application",
            8000,
        )],
        clients: &[
            "for i in $(seq 30); do curl -sS -d request-$i http://$SERVER:8000/; echo; done",
            "head -c 3000000 /dev/zero | curl -sS --data-binary @- http://$SERVER:8000/ | sha256sum",
        ],
        tested: &[(End::Server, FAMILY)],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn two_servers_that_know_nothing_of_each_other_share_a_port() {
    const LINE: &str = "cat >application.$$ <<END
import os
def application(environ, start):
    body = str(os.getppid()).encode()
    start('200 OK', [('Content-Length', str(len(body)))])
    return [body]
END
            mv application.$$ application.py
            exec gunicorn --reuse-port --bind $SERVER:8000 --workers 1 application:application";
    let second = Server {
        ready: Ready::Says("Listening at"),
        ..Server::new(LINE, 8000)
    };
    Row {
        name: "gunicorn-twice",
        needs: &["gunicorn", "curl"],
        servers: &[Server::new(LINE, 8000), second],
        clients: &[
            "for i in $(seq 60); do curl -sSf http://$SERVER:8000/; echo; done >said; wc -l <said; sort -u said | wc -l",
        ],
        tested: &[(End::Server, &[Engine, Cores, Supervised])],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn uvicorn() {
    Row {
        name: "uvicorn",
        needs: &["/usr/bin/python3", "curl"],
        possible: "/usr/bin/python3 -c 'import uvicorn'",
        servers: &[Server::new(
            "cat >application.py <<END
async def application(scope, receive, send):
    if scope['type'] == 'lifespan':
        return
    body, more = b'', True
    while more:
        message = await receive()
        body, more = body + message['body'], message['more_body']
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': body})
END
            exec /usr/bin/python3 -m uvicorn --host $SERVER --port 8000 --lifespan off application:application",
            8000,
        )],
        clients: &[
            "for i in $(seq 30); do curl -sS -d request-$i http://$SERVER:8000/; echo; done",
            "head -c 3000000 /dev/zero | curl -sS --data-binary @- http://$SERVER:8000/ | sha256sum",
        ],
        tested: &[(End::Server, ALONE)],
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}

/// Git's own protocol over HTTP: the server's other half is a program that the web server starts.
#[test]
fn git_over_http() {
    Row {
        name: "git",
        needs: &["git", "python3"],
        before: "mkdir -p www/cgi-bin
        git init -q --bare www/repository
        git -C www/repository config http.receivepack true
        git config --global safe.directory '*'; chmod -R a+rwX www
        printf '#!/bin/sh\\nGIT_PROJECT_ROOT=%s GIT_HTTP_EXPORT_ALL=1 exec git http-backend\\n' $HOME/www >www/cgi-bin/git
        chmod +x www/cgi-bin/git",
        servers: &[Server::new(
            "cd www; exec python3 -m http.server --cgi --bind $SERVER 8000",
            8000,
        )],
        clients: &[
            "git config --global user.name name; git config --global user.email mail
            git init -q mine; cd mine
            for i in $(seq 20); do head -c 30000 /dev/zero | openssl enc -aes-128-ctr -K $i -iv 0 >$i 2>/dev/null; done
            git add .; git commit -q -m first
            git push -q http://$SERVER:8000/cgi-bin/git/repository HEAD:main
            git clone -q -b main http://$SERVER:8000/cgi-bin/git/repository ../again
            git -C ../again rev-parse HEAD^{tree}",
            "git ls-remote http://$SERVER:1/ >/dev/null 2>&1 || echo $?",
        ],
        // The server hands the connection on to the program that it executes.
        tested: &[(End::Server, HANDING_ON), (End::Client, &[Engine, Cores])],
        loopback: HANDING_ON,
        ..Row::EMPTY
    }
    .check();
}

/// A page of sixty scripts, asked for on several connections at once; it is loaded when all of them have run.
/// A browser gives up what it is loading when an address appears (ERR_NETWORK_CHANGED): those of the new host have to
/// be there first.
#[test]
fn chromium_loads_a_page() {
    Row {
        name: "chromium",
        needs: &["chromium", "python3"],
        before: "echo '<!doctype html><body>' >page.html
        for i in $(seq 60); do
            echo \"<script src=/thing-$i.js></script>\" >>page.html
            { echo \"document.write('<p>thing $i</p>') //\"; head -c ${i}000 /dev/zero | tr '\\0' x; } | tr -d '\\n' >thing-$i.js
        done",
        servers: &[PYTHON],
        clients: &[
            "for i in $(seq 200); do ip -6 address show | grep -q tentative || break; sleep 0.05; done
            chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=$HOME/profile \
                --no-proxy-server --dump-dom http://$SERVER:8000/page.html 2>errors >dom
            grep -o '<p>thing [0-9]*' dom",
        ],
        tested: &each(&[Engine]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}
