// What leaves the page, and what comes into it: files, pictures, a link.

import { METRICS } from "./keys.js";
import { STACKS, choose, state, viewOfSweep } from "./state.js";
import { byId } from "./svg.js";

/** Hands a text to the browser as a file. */
function save(name, kind, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "fill-opacity",
  "font-family", "font-size", "font-weight", "visibility"];

/** A drawing with the looks that the page's style gives it, so that it stands alone. */
export function standalone(svg) {
  const copy = svg.cloneNode(true);
  const own = [svg, ...svg.querySelectorAll("*")];
  const copies = [copy, ...copy.querySelectorAll("*")];
  own.forEach((node, index) => {
    const style = getComputedStyle(node);
    for (const name of PAINT) copies[index].setAttribute(name, style.getPropertyValue(name));
    copies[index].removeAttribute("class");
    copies[index].removeAttribute("tabindex");
  });
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  paper.setAttribute("width", "100%");
  paper.setAttribute("height", "100%");
  paper.setAttribute("fill", getComputedStyle(byId("response")).backgroundColor);
  copy.prepend(paper);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** The curves as comma-separated values: every metric of every point. */
export function csv(curves) {
  const lines = [["stack", state.view.axis, ...METRICS.map((m) => m.name), "unstable"].map(cell).join(",")];
  for (const stack of STACKS) {
    for (const point of Array.isArray(curves[stack]) ? curves[stack] : []) {
      if (!point.summary) continue;
      const values = METRICS.map((m) => m.of(point.summary) ?? "");
      lines.push([stack, point.value, ...values, Object.keys(point.summary.overloaded).join(" ")].map((v) => cell(String(v))).join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

/** Buttons and the dialog. `results()` gives what is on the page, `changed()` is told of another scenario. */
export function connect(results, changed) {
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => {
      const svg = byId(`${button.dataset.save}-chart`).querySelector("svg");
      if (svg) save(`${button.dataset.save}.svg`, "image/svg+xml", standalone(svg));
    });
  }
  byId("get-json").addEventListener("click", () => {
    const { version, scenario, summary, warnings } = results().runs[state.scenario.stack.kind] ?? {};
    if (summary) save("result.json", "application/json", `${JSON.stringify({ version, scenario, summary, warnings }, null, 2)}\n`);
  });
  byId("get-csv").addEventListener("click", () => save("curves.csv", "text/csv", csv(results().curves)));
  byId("share").addEventListener("click", async () => {
    const address = location.href.replace(/\?[^#]*/, "");
    try {
      await navigator.clipboard.writeText(address);
      byId("share").textContent = "Copied";
      setTimeout(() => (byId("share").textContent = "Copy link"), 1500);
    } catch {
      prompt("The address of this state", address);
    }
  });
  connectFile(results, changed);
}

function connectFile(results, changed) {
  const [dialog, text, fault] = ["file", "file-text", "file-error"].map(byId);
  byId("open-file").addEventListener("click", () => {
    text.value = results().runs[state.scenario.stack.kind]?.toml ?? "";
    fault.hidden = true;
    dialog.showModal();
  });
  byId("file-save").addEventListener("click", () => save("scenario.toml", "application/toml", text.value));
  byId("file-input").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file && file.size < 60_000) text.value = await file.text();
    event.target.value = "";
  });
  byId("file-apply").addEventListener("click", async () => {
    const response = await fetch("/api/read", { method: "POST", body: text.value });
    const answer = response.headers.get("content-type")?.includes("json") ? await response.json() : { error: await response.text() };
    if (answer.scenario) {
      dialog.close();
      choose("file", answer.scenario);
      viewOfSweep();
      changed();
      return;
    }
    fault.textContent = answer.error;
    fault.hidden = false;
    if (answer.line) selectLine(text, answer.line);
  });
}

/** Puts the cursor on a line and brings it into sight. */
function selectLine(area, line) {
  const lines = area.value.split("\n");
  const before = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(before, before + (lines[line - 1] ?? "").length);
  area.scrollTop = (line - 4) * (area.scrollHeight / Math.max(1, lines.length));
}
