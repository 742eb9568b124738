// The thirty traps: as printed and mended, side by side, in lockstep.

import { get, isStatic } from "./api.js";
import { copy, fill, h, prose, say } from "./dom.js";
import { address } from "./form.js";
import { playAddress } from "./play.js";
import { Player, linkByTime } from "./player.js";
import { Trace } from "./trace.js";

export async function open(context) {
  const { container, params, about, signal } = context;
  const trap = about.traps.find((one) => one.id === params.id?.toUpperCase());
  if (!trap) return list(container, about, params.id);
  const heading = [
    h("p", { class: "crumbs" }, h("a", { href: "#trap" }, "Thirty traps"), " / ", trap.id, neighbours(about, trap)),
    h("h1", {}, `${trap.id}: ${trap.title}`),
    h("dl", { class: "trap-facts" },
      h("dt", {}, "Where"), h("dd", {}, trap.place),
      h("dt", {}, "What breaks"), h("dd", {}, prose(trap.breaks)),
      h("dt", {}, "Instead"), h("dd", {}, prose(trap.instead))),
  ];
  if (trap.how === "told") {
    fill(container, heading, h("p", { class: "notice" }, h("b", {}, "It cannot be put back here. "), prose(trap.why)));
    return {};
  }
  fill(container, heading, h("p", { class: "wait" }, trap.how === "explore" ? "Exploring every order of events as printed, for the shortest way to the violation" : "Running both"));
  const document = await get("trap", { id: trap.id }, signal);
  container.querySelector(".wait").remove();
  const part = document.how === "explore" ? lockstep(container, document, context, trap) : runs(container, document, context, trap);
  part.destroy = () => part.players.forEach((player) => player.destroy());
  return part;
}

/** A button that copies the address of what is shown. */
function copyLink(where) {
  const button = h("button", { "data-do": "copy-link", onclick: () => copy(address("trap", where()), button) }, "Copy link");
  return button;
}

function neighbours(about, trap) {
  const at = about.traps.indexOf(trap);
  const link = (other, text) => other && h("a", { href: `#trap?id=${other.id}`, title: other.title }, text);
  return h("span", { class: "neighbours" }, link(about.traps[at - 1], `← ${about.traps[at - 1]?.id}`), " ", link(about.traps[at + 1], `${about.traps[at + 1]?.id} →`));
}

