"""Scripts of packetdrill as data: what arrives, what is called and what must leave, in order."""

import re
from dataclasses import dataclass, field


class ParseError(Exception):
    """The script says something that is not understood here."""


@dataclass
class Event:
    """One event: `kind` is in, out, icmp, call, command or code; times are seconds, relative to the event before unless `absolute`."""
    line: int
    text: str
    kind: str
    at: float | None = 0.0
    until: float | None = None
    ends: float | None = None
    absolute: bool = False
    body: object = None


@dataclass
class Segment:
    flags: str
    seq: int = 0
    end: int = 0
    length: int = 0
    ack: int | None = None
    win: int | None = None
    urg: int | None = None
    options: list | None = field(default_factory=list)
    ecn: str | None = None


@dataclass
class Script:
    options: dict = field(default_factory=dict)
    init: list = field(default_factory=list)
    events: list = field(default_factory=list)


TIME = re.compile(r"(\*)|(\+)?(\d*\.?\d+)(?:\s*(~|\.\.\.)\s*\+?(\d*\.?\d+))?(?=\s)")
TOKEN = re.compile(r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<dots>\.\.\.)|(?P<number>-?0x[0-9a-fA-F]+|-?\d+)|(?P<word>[A-Za-z_]\w*)|(?P<mark><<|[][(){}=,|&~]))')
SEGMENT = re.compile(r"(?:\[(?P<ecn>[\w, ]+)\]\s*)?(?:ipv[46][^:]*:\s*)?(?:\d+\s*>\s*\d+\s+)?(?P<flags>[FSRPUEWAN0-9.-]+)\s+(?P<seq>\d+):(?P<end>\d+)\((?P<len>\d+)\)"
                     r"(?:\s+ack\s+(?P<ack>\d+))?(?:\s+win\s+(?P<win>\d+))?(?:\s+urg\s+(?P<urg>\d+))?\s*(?:<(?P<opts>.*)>)?\s*$")


def parse(text, defines):
    for name, value in sorted(defines.items(), key=lambda one: -len(one[0])):
        text = re.sub(rf"\b{name}\b", value, text)
    script, at = Script(), 0
    while True:
        at = skip(text, at)
        if at >= len(text):
            return script
        if text.startswith("--", at) and not script.events:
            end = text.find("\n", at)
            name, _, value = text[at + 2:end].partition("=")
            script.options[name] = value.split("//")[0].strip()
            at = end
        elif text[at] == "`" and not script.events:
            end = text.index("`", at + 1)
            script.init.append(text[at + 1:end])
            at = end + 1
        else:
            event, at = parse_event(text, at)
            script.events.append(event)


