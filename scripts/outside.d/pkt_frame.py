"""Frames of the scripted peer: Ethernet, IP, TCP and the ICMP errors, put together and taken apart."""

import socket
import struct

PEER_MAC = bytes.fromhex("025c41000001")
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, ".": 16, "U": 32, "E": 64, "W": 128, "A": 256}


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def pseudo(source, target, protocol, length):
    if len(source) == 4:
        return source + target + struct.pack("!BBH", 0, protocol, length)
    return source + target + struct.pack("!IHBB", length, 0, 0, protocol)


def ip(source, target, protocol, body, ecn=0):
    source, target = packed(source), packed(target)
    if len(source) == 4:
        head = struct.pack("!BBHHHBBH", 0x45, ecn, 20 + len(body), 0, 0x4000, 64, protocol, 0) + source + target
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body
    return struct.pack("!IHBB", 6 << 28 | ecn << 20, len(body), protocol, 255) + source + target + body


def frame(host_mac, source, target, protocol, body, ecn=0):
    return host_mac + PEER_MAC + (b"\x86\xdd" if ":" in source else b"\x08\x00") + ip(source, target, protocol, body, ecn)


def options(items):
    out = b""
    for name, *values in items:
        if name in ("nop", "eol"):
            out += b"\1" if name == "nop" else b"\0"
            continue
        kind, body = {
            "mss": lambda v: (2, struct.pack("!H", v)), "wscale": lambda v: (3, bytes([v])), "sackOK": lambda: (4, b""),
            "sack": lambda blocks: (5, b"".join(struct.pack("!II", *block) for block in blocks)),
            "TS": lambda v, e: (8, struct.pack("!II", v, e)), "FO": lambda c: (34, c), "FOEXP": lambda c: (254, b"\xf9\x89" + c),
            "md5": lambda d: (19, d), "raw": lambda k, b: (k, b), "ECN": accurate,
        }[name](*values)
        out += bytes([kind, len(body) + 2]) + body
    return out + b"\0" * (-len(out) % 4)


def accurate(fields):
    """Accurate ECN's option: three counters of 24 bits, in one of two orders."""
    kind = 174 if fields and fields[0][0] == "e1b" else 172
    return kind, b"".join((value & 0xffffff).to_bytes(3, "big") for _, value in fields)


def parse_options(data):
    items = []
    while data:
        kind = data[0]
        if kind < 2:
            items.append(("eol",) if kind == 0 else ("nop",))
            data = data[1:] if kind else b""
            continue
        length = data[1] if len(data) > 1 else 0
        if length < 2:
            return items + [("raw", kind, data)]
        body, data = data[2:length], data[length:]
        items.append(parse_option(kind, body))
    return items


def parse_option(kind, body):
    if kind == 2:
        return ("mss", int.from_bytes(body, "big"))
    if kind == 3:
        return ("wscale", body[0])
    if kind == 4:
        return ("sackOK",)
    if kind == 5:
        return ("sack", tuple(struct.iter_unpack("!II", body)))
    if kind == 8:
        return ("TS", *struct.unpack("!II", body))
    if kind == 34:
        return ("FO", body)
    if kind == 254 and body[:2] == b"\xf9\x89":
        return ("FOEXP", body[2:])
    if kind in (172, 174):
        names = ("e0b", "ceb", "e1b") if kind == 172 else ("e1b", "ceb", "e0b")
        return ("ECN", tuple((name, int.from_bytes(body[at:at + 3], "big")) for name, at in zip(names, range(0, len(body), 3))))
    return ("raw", kind, body)


def flag_bits(text):
    return sum(FLAGS[one] for one in text if one in FLAGS)


def flag_text(bits):
    return "".join(name for name, bit in {**{k: v for k, v in FLAGS.items() if k != "."}, ".": 16}.items() if bits & bit) or "-"


def tcp(source, target, ports, seq, ack, flags, window, urgent, opts, data):
    words = 5 + len(opts) // 4
    head = struct.pack("!HHIIBBHHH", *ports, seq & 0xffffffff, ack & 0xffffffff, words << 4 | flags >> 8, flags & 255, window, 0, urgent) + opts
    total = checksum(pseudo(packed(source), packed(target), 6, len(head) + len(data)) + head + data)
    return head[:16] + struct.pack("!H", total) + head[18:] + data


def parse(data):
    """A TCP segment of a frame as a dictionary, ("arp", …) or ("solicitation", …), or None."""
    kind, body = data[12:14], data[14:]
    if kind == b"\x08\x06":
        return ("arp", body[8:14], body[14:18], body[24:28]) if body[6:8] == b"\0\1" else None
    if kind == b"\x08\x00":
        size = (body[0] & 15) * 4
        length = struct.unpack_from("!H", body, 2)[0]
        source, target, protocol, ecn, body = body[12:16], body[16:20], body[9], body[1] & 3, body[size:length]
    elif kind == b"\x86\xdd":
        length, protocol = struct.unpack_from("!HB", body, 4)
        source, target, ecn, body = body[8:24], body[24:40], body[1] >> 4 & 3, body[40:40 + length]
        if protocol == 58 and body[:1] == b"\x87":
            return ("solicitation", data[6:12], source, body[8:24])
    else:
        return None
    if protocol != 6 or len(body) < 20:
        return None
    source_port, target_port, seq, ack, offset, bits, window, _, urgent = struct.unpack_from("!HHIIBBHHH", body)
    head = (offset >> 4) * 4
    return {"source": source, "target": target, "ports": (source_port, target_port), "seq": seq, "ack": ack, "flags": bits | (offset & 1) << 8, "win": window,
            "urg": urgent, "options": parse_options(body[20:head]), "data": body[head:], "ecn": ecn}


def answer(asked):
    """The answer to a question for a neighbour: whatever is asked for is here."""
    kind, mac, source, target = asked
    if kind == "arp":
        return mac + PEER_MAC + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 2) + PEER_MAC + target + mac + source
    body = b"\x88\0\0\0\x60\0\0\0" + target + b"\2\1" + PEER_MAC
    total = checksum(pseudo(target, source, 58, len(body)) + body)
    body = body[:2] + struct.pack("!H", total) + body[4:]
    return mac + PEER_MAC + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + target + source + body
