// A run with everything around its diagram: controls, the lock, the nodes' variables, one event explained.

import { Diagram } from "./diagram.js";
import { fill, grouped, h, plural, say } from "./dom.js";
import { words } from "./trace.js";

const SPEEDS = [0.5, 1, 2, 5, 20, 100, 1000];
/** More nodes than these are not shown side by side; those that are picked are. */
const COLUMNS_MAX = 8;

/**
 * Makes two players show the same moment of virtual time: whichever is moved, the other one follows. `onMove` gets where that is
 * in words for an address: the event, and the side if it is not the first that was moved.
 */
export function linkByTime(players, onMove) {
  let leading = false;
  players.forEach((player, side) => {
    player.onCursor = (cursor) => {
      const other = players[1 - side];
      if (leading || !other.trace) return;
      onMove({ at: cursor < 0 ? undefined : cursor, side: side && cursor >= 0 ? side + 1 : undefined });
      leading = true;
      const at = cursor < 0 ? -1 : player.trace.events[cursor].at, { events } = other.trace;
      let low = 0, high = events.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (events[middle].at <= at) low = middle + 1;
        else high = middle;
      }
      other.go(low - 1, { quiet: true });
      leading = false;
    };
  });
}

/** An event's number in an address; -1 if it is none. */
const number = (text) => (/^\d+$/.test(text ?? "") ? Number(text) : -1);

export class Player {
  /**
   * - `onCursor(index)`: the cursor has moved.
   * - `statesAt(events, signal)`: gets the nodes' variables after this many events, for runs that do not bring all of them.
   */
  constructor({ onCursor, statesAt, label, name, compact } = {}) {
    const of = (what) => (name ? `${name}: ${what}` : what);
    this.onCursor = onCursor ?? (() => {});
    this.statesAt = statesAt;
    this.cursor = -1;
    this.speed = 2;
    this.picked = [];
    this.selected = -1;
    this.diagram = new Diagram({ onPick: (pick) => this.onPick(pick), label });
    this.buildControls(of);
    this.lock = h("section", { class: "card lock", "aria-label": of("The lock at the cursor") });
    this.detail = h("section", { class: "card detail", "aria-label": of("The event at the cursor") });
    this.states = h("section", { class: "card states", "aria-label": of("The nodes' variables at the cursor"), tabindex: "0" });
    this.log = h("section", { class: "card log", "aria-label": of("Events around the cursor") });
    this.element = h(
      "div", { class: compact ? "player compact" : "player" },
      this.controls, this.diagram.element,
      h("div", { class: "panels" }, this.detail, this.lock, compact ? null : this.log, this.states),
    );
  }

  destroy() {
    this.pause();
    this.diagram.destroy();
    this.fetching?.abort();
  }

  buildControls(of) {
    const button = (name, label, title, action) => h("button", { "data-do": name, title, "aria-label": title, onclick: action }, label);
    this.playButton = button("play", "▶", "Play (space)", () => this.toggle());
    this.scrub = h("input", {
      type: "range", min: "-1", max: "0", value: "-1", class: "scrub", "aria-label": "Event",
      oninput: () => this.go(Number(this.scrub.value)),
    });
    this.position = h("output", { class: "position" });
    this.controls = h(
      "div", { class: "controls", role: "toolbar", "aria-label": of("Playback") },
      h("span", { class: "group" },
        button("first", "⇤", "To the start (Home)", () => this.go(-1)),
        button("back", "←", "One event back (←)", () => this.go(this.cursor - 1)),
        this.playButton,
        button("forward", "→", "One event forward (→)", () => this.go(this.cursor + 1)),
        button("last", "⇥", "To the end (End)", () => this.go(this.trace.length - 1))),
      this.scrub, this.position,
      h("label", { class: "speed" }, "Speed ", h("select", { "aria-label": "Events per second", onchange: (event) => (this.speed = Number(event.target.value)) },
        SPEEDS.map((speed) => h("option", { value: String(speed), selected: speed === this.speed }, `${speed}/s`)))),
      h("span", { class: "group" },
        button("zoom-out", "−", "Zoom out (−)", () => this.diagram.zoom(1 / 1.3)),
        button("zoom-in", "+", "Zoom in (+)", () => this.diagram.zoom(1.3)),
        button("fit", "Fit", "The whole run (0)", () => this.diagram.fit())),
    );
  }

