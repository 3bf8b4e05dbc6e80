// What the page shows: a scenario, where it came from, and the view of it. All of it is in the
// address' fragment, so that a link is a copy: #scenario=fig8&workload.clients=6&metric=p99

export const STACKS = ["kernel", "user", "nic"];
export const STACK_NAMES = { kernel: "Kernel-resident", user: "User-level", nic: "NIC-resident" };

export const state = {
  catalog: null, // what /api/scenarios said
  base: "fig8",
  scenario: null,
  view: { metric: "survivors", axis: "workload.clients", values: "1..9", step: 0 },
};

const VIEW = ["metric", "axis", "values", "step"];

/** The scenario that `base` names; anything else is the defaults. */
export function baseScenario(base = state.base) {
  const found = state.catalog.scenarios.find((shipped) => shipped.name === base);
  return found ? found.scenario : state.catalog.defaults;
}

export function valueAt(object, key) {
  return key.split(".").reduce((inner, part) => (inner && Object.hasOwn(inner, part) ? inner[part] : undefined), object);
}

export function setAt(object, key, value) {
  const parts = key.split(".");
  const last = parts.pop();
  const table = parts.length ? valueAt(object, parts.join(".")) : object;
  if (!table || typeof table !== "object" || !Object.hasOwn(table, last)) return false;
  table[last] = value;
  return true;
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** Keys of `scenario` that differ from `base`, with their values. */
export function changes(scenario = state.scenario, base = baseScenario()) {
  const found = [];
  for (const [name, value] of Object.entries(scenario)) {
    if (value && typeof value === "object" && !Array.isArray(value)) {
      for (const [key, inner] of Object.entries(value)) {
        if (!same(inner, base[name][key])) found.push([`${name}.${key}`, inner]);
      }
    } else if (!same(value, base[name])) {
      found.push([name, value]);
    }
  }
  return found;
}

/** Starts from a scenario of the repository, or from one that was read. */
export function choose(base, scenario) {
  state.base = base;
  state.scenario = structuredClone(scenario ?? baseScenario(base));
}

/** The view that a scenario's own axes ask for. */
export function viewOfSweep() {
  const axes = state.scenario.sweep.filter((axis) => axis.key !== "stack.kind");
  const last = axes[axes.length - 1];
  if (last) Object.assign(state.view, { axis: last.key, values: last.values });
}

export function toFragment() {
  const parts = new URLSearchParams({ scenario: state.base });
  for (const [key, value] of changes()) {
    parts.set(key, typeof value === "string" ? value : JSON.stringify(value));
  }
  for (const name of VIEW) parts.set(name, state.view[name]);
  return parts.toString();
}

/** Reads a fragment; what it names and nobody knows is left out. */
export function fromFragment(fragment) {
  const parts = new URLSearchParams(fragment);
  choose(parts.get("scenario") ?? "fig8");
  viewOfSweep();
  for (const [key, text] of parts) {
    if (key === "scenario") continue;
    if (key === "step") state.view.step = Number.parseInt(text, 10) || 0;
    else if (VIEW.includes(key)) state.view[key] = text;
    else setAt(state.scenario, key, parsed(text, valueAt(state.scenario, key)));
  }
}

function parsed(text, before) {
  if (typeof before === "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
