// The controls beside the plots: built once, then filled with the scenario's values.

import { GROUPS } from "./keys.js";
import { baseScenario, setAt, state, valueAt } from "./state.js";
import { byId, h } from "./svg.js";

const rows = new Map();

/** Builds the controls; `changed` is called after each change. */
export function build(changed) {
  const set = (key, value) => {
    setAt(state.scenario, key, value);
    fill();
    changed();
  };
  for (const group of GROUPS) {
    const fields = group.keys.map((entry) => field(entry, set));
    byId("groups").append(h("details", { class: "group", open: group.open }, h("summary", {}, group.name), ...fields));
  }
}

function field(entry, set) {
  const id = `key-${entry.key.replace(".", "-")}`;
  const hint = entry.hint ? h("p", { class: "hint", id: `${id}-hint` }, entry.hint) : null;
  const reset = h("button", { type: "button", class: "reset", title: "As the scenario has it", "aria-label": `Reset ${entry.label}`, hidden: true,
    onclick: () => set(entry.key, structuredClone(valueAt(baseScenario(), entry.key))) }, "↺");
  const inputs = entry.options ? choices(entry, id, set) : entry.yes ? toggle(entry, id, set) : numbers(entry, id, set);
  const label = h("label", { for: id }, entry.label, entry.unit ? h("span", { class: "unit" }, `, ${entry.unit}`) : null);
  const node = h("div", { class: "field", "data-key": entry.key }, h("div", { class: "row" }, label, h("span", { class: "grow" }), reset, inputs.main), inputs.more ?? null, hint);
  if (hint) inputs.main.setAttribute("aria-describedby", hint.id);
  rows.set(entry.key, { show: inputs.show, reset, node });
  return node;
}

function choices(entry, id, set) {
  const main = h("select", { id, onchange: () => set(entry.key, main.value) }, ...entry.options.map((option) => h("option", {}, option)));
  return { main, show: (value) => (main.value = value) };
}

function toggle(entry, id, set) {
  const main = h("input", { id, type: "checkbox", onchange: () => set(entry.key, main.checked) });
  return { main, show: (value) => (main.checked = value) };
}

function numbers(entry, id, set) {
  const main = h("input", { id, type: "number", min: entry.min, step: "any", inputmode: "decimal" });
  const slider = h("input", { type: "range", min: entry.min, max: entry.max, step: entry.step, "aria-label": entry.label, tabindex: -1 });
  const take = (text) => {
    const value = Number(text);
    if (text.trim() !== "" && Number.isFinite(value)) set(entry.key, value);
  };
  main.addEventListener("change", () => take(main.value));
  slider.addEventListener("input", () => take(slider.value));
  const show = (value) => {
    if (document.activeElement !== main || Number(main.value) !== value) main.value = value;
    slider.value = value;
  };
  return { main, more: slider, show };
}

/** Shows the scenario's values, and which of them are not its base's. */
export function fill() {
  const base = baseScenario();
  for (const [key, row] of rows) {
    const value = valueAt(state.scenario, key);
    row.show(value);
    const changed = JSON.stringify(value) !== JSON.stringify(valueAt(base, key));
    row.reset.hidden = !changed;
    row.node.classList.toggle("changed", changed);
  }
}

/** Marks the control that a message is about; none is marked for other messages. */
export function blame(message) {
  for (const [key, row] of rows) row.node.classList.toggle("wrong", Boolean(message?.includes(key)));
}
