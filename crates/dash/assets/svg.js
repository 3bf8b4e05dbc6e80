// Drawing: elements, scales, ticks, and what every plot has in common.

const SPACE = "http://www.w3.org/2000/svg";

function element(create, name, attributes, children) {
  const node = create(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An element of the page. */
export const h = (name, attributes = {}, ...children) =>
  element((tag) => document.createElement(tag), name, attributes, children);

/** An element of a drawing. */
export const s = (name, attributes = {}, ...children) =>
  element((tag) => document.createElementNS(SPACE, tag), name, attributes, children);

export const byId = (id) => document.getElementById(id);

/** A linear scale from a domain to pixels. */
export function linear(from, to, start, end) {
  const span = to - from || 1;
  const scale = (value) => start + ((value - from) / span) * (end - start);
  scale.invert = (pixel) => from + ((pixel - start) / (end - start || 1)) * span;
  return scale;
}

/** Round numbers between two ends, about so many. */
export function ticks(from, to, about) {
  const rough = (to - from) / Math.max(1, about);
  if (!(rough > 0) || !Number.isFinite(rough)) return [from];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-6; n += 1) found.push(n * step || 0);
  return found;
}

/** A number for people: three digits that say something. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e");
  if (size >= 100) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return value.toLocaleString("en", { maximumFractionDigits: size >= 10 ? 1 : size >= 1 ? 2 : 3 });
}

export const ms = (us) => `${short(us / 1000)} ms`;

/** Puts a drawing into its place, as wide as that is; draws again when the place changes. */
export function drawInto(place, draw) {
  place.draw = draw;
  if (!place.watched) {
    place.watched = new ResizeObserver(() => {
      const width = Math.round(place.clientWidth);
      if (width && width !== place.drawnWidth) redraw(place);
    });
    place.watched.observe(place);
  }
  redraw(place);
}

export function redraw(place) {
  const width = Math.round(place.clientWidth);
  if (!width || !place.draw) return;
  place.drawnWidth = width;
  const focused = place.contains(document.activeElement);
  place.replaceChildren(place.draw(width));
  if (focused) place.querySelector("[tabindex]")?.focus({ preventScroll: true });
}

/** A drawing with a description that is read aloud. */
export const drawing = (width, height, label, attributes, ...children) =>
  s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, ...attributes }, ...children);

/** The left axis: lines across, numbers, and a name above. */
export function leftAxis(scale, values, left, right, name) {
  const group = s("g", { class: "axis" });
  for (const value of values) {
    const y = scale(value);
    group.append(s("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }));
    group.append(s("text", { x: left - 7, y: y + 4, "text-anchor": "end" }, short(value)));
  }
  group.append(s("text", { class: "name", x: 2, y: 12 }, name));
  return group;
}

/** The axis below: ticks, numbers, and a name at its end. */
export function lowerAxis(places, y, right, name) {
  const group = s("g", { class: "axis" });
  for (const [x, text] of places) {
    group.append(s("line", { class: "tick", x1: x, x2: x, y1: y, y2: y + 5 }));
    group.append(s("text", { x, y: y + 18, "text-anchor": "middle" }, text));
  }
  group.append(s("text", { class: "name", x: right, y: y + 36, "text-anchor": "end" }, name));
  return group;
}

/** What the marks mean, in as many rows as the width needs: the drawing and its height. */
export function legend(entries, width) {
  const node = s("g", { class: "legend" });
  let [x, y] = [4, 0];
  for (const entry of entries) {
    const wide = 34 + entry.text.length * 6.8;
    if (x > 4 && x + wide > width) [x, y] = [4, y + 20];
    node.append(entry.mark(x, y + 2), s("text", { x: x + 17, y: y + 13, class: entry.chosen ? "chosen" : "" }, entry.text));
    x += wide;
  }
  return { node, height: y + 20 };
}

/** A coloured square for a legend. */
export const square = (name) => (x, y) => s("rect", { class: `level ${name}`, x, y, width: 11, height: 11, rx: 2 });

/** A table of texts; the first column names the row. */
export function table(headings, rows) {
  const head = h("tr", {}, ...headings.map((text) => h("th", { scope: "col" }, text)));
  const body = rows.map((row) =>
    h("tr", {}, ...row.map((cell, index) => (index ? h("td", {}, cell) : h("th", { scope: "row" }, cell)))));
  return h("table", {}, h("thead", {}, head), h("tbody", {}, ...body));
}

const tip = byId("tip");

/** Shows lines of text at a place of the window; none hides them. */
export function tell(lines, x, y) {
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((line, index) => h(index ? "div" : "strong", {}, line)));
  const box = tip.getBoundingClientRect();
  const left = Math.max(6, Math.min(x + 14, document.documentElement.clientWidth - box.width - 8));
  const above = y + 18 + box.height > window.innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${above ? Math.max(4, y - box.height - 12) : y + 16}px`;
}
