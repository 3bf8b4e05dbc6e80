// Who runs what: one lane per processor, bus and link, over a stretch of the first run. The stretch is
// shared with the drawing of the queues.

import { byId, drawInto, drawing, legend, linear, lowerAxis, ms, redraw, s, short, square, tell, ticks } from "./svg.js";

const NAMES = {
  interrupt: "interrupt", bottom_half: "bottom half", server: "server process", background: "endless computation",
  spin: "looking for work", poll_thread: "polling thread", nic: "protocol on the NIC", bus: "transfer over the bus",
  link: "response on the link",
};
const LANE = 24;
/** The longest stretch that is shown first: a slice of 200 ms is a seventh of it. */
const SEEN_US = 1_400_000;
const NONE = { spans: [], requests: [], lengths: [], queues: [], ended_us: 1, slice_us: 1 };

/** The stretch of the run that is shown, in microseconds. */
export const shown = { from: 0, to: 1, end: 1 };
let data = NONE;
let lanes = [];
let byRequest = new Map();
let listeners = [];

export const onStretch = (listener) => listeners.push(listener);

const place = (span) => (["nic", "bus", "link"].includes(span.level) ? span.level : "host");
const TITLES = { host: "host", nic: "NIC", bus: "bus", link: "link" };

export function showTimeline(result) {
  data = result ?? NONE;
  byRequest = new Map(data.requests.map((request) => [request.request, request]));
  const found = new Map();
  for (const span of data.spans) {
    const key = `${["host", "nic", "bus", "link"].indexOf(place(span))} ${span.core}`;
    if (!found.has(key)) found.set(key, { title: TITLES[place(span)], core: span.core, place: place(span), spans: [] });
    found.get(key).spans.push({ ...span, from: span.from / 1000, to: span.to / 1000 });
  }
  lanes = [...found.keys()].sort().slice(0, 24).map((key) => found.get(key));
  const several = (kind) => lanes.filter((lane) => lane.place === kind).length > 1;
  for (const lane of lanes) {
    lane.name = several(lane.place) ? `${lane.title} ${lane.core}` : lane.title;
    lane.spans.sort((a, b) => a.from - b.from);
  }
  const last = Math.max(0, ...lanes.flatMap((lane) => lane.spans.slice(-1).map((span) => span.to)));
  shown.end = Math.max(1, data.more_spans ? last : Math.max(last, data.ended_us));
  // The whole load where that is short enough to see a slice in it, and what comes just after.
  const first = data.requests[0]?.made_us ?? 0;
  const load = Math.min(1.08 * (data.load_ends_us ?? 0), SEEN_US);
  Object.assign(shown, { from: 0, to: Math.min(shown.end, Math.max(first + 420_000, load, 1)) });
  if (shown.end < 30_000) shown.to = shown.end;
  explain();
  drawInto(byId("timeline-chart"), draw);
  changed();
}

function explain() {
  const end = data.more_spans ? ` Only the first ${ms(shown.end)} are kept.` : "";
  byId("timeline-explain").textContent = "The first of the runs, for the stack chosen above. Each colour is a level; ticks above are requests " +
    `that arrive and answers that reach their client. Point at a piece to read what it is.${end}`;
}

export function zoom(how) {
  const width = shown.to - shown.from;
  const middle = (shown.from + shown.to) / 2;
  const stretch = {
    in: [middle - width / 4, middle + width / 4],
    out: [middle - width, middle + width],
    left: [shown.from - width / 3, shown.to - width / 3],
    right: [shown.from + width / 3, shown.to + width / 3],
    all: [0, shown.end],
  }[how];
  if (stretch) show(...stretch);
}

/** Shows a stretch of time, moved to lie within the run. */
export function show(from, to) {
  const width = Math.max(20, Math.min(to - from, shown.end));
  const start = Math.max(0, Math.min(from, shown.end - width));
  Object.assign(shown, { from: start, to: start + width });
  redraw(byId("timeline-chart"));
  changed();
}

function changed() {
  byId("timeline-readout").textContent = readout();
  for (const listener of listeners) listener();
}

function inView(lane, visit) {
  for (const span of lane.spans) {
    if (span.from >= shown.to) break;
    if (span.to > shown.from) visit(span);
  }
}

function readout() {
  const width = shown.to - shown.from;
  const parts = lanes.map((lane) => {
    const sums = new Map();
    inView(lane, (span) => {
      const length = Math.min(span.to, shown.to) - Math.max(span.from, shown.from);
      sums.set(span.level, (sums.get(span.level) ?? 0) + length);
    });
    const shares = [...sums].sort((a, b) => b[1] - a[1]).map(([level, us]) => `${NAMES[level]} ${Math.round((100 * us) / width)} %`);
    return `${lane.name}: ${shares.join(", ") || "idle"}`;
  });
  return `${ms(shown.from)} to ${ms(shown.to)}. ${parts.join(" · ")}`;
}