function list(container, about, unknown) {
  const how = { explore: "put back and explored", simulate: "two runs", told: "told" };
  fill(container,
    h("h1", {}, "Thirty traps"),
    unknown && h("p", { class: "notice alarm", role: "alert" }, `There is no trap '${unknown}'; these are all.`),
    h("p", {}, "A trap is a place where a paper's printed text, followed to the letter, breaks: two nodes are inside at once, somebody waits forever, or a stated bound does not hold."),
    h("div", { class: "table-box", tabindex: "0" }, h("table", { class: "traps" },
      h("thead", {}, h("tr", {}, ["Trap", "Where", "What breaks", "Here"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, about.traps.map((trap) => h("tr", {},
        h("th", { scope: "row" }, h("a", { href: `#trap?id=${trap.id}` }, `${trap.id} ${trap.title}`)), h("td", {}, trap.place), h("td", {}, prose(trap.breaks)),
        h("td", {}, h("span", { class: `tag ${trap.how}` }, how[trap.how]))))))));
  return {};
}

/** Both sides take the same steps, as far as the mended one lets them. */
function lockstep(container, document, { params, setAddress }, trap) {
  const sides = [["printed", "As printed"], ["mended", "Mended"]].map(([key, title], side) => {
    const data = document[key];
    const player = new Player({ onCursor: (cursor) => follow(side, cursor), compact: true, name: title, label: `${title}: space-time diagram` });
    return { key, title, data, player, trace: new Trace(data) };
  });
  const [printed, mended] = sides;
  const where = () => ({ id: trap.id, at: current < 0 ? undefined : current });
  const rows = Math.max(printed.data.steps.length, mended.data.steps.length);
  const breaks = printed.data.steps.length - 1;
  let current = -1;
  const body = h("tbody");
  const cell = (step) => h("td", { class: !step ? "none" : step.skipped ? "skipped" : "" }, step?.lines.map((line) => h("div", { class: /VIOLATION/.test(line) ? "alarm" : "" }, line)));
  const items = Array.from({ length: rows }, (_, i) => {
    const a = printed.data.steps[i], b = mended.data.steps[i];
    const row = h("tr", { class: i === breaks ? "breaks" : "", onclick: () => goTo(i) },
      h("th", { scope: "row" }, h("button", { class: "link" }, `${i + 1}. ${(a ?? b).command}`)), cell(a), cell(b));
    body.append(row);
    return row;
  });
  const verdicts = sides.map(({ key, title }) => h("div", { class: `verdict ${key}` }, h("h2", {}, title), h("p", {})));

  /** The last event of a side's steps up to one. A side that has no such step, or left it out, stays where it was. */
  const endOf = ({ data }, step) => (data.steps.slice(0, step + 1).findLast(({ events: [from, to] }) => from < to)?.events[1] ?? 0) - 1;

  let leading = false;
  function goTo(step, leader) {
    const before = current;
    current = Math.max(-1, Math.min(rows - 1, step));
    leading = true;
    sides.forEach((side) => {
      if (side !== leader) side.player.pause();
      side.player.go(endOf(side, current));
    });
    leading = false;
    if (current !== before || !leader) mark();
  }

  /** If one side is moved alone, both go to the end of the step that it comes to. */
  function follow(side, cursor) {
    const moved = sides[side], last = endOf(moved, current);
    if (leading || cursor === last) return;
    const { steps } = moved.data, found = steps.findIndex(({ events: [from, to] }) => from < to && cursor < to);
    const step = cursor < 0 ? -1 : found < 0 ? steps.length - 1 : found;
    // One event back from the end of a step is the step before.
    goTo(cursor < last && step === current ? step - 1 : step, moved);
  }

  function mark() {
    items.forEach((item, i) => {
      item.classList.toggle("now", i === current);
      item.classList.toggle("later", i > current);
    });
    const row = items[Math.max(0, current)], box = row.closest(".rows");
    if (box && (row.offsetTop < box.scrollTop + 40 || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight)) box.scrollTop = row.offsetTop - box.clientHeight / 2;
    sides.forEach(({ key, data }, side) => {
      const text = verdicts[side].querySelector("p");
      const step = data.steps[current];
      const broken = key === "printed" && current >= breaks;
      verdicts[side].classList.toggle("alarm", broken);
      text.textContent = broken ? `VIOLATION: ${data.violation}` : !step ? (current < 0 ? "Before the first step." : "It has ended.") : step.skipped ? "This step cannot happen here." : current > breaks && key === "mended" ? "It goes on, and all is well." : step.lines.join("; ");
    });
    back.disabled = current < 0;
    next.disabled = current >= rows - 1;
    playPrinted.href = playAddress(printed.data.text, current + 1);
    setAddress("trap", where());
    if (current >= 0) say(verdicts.map((verdict) => verdict.textContent).join(". "));
  }

  const back = h("button", { "data-do": "previous-step", onclick: () => goTo(current - 1) }, "← Previous (P)");
  const next = h("button", { class: "primary", "data-do": "next-step", onclick: () => goTo(current + 1) }, "Next (N) →");
  const playPrinted = h("a", { class: "button" }, "Play as printed");
  container.append(
    h("p", { class: "tools" }, back, next, h("button", { "data-do": "to-violation", onclick: () => goTo(breaks) }, "To the violation (V)"), h("span", { class: "spring" }), copyLink(where),
      !isStatic && playPrinted, !isStatic && h("a", { class: "button", href: playAddress(mended.data.text, 0) }, "Play mended")),
    h("div", { class: "rows", tabindex: "0", role: "group", "aria-label": "Steps of both sides" }, h("table", { class: "lockstep" },
      h("caption", {}, "The same steps on both sides; what the mended protocol does not let happen is left out there."),
      h("thead", {}, h("tr", {}, ["Step", "As printed", "Mended"].map((text) => h("th", { scope: "col" }, text)))), body)),
    h("div", { class: "sides" }, sides.map(({ player }, side) => h("div", { class: "side" }, verdicts[side], player.element))));
  leading = true;
  sides.forEach(({ player, trace }) => player.setTrace(trace));
  goTo(/^\d+$/.test(params.at) ? Number(params.at) : -1);
  return {
    players: sides.map(({ player }) => player),
    steps: rows,
    get step() { return current; },
    onKey: (event) => {
      const keys = { n: 1, p: -1, ArrowRight: 1, ArrowLeft: -1 };
      if (event.key in keys) return goTo(current + keys[event.key]), true;
      if (event.key === "v") return goTo(breaks), true;
      if (event.key === "Home") return goTo(-1), true;
      if (event.key === "End") return goTo(rows - 1), true;
      if (["+", "=", "-", "0"].includes(event.key)) mended.player.onKey(event);
      return printed.player.onKey(event);
    },
  };
}

/** Traps about time: two simulated runs of one seed, at the same moment. */
function runs(container, document, { params, setAddress }, trap) {
  const sides = [["printed", "As printed"], ["mended", "Mended"]].map(([key, title]) => {
    const data = document[key], trace = new Trace(data), player = new Player({ compact: true, name: title, label: `${title}: space-time diagram` });
    return { key, title, data, trace, player, worst: worstOf(trace) };
  });
  const [printed] = sides, players = sides.map(({ player }) => player);
  let place = {};
  const where = () => ({ id: trap.id, ...place });
  const toWorst = () => players[0].go(printed.worst.at);
  container.append(
    h("p", { class: "tools" }, h("button", { class: "primary", "data-do": "to-violation", onclick: toWorst }, `To ${printed.worst.what} as printed (V)`), h("span", { class: "spring" }), copyLink(where)),
    h("div", { class: "sides" }, sides.map(({ key, title, data, player, worst }) => h("section", { class: "side" },
      h("div", { class: `verdict ${key} ${worst.isViolation ? "alarm" : ""}` }, h("h2", {}, title), h("p", {}, worst.text)),
      h("p", { class: "command" }, h("code", {}, data.command)), player.element))));
  sides.forEach(({ player, trace, worst }) => {
    player.setTrace(trace);
    player.diagram.marks = worst.marks;
  });
  linkByTime(players, (now) => { place = now; setAddress("trap", where()); });
  if (params.at === undefined) toWorst();
  else players[params.side === "2" ? 1 : 0].place = { at: params.at };
  return { players, steps: 0, onKey: (event) => (event.key === "v" ? (toWorst(), true) : players[0].onKey(event)) };
}

/** What is worst in a run, and where: a violation, or else the request that waited longest, with where it asked and entered. */
function worstOf(trace) {
  const violation = trace.firstViolation();
  if (violation >= 0) return { at: violation, isViolation: true, what: "the violation", text: `VIOLATION: ${trace.events[violation].text}`, marks: [] };
  const waits = trace.waits(), most = Math.max(0, ...waits.map((wait) => wait.overtaken));
  const longest = waits.reduce((best, wait) => (wait.time > best.time ? wait : best), waits[0]);
  const overtaken = waits.find((wait) => wait.overtaken === most);
  const T = (time) => `${+(time / trace.scale.tick).toPrecision(3)} T`;
  return {
    at: overtaken.entered, isViolation: false, what: "the request that was overtaken most",
    text: `No two are inside at once. The request of ${overtaken.node} at ${trace.time(overtaken.asked)} was overtaken ${most} times, more than any other, and waited ${T(overtaken.time)}; the longest wait is ${T(longest.time)}.`,
    marks: [{ index: overtaken.asked, text: `${overtaken.node} asks` }, { index: overtaken.entered, text: `and enters, after ${most} others` }],
  };
}
