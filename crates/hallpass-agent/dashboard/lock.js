// One lock: who holds it, who waits, and a space-time diagram of its messages as this agent's node sees them.

import { get, stream } from "./api.js";
import { Diagram } from "./diagram.js";
import { $, h, reconcile, setText } from "./dom.js";
import { LiveTrace, clock, words } from "./live.js";
import { askToBreak, stateOf } from "./locks.js";
import { age, count, facts, person } from "./parts.js";

// Older steps leave the picture.
const STEPS_MAX = 120;

let name = null;
let close = () => {};
let members = [];
let steps = [];
let isPaused = false;
let drawing = null;
let diagram = null;

export function setUpLock() {
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
  reconcile(list, lines, ([key]) => key, () => h("li"), (line, [key, text]) => {
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
  box.hidden = !steps.length;
  $("trace-text").replaceChildren(...steps.map(textOf).reverse());
  if (!steps.length) return;
  if (!diagram) {
    diagram = new Diagram({ label: "Space-time diagram of the last messages; the text below says the same" });
    box.append(diagram.element);
  }
  const follows = diagram.isAtEnd;
  diagram.names = new Map(members.map((member, index) => [index, index ? member : `${member} (here)`]));
  diagram.setTrace(new LiveTrace(steps, members), true);
  if (follows) diagram.toEnd();
}

function textOf(step) {
  const what = step.step === "message" ? `${step.sent ? "to" : "from"} ${step.peer}` : "";
  return h("li", {}, h("time", {}, clock(step.at_ms)), h("span", { class: "what" }, what), h("span", { class: "about" }, words(step)));
}
