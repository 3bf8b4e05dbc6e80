#!/usr/bin/env python3
"""Plays one script of packetdrill against the kernel or against Shunt, in a network namespace of its own.

    pkt_play.py SCRIPT kernel|shunt [--shunt FILE] [--ip6]
"""

import argparse
import ctypes
import fcntl
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time

import pkt_frame as frame
import pkt_parse

HERE = os.path.dirname(os.path.abspath(__file__))
TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 2, 0x1000, 0x40000000
PATIENCE = 4.0
PLACES = {
    False: {"local": "192.168.0.1", "prefix": 16, "gateway": "192.168.255.254", "remote": "192.0.2.1", "mtu": 1500,
            "defines": {"TFO_COOKIE": "3021b9d889017eeb", "TFO_COOKIE_ZERO": "b7c12350a90dc8f5", "CMSG_LEVEL_IP": "SOL_IP", "CMSG_TYPE_RECVERR": "IP_RECVERR"}},
    True: {"local": "fd3d:0a0b:17d6::1", "prefix": 64, "gateway": "fd3d:a0b:17d6:0:8888::1", "remote": "fd3d:fa7b:d17d::1", "mtu": 1520,
           "defines": {"TFO_COOKIE": "c1d1e9742a47a9bc", "TFO_COOKIE_ZERO": "82af1a8f9a205c34", "CMSG_LEVEL_IP": "SOL_IPV6", "CMSG_TYPE_RECVERR": "IPV6_RECVERR"}},
}
INFO = {"state": (0, "B"), "ca_state": (1, "B"), "retransmits": (2, "B"), "probes": (3, "B"), "backoff": (4, "B"), "options": (5, "B"), "rto": (8, "I"), "ato": (12, "I"),
        "snd_mss": (16, "I"), "rcv_mss": (20, "I"), "unacked": (24, "I"), "sacked": (28, "I"), "lost": (32, "I"), "retrans": (36, "I"), "fackets": (40, "I"),
        "last_data_sent": (44, "I"), "last_ack_sent": (48, "I"), "last_data_recv": (52, "I"), "last_ack_recv": (56, "I"), "pmtu": (60, "I"), "rcv_ssthresh": (64, "I"),
        "rtt": (68, "I"), "rttvar": (72, "I"), "snd_ssthresh": (76, "I"), "snd_cwnd": (80, "I"), "advmss": (84, "I"), "reordering": (88, "I"), "rcv_rtt": (92, "I"),
        "rcv_space": (96, "I"), "total_retrans": (100, "I"), "pacing_rate": (104, "Q"), "max_pacing_rate": (112, "Q"), "bytes_acked": (120, "Q"), "bytes_received": (128, "Q"),
        "segs_out": (136, "I"), "segs_in": (140, "I"), "notsent_bytes": (144, "I"), "min_rtt": (148, "I"), "data_segs_in": (152, "I"), "data_segs_out": (156, "I"),
        "delivery_rate": (160, "Q"), "busy_time": (168, "Q"), "rwnd_limited": (176, "Q"), "sndbuf_limited": (184, "Q"), "delivered": (192, "I"), "delivered_ce": (196, "I"),
        "bytes_sent": (200, "Q"), "bytes_retrans": (208, "Q"), "dsack_dups": (216, "I"), "reord_seen": (220, "I"), "rcv_ooopack": (224, "I"), "snd_wnd": (228, "I"),
        "rcv_wnd": (232, "I"), "rehash": (236, "I"), "total_rto": (240, "H"), "total_rto_recoveries": (242, "H"), "total_rto_time": (244, "I"),
        "received_ce": (248, "I"), "delivered_e1_bytes": (252, "I"), "delivered_e0_bytes": (256, "I"), "delivered_ce_bytes": (260, "I"), "received_e1_bytes": (264, "I"),
        "received_e0_bytes": (268, "I"), "received_ce_bytes": (272, "I"), "accecn_fail_mode": (276, "H"), "accecn_opt_seen": (278, "H")}
STATES = "ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT CLOSE CLOSE_WAIT LAST_ACK LISTEN CLOSING"
NAMES = {**{f"TCP_{name}": 1 + at for at, name in enumerate(STATES.split())}, **{f"TCP_CA_{name}": at for at, name in enumerate(("Open", "Disorder", "CWR", "Recovery", "Loss"))},
         "TCPI_OPT_TIMESTAMPS": 1, "TCPI_OPT_SACK": 2, "TCPI_OPT_WSCALE": 4, "TCPI_OPT_ECN": 8, "TCPI_OPT_ECN_SEEN": 16, "TCPI_OPT_SYN_DATA": 32, "TCPI_OPT_USEC_TS": 64}


