// Forms whose fields are the words of a run or an exploration.

import { encode } from "./api.js";
import { fill, h } from "./dom.js";

const ORDERS = [["any", "any: messages overtake"], ["fifo", "fifo: links keep order"]];

/** A field with a label. */
export function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
}

/** A text field with suggestions. */
function suggest(name, value, choices) {
  const list = `list-${name}`;
  return [
    h("input", { name, value, list, placeholder: name === "hold" ? "T" : undefined, autocomplete: "off", spellcheck: "false", size: "10" }),
    h("datalist", { id: list }, choices.map(([value, label]) => h("option", { value }, label))),
  ];
}

/** The words of a run's settings. */
export const settingKeys = (about) => about.settings.map(({ key }) => key);

/** Their defaults. Which order of messages is one depends on the protocol, so that is left out. */
export const settingDefaults = (about) => Object.fromEntries(about.settings.filter(({ default: value, kind }) => value !== "" && kind !== "choice").map(({ key, default: value }) => [key, value]));

/** The field of a setting of a run. `given` may have another `max`, `default` or `hint`, and a `button` beside the input. */
export function settingField(about, params, key, given = {}) {
  if (key === "order") return orderField(params);
  const { label, kind, choices, ...usual } = about.settings.find((setting) => setting.key === key);
  const { max, hint, default: otherwise } = { ...usual, ...given };
  const value = String(params[key] ?? otherwise);
  const limits = kind === "fraction" ? { min: "0", max: "1", step: "0.05" } : { min: key === "seed" ? "0" : "1", max: String(max) };
  const input = kind === "text" ? suggest(key, value, choices) : h("input", { type: "number", name: key, ...limits, value });
  return field(label, given.button ? h("span", { class: "joined" }, input, given.button) : input, hint);
}

export function protocolSelect(about, value, name = "protocol") {
  return h("select", { name }, about.protocols.map((protocol) => h("option", { value: protocol.name, selected: protocol.name === value }, protocol.title)));
}

/** The order of messages. */
export function orderField(params) {
  return field("Order", h("select", { name: "order" }, ORDERS.map(([order, label]) => h("option", { value: order, selected: order === (params.order ?? "any") }, label))));
}

const protocolOf = (about, name) => about.protocols.find((one) => one.name === name);

/** The order of messages if nothing is said: some protocols are for links that keep it, unless they are told otherwise. */
export const orderOf = (about, { protocol, links }) => (links === "any" ? "any" : protocolOf(about, protocol)?.order ?? "any");

/** Says the order where it is not the usual one: the server knows only that. */
export function withOrder(params, about) {
  if (orderOf(about, params) !== "any") params.order ??= orderOf(about, params);
}

/**
 * The options of a protocol, each with its values; the rest as words. `own` are the keys that are no options.
 * `follow` keeps the form in step with what is chosen in it.
 */
export function optionFields(about, params, own) {
  const box = h("div", { class: "options" });
  const given = protocolOf(about, params.protocol), names = new Set(given?.options.map(({ key }) => key));
  const rest = Object.entries(params).filter(([key]) => !own.includes(key) && !names.has(key)).map(([key, value]) => `${key}=${value}`);
  const show = (protocol) => {
    // What was chosen for one protocol means nothing to another.
    const chosen = (key) => (protocol === given ? params[key] : undefined);
    fill(box,
      h("p", { class: "about" }, protocol?.about),
      protocol?.options.map(({ key, values }) => {
        const value = chosen(key), all = value && !values.includes(value) ? [...values, value] : values;
        return field(key, h("select", { name: key }, h("option", { value: "" }, "default"), all.map((one) => h("option", { value: one, selected: one === value }, one))));
      }),
      field("Other options", h("input", { name: "other", value: protocol === given ? rest.join(" ") : "", placeholder: "names=5,17,3", spellcheck: "false", autocomplete: "off" }), "key=value, separated by spaces"));
  };
  show(given);
  return { box, follow: (form, select) => follow(form, select, about, show) };
}

function follow(form, select, about, show) {
  const offer = () => {
    const list = form.querySelector("#list-faults");
    if (list) fill(list, protocolOf(about, select.value).faults.map(({ value, label }) => h("option", { value }, label)));
  };
  select.addEventListener("change", () => {
    const protocol = protocolOf(about, select.value);
    show(protocol);
    form.elements.order.value = protocol.order;
    offer();
  });
  // Some choices are refused without another one, which is chosen with them.
  form.addEventListener("change", ({ target }) => {
    const protocol = protocolOf(about, select.value);
    const word = target.name === "faults" ? protocol.faults.find(({ value }) => value === target.value)?.needs : protocol.options.find(({ key }) => key === target.name)?.needs[target.value];
    if (word) choose(form, word);
  });
  offer();
}

/** Makes a form say a word such as `membership=classic`. */
function choose(form, word) {
  const [key, value] = word.split(/=(.*)/s);
  // Play takes the nodes' own numbers, too.
  const nodes = form.elements.nodes.value.trim().split(/\s+/), count = nodes.length > 1 ? nodes.length : Number(nodes[0]) || 1;
  const text = value === "1..N" ? Array.from({ length: count }, (_, i) => i + 1).join(",") : value;
  const control = form.elements[key];
  if (control) {
    control.value = text;
    control.closest("details")?.setAttribute("open", "");
  } else if (!form.elements.other.value.includes(`${key}=`)) {
    form.elements.other.value = `${form.elements.other.value} ${key}=${text}`.trim();
  }
}

/** What a form says, without what is empty or a default; `about` knows which order of messages is one. */
export function read(form, { about, ...defaults } = {}) {
  const params = {}, data = new FormData(form);
  if (about) defaults.order = orderOf(about, Object.fromEntries(data));
  for (const [key, value] of data) {
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
