// Two protocols on one load; all of them over group sizes; and which one fits a group.

import { encode, follow, get, statesOf } from "./api.js";
import { copy, css, fill, h, plural, short } from "./dom.js";
import { lineChart } from "./chart.js";
import { address, field, orderOf, protocolSelect, read, settingDefaults, settingField, settingKeys } from "./form.js";
import { Player, linkByTime } from "./player.js";
import { Trace } from "./trace.js";

const TABS = [["compare", "Two side by side"], ["sweep", "Over group sizes"], ["calculate", "Which one for my group?"]];

export async function open(context) {
  const { container, name } = context;
  const body = h("div");
  fill(container,
    h("h1", {}, `Compare: ${TABS.find(([part]) => part === name)[1]}`),
    h("nav", { class: "tabs", "aria-label": "Comparisons" }, TABS.map(([part, title]) => h("a", { href: `#${part}`, "aria-current": part === name ? "page" : undefined }, title))),
    body);
  return { compare: sides, sweep, calculate }[name]({ ...context, body });
}

/** A button that copies the address of what is shown. */
function copyLink(part, where) {
  const button = h("button", { "data-do": "copy-link", onclick: () => copy(address(part, where()), button) }, "Copy link");
  return button;
}

// ---- two side by side ----

/** Where two runs beside each other differ from one. */
const NODES = 5, NODES_MAX = 200, ENTRIES = 12, ENTRIES_MAX = 2000;
const wordsOf = (options) => Object.entries(options).map(([key, value]) => `${key}=${value}`).join(" ");
const optionsOf = (words) => Object.fromEntries(words.split(/\s+/).filter(Boolean).map((word) => { const [key, value] = word.split(/=(.*)/s); return [key, value ?? ""]; }));

async function sides({ body, params, about, signal, setAddress, go }) {
  const { protocol = "ricart-agrawala", with: other = params.protocol === "raymond" ? "ricart-agrawala" : "raymond", "with-options": otherOptions = "", at, side, ...rest } = params;
  const both = [protocol, other], usual = both.some((name) => orderOf(about, { protocol: name }) === "fifo") ? "fifo" : "any";
  // Both get the settings. The rest are options of the first protocol; those of the second are the words of `with-options`.
  const keys = settingKeys(about), defaults = { ...settingDefaults(about), nodes: NODES, entries: ENTRIES };
  const own = Object.fromEntries(Object.entries(rest).filter(([key]) => !keys.includes(key)));
  const setting = (key, given) => settingField(about, rest, key, { default: defaults[key] ?? "", ...given });
  const form = h("form", { class: "choose", onsubmit: (event) => { event.preventDefault(); go("compare", read(form, { ...defaults, with: "", order: usual })); } },
    h("div", { class: "fields" },
      field("Protocol", protocolSelect(about, protocol)), field("beside", protocolSelect(about, other, "with")),
      setting("nodes", { max: NODES_MAX }), setting("entries", { max: ENTRIES_MAX }), setting("seed"), setting("load"), setting("latency"), setting("readers"),
      h("button", { class: "primary" }, "Compare")),
    h("details", { open: ["hold", "order", "faults"].some((key) => key in rest) || Object.keys(own).length > 0 || otherOptions !== "" },
      h("summary", {}, "Network, faults and options"),
      h("div", { class: "fields" },
        setting("hold"),
        settingField(about, { order: rest.order ?? usual }, "order"),
        setting("faults", { hint: "the same for both" }),
        field("Options of the first", h("input", { name: "other", value: wordsOf(own), size: "20", spellcheck: "false", autocomplete: "off" }), "key=value, separated by spaces"),
        field("Options of the second", h("input", { name: "with-options", value: otherOptions, size: "20", spellcheck: "false", autocomplete: "off" })))));
  const result = h("div", {}, h("p", { class: "wait" }, "Running both"));
  fill(body, form, result);
  const shared = { ...defaults, ...Object.fromEntries(Object.entries(rest).filter(([key]) => keys.includes(key))) };
  if (usual !== "any") shared.order ??= usual;
  const run = async (name, options) => {
    const wanted = { protocol: name, ...shared, ...options };
    try {
      return { name, params: wanted, document: await get("run", wanted, signal) };
    } catch (error) {
      throw new Error(`${about.protocols.find((one) => one.name === name)?.title ?? name}: ${error.message}`);
    }
  };
  let players = [], place = {};
  const where = () => ({ ...params, protocol, with: other, at: undefined, side: undefined, ...place });
  try {
    const runs = await Promise.all([run(protocol, own), run(other, optionsOf(otherOptions))]);
    players = showSides(result, runs, about, copyLink("compare", where));
    linkByTime(players, (now) => { place = now; setAddress("compare", where()); });
    if (at !== undefined) players[side === "2" ? 1 : 0].place = { at };
  } catch (error) {
    if (!signal.aborted) fill(result, h("p", { class: "notice alarm", role: "alert" }, error.message));
  }
  return { players, destroy: () => players.forEach((player) => player.destroy()), onKey: (event) => players[0]?.onKey(event) };
}