class Fault(Exception):
    """What happens is not what the script says."""


class World:
    """A namespace with a TAP device whose other end is the scripted peer; the stack under test; the agent on it."""

    def __init__(self, side, shunt, place, folder, log):
        self.side, self.shunt, self.place, self.folder, self.log = side, shunt, place, folder, log
        self.name = f"pkt{os.getpid()}"
        self.engine = self.agent = None
        self.is_ip6 = ":" in place["local"]

    def __enter__(self):
        self._ip("netns", "add", self.name)
        # Opened inside, its descriptor works from here.
        libc, own = ctypes.CDLL(None), os.open("/proc/self/ns/net", os.O_RDONLY)
        inside = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        assert libc.setns(inside, CLONE_NEWNET) == 0
        self.tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.tap, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TAP | IFF_NO_PI))
        assert libc.setns(own, CLONE_NEWNET) == 0
        place = self.place
        script = ["link set lo up", f"link set tun0 mtu {place['mtu']}"]
        self.run("sysctl -qw net.ipv6.conf.tun0.accept_dad=0 net.ipv6.conf.tun0.router_solicitations=0")
        self._batch(script + ["link set tun0 up"])
        if self.side == "kernel":
            self._batch([f"addr add {place['local']}/{place['prefix']} dev tun0" + (" nodad" if self.is_ip6 else ""), f"{'-6 ' if self.is_ip6 else ''}route add default dev tun0",
                         f"neigh add {place['remote']} lladdr {frame.PEER_MAC.hex(':')} dev tun0 nud permanent"])
        self.mac = bytes.fromhex(subprocess.run(["ip", "netns", "exec", self.name, "cat", "/sys/class/net/tun0/address"], capture_output=True, text=True).stdout.strip().replace(":", ""))
        return self

    def _ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def _batch(self, lines):
        for line in lines:
            self._ip("-n", self.name, *line.split())

    def run(self, command):
        environment = {**os.environ, "PACKETDRILL_PID": str(os.getpid())}
        return subprocess.run(["ip", "netns", "exec", self.name, "bash", "-c", command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=30)

    def start(self, start):
        way = []
        if self.side == "shunt":
            self._start_engine()
            way = [self.shunt, "run", "--policy", "engine-only", "--"]
        ours, theirs = socket.socketpair()
        options = json.dumps({"local": self.place["local"], "remote": self.place["remote"], "start": start})
        environment = {**os.environ, "SHUNT_REQUIRE": "1"}
        self.agent = subprocess.Popen(["ip", "netns", "exec", self.name, *way, sys.executable, os.path.join(HERE, "pkt_agent.py"), options], stdin=theirs, env=environment, stderr=self.log, stdout=self.log)
        self.channel = ours

    def _start_engine(self):
        path = os.path.join(tempfile.gettempdir(), f"{self.name}.log")
        place = self.place
        with open(path, "w") as log:
            self.engine = subprocess.Popen(["ip", "netns", "exec", self.name, self.shunt, "engine", "--nic", "tun0", "--driver", "af_packet", "--spin-us", "0", "--allow-deep-idle",
                                            "--max-connections", "256",
                                            "--address", f"{place['local']}/{place['prefix']}", "--gateway", place["gateway"]], stderr=log, stdout=log)
        deadline = time.monotonic() + 30
        while "serving" not in open(path).read():
            if self.engine.poll() is not None or time.monotonic() > deadline:
                raise Fault(f"the engine does not serve: {open(path).read()}")
            time.sleep(0.02)
        os.unlink(path)

    def __exit__(self, *_):
        for program in (self.agent, self.engine):
            if program:
                program.terminate()
                try:
                    program.wait(5)
                except subprocess.TimeoutExpired:
                    program.kill()
                    program.wait()
        os.close(self.tap)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)


class Flow:
    """One connection between peer and host: ports, and how the script's numbers are the wire's."""

    def __init__(self, remote_port, local_port=8080):
        self.remote_port, self.local_port = remote_port, local_port
        self.local_isn = self.local_base = None
        self.remote_base, self.is_synced, self.is_old = 0, False, False
        self.stamps, self.first = {}, None


