// Play: every next step of the model is a button, and the oracles watch.

import { play } from "./api.js";
import { copy, download, fill, h, plural, say } from "./dom.js";
import { address, field, optionFields, orderField, protocolSelect, read, withOrder } from "./form.js";
import { Player } from "./player.js";
import { Trace } from "./trace.js";

/** The most nodes of a game: each has buttons of its own. */
export const NODES_MAX = 32;
/** The most steps of a game. */
export const STEPS_MAX = 2000;
const OWN = ["protocol", "nodes", "order", "holders", "faults", "do", "title"];
const SETTINGS = /^(title|protocol|nodes|order|holders|faults) (.*)$/;
const GROUPS = [
  ["deliver", "Deliver a message"], ["ask", "Somebody asks"], ["try", "Somebody tries"], ["exit", "Somebody leaves"], ["tick", "Time passes"], ["timeout", "A timer fires"],
  ["reenter", "The next caller follows"], ["downgrade", "A writer reads on"], ["upgrade", "A reader asks to be alone"], ["cancel", "Somebody gives up"], ["give-back", "The unused lock goes back"], ["lose", "Lose a message"], ["repeat", "Deliver a message twice"], ["crash", "A node crashes"], ["restart", "A node comes back"],
  ["join", "A node joins"], ["leave", "A node goes for good"], ["forget", "A node forgets the idle lock"],
];
const RARE = new Set(["lose", "repeat", "crash", "restart", "join", "leave", "forget"]);

/** A link to Play with the first `count` steps of a scenario. */
export function playAddress(text, count = Infinity) {
  const params = {};
  const commands = [];
  const lines = text.split("\n");
  lines.forEach((line, i) => {
    const setting = SETTINGS.exec(line);
    if (setting && !commands.length && lines[i + 1] !== "----") params[setting[1]] = setting[2];
    else if (lines[i + 1]?.startsWith("----") && !/^(network|explore|simulate)\b/.test(line)) commands.push(line.trim());
  });
  const [protocol, ...options] = (params.protocol ?? "").split(" ");
  const query = { protocol, nodes: params.nodes, order: params.order, holders: params.holders, faults: params.faults };
  for (const option of options) {
    const [key, value] = option.split(/=(.*)/s);
    query[key] = value;
  }
  query.do = commands.slice(0, count).join(";");
  return address("play", query).slice(location.origin.length + location.pathname.length);
}

function scenarioOf(params, commands) {
  const options = Object.entries(params).filter(([key]) => !OWN.includes(key)).map(([key, value]) => ` ${key}=${value}`).join("");
  const nodes = /^\d+$/.test(params.nodes) ? Array.from({ length: Number(params.nodes) }, (_, i) => i + 1).join(" ") : params.nodes;
  let text = `title ${params.title ?? "Played by hand"}\nprotocol ${params.protocol}${options}\nnodes ${nodes}\n`;
  for (const key of ["order", "holders", "faults"]) if (params[key]) text += `${key} ${params[key]}\n`;
  return text + commands.map((command) => `\n${command}\n----\n`).join("");
}