/** Both play at the same virtual time. */
function showSides(result, runs, about, link) {
  const rows = [["Messages per entry", "messages_per_entry"], ["Messages", "messages"], ["Response, T", "response_time.mean"], ["Response 99%, T", "response_time.p99"], ["Handover, T", "sync_delay.mean"], ["Most overtaken", "max_overtakes"]];
  // Without an entry there is nothing to measure but the messages.
  const value = (report, path) => (report.entries || path === "messages" ? path.split(".").reduce((part, key) => part[key], report) : null);
  const titles = runs.map(({ name }) => about.protocols.find((one) => one.name === name).title);
  const players = runs.map(({ name, params }, side) => new Player({ compact: true, statesAt: statesOf(params), name: titles[side], label: `Space-time diagram of ${name}` }));
  const traces = runs.map(({ document }) => new Trace(document));
  fill(result,
    h("div", { class: "sides" }, runs.map((run, side) => h("section", { class: "side" }, h("h2", {}, titles[side]), players[side].element))),
    h("p", { class: "tools" }, link),
    h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, h("th", {}, h("span", { class: "unseen" }, "Measure")), titles.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.map(([label, path]) => {
        const both = runs.map(({ document }) => value(document.report, path));
        return h("tr", {}, h("th", { scope: "row" }, label), both.map((number, side) => h("td", { class: number !== null && both[1 - side] !== null && number < both[1 - side] ? "better" : "" }, short(number))));
      }))));
  players.forEach((player, side) => player.setTrace(traces[side]));
  return players;
}

// ---- over group sizes ----

const MEASURES = [["messages", "Messages per entry"], ["sync_delay", "Handover, in T"], ["response_time", "Response time, in T"], ["fairness", "Evenness (fewest / most entries)"], ["overtakes", "Most overtaken, in turns of all"]];

