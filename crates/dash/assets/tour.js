// The guided tour: what the paper found, one step at a time. A step sets the whole page.

import { METRICS } from "./keys.js";
import { choose, setAt, state, viewOfSweep } from "./state.js";
import { byId, h } from "./svg.js";

const OVER_MEMORY = { axis: "nic.memory_kib", values: "4,8,16,32,64" };

export const STEPS = [
  {
    title: "One request, three places for the stack",
    text: "A server answers a request. Its protocol stack can live in the kernel, in a library of the server, or on a processor of the NIC. Look at the bars: what the NIC does, the host need not. Equation (4) of the paper sums this up as about two thirds less host time.",
    base: "fig7", metric: "host", look: "processor",
  },
  {
    title: "Response time as clients come",
    text: "Each client asks every 10 ms. One endless computation competes for the host's processor in slices of 200 ms, so a server that is woken waits for its turn: that is why even one client waits 100 ms. The NIC-resident stack needs its turn least.",
    base: "fig8", set: { "stack.kind": "nic", "workload.clients": 3 }, metric: "survivors", look: "response",
  },
  {
    title: "The kernel answers in batches",
    text: "Packets wait for the bottom half, which runs when the scheduler is entered; then the server waits for its slice. So the kernel's answers wait twice. In the timeline answers come in groups, and the backlog is a saw-tooth.",
    base: "fig8", set: { "stack.kind": "kernel", "workload.clients": 7 }, metric: "survivors", look: "timeline",
  },
  {
    title: "The library that only receives",
    text: "A user-level library receives everything before it serves anything. From seven clients on its half of the processor is spent on receiving: requests pile up in the sockets and nobody is answered. That is receive livelock. The closed form below puts it at 6.6 clients.",
    base: "fig8", set: { "stack.kind": "user", "workload.clients": 7 }, metric: "late", look: "queues",
  },
  {
    title: "How much of that was the scheduler?",
    text: "Take the endless computation away. All three stacks answer within milliseconds: most of the paper's gain in response time was waiting for a slice. The saving of processor time stays.",
    base: "fig8", set: { "stack.kind": "nic", "host.background": 0, "workload.clients": 3 }, metric: "mean", look: "response",
  },
  {
    title: "An interrupt per packet, or per segment",
    text: "Let a request come in more packets. A host stack is interrupted for each of them. The NIC puts the segment together first and interrupts once: the more packets a segment has, the more it saves.",
    base: "fig7", set: { "stack.kind": "nic", "workload.request_packets": 4 }, metric: "interrupts", axis: "workload.request_packets", values: "1..8", look: "response",
  },
  {
    title: "Host and NIC: every segment interrupts",
    text: "The first of three ways to hand segments over. Pushed: each completed segment interrupts the host at once, whether or not the server reads. Nothing stays on the NIC, so its memory may be small, but each request costs an interrupt.",
    base: "fig8", set: { "stack.kind": "nic", "workload.clients": 9, "nic.memory_kib": 16 }, metric: "interrupts", ...OVER_MEMORY, look: "response",
  },
  {
    title: "Host and NIC: only a waiting read is told",
    text: "Synchronous: the server's read waits on the NIC, and only that interrupts; other segments stay in the NIC's memory until they are fetched. There is hardly an interrupt left. But the server is away for a slice at a time: with less than 48 KiB of memory, requests are dropped.",
    base: "fig8", set: { "stack.kind": "nic", "workload.clients": 9, "nic.memory_kib": 16, "nic.mode": "sync" }, metric: "dropped", ...OVER_MEMORY, look: "queues",
  },
  {
    title: "Host and NIC: urgent",
    text: "As synchronous, until the NIC's memory is three quarters full: then stored segments are pushed to host memory until it is half full. With the same 16 KiB a third of the interrupts is saved and nothing is lost; the more memory, the fewer interrupts.",
    base: "fig8", set: { "stack.kind": "nic", "workload.clients": 9, "nic.memory_kib": 16, "nic.mode": "urgent" }, metric: "interrupts", ...OVER_MEMORY, look: "queues",
  },
  {
    title: "What a faster NIC buys",
    text: "Sixty requests arrive at 900 a second. From some 200 MHz on a faster NIC buys little, whatever the host's clock: the work of all sixty hides in one slice of 200 ms. The closed form puts that at 176 MHz.",
    base: "fig10", set: {}, metric: "mean", look: "response",
  },
  {
    title: "Where that advice ends",
    text: "Now let 900 requests a second go on. The NIC is asked for 1.3 ms of work at 450 MHz each time: it needs 527 MHz, and at 200 it falls behind for as long as load lasts. A slow processor on a NIC is a fine thing for bursts only.",
    base: "sustained", set: { "nic.clock_mhz": 200 }, metric: "mean", look: "response",
  },
  {
    title: "Errors on the line",
    text: "Equation (5): what is lost is processed again. A NIC repeats it alone, so the saving grows with the error rate. The paper counts processing only; set a retransmission time-out under Network and loss, and waiting for it outweighs everything.",
    base: "fig7", set: { "stack.kind": "nic", "workload.requests_total": 600, "loss.bit_error_rate": 1e-5 }, metric: "host", axis: "loss.bit_error_rate", values: "0,1e-7,1e-6,1e-5", look: "response",
  },
];

/** Puts a step's scenario and view on the page. */
export function enter(index) {
  const step = STEPS[index];
  choose(step.base);
  state.view.metric = METRICS.find((m) => m.id === step.metric).id;
  Object.assign(state.view, { axis: "workload.clients", values: "1..9", step: index + 1 });
  viewOfSweep();
  if (step.axis) Object.assign(state.view, { axis: step.axis, values: step.values });
  for (const [key, value] of Object.entries(step.set ?? {})) setAt(state.scenario, key, value);
}

/** Shows where the tour is; `go(index)` moves it, and -1 leaves it. */
export function showTour(go) {
  const index = state.view.step - 1;
  const box = byId("tour");
  const button = (text, to, attributes = {}) => h("button", { type: "button", onclick: () => go(to), ...attributes }, text);
  if (index < 0 || !STEPS[index]) {
    box.classList.add("idle");
    box.replaceChildren(
      h("p", {}, h("strong", {}, "New here? "), `A tour of ${STEPS.length} steps shows what the nic-net paper found, and where it holds.`),
      button("Start the tour", 0, { class: "primary", id: "tour-start" }));
    return;
  }
  box.classList.remove("idle");
  const step = STEPS[index];
  const look = h("button", { type: "button", onclick: () => byId(step.look).scrollIntoView({ behavior: "smooth", block: "start" }) },
    { processor: "See the bars", response: "See the curve", timeline: "See the timeline", queues: "See the queues" }[step.look]);
  const dots = STEPS.map((other, at) =>
    h("button", { type: "button", class: "dot", "aria-label": `Step ${at + 1}: ${other.title}`, "aria-current": at === index ? "step" : null, title: other.title, onclick: () => go(at) }));
  box.replaceChildren(
    h("p", { class: "where" }, `Step ${index + 1} of ${STEPS.length}`),
    h("h2", {}, step.title), h("p", {}, step.text),
    h("div", { class: "row" },
      button("Back", index - 1, { disabled: index === 0 }), button("Next", index + 1, { class: "primary", disabled: index === STEPS.length - 1, id: "tour-next" }),
      look, h("span", { class: "dots" }, ...dots), h("span", { class: "grow" }), button("Leave the tour", -1)));
}
