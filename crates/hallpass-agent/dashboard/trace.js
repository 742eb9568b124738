// One lock: who holds it, who waits, and a space-time diagram of its messages as this agent's node sees them.

import { get, stream } from "./api.js";
import { $, age, count, element, facts, person, reconcile, setText, svg } from "./dom.js";
import { askToBreak, stateOf } from "./locks.js";

// Older steps leave the picture.
const STEPS_MAX = 120;
const STEP = 30, HEAD = 30;
// Times stand left of this node's line; the last line has room for half a name.
const LEFT = 92, MARGIN = 50, RIGHT = 50;
// How far the lines of two members are apart: enough for a label at least.
const GAP_MIN = 110, GAP_MAX = 320;

let name = null;
let close = () => {};
let members = [];
let steps = [];
let isPaused = false;
let drawing = null;

export function setUpTrace() {
  $("lock-break").addEventListener("click", () => askToBreak(name));
  $("trace-pause").addEventListener("click", () => pause(!isPaused));
}

function pause(pauses) {
  isPaused = pauses;
  $("trace-pause").setAttribute("aria-pressed", String(isPaused));
  setText($("trace-pause"), isPaused ? "Go on" : "Pause");
  if (!isPaused) draw();
}

export function openLock(lock) {
  closeLock();
  name = lock;
  [steps, members] = [[], []];
  setText($("trace-none"), "No messages yet.");
  setText($("lock-title"), lock);
  pause(false);
  void refreshLock();
  close = stream(`/v1/locks/${encodeURIComponent(lock)}/trace`, {
    onEvent: (kind, document) => {
      if (kind === "begin") members = order(document.members);
      else if (kind === "messages") document.messages.forEach((message) => add({ ...message, step: "message" }));
      else if (kind === "missed") return;
      else add({ ...document, step: kind });
      if (!isPaused) drawing ??= requestAnimationFrame(draw);
    },
    onError: (error) => setText($("trace-none"), `The messages cannot be watched: ${error.message}`),
  });
}

export function closeLock() {
  close();
  close = () => {};
  name = null;
}

export async function refreshLock() {
  if (name === null) return;
  const lock = await get(`/v1/locks/${encodeURIComponent(name)}`);
  if (lock.name !== name) return;
  facts($("lock-facts"), [
    ["State", stateOf(lock)[0]],
    ["Protocol", lock.protocol || "not known yet"],
    ["Last fence here", lock.fence === "0" ? "not known now" : lock.fence],
    ["Holders here", count(lock.holders)],
    ["Waiting here", count(lock.waiters)],
  ]);
  // Members of which only this is known: they have not given their permission.
  const isGuess = lock.held_by.length > 0 && lock.held_by.every((holder) => holder.mode === null);
  setText($("holders-title"), isGuess ? "Held, or asked for before, by" : "Held by");
  people($("lock-holders"), lock.held_by, lock.held ? "" : lock.waiters ? "Not known." : "Nobody, as far as this member knows.");
  people($("lock-waiting"), lock.waiting, "Nobody.");
}

function people(list, clients, none) {
  const lines = clients.map((client, index) => [index, `${person(client)}${client.mode ? `, ${client.mode}` : ""}${client.for_ms ? `, for ${age(client.for_ms)}` : ""}`]);
  if (!lines.length) lines.push(["none", none]);
  reconcile(list, lines, ([key]) => key, () => element("li"), (line, [key, text]) => {
    setText(line, text);
    line.classList.toggle("none", key === "none");
  });
}

/** This node first: all lines begin or end there. */
function order(found) {
  return [...found].sort((a, b) => Number(b.this) - Number(a.this)).map((member) => member.name);
}

function add(step) {
  steps.push(step);
  // Messages are fetched now and then, events come at once.
  for (let at = steps.length - 1; at > 0 && steps[at - 1].at_ms > steps[at].at_ms; at -= 1) {
    [steps[at - 1], steps[at]] = [steps[at], steps[at - 1]];
  }
  steps.splice(0, steps.length - STEPS_MAX);
  if (step.peer && !members.includes(step.peer)) members.push(step.peer);
}

