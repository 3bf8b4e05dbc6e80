// Where a message's time goes, of an engine and programs that note it: a table with a bar for each stage, and a line of the last minute.

import { byId, h, s, short } from "./svg.js";

const KEPT = 60;
const BAR = { width: 220, height: 14 };
const LINE = { width: 220, height: 40 };
const sums = [];

const us = (value) => (value === null || value === undefined ? "–" : short(value));

/** What the stages that are known come to. */
function total(stages) {
  const known = stages.filter((one) => one.mean_us !== null);
  return known.length ? known.reduce((sum, one) => sum + one.mean_us, 0) : null;
}

/** Remembers a sample; called for each, shown or not. */
export function noteStages(found) {
  if (!found?.stages) return;
  sums.push(total(found.stages));
  if (sums.length > KEPT) sums.shift();
}

function bar(one, most) {
  const width = one.mean_us === null ? 0 : Math.max(1, (one.mean_us / most) * BAR.width);
  return s("svg", { width: BAR.width, height: BAR.height, "aria-hidden": "true", class: "stage-bar" },
    s("rect", { class: "lane", width: BAR.width, height: BAR.height }), s("rect", { class: "fill", width, height: BAR.height }));
}

/** The sum of all stages over the last minute; what is not known leaves a gap. */
function line() {
  const known = sums.filter((sum) => sum !== null);
  const most = Math.max(1e-3, ...known);
  const parts = [[]];
  sums.forEach((sum, index) => {
    if (sum === null) parts.push([]);
    else parts.at(-1).push(`${(index / (KEPT - 1)) * LINE.width},${LINE.height - 2 - (sum / most) * (LINE.height - 4)}`);
  });
  const latest = sums.at(-1);
  const label = known.length ? `All stages together, last minute: now ${us(latest)} µs, at most ${us(most)} µs` : "Nothing was noted in the last minute";
  return s("svg", { width: LINE.width, height: LINE.height, viewBox: `0 0 ${LINE.width} ${LINE.height}`, role: "img", "aria-label": label },
    ...parts.filter((points) => points.length).map((points) => s("polyline", { class: "spark", points: points.join(" ") })));
}

function row(one, most, seconds) {
  const cell = (column, text) => h("td", { class: "number", "data-column": column }, text);
  const part = one.ended ? one.told_apart / one.ended : null;
  return h("tr", { "data-key": one.name },
    h("th", { scope: "row" }, one.name), cell("messages/s", short(one.ended / seconds)),
    cell("told apart", part === null ? "–" : `${Math.round(part * 100)} %`), cell("mean µs", us(one.mean_us)),
    h("td", {}, bar(one, most)), cell("p50 µs", us(one.p50_us)), cell("p99 µs", us(one.p99_us)));
}

/** Draws the newest sample. */
export function showStages(found) {
  const place = byId("stages");
  byId("stages-how").hidden = Boolean(found);
  if (!found) return place.replaceChildren();
  if (found.error) return place.replaceChildren(h("p", { class: "fault" }, `The marks cannot be read: ${found.error}`));
  const most = Math.max(1e-3, ...found.stages.map((one) => one.mean_us ?? 0));
  const sum = total(found.stages);
  const titles = ["stage", "messages/s", "told apart", "mean µs", "", "p50 µs", "p99 µs"];
  const said = sum === null ? "Nothing was noted in the last second."
    : `In the last second the stages that are known took ${us(sum)} µs of a message together.`;
  return place.replaceChildren(
    h("p", { id: "stages-sum" }, said, ` Processes that note: ${found.pids.join(", ") || "none"}.`), line(),
    h("table", {}, h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, ...found.stages.map((one) => row(one, most, found.window_s)))));
}
