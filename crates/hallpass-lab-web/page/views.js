// Whole nodes with views: epochs, sessions, the steward, and who may enter, over time.

import { get } from "./api.js";
import { copy, fill, h, plural, s } from "./dom.js";
import { address, field } from "./form.js";

const STORIES = [
  ["A quiet group", {}],
  ["A minority is cut off", { nodes: 5, faults: "partition:4+5@6s..14s" }],
  ["The steward's side is cut off", { nodes: 5, faults: "partition:1+2@6s..14s" }],
  ["A member stands still", { nodes: 5, faults: "pause:1@6s..11s" }],
  ["A member crashes", { nodes: 5, faults: "crash:2@6s..12s" }],
  ["No majority", { nodes: 4, faults: "partition:1+2@6s..13s" }],
  ["All at once", { nodes: 5, faults: "partition:5@5s..9s,pause:2@12s..16s,crash:1@20s..26s" }],
];
const LANE = 64, LEFT = 74, TOP = 34, RIGHT = 14;
const WORDS = { open: "open: locks are granted", changing: "changing: nothing is granted until the next view begins", lapsed: "lapsed: its session has run out, it holds nothing", joining: "joining", paused: "paused: the process stands still", down: "down" };

export async function open({ container, name, params, setAddress, go }) {
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
    h("h1", {}, isSwarm ? `A run of the swarm: seed ${query.seed}` : "Views: a group of whole nodes"),
    h("p", {}, "The same code that talks TCP, with disks and clocks of its own. A node may grant locks while its session lasts, by its own clock; a new view begins only when the sessions of all who are not in it are over."),
    !isSwarm && form,
    !isSwarm && h("p", { class: "tools examples" }, STORIES.map(([title, story]) => h("button", { onclick: () => go("views", story) }, title))),
    result);
  const abort = new AbortController();
  let chart;
  try {
    const story = await get("views", isSwarm ? { swarm: "1", ...query } : query, abort.signal);
    chart = show(result, story, query, isSwarm ? "swarm" : "views", setAddress, at);
  } catch (error) {
    if (error.name !== "AbortError") fill(result, h("p", { class: "notice alarm", role: "alert" }, error.message));
  }
  return { destroy: () => abort.abort(), onKey: (event) => chart?.onKey(event), get chart() { return chart; } };
}

