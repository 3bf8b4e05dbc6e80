"""What passes a cable, as the host's side of it sees it (packet(7) with PACKET_VNET_HDR): whether each frame of the guest's has the right sums and
length, and what was left to a card. Run beside the cables until it is ended; then it says what it counted.

A frame that is to be cut further, or summed further, says so in its header of virtio (virtio 1.2, 5.1.6): a card that cuts and sums for its driver passes that on
to its cable here, as it would do it itself on a real one.
"""

import array
import json
import signal
import socket
import struct
import sys

SOL_PACKET, PACKET_STATISTICS, PACKET_VNET_HDR, PACKET_OUTGOING = 263, 6, 15, 4
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 64 << 20
ETH_P_ALL = 3
ETHERNET, VIRTIO = 14, struct.Struct("<BBHHHH")
NEEDS_SUM = 1
TCP, UDP = 6, 17
# Where the sum lies in the header.
SUM_AT = {TCP: 16, UDP: 6}


def ones(data, start=0):
    """The ones' complement sum of 16-bit words, folded (RFC 1071)."""
    words = array.array("H", data + b"\0" * (len(data) % 2))
    if sys.byteorder == "little":
        words.byteswap()
    total = start + sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def transport(packet):
    """Of an IP packet that is no fragment: its protocol, transport part and pseudo header's sum; None: something else."""
    version = packet[0] >> 4
    if version == 4:
        header = (packet[0] & 15) * 4
        length, fragment, protocol = int.from_bytes(packet[2:4], "big"), int.from_bytes(packet[6:8], "big") & 0x3FFF, packet[9]
        if ones(packet[:header]) != 0xFFFF:
            raise ValueError("the sum of an IP header")
        if fragment:
            return None
        ends = packet[12:20]
    elif version == 6:
        header, protocol = 40, packet[6]
        length, ends = 40 + int.from_bytes(packet[4:6], "big"), packet[8:40]
    else:
        return None
    if protocol not in SUM_AT or length > len(packet):
        return None
    content = packet[header:length]
    return protocol, content, ones(ends, protocol + len(content))


class Counted:
    def __init__(self):
        self.frames = {"complete": 0, "summed by the card": 0, "cut by the card": 0, "to the guest": 0}
        self.wrong, self.largest = [], 0

    def look(self, head, frame, is_ours):
        flags, cut, _, size, start, offset = head
        if is_ours:
            self.frames["to the guest"] += 1
            return
        if not cut:
            self.largest = max(self.largest, len(frame) - ETHERNET)
        if frame[12:14] not in (b"\x08\x00", b"\x86\xdd"):
            return
        found = transport(frame[ETHERNET:])
        if found is None:
            return
        protocol, content, pseudo = found
        at = SUM_AT[protocol]
        if flags & NEEDS_SUM:
            # The sum of the pseudo header is there; the rest is the card's.
            if int.from_bytes(content[at : at + 2], "big") % 0xFFFF != pseudo % 0xFFFF or offset != at or start + len(content) > len(frame):
                self.wrong.append(f"a sum of {len(content)} bytes that the card is to finish")
            self.frames["cut by the card" if cut else "summed by the card"] += 1
            if cut and not 0 < size < len(content):
                self.wrong.append(f"{len(content)} bytes are to be cut to {size}")
        elif cut:
            self.wrong.append("a frame to be cut, and not to be summed")
        else:
            if ones(content, pseudo) != 0xFFFF and not (protocol == UDP and content[6:8] == b"\0\0"):
                self.wrong.append(f"the sum of {len(content)} bytes")
            self.frames["complete"] += 1


def refused(interface):
    """Frames that the card on the cable did not take: it had no memory to receive into."""
    with open(f"/sys/class/net/{interface}/statistics/tx_dropped", encoding="ascii") as file:
        return int(file.read())


def main(interface):
    counted, before = Counted(), refused(interface)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as wire:
        wire.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        wire.bind((interface, ETH_P_ALL))
        ended = []
        signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
        wire.settimeout(0.2)
        print("listening", flush=True)
        while True:
            try:
                received, (_, _, kind, *_) = wire.recvfrom(1 << 17)
            except TimeoutError:
                if ended:
                    break
                continue
            try:
                counted.look(VIRTIO.unpack(received[: VIRTIO.size]), received[VIRTIO.size :], kind == PACKET_OUTGOING)
            except ValueError as error:
                counted.wrong.append(str(error))
        _, missed = struct.unpack("II", wire.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    print(json.dumps({"frames": counted.frames, "largest": counted.largest, "refused": refused(interface) - before, "wrong": counted.wrong[:5], "missed": missed}))


if __name__ == "__main__":
    main(sys.argv[1])
