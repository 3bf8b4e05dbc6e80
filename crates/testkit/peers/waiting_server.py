"""An echo server whose threads wait in accept and recvfrom: connections and datagrams.

    waiting_server.py ADDRESS PORT

SIGUSR1: says which calls failed with what.
"""

import collections
import errno
import signal
import socket
import sys
import threading

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
where = (sys.argv[1], int(sys.argv[2]))
listener = socket.create_server(where, backlog=64)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(where)
seen = collections.Counter()


def serve():
    while True:
        try:
            client, _ = listener.accept()
        except OSError as error:
            seen["accept " + errno.errorcode[error.errno]] += 1
            continue
        with client:
            try:
                while part := client.recv(65536):
                    client.sendall(part)
            except OSError as error:
                seen["connection " + errno.errorcode[error.errno]] += 1


def echo():
    while True:
        try:
            part, source = datagrams.recvfrom(65536)
            datagrams.sendto(part, source)
        except OSError as error:
            seen["datagrams " + errno.errorcode[error.errno]] += 1


for work in (serve, serve, echo):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
while True:
    signal.sigwait([signal.SIGUSR1])
    print("seen", dict(sorted(seen.items())), flush=True)
