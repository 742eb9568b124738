// A run: its events, and what follows from them.

const INPUTS = new Set(["request", "try", "cancel", "exit", "downgrade", "upgrade", "give-back", "deliver", "timer", "join", "leave", "restart", "crash", "forget"]);

export const STATES = { waiting: 1, inside: 2, shared: 3, paused: 4, down: 5, away: 6 };

export class Trace {
  /** `document` is what the server answers for a run or a scenario. */
  constructor(document) {
    const { trace, x, states } = document;
    this.title = trace.title;
    this.events = trace.events;
    this.scale = trace.scale;
    this.x = Float64Array.from(x);
    const nodes = new Set(trace.nodes);
    for (const event of this.events) {
      nodes.add(event.node);
      if (event.event === "send") nodes.add(event.to);
    }
    this.nodes = [...nodes].sort((a, b) => a - b);
    this.rows = new Map(this.nodes.map((node, row) => [node, row]));
    this.findMessages();
    this.findSpans();
    this.setStates(states ?? []);
    this.hasAllStates = states !== null;
  }

  get length() {
    return this.events.length;
  }

  /** For each event the message it sends, delivers or loses: where that was sent, and where it ended. */
  findMessages() {
    const count = this.length, sends = new Map();
    this.sentAt = new Int32Array(count).fill(-1);
    this.endsAt = new Int32Array(count).fill(-1);
    this.kinds = [];
    this.kindOf = new Int8Array(count).fill(-1);
    this.colourOf = new Int8Array(count).fill(-1);
    this.rowOf = Int32Array.from(this.events, (event) => this.rows.get(event.node));
    this.toRow = Int32Array.from(this.events, (event) => (event.event === "send" ? this.rows.get(event.to) : -1));
    this.events.forEach((event, i) => {
      if (event.event === "send") {
        sends.set(`${event.id} ${event.to}`, i);
        let kind = this.kinds.indexOf(event.kind);
        if (kind < 0) kind = this.kinds.push(event.kind) - 1;
        this.kindOf[i] = kind;
        this.colourOf[i] = this.colour(event.kind);
      } else if (event.event === "deliver" || event.event === "lose") {
        const sent = sends.get(`${event.id} ${event.node}`);
        if (sent === undefined) return;
        this.sentAt[i] = sent;
        if (this.endsAt[sent] < 0) this.endsAt[sent] = i;
      }
    });
  }

  /** The colour of a kind of message, the same as in SVG: REQUEST and REPLY look the same in all diagrams. */
  colour(kind) {
    const known = ["REQUEST", "REPLY"];
    if (known.includes(kind)) return known.indexOf(kind);
    const others = this.kinds.filter((other) => !known.includes(other)), at = others.indexOf(kind);
    return 2 + (at < 0 ? others.length : at) % 6;
  }

  /** Each node's states, with the events that begin and end them: lists by row, in order. */
  findSpans() {
    this.spans = this.nodes.map(() => []);
    const open = this.nodes.map(() => new Map());
    const known = new Set();
    const end = (row, state, at) => {
      const first = open[row].get(state);
      if (first === undefined) return;
      open[row].delete(state);
      this.spans[row].push({ state, first: first.at, last: at, fence: first.fence });
    };
    const begin = (row, state, at, fence) => open[row].has(state) || open[row].set(state, { at, fence });
    for (const event of this.events) {
      if (!known.has(event.node) && ["join", "joined"].includes(event.event)) open[this.rows.get(event.node)].set(STATES.away, { at: -1 });
      if (["join", "joined", "leave", "left", "crash", "restart"].includes(event.event)) known.add(event.node);
    }
    this.events.forEach((event, i) => {
      const row = this.rows.get(event.node);
      switch (event.event) {
        case "request": case "try": case "upgrade": return begin(row, STATES.waiting, i);
        case "cancel": case "refused": return end(row, STATES.waiting, i);
        case "hold": return begin(row, event.mode === "shared" ? STATES.shared : STATES.inside, i);
        case "enter":
          [STATES.waiting, STATES.inside, STATES.shared].forEach((state) => end(row, state, i));
          return begin(row, event.mode === "shared" ? STATES.shared : STATES.inside, i, event.fence);
        case "exit": return [STATES.inside, STATES.shared].forEach((state) => end(row, state, i));
        case "pause": return begin(row, STATES.paused, i);
        case "resume": return end(row, STATES.paused, i);
        case "crash":
          [STATES.waiting, STATES.inside, STATES.shared, STATES.paused].forEach((state) => end(row, state, i));
          return begin(row, STATES.down, i);
        case "restart": return end(row, STATES.down, i);
        case "joined": return end(row, STATES.away, i);
        case "left": return begin(row, STATES.away, i);
      }
    });
    open.forEach((states, row) => [...states.keys()].forEach((state) => end(row, state, -1)));
    this.spans.forEach((list) => list.sort((a, b) => a.first - b.first));
  }