class Player:
    def __init__(self, script, world, tolerance):
        self.script, self.world, self.tolerance = script, world, tolerance
        self.flow, self.flows = None, []
        self.captured, self.answers, self.story = [], {}, []
        self.pending = None
        self.count = 0
        self.fd = None
        self.buffer = b""
        self.late = 0.0
        self.tick = script.options.get("tcp_ts_tick_usecs")
        self.wallclock = time.time()

    # Time passes, and what comes is taken in.

    def collect(self, deadline):
        """Waits for anything until then; false when the time is over."""
        left = deadline - time.monotonic()
        readable, _, _ = select.select([self.world.tap, self.world.channel], [], [], max(left, 0))
        if self.world.tap in readable:
            while True:
                try:
                    self.take(os.read(self.world.tap, 70000))
                except BlockingIOError:
                    break
        if self.world.channel in readable:
            data = self.world.channel.recv(1 << 16)
            if not data:
                raise Fault("the agent has ended")
            self.buffer += data
            *lines, self.buffer = self.buffer.split(b"\n")
            for line in lines:
                answer = json.loads(line)
                self.answers[answer["id"]] = answer
        return bool(readable) or left > 0

    def take(self, data):
        got = frame.parse(data)
        if isinstance(got, tuple):
            if got[0] != "arp" or got[3] != frame.packed(self.world.place["local"]):
                os.write(self.world.tap, frame.answer(got))
        elif got and got["target"] == frame.packed(self.world.place["remote"]):
            self.captured.append((time.monotonic(), got))

    def sleep_until(self, when):
        while time.monotonic() < when:
            self.collect(when)

    def note(self, text, at=None):
        self.story.append(f"{(at or time.monotonic()) - self.start:9.6f} {text}")

    # Events.

    def play(self):
        self.start = time.monotonic()
        self.wait(self.ask({"name": "start", "arguments": [], "result": 0, "errno": None}), time.monotonic() + 20, self.script.events[0])
        self.start = self.base = time.monotonic()
        for event in self.script.events:
            self.event = event
            origin = self.start if event.absolute else self.base
            when = self.base if event.at is None else origin + event.at
            getattr(self, "play_" + event.kind)(event, when)
        self.settle()
        if self.world.side == "shunt":
            self.check_kernel()

    def check_kernel(self):
        """The kernel of this namespace must have had no part in it."""
        names, values = (line.split() for line in self.world.run("grep ^Tcp: /proc/net/snmp").stdout.splitlines())
        counters = dict(zip(names, values))
        if counters["ActiveOpens"] != "0" or counters["PassiveOpens"] != "0":
            raise Fault("the kernel has opened connections")

    def advance(self, event, when):
        """Our own events: where we were late, everything after is as late."""
        self.sleep_until(when)
        now = time.monotonic()
        self.late = max(self.late, now - when)
        self.base = when if now - when < 0.0005 else now
        if event.absolute and self.base != when:
            self.start += self.base - when

    def settle(self):
        """Waits for the call that blocks, as the next one does."""
        if not self.pending:
            return
        number, event, ends = self.pending
        self.pending = None
        answer = self.wait(number, ends + PATIENCE, event)
        if answer["at"] > ends + self.tolerance:
            raise Fault(f"line {event.line}: {event.text}\n  returns {answer['at'] - ends:.3f} s late")
        if answer["at"] < ends - self.tolerance:
            raise Fault(f"line {event.line}: {event.text}\n  returns {ends - answer['at']:.3f} s early")

    def wait(self, number, deadline, event):
        while number not in self.answers:
            if not self.collect(deadline):
                raise Fault(f"line {event.line}: {event.text}\n  has not returned")
        answer = self.answers.pop(number)
        if "wrong" in answer:
            raise Fault(f"line {event.line}: {event.text}\n  {answer['wrong']}")
        if "result" in answer:
            self.note(f"{event.text}", answer["at"])
        return answer

    def ask(self, request):
        self.count += 1
        self.world.channel.sendall(json.dumps({"id": self.count, **request}).encode() + b"\n")
        return self.count

    def play_call(self, event, when):
        self.settle()
        self.advance(event, when)
        call = event.body
        if call["name"] == "listen" and self.flow:
            self.flow.is_old = True
        number = self.ask(call)
        if event.ends is not None:
            ends = self.base + (event.ends - (event.at or 0))
            self.pending = (number, event, ends)
        else:
            self.wait(number, time.monotonic() + PATIENCE, event)
        if call["name"] == "accept" and isinstance(call["result"], int) and call["result"] >= 0:
            self.fd = call["result"]
        if call["name"] in ("connect", "sendto", "sendmsg"):
            self.fd = call["arguments"][0]
        if call["name"] == "socket" and self.fd is None:
            self.fd = call["result"]
        if call["name"] in ("connect",) or "MSG_FASTOPEN" in event.text:
            if call["arguments"][1] == {"word": "AF_UNSPEC"} or self.expects_syn(event):
                self.new_flow(active=True)

    def expects_syn(self, event):
        return self.flow is None or not self.flow.is_active or self.flow.local_isn is not None

    def new_flow(self, active):
        self.flow = Flow(8080 if active else 50000 + len(self.flows), None if active else 8080)
        self.flow.is_active = active
        self.flows.append(self.flow)

    def play_command(self, event, when):
        self.settle()
        self.advance(event, when)
        done = self.world.run(event.body)
        if done.returncode != 0:
            raise Fault(f"line {event.line}: {event.text}\n  status {done.returncode} {done.stderr.strip()}")

    def play_code(self, event, when):
        self.settle()
        self.advance(event, when)
        answer = self.wait(self.ask({"name": "tcp_info", "fd": self.fd}), time.monotonic() + PATIENCE, event)
        raw = bytes.fromhex(answer["info"])
        names = {f"tcpi_{name}": struct.unpack_from("=" + form, raw, at)[0] if at + struct.calcsize(form) <= len(raw) else 0 for name, (at, form) in INFO.items()}
        names["tcpi_snd_wscale"], names["tcpi_rcv_wscale"] = raw[6] & 15, raw[6] >> 4
        names["tcpi_delivery_rate_app_limited"] = raw[7] & 1
        names["tcpi_fastopen_client_fail"] = raw[7] >> 1 & 3
        first, _, rest = event.body.partition("\n")
        try:
            exec(first.lstrip() + "\n" + textwrap.dedent(rest).rstrip("\\ \t\n") + "\n", {**NAMES, **names})
        except AssertionError as error:
            raise Fault(f"line {event.line}: {event.text}\n  got {error}")

    def play_in(self, event, when):
        self.advance(event, when)
        wanted = event.body
        bits = frame.flag_bits(wanted.flags)
        is_syn = bits & 18 == 2
        if is_syn and (self.flow is None or (not self.flow.is_active and self.flow.is_old)):
            self.new_flow(active=False)
            self.flow.is_old = False
        flow = self.flow
        if flow is None:
            raise Fault(f"line {event.line}: no connection")
        base = flow.local_base or 0
        options = []
        for one in wanted.options or []:
            if one[0] == "sack":
                one = ("sack", tuple((base + left & 0xffffffff, base + right & 0xffffffff) for left, right in one[1]))
            if one[0] == "TS":
                one = ("TS", one[1], flow.stamps.get(one[2], one[2] if flow.first is None else flow.first[1] + one[2] - flow.first[0]) & 0xffffffff)
            options.append(one)
        place = self.world.place
        window = wanted.win if wanted.win is not None else 0
        ack = 0 if wanted.ack is None else base + wanted.ack
        if bits & 2 and not flow.is_synced:
            flow.remote_base, flow.is_synced = wanted.seq, True
        seq = wanted.seq if bits & 2 else flow.remote_base + wanted.seq
        ecn = {"ect0": 2, "ect1": 1, "ce": 3}.get(wanted.ecn, 0)
        segment = frame.tcp(place["remote"], place["local"], (flow.remote_port, flow.local_port or 0), seq, ack, bits, window, wanted.urg or 0,
                            frame.options(options), b"\0" * wanted.length)
        os.write(self.world.tap, frame.frame(self.world.mac, place["remote"], place["local"], 6, segment, ecn))
        self.note("< " + event.text[2:])
        if bits & 4 or bits & 1:
            flow.is_old = True

    def play_icmp(self, event, when):
        self.advance(event, when)
        found = re.match(r"(?:\[(?P<pre>\d+):\d+\(\d+\)\]\s*)?icmp\s+unreachable\s*(?P<code>\w+)?(?:\s+mtu\s+(?P<mtu>\d+))?\s*(?:\[(?P<seq>\d+):\d+\(\d+\)\])?", event.body)
        place, flow = self.world.place, self.flow
        seq = found["seq"] or found["pre"]
        at = (flow.local_base or 0) + int(seq or 0)
        quoted = frame.ip(place["local"], place["remote"], 6, frame.tcp(place["local"], place["remote"], (flow.local_port, flow.remote_port), at, 0, 16, 0, 0, b"", b""))
        mtu = int(found["mtu"] or 0)
        codes = {None: (0, 0), "net_unreachable": (0, 0), "host_unreachable": (1, 3), "protocol_unreachable": (2, 1), "port_unreachable": (3, 4), "frag_needed": (4, 0)}
        code = codes[found["code"]]
        if self.world.is_ip6:
            kind = 2 if found["code"] == "frag_needed" else 1
            body = struct.pack("!BBHI", kind, code[1], 0, mtu) + quoted
            total = frame.checksum(frame.pseudo(frame.packed(place["remote"]), frame.packed(place["local"]), 58, len(body)) + body)
        else:
            body = struct.pack("!BBHI", 3, code[0], 0, mtu) + quoted
            total = frame.checksum(body)
        body = body[:2] + struct.pack("!H", total) + body[4:]
        os.write(self.world.tap, frame.frame(self.world.mac, place["remote"], place["local"], 58 if self.world.is_ip6 else 1, body))
        self.note("< " + event.body)

    # What leaves.

    def next_segment(self, deadline):
        while not self.captured:
            if not self.collect(deadline):
                return None
        return self.captured.pop(0)

    def play_out(self, event, when):
        wanted = event.body
        slack = max(self.tolerance, 0.02 * (event.at or 0))
        latest = PATIENCE + 60 if event.at is None else max(when + slack - time.monotonic(), 0) + (event.until or 0) + 1.0
        left, seq, first = wanted.length, wanted.seq, True
        while True:
            got = self.next_segment(time.monotonic() + (latest if first else 0.3))
            if not got:
                raise Fault(f"line {event.line}: {event.text}\n  nothing left" + ("" if first else f" from {seq} on"))
            at, tcp = got
            self.note("> " + self.describe(tcp), at)
            if first and event.at is None:
                when = at
            faults = self.faults(wanted, tcp, seq, left)
            if event.at is not None and at > when + slack + (event.until or 0):
                faults.append(f"{at - when:.3f} s late")
            if event.at is not None and at < when - slack - (event.until or 0):
                faults.append(f"{when - at:.3f} s early")
            if faults:
                raise Fault(f"line {event.line}: {event.text}\n  {'; '.join(faults)}")
            left, seq, first = left - len(tcp["data"]), seq + len(tcp["data"]), False
            if left <= 0:
                break
        if at > when + 0.0005:
            # We, or the machine, may be slow; what follows counts from here.
            self.base = min(at, when + slack)
        else:
            self.base = when

    def faults(self, wanted, tcp, seq, left):
        faults = []
        bits = frame.flag_bits(wanted.flags)
        flow = self.flow
        if flow is None:
            return ["no connection"]
        if tcp["flags"] & 2 and (flow.local_isn is None or flow.is_active and tcp["ports"][0] != flow.local_port):
            flow.local_isn, flow.local_port = tcp["seq"], tcp["ports"][0]
            flow.local_base = tcp["seq"] - wanted.seq
        is_last = len(tcp["data"]) >= left
        if not is_last:
            bits &= ~9
        # Where one burst ends and the next begins is the sender's affair: what is expected as one may be pushed within.
        if (tcp["flags"] if is_last else tcp["flags"] & ~8) != bits:
            faults.append(f"flags are {frame.flag_text(tcp['flags'])}, not {frame.flag_text(bits)}")
        base = flow.local_base or 0
        if (tcp["seq"] - base - seq) & 0xffffffff and not (bits & 4 and flow.local_base is None):
            faults.append(f"seq is {signed(tcp['seq'] - base)}, not {seq}")
        if len(tcp["data"]) > left or (left and not tcp["data"]):
            faults.append(f"{len(tcp['data'])} bytes, not {left}")
        remote = 0 if bits & 2 else flow.remote_base
        if bits & 16 and wanted.ack is not None and tcp["ack"] != wanted.ack + remote & 0xffffffff:
            faults.append(f"ack is {signed(tcp['ack'] - remote)}, not {wanted.ack}")
        if wanted.win is not None and tcp["win"] != wanted.win:
            faults.append(f"win is {tcp['win']}, not {wanted.win}")
        if wanted.urg is not None and tcp["urg"] != wanted.urg:
            faults.append(f"urg is {tcp['urg']}, not {wanted.urg}")
        if wanted.ecn and wanted.ecn in ("ect0", "ect1", "ce", "noecn") and tcp["ecn"] != {"ect0": 2, "ect1": 1, "ce": 3, "noecn": 0}[wanted.ecn]:
            faults.append(f"the ECN field is {tcp['ecn']}, not {wanted.ecn}")
        if tcp["ports"][1] != flow.remote_port or tcp["ports"][0] != flow.local_port:
            faults.append(f"it belongs to the connection {tcp['ports']}")
        if wanted.options is not None:
            faults += self.option_faults(wanted.options, tcp["options"], flow)
        return faults

    def option_faults(self, wanted, got, flow):
        shown = [self.stamp(one, flow) for one in got]
        if [one[0] for one in wanted] != [one[0] for one in shown]:
            return [f"options are {text(shown)}, not {text(wanted)}"]
        for want, one in zip(wanted, shown):
            if want[0] == "TS":
                if flow.first is None:
                    flow.first = (want[1], one[1])
                flow.stamps[want[1]] = one[1]
                if self.tick and abs((one[1] - flow.first[1]) - (want[1] - flow.first[0])) > self.tolerance * 1e6 / int(self.tick):
                    return [f"timestamp is {one[1] - flow.first[1] + flow.first[0]}, not {want[1]}"]
                if one[2] != want[2]:
                    return [f"echo is {one[2]}, not {want[2]}"]
            elif tuple(want) != tuple(one):
                return [f"options are {text(shown)}, not {text(wanted)}"]
        return []

    def stamp(self, one, flow):
        if one[0] == "sack":
            return ("sack", tuple((signed(left - flow.remote_base), signed(right - flow.remote_base)) for left, right in one[1]))
        return one

    def describe(self, tcp):
        base = (self.flow and self.flow.local_base) or 0
        seq = signed(tcp["seq"] - base)
        ack = f" ack {signed(tcp['ack'] - (self.flow.remote_base if self.flow else 0))}" if tcp["flags"] & 16 else ""
        ecn = ["", "[ect1] ", "[ect0] ", "[ce] "][tcp["ecn"]]
        return f"{ecn}{frame.flag_text(tcp['flags'])} {seq}:{seq + len(tcp['data'])}({len(tcp['data'])}){ack} win {tcp['win']} {text(tcp['options'])}"


