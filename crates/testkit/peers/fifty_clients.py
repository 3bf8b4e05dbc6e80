"""Fifty clients of memcached at once, four times, more than its descriptors serve: how many got their answer.

    fifty_clients.py ADDRESS
"""

import select
import socket
import sys
import threading

CLIENTS = 50
PATIENCE_S = 60


def ask(begun, answers):
    with socket.socket() as own:
        own.setblocking(False)
        own.connect_ex((sys.argv[1], 11211))
        begun.wait()
        select.select([], [own], [], PATIENCE_S)
        own.settimeout(PATIENCE_S)
        try:
            own.sendall(b"version\r\n")
            answers.append("answered" if own.recv(100).startswith(b"VERSION") else "ended")
        except OSError as error:
            answers.append(type(error).__name__)


for turn in range(4):
    begun, answers = threading.Barrier(CLIENTS), []
    clients = [threading.Thread(target=ask, args=(begun, answers)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    print(turn, {word: answers.count(word) for word in sorted(set(answers))}, flush=True)
