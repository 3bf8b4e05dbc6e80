"""The host's kernel as the peer of one program in the guest: redis for streams, socat for datagrams. Run beside the cables."""

import hashlib
import os
import socket
import sys
import time

SECONDS = 60
BYTES = 4_000_000
ROUNDS = 50


def ask(stream, *words):
    """One command of redis's protocol, and its answer's bytes."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    stream.sendall(b"".join(parts))
    line = read_line(stream)
    if line[:1] == b"$":
        wanted = int(line[1:]) + 2
        content = bytearray()
        while len(content) < wanted:
            received = stream.recv(min(65536, wanted - len(content)))
            if not received:
                raise OSError("the connection ended")
            content += received
        return bytes(content[:-2])
    return line[1:]


def read_line(stream):
    line = b""
    while not line.endswith(b"\r\n"):
        received = stream.recv(1)
        if not received:
            raise OSError("the connection ended")
        line += received
    return line[:-2]


def connect(address):
    return socket.create_connection((address, 6379), timeout=SECONDS)


def echo(address):
    """Short answers on one connection, and short connections."""
    with connect(address) as stream:
        for number in range(ROUNDS):
            text = b"word %d" % number
            assert ask(stream, b"ECHO", text) == text
    for _ in range(10):
        with connect(address) as stream:
            assert ask(stream, b"PING") == b"PONG"


def many(address):
    """Short connections, one after the other, from ports of the kernel's choice."""
    for number in range(ROUNDS):
        with connect(address) as stream:
            text = b"%d" % number
            assert ask(stream, b"ECHO", text) == text


def answer(address):
    """Whatever comes on a connection goes back on it; until it is ended."""
    with socket.create_server((address, 7000)) as server:
        print("listening", flush=True)
        while True:
            stream, _ = server.accept()
            with stream:
                while received := stream.recv(65536):
                    stream.sendall(received)


def up(address):
    """Bytes to the guest, whose hash it says."""
    content = os.urandom(BYTES)
    with connect(address) as stream:
        assert ask(stream, b"SET", b"key", content) == b"OK"
        told = ask(stream, b"EVAL", b"return redis.sha1hex(redis.call('GET', 'key'))", b"0")
        assert told.decode() == hashlib.sha1(content).hexdigest(), "other bytes arrived"


def down(address):
    """Bytes from the guest, after its own hash of them."""
    with connect(address) as stream:
        script = b"redis.call('SET', 'long', string.rep('0123456789abcdef', %d)) return redis.sha1hex(redis.call('GET', 'long'))" % (BYTES // 16)
        told = ask(stream, b"EVAL", script, b"0")
        content = ask(stream, b"GET", b"long")
        assert len(content) == BYTES and told.decode() == hashlib.sha1(content).hexdigest(), "other bytes arrived"


def slowly(address):
    """Bytes to the guest for some ten seconds on one connection, on which the hash comes back; each part is said."""
    content = os.urandom(100 * 65536)
    head = b"*3\r\n$3\r\nSET\r\n$4\r\nslow\r\n$%d\r\n" % len(content)
    with connect(address) as stream:
        stream.sendall(head)
        for start in range(0, len(content), 65536):
            stream.sendall(content[start : start + 65536])
            print("on its way", flush=True)
            time.sleep(0.1)
        stream.sendall(b"\r\n")
        assert read_line(stream) == b"+OK"
        told = ask(stream, b"EVAL", b"return redis.sha1hex(redis.call('GET', 'slow'))", b"0")
        assert told.decode() == hashlib.sha1(content).hexdigest(), "other bytes arrived"


def slowly_back(address):
    """Bytes from the guest for some ten seconds on one connection, on which their hash came before; each part is said."""
    script = b"redis.call('SET', 'slow', string.rep('0123456789abcdef', %d)) return redis.sha1hex(redis.call('GET', 'slow'))" % (100 * 65536 // 16)
    with socket.socket() as stream:
        # Little is on its way without the reader.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        stream.settimeout(SECONDS)
        stream.connect((address, 6379))
        told = ask(stream, b"EVAL", script, b"0")
        stream.sendall(b"*2\r\n$3\r\nGET\r\n$4\r\nslow\r\n")
        left = int(read_line(stream)[1:])
        content = hashlib.sha1()
        while left:
            received = stream.recv(min(65536, left))
            assert received, "the connection ended"
            content.update(received)
            left -= len(received)
            print("on its way", flush=True)
            time.sleep(0.1 * len(received) / 65536)
        assert told.decode() == content.hexdigest(), "other bytes arrived"


# What count.c knows.
MARK = b"\xa7"


def rounds(address, count):
    """Short messages, each of which comes back."""
    with socket.create_connection((address, 7007), timeout=SECONDS) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(int(count)):
            stream.sendall(MARK * 64)
            left = 64
            while left:
                received = stream.recv(left)
                assert received == MARK * len(received) and received, "another message came back"
                left -= len(received)


def sink(address, count):
    """Bytes to a program that ends once it has them."""
    with socket.create_connection((address, 7001), timeout=SECONDS) as stream:
        stream.sendall(MARK * int(count))
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(1) == b"", "an answer that nobody expects"


def source(address, count):
    """Bytes from a program."""
    with socket.create_connection((address, 7002), timeout=SECONDS) as stream:
        left = int(count)
        while received := stream.recv(65536):
            assert received == MARK * len(received), "other bytes arrived"
            left -= len(received)
        assert left == 0, f"{left} bytes are missing"


def datagrams(address):
    """To and fro, in one frame and in several (IP fragments)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as peer:
        peer.settimeout(SECONDS)
        peer.connect((address, 9000))
        for length in (1, 1_000, 8_000):
            content = os.urandom(length)
            peer.send(content)
            assert peer.recv(65536) == content, f"another datagram of {length} bytes"


def group(address, joined, own):
    """A datagram to a group that a program has joined; the answer comes from the program's own address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        content = os.urandom(1_000)
        # The program may have its port a while before it is in the group.
        deadline = time.monotonic() + SECONDS
        peer.settimeout(2)
        while True:
            peer.sendto(content, (joined, 9001))
            try:
                answer = peer.recvfrom(65536)
                break
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
        assert answer == (content, (address, 9001)), "another datagram, or from elsewhere"


PROBES = {"echo": echo, "many": many, "answer": answer, "up": up, "down": down, "slowly": slowly, "slowly_back": slowly_back, "datagrams": datagrams, "group": group, "rounds": rounds, "sink": sink, "source": source}

if __name__ == "__main__":
    try:
        PROBES[sys.argv[1]](*sys.argv[2:])
    except (OSError, AssertionError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
