// The group, its members and how busy the agent is.

import { get, post } from "./api.js";
import { $, h, reconcile, s, setText } from "./dom.js";
import { age, confirm, count, facts, rate, setBadges, toast } from "./parts.js";

// Three minutes, looked at every two seconds. A new page is not empty: what it has is drawn wider.
const POINTS = 90, POINTS_MIN = 15;

const SERIES = [
  { name: "Grants a second", of: (now, before, seconds) => (now.grants - before.grants) / seconds, show: rate },
  { name: "Messages a second", of: (now, before, seconds) => (now.messages - before.messages) / seconds, show: rate },
  { name: "Held here", of: (now) => now.held, show: count },
  { name: "Waiting here", of: (now) => now.waiting, show: count },
].map((series) => ({ ...series, points: [] }));

let last = null;

/** Shows an answer of /v1/status; `at` is when it came, in milliseconds. */
export function showStatus(status, at) {
  setText($("where-group"), status.group);
  setText($("where-node"), `seen from ${status.node}`);
  document.title = `${status.group} · hallpass`;
  const views = { open: "open", changing: "changing", lapsed: "lapsed", joining: "joining" };
  facts($("facts"), [
    ["View", views[status.view] ?? status.view],
    ["Epoch", count(status.epoch)],
    ["Steward", status.steward ?? "none known"],
    ["Voters", status.voters.join(", ") || "none"],
    ["Members", `${status.connected + 1} of ${status.members} connected`],
    ["Session", status.session_ms === null ? "without end" : `${age(status.session_ms)} of ${age(status.ttl_ms)} left`],
    ["Locks known here", count(status.locks)],
    ["Clients", count(status.clients)],
    ["Leases", count(status.leases)],
    ["Grants", count(status.grants)],
    ["Messages", count(status.messages)],
    ["Encrypted", status.encrypted ? "yes" : "no"],
  ]);
  // An agent that was started again counts from the beginning.
  if (last && status.grants >= last.status.grants && at > last.at) {
    const seconds = (at - last.at) / 1000;
    for (const series of SERIES) {
      series.points.push(series.of(status, last.status, seconds));
      series.points.splice(0, series.points.length - POINTS);
    }
  }
  last = { status, at };
  reconcile($("rates"), SERIES, (series) => series.name, createRate, updateRate);
}

function createRate(series) {
  const picture = s("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: "spark-area" }), s("path", { class: "spark-line" }));
  return h("div", { class: "rate" }, h("p", {}, h("span", { class: "quiet" }, series.name), h("b")), picture);
}

function updateRate(made, series) {
  const { points } = series;
  setText(made.querySelector("b"), points.length ? series.show(points.at(-1)) : "–");
  if (points.length < 2) return;
  const top = Math.max(...points, 1);
  const step = 100 / (Math.max(points.length, POINTS_MIN) - 1);
  const x = (index) => (100 - (points.length - 1 - index) * step).toFixed(2);
  const path = points.map((value, index) => `${index ? "L" : "M"}${x(index)} ${(28.5 - (value / top) * 27).toFixed(2)}`).join("");
  made.querySelector(".spark-line").setAttribute("d", path);
  made.querySelector(".spark-area").setAttribute("d", `${path}L100 30L${x(0)} 30Z`);
}

export async function refreshMembers() {
  const { members } = await get("/v1/members");
  const name = (member) => member.name ?? member.address;
  reconcile($("members").tBodies[0], members, (member) => `${member.id} ${name(member)}`, (member) => {
    const evict = h("button", { type: "button", class: "danger", onclick: () => askToEvict(name(member)) }, "Evict");
    evict.setAttribute("aria-label", `Evict ${name(member)}`);
    return h("tr", {},
      h("td", { class: "name" }), h("td", { class: "wide", "data-label": "at" }), h("td"), h("td"),
      h("td", { class: "number", "data-label": "session" }), h("td", { class: "actions" }, evict));
  }, (row, member) => {
    const [first, address, state, role, session, actions] = row.cells;
    const shown = `${name(member)}${member.this ? " (this one)" : ""}`;
    if (first.dataset.shown !== `${shown}|${member.trouble ?? ""}`) {
      first.dataset.shown = `${shown}|${member.trouble ?? ""}`;
      first.replaceChildren(shown, ...(member.trouble ? [h("span", { class: "trouble" }, member.trouble)] : []));
    }
    // Port 0: it listens on nothing.
    setText(address, member.address.endsWith(":0") ? "none" : member.address);
    const inView = member.state === "member";
    setBadges(state, [[inView && !member.connected && !member.this ? "not connected" : member.state,
      inView && (member.connected || member.this) ? "good" : "warn"]]);
    const roles = [];
    if (member.steward) roles.push(["steward", ""]);
    if (member.voter) roles.push(["voter", "none"]);
    setBadges(role, roles);
    role.classList.toggle("blank", roles.length === 0);
    setText(session, age(member.session_ms));
    session.classList.toggle("blank", member.session_ms === null);
    actions.firstElementChild.hidden = member.this;
    actions.classList.toggle("blank", member.this);
  });
}

async function askToEvict(name) {
  const ban = await confirm({
    title: `Evict ${name}?`,
    text: "It loses its locks, and what it runs under them is stopped. It may come back as a new member unless it is banned.",
    action: "Evict",
    option: "Ban it: it must not come back",
  });
  if (ban === null) return;
  try {
    // A session has to run out first, however long those of this group are. The agent knows when to give up.
    await post(`/v1/members/${encodeURIComponent(name)}/evict`, { ban }, Infinity);
    toast(`${name} is evicted.`);
    await refreshMembers();
  } catch (error) {
    toast(`${name} is not evicted: ${error.message}`);
  }
}