function draw(width) {
  const used = Object.keys(NAMES).filter((level) => lanes.some((lane) => lane.spans.some((span) => span.level === level)));
  const key = legend(used.map((level) => ({ text: NAMES[level], mark: square(level) })), width);
  const [left, right, top] = [76, width - 8, key.height + 6];
  const ways = ["asked", "answered"];
  const lower = top + LANE * (ways.length + lanes.length) + 4;
  const x = linear(shown.from, shown.to, left, right);
  const svg = drawing(width, lower + 66, `Timeline. ${readout()}`, { class: "gantt", tabindex: 0 });
  svg.append(key.node);
  svg.append(lowerAxis(ticks(shown.from, shown.to, (right - left) / 90).map((t) => [x(t), short(t / 1000)]), lower, right, "ms"));
  ways.forEach((name, index) => svg.append(marks(name, top + LANE * index, x, left, right)));
  lanes.forEach((lane, index) => svg.append(bars(lane, top + LANE * (index + ways.length), x, left, right)));
  const end = x(data.load_ends_us ?? -1);
  if (end > left && end < right) {
    svg.append(s("line", { class: "here", x1: end, x2: end, y1: top - 4, y2: lower }));
    svg.append(s("text", { class: "note", x: end - 4, y: lower + 52, "text-anchor": "end" }, "load ends ↑"));
  }
  listen(svg, x, top + LANE * ways.length);
  return svg;
}

/** Ticks where requests reach the machine, or answers their client: the more at one place, the darker. */
function marks(name, y, x, left, right) {
  const group = s("g", { class: `ticks ${name}` });
  group.append(s("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, name));
  const counts = new Map();
  for (const request of data.requests) {
    const at = Math.round(x(name === "asked" ? request.arrived_us : request.answered_us));
    if (at >= left && at <= right) counts.set(at, (counts.get(at) ?? 0) + 1);
  }
  for (const [at, count] of counts) {
    const height = Math.min(LANE - 7, 6 + 3 * count);
    group.append(s("line", { x1: at, x2: at, y1: y + LANE - 4 - height, y2: y + LANE - 4 }));
  }
  return group;
}

/** A lane's spans; what is closer than half a pixel and alike is drawn as one. */
function bars(lane, y, x, left, right) {
  const group = s("g", {});
  group.append(s("text", { x: left - 8, y: y + 16, "text-anchor": "end" }, lane.name));
  group.append(s("rect", { class: "lane", x: left, y: y + 2, width: right - left, height: LANE - 5 }));
  const paths = new Map();
  const open = new Map();
  const flush = (level) => {
    const bar = open.get(level);
    if (bar) paths.set(level, `${paths.get(level) ?? ""}M${bar[0].toFixed(1)} ${y + 2}H${bar[1].toFixed(1)}v${LANE - 5}H${bar[0].toFixed(1)}z`);
  };
  inView(lane, (span) => {
    const [a, b] = [Math.max(left, x(span.from)), Math.min(right, x(span.to))];
    const bar = open.get(span.level);
    if (bar && a - bar[1] < 0.5) bar[1] = Math.max(bar[1], b);
    else {
      flush(span.level);
      open.set(span.level, [a, Math.max(b, a + 0.6)]);
    }
  });
  for (const level of open.keys()) flush(level);
  // Long levels below, so that short interrupts stay visible.
  const order = ["background", "spin", "server", "nic", "bus", "link", "poll_thread", "bottom_half", "interrupt"];
  for (const level of order) {
    if (paths.has(level)) group.append(s("path", { class: `level ${level}`, d: paths.get(level) }));
  }
  return group;
}

function nearest(lane, at, slack) {
  let best = null;
  inView(lane, (span) => {
    const distance = Math.max(span.from - at, at - span.to, 0);
    const closer = !best || distance < best.distance || (distance === best.distance && span.to - span.from < best.span.to - best.span.from);
    if (distance <= slack && closer) best = { span, distance };
  });
  return best?.span;
}

function story(lane, span) {
  const lines = [`${lane.name}: ${NAMES[span.level]}`, `${ms(span.to - span.from)}, from ${short(span.from / 1000)} to ${short(span.to / 1000)} ms`];
  if (span.request === null || span.request === undefined) return lines;
  const request = byRequest.get(span.request);
  if (!request) return [...lines, `for request ${span.request + 1}, which is not answered`];
  return [...lines, `for request ${span.request + 1}, of client ${request.client + 1}`,
    `asked at ${ms(request.made_us)}, answered after ${ms(request.answered_us - request.made_us)}`];
}

function listen(svg, x, top) {
  let dragged = null;
  svg.addEventListener("pointerdown", (event) => {
    dragged = { x: event.clientX, from: shown.from, to: shown.to };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", () => (dragged = null));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    if (dragged && event.buttons) {
      const moved = x.invert(dragged.x - box.left) - x.invert(event.clientX - box.left);
      if (Math.abs(event.clientX - dragged.x) > 3) pan(dragged, moved);
      return;
    }
    const lane = lanes[Math.floor((event.clientY - box.top - top) / LANE)];
    const at = x.invert(event.clientX - box.left);
    const span = lane && nearest(lane, at, x.invert(3) - x.invert(0));
    tell(span ? story(lane, span) : null, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => tell(null));
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const at = x.invert(event.clientX - svg.getBoundingClientRect().left);
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    show(at - (at - shown.from) * factor, at + (shown.to - at) * factor);
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    const how = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", Home: "all" }[event.key];
    if (!how) return;
    event.preventDefault();
    zoom(how);
  });
}

let waiting = false;

/** Moves with the pointer, at most once per frame. The drawing that has the pointer must stay. */
function pan(dragged, moved) {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const width = dragged.to - dragged.from;
    const from = Math.max(0, Math.min(dragged.from + moved, shown.end - width));
    Object.assign(shown, { from, to: from + width });
    const old = byId("timeline-chart").firstElementChild;
    const fresh = draw(Math.round(byId("timeline-chart").clientWidth));
    old.replaceChildren(...fresh.childNodes);
    changed();
  });
}

export const timelineData = () => data;
