// What has happened lately, live.

import { stream } from "./api.js";
import { $, h } from "./dom.js";

// More than that nobody reads.
const SHOWN_MAX = 200;
// More than an agent repeats.
const KNOWN_MAX = 1000;
// A busy agent grants thousands of locks a second: they are shown a few times a second.
const SHOW_MS = 250;

const WORDS = {
  granted: ["granted", "good"], released: ["released", ""], lost: ["lost", "bad"], at_risk: ["at risk", "warn"], broken: ["broken", "bad"],
  lease_expired: ["lease expired", "warn"], lease_lost: ["lease lost", "bad"], view: ["view", ""], member_in: ["member in", "good"],
  member_out: ["member out", "warn"], evicted: ["evicted", "bad"], steward: ["steward", ""], state: ["state", ""], ending: ["agent ends", "warn"],
  missed: ["missed", "warn"],
};

let close = () => {};
let waiting = [];
let timer = null;
// Those that were shown: the agent repeats the latest ones when the stream is opened again.
let known = new Set();

export function setUpEvents() {
  $("all-events").addEventListener("change", open);
  open();
}

function open() {
  close();
  known = new Set();
  waiting = [];
  $("events").replaceChildren();
  $("events-none").hidden = false;
  const rare = !$("all-events").checked;
  close = stream(`/v1/events?recent=true&rare=${rare}`, {
    onEvent: (name, event) => {
      const key = `${event.id} ${event.at_ms}`;
      if (event.id !== undefined && known.has(key)) return;
      known.add(key);
      if (known.size > KNOWN_MAX) known.delete(known.values().next().value);
      waiting.push([name, event]);
      waiting.splice(0, waiting.length - SHOWN_MAX);
      timer ??= setTimeout(show, SHOW_MS);
    },
  });
}

function show() {
  timer = null;
  const list = $("events");
  list.prepend(...waiting.reverse().map(([name, event]) => line(name, event)));
  waiting = [];
  while (list.children.length > SHOWN_MAX) list.lastElementChild.remove();
  $("events-none").hidden = list.children.length > 0;
}

export function line(name, event) {
  const [word, kind] = WORDS[name] ?? [name, ""];
  const at = event.at_ms ? new Date(event.at_ms) : new Date();
  const time = h("time", { datetime: at.toISOString() }, at.toLocaleTimeString("en-GB"));
  return h("li", {}, time, h("span", { class: `what ${kind}` }, word), h("span", { class: "about" }, about(name, event)));
}

function about(name, event) {
  if (name === "missed") return `${event.missed} events came too fast to be told`;
  const parts = [];
  if (event.lock) parts.push(event.lock);
  if (event.fence) parts.push(`fence ${event.fence}`);
  if (event.member) parts.push(event.member);
  if (event.epoch !== undefined) parts.push(`epoch ${event.epoch}`);
  if (event.client) parts.push(event.client);
  if (event.text) parts.push(event.text);
  if (event.lease) parts.push(`lease ${event.lease}`);
  return parts.join(" · ");
}
