// Results of before: saved pages to open, and saved runs of round trips in a table.

import { byId, h, short } from "./svg.js";

const PERIOD_MS = 10000;

const when = (seconds) => new Date(seconds * 1000).toLocaleString();
const us = (value) => (value === null || value === undefined ? "–" : short(value));

function pages(found) {
  const one = (page) => h("li", {}, h("a", { href: `/reports/${encodeURIComponent(page.name)}`, target: "_blank", rel: "noopener" }, page.title || page.name),
    ` ${page.name}, ${when(page.modified_s)}`);
  return found.length ? h("ul", { class: "saved" }, ...found.map(one)) : h("p", { class: "explain" }, "There are no pages.");
}

function runs(found) {
  if (!found.length) return h("p", { class: "explain" }, "There are no saved runs.");
  const titles = ["label", "what", "stack", "target", "bytes", "sent", "lost", "mean µs", "p50 µs", "p99 µs", "warnings", "file"];
  const number = (text) => h("td", { class: "number" }, text);
  const row = (run) => h("tr", {}, h("th", { scope: "row" }, run.label ?? "–"), h("td", {}, String(run.what)), h("td", {}, run.stack), h("td", {}, run.target),
    number(String(run.payload_bytes)), number(run.sent.toLocaleString("en")), number(run.lost.toLocaleString("en")),
    number(us(run.mean_us)), number(us(run.p50_us)), number(us(run.p99_us)), number(String(run.warnings)), h("td", {}, `${run.file}, ${when(run.modified_s)}`));
  return h("table", {}, h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, ...found.map(row)));
}

function show(found) {
  byId("reports-how").hidden = Boolean(found);
  if (!found) return;
  const place = byId("reports");
  // Who is about to open a link shall not lose it.
  if (place.contains(document.activeElement) && document.activeElement !== place) return;
  if (found.error) {
    place.replaceChildren(h("p", { class: "fault" }, `${found.folder} cannot be read: ${found.error}`));
    return;
  }
  place.replaceChildren(h("p", { class: "explain" }, `In ${found.folder}, the newest first.`), pages(found.pages), runs(found.runs),
    ...found.unread.map((one) => h("p", { class: "explain" }, `Not shown: ${one.name}: ${one.why}`)),
    ...(found.left_out ? [h("p", { class: "explain" }, `and ${found.left_out} more`)] : []));
}

/** Shows what there is, and again every few seconds if a folder was named. */
export async function watchReports() {
  let isNamed = true;
  try {
    const response = await fetch("/api/reports");
    if (response.ok) {
      const found = await response.json();
      isNamed = found !== null;
      show(found);
    }
  } catch {
    // That the server is gone is said once, by who asks for the engines.
  }
  if (isNamed) setTimeout(watchReports, PERIOD_MS);
}
