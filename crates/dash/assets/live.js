// The page of the engines: asks once a second, shows tables that sort and filter, and says when an engine has ended.
//
// <html data-state> is "busy" until the first rates, then "ready"; "wrong" while the server does not answer.

import { watchReports } from "./reports.js";
import { noteStages, showStages } from "./stages.js";
import { byId, h, s, short } from "./svg.js";

const PERIOD_MS = 1000;
const MOST_ROWS = 500;
const KEPT = 60;
const SPARK = { width: 120, height: 22 };

const bytes = (value) => (value >= 1e9 ? `${short(value / 1e9)} G` : value >= 1e6 ? `${short(value / 1e6)} M` : value >= 1e3 ? `${short(value / 1e3)} k` : short(value));
const rate = (name) => ({ value: (row) => row[name], text: (row) => bytes(row[name]), number: true });
const plain = (name) => ({ value: (row) => row[name] ?? "", text: (row) => String(row[name] ?? "–") });
const count = (name) => ({ value: (row) => row[name] ?? -1, text: (row) => (row[name] ?? null) === null ? "–" : row[name].toLocaleString("en"), number: true });
const both = (row) => row.sent_bytes_per_s + row.received_bytes_per_s;

/** Columns: heading, and how a row is sorted and shown. */
const TABLES = {
  engines: {
    key: (row) => `${row.engine} ${row.pid}`,
    columns: {
      engine: plain("engine"), process: { ...plain("pid"), text: (row) => `${row.program || "?"} ${row.pid ?? ""}` }, mode: plain("mode"),
      "device and driver": plain("device"), cores: count("cores"), programs: count("programs"), connections: count("connections"),
      "sent B/s": rate("sent_bytes_per_s"), "received B/s": rate("received_bytes_per_s"), "frames/s": { value: (row) => row.sent_frames_per_s + row.received_frames_per_s,
        text: (row) => bytes(row.sent_frames_per_s + row.received_frames_per_s), number: true },
      "last minute": { value: both, text: spark }, resent: count("retransmissions"), "frames lost": count("lost_frames"), "memory KiB": count("memory_kib"),
    },
  },
  programs: {
    key: (row) => `${row.engine} ${row.pid}`,
    columns: {
      program: plain("program"), process: plain("pid"), engine: plain("engine"), connections: count("connections"), "sent B/s": rate("sent_bytes_per_s"),
      "received B/s": rate("received_bytes_per_s"), resent: count("retransmissions"), "longest round trip µs": count("srtt_us_max"),
    },
  },
  notifications: {
    key: (row) => `${row.engine} ${row.pid}`,
    columns: {
      program: plain("program"), process: plain("pid"), "told when": plain("notify"), "reads and writes/s": rate("calls_per_s"),
      "notifications/s": rate("notifications_per_s"), "wake-ups/s": rate("wake_ups_per_s"), "went to sleep/s": rate("voluntary_switches_per_s"),
      "was displaced/s": rate("involuntary_switches_per_s"),
      "switches per call": { value: (row) => row.switches_per_call ?? -1, text: (row) => short(row.switches_per_call), number: true },
      engine: plain("engine"),
    },
  },
  errors: {
    key: (row) => `${row.engine} ${row.error}`,
    columns: { error: plain("error"), engine: plain("engine"), "a second": rate("per_s"), "since the start": count("count"), "what is counted": plain("what") },
  },
  connections: {
    key: (row) => `${row.engine} ${row.protocol} ${row.local} ${row.remote}`,
    columns: {
      program: plain("program"), protocol: plain("protocol"), path: plain("path"), state: plain("state"), local: plain("local"), remote: plain("remote"),
      "sent B/s": rate("sent_bytes_per_s"), "received B/s": rate("received_bytes_per_s"), "round trip µs": count("srtt_us"), resent: count("retransmissions"),
      "not read": count("receive_queue"), "waits for ACK": count("send_queue"),
    },
  },
};
const sorted = { engines: { by: "engine", down: false }, programs: { by: "sent B/s", down: true },
  notifications: { by: "reads and writes/s", down: true }, errors: { by: "a second", down: true }, connections: { by: "sent B/s", down: true } };
const history = new Map();
let last = null;
let known = new Map();
let paused = false;

/** The rate of an engine over the last minute, as a line. */
function spark(row) {
  const points = history.get(TABLES.engines.key(row)) ?? [];
  const most = Math.max(1, ...points);
  const at = (value, index) => `${(index / (KEPT - 1)) * SPARK.width},${SPARK.height - 2 - (value / most) * (SPARK.height - 4)}`;
  return s("svg", { width: SPARK.width, height: SPARK.height, viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, role: "img", "aria-label": `at most ${bytes(most)}B/s` },
    s("polyline", { class: "spark", points: points.map(at).join(" ") }));
}

