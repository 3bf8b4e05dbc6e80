"""Cards with a clock of their own: a measurement of the kernel's stack takes the card's stamps of what leaves, and gives the card back."""

import json
import re
import time

from guest import VLAN, addresses
from words import Failure, say

# Round trips of a measurement, and how many of them may lack a stamp: the last ones come when it has ended.
COUNT, LACKING = 200, 0.1
ROUNDS = 2
# Where the emulated card makes none, though its driver would have it do so.
STAMPLESS = ("e1000e",)
# A card's register that says whether what leaves is stamped (82576: TSYNCTXCTL, 8.16).
CONTROL, IS_ON = {"igb": 0xB614}, 1 << 4


class Stamps:
    MARKS = ("<!-- stamps -->", "<!-- end of stamps -->")

    def __init__(self, guest, matrix, shunt):
        self.guest, self.matrix, self.shunt = guest, matrix, shunt
        self.results = []

    def run(self):
        for number, card in enumerate(self.guest.cards, 1):
            if card == VLAN:
                continue
            result = {"card": card}
            self.results.append(result)
            try:
                nic = self.matrix.find(number)
                result["clock"] = self.clock(nic)
                if result["clock"]:
                    result.update(self.measure(number, card, nic))
                result["outcome"] = "ok"
            except Failure as failure:
                result.update(outcome="failed", said=str(failure))
            say(f"{card}: {result}")

    def clock(self, nic):
        """What names the card's clock beside the kernel's; none: it has none, and nobody says so."""
        known = json.loads(self.guest.run("shunt measure clock --json"))["cards"]
        own = [card for card in known if nic in card["interfaces"]]
        is_named = "/dev/ptp" in self.guest.run(f"shunt doctor {nic}", check=False)
        if is_named != bool(own):
            raise Failure(f"shunt doctor names a clock: {is_named}; shunt measure clock: {own}")
        return own[0] if own else None

    def measure(self, number, card, nic):
        """`shunt ping --stages` to a host beyond the cable."""
        host = addresses(number)["host"][0]
        before = self.control(card, nic)
        with self.guest.beside(self.shunt, "echo", "--listen", f"{host}:7000") as echo:
            try:
                pid = self.matrix.start("ping", f"shunt ping {host} --port 7000 --stages --json --count {COUNT} --rounds {ROUNDS}")
                was_on = self.watch(card, nic, pid.strip())
            finally:
                echo.terminate()
        said = self.guest.run("cat /tmp/ping")
        if "{" not in said:
            raise Failure(said)
        report = json.loads(said[said.index("{"):])
        if before is not None:
            if not was_on:
                raise Failure("the card was not set to stamp")
            if (now := self.control(card, nic)) != before:
                raise Failure(f"the card has {now:#x} after the measurement, and had {before:#x}")
        return self.judge(card, report)

    def judge(self, card, report):
        (mode,) = report["modes"]
        (line,) = [line for line in report["environment"] if line.startswith("hardware stamps: ")]
        found = re.search(r" says of (\d+) of (\d+) messages ", line)
        if not found:
            raise Failure(line)
        stamped, messages = map(int, found.groups())
        if card in STAMPLESS:
            if stamped:
                raise Failure(f"a card without stamps: {line}")
        elif not messages or stamped < messages * (1 - LACKING):
            raise Failure(line)
        stages = [stretch["name"] for stretch in mode["stretches"] if stretch["way"] == "there"]
        if ("driver transmit" in stages) != bool(stamped):
            raise Failure(f"stages: {', '.join(stages)}")
        return {"line": line, "stamped": stamped, "messages": messages}

    def control(self, card, nic):
        """Whether frames that leave are stamped, by a register of the card."""
        if card not in CONTROL:
            return None
        memory = int(self.guest.run(f"head -n 1 /sys/class/net/{nic}/device/resource").split()[0], 16)
        return int(self.guest.run(f"devmem {memory + CONTROL[card]:#x} 32"), 16) & IS_ON

    def watch(self, card, nic, pid):
        """Until the measurement has ended; whether the card stamped meanwhile."""
        was_on, deadline = False, time.monotonic() + 600
        while self.guest.run(f"kill -0 {pid} 2>/dev/null && echo runs", check=False).strip():
            was_on = was_on or bool(self.control(card, nic))
            if time.monotonic() > deadline:
                raise Failure("the measurement did not end")
            time.sleep(0.5)
        return was_on

    def failures(self):
        return [result for result in self.results if result["outcome"] == "failed"]

    @staticmethod
    def words(result):
        if result["outcome"] == "failed":
            return ["", f"failed: {result['said']}"]
        clock = result["clock"]
        if not clock:
            return ["none", "none"]
        return [f"`{clock['device']}`, {clock['name']}", f"{result['stamped']} of {result['messages']}"]

    def table(self):
        lines = ["| card | clock | messages whose leaving the card stamped |", "|---|---|---|"]
        for result in self.results:
            lines.append(f"| {result['card']} | {' | '.join(self.words(result))} |")
        return "\n".join(lines)