  setStates(states) {
    this.changes = new Map(this.nodes.map((node) => [node, []]));
    for (const [from, node, pairs] of states) {
      if (!this.changes.has(node)) this.changes.set(node, []);
      this.changes.get(node).push({ from, pairs });
    }
  }

  /** A node's variables after event `at` (-1: before the first), and how they were before that event. */
  variables(node, at) {
    const list = this.changes.get(node) ?? [];
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].from <= at + 1) low = middle + 1;
      else high = middle;
    }
    const now = list[low - 1]?.pairs ?? [];
    const changed = at >= 0 && list[low - 1]?.from === at + 1;
    return { now, before: changed ? list[low - 2]?.pairs ?? [] : now, changed };
  }

  /** The event that made a node do what it did in event `i`: the last input of that node. */
  cause(i) {
    const event = this.events[i];
    if (INPUTS.has(event.event)) return i;
    for (let j = i - 1; j >= 0 && i - j < 5000; j--) {
      if (this.events[j].node === event.node && INPUTS.has(this.events[j].event)) return j;
    }
    return -1;
  }

  /** What followed at the same node from an input, in the same moment. */
  effects(i) {
    const found = [], node = this.events[i].node;
    for (let j = i + 1; j < this.length && j - i < 3000; j++) {
      const event = this.events[j];
      if (event.node === node && INPUTS.has(event.event)) break;
      if (event.at !== this.events[i].at) break;
      if (event.node === node && event.event !== "lose") found.push(j);
    }
    return found;
  }

  /** Who is inside, who waits in the order of asking, and what is under way after event `at`. */
  lock(at) {
    const inside = [], waiting = [];
    this.spans.forEach((list, row) => {
      for (const span of list) {
        if (span.first > at) break;
        if (span.last >= 0 && span.last <= at) continue;
        const who = { node: this.nodes[row], since: span.first, fence: span.fence, shared: span.state === STATES.shared };
        if (span.state === STATES.inside || span.state === STATES.shared) inside.push(who);
        if (span.state === STATES.waiting) waiting.push(who);
      }
    });
    waiting.sort((a, b) => a.since - b.since);
    const underWay = [];
    let count = 0;
    for (let i = Math.min(at, this.length - 1); i >= 0; i--) {
      if (this.kindOf[i] >= 0 && (this.endsAt[i] < 0 || this.endsAt[i] > at)) {
        count++;
        if (underWay.length < 40) underWay.push(i);
      }
    }
    return { inside, waiting, underWay: underWay.reverse(), underWayCount: count };
  }

  time(i) {
    const at = this.events[i]?.at ?? 0;
    return this.scale.unit === "T" ? `${(at / this.scale.tick).toFixed(3)} T` : `step ${at}`;
  }

  /** What stands on the axis at an event, if anything does. */
  mark(i) {
    return String(this.events[i].at);
  }

  /** The event in words, without its time and its node. */
  words(i) {
    return words(this.events[i]);
  }

  /** Every request that was served: when it was made and served, how long it waited, and how many others entered meanwhile. */
  waits() {
    const asked = new Map(), found = [];
    let entries = 0;
    this.events.forEach((event, i) => {
      if (["request", "try", "upgrade"].includes(event.event)) asked.set(event.node, { i, entries });
      else if (["cancel", "refused", "crash"].includes(event.event)) asked.delete(event.node);
      else if (event.event === "enter") {
        const since = asked.get(event.node);
        if (since) found.push({ node: event.node, asked: since.i, entered: i, time: event.at - this.events[since.i].at, overtaken: entries - since.entries });
        asked.delete(event.node);
        entries++;
      }
    });
    return found;
  }

  firstViolation() {
    return this.events.findIndex((event) => event.event === "violation");
  }
}

/** One event in words, the same as in `lab trace --format text`. */
export function words(event) {
  const shared = event.mode === "shared" ? ", shared" : "";
  switch (event.event) {
    case "hold": return `is inside from the start${shared}`;
    case "request": return `asks${shared}`;
    case "try": return `tries${shared}`;
    case "cancel": return "gives up";
    case "refused": return "is refused";
    case "downgrade": return "goes on, shared";
    case "upgrade": return "asks to be alone";
    case "give-back": return "gives the unused lock back";
    case "enter": return `enters${shared}, fence ${event.fence}`;
    case "exit": return "leaves";
    case "send": return `sends ${event.message} to ${event.to}`;
    case "deliver": return `receives ${event.message} from ${event.from}`;
    case "lose": return `loses ${event.message} from ${event.from}`;
    case "forget": return "forgets the idle lock";
    case "timer": return `timer ${event.text} fires`;
    case "crash": return "crashes";
    case "restart": return "restarts";
    case "pause": return "pauses";
    case "resume": return "resumes";
    case "join": return "asks to join the group";
    case "leave": return "asks to leave the group";
    case "joined": return "is a member";
    case "left": return "has left the group";
    case "network": return `network: ${event.text}`;
    case "violation": return `VIOLATION: ${event.text}`;
    default: return event.event;
  }
}