async function sweep({ body, params: { measure, hide, ...params }, about, signal, setAddress, go }) {
  const form = h("form", { class: "choose", onsubmit: (event) => { event.preventDefault(); go("sweep", read(form)); } },
    h("div", { class: "fields" },
      field("Protocols", h("input", { name: "protocols", value: params.protocols ?? "all", size: "24" }), "all, or names with commas"),
      field("Group sizes", h("input", { name: "nodes", value: params.nodes ?? "2..50", size: "8" }), "2..100 or 2,10,50"),
      field("Loads", h("input", { name: "loads", value: params.loads ?? "light,saturated", size: "16" })),
      h("button", { class: "primary" }, "Measure")));
  const result = h("div");
  fill(body, h("p", {}, "Every protocol over group sizes and loads, measured now. Point at a chart for its numbers; click a name to hide it. Lines on top of each other are striped."), form, result);
  const begun = Object.keys(params).length > 0;
  const done = begun ? work() : Promise.resolve();
  async function work() {
    const bar = h("progress", { max: "1", value: "0", "aria-label": "Measuring" }), text = h("span");
    fill(result, h("div", { class: "card progress", role: "status" }, bar, text));
    try {
      const { cells } = await follow("sweep", { protocols: "all", nodes: "2..50", loads: "light,saturated", ...params }, ({ done, of, next }) => {
        bar.max = of;
        bar.value = done;
        text.textContent = ` ${done} of ${of}: ${next}`;
      }, signal);
      charts(result, cells, { about, measure, hidden: new Set(hide?.split(",")) }, (shown) => ({ ...params, ...shown }), setAddress);
    } catch (error) {
      if (error.name !== "AbortError") fill(result, h("p", { class: "notice alarm", role: "alert" }, error.message));
    }
  }
  return { done };
}

/** One chart for each load. What is measured and which lines are hidden is the same in all of them. */
function charts(result, cells, { about, measure, hidden }, where, setAddress) {
  const loads = [...new Set(cells.map((cell) => cell.load))], names = [...new Set(cells.map((cell) => cell.protocol))];
  // A protocol has one colour, whichever others are drawn.
  const colour = (name) => css(`--s${Math.max(0, about.protocols.findIndex((one) => one.name === name))}`);
  const box = h("div", { class: "charts" });
  const select = h("select", { "aria-label": "What is drawn", onchange: draw }, MEASURES.map(([key, title]) => h("option", { value: key, selected: key === measure }, title)));
  const here = () => where({ measure: select.value === MEASURES[0][0] ? undefined : select.value, hide: [...hidden].join(",") });
  const toggle = (name) => { hidden.delete(name) || hidden.add(name); draw(); };
  function draw() {
    const [key, title] = MEASURES.find(([key]) => key === select.value);
    fill(box, loads.map((load) => lineChart({
      title: `${title}, load ${load}`, xLabel: "nodes", yLabel: title, hidden, onToggle: toggle,
      series: names.map((name) => ({ name, colour: colour(name), points: cells.filter((cell) => cell.load === load && cell.protocol === name && cell[key] !== null).map((cell) => [cell.nodes, cell[key]]) })),
    })));
    setAddress("sweep", here());
  }
  fill(result, h("p", { class: "tools" }, field("Measure", select), copyLink("sweep", here)), box);
  draw();
}

// ---- which one for my group ----

async function calculate({ body, params, about, signal, go }) {
  const defaults = { nodes: 5, reads: 0, rate: 50, latency: 1, hold: 1 };
  const given = { ...defaults, ...params };
  const number = (name, min, max, step) => h("input", { type: "number", name, min: String(min), max: String(max), step: String(step), value: String(given[name]) });
  const form = h("form", { class: "choose", onsubmit: (event) => { event.preventDefault(); go("calculate", Object.fromEntries(new FormData(form))); } },
    h("div", { class: "fields" },
      field("My group has", number("nodes", 1, 200, 1), "members"), field("of its requests", number("reads", 0, 100, 5), "% are reads"),
      field("which are", number("rate", 0.1, 100000, "any"), "a second, in all"), field("A message takes", number("latency", 0.05, 1000, "any"), "ms"),
      field("A holder stays", number("hold", 0, 10000, "any"), "ms inside"),
      h("button", { class: "primary" }, "Which one?")));
  const result = h("div");
  fill(body, h("p", {}, "Answered by simulating every protocol with your numbers, now."), form, result);
  const done = Object.keys(params).length ? answer() : Promise.resolve();
  async function answer() {
    const bar = h("progress", { max: "12", value: "0", "aria-label": "Simulating" });
    fill(result, h("div", { class: "card progress", role: "status" }, bar));
    try {
      // A link can say what the form does not let through.
      const wrong = [...form.elements].find((one) => one.name && (!one.checkValidity() || one.value === ""));
      if (wrong) throw new Error(`${wrong.name} '${params[wrong.name]}' is not a number from ${wrong.min} to ${wrong.max}`);
      const latency = Number(given.latency), load = (Number(given.rate) * latency) / 1000;
      const micro = (ms) => `${Math.max(1, Math.round(ms * 1000))}us`;
      const asked = { nodes: given.nodes, load: String(Math.max(1e-6, load)), readers: Number(given.reads) / 100, latency: micro(latency), hold: micro(Number(given.hold)) };
      const found = await follow("calculate", asked, ({ done }) => (bar.value = done), signal);
      showAnswer(result, found, latency, about, Number(given.rate), asked);
      result.append(h("p", { class: "tools" }, copyLink("calculate", () => given)));
    } catch (error) {
      if (error.name !== "AbortError") fill(result, h("p", { class: "notice alarm", role: "alert" }, error.message));
    }
  }
  return { done };
}

