"""A witness: counted, numbered and hashed messages, each answered. Any wrong, lost or late one ends it with a word."""
import hashlib, os, random, socket, struct, sys, threading, time

HEAD = struct.Struct('!QI32s')
LATE_S = 60

def take(one, count):
    """Exactly so many bytes; none at the end of the stream."""
    parts = []
    while count:
        part = one.recv(count)
        if not part:
            assert not parts, 'the stream ends within a message'
            return None
        parts.append(part)
        count -= len(part)
    return b''.join(parts)

def digest(word, number, body):
    return hashlib.sha256(word + struct.pack('!Q', number) + body).digest()

def message(one, word, expected):
    """The next message, checked; None at the end of the stream."""
    head = take(one, HEAD.size)
    if head is None: return None
    number, length, found = HEAD.unpack(head)
    assert number == expected, f'message {number} came where {expected} was due'
    body = take(one, length)
    assert found == digest(word, number, body), f'message {number} is not what was sent'
    return body

def answer(one):
    with one:
        number = 0
        while (body := message(one, b'ask', number)) is not None:
            one.sendall(HEAD.pack(number, len(body), digest(b'answer', number, body)) + body)
            number += 1

def serve(address):
    with socket.create_server((address, 0)) as listener:
        print('port', listener.getsockname()[1], flush=True)
        while True:
            one, _ = listener.accept()
            threading.Thread(target=answer, args=(one,), daemon=True).start()

def ask(address, port, stop):
    with socket.create_connection((address, int(port)), LATE_S) as one:
        chosen, number, slowest_s = random.Random(int(port)), 0, 0.0
        while not os.path.exists(stop):
            body = chosen.randbytes(chosen.randint(1, 40_000))
            begun_s = time.monotonic()
            one.sendall(HEAD.pack(number, len(body), digest(b'ask', number, body)) + body)
            assert message(one, b'answer', number) == body, f'no answer {number}'
            took_s = time.monotonic() - begun_s
            assert took_s < LATE_S, f'answer {number} took {took_s:.1f} s'
            slowest_s, number = max(slowest_s, took_s), number + 1
            print('answer', number, flush=True)
            # Load for the engine, not all there is of a processor.
            time.sleep(0.002)
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b'', 'more came than was asked for'
        print('done', number, int(slowest_s * 1000), flush=True)

{'serve': serve, 'ask': ask}[sys.argv[1]](*sys.argv[2:])
