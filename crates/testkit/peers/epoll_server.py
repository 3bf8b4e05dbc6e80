"""An echo server of two threads, each with an epoll instance of its own on one listener.

    epoll_server.py ADDRESS PORT

SIGUSR1: says how often the listener was reported, how many accepts failed with what, and how many connections were reset.
"""

import collections
import errno
import select
import signal
import socket
import sys
import threading

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)
listener.setblocking(False)
seen = collections.Counter()


def greet(epoll, clients):
    seen["reports"] += 1
    try:
        client, _ = listener.accept()
    except OSError as error:
        # Two threads are told of one connection.
        if error.errno != errno.EAGAIN:
            seen[errno.errorcode[error.errno]] += 1
        return
    seen["accepted"] += 1
    client.setblocking(False)
    clients[client.fileno()] = client
    epoll.register(client, select.EPOLLIN)


def echo(epoll, clients, number):
    client = clients[number]
    try:
        data = client.recv(65536)
        if data:
            client.setblocking(True)
            client.sendall(data)
            client.setblocking(False)
            return
    except OSError as error:
        seen["connections " + errno.errorcode[error.errno]] += 1
    epoll.unregister(client)
    del clients[number]
    client.close()


def serve():
    epoll, clients = select.epoll(), {}
    epoll.register(listener, select.EPOLLIN)
    while True:
        for number, _ in epoll.poll():
            if number == listener.fileno():
                greet(epoll, clients)
            else:
                echo(epoll, clients, number)


for _ in range(2):
    threading.Thread(target=serve, daemon=True).start()
print("ready", flush=True)
while True:
    signal.sigwait([signal.SIGUSR1])
    print("seen", dict(sorted(seen.items())), flush=True)