def signed(number):
    number &= 0xffffffff
    return number - (1 << 32) if number > 0xf0000000 else number


def text(options):
    return "<" + ",".join(" ".join(one.hex() if isinstance(one, bytes) else str(one) for one in item) for item in options) + ">"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("script")
    parser.add_argument("side", choices=("kernel", "shunt"))
    parser.add_argument("--shunt", default="shunt", help="the binary")
    parser.add_argument("--ip6", action="store_true")
    parser.add_argument("--tolerance", type=float, default=0.015)
    parser.add_argument("--story", action="store_true")
    chosen = parser.parse_args()
    source = open(chosen.script).read()
    is_ip6 = chosen.ip6 or "--ip_version=ipv6" in source
    place = PLACES[is_ip6]
    script = pkt_parse.parse(source, place["defines"])
    tolerance = max(chosen.tolerance, int(script.options.get("tolerance_usecs", 0)) / 1e6)
    with tempfile.TemporaryFile("w+") as log, World(chosen.side, chosen.shunt, place, os.path.dirname(os.path.abspath(chosen.script)), log) as world:
        for command in script.init:
            done = world.run(command)
            if done.returncode != 0:
                print(f"FAIL\ncommand {command}: {done.stderr.strip()} {done.stdout.strip()}")
                return 1
        world.start(time.time())
        player = Player(script, world, tolerance)
        player.wait(0, time.monotonic() + 20, pkt_parse.Event(0, "the agent", "call"))
        try:
            player.play()
            faults = None
        except Fault as fault:
            faults = fault
        if faults or chosen.story:
            for at, one in player.captured:
                player.note("> " + player.describe(one) + "   <- not spoken of yet", at)
            log.seek(0)
            print(("FAIL\n" if faults else "PASS\n") + "\n".join(player.story) + f"\n{faults}\n{log.read()[-800:]}" + (f"\n(late by {player.late:.3f})" if player.late > 0.005 else ""))
        else:
            print("PASS")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
