// The curve: a figure of the three stacks over one key.

import { AXES, METRICS } from "./keys.js";
import { STACKS, STACK_NAMES, state, valueAt } from "./state.js";
import { byId, drawInto, drawing, h, leftAxis, legend, linear, lowerAxis, s, short, table, tell, ticks } from "./svg.js";

const HEIGHT = 230;

export const metric = () => METRICS.find((m) => m.id === state.view.metric) ?? METRICS[0];
const axisName = () => AXES.find(([key]) => key === state.view.axis)?.[1] ?? state.view.axis;

/** Curves as {stack: [{value, summary}]}; a stack that cannot be has {error}. */
export function showCurves(curves) {
  const shown = metric();
  const lines = STACKS.filter((stack) => Array.isArray(curves[stack])).map((stack) => ({
    stack,
    points: curves[stack].filter((p) => p.summary).map((p) => ({ value: p.value, summary: p.summary, y: shown.of(p.summary) })),
  }));
  const values = lines[0]?.points.map((p) => p.value) ?? [];
  byId("response-title").textContent = shown.name.split(",")[0].replace(/^./, (c) => c.toUpperCase());
  byId("response-explain").textContent = shown.explain;
  drawInto(byId("response-chart"), (width) => draw(width, lines, values, shown));
  byId("response-finding").replaceChildren(...finding(lines, curves));
  const rows = values.map((value, index) => [value, ...lines.map((line) => short(line.points[index]?.y))]);
  byId("response-table").replaceChildren(table([axisName(), ...lines.map((line) => STACK_NAMES[line.stack])], rows));
}

/** Places of the values: to scale where they are numbers of one size, else one beside the other. */
function places(values, left, right) {
  const numbers = values.map(Number);
  const least = Math.min(...numbers);
  const most = Math.max(...numbers);
  const wide = least <= 0 ? most / Math.min(...numbers.filter((n) => n > 0)) > 100 : most / least > 40;
  if (numbers.some(Number.isNaN) || wide) {
    const step = (right - left) / Math.max(1, values.length);
    return { at: (value) => left + step * (values.indexOf(value) + 0.5), marks: values.map((v) => [v, v]) };
  }
  const scale = linear(least, most, left + 12, right - 14);
  const few = values.length <= 10 && numbers.every((n, i) => !i || scale(n) - scale(numbers[i - 1]) > 26);
  const marks = few ? values.map((v) => [v, v]) : ticks(least, most, Math.min(8, (right - left) / 70)).map((n) => [n, short(n)]);
  return { at: (value) => scale(Number(value)), marks };
}

function mark(stack, x, y, hollow) {
  const common = { class: `mark ${stack}${hollow ? " hollow" : ""}` };
  if (stack === "kernel") return s("circle", { ...common, cx: x, cy: y, r: 4.5 });
  if (stack === "user") return s("path", { ...common, d: `M${x} ${y - 5.4}l5.2 9.4h-10.4z` });
  return s("rect", { ...common, x: x - 4.2, y: y - 4.2, width: 8.4, height: 8.4 });
}

const overloaded = (stack, summary) => Object.keys(summary.overloaded).length > 0 || (stack === "user" && summary.late_share < 0.05);