export async function open({ container, params: { at, ...params }, about, signal, setAddress, go }) {
  params.protocol ??= "ricart-agrawala";
  params.nodes ??= "3";
  withOrder(params, about);
  let commands = (params.do ?? "").split(";").map((command) => command.trim()).filter(Boolean);
  let document, trace, busy = false;
  const player = new Player({ onCursor: () => { showChoices(); setAddress("play", here()); }, label: "Space-time diagram of the steps so far" });
  const choices = h("section", { class: "card choices", "aria-label": "Next steps" });
  const watch = h("p", { class: "watch", role: "status" });
  const undo = h("button", { "data-do": "undo", onclick: () => take(commands.slice(0, -1)) }, "Undo (Z)");
  const restart = h("button", { "data-do": "restart-play", onclick: () => take([]) }, "Start again");
  const random = h("button", { "data-do": "random-step", title: "A step that must happen sooner or later, at random", onclick: () => lucky() }, "Any step (R)");
  const link = h("button", { onclick: () => copy(address("play", here()), link) }, "Copy link");
  const file = h("button", { "data-do": "export", title: "A scenario file that the tests can run: hallpass lab trace --scenario FILE", onclick: () => download("played.txt", document.text) }, "Scenario file");

  const isBack = () => player.cursor < trace.length - 1;
  const here = () => ({ ...params, do: commands.length ? commands.join(";") : undefined, at: isBack() ? player.cursor : undefined });
  /** How many steps have begun at the cursor. */
  const begun = () => 1 + document.steps.findLastIndex(({ events: [from, to] }) => from < to && from <= player.cursor);

  async function take(wanted) {
    if (busy) return;
    busy = true;
    try {
      if (/^\d+$/.test(params.nodes) && !(params.nodes >= 1 && params.nodes <= NODES_MAX)) throw new Error(`A game has 1 to ${NODES_MAX} nodes, not ${params.nodes}.`);
      const answer = await play(scenarioOf(params, wanted), signal);
      commands = wanted;
      document = answer;
      const first = !trace;
      trace = new Trace(answer);
      player.setTrace(trace, trace.length - 1, !first);
      show();
    } catch (error) {
      if (signal.aborted) return;
      watch.className = "watch notice alarm";
      watch.textContent = error.message;
      if (!document) board.remove();
    } finally {
      busy = false;
    }
  }

  function lucky() {
    if (!document || isBack()) return;
    const must = document.next.filter((choice) => choice.must), list = must.length ? must : document.next.filter((choice) => choice.kind === "ask");
    if (list.length) take([...commands, list[Math.floor(Math.random() * list.length)].command]);
  }

  function show() {
    const waits = !document.next.some((choice) => choice.must) && document.violation;
    watch.className = document.violation ? "watch notice alarm" : "watch notice good";
    watch.textContent = document.violation
      ? `The oracles object: ${document.violation}${waits && !/inside|entered|fence/.test(document.violation) ? " (nothing is left that must happen)" : ""}`
      : commands.length ? `${plural(commands.length, "step")}: exclusion holds, fences rise, nobody is forgotten.` : "You are the network and the callers. Let somebody ask.";
    undo.disabled = restart.disabled = !commands.length;
    say(watch.textContent);
  }

  /** The buttons are those of the last step: from an earlier one the game goes on when somebody says so. */
  function showChoices() {
    random.disabled = isBack() || !document.next.length;
    if (isBack()) return showWayOn();
    fill(choices, h("h2", {}, "What happens next?"), GROUPS.map(([kind, title]) => {
      const list = document.next.filter((choice) => choice.kind === kind);
      if (!list.length) return null;
      const buttons = list.slice(0, 60).map((choice) => h("button", {
        class: `choice ${choice.kind} ${choice.message ? `k${trace.colour(choice.message[2].split("(")[0])}` : ""}`,
        "data-command": choice.command, "data-keep": choice.command, title: choice.command,
        onclick: () => take([...commands, choice.command]),
        onpointerenter: () => highlight(choice), onfocus: () => highlight(choice), onpointerleave: () => player.diagram.select(-1),
      }, caption(choice)));
      const content = [h("h3", {}, title), h("div", { class: "buttons" }, buttons, list.length > 60 && ` and ${list.length - 60} more`)];
      return RARE.has(kind) ? h("details", { "data-kind": kind, open: opened.has(kind), ontoggle: (event) => (event.target.open ? opened.add(kind) : opened.delete(kind)) }, h("summary", {}, `${title} (${list.length})`), content[1]) : h("div", {}, content);
    }));
    if (!document.next.length) choices.append(h("p", {}, "Nothing can happen any more."));
  }

  function showWayOn() {
    const count = begun(), later = commands.length - count;
    fill(choices, h("h2", {}, `After step ${count} of ${commands.length}`),
      h("p", {}, later ? `${plural(later, "later step")} ${later === 1 ? "was" : "were"} taken.` : "This is in the middle of the last step."),
      h("div", { class: "buttons" },
        later > 0 && h("button", { class: "choice primary", "data-do": "go-on", "data-keep": "go-on", title: "The later steps are taken back", onclick: () => take(commands.slice(0, count)) }, "Go on from here"),
        h("button", { class: "choice", "data-keep": "end", onclick: () => player.go(trace.length - 1) }, "To the last step")));
  }

  const opened = new Set();

  /** Marks the message in the diagram that a button is about. */
  function highlight(choice) {
    if (!choice.message) return;
    const [from, to, text] = choice.message;
    for (let i = trace.length - 1; i >= 0; i--) {
      const event = trace.events[i];
      if (event.event === "send" && event.node === from && event.to === to && event.message === text && trace.endsAt[i] < 0) return player.diagram.select(i);
    }
  }

  const board = h("div", {},
    h("p", { class: "tools" }, undo, restart, random, h("span", { class: "spring" }), link, file),
    h("div", { class: "with-steps play-board" }, choices, player.element));
  fill(container, h("h1", { class: "unseen" }, "Play"), setup(params, about, (wanted) => go("play", wanted)), watch, board);
  await take(commands);
  if (document) player.place = { at };
  return {
    destroy: () => player.destroy(),
    player,
    get document() { return document; },
    get commands() { return commands; },
    onKey: (event) => {
      if (event.key === "z") return undo.click(), true;
      if (event.key === "r") return lucky(), true;
      return player.onKey(event);
    },
  };
}

function caption(choice) {
  if (choice.message) return `${choice.message[0]} → ${choice.message[1]} ${choice.message[2]}`;
  const rest = choice.command.split(" ").slice(1).join(" ");
  const wants = (verb) => `${rest.replace("shared", "to read")} ${verb}`.replace(new RegExp(`^(\\d+) (.*) ${verb}$`), `$1 ${verb} $2`);
  return { ask: wants("asks"), try: wants("tries"), exit: `${rest} leaves`, cancel: `${rest} gives up`, tick: "one slot", crash: `${rest} crashes`, restart: `${rest} restarts`, join: `${rest} joins`, leave: `${rest} leaves the group`, forget: `${rest} forgets`, reenter: `the next one on ${rest}`, downgrade: `${rest} reads on`, upgrade: `${rest} asks to be alone`, "give-back": `${rest} gives back` }[choice.kind] ?? rest;
}

function setup(params, about, onStart) {
  const options = optionFields(about, params, OWN);
  const select = protocolSelect(about, params.protocol);
  const form = h("form", { class: "choose", onsubmit: (event) => { event.preventDefault(); onStart(read(form, { about })); } },
    h("div", { class: "fields" },
      field("Protocol", select),
      field("Nodes", h("input", { name: "nodes", value: params.nodes, size: "8", pattern: "\\d+( \\d+)*", title: "How many, or their numbers: 5 17 3" })),
      orderField(params),
      h("button", { class: "primary", type: "submit" }, "New game")),
    h("details", {}, h("summary", {}, "Options"), options.box,
      h("div", { class: "fields" },
        field("Inside at the start", h("input", { name: "holders", value: params.holders ?? "", placeholder: "1,3:shared", size: "10" })),
        field("Faults", h("input", { name: "faults", value: params.faults ?? "", placeholder: "all that it bears", size: "12" }), "none, or loss,crash"))));
  options.follow(form, select);
  return form;
}
