// Queue lengths over the stretch of time that the timeline shows.

import { onStretch, shown, timelineData } from "./timeline.js";
import { byId, drawInto, drawing, leftAxis, legend, linear, lowerAxis, redraw, s, short, square, tell, ticks } from "./svg.js";

const HEIGHT = 150;
const CLASSES = {
  interrupts: "interrupt", "device queues": "device", "bottom halves": "bottom_half", "library ring": "ring",
  sockets: "server", "NIC jobs": "nic", "NIC memory": "memory", bus: "bus", link: "link",
};
const WHAT = {
  interrupts: "interrupts that wait or run", "device queues": "packets that no interrupt has announced",
  "bottom halves": "packets that wait for the kernel's bottom half", "library ring": "packets that the user-level library has not looked at",
  sockets: "requests that the server has not read", "NIC jobs": "jobs of the NIC's processor",
  "NIC memory": "segments that stay on the NIC until a read fetches them", bus: "transfers", link: "responses",
};

export function showQueues() {
  drawInto(byId("queues-chart"), draw);
  byId("queues-finding").textContent = finding();
}

onStretch(() => redraw(byId("queues-chart")));

const used = (data) => data.queues.map((name, index) => ({ name, index })).filter(({ index }) => data.lengths.some((row) => row[index] > 0));

function finding() {
  const data = timelineData();
  const longest = used(data)
    .map(({ name, index }) => [name, Math.max(...data.lengths.map((row) => row[index]))])
    .sort((a, b) => b[1] - a[1])[0];
  return longest ? `The longest: ${longest[0]} (${WHAT[longest[0]]}), ${longest[1]} at most.` : "";
}

function draw(width) {
  const data = timelineData();
  const queues = used(data);
  const [left, right] = [52, width - 8];
  const key = legend(queues.map(({ name }) => ({ text: name, mark: square(CLASSES[name]) })), width);
  const top = key.height + 30;
  const bottom = top + HEIGHT;
  const first = Math.max(0, Math.floor(shown.from / data.slice_us));
  const last = Math.min(data.lengths.length, Math.ceil(shown.to / data.slice_us) + 1);
  const rows = data.lengths.slice(first, last);
  const high = Math.max(4, ...rows.flat()) * 1.05;
  const x = linear(shown.from, shown.to, left + 12, right);
  const y = linear(0, high, bottom, top);
  const label = `Queue lengths. ${finding()}`;
  const svg = drawing(width, bottom + 42, label, { class: "queues" });
  svg.append(key.node);
  const axis = leftAxis(y, ticks(0, high, 4).filter(Number.isInteger), left, right, "");
  svg.append(axis, s("text", { class: "axis name", x: 2, y: top - 10 }, "waiting"));
  svg.append(lowerAxis(ticks(shown.from, shown.to, (right - left) / 90).map((t) => [x(t), short(t / 1000)]), bottom, right, "ms"));
  for (const { name, index } of queues) {
    let path = "";
    rows.forEach((row, offset) => {
      const at = Math.max(left + 12, Math.min(right, x((first + offset) * data.slice_us)));
      const end = Math.max(left + 12, Math.min(right, x((first + offset + 1) * data.slice_us)));
      path += `${path ? "L" : "M"}${at.toFixed(1)} ${y(row[index]).toFixed(1)}H${end.toFixed(1)}`;
    });
    if (path) svg.append(s("path", { class: `length ${CLASSES[name]}`, d: path }));
  }
  svg.addEventListener("pointermove", (event) => {
    const at = x.invert(event.clientX - svg.getBoundingClientRect().left);
    const row = data.lengths[Math.floor(at / data.slice_us)];
    const lines = row && queues.map(({ name, index }) => `${name}: ${row[index]}`);
    tell(lines ? [`${short(at / 1000)} ms`, ...lines] : null, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => tell(null));
  return svg;
}
