"""Makes the socket calls of a script through libc's functions, so that a preloaded library serves them.

A request is a line of JSON on the socket that is standard input; each call is made by a thread of its own, because it may block.
"""

import ctypes
import errno
import fcntl
import json
import os
import select
import socket
import struct
import sys
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
for name in ("read", "write", "send", "recv", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendfile", "splice", "readv", "writev"):
    getattr(LIBC, name).restype = ctypes.c_ssize_t
WORDS = {
    "SOL_TCP": 6, "SOL_IP": 0, "SOL_IPV6": 41, "IPPROTO_TCP": 6, "IPPROTO_MPTCP": 262, "NULL": 0,
    "TCP_NODELAY": 1, "TCP_MAXSEG": 2, "TCP_CORK": 3, "TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 6, "TCP_SYNCNT": 7, "TCP_LINGER2": 8,
    "TCP_DEFER_ACCEPT": 9, "TCP_WINDOW_CLAMP": 10, "TCP_INFO": 11, "TCP_QUICKACK": 12, "TCP_CONGESTION": 13, "TCP_USER_TIMEOUT": 18,
    "TCP_FASTOPEN": 23, "TCP_TIMESTAMP": 24, "TCP_NOTSENT_LOWAT": 25, "TCP_SAVE_SYN": 27, "TCP_SAVED_SYN": 28, "TCP_FASTOPEN_CONNECT": 30,
    "TCP_FASTOPEN_KEY": 33, "TCP_FASTOPEN_NO_COOKIE": 34, "TCP_INQ": 36, "TCP_CM_INQ": 36, "TCP_RTO_MAX_MS": 44,
    "SO_ZEROCOPY": 60, "SO_TIMESTAMPING": 37, "SCM_TIMESTAMPING": 37, "SO_MARK": 36, "SO_TIMESTAMPNS": 35, "SO_MAX_PACING_RATE": 47,
    "SO_BUSY_POLL": 46, "SO_SNDBUFFORCE": 32, "SO_RCVBUFFORCE": 33, "IP_FREEBIND": 15, "IP_RECVERR": 11, "IPV6_RECVERR": 25, "IP_MTU_DISCOVER": 10, "IP_PMTUDISC_DONT": 0,
    "IP_PMTUDISC_WANT": 1, "IP_PMTUDISC_DO": 2, "MSG_ZEROCOPY": 0x4000000, "MSG_FASTOPEN": 0x20000000, "MSG_EOR": 0x80,
    "SOF_TIMESTAMPING_TX_HARDWARE": 1, "SOF_TIMESTAMPING_TX_SOFTWARE": 2, "SOF_TIMESTAMPING_RX_SOFTWARE": 8, "SOF_TIMESTAMPING_SOFTWARE": 16,
    "SOF_TIMESTAMPING_RAW_HARDWARE": 64, "SOF_TIMESTAMPING_OPT_ID": 128, "SOF_TIMESTAMPING_TX_SCHED": 256, "SOF_TIMESTAMPING_TX_ACK": 512,
    "SOF_TIMESTAMPING_OPT_CMSG": 1024, "SOF_TIMESTAMPING_OPT_TSONLY": 2048, "SOF_TIMESTAMPING_OPT_STATS": 4096, "SOF_TIMESTAMPING_OPT_ID_TCP": 65536,
    "SCM_TSTAMP_SND": 0, "SCM_TSTAMP_SCHED": 1, "SCM_TSTAMP_ACK": 2, "SO_EE_ORIGIN_ZEROCOPY": 5, "SO_EE_ORIGIN_TIMESTAMPING": 4, "SO_EE_ORIGIN_NONE": 0,
    "SO_EE_CODE_ZEROCOPY_COPIED": 1, "SIOCINQ": 0x541B, "SIOCOUTQ": 0x5411, "FIONREAD": 0x541B, "TIOCOUTQ": 0x5411, "SIOCOUTQNSD": 0x894B,
    "EPOLLRDHUP": 0x2000, "EPOLL_CTL_ADD": 1, "EPOLL_CTL_DEL": 2, "EPOLL_CTL_MOD": 3,
}
MODULES = (socket, errno, select, fcntl, os)
# The tolerance of times that a control message carries, ns.
TIME_TOLERANCE = 30_000_000


class Wrong(Exception):
    """What a call gave back is not what the script says."""


def word(name):
    if name in WORDS:
        return WORDS[name]
    for module in MODULES:
        value = getattr(module, name, None)
        if isinstance(value, int):
            return int(value)
    raise Wrong(f"the word {name} is not known")


def number(value):
    if isinstance(value, int):
        return value
    if "word" in value:
        return word(value["word"])
    if "op" in value:
        left, right = (number(one) for one in value["of"])
        return left | right if value["op"] == "|" else left & right if value["op"] == "&" else left << right
    if "call" in value and value["call"] == "htons":
        return socket.htons(number(value["of"][0]))
    raise Wrong(f"no number: {value}")


def payload(value, length):
    if isinstance(value, dict) and value.get("word") == "NULL":
        return None
    text = value["string"].encode().decode("unicode_escape").encode("latin1") if isinstance(value, dict) and "string" in value else b""
    return ctypes.create_string_buffer(text.ljust(length, b"\0"), max(length, 1))


class Agent:
    def __init__(self, options):
        self.local, self.remote, self.port = options["local"], options["remote"], 8080
        self.is_ip6 = ":" in self.local
        self.start = options["start"]
        self.fds = {}
        self.lock = threading.Lock()
        self.channel = socket.socket(fileno=os.dup(0))

    def serve(self):
        self.channel.sendall(b'{"id": 0}\n')
        with self.channel.makefile("r") as lines:
            for line in lines:
                threading.Thread(target=self.answer, args=(json.loads(line),), daemon=True).start()

    def answer(self, request):
        answer = {"id": request["id"]}
        try:
            answer.update(self.perform(request))
        except Wrong as wrong:
            answer["wrong"] = str(wrong)
        answer["at"] = time.monotonic()
        with self.lock:
            self.channel.sendall(json.dumps(answer).encode() + b"\n")

    def perform(self, request):
        if request["name"] == "tcp_info":
            space, length = ctypes.create_string_buffer(512), ctypes.c_uint32(512)
            done = LIBC.getsockopt(self.fds[request["fd"]], 6, 11, space, ctypes.byref(length))
            return {"info": space.raw[:length.value].hex()} if done == 0 else {"wrong": errno.errorcode[ctypes.get_errno()]}
        call = getattr(self, "do_" + request["name"], None)
        if not call:
            raise Wrong(f"the call {request['name']} is not known")
        check, made = None, None
        ctypes.set_errno(0)
        result = call(*request["arguments"])
        if isinstance(result, tuple):
            result, check, *made = result
        error = errno.errorcode.get(ctypes.get_errno(), "") if result == -1 else None
        wanted = request["result"]
        if made == ["fd"] and result >= 0:
            if not isinstance(wanted, int) or wanted < 0:
                raise Wrong(f"it returns a descriptor, not {wanted} {request['errno']}")
            self.fds[wanted] = result
        elif wanted != "..." and result != number(wanted):
            raise Wrong(f"it returns {result} {error or ''}, not {number(wanted)} {request['errno'] or ''}")
        if request["errno"] and error != request["errno"]:
            raise Wrong(f"errno is {error}, not {request['errno']}")
        if check and result >= 0:
            check()
        return {"result": result, "errno": error}

    def fd(self, value):
        return self.fds.get(number(value), -1)

    def address(self, value, ip):
        """A socket address; `...` is the script's usual one."""
        if isinstance(value, dict) and ("word" in value and value["word"] == "AF_UNSPEC" or value.get("struct", {}).get("sa_family", {}) == {"word": "AF_UNSPEC"}):
            return struct.pack("=H14x", 0)
        if value != "..." and not (isinstance(value, dict) and "struct" in value):
            return b""
        if self.is_ip6:
            return struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(self.port), 0, socket.inet_pton(socket.AF_INET6, ip), 0)
        return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(self.port), socket.inet_pton(socket.AF_INET, ip))

    def do_socket(self, _domain, kind, protocol):
        family = socket.AF_INET6 if self.is_ip6 else socket.AF_INET
        fd = LIBC.socket(family, number(kind), number(protocol))
        # The scripts are about cubic; a namespace cannot make it the default where the machine does not permit it to all.
        LIBC.setsockopt(fd, socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic", 5)
        return fd, None, "fd"

    def do_bind(self, fd, address, _length):
        packed = self.address(address, self.local)
        return LIBC.bind(self.fd(fd), packed, len(packed))

    def do_connect(self, fd, address, _length):
        packed = self.address(address, self.remote)
        return LIBC.connect(self.fd(fd), packed, len(packed))

    def do_listen(self, fd, backlog):
        return LIBC.listen(self.fd(fd), number(backlog))

    def do_accept(self, fd, _address, _length):
        return LIBC.accept(self.fd(fd), None, None), None, "fd"

    def do_accept4(self, fd, _address, _length, flags):
        return LIBC.accept4(self.fd(fd), None, None, number(flags)), None, "fd"

    def do_read(self, fd, data, length):
        return LIBC.read(self.fd(fd), payload(data, number(length)), ctypes.c_size_t(number(length)))

    def do_write(self, fd, data, length):
        return LIBC.write(self.fd(fd), payload(data, number(length)), ctypes.c_size_t(number(length)))

    def do_send(self, fd, data, length, flags):
        return LIBC.send(self.fd(fd), payload(data, number(length)), ctypes.c_size_t(number(length)), number(flags) | socket.MSG_NOSIGNAL)

    def do_recv(self, fd, data, length, flags):
        return LIBC.recv(self.fd(fd), payload(data, number(length)), ctypes.c_size_t(number(length)), number(flags))

    def do_sendto(self, fd, data, length, flags, address, _length):
        packed = self.address(address, self.remote)
        return LIBC.sendto(self.fd(fd), payload(data, number(length)), ctypes.c_size_t(number(length)), number(flags) | socket.MSG_NOSIGNAL, packed or None, len(packed))

    def do_recvfrom(self, fd, data, length, flags, _address, _length):
        return LIBC.recvfrom(self.fd(fd), payload(data, number(length)), ctypes.c_size_t(number(length)), number(flags), None, None)

    def iovec(self, value):
        spans = []
        for one in value["list"]:
            data, length = one["plain"]
            spans.append((payload(data, number(length)), number(length)))
        array = ctypes.create_string_buffer(b"".join(struct.pack("=QQ", ctypes.addressof(data) if data else 0, length) for data, length in spans), max(16 * len(spans), 1))
        return array, len(spans), spans

    def message(self, value, control):
        fields = value["struct"]
        array, count, spans = self.iovec(fields["msg_iov"])
        packed = self.address(fields.get("msg_name", 0), self.remote)
        name = ctypes.create_string_buffer(packed, max(len(packed), 1))
        header = ctypes.create_string_buffer(struct.pack("=QI4xQQQQi4x", ctypes.addressof(name) if packed else 0, len(packed), ctypes.addressof(array), count,
                                                         ctypes.addressof(control) if control else 0, len(control) if control else 0, 0), 56)
        return header, (array, spans, name, control)

    def do_sendmsg(self, fd, message, flags):
        header, keep = self.message(message, self.control(message["struct"].get("msg_control")))
        done = LIBC.sendmsg(self.fd(fd), header, number(flags) | socket.MSG_NOSIGNAL)
        del keep
        return done

    def control(self, value):
        packed = b""
        for one in (value or {}).get("list", []):
            fields = one["struct"]
            data = struct.pack("=I", number(fields["cmsg_data"]))
            packed += struct.pack("=QII", 16 + len(data), number(fields["cmsg_level"]), number(fields["cmsg_type"])) + data.ljust(8, b"\0")
        return ctypes.create_string_buffer(packed, len(packed)) if packed else None

    def do_recvmsg(self, fd, message, flags):
        header, keep = self.message(dict(message, struct={name: what for name, what in message["struct"].items() if name != "msg_name"}), ctypes.create_string_buffer(512))
        done = LIBC.recvmsg(self.fd(fd), header, number(flags))
        return done, lambda: self.check_message(header, keep[3], message["struct"])

    def check_message(self, header, control, wanted):
        length, flags = struct.unpack_from("=Qi", header, 40)
        if "msg_flags" in wanted and wanted["msg_flags"] != "..." and flags & ~0x40000000 != number(wanted["msg_flags"]):
            raise Wrong(f"msg_flags are {flags:#x}, not {number(wanted['msg_flags']):#x}")
        got, at = [], 0
        while at + 16 <= length:
            size, level, kind = struct.unpack_from("=QII", control, at)
            got.append((level, kind, control.raw[at + 16:at + size]))
            at += (size + 7) & ~7
        if "msg_control" not in wanted:
            return
        items = wanted["msg_control"]["list"]
        if len(items) != len(got):
            raise Wrong(f"{len(got)} control messages {[one[:2] for one in got]}, not {len(items)}")
        for item, (level, kind, data) in zip(items, got):
            fields = item["struct"]
            if (level, kind) != (number(fields["cmsg_level"]), number(fields["cmsg_type"])):
                raise Wrong(f"control message {level}, {kind}, not {fields['cmsg_level']}, {fields['cmsg_type']}")
            self.check_control(fields["cmsg_data"], data)

    def check_control(self, wanted, data):
        if not (isinstance(wanted, dict) and "struct" in wanted):
            if struct.unpack("=i", data[:4])[0] != number(wanted):
                raise Wrong(f"cmsg_data is {struct.unpack('=i', data[:4])[0]}, not {number(wanted)}")
            return
        fields = wanted["struct"]
        if "scm_sec" in fields:
            seconds, nanoseconds = struct.unpack_from("=qq", data)
            since = seconds * 10**9 + nanoseconds - int(self.start * 1e9)
            meant = number(fields["scm_sec"]) * 10**9 + number(fields["scm_nsec"])
            if abs(since - meant) > TIME_TOLERANCE:
                raise Wrong(f"the time is {since / 1e9:.6f}, not {meant / 1e9:.6f}")
            return
        names = ("ee_errno", "ee_origin", "ee_type", "ee_code", "ee_pad", "ee_info", "ee_data")
        got = dict(zip(names, struct.unpack_from("=IBBBBII", data)))
        for name, value in fields.items():
            if value != "..." and got[name] != number(value):
                raise Wrong(f"{name} is {got[name]}, not {number(value)}")

    def do_start(self):
        self.start = time.time()
        return 0

    def do_shutdown(self, fd, how):
        return LIBC.shutdown(self.fd(fd), number(how))

    def do_close(self, fd):
        return LIBC.close(self.fds.pop(number(fd), -1))

    def do_setsockopt(self, fd, level, name, value, length):
        length = number(length)
        if isinstance(value, dict) and "list" in value:
            items = [number(one) for one in value["list"]]
            data = b"".join(struct.pack("=i", one) for one in items)
        elif isinstance(value, dict) and "string" in value:
            data = value["string"].encode().decode("unicode_escape").encode("latin1")
        elif isinstance(value, dict) and "struct" in value:
            data = b"".join(struct.pack("=i", number(one)) for one in value["struct"].values())
        else:
            data = struct.pack("=i", number(value))
        return LIBC.setsockopt(self.fd(fd), number(level), number(name), ctypes.create_string_buffer(data, max(length, len(data), 1)), length)

    def do_getsockopt(self, fd, level, name, value, length):
        space, size = ctypes.create_string_buffer(512), ctypes.c_uint32(number(length["list"][0]) if isinstance(length, dict) and "list" in length else 512)
        done = LIBC.getsockopt(self.fd(fd), number(level), number(name), space, ctypes.byref(size))

        def check():
            if isinstance(value, dict) and "list" in value and value["list"] != ["..."]:
                got = struct.unpack_from("=i", space)[0]
                if got != number(value["list"][0]):
                    raise Wrong(f"the option is {got}, not {number(value['list'][0])}")
            elif isinstance(value, dict) and "string" in value:
                got = space.raw[:size.value].split(b"\0")[0]
                if got != value["string"].encode():
                    raise Wrong(f"the option is {got}, not {value['string']}")
        return done, check

    def do_fcntl(self, fd, command, *argument):
        return LIBC.fcntl(self.fd(fd), number(command), *(ctypes.c_long(number(one)) for one in argument))

    def do_ioctl(self, fd, request, value=None):
        got = ctypes.c_int(0)
        done = LIBC.ioctl(self.fd(fd), ctypes.c_ulong(number(request)), ctypes.byref(got))

        def check():
            if value and got.value != number(value["list"][0]):
                raise Wrong(f"the ioctl gives {got.value}, not {number(value['list'][0])}")
        return done, check

    def do_poll(self, items, count, timeout):
        fields = [one["struct"] for one in items["list"]]
        array = ctypes.create_string_buffer(b"".join(struct.pack("=ihh", self.fd(one["fd"]), number(one["events"]), 0) for one in fields), 8 * len(fields))
        done = LIBC.poll(array, number(count), number(timeout))

        def check():
            for at, one in enumerate(fields):
                got = struct.unpack_from("=ihh", array, 8 * at)[2]
                if "revents" in one and got != number(one["revents"]):
                    raise Wrong(f"revents are {got:#x}, not {number(one['revents']):#x}")
        return done, check

    def do_epoll_create(self, size):
        return LIBC.epoll_create(number(size)), None, "fd"

    def do_epoll_ctl(self, fd, command, other, event):
        fields = event["struct"]
        data = number(fields["fd"]) if "fd" in fields else number(fields.get("ptr", 0))
        return LIBC.epoll_ctl(self.fd(fd), number(command), self.fd(other), ctypes.create_string_buffer(struct.pack("=IQ", number(fields["events"]), data), 12))

    def do_epoll_wait(self, fd, event, count, timeout):
        space = ctypes.create_string_buffer(12 * number(count))
        done = LIBC.epoll_wait(self.fd(fd), space, number(count), number(timeout))

        def check():
            if done == 1:
                events = struct.unpack_from("=IQ", space)[0]
                if events != number(event["struct"]["events"]):
                    raise Wrong(f"epoll's events are {events:#x}, not {number(event['struct']['events']):#x}")
        return done, check

    def do_open(self, path, flags):
        return LIBC.open(path["string"].encode(), number(flags)), None, "fd"

    def do_pipe(self, value):
        pair = (ctypes.c_int * 2)()
        done = LIBC.pipe(pair)
        for name, fd in zip(value["list"], pair):
            self.fds[name] = fd
        return done

    def do_sendfile(self, to, source, offset, length):
        place = ctypes.c_int64(number(offset["list"][0])) if isinstance(offset, dict) and "list" in offset else None
        return LIBC.sendfile(self.fd(to), self.fd(source), ctypes.byref(place) if place is not None else None, ctypes.c_size_t(number(length)))

    def do_splice(self, source, _from, to, _to, length, flags):
        return LIBC.splice(self.fd(source), None, self.fd(to), None, ctypes.c_size_t(number(length)), number(flags))

    def do_writev(self, fd, spans, _count):
        array, count, keep = self.iovec(spans)
        done = LIBC.writev(self.fd(fd), array, count)
        del keep
        return done

    def do_readv(self, fd, spans, _count):
        array, count, keep = self.iovec(spans)
        done = LIBC.readv(self.fd(fd), array, count)
        del keep
        return done


Agent(json.loads(sys.argv[1])).serve()