  /** Shows a run; the cursor goes to `at`, by default before the first event. */
  setTrace(trace, at = -1, keepView = false) {
    this.trace = trace;
    this.picked = this.picked.filter((node) => trace.rows.has(node));
    this.scrub.max = String(trace.length - 1);
    this.hasVariables = !trace.hasAllStates || [...trace.changes.values()].some((list) => list.length);
    this.states.hidden = !this.hasVariables;
    if (!this.diagram.element.isConnected) requestAnimationFrame(() => this.diagram.trace === trace && (this.diagram.resize(), this.diagram.clamp(), this.diagram.redraw()));
    this.diagram.setTrace(trace, keepView);
    this.go(at, { quiet: true });
  }

  /** Where it is, in words for an address: the cursor, and the event that is explained if that is another one. */
  get place() {
    const name = (index) => (index < 0 ? undefined : index);
    return { at: name(this.cursor), event: this.selected === this.cursor ? undefined : name(this.selected) };
  }

  /** Goes where an address says. */
  set place({ at, event }) {
    if (at !== undefined) this.go(number(at), { quiet: true });
    const explained = number(event);
    if (explained >= 0 && explained < this.trace.length) this.explain(explained);
  }

  go(index, { quiet = false, select = true } = {}) {
    if (!this.trace) return;
    this.cursor = Math.max(-1, Math.min(this.trace.length - 1, index));
    if (select) {
      this.selected = this.cursor;
      this.diagram.selected = -1;
    }
    this.scrub.value = String(this.cursor);
    this.diagram.setCursor(this.cursor);
    const event = this.trace.events[this.cursor];
    this.scrub.setAttribute("aria-valuetext", event ? `${event.node} ${words(event)}` : "before the first event");
    this.position.textContent = event ? `${grouped(this.cursor + 1)} of ${grouped(this.trace.length)} · ${this.trace.time(this.cursor)}` : plural(this.trace.length, "event");
    if (this.playing && this.speed > 5 && performance.now() - (this.shown ?? 0) < 120) return;
    this.shown = performance.now();
    this.refresh();
    if (!quiet && event && !this.playing) say(`${event.node} ${words(event)}`);
    this.onCursor(this.cursor);
  }

  refresh() {
    this.showLock();
    this.showDetail();
    this.showStates();
    this.showLog();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.start();
  }