def skip(text, at):
    blank = re.compile(r"(?:\s+|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.S)
    return blank.match(text, at).end()


def parse_event(text, at):
    line = text.count("\n", 0, at) + 1
    found = TIME.match(text, at)
    event = Event(line, "", "")
    if found:
        star, plus, first, how, second = found.groups()
        event.at = None if star else float(first)
        event.absolute = not plus and not star
        if how == "~":
            event.until = float(second)
        elif how:
            event.ends = float(second)
        at = skip(text, found.end())
    if text.startswith("%{", at):
        end = text.index("}%", at)
        event.kind, event.body = "code", text[at + 2:end]
        stop = end + 2
    elif text[at] == "`":
        stop = text.index("`", at + 1) + 1
        event.kind, event.body = "command", text[at + 1:stop - 1]
    elif text[at] in "<>":
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        words = re.sub(r"//.*|/\*.*?\*/", "", text[at + 1:stop]).strip()
        event.kind = "in" if text[at] == "<" else "out"
        if "icmp" in words:
            event.kind, event.body = "icmp", words
        else:
            event.body = segment(words, line)
    else:
        event.kind = "call"
        event.body, stop = call(text, at, line)
    event.text = " ".join(text[at:stop].split())
    return event, stop


def segment(words, line):
    found = SEGMENT.match(words)
    if not found:
        raise ParseError(f"line {line}: {words}")
    number = lambda name: None if found[name] is None else int(found[name])
    options = [] if found["opts"] is None else None if found["opts"].strip() == "..." else [option(one, line) for one in found["opts"].split(",") if one.strip()]
    seq, length = int(found["seq"]), int(found["len"])
    return Segment(found["flags"], seq, int(found["end"]), length, number("ack"), number("win"), number("urg"), options, found["ecn"])


def option(text, line):
    words = text.split()
    name = words[0]
    if name in ("nop", "sackOK", "eol"):
        return (name,)
    if name in ("mss", "wscale"):
        return (name, int(words[1]))
    if name == "TS":
        return (name, int(words[2]), int(words[4]))
    if name == "sack":
        return (name, tuple(tuple(int(edge) for edge in block.split(":")) for block in words[1:]))
    if name in ("FO", "FOEXP", "md5"):
        return (name, bytes.fromhex(words[1]) if len(words) > 1 else b"")
    if name == "ECN":
        return (name, tuple((field, int(value)) for field, value in zip(words[1::2], words[2::2])))
    raise ParseError(f"line {line}: option {text}")


class Tokens:
    def __init__(self, text, at, line):
        self.text, self.at, self.line = text, at, line

    def peek(self):
        self.at = skip(self.text, self.at)
        found = TOKEN.match(self.text, self.at)
        if not found:
            raise ParseError(f"line {self.line}: {self.text[self.at:self.at + 40]!r}")
        return found

    def take(self, mark=None):
        found = self.peek()
        if mark and found["mark"] != mark:
            raise ParseError(f"line {self.line}: no {mark} at {self.text[self.at:self.at + 40]!r}")
        self.at = found.end()
        return found

    def is_mark(self, mark):
        return self.peek()["mark"] == mark


def call(text, at, line):
    tokens = Tokens(text, at, line)
    name = tokens.take()["word"]
    tokens.take("(")
    arguments = sequence(tokens, ")")
    tokens.take("=")
    result = expression(tokens)
    rest = re.compile(r"[ \t]*(E[A-Z0-9]+)?[ \t]*(\([^)\n]*\))?").match(text, tokens.at)
    return {"name": name, "arguments": arguments, "result": result, "errno": rest[1]}, rest.end()


def sequence(tokens, end):
    items = []
    while not tokens.is_mark(end):
        items.append(expression(tokens))
        if tokens.is_mark(","):
            tokens.take()
    tokens.take(end)
    return items


def expression(tokens):
    value = term(tokens)
    while tokens.at < len(tokens.text) and re.match(r"\s*(\||<<|&)", tokens.text[tokens.at:]):
        mark = tokens.take()["mark"]
        value = {"op": mark, "of": [value, term(tokens)]}
    return value


def term(tokens):
    found = tokens.take()
    if found["string"] is not None:
        return {"string": found["string"][1:-1]}
    if found["dots"]:
        return "..."
    if found["number"]:
        return int(found["number"], 0)
    if found["word"]:
        if re.match(r"\s*\(", tokens.text[tokens.at:]) and found["word"] in ("htons", "inet_addr", "htonl"):
            tokens.take("(")
            return {"call": found["word"], "of": sequence(tokens, ")")}
        return {"word": found["word"]}
    if found["mark"] == "[":
        return {"list": sequence(tokens, "]")}
    if found["mark"] == "{":
        return struct(tokens)
    raise ParseError(f"line {tokens.line}: {found[0]!r}")


def struct(tokens):
    fields, plain = {}, []
    while not tokens.is_mark("}"):
        found = tokens.peek()
        after = tokens.text[found.end():found.end() + 40]
        named = found["word"] and re.match(r"\s*(\([^)]*\))?\s*=", after)
        if named:
            tokens.take()
            if tokens.is_mark("("):
                tokens.take()
                sequence(tokens, ")")
            tokens.take("=")
            fields[found["word"]] = expression(tokens)
        else:
            plain.append(expression(tokens))
        if tokens.is_mark(","):
            tokens.take()
    tokens.take("}")
    return {"struct": fields, "plain": plain}
