// The page: keeps the scenario, asks the server, and hands results to the plots.
//
// While it computes, <html data-state> is "busy"; then "ready", or "wrong" where the scenario cannot be.

import { blame, build, fill } from "./controls.js";
import { connect } from "./export.js";
import { AXES, METRICS, hostTime } from "./keys.js";
import { showProcessor } from "./processor.js";
import { showQueues } from "./queues.js";
import { metric, showCurves } from "./response.js";
import { STACKS, STACK_NAMES, baseScenario, changes, choose, fromFragment, setAt, state, toFragment, viewOfSweep } from "./state.js";
import { byId, h, s, short, table } from "./svg.js";
import { showTimeline, zoom } from "./timeline.js";
import { enter, showTour } from "./tour.js";

const PAUSE_MS = 150;
const MOST_KEPT = 80;
const results = { runs: {}, curves: {}, timeline: null };
const kept = new Map();
let waiting = null;
let asking = null;

/** Asks the server; what was answered before is not asked again. */
async function ask(path, body, signal) {
  const text = JSON.stringify(body);
  const key = path + text;
  if (kept.has(key)) return kept.get(key);
  const response = await fetch(path, { method: "POST", body: text, signal, headers: { "content-type": "application/json" } });
  const answer = response.headers.get("content-type")?.includes("json") ? await response.json() : { error: await response.text() };
  if (kept.size >= MOST_KEPT) kept.delete(kept.keys().next().value);
  if (response.ok) kept.set(key, answer);
  return answer;
}

function of(stack) {
  const scenario = structuredClone(state.scenario);
  scenario.stack.kind = stack;
  return scenario;
}

/** Another scenario or view: shows the controls at once, and results when they are there. */
function changed() {
  history.replaceState(null, "", `#${toFragment()}`);
  fill();
  showView();
  document.documentElement.dataset.state = "busy";
  clearTimeout(waiting);
  waiting = setTimeout(simulate, PAUSE_MS);
}

async function simulate() {
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  const { signal } = mine;
  const chosen = state.scenario.stack.kind;
  const axis = `${state.view.axis}=${state.view.values}`;
  try {
    const runs = await all(STACKS, (stack) => ask("/api/run", { scenario: of(stack) }, signal));
    if (runs[chosen].error) return wrong(runs[chosen].error);
    Object.assign(results, { runs });
    showRuns();
    results.timeline = await ask("/api/timeline", { scenario: state.scenario }, signal);
    if (results.timeline.error) return wrong(results.timeline.error);
    showTimeline(results.timeline);
    showQueues();
    timelineFinding();
    results.curves = await all(STACKS, (stack) => ask("/api/curve", { scenario: of(stack), axis }, signal));
    showCurves(results.curves);
    const broken = results.curves[chosen].error;
    if (broken) return wrong(broken);
    right();
  } catch (error) {
    if (error.name !== "AbortError") wrong(`The server does not answer: is shunt ui still running? (${error.message})`);
  }
}

async function all(names, work) {
  const answers = await Promise.all(names.map(work));
  return Object.fromEntries(names.map((name, index) => [name, answers[index]]));
}

function wrong(message) {
  byId("alert").textContent = message;
  byId("alert").hidden = false;
  blame(message);
  document.documentElement.dataset.state = "wrong";
}

function right() {
  byId("alert").hidden = true;
  blame(null);
  document.documentElement.dataset.state = "ready";
}

function showView() {
  const pick = byId("scenario");
  pick.value = state.base;
  byId("axis").value = state.view.axis;
  byId("metric").value = metric().id;
  if (document.activeElement !== byId("values")) byId("values").value = state.view.values;
  showTour((index) => {
    if (index < 0) state.view.step = 0;
    else enter(index);
    changed();
    if (index >= 0) byId("tour").scrollIntoView({ block: "nearest" });
  });
}

function showRuns() {
  byId("stacks").replaceChildren(...STACKS.map(card));
  const run = results.runs[state.scenario.stack.kind];
  const warnings = [...run.warnings, ...(run.bounded ? [run.bounded] : [])];
  byId("warnings").replaceChildren(...warnings.map((text) => h("li", {}, text)));
  showProcessor(results.runs);
  showFormulas(run);
  showResources(run.summary);
}

/** What one stack makes of the scenario. The exact numbers stand in the data attributes. */
function card(stack) {
  const run = results.runs[stack];
  const chosen = stack === state.scenario.stack.kind;
  const choosing = () => {
    setAt(state.scenario, "stack.kind", stack);
    changed();
    byId("stacks").querySelector(`[data-stack=${stack}]`)?.focus();
  };
  const attributes = { type: "button", class: `stack ${stack}`, role: "radio", "aria-checked": String(chosen), tabindex: chosen ? 0 : -1, "data-stack": stack,
    onclick: choosing, onkeydown: moveChoice };
  const summary = run?.summary;
  if (!summary) return h("button", attributes, h("strong", {}, STACK_NAMES[stack]), h("p", { class: "fault" }, `Cannot be here: ${run?.error ?? "no answer"}`));
  const unstable = Object.keys(summary.overloaded);
  const mean = summary.response?.mean_ms;
  const line = (name, text) => h("div", {}, h("dt", {}, name), h("dd", {}, text));
  return h("button", { ...attributes, "data-mean-ms": mean, "data-p99-ms": summary.response?.p99_ms, "data-host-us": hostTime(summary), "data-answered": summary.answered },
    h("strong", {}, STACK_NAMES[stack]),
    h("span", { class: "big" }, short(mean), h("small", {}, " ms mean of all")),
    h("dl", {},
      line("99th percentile", `${short(summary.response?.p99_ms)} ms`),
      line("host per request", `${short(hostTime(summary))} µs`),
      line("interrupts per request", short(summary.interrupts_per_request)),
      line("answered", `${Math.round((100 * summary.answered) / summary.requests)} %`),
      line("late in the load", `${Math.round(100 * summary.late_share)} %`)),
    unstable.length ? h("span", { class: "flag" }, `overloaded: ${unstable.join(", ")}`) : null);
}

