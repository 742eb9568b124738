// What a node's own steps say about one lock, as a run that the diagram can draw.

import { age } from "./parts.js";
import { Trace } from "./trace.js";

/** The distance between two steps: wide enough for the time that passed. */
const STEP = 64;
/** Only this node's end of a message is known. The other end is drawn this many steps before or after it. */
const SLANT = 0.7;

/** The run of these steps. Member 0 is this node. */
export class LiveTrace extends Trace {
  constructor(steps, members) {
    const placed = steps.flatMap((step, index) => eventsOf(step, index, members)).sort((a, b) => a.place - b.place);
    // A lock that is given up before it was granted was held from the start.
    const first = steps.find(({ step }) => ["granted", "released", "lost"].includes(step));
    if (first && first.step !== "granted") placed.unshift({ place: 0, event: "hold", node: 0 });
    const nodes = members.map((_, index) => index);
    super({ trace: { title: "", nodes, scale: { unit: "clock" }, events: placed }, x: placed.map(({ place }) => (place + 1) * STEP), states: [] });
    this.steps = steps;
  }

  /** The time since the step before, at the events that are this node's. */
  mark(i) {
    const { index } = this.events[i];
    if (index === undefined) return undefined;
    return index ? since(this.steps[index].at_ms - this.steps[index - 1].at_ms) : clock(this.steps[0].at_ms);
  }

  time(i) {
    const step = this.steps[this.events[i].of];
    return step ? clock(step.at_ms) : "";
  }

  words(i) {
    const step = this.steps[this.events[i].of];
    if (!step) return "held before";
    return step.step === "message" ? `${step.sent ? "to" : "from"} ${step.peer}: ${words(step)}` : words(step);
  }
}

/** The events of a step. Those of this node carry the step's `index`, all of them whose step they are `of`. */
function eventsOf(step, index, members) {
  const here = { place: index, node: 0, index, of: index };
  if (step.step === "message") {
    const peer = members.indexOf(step.peer), message = { id: index, kind: step.kind, message: step.kind };
    const there = { place: index + (step.sent ? SLANT : -SLANT), node: peer, of: index };
    const [from, to] = step.sent ? [here, there] : [there, here];
    return [{ ...from, event: "send", to: to.node, ...message }, { ...to, event: "deliver", from: from.node, ...message }];
  }
  if (step.step === "granted") return [{ ...here, event: "enter", mode: "exclusive", fence: step.fence }];
  if (step.step === "released") return [{ ...here, event: "exit" }];
  // The lock is taken away, or may be soon.
  const note = { ...here, event: "network", text: words(step) };
  return step.step === "lost" ? [note, { ...here, event: "exit" }] : [note];
}

/** A step in words. */
export function words(step) {
  if (step.step === "message") return step.text;
  const fence = step.fence ? ` ${step.fence}` : "";
  return { granted: `granted, fence${fence}`, released: "released", lost: "lost", broken: "broken", at_risk: "at risk" }[step.step] ?? step.step;
}

function since(ms) {
  return ms < 0.95 ? `+${Math.max(0, ms).toFixed(1)} ms` : ms < 10_000 ? `+${Math.round(ms)} ms` : `+${age(ms)}`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}
