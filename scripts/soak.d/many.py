"""Many connections at the same time: one end serves or holds them, and each byte that comes back is compared.

    many.py serve ADDRESS PORT            sends back what comes, on each connection
    many.py hold ADDRESS PORT COUNT       opens so many, says "held", and at each line that it reads sends over all of them
                                          what no other has, waits for it to come back, and says how many were as they should be
    many.py busy ADDRESS PORT COUNT       the same without waiting for lines
"""

import itertools
import resource
import selectors
import socket
import sys
import time

PATIENCE_S = 60
BYTES = 64
# So many handshakes are under way at the same time.
AT_ONCE = 64


def serve(address):
    ready = selectors.DefaultSelector()
    listener = socket.create_server(address, backlog=1024)
    listener.setblocking(False)
    ready.register(listener, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in ready.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setblocking(False)
                ready.register(connection, selectors.EVENT_READ)
                continue
            data = key.fileobj.recv(4096)
            if data:
                key.fileobj.sendall(data)
            else:
                ready.unregister(key.fileobj)
                key.fileobj.close()


def hold(address, count, turns):
    held = []
    while len(held) < count:
        batch = [socket.create_connection(address, PATIENCE_S) for _ in range(min(AT_ONCE, count - len(held)))]
        # The server has accepted what it has answered.
        exchange(batch, 0)
        held += batch
    print("held", flush=True)
    for round_number, _ in enumerate(turns, 1):
        print(exchange(held, round_number), flush=True)


def exchange(held, round_number):
    """How many of the connections brought back what was sent over them, and nothing else."""
    ready = selectors.DefaultSelector()
    wanted, came = {}, {}
    for number, connection in enumerate(held):
        wanted[connection] = f"{round_number} {number} ".encode().ljust(BYTES, b".")
        came[connection] = b""
        connection.setblocking(False)
        ready.register(connection, selectors.EVENT_READ)
    waiting = 0
    for connection in held:
        try:
            connection.sendall(wanted[connection])
            waiting += 1
        except OSError:
            ready.unregister(connection)
    deadline = time.monotonic() + PATIENCE_S
    while waiting and time.monotonic() < deadline:
        for key, _ in ready.select(1):
            connection = key.fileobj
            try:
                data = connection.recv(4096)
            except OSError:
                data = b""
            came[connection] += data
            if not data or len(came[connection]) >= BYTES:
                ready.unregister(connection)
                waiting -= 1
    return sum(came[connection] == wanted[connection] for connection in held)


if __name__ == "__main__":
    role, host, port, *rest = sys.argv[1:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if role == "serve":
        serve((host, int(port)))
    else:
        hold((host, int(port)), int(rest[0]), itertools.count() if role == "busy" else sys.stdin)