function moveChoice(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const cards = [...byId("stacks").children];
  cards[(cards.indexOf(event.currentTarget) + step + cards.length) % cards.length].click();
}

function timelineFinding() {
  const { requests } = results.timeline;
  const times = requests.map((r) => r.answered_us - r.made_us);
  if (!times.length) return (byId("timeline-finding").textContent = "No request is answered in this run.");
  const inside = requests.map((r) => r.left_us - r.arrived_us);
  const mean = (list) => list.reduce((sum, us) => sum + us, 0) / list.length / 1000;
  const own = results.runs[state.scenario.stack.kind].steps.reduce((sum, step) => sum + step.us, 0) / 1000;
  byId("timeline-finding").textContent = `Of ${short(mean(times))} ms from question to answer, ${short(mean(inside))} are spent in the machine, and the work on a request ` +
    `is only ${short(own)} ms of that. The rest is waiting: for a slice, a bottom half, or the requests before.`;
}

function showFormulas(run) {
  const f = run.formulas;
  const us = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  const clock = state.scenario.cost.reference_mhz;
  const row = (name, equation, value, says) => [name, h("code", {}, equation), h("strong", {}, value), says];
  const rows = [
    row("Equation (4)", `1 − 2·${us(f.nic_us)} / (${us(f.kernel_us)} + ${us(f.user_us)})`, `${(100 * f.reduction).toFixed(1)} %`,
      "host time saved by the NIC-resident stack; 1 − 2·t_NIC / (t_kernel + t_user)"),
    row("Equation (5)", `1 − (1 − ${short(state.scenario.loss.bit_error_rate)})^(8·${us(state.scenario.loss.packet_bytes)})`, short(f.packet_error_rate),
      "packets that are broken; host stacks work 1/(1 − e) times, which is in (4) already"),
    row("Livelock", "1 / (λ₁·(w_isr + w_rx / share))", `${short(f.livelock_clients)} clients`, "from here on a user-level library only receives"),
    row("Burst", `requests × ${us(f.nic_work_us)} µs × ${short(clock)} MHz / slice`, `${short(f.burst_knee_mhz)} MHz`, "NIC clock from which a burst hides in one time slice"),
    row("Load that goes on", `${short(f.requests_per_s)}/s × ${us(f.nic_work_us)} µs × ${short(clock)} MHz`, `${short(f.sustained_mhz)} MHz`, "NIC clock that it needs"),
  ];
  const loads = Object.entries(f.loads).map(([name, load]) =>
    h("li", { class: load >= 1 ? "over" : "" }, h("span", {}, name), meter(load), h("strong", {}, `${Math.round(100 * load)} %`)));
  byId("formulas").replaceChildren(h("div", { class: "scroll" }, table(["", "equation", "here", "meaning"], rows)),
    h("h3", {}, "What the load asks of each resource"), h("ul", { class: "loads" }, ...loads));
}

function meter(load) {
  return s("svg", { class: "meter", viewBox: "0 0 200 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "lane", width: 200, height: 10, rx: 3 }), s("rect", { class: load >= 1 ? "over" : "fill", width: Math.min(200, 200 * load), height: 10, rx: 3 }));
}

function showResources(summary) {
  const rows = Object.entries(summary.resources).map(([name, r]) =>
    [name, `${(100 * r.utilisation).toFixed(1)} %`, `${short(r.wait_mean_us / 1000)} ms`, `${short(r.wait_p99_us / 1000)} ms`]);
  byId("resources").replaceChildren(table(["resource", "busy", "mean wait", "99th percentile"], rows));
}

function connectView(changedHere) {
  const option = (value, text) => h("option", { value }, text);
  byId("scenario").append(...state.catalog.scenarios.map((shipped) => option(shipped.name, shipped.scenario.title)),
    option("defaults", "The paper's machine"), option("file", "Own file"));
  byId("metric").append(...METRICS.map((m) => option(m.id, m.name)));
  byId("axis").append(...AXES.map(([key, name]) => option(key, name)));
  byId("scenario").addEventListener("change", (event) => {
    choose(event.target.value);
    state.view.step = 0;
    viewOfSweep();
    changedHere();
  });
  byId("metric").addEventListener("change", (event) => {
    state.view.metric = event.target.value;
    changedHere();
  });
  byId("axis").addEventListener("change", (event) => {
    const [axis, , values] = AXES.find(([key]) => key === event.target.value);
    Object.assign(state.view, { axis, values });
    changedHere();
  });
  byId("values").addEventListener("change", (event) => {
    state.view.values = event.target.value.trim();
    changedHere();
  });
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoom(button.dataset.zoom));
}

async function begin() {
  const response = await fetch("/api/scenarios");
  if (!response.ok) return wrong(await response.text());
  state.catalog = await response.json();
  byId("version").textContent = `Shunt ${state.catalog.version}.`;
  fromFragment(location.hash.slice(1));
  if (matchMedia("(max-width: 60rem)").matches) byId("controls-fold").open = false;
  connectView(changed);
  build(changed);
  connect(() => results, changed);
  window.addEventListener("hashchange", () => {
    if (location.hash.slice(1) === toFragment()) return;
    fromFragment(location.hash.slice(1));
    changed();
  });
  changed();
}

begin().catch((error) => wrong(error.message));
