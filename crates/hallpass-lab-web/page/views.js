// Whole nodes with views: epochs, sessions, the steward, and who may enter, over time.

import { get } from "./api.js";
import { copy, fill, h, plural, s } from "./dom.js";
import { address, field } from "./form.js";

const LANE = 64, LEFT = 74, TOP = 34, RIGHT = 14;
/** The height of one lock's line above a node's bar. */
const LOCK = 8;

export async function open({ container, name, params, about, signal, setAddress, go }) {
  const isSwarm = name === "swarm";
  const { at, ...query } = params;
  const result = h("div", {}, h("p", { class: "wait" }, "Simulating whole nodes"));
  const defaults = { nodes: 5, ttl: "2s", hold: "400ms", seed: 1 };
  const input = (key, size) => h("input", { name: key, value: query[key] ?? defaults[key] ?? "", size: String(size), autocomplete: "off" });
  const form = h("form", { class: "choose", onsubmit: (event) => {
    event.preventDefault();
    go("views", Object.fromEntries([...new FormData(form)].filter(([key, value]) => value && value !== String(defaults[key]))));
  } }, h("div", { class: "fields" },
    field("Nodes", input("nodes", 3)), field("Session", input("ttl", 5)), field("Hold", input("hold", 6)), field("Seed", input("seed", 5)),
    field("Faults", h("input", { name: "faults", value: query.faults ?? "", size: "34", placeholder: "partition:4+5@6s..14s, pause:1@.., crash:2@.." })),
    h("button", { class: "primary" }, "Run")));
  fill(container,
    h("h1", {}, isSwarm ? `A run of the swarm: seed ${query.seed ?? defaults.seed}` : "Views: a group of whole nodes"),
    h("p", {}, "The same code that talks TCP, with disks and clocks of its own. A node may grant locks while its session lasts, by its own clock; a new view begins only when the sessions of all who are not in it are over."),
    !isSwarm && form,
    !isSwarm && h("p", { class: "tools examples" }, about.stories.map(({ title, nodes, faults }) => h("button", { onclick: () => go("views", { nodes, faults }) }, title))),
    result);
  let chart;
  try {
    const story = await get("views", isSwarm ? { swarm: "1", ...query } : query, signal);
    chart = show(result, story, query, isSwarm ? "swarm" : "views", setAddress, at);
  } catch (error) {
    if (!signal.aborted) fill(result, h("p", { class: "notice alarm", role: "alert" }, error.message));
  }
  return { onKey: (event) => chart?.onKey(event), chart };
}

function show(result, story, query, part, setAddress, at) {
  const verdict = story.violation ? h("p", { class: "notice alarm", role: "alert" }, `Violation of ${story.violation}`) : h("p", { class: "notice good" }, `No violation: ${plural(story.grants, "entry", "entries")}, the last epoch ${story.epoch}, ${plural(story.lapses, "session")} ran out.`);
  if (story.panicked) {
    fill(result, verdict);
    return undefined;
  }
  const log = story.log?.length ? h("details", {}, h("summary", {}, `The last ${plural(story.log.length, "event")}`), h("pre", { class: "log-text", tabindex: "0" }, story.log.join("\n"))) : null;
  const chart = timeline(story, result.clientWidth, (moment) => setAddress(part, { ...query, at: Math.round(moment) }));
  const link = h("button", { onclick: () => copy(address(part, { ...query, at: Math.round(chart.moment) }), link) }, "Copy link");
  const faults = part === "swarm" ? h("p", { class: "seen" }, story.faults.length ? ["What goes wrong: ", story.faults.map(faultWords).join("; "), "."] : "Nothing goes wrong in this run.") : null;
  fill(result, verdict, faults, chart.element, h("p", { class: "tools" }, link), log);
  // A violation is at the end: the run stops there.
  chart.go(/^\d+$/.test(at) ? Number(at) : story.violation ? story.duration : story.duration * 0.45);
  return chart;
}

/** What is so of a node at a moment. */
function lookup(story) {
  const byNode = story.names.map(() => []);
  for (const change of story.changes) byNode[change.node]?.push(change);
  return (node, moment) => {
    const list = byNode[node];
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].at <= moment) low = middle + 1;
      else high = middle;
    }
    return list[low - 1];
  };
}

