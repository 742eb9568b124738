// Choose, run, look.

import { encode, get, isStatic, statesOf } from "./api.js";
import { copy, fill, grouped, h, plural, short } from "./dom.js";
import { address, field, optionFields, protocolSelect, read, settingDefaults, settingField, settingKeys, withOrder } from "./form.js";
import { NODES_MAX, STEPS_MAX } from "./play.js";
import { Player } from "./player.js";
import { Trace } from "./trace.js";

/** The settings that are seldom changed. */
const SELDOM = ["latency", "hold", "order", "readers", "faults"];

export async function open({ container, params, about, signal, setAddress, go }) {
  const { at, event, ...run } = params;
  run.protocol ??= "ricart-agrawala";
  withOrder(run, about);
  const form = buildForm(run, about, (wanted) => go("run", wanted));
  const result = h("div", { class: "result" }, h("p", { class: "wait" }, "Running"));
  fill(container, h("h1", { class: "unseen" }, "Run a protocol"), form, result);
  let player;
  try {
    const document = await get("run", run, signal);
    player = showRun(result, document, run, about, (place) => setAddress("run", { ...run, ...place }), go);
    player.place = { at, event };
  } catch (error) {
    if (!signal.aborted) fill(result, h("p", { class: "notice alarm", role: "alert" }, error.message));
  }
  return { destroy: () => player?.destroy(), onKey: (event) => player?.onKey(event), player };
}

/** The words of a game with the same group: its nodes, and the protocol with its options. */
function gameOf(params, about) {
  const { protocol, nodes = 3, names, order } = params;
  const options = Object.fromEntries(Object.entries(params).filter(([key]) => !["protocol", "names", ...settingKeys(about)].includes(key)));
  return { protocol, nodes: names ? names.replaceAll(",", " ") : Math.min(NODES_MAX, nodes), order, ...options };
}

/** What leads to each event in a game; undefined for what follows without a command. */
const COMMANDS = {
  request: ({ node, mode }) => `ask ${node}${mode === "shared" ? " shared" : ""}`,
  deliver: ({ node, from, message }) => `deliver ${message} ${from} -> ${node}`,
  exit: ({ node }) => `exit ${node}`,
  "give-back": ({ node }) => `give-back ${node}`,
  send: () => undefined,
  enter: () => undefined,
};

/** The steps of a game that lead to an event of a run; none if it has faults or timers on the way, or more than a game can have. */
function stepsTo(trace, at) {
  const events = trace.events.slice(0, at + 1);
  if (!events.every(({ event }) => Object.hasOwn(COMMANDS, event))) return [];
  const steps = events.map((event) => COMMANDS[event.event](event)).filter(Boolean);
  return steps.length <= STEPS_MAX ? steps : [];
}

function buildForm(params, about, onRun) {
  const own = ["protocol", ...settingKeys(about)], options = optionFields(about, params, own);
  const setting = (key, given) => settingField(about, params, key, given);
  const select = protocolSelect(about, params.protocol);
  const dice = h("button", { type: "button", title: "Another seed", "aria-label": "Another seed", onclick: () => { form.elements.seed.value = 1 + Math.floor(Math.random() * 9999); form.requestSubmit(); } }, "⚄");
  const form = h("form", { class: "choose", onsubmit: (event) => { event.preventDefault(); onRun(read(form, { ...settingDefaults(about), about })); } },
    h("div", { class: "fields" },
      field("Protocol", select),
      setting("nodes"), setting("entries"), setting("seed", { button: dice }), setting("load"),
      h("button", { class: "primary", type: "submit" }, "Run")),
    h("details", { open: Object.keys(params).some((key) => SELDOM.includes(key) || !own.includes(key)) },
      h("summary", {}, "Network, faults and options"),
      h("div", { class: "fields" }, SELDOM.map((key) => setting(key))),
      options.box));
  options.follow(form, select);
  return form;
}

function showRun(result, document, params, about, onPlace, go) {
  const { report, command } = document, trace = new Trace(document), defaults = settingDefaults(about);
  const player = new Player({ onCursor: () => onPlace(player.place), statesAt: statesOf(params), label: `Space-time diagram of ${command}` });
  const kinds = Object.entries(report.messages_by_kind).map(([kind, count]) => `${kind} ${grouped(count)}`).join(", ");
  const fact = (label, value, title) => h("div", { title }, h("dt", {}, label), h("dd", {}, value));
  const violation = report.violations[0];
  const link = h("button", { onclick: () => copy(address("run", { ...params, ...player.place }), link) }, "Copy link");
  const shell = h("button", { onclick: () => copy(command.replace("lab run", "lab trace"), shell) }, "Copy command");
  fill(result,
    violation && h("p", { class: "notice alarm", role: "alert" }, `${plural(report.violations.length, "violation")}: ${violation} `, h("button", { onclick: () => player.go(trace.firstViolation()) }, "Show it (V)")),
    player.element,
    h("dl", { class: "facts" },
      fact("Messages", grouped(report.messages), kinds),
      // Without an entry there is nothing to divide by.
      fact("per entry", report.entries ? short(report.messages_per_entry) : "-"),
      fact("Entries", grouped(report.entries)),
      fact("Response", report.entries ? `${short(report.response_time.mean)} T` : "-", `from a request to its entry; 99%: ${short(report.response_time.p99)} T`),
      fact("Handover", report.entries ? `${short(report.sync_delay.mean)} T` : "-", "from a release to the next entry, if somebody waits"),
      fact("Overtaken", `at most ${report.max_overtakes}`, "entries by others between a request and its own entry")),
    h("p", { class: "kinds" }, kinds),
    h("p", { class: "tools" }, link, shell,
      !isStatic && ["svg", "txt", "json"].map((format) => h("a", { class: "button", href: `api/trace.${format}?${encode(params)}`, target: "_blank", rel: "noopener" }, format.toUpperCase())),
      h("button", { "data-do": "play-on", title: "You are the network and the callers from here on; after faults, from the beginning", onclick: () => playOn() }, "Play on from here"),
      h("button", { onclick: () => go("compare", { ...params, nodes: params.nodes ?? defaults.nodes, entries: params.entries ?? defaults.entries }) }, "Compare with another")));
  player.setTrace(trace);
  return player;

  function playOn() {
    const game = gameOf(params, about);
    const steps = trace.nodes.length <= NODES_MAX ? stepsTo(trace, player.cursor) : [];
    go("play", steps.length ? { ...game, do: steps.join(";") } : game);
  }
}