function showAnswer(result, found, latency, about, rate, asked) {
  const title = (name) => about.protocols.find((one) => one.name === name).title;
  const rows = found.rows.filter((row) => !row.refused), fit = rows.filter((row) => row.keeps_up);
  const least = (key) => fit.reduce((best, row) => (best === undefined || row[key] < best[key] ? row : best), undefined);
  const [few, fast] = [least("messages"), least("wait")];
  const isBest = (row) => fit.includes(row) && !fit.some((other) => other !== row && other.messages <= row.messages && other.wait <= row.wait && (other.messages < row.messages || other.wait < row.wait));
  rows.sort((a, b) => b.keeps_up - a.keeps_up || a.wait - b.wait);
  const ms = (T) => `${short(T * latency)} ms`;
  fill(result,
    h("p", { class: `notice ${fit.length ? "good" : "alarm"}`, role: "status" }, !fit.length ? "None keeps up with so many requests: the lock itself is the bottleneck. Make sections shorter, or use several locks."
      : few === fast ? [h("b", {}, title(few.protocol)), ` has both the fewest messages, ${short(few.messages)} an entry, and the shortest wait, ${ms(few.wait)} on average.`]
        : [h("b", {}, title(fast.protocol)), ` waits least: ${ms(fast.wait)} on average, ${short(fast.messages)} messages an entry. `, h("b", {}, title(few.protocol)), ` sends least: ${short(few.messages)} messages, ${ms(few.wait)}.`]),
    h("div", { class: "table-box", tabindex: "0" }, h("table", { class: "numbers" },
      h("caption", {}, `${plural(rows[0]?.entries ?? 0, "entry", "entries")} simulated with each. Bold: no other has both fewer messages and a shorter wait.`),
      h("thead", {}, h("tr", {}, ["Protocol", "Messages an entry", "Messages a second", "Wait, mean", "Wait, 99%", "Handover", "Keeps up"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map((row) => h("tr", { class: `${isBest(row) ? "best" : ""} ${row.keeps_up ? "" : "later"}` },
        h("th", { scope: "row" }, h("a", { href: `#run?${encode({ protocol: row.protocol, ...asked, nodes: Math.min(found.nodes, 30), readers: asked.readers || undefined })}` }, title(row.protocol))),
        h("td", {}, short(row.messages)), h("td", {}, short(row.messages * Math.min(rate, (row.served / latency) * 1000))), h("td", {}, ms(row.wait)), h("td", {}, ms(row.p99)), h("td", {}, row.sync === null ? "-" : ms(row.sync)), h("td", {}, row.keeps_up ? "yes" : "no")))))),
    found.rows.filter((row) => row.refused).map((row) => h("p", { class: "quiet" }, `${title(row.protocol)}: ${row.refused}`)),
    h("p", { class: "quiet" }, "A real group takes the protocol of a lock's class: hallpass class set PREFIX PROTOCOL."));
}
