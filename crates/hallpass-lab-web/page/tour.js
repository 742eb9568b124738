// Guided tours and scenarios: a list of steps, each with a sentence, beside the run.

import { get, isStatic } from "./api.js";
import { copy, download, fill, h, say } from "./dom.js";
import { address } from "./form.js";
import { Player } from "./player.js";
import { playAddress } from "./play.js";
import { Trace } from "./trace.js";

export async function open(context) {
  const { container, name, params, about } = context;
  if (!params.name) return list(container, about);
  const document = await get("scenario", { name: params.name }, context.signal);
  return show(context, document, name);
}

function list(container, about) {
  fill(container,
    h("h1", {}, "Guided tours"),
    h("p", {}, "The papers' figures and worked examples, one step at a time."),
    h("div", { class: "tiles" }, about.tours.map((tour) => h("a", { class: "card tile", href: `#tour?name=${tour.name}` }, h("h3", {}, tour.title), h("p", {}, tour.about)))),
    h("h2", {}, "All scenarios"),
    h("ul", { class: "columns" }, about.scenarios.map((scenario) => h("li", {}, h("a", { href: `#scenario?name=${scenario.name}` }, scenario.title)))));
  return {};
}

function show({ container, params, about, setAddress }, document, part) {
  const trace = new Trace(document);
  const scenario = about.scenarios.find((one) => one.name === params.name);
  // What lists messages shows nothing that the page does not show anyway.
  const steps = document.steps.filter((step) => step.command !== "network");
  // What only explores has outcomes, and a drawing of the first violation, but no steps of its own.
  const stops = steps.map((step) => (document.has_steps && step.events[1] > step.events[0] ? step.events[1] - 1 : -2));
  let current = -1;
  const player = new Player({ onCursor, label: `Space-time diagram of ${scenario?.title}` });
  const sentence = h("p", { class: "sentence", role: "status" });
  const list = h("ol", { class: "steps" });
  const items = steps.map((step, i) => {
    const item = h("li", {}, h("button", { class: "link", onclick: () => goTo(i) }, step.comment ? h("span", {}, step.comment) : h("code", {}, step.command)),
      !document.has_steps || stops[i] === -2 ? h("pre", {}, step.lines.join("\n")) : null);
    list.append(item);
    return item;
  });
  const back = h("button", { "data-do": "previous-step", onclick: () => goTo(current - 1) }, "← Previous (P)");
  const next = h("button", { class: "primary", "data-do": "next-step", onclick: () => goTo(current + 1) }, "Next (N) →");
  const linkButton = h("button", { onclick: () => copy(address(part, { name: params.name, ...player.place }), linkButton) }, "Copy link");
  const playOn = h("a", { class: "button", "data-do": "play-on" }, "Play on from here");

  function goTo(step) {
    current = Math.max(-1, Math.min(steps.length - 1, step));
    player.pause();
    if (current < 0) player.go(-1);
    else if (stops[current] >= 0) player.go(stops[current]);
    mark();
    const text = steps[current]?.comment;
    if (text) say(text);
  }

  function onCursor(cursor) {
    if (document.has_steps) {
      // The step whose events hold the cursor.
      const found = steps.findIndex((step) => cursor >= step.events[0] && cursor < step.events[1]);
      if (found >= 0) current = found;
      else if (cursor < 0) current = -1;
      mark();
    }
    setAddress(part, { name: params.name, ...player.place });
  }

  function mark() {
    items.forEach((item, i) => {
      item.classList.toggle("now", i === current);
      item.classList.toggle("later", i > current && document.has_steps);
      if (i === current) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
    });
    const step = steps[current];
    sentence.textContent = step ? step.comment || step.lines.join("; ") : scenario?.about ?? "";
    if (step) {
      const top = items[current].offsetTop - list.offsetTop;
      if (top < list.scrollTop || top > list.scrollTop + list.clientHeight - 60) list.scrollTop = top - list.clientHeight / 3;
    }
    back.disabled = current < 0;
    next.disabled = current >= steps.length - 1;
    playOn.href = playAddress(document.text, current + 1);
  }

  fill(container,
    h("h1", {}, trace.title),
    sentence,
    h("p", { class: "tools" }, back, next, h("span", { class: "spring" }), linkButton,
      h("button", { onclick: () => download(`${params.name}.txt`, document.text) }, "Scenario file"),
      !isStatic && document.has_steps && playOn),
    h("div", { class: "with-steps" }, list, player.element));
  player.setTrace(trace, -1);
  player.place = params;
  mark();
  return {
    destroy: () => player.destroy(),
    onKey: (event) => {
      if (event.key === "n" || event.key === "p") {
        goTo(current + (event.key === "n" ? 1 : -1));
        return true;
      }
      return player.onKey(event);
    },
    player,
    get step() { return current; },
    steps: steps.length,
  };
}
