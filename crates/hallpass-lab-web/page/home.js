// The first page.

import { fill, h } from "./dom.js";

export async function open({ container, about }) {
  const card = (href, title, text, extra) => h("a", { class: "card tile", href }, h("h3", {}, title), h("p", {}, text), extra);
  fill(container,
    h("section", { class: "hero" },
      h("h1", {}, "How do processes agree who goes first, with nothing but messages?"),
      h("p", {}, "Twelve algorithms, as the papers have them, running here. See each message, step back and forth, break them with the papers' own errors, and measure which one fits your group."),
      h("p", { class: "tools" },
        h("a", { class: "button primary", href: "#tour?name=ricart-agrawala-figure-1" }, "Start with Ricart and Agrawala's Figure 1"),
        h("a", { class: "button", href: "#play" }, "Play"))),
    h("h2", {}, "Guided tours"),
    h("div", { class: "tiles" }, about.tours.map((tour) => card(`#tour?name=${tour.name}`, tour.title, tour.about))),
    h("h2", {}, "See, break, compare"),
    h("div", { class: "tiles" },
      card("#run", "Run", "Choose a protocol, a group, a load and what goes wrong; watch it, message by message."),
      card("#play", "Play", "You are the network: every next step is a button. Try to let two inside."),
      card("#trap", "Thirty traps", "Where the printed text breaks: as printed and mended, side by side."),
      card("#compare", "Compare", "Two protocols on one load; all of them over group sizes; and a calculator for your own group."),
      card("#check", "Explore", "Every order of messages there is, and the shortest way to a violation."),
      card("#views", "Views", "Whole nodes with sessions: a partition, a pause, a crash, and who may enter when.")),
    h("h2", {}, "Protocols"),
    h("div", { class: "tiles small" }, about.protocols.map((protocol) => card(`#run?protocol=${protocol.name}`, protocol.title, protocol.about))),
    h("h2", {}, "All scenarios"),
    h("p", {}, "Small text files in which every step and its outcome is written down; the tests play all of them."),
    h("ul", { class: "columns" }, about.scenarios.map((scenario) => h("li", {}, h("a", { href: `#scenario?name=${scenario.name}` }, scenario.title)))),
    h("p", { class: "foot" }, `hallpass ${about.version}`));
  return {};
}