function show(result, story, query, part, setAddress, at) {
  const verdict = story.violation ? h("p", { class: "notice alarm", role: "alert" }, `Violation of ${story.violation}`) : h("p", { class: "notice good" }, story.fixed ? "No violation." : `No violation: ${plural(story.grants, "entry", "entries")}, the last epoch ${story.epoch}, ${plural(story.lapses, "session")} ran out.`);
  const log = story.log?.length ? h("details", { open: Boolean(story.violation) && story.fixed }, h("summary", {}, `The last ${plural(story.log.length, "event")}`), h("pre", { class: "log-text", tabindex: "0" }, story.log.join("\n"))) : null;
  if (story.fixed) {
    fill(result, verdict, h("p", {}, "This seed runs a group whose members are a fixed list: it has no views to draw."), log);
    return undefined;
  }
  const chart = timeline(story, query, result.clientWidth, (moment) => setAddress(part, { ...query, at: Math.round(moment) }));
  const link = h("button", { onclick: () => copy(address(part, { ...query, at: Math.round(chart.moment) }), link) }, "Copy link");
  fill(result, verdict, chart.element, h("p", { class: "tools" }, link), log);
  // A violation is at the end: the run stops there.
  chart.go(at !== undefined ? Number(at) : story.violation ? story.duration : story.duration * 0.45);
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

function timeline(story, query, room, onMove) {
  const nodes = story.names.length, height = TOP + nodes * LANE + 26, end = story.duration;
  const width = Math.max(720, room - 4, Math.min(2400, (end / 1000) * 38) + LEFT + RIGHT);
  const x = (ms) => LEFT + (ms / end) * (width - LEFT - RIGHT);
  const look = lookup(story);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Every node's view, session and entries over time", class: "timeline" });
  for (let t = 0; t <= end; t += end > 40000 ? 5000 : 1000) svg.append(s("line", { x1: x(t), x2: x(t), y1: TOP - 8, y2: height - 22, class: "grid" }), s("text", { x: x(t), y: 16, class: "mark middle" }, `${t / 1000} s`));
  for (const [kind, who, from, until] of parseFaults(query.faults ?? "")) {
    svg.append(s("rect", { x: x(from), width: x(until) - x(from), y: TOP - 10, height: height - TOP - 12, class: `fault ${kind}` }), s("text", { x: x(from) + 3, y: height - 8, class: "mark" }, `${kind} ${who}`));
  }
  story.names.forEach((name, node) => drawNode(svg, story, node, x, TOP + node * LANE));
  const cursor = s("line", { y1: TOP - 12, y2: height - 22, class: "cursor" });
  svg.append(cursor);
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": "Timeline; arrow keys move the cursor" }, svg);
  const scrub = h("input", { type: "range", class: "scrub", min: "0", max: String(Math.floor(end)), step: "10", "aria-label": "Moment", oninput: () => go(Number(scrub.value)) });
  const now = h("output", { class: "position" }), table = h("div", { class: "card states", tabindex: "0" });
  const api = { element: h("div", {}, legend(), scroller, h("div", { class: "controls" }, scrub, now), table), moment: 0, go, onKey };

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

function legend() {
  const item = (name, text) => h("span", {}, h("i", { class: `state-${name}` }), text);
  return h("p", { class: "legend states-legend" }, item("open", "view open"), item("changing", "changing"), item("lapsed", "lapsed"), item("joining", "joining"), item("paused", "paused"), item("down", "down"), item("session", "session left"), item("entry", "somebody inside"), h("span", {}, "★ steward"));
}

function drawNode(svg, story, node, x, y) {
  const changes = story.changes.filter((change) => change.node === node), mid = y + 22;
  svg.append(s("text", { x: LEFT - 10, y: mid + 4, class: "node-name" }, story.names[node].replace(/^m(\d+)$/, (_, n) => `node ${Number(n) + 1}`)));
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
    const until = changes[i + 1]?.at ?? story.duration, [a, b] = [x(change.at), x(until)];
    const left = (moment) => Math.max(0, Math.min(1, (change.session - moment) / longest)) * 14;
    svg.append(s("path", { d: `M${a} ${mid + 26} L${a} ${mid + 26 - left(change.at)} L${b} ${mid + 26 - left(until)} L${b} ${mid + 26} Z`, class: "session" }));
  });
  svg.append(...labels);
  for (const entry of story.entries.filter((one) => one.node === node)) {
    const until = entry.until ?? story.duration;
    svg.append(s("rect", { x: x(entry.from), width: Math.max(1.5, x(until) - x(entry.from)), y: mid - 15, height: 6, class: entry.lost ? "entry lost" : "entry" }, s("title", {}, `inside, fence ${fence(entry.fence)}`)));
  }
}

/** A fence is an epoch, and a count in it. */
const fence = (number) => `${Math.floor(number / 2 ** 36)}:${number % 2 ** 36}`;

function parseFaults(text) {
  const ms = (word) => { const [, n, unit] = /^([\d.]+)(us|ms|s|m)$/.exec(word) ?? [0, 0, "ms"]; return Number(n) * { us: 0.001, ms: 1, s: 1000, m: 60000 }[unit]; };
  return text.split(",").map((word) => /^(\w+):([\d+]+)@(\S+?)\.\.(\S+)$/.exec(word.trim())).filter(Boolean).map(([, kind, who, from, until]) => [kind, who, ms(from), ms(until)]);
}

function stateTable(story, look, moment) {
  const inside = story.entries.filter((entry) => entry.from <= moment && (entry.until ?? story.duration) > moment);
  const rows = story.names.map((name, node) => {
    const change = look(node, moment);
    const session = change?.session ? change.session - moment : undefined;
    const may = change?.state === "open" && (session === undefined || session > 0);
    const entry = inside.find((one) => one.node === node);
    return h("tr", {},
      h("th", { scope: "row" }, String(node + 1)),
      h("td", {}, h("span", { class: `tag state-${change?.state ?? "down"}` }, change?.state ?? "not started"), change?.steward && " ★ steward"),
      h("td", {}, change?.epoch ?? "-"), h("td", {}, change?.members.map((member) => member + 1).join(" ") || "-"),
      h("td", { class: session !== undefined && session <= 0 ? "alarm" : "" }, session === undefined ? "-" : session > 0 ? `${(session / 1000).toFixed(2)} s left` : "over"),
      h("td", { class: may ? "good" : "" }, change?.state === "paused" ? "stands still" : may ? "yes" : "no"), h("td", {}, entry ? `inside, fence ${fence(entry.fence)}` : ""), h("td", { class: "waits" }, change?.waits ?? ""));
  });
  return [h("h2", {}, `At ${(moment / 1000).toFixed(2)} s`), h("table", {}, h("thead", {}, h("tr", {}, ["Node", "View", "Epoch", "Members", "Session", "May grant", "Lock", "Waits for"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows))];
}
