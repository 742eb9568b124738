// The thirty traps: as printed and mended, side by side, in lockstep.

import { get, isStatic } from "./api.js";
import { fill, h, say } from "./dom.js";
import { playAddress } from "./play.js";
import { Player, linkByTime } from "./player.js";
import { Trace } from "./trace.js";

export async function open(context) {
  const { container, params, about } = context;
  const trap = about.traps.find((one) => one.id === params.id);
  if (!trap) return list(container, about);
  const heading = [
    h("p", { class: "crumbs" }, h("a", { href: "#trap" }, "Thirty traps"), " / ", trap.id, neighbours(about, trap)),
    h("h1", {}, `${trap.id}: ${trap.title}`),
    h("dl", { class: "trap-facts" },
      h("dt", {}, "Where"), h("dd", {}, trap.place),
      h("dt", {}, "What breaks"), h("dd", {}, trap.breaks),
      h("dt", {}, "Instead"), h("dd", {}, trap.instead)),
  ];
  if (trap.how === "told") {
    fill(container, heading, h("p", { class: "notice" }, h("b", {}, "It cannot be put back here. "), trap.why));
    return {};
  }
  fill(container, heading, h("p", { class: "wait" }, "Exploring every order of events as printed, for the shortest way to the violation"));
  const abort = new AbortController();
  const document = await get("trap", { id: trap.id }, abort.signal);
  container.querySelector(".wait").remove();
  const part = document.how === "explore" ? lockstep(container, document, context, trap) : runs(container, document, context, trap);
  return { ...part, destroy: () => { abort.abort(); part.players.forEach((player) => player.destroy()); } };
}

function neighbours(about, trap) {
  const at = about.traps.indexOf(trap);
  const link = (other, text) => other && h("a", { href: `#trap?id=${other.id}`, title: other.title }, text);
  return h("span", { class: "neighbours" }, link(about.traps[at - 1], `← ${about.traps[at - 1]?.id}`), " ", link(about.traps[at + 1], `${about.traps[at + 1]?.id} →`));
}

function list(container, about) {
  const how = { explore: "put back and explored", simulate: "two runs", told: "told" };
  fill(container,
    h("h1", {}, "Thirty traps"),
    h("p", {}, "A trap is a place where a paper's printed text, followed to the letter, breaks: two nodes are inside at once, somebody waits for ever, or a stated bound does not hold."),
    h("div", { class: "table-box", tabindex: "0" }, h("table", { class: "traps" },
      h("thead", {}, h("tr", {}, ["Trap", "Where", "What breaks", "Here"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, about.traps.map((trap) => h("tr", {},
        h("th", { scope: "row" }, h("a", { href: `#trap?id=${trap.id}` }, `${trap.id} ${trap.title}`)), h("td", {}, trap.place), h("td", {}, trap.breaks),
        h("td", {}, h("span", { class: `tag ${trap.how}` }, how[trap.how]))))))));
  return {};
}

/** Both sides take the same steps, as far as the mended one lets them. */
function lockstep(container, document, { params, setAddress }, trap) {
  const sides = [["printed", "As printed"], ["mended", "Mended"]].map(([key, title]) => {
    const data = document[key];
    const player = new Player({ compact: true, name: title, label: `${title}: space-time diagram` });
    return { key, title, data, player, trace: new Trace(data) };
  });
  const [printed, mended] = sides;
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
  const verdicts = sides.map(({ key, title, data }) => h("div", { class: `verdict ${key}` }, h("h2", {}, title), h("p", {})));

  function goTo(step) {
    current = Math.max(-1, Math.min(rows - 1, step));
    for (const { player, data } of sides) {
      // A side that has no such step, or left it out, stays where it was.
      let at = -1;
      for (let i = 0; i <= current && i < data.steps.length; i++) if (data.steps[i].events[1] > data.steps[i].events[0]) at = data.steps[i].events[1] - 1;
      player.pause();
      player.go(at);
    }
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
    setAddress("trap", { ...params, at: current < 0 ? undefined : current });
    if (current >= 0) say(verdicts.map((verdict) => verdict.textContent).join(". "));
  }

  const back = h("button", { "data-do": "previous-step", onclick: () => goTo(current - 1) }, "← Previous (P)");
  const next = h("button", { class: "primary", "data-do": "next-step", onclick: () => goTo(current + 1) }, "Next (N) →");
  container.append(
    h("p", { class: "tools" }, back, next, h("button", { "data-do": "to-violation", onclick: () => goTo(breaks) }, "To the violation (V)"), h("span", { class: "spring" }),
      !isStatic && h("a", { class: "button", href: playAddress(printed.data.text, trap.id) }, "Play as printed"), !isStatic && h("a", { class: "button", href: playAddress(headOf(mended.data.text), trap.id) }, "Play mended")),
    h("div", { class: "rows", tabindex: "0", role: "group", "aria-label": "Steps of both sides" }, h("table", { class: "lockstep" },
      h("caption", {}, "The same steps on both sides; what the mended protocol does not let happen is left out there."),
      h("thead", {}, h("tr", {}, ["Step", "As printed", "Mended"].map((text) => h("th", { scope: "col" }, text)))), body)),
    h("div", { class: "sides" }, sides.map(({ player }, side) => h("div", { class: "side" }, verdicts[side], player.element))));
  sides.forEach(({ player, trace }) => player.setTrace(trace));
  goTo(params.at === undefined ? -1 : Number(params.at));
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
      return false;
    },
  };
}

/** A scenario without its steps. */
const headOf = (text) => text.split("\n").filter((line) => /^(title|protocol|nodes|order|holders|faults) /.test(line)).join("\n") + "\n";

/** Traps about time: two simulated runs of one seed, at the same moment. */
function runs(container, document) {
  const players = [["printed", "As printed"], ["mended", "Mended"]].map(([key, title]) => {
    const data = document[key], trace = new Trace(data), player = new Player({ compact: true, name: title, label: `${title}: space-time diagram` });
    const violation = data.report.violations[0];
    container.append(h("section", { class: "side" },
      h("div", { class: `verdict ${key} ${violation ? "alarm" : ""}` }, h("h2", {}, title), h("p", {}, violation ? `VIOLATION: ${violation}` : `No violation; a request was overtaken at most ${data.report.max_overtakes} times.`)),
      h("p", { class: "command" }, h("code", {}, data.command)), player.element));
    player.setTrace(trace);
    return player;
  });
  linkByTime(players);
  players[0].go(players[0].trace.firstViolation());
  return { players, steps: 0, onKey: (event) => players[0].onKey(event) };
}