function draw(width, lines, values, shown) {
  const names = lines.map((line) => ({
    text: STACK_NAMES[line.stack], chosen: line.stack === state.scenario.stack.kind, mark: (lx, ly) => mark(line.stack, lx + 6, ly + 6, false),
  }));
  const key = legend(names, width);
  key.node.setAttribute("transform", "translate(0 18)");
  const [left, right, top] = [52, width - 8, 26 + key.height];
  const bottom = top + HEIGHT;
  const ys = lines.flatMap((line) => line.points.map((p) => p.y)).filter((y) => Number.isFinite(y));
  const high = Math.max(...ys, 0) * 1.06 || 1;
  const y = linear(0, high, bottom, top);
  const x = places(values, left, right);
  const label = `${shown.name} over ${axisName()}: ${lines.map((line) => `${STACK_NAMES[line.stack]} ${line.points.map((p) => short(p.y)).join(", ")}`).join("; ")}`;
  const svg = drawing(width, bottom + 44, label, { class: "curves", tabindex: 0 },
    leftAxis(y, ticks(0, high, 5), left, right, shown.name),
    lowerAxis(x.marks.map(([value, text]) => [x.at(value), text]), bottom, right, axisName()));
  const here = String(valueAt(state.scenario, state.view.axis));
  const same = values.find((value) => Number(value) === Number(here));
  if (same !== undefined) {
    svg.append(s("line", { class: "here", x1: x.at(same), x2: x.at(same), y1: top, y2: bottom }));
  }
  for (const line of lines) svg.append(curve(line, x, y, shown));
  svg.append(key.node);
  const cursor = s("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
  svg.append(cursor);
  follow(svg, { lines, values, x, cursor, shown, top });
  return svg;
}

function curve(line, x, y, shown) {
  const group = s("g", { class: `curve ${line.stack}` });
  const known = line.points.filter((p) => Number.isFinite(p.y));
  group.append(s("polyline", { points: known.map((p) => `${x.at(p.value).toFixed(1)},${y(p.y).toFixed(1)}`).join(" ") }));
  for (const p of known) {
    const half = shown.spread?.(p.summary);
    if (half) {
      const [a, b] = [y(p.y - half), y(p.y + half)];
      group.append(s("path", { class: "spread", d: `M${x.at(p.value)} ${a}V${b}m-3 0h6m-6 ${a - b}h6` }));
    }
    group.append(mark(line.stack, x.at(p.value), y(p.y), overloaded(line.stack, p.summary)));
  }
  return group;
}

/** A cursor that goes from value to value, by pointer or by arrow keys. */
function follow(svg, { lines, values, x, cursor, shown, top }) {
  let index = -1;
  const point = (next, clientX, clientY) => {
    index = Math.max(0, Math.min(values.length - 1, next));
    const value = values[index];
    if (value === undefined) return;
    cursor.setAttribute("x1", x.at(value));
    cursor.setAttribute("x2", x.at(value));
    cursor.setAttribute("visibility", "visible");
    const box = svg.getBoundingClientRect();
    const rows = lines.map((line) => {
      const p = line.points.find((candidate) => candidate.value === value);
      const unstable = p && overloaded(line.stack, p.summary) ? ", overloaded" : "";
      return `${STACK_NAMES[line.stack]}: ${short(p?.y)}${unstable}`;
    });
    tell([`${axisName()}: ${value}`, ...rows], clientX ?? box.left + x.at(value), clientY ?? box.top + top);
    byId("status").textContent = [`${axisName()} ${value}`, shown.name, ...rows].join("; ");
  };
  const leave = () => {
    cursor.setAttribute("visibility", "hidden");
    tell(null);
  };
  svg.addEventListener("pointermove", (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    const distances = values.map((value) => Math.abs(x.at(value) - at));
    point(distances.indexOf(Math.min(...distances)), event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    point(index + step);
  });
}

const range = (numbers) => {
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)].map((n) => Math.round(n));
  return least === most ? `${least} %` : `${least} to ${most} %`;
};

/** How much shorter the NIC-resident stack's times are, beside what the paper has. */
function finding(lines, curves) {
  const parts = [];
  const of = (stack) => lines.find((line) => line.stack === stack)?.points ?? [];
  const nic = of("nic");
  const timed = ["survivors", "mean", "p99"].includes(metric().id);
  for (const stack of ["kernel", "user"]) {
    const savings = of(stack)
      .filter((p) => !(stack === "user" && p.summary.late_share < 0.05))
      .map((p) => [p.y, nic.find((q) => q.value === p.value)?.y])
      .filter(([other, own]) => timed && other > 0 && Number.isFinite(own))
      .map(([other, own]) => 100 * (1 - own / other));
    if (savings.length < 2) continue;
    const figure = ["fig8", "fig9"].find((name) => name === state.base && state.view.metric === "survivors");
    const paper = figure ? ` (the paper: ${state.catalog.published[`${figure}_vs_${stack}`].join(" to ")} %)` : "";
    parts.push(`Against ${STACK_NAMES[stack].toLowerCase()}, the NIC-resident stack saves ${range(savings)}${paper}. `);
  }
  const silent = of("user").find((p) => p.summary.late_share < 0.05);
  if (silent && state.view.axis === "workload.clients") {
    parts.push(`User-level has stopped answering from ${silent.value} clients on: it still receives, but serves nobody. `);
  }
  for (const [stack, result] of Object.entries(curves)) {
    if (result?.error) parts.push(h("span", { class: "fault" }, `${STACK_NAMES[stack]} cannot be here: ${result.error} `));
  }
  return parts;
}
