// Forms whose fields are the words of a run or an exploration.

import { encode } from "./api.js";
import { fill, h } from "./dom.js";

export const LOADS = [["saturated", "saturated: everybody, all the time"], ["light", "light: one at a time"], ["0.1", "0.1 requests per T"], ["0.5", "0.5 requests per T"], ["hotspot:0.9", "hotspot: mostly the lowest node"]];
export const LATENCIES = [["1ms", "always 1 ms"], ["1ms..3ms", "1 to 3 ms, evenly"], ["exp:1ms", "exponential, 1 ms on average"]];
export const FAULTS = [["", "none"], ["loss:0.05", "5% of messages lost"], ["dup:0.1", "10% of messages twice"], ["crash:1,restart:1", "a crash and a restart"], ["pause:1@3ms..20ms", "node 1 pauses"], ["partition:1@5ms..20ms", "node 1 is cut off"], ["join:1", "a node joins"], ["leave:1", "a node leaves"]];

/** A field with a label. */
export function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
}

/** A text field with suggestions. */
export function suggest(id, name, value, choices) {
  return [
    h("input", { name, value: value ?? "", list: id, autocomplete: "off", spellcheck: "false", size: "10" }),
    h("datalist", { id }, choices.map(([value, label]) => h("option", { value }, label))),
  ];
}

export function protocolSelect(about, value, name = "protocol") {
  return h("select", { name }, about.protocols.map((protocol) => h("option", { value: protocol.name, selected: protocol.name === value }, protocol.title)));
}

/** The options of a protocol, each with its values; the rest as words. `own` are the keys that are no options. */
export function optionFields(about, params, own) {
  const box = h("div", { class: "options" });
  const show = (name) => {
    const protocol = about.protocols.find((one) => one.name === name);
    const known = new Set(protocol?.options.map(({ key }) => key));
    const rest = Object.entries(params).filter(([key]) => !own.includes(key) && !known.has(key)).map(([key, value]) => `${key}=${value}`);
    fill(box,
      h("p", { class: "about" }, protocol?.about),
      protocol?.options.map(({ key, values }) => {
        const given = params[key], all = given && !values.includes(given) ? [...values, given] : values;
        return field(key, h("select", { name: key }, h("option", { value: "" }, "default"), all.map((value) => h("option", { value, selected: value === given }, value))));
      }),
      field("Other options", h("input", { name: "other", value: rest.join(" "), placeholder: "names=5,17,3", spellcheck: "false", autocomplete: "off" }), "key=value, separated by spaces"));
  };
  show(params.protocol ?? about.protocols[0].name);
  return { box, show };
}

/** What a form says, without what is empty or unchanged. */
export function read(form, defaults = {}) {
  const params = {};
  for (const [key, value] of new FormData(form)) {
    const text = String(value).trim();
    if (!text || (text === String(defaults[key] ?? "") && key !== "protocol")) continue;
    if (key === "other") for (const word of text.split(/\s+/)) { const [name, rest] = word.split(/=(.*)/s); params[name] = rest ?? ""; }
    else params[key] = text;
  }
  return params;
}

/** A link to copy, and others that show the same in another form. */
export function address(name, params) {
  const query = encode(params);
  return `${location.origin}${location.pathname}#${name}${query ? `?${query}` : ""}`;
}