function timeline(story, room, onMove) {
  const nodes = story.names.length, end = story.duration, locks = [...new Set(story.entries.map((entry) => entry.lock))].sort();
  // Each lock has a line of its own: two nodes inside of different ones do not violate anything.
  const lane = LANE + LOCK * Math.max(0, locks.length - 1), height = TOP + nodes * lane + 26;
  const width = Math.max(720, room - 4, Math.min(2400, (end / 1000) * 38) + LEFT + RIGHT);
  const x = (ms) => LEFT + (ms / end) * (width - LEFT - RIGHT);
  const look = lookup(story);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Every node's view, session and entries over time", class: "timeline" });
  for (let t = 0; t <= end; t += end > 40000 ? 5000 : 1000) svg.append(s("line", { x1: x(t), x2: x(t), y1: TOP - 8, y2: height - 22, class: "grid" }), s("text", { x: x(t), y: 16, class: "mark middle" }, `${t / 1000} s`));
  drawFaults(svg, story, x, lane, height);
  story.names.forEach((name, node) => drawNode(svg, story, node, x, TOP + node * lane, locks));
  const cursor = s("line", { y1: TOP - 12, y2: height - 22, class: "cursor" });
  svg.append(cursor);
  if (story.violation) drawViolation(svg, story, x(end), lane, height);
  const names = drawNames(svg, story, lane, height, locks);
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": "Timeline; arrow keys move the cursor" }, svg);
  // The names stay in view.
  scroller.addEventListener("scroll", () => names.setAttribute("transform", `translate(${scroller.scrollLeft} 0)`));
  const scrub = h("input", { type: "range", class: "scrub", min: "0", max: String(Math.floor(end)), step: "10", "aria-label": "Moment", oninput: () => go(Number(scrub.value)) });
  const now = h("output", { class: "position" }), table = h("div", { class: "card states", tabindex: "0" });
  const api = { element: h("div", {}, legend(locks), scroller, h("div", { class: "controls" }, scrub, now), table), moment: 0, go, onKey };

  function go(moment) {
    api.moment = Math.max(0, Math.min(end, moment));
    scrub.value = String(api.moment);
    cursor.setAttribute("x1", x(api.moment));
    cursor.setAttribute("x2", x(api.moment));
    now.textContent = `${(api.moment / 1000).toFixed(2)} s`;
    const at = x(api.moment);
    if (at < scroller.scrollLeft + LEFT || at > scroller.scrollLeft + scroller.clientWidth - 20) scroller.scrollLeft = at - scroller.clientWidth / 2;
    fill(table, stateTable(story, look, api.moment));
    onMove(api.moment);
  }

  function onKey(event) {
    const steps = { ArrowRight: 100, ArrowLeft: -100, PageDown: 1000, PageUp: -1000 };
    if (event.key in steps) return go(api.moment + steps[event.key]), true;
    if (event.key === "Home") return go(0), true;
    if (event.key === "End") return go(end), true;
    return false;
  }

  svg.addEventListener("click", (event) => {
    const rect = svg.getBoundingClientRect();
    go((((event.clientX - rect.left) * (width / rect.width) - LEFT) / (width - LEFT - RIGHT)) * end);
  });
  return api;
}

/** The lanes' names, in front of what is scrolled below them. */
function drawNames(svg, story, lane, height, locks) {
  const group = s("g", { class: "lane-names" }, s("rect", { y: TOP - 12, width: LEFT - 4, height: height - TOP + 12, class: "ground" }));
  story.names.forEach((name, node) => {
    const mid = TOP + node * lane + lane - LANE + 22;
    group.append(s("text", { x: LEFT - 10, y: mid + 4, class: "node-name" }, name));
    if (locks.length > 1) locks.forEach((lock, i) => group.append(s("text", { x: LEFT - 10, y: mid - 10 - LOCK * i, class: "lock-name" }, lock)));
  });
  svg.append(group);
  return group;
}

const faultWords = ({ kind, nodes, from, until }) => `${kind}${nodes.length ? ` of ${nodes.map((node) => `node ${node + 1}`).join(", ")}` : ""} at ${(from / 1000).toFixed(2)} s${until > from ? ` until ${(until / 1000).toFixed(2)} s` : ""}`;

/** What goes wrong: a shade for as long as it lasts, its name below; if it hits some nodes only, the shade is on their lanes. */
function drawFaults(svg, story, x, lane, height) {
  let last = -Infinity;
  for (const fault of story.faults) {
    const { kind, nodes, from } = fault, until = Math.min(fault.until, story.duration), title = s("title", {}, faultWords(fault));
    const spans = nodes.length && !/partition/.test(kind) ? nodes.map((node) => [TOP + node * lane, lane]) : [[TOP - 10, height - TOP - 12]];
    for (const [y, tall] of spans) svg.append(s("rect", { x: x(from), width: Math.max(2, x(until) - x(from)), y, height: tall, class: `fault ${kind}` }, title.cloneNode(true)));
    // A storm has more faults than there is room for names.
    const text = `${kind}${nodes.length ? ` ${nodes.map((node) => node + 1).join("+")}` : ""}`;
    if (x(from) < last) continue;
    last = x(from) + text.length * 6.4 + 8;
    svg.append(s("text", { x: x(from) + 3, y: height - 8, class: "mark fault-name" }, text));
  }
}

/** Where the run ended: a line, and a sign on the lanes of the nodes that the violation names. */
function drawViolation(svg, story, x, lane, height) {
  const named = [...story.violation.matchAll(/\bnode (\d+)/g)].map(([, number]) => Number(number) - 1).filter((node) => node < story.names.length);
  svg.append(s("line", { x1: x, x2: x, y1: TOP - 12, y2: height - 22, class: "violation" }));
  for (const node of named.length ? named : [0]) {
    const y = TOP + node * lane + lane - LANE + 22;
    svg.append(s("circle", { cx: x, cy: y, r: 10, class: "violation" }, s("title", {}, story.violation)), s("text", { x, y: y + 5, class: "violation-sign" }, "!"));
  }
}

