// Explore every order of events, and draw the shortest way to a violation.

import { follow } from "./api.js";
import { copy, download, fill, grouped, h, plural } from "./dom.js";
import { address, field, optionFields, orderField, protocolSelect, read, withOrder } from "./form.js";
import { playAddress } from "./play.js";
import { Player } from "./player.js";
import { Trace } from "./trace.js";

const OWN = ["protocol", "nodes", "entries", "first", "last", "cancels", "readers", "tries", "upgrades", "reentry", "drop-idle", "initial-holders", "faults", "order", "property"];
const DEFAULTS = { nodes: 3, entries: 2, cancels: 0, "initial-holders": "nobody" };
const EXAMPLES = [
  ["Two nodes, one request each", { protocol: "ricart-agrawala", nodes: 2, entries: 1 }],
  ["Three nodes, two requests each", { protocol: "ricart-agrawala", nodes: 3, entries: 2 }],
  ["Modulo 2N-2: one too few", { protocol: "ricart-agrawala", nodes: 2, entries: "endless", numbers: "modulo:2", fence: "off" }],
  ["A lost REQUEST, as printed (T5)", { protocol: "ricart-agrawala", nodes: 2, entries: 1, faults: "loss:1", membership: "classic", "as-printed": "T5" }],
  ["Maekawa without FAILED to the overtaken", { protocol: "maekawa", nodes: 3, entries: 1, failed: "arrival" }],
  ["A directory that keeps no zombies", { protocol: "directory", nodes: 3, entries: 1, cancels: "any", order: "fifo", "leave-out": "6" }],
  ["Raymond with a crash", { protocol: "raymond", nodes: 3, entries: 1, tree: "line", recovery: "classic", faults: "crash:1,restart:1" }],
];

export async function open({ container, params: { at, event, ...params }, about, signal, setAddress, go }) {
  const result = h("div", { class: "result" });
  const begun = Object.keys(params).length > 0;
  params.protocol ??= "ricart-agrawala";
  withOrder(params, about);
  const form = buildForm(params, about, (wanted) => go("check", wanted));
  fill(container,
    h("h1", {}, "Explore every order of events"),
    h("p", {}, "Not one run but all of them: every order in which messages can arrive, callers can ask and give up, nodes can fail. Breadth first, so that the first violation is a shortest one. What is found holds for these bounds."),
    form,
    h("p", { class: "tools examples" }, EXAMPLES.map(([title, example]) => h("button", { onclick: () => go("check", example) }, title))),
    result);
  const stopped = new AbortController();
  let player;
  const done = begun ? explore() : Promise.resolve();

  async function explore() {
    const states = h("b", {}, "0"), depth = h("b", {}, "0"), bar = h("progress", { "aria-label": "Exploring" });
    const stop = h("button", { "data-do": "stop", onclick: () => { stopped.abort(); fill(result, h("p", { class: "notice" }, "Stopped.")); } }, "Stop");
    fill(result, h("div", { class: "card progress", role: "status" }, bar, h("p", {}, states, " states, depth ", depth, " "), stop));
    try {
      const found = await follow("check", params, (progress) => {
        states.textContent = grouped(progress.states);
        depth.textContent = grouped(progress.depth);
      }, AbortSignal.any([signal, stopped.signal]));
      player = show(result, found, params, setAddress);
      if (player) player.place = { at, event };
    } catch (error) {
      if (error.name !== "AbortError") fill(result, h("p", { class: "notice alarm", role: "alert" }, error.message));
    }
  }

  return { done, destroy: () => player?.destroy(), onKey: (event) => player?.onKey(event), get player() { return player; } };
}

function show(result, found, params, setAddress) {
  const { report, violation } = found;
  const verdict = violation
    ? h("p", { class: "notice alarm", role: "alert" }, `Violation of ${violation}`)
    : report.complete
      ? h("p", { class: "notice good" }, `Complete: no violation in any of ${plural(report.states, "state")}. The last node was overtaken at most ${plural(found.overtaken, "time")}.`)
      : h("p", { class: "notice" }, `Not complete: no violation in the first ${plural(report.states, "state")}. The command line goes further.`);
  const here = () => ({ ...params, ...player?.place, at: player?.cursor });
  const player = found.found ? new Player({ onCursor: () => setAddress("check", here()), label: "Space-time diagram of the shortest way to the violation" }) : undefined;
  const link = h("button", { onclick: () => copy(address("check", here()), link) }, "Copy link");
  const fact = (label, value) => h("div", {}, h("dt", {}, label), h("dd", {}, value));
  fill(result, verdict,
    h("dl", { class: "facts" }, fact("States", grouped(report.states)), fact("Generated", grouped(report.generated)), fact("Depth", grouped(report.depth)), fact("Took", `${report.seconds.toFixed(2)} s`)),
    h("p", { class: "tools" }, link,
      found.found && h("a", { class: "button", href: playAddress(found.found.text) }, "Play it"),
      found.found && h("button", { onclick: () => download("counterexample.txt", found.found.text) }, "Scenario file")));
  if (!player) return undefined;
  result.append(h("h2", {}, `The shortest way there: ${plural(found.found.steps.length, "step")}`), player.element);
  const trace = new Trace(found.found);
  player.setTrace(trace, trace.length - 1);
  return player;
}

function buildForm(params, about, onRun) {
  const options = optionFields(about, params, OWN), select = protocolSelect(about, params.protocol);
  const text = (name, size) => h("input", { name, value: params[name] ?? DEFAULTS[name] ?? "", size: String(size), autocomplete: "off" });
  const box = (name) => h("input", { type: "checkbox", name, value: "true", checked: params[name] === "true" });
  const form = h("form", { class: "choose", onsubmit: (event) => { event.preventDefault(); onRun(read(form, { ...DEFAULTS, about })); } },
    h("div", { class: "fields" },
      field("Protocol", select),
      field("Nodes", h("input", { type: "number", name: "nodes", min: "1", max: String(about.limits.check_nodes), value: params.nodes ?? DEFAULTS.nodes })),
      field("Requests a node", text("entries", 7), "or endless"),
      h("button", { class: "primary", type: "submit" }, "Explore")),
    h("details", { open: Object.keys(params).some((key) => !["protocol", "nodes", "entries"].includes(key)) }, h("summary", {}, "What may happen, and options"),
      h("div", { class: "fields" },
        orderField(params),
        field("Cancellations", text("cancels", 4), "or any"),
        field("Faults", h("input", { name: "faults", value: params.faults ?? "", placeholder: "loss:1,crash:1", size: "14" })),
        field("Inside at the start", text("initial-holders", 9)),
        field("Only this property", h("input", { name: "property", value: params.property ?? "", placeholder: "exclusion", size: "9" })),
        h("label", { class: "field check" }, box("readers"), h("span", {}, "readers")),
        h("label", { class: "field check" }, box("tries"), h("span", {}, "attempts")),
        h("label", { class: "field check" }, box("upgrades"), h("span", {}, "upgrades")),
        h("label", { class: "field check" }, box("reentry"), h("span", {}, "a next caller follows")),
        h("label", { class: "field check" }, box("drop-idle"), h("span", {}, "idle locks are forgotten"))),
      options.box));
  options.follow(form, select);
  return form;
}
