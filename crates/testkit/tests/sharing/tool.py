import errno, os, socket, sys, threading, time

what, arguments = sys.argv[1], sys.argv[2:]

def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET

def listen(address, port, shared=False):
    listener = socket.socket(family(address))
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if address == "::":
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind((address, int(port)))
    listener.listen(64)
    return listener

def serve(connection):
    try:
        while data := connection.recv(65536):
            connection.sendall(data)
    except OSError:
        pass
    connection.close()

def connect(address, port, source=None):
    connection = socket.socket(family(address))
    connection.settimeout(15)
    if source:
        connection.bind((source, 0))
    connection.connect((address, int(port)))
    return connection

def ask(connection, question):
    connection.sendall(question)
    answer = b""
    while len(answer) < len(question):
        data = connection.recv(65536)
        assert data, "the peer closed too soon"
        answer += data
    assert answer == question

if what == "echo":
    listener = listen(*arguments)
    print("ready", flush=True)
    while True:
        threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()

elif what == "mtu":
    # Says what the path's MTU is for a connection and a UDP socket, whenever it is another one.
    address, port = arguments
    connection, datagrams, told = connect(address, port), socket.socket(family(address), socket.SOCK_DGRAM), None
    datagrams.connect((address, int(port)))
    while True:
        ask(connection, os.urandom(20_000))
        mtu = tuple(one.getsockopt(socket.IPPROTO_IP, 14) for one in (connection, datagrams))
        if mtu != told:
            print("mtu %d %d." % mtu, flush=True)
        told = mtu
        time.sleep(0.05)

elif what == "leave":
    # Serves the first connection in a child; nobody listens any more.
    listener = listen(*arguments)
    print("ready", flush=True)
    connection, _ = listener.accept()
    listener.close()
    serve(connection)

elif what == "bulk":
    address, port, size, *source = arguments
    connection = connect(address, port, *source)
    print(connection.getsockname()[0], flush=True)
    size, piece = int(size), os.urandom(100_000)
    def send():
        left = size
        while left > 0:
            connection.sendall(piece[:left])
            left -= len(piece)
        connection.shutdown(socket.SHUT_WR)
    sender = threading.Thread(target=send)
    sender.start()
    received = 0
    while data := connection.recv(1 << 20):
        at = received % len(piece)
        expected = (piece[at:] + piece * (len(data) // len(piece) + 1))[:len(data)]
        assert data == expected, f"other bytes at {received}"
        received += len(data)
    sender.join()
    assert received == size, f"{received} of {size} bytes"

elif what == "hold":
    connection = connect(*arguments)
    ask(connection, b"question")
    print("held", flush=True)
    time.sleep(60)

elif what == "linger":
    connection = connect(*arguments)
    ask(connection, b"question")
    print("held", flush=True)
    for n in range(60):
        time.sleep(0.1)
        ask(connection, b"another %d" % n)
    print("done", flush=True)

elif what == "lost":
    connection = connect(*arguments)
    ask(connection, b"question")
    print("held", flush=True)
    # Without waiting for answers: who waits for one to a question that the engine acknowledged before it was
    # killed sends nothing that anybody could answer with RST.
    connection.setblocking(False)
    try:
        while True:
            connection.send(b"another")
            time.sleep(0.05)
            try:
                connection.recv(65536)
            except BlockingIOError:
                pass
    except ConnectionResetError:
        print("reset", flush=True)

elif what == "refused":
    try:
        connect(*arguments)
        sys.exit("somebody listens")
    except ConnectionRefusedError:
        pass

elif what == "bind":
    kind, address, port = arguments
    bound = socket.socket(family(address), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    if kind == "tcp":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address, int(port)))
        print("bound")
    except OSError as error:
        print(errno.errorcode[error.errno])

elif what == "udp":
    address, port = arguments
    bound = socket.socket(family(address), socket.SOCK_DGRAM)
    bound.bind((address, int(port)))
    print("ready", flush=True)
    while True:
        data, peer = bound.recvfrom(65536)
        bound.sendto(data, peer)

elif what == "ask":
    address, port, size = arguments
    asking = socket.socket(family(address), socket.SOCK_DGRAM)
    asking.settimeout(10)
    late = set()
    for attempt in range(5):
        question = os.urandom(int(size))
        asking.sendto(question, (address, int(port)))
        try:
            while (said := asking.recvfrom(65536))[0] in late:
                pass
        except TimeoutError:
            late.add(question)
            continue
        answer, peer = said
        assert answer == question and peer[:2] == (address, int(port)), peer
        break
    else:
        sys.exit("no answer")
    # Whoever gets the question twice answers twice.
    asking.settimeout(0.2)
    try:
        sys.exit(f"a second answer: {asking.recvfrom(65536)[1]}")
    except TimeoutError:
        pass

elif what == "guard":
    # As `nft add rule inet guard input drop`, with table and chain made first (nf_tables.h); nft may be missing.
    import struct
    def attribute(kind, value):
        return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
    def message(kind, flags, family, resource, body=b""):
        body = struct.pack(">BBH", family, 0, resource) + body
        return struct.pack("=IHHII", 16 + len(body), kind, flags | 1, 0, 0) + body
    number = lambda value: struct.pack(">I", value)
    inet, nft, create, append = 1, 10 << 8, 0x400, 0x800
    table = attribute(1, b"guard\0")
    hook = attribute(4 | 0x8000, attribute(1, number(1)) + attribute(2, number(0)))
    chain = table + attribute(3, b"input\0") + hook + attribute(5, number(1)) + attribute(7, b"filter\0")
    verdict = attribute(2 | 0x8000, attribute(2 | 0x8000, attribute(1, number(0))))
    drop = attribute(1, b"immediate\0") + attribute(2 | 0x8000, attribute(1, number(0)) + verdict)
    rule = table + attribute(2, b"input\0") + attribute(4 | 0x8000, attribute(1 | 0x8000, drop))
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    netlink.send(b"".join([
        message(16, 0, 0, 10),
        message(nft | 0, create, inet, 0, table),
        message(nft | 3, create, inet, 0, chain),
        message(nft | 6, create | append | 4, inet, 0, rule),
        message(17, 0, 0, 10),
    ]))
    netlink.settimeout(5)
    failure, = struct.unpack("=i", netlink.recv(65536)[16:20])
    sys.exit(os.strerror(-failure) if failure else 0)

else:
    sys.exit(f"no part {what}")