function matches(row) {
  const words = byId("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const text = Object.values(row).join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function ordered(name, rows) {
  const { by, down } = sorted[name];
  const { value } = TABLES[name].columns[by];
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  return rows.sort((a, b) => compare(value(a), value(b)) * (down ? -1 : 1));
}

function heading(name, title) {
  const { by, down } = sorted[name];
  const isChosen = by === title;
  const choose = () => {
    sorted[name] = { by: title, down: isChosen ? !down : Boolean(TABLES[name].columns[title].number) };
    show();
    byId(name).querySelector(`[data-column="${CSS.escape(title)}"]`)?.focus();
  };
  return h("th", { scope: "col", "aria-sort": isChosen ? (down ? "descending" : "ascending") : "none" },
    h("button", { type: "button", class: "sort", "data-column": title, onclick: choose }, title, isChosen ? (down ? " ↓" : " ↑") : ""));
}

function row(name, one) {
  const cells = Object.entries(TABLES[name].columns).map(([title, column]) =>
    h("td", { class: column.number ? "number" : "", "data-column": title }, column.text(one)));
  if (name === "engines" && !one.answers) {
    return h("tr", { "data-key": TABLES[name].key(one), class: "silent" }, cells[0], cells[1],
      h("td", { colspan: cells.length - 2 }, `does not answer: ${one.reason}`));
  }
  return h("tr", { "data-key": TABLES[name].key(one) }, ...cells);
}

/** Draws a table; where the focus was in its headings it stays. */
function draw(name, rows) {
  const place = byId(name);
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.column : null;
  const shown = ordered(name, rows.filter(matches));
  const titles = Object.keys(TABLES[name].columns);
  const nothing = rows.length ? "Nothing passes the filter." : "There are none.";
  place.replaceChildren(shown.length
    ? h("table", {}, h("thead", {}, h("tr", {}, ...titles.map((title) => heading(name, title)))), h("tbody", {}, ...shown.slice(0, MOST_ROWS).map((one) => row(name, one))))
    : h("p", { class: "explain" }, nothing),
    ...(shown.length > MOST_ROWS ? [h("p", { class: "explain" }, `and ${shown.length - MOST_ROWS} more: filter, or sort by another column`)] : []));
  if (focused) place.querySelector(`[data-column="${CSS.escape(focused)}"]`)?.focus();
}

function show() {
  if (!last) return;
  const devices = new Map(last.engines.map((one) => [one.engine, one.device]));
  for (const one of last.connections) one.path = `${one.engine} by ${devices.get(one.engine) ?? "?"}`;
  const errors = last.engines.flatMap((one) => (one.errors ?? []).map((error) => ({ engine: one.engine, ...error })));
  const tables = { ...last, notifications: last.programs, errors };
  for (const name of Object.keys(TABLES)) draw(name, tables[name]);
  showStages(last.stages);
  const answering = last.engines.filter((one) => one.answers);
  const total = answering.reduce((sum, one) => sum + both(one), 0);
  const some = (number, of) => `${number.toLocaleString("en")} ${of}${number === 1 ? "" : "s"}`;
  byId("summary").textContent = `${some(answering.length, "engine")}, ${some(last.programs.length, "program")}, ${some(last.connections.length + last.left_out, "connection")}, ${bytes(total)}B/s in all`
    + (paused ? "; paused" : "");
}

/** Says which engines have ended since the sample before, and remembers rates. */
function note(sample) {
  const now = new Map(sample.engines.map((one) => [TABLES.engines.key(one), one]));
  for (const [key, one] of known) {
    if (now.has(key)) continue;
    const at = new Date().toLocaleTimeString();
    byId("gone").append(h("li", { "data-key": key }, `${at}: ${one.engine} (process ${one.pid ?? "?"}) has ended; its connections went with it.`));
    while (byId("gone").children.length > 5) byId("gone").firstChild.remove();
    history.delete(key);
  }
  known = now;
  noteStages(sample.stages);
  for (const [key, one] of now) {
    const rates = history.get(key) ?? [];
    rates.push(one.answers ? both(one) : 0);
    history.set(key, rates.slice(-KEPT));
  }
}

async function ask() {
  try {
    const response = await fetch("/api/live");
    if (!response.ok) throw new Error(await response.text());
    const sample = await response.json();
    note(sample);
    if (!paused) {
      last = sample;
      show();
    }
    byId("alert").hidden = true;
    document.documentElement.dataset.state = sample.has_rates ? "ready" : "busy";
  } catch (error) {
    byId("alert").textContent = `The server does not answer: is shunt ui still running? (${error.message})`;
    byId("alert").hidden = false;
    document.documentElement.dataset.state = "wrong";
  }
  setTimeout(ask, PERIOD_MS);
}

function pause() {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  show();
}

byId("pause").addEventListener("click", pause);
byId("filter").addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  const typing = event.target === byId("filter");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "Escape" && typing) {
    byId("filter").value = "";
    byId("filter").blur();
    show();
  } else if (event.key === "p" && !typing) pause();
});
ask();
watchReports();