  start() {
    if (!this.trace?.length) return;
    if (this.cursor >= this.trace.length - 1) this.go(-1);
    this.playing = true;
    this.playButton.textContent = "❚❚";
    this.playButton.title = "Pause (space)";
    this.playButton.setAttribute("aria-label", "Pause (space)");
    let last = performance.now(), owed = 0;
    const step = (now) => {
      if (!this.playing) return;
      owed += ((now - last) / 1000) * this.speed;
      last = now;
      const steps = Math.floor(owed);
      if (steps > 0) {
        owed -= steps;
        this.go(this.cursor + steps);
      }
      if (this.cursor >= this.trace.length - 1 || this.stopAt?.(this.cursor)) this.pause();
      else this.timer = requestAnimationFrame(step);
    };
    this.timer = requestAnimationFrame(step);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.timer);
    this.playButton.textContent = "▶";
    this.playButton.title = "Play (space)";
    this.playButton.setAttribute("aria-label", "Play (space)");
    this.shown = 0;
    this.go(this.cursor);
  }

  onPick({ node, event, near }) {
    if (node !== undefined) {
      this.picked = this.picked.includes(node) ? this.picked.filter((other) => other !== node) : [...this.picked, node].slice(-COLUMNS_MAX);
      return this.showStates();
    }
    this.pause();
    if (event === undefined) return this.go(near);
    this.explain(event);
  }

  /** Explains an event without moving the cursor; a message is marked. */
  explain(index) {
    this.selected = index;
    const sent = this.trace.kindOf[index] >= 0 ? index : this.trace.sentAt[index];
    this.diagram.select(sent);
    this.showDetail();
    const event = this.trace.events[index];
    say(`${event.node} ${words(event)}`);
    this.onCursor(this.cursor);
  }

  // ---- panels ----

  link(index, text) {
    const event = this.trace.events[index];
    return h("button", { class: "link", onclick: () => { this.pause(); this.go(index); } }, text ?? `${event.node} ${words(event)}`);
  }

  showLock() {
    const { inside, waiting, underWay, underWayCount } = this.trace.lock(this.cursor);
    const who = ({ node, fence, shared }) => h("span", { class: `chip ${shared ? "shared" : "inside"}` }, `${node}`, fence !== undefined && h("small", {}, ` fence ${fence}`));
    const fences = this.trace.spans.flat().filter((span) => span.fence !== undefined && span.first <= this.cursor).map((span) => span.fence);
    fill(
      this.lock,
      h("h2", {}, "The lock"),
      h("dl", {},
        h("dt", {}, "Inside"), h("dd", { class: inside.length > 1 && inside.some((one) => !one.shared) ? "alarm" : "" }, inside.length ? inside.map(who) : "nobody"),
        h("dt", {}, "Waiting", h("small", {}, "in order of asking")), h("dd", {}, waiting.length ? waiting.slice(0, 24).map(({ node, since }) => h("button", { class: "chip waiting", title: "When it asked", onclick: () => this.go(since) }, String(node))) : "nobody", waiting.length > 24 && ` and ${waiting.length - 24} more`),
        h("dt", {}, "Last fence"), h("dd", {}, fences.length ? String(fences.reduce((a, b) => Math.max(a, b))) : "none yet"),
        h("dt", {}, "Under way"), h("dd", {}, underWayCount ? [underWay.slice(-12).map((i) => {
          const event = this.trace.events[i];
          return h("button", { class: `message k${this.trace.colourOf[i]}`, onclick: () => this.explain(i) }, `${event.node} → ${event.to} ${event.message}`);
        }), underWayCount > 12 && h("span", {}, ` and ${grouped(underWayCount - 12)} more`)] : "no message")),
    );
  }

  showDetail() {
    const index = this.selected, { trace } = this;
    if (index < 0 || index >= trace.length) {
      return fill(this.detail, h("h2", {}, "Before the first event"), h("p", {}, "Press ▶, or → for one event. Click a message to see why it was sent and what it changed."));
    }
    const event = trace.events[index];
    const body = [h("h2", {}, h("span", { class: "when" }, trace.time(index)), ` ${event.node} ${words(event)}`)];
    if (event.event === "violation") body[0].className = "alarm";
    const sent = event.event === "send" ? index : trace.sentAt[index];
    if (sent >= 0) body.push(this.explainMessage(sent));
    else body.push(this.explainInput(index));
    fill(this.detail, body);
  }

  explainMessage(sent) {
    const { trace } = this, cause = trace.cause(sent), ends = trace.endsAt[sent], event = trace.events[sent];
    const rows = [];
    rows.push(h("dt", {}, "Why"), h("dd", {}, cause >= 0 ? ["because ", this.link(cause)] : "at the start"));
    rows.push(h("dt", {}, "Sent"), h("dd", {}, this.link(sent, `${trace.time(sent)} by ${event.node}`)));
    if (ends < 0) rows.push(h("dt", {}, "Arrives"), h("dd", {}, "still under way at the end"));
    else if (trace.events[ends].event === "lose") rows.push(h("dt", {}, "Lost"), h("dd", {}, this.link(ends, trace.time(ends))));
    else {
      rows.push(h("dt", {}, "Arrived"), h("dd", {}, this.link(ends, `${trace.time(ends)} at ${event.to}`)));
      rows.push(this.changes(ends));
      rows.push(h("dt", {}, "Led to"), h("dd", {}, this.consequences(ends)));
    }
    return h("dl", {}, rows);
  }

  explainInput(index) {
    const cause = this.trace.cause(index), rows = [];
    if (cause >= 0 && cause !== index) rows.push(h("dt", {}, "Why"), h("dd", {}, ["because ", this.link(cause)]));
    const input = cause >= 0 ? cause : index;
    rows.push(this.changes(input));
    rows.push(h("dt", {}, "Led to"), h("dd", {}, this.consequences(input)));
    return h("dl", {}, rows);
  }

  /** What an event changed; nothing if the run does not say. */
  changes(index) {
    return this.hasVariables && [h("dt", {}, "Changed"), h("dd", {}, this.changed(index))];
  }

  changed(index) {
    const node = this.trace.events[index].node;
    if (!this.trace.hasAllStates) return "a run this large keeps no history of its variables; the table has those at the cursor";
    const { now, before, changed } = this.trace.variables(node, index);
    if (!changed) return "nothing";
    const old = new Map(before);
    const different = now.filter(([name, value]) => old.get(name) !== value);
    if (!different.length) return now.length ? "nothing that is shown" : "everything is forgotten";
    return h("ul", { class: "changes" }, different.map(([name, value]) => h("li", {}, h("code", {}, name), " ", old.has(name) && [h("del", {}, old.get(name)), " → "], h("ins", {}, value))));
  }

  consequences(index) {
    const effects = this.trace.effects(index);
    if (!effects.length) return "nothing";
    return [effects.slice(0, 6).map((i) => h("div", {}, this.link(i, words(this.trace.events[i])))), effects.length > 6 && `and ${effects.length - 6} more`];
  }

  columns() {
    const { trace } = this;
    if (trace.nodes.length <= COLUMNS_MAX) return trace.nodes;
    const here = trace.events[this.cursor]?.node;
    const rest = here === undefined || this.picked.includes(here) ? [] : [here];
    const wanted = [...this.picked, ...rest];
    return (wanted.length ? wanted : trace.nodes.slice(0, 4)).slice(0, COLUMNS_MAX);
  }

  showStates() {
    const { trace } = this;
    if (!trace.hasAllStates) this.fetchStates();
    const nodes = this.columns(), at = trace.hasAllStates ? this.cursor : trace.length;
    const looks = new Map(nodes.map((node) => [node, trace.variables(node, at)]));
    const names = [];
    for (const { now, before } of looks.values()) for (const [name] of [...now, ...before]) if (!names.includes(name)) names.push(name);
    if (!names.length) return fill(this.states, h("h2", {}, "Variables"), h("p", {}, "Nothing is known of the nodes' variables here."));
    const cell = (node, name) => {
      const { now, before, changed } = looks.get(node);
      const value = now.find(([other]) => other === name)?.[1];
      const old = before.find(([other]) => other === name)?.[1];
      const isNew = changed && old !== value && trace.hasAllStates;
      return h("td", { class: isNew ? "changed" : value === undefined ? "none" : "", title: isNew ? `before: ${old ?? "none"}` : undefined }, value ?? "");
    };
    fill(
      this.states,
      h("h2", {}, "Variables ", h("small", {}, "under the paper's names", trace.nodes.length > COLUMNS_MAX && "; click a node's number in the diagram to add it")),
      h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, h("span", { class: "unseen" }, "Variable")), nodes.map((node) => h("th", { scope: "col", class: trace.events[this.cursor]?.node === node ? "here" : "" }, String(node))))),
        h("tbody", {}, names.map((name) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)), nodes.map((node) => cell(node, name)))))),
    );
  }

  /** A large run keeps no history of states in the page: the server computes those of one moment. */
  fetchStates() {
    if (this.fetched === this.cursor || this.playing || !this.statesAt) return;
    this.fetched = this.cursor;
    this.fetching?.abort();
    this.fetching = new AbortController();
    clearTimeout(this.later);
    this.later = setTimeout(async () => {
      try {
        const states = await this.statesAt(this.cursor + 1, this.fetching.signal);
        this.trace.setStates(states.map(([, node, pairs]) => [0, node, pairs]));
        this.showStates();
      } catch (error) {
        if (error.name !== "AbortError") fill(this.states, h("p", { class: "alarm" }, error.message));
      }
    }, 200);
  }

  showLog() {
    if (!this.log.isConnected && !this.element.contains(this.log)) return;
    const from = Math.max(0, Math.min(this.cursor - 6, this.trace.length - 14)), rows = [];
    for (let i = from; i < Math.min(this.trace.length, from + 14); i++) {
      const event = this.trace.events[i];
      rows.push(h("li", { class: `${i === this.cursor ? "now" : i > this.cursor ? "later" : ""} ${event.event === "violation" ? "alarm" : ""}`, "aria-current": i === this.cursor ? "step" : undefined },
        h("button", { class: "link", "data-keep": i, onclick: () => { this.pause(); this.go(i); } }, h("span", { class: "when" }, this.trace.time(i)), ` ${event.node} ${words(event)}`)));
    }
    fill(this.log, h("h2", {}, "Events"), h("ol", { start: String(from + 1) }, rows));
  }

  /** Keys that every run has. True if the key was one. */
  onKey(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };
    const actions = {
      " ": () => this.toggle(),
      Home: () => this.go(-1),
      End: () => this.go(this.trace.length - 1),
      "+": () => this.diagram.zoom(1.3),
      "=": () => this.diagram.zoom(1.3),
      "-": () => this.diagram.zoom(1 / 1.3),
      0: () => this.diagram.fit(),
      v: () => this.trace.firstViolation() >= 0 && this.go(this.trace.firstViolation()),
    };
    if (!this.trace) return false;
    if (event.key in steps) {
      this.pause();
      this.go(this.cursor + steps[event.key]);
      return true;
    }
    if (!(event.key in actions)) return false;
    actions[event.key]();
    return true;
  }
}
