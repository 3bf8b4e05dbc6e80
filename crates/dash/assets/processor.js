// Processor time per request, by level: one bar for the host of each stack, one for the NIC.

import { hostTime } from "./keys.js";
import { STACKS, STACK_NAMES, state } from "./state.js";
import { byId, drawInto, drawing, legend, linear, lowerAxis, s, short, square, table, tell, ticks } from "./svg.js";

/** Levels as a summary names them, with their class in drawings and what they are. */
export const LEVELS = [
  ["interrupt", "interrupt", "the driver takes a packet or segment; nothing preempts it"],
  ["bottom half", "bottom_half", "link, network and transport of the kernel"],
  ["poll thread", "poll_thread", "polling beyond its budget, as a process"],
  ["server", "server", "the server process: read, application, write; user-level: its protocol stack too"],
  ["spinning", "spin", "looking for work without sleeping"],
  ["NIC", "nic", "the stack on the NIC's own processor"],
];

/** Results as {stack: run}. */
export function showProcessor(runs) {
  const bars = [];
  for (const stack of STACKS) {
    const busy = runs[stack]?.summary?.busy_us_per_request;
    if (!busy) continue;
    const parts = LEVELS.filter(([name]) => busy[name] > 0).map(([name, level, what]) => ({ name, level, what, us: busy[name] }));
    const onNic = (part) => part.level === "nic";
    bars.push({ name: STACK_NAMES[stack], stack, parts: parts.filter((part) => !onNic(part)) });
    if (parts.some(onNic)) bars.push({ name: "… on its NIC", stack, parts: parts.filter(onNic) });
  }
  drawInto(byId("processor-chart"), (width) => draw(width, bars));
  byId("processor-finding").textContent = finding(runs);
  const present = STACKS.filter((stack) => runs[stack]?.summary);
  const rows = LEVELS.map(([name]) => [name, ...present.map((stack) => short(runs[stack].summary.busy_us_per_request[name] ?? 0))]);
  byId("processor-table").replaceChildren(table(["level, µs", ...present.map((stack) => STACK_NAMES[stack])], rows));
}

function draw(width, bars) {
  const [left, right, row] = [width < 520 ? 110 : 124, width - 60, 34];
  const used = LEVELS.filter(([, level]) => bars.some((bar) => bar.parts.some((part) => part.level === level)));
  const key = legend(used.map(([name, level]) => ({ text: name, mark: square(level) })), width);
  const head = key.height + 8;
  const bottom = head + row * bars.length + 6;
  const sum = (bar) => bar.parts.reduce((total, part) => total + part.us, 0);
  const most = Math.max(...bars.map(sum), 1e-9);
  const x = linear(0, most, left, right);
  const label = `Processor time per request. ${bars.map((bar) => `${bar.name}: ${bar.parts.map((p) => `${p.name} ${short(p.us)} µs`).join(", ")}`).join(". ")}`;
  const svg = drawing(width, bottom + 42, label, { class: "bars" });
  svg.append(key.node);
  svg.append(lowerAxis(ticks(0, most, (right - left) / 80).map((n) => [x(n), short(n)]), bottom, right, "µs per request"));
  bars.forEach((bar, index) => {
    const y = head + row * index;
    const chosen = bar.stack === state.scenario.stack.kind;
    svg.append(s("text", { x: left - 8, y: y + 19, "text-anchor": "end", class: chosen ? "chosen" : "" }, bar.name));
    let at = 0;
    for (const part of bar.parts) {
      const rect = s("rect", { class: `level ${part.level}`, x: x(at), y: y + 3, width: Math.max(0.5, x(at + part.us) - x(at) - 1), height: row - 10, rx: 2 });
      rect.addEventListener("pointermove", (event) =>
        tell([`${part.name}: ${short(part.us)} µs`, `${Math.round((100 * part.us) / sum(bar))} % of ${bar.name}`, part.what], event.clientX, event.clientY));
      rect.addEventListener("pointerleave", () => tell(null));
      svg.append(rect);
      at += part.us;
    }
    svg.append(s("text", { class: "sum", x: x(at) + 6, y: y + 19 }, short(at)));
  });
  return svg;
}

function finding(runs) {
  const [kernel, user, nic] = STACKS.map((stack) => runs[stack]?.summary && hostTime(runs[stack].summary));
  if (!(kernel > 0 && user > 0 && nic >= 0)) return "";
  const simulated = 100 * (1 - (2 * nic) / (kernel + user));
  const formula = 100 * runs.nic.formulas.reduction;
  return `Equation (4): with the stack on the NIC the host spends ${simulated.toFixed(1)} % less than the mean of the two ` +
    `host stacks; in closed form ${formula.toFixed(1)} % (the paper: ${Math.round(state.catalog.published.reduction)} %). ` +
    "The work moved, it did not vanish: the NIC's bar has it.";
}