function draw() {
  drawing = null;
  const box = $("trace");
  $("trace-none").hidden = steps.length > 0;
  if (!steps.length) {
    box.replaceChildren();
    $("trace-text").replaceChildren();
    return;
  }
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 2 * STEP;
  box.replaceChildren(...picture(box.clientWidth));
  if (atEnd) box.scrollTop = box.scrollHeight;
  $("trace-text").replaceChildren(...steps.slice().reverse().map(textOf));
}

function picture(room) {
  const gap = Math.min(GAP_MAX, Math.max(GAP_MIN, (room - LEFT - MARGIN - RIGHT) / Math.max(1, members.length - 1)));
  const x = (member) => LEFT + MARGIN + Math.max(0, members.indexOf(member)) * gap;
  const width = x(members.at(-1)) + RIGHT, height = (steps.length + 1) * STEP;
  const heads = svg("svg", { class: "heads", width, height: HEAD, "aria-hidden": "true" });
  members.forEach((member, index) => heads.append(label("node", x(member), 20, index ? member : `${member} (here)`)));
  const all = svg("svg", { width, height, role: "img", "aria-label": `The last ${steps.length} steps of ${name}; the text below says the same` });
  members.forEach((member, index) => {
    all.append(svg("line", { class: index ? "life" : "life this", x1: x(member), x2: x(member), y1: 0, y2: height }));
  });
  all.append(...held(x(members[0])));
  steps.forEach((step, index) => {
    const y = (index + 0.8) * STEP;
    const since = index ? step.at_ms - steps[index - 1].at_ms : 0;
    all.append(label("time", LEFT, y + 4, index ? since_text(since) : clock(step.at_ms)));
    if (step.step === "message") all.append(message(step, x(members[0]), x(step.peer), y));
    else all.append(svg("g", { class: "grant" }, label("", x(members[0]) + 10, y + 4, words(step))));
  });
  return [heads, all];
}

/** While the lock is held here, as far as the steps tell. */
function held(x) {
  const bars = [];
  let since = null;
  const first = steps.find((step) => ["granted", "released", "lost"].includes(step.step));
  if (first && first.step !== "granted") since = -0.5;
  steps.forEach((step, index) => {
    if (step.step === "granted" && since === null) since = index;
    if (["released", "lost"].includes(step.step) && since !== null) {
      bars.push([since, index]);
      since = null;
    }
  });
  if (since !== null) bars.push([since, steps.length]);
  return bars.map(([from, to]) => svg("line", { class: "held", x1: x, x2: x, y1: (from + 0.8) * STEP, y2: (to + 0.8) * STEP }));
}

/** The end at this node is where it belongs; the other one is not known here. */
function message(step, here, there, y) {
  const [from, to] = step.sent ? [here, there] : [there, here];
  const [start, end] = step.sent ? [y, y + STEP * 0.8] : [y - STEP * 0.8, y];
  const angle = (Math.atan2(end - start, to - from) * 180) / Math.PI;
  const group = svg("g", {},
    svg("line", { class: "message", x1: from, y1: start, x2: to, y2: end }),
    svg("path", { class: "tip", d: "M0 0L-8 -3.6L-8 3.6Z", transform: `translate(${to} ${end}) rotate(${angle})` }),
    svg("circle", { class: "point", cx: here, cy: y, r: 3 }),
    svg("title", {}, `${step.sent ? "to" : "from"} ${step.peer}: ${step.text}`));
  // Beside this node's own line every step has a place of its own.
  group.append(label("", here + 14, step.sent ? y - 3 : y + 12, step.kind));
  return group;
}

function label(kind, x, y, text) {
  const made = svg("text", { x, y, class: kind });
  made.textContent = text;
  return made;
}

function words(step) {
  const fence = step.fence ? ` ${step.fence}` : "";
  return { granted: `granted, fence${fence}`, released: "released", lost: "lost", broken: "broken", at_risk: "at risk" }[step.step] ?? step.step;
}

function since_text(ms) {
  return ms < 0.95 ? `+${Math.max(0, ms).toFixed(1)} ms` : ms < 10_000 ? `+${Math.round(ms)} ms` : `+${age(ms)}`;
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

function textOf(step) {
  const what = step.step === "message" ? `${step.sent ? "to" : "from"} ${step.peer}` : "";
  const text = step.step === "message" ? step.text : words(step);
  return element("li", {}, element("time", {}, clock(step.at_ms)), element("span", { class: "what" }, what), element("span", { class: "about" }, text));
}