function legend(locks) {
  const item = (name, text) => h("span", {}, h("i", { class: `state-${name}` }), text);
  return h("p", { class: "legend states-legend" }, item("open", "view open"), item("changing", "changing"), item("lapsed", "lapsed"), item("joining", "joining"), item("paused", "paused"), item("down", "down"), item("session", "session left"), item("entry", locks.length > 1 ? `somebody inside, a line for each of ${locks.map((lock) => `'${lock}'`).join(", ")}` : "somebody inside"), h("span", {}, "★ steward"));
}

function drawNode(svg, story, node, x, y, locks) {
  const changes = story.changes.filter((change) => change.node === node), mid = y + 22 + LOCK * Math.max(0, locks.length - 1);
  // One bar for as long as the state and the view stay, and what is written on it last, so that nothing covers it.
  const labels = [], same = (a, b) => a && b && a.state === b.state && a.epoch === b.epoch && a.steward === b.steward;
  for (let i = 0; i < changes.length; ) {
    let next = i + 1;
    while (same(changes[i], changes[next])) next++;
    const change = changes[i], [from, to] = [x(change.at), x(changes[next]?.at ?? story.duration)];
    svg.append(s("rect", { x: from, width: Math.max(0.6, to - from), y: mid - 9, height: 18, class: `view state-${change.state}` }));
    if (change.steward && !changes[i - 1]?.steward) labels.push(s("text", { x: from, y: mid - 11, class: "star" }, "★"));
    const text = change.state === "open" ? `epoch ${change.epoch}` : change.state;
    if (to - from > text.length * 6.4 + 4) labels.push(s("text", { x: from + 4, y: mid + 4, class: `on-${change.state} epoch` }, text));
    else if (change.state === "open" && to - from > 12) labels.push(s("text", { x: from + 2, y: mid + 4, class: "epoch" }, String(change.epoch)));
    i = next;
  }
  // The session left, as a height that falls and is renewed.
  const longest = Math.max(1, ...changes.map((change) => (change.session ?? 0) - change.at).filter((left) => left < 1e6));
  changes.forEach((change, i) => {
    if (!change.session || change.state === "down") return;
    // A node that stands still is not seen to change when its session runs out.
    const until = Math.max(change.at, Math.min(changes[i + 1]?.at ?? story.duration, change.session)), [a, b] = [x(change.at), x(until)];
    const left = (moment) => Math.max(0, Math.min(1, (change.session - moment) / longest)) * 14;
    svg.append(s("path", { d: `M${a} ${mid + 26} L${a} ${mid + 26 - left(change.at)} L${b} ${mid + 26 - left(until)} L${b} ${mid + 26} Z`, class: "session" }));
  });
  svg.append(...labels);
  for (const entry of story.entries.filter((one) => one.node === node)) {
    const until = entry.until ?? story.duration;
    svg.append(s("rect", { x: x(entry.from), width: Math.max(1.5, x(until) - x(entry.from)), y: mid - 15 - LOCK * locks.indexOf(entry.lock), height: 6, class: entry.lost ? "entry lost" : "entry" }, s("title", {}, `inside of '${entry.lock}', fence ${fence(entry.fence)}`)));
  }
}

/** A fence is an epoch, and a count in it. */
const fence = (number) => `${Math.floor(number / 2 ** 36)}:${number % 2 ** 36}`;

function stateTable(story, look, moment) {
  const inside = story.entries.filter((entry) => entry.from <= moment && (entry.until ?? Infinity) > moment);
  const rows = story.names.map((name, node) => {
    const change = look(node, moment);
    const session = change?.session ? change.session - moment : undefined;
    const may = change?.state === "open" && (session === undefined || session > 0);
    const entries = inside.filter((one) => one.node === node);
    return h("tr", {},
      h("th", { scope: "row" }, String(node + 1)),
      h("td", {}, h("span", { class: `tag state-${change?.state ?? "down"}` }, change?.state ?? "not started"), change?.steward && " ★ steward"),
      h("td", {}, change?.epoch ?? "-"), h("td", {}, change?.members.map((member) => member + 1).join(" ") || "-"),
      h("td", { class: session !== undefined && session <= 0 ? "alarm" : "" }, session === undefined ? "-" : session > 0 ? `${(session / 1000).toFixed(2)} s left` : "over"),
      h("td", { class: may ? "good" : "" }, change?.state === "paused" ? "stands still" : may ? "yes" : "no"), h("td", {}, entries.map((entry) => h("div", {}, `inside of '${entry.lock}', fence ${fence(entry.fence)}`))), h("td", { class: "waits" }, change?.waits ?? ""));
  });
  return [h("h2", {}, `At ${(moment / 1000).toFixed(2)} s`), h("table", {}, h("thead", {}, h("tr", {}, ["Node", "View", "Epoch", "Members", "Session", "May grant", "Lock", "Waits for"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows))];
}
