// The part of a run that is in view, and how a mouse, fingers and keys move it.

import { reducedMotion } from "./dom.js";

/** The height of the axis, and the space around the lanes. */
export const TOP = 30;
export const PAD = 26;

/** What the diagram inherits. It has the elements, the trace, and the places of what it draws. */
export class Viewport {
  /** Scrolls so that an event is in view. */
  show(index) {
    const x = this.trace.x[index] * this.view.scale, inner = this.size.width - this.left;
    const y = this.trace.rows.get(this.trace.events[index].node) * this.lane;
    let target = this.view.x;
    if (x < this.view.x + 30 || x > this.view.x + inner - 90) target = x - inner * 0.45;
    if (y < this.view.y || y > this.view.y + this.size.height - TOP - PAD) this.view.y = y - this.size.height / 2;
    this.glide(target);
  }

  glide(target) {
    const to = Math.max(0, Math.min(this.rightmost(), target));
    if (reducedMotion() || Math.abs(to - this.view.x) > 3 * this.size.width) {
      this.view.x = to;
      this.gliding = undefined;
    } else if (Math.abs(to - this.view.x) > 1) {
      this.gliding = to;
    }
    this.clamp();
  }

  zoom(factor, at = this.size.width / 2) {
    const before = (this.view.x + at - this.left) / this.view.scale;
    this.view.scale = Math.max(this.minScale(), Math.min(6, this.view.scale * factor));
    this.view.x = before * this.view.scale - (at - this.left);
    this.gliding = undefined;
    this.clamp();
    this.redraw();
  }

  /** True if the end of the run is in view. */
  get isAtEnd() {
    return !this.trace || this.view.x >= this.rightmost() - 1;
  }

  toEnd() {
    this.view.x = this.rightmost();
    this.clamp();
    this.redraw();
  }

  rightmost() {
    return this.width * this.view.scale - (this.size.width - this.left);
  }

  minScale() {
    return Math.min(1, (this.size.width - this.left) / Math.max(1, this.width));
  }

  fit() {
    this.view.scale = this.minScale();
    this.view.x = 0;
    this.gliding = undefined;
    if (this.trace.nodes.length > 24) this.lane = Math.max(2, Math.min(22, (this.size.height - TOP - PAD) / this.trace.nodes.length));
    this.clamp();
    this.redraw();
  }

  clamp() {
    const { view, size } = this;
    view.x = Math.max(0, Math.min(view.x, this.rightmost()));
    view.y = Math.max(0, Math.min(view.y, this.contentHeight() - size.height));
  }

  /** The message or event near a point. */
  at(x, y) {
    if (!this.trace || x < this.left || y < TOP) return -1;
    let best = -1, nearest = 9;
    const from = (this.view.x + x - this.left - 12) / this.view.scale, to = (this.view.x + x - this.left + 12) / this.view.scale;
    for (let i = this.lower(from); i < this.trace.length && this.trace.x[i] <= to; i++) {
      const event = this.trace.events[i];
      if (event.event === "send" || event.event === "deliver") continue;
      const distance = Math.hypot(this.px(this.trace.x[i]) - x, this.py(this.trace.rows.get(event.node)) - y);
      if (distance < nearest) [best, nearest] = [i, distance];
    }
    if (best >= 0 && nearest < 7) return best;
    for (const i of this.visible ?? []) {
      const { from, to } = this.arrow(i);
      const distance = toSegment(x, y, from, to);
      if (distance < nearest) [best, nearest] = [i, distance];
    }
    return best;
  }

  nodeAt(x, y) {
    if (x >= this.left) return undefined;
    return this.trace.nodes[Math.round((y + this.view.y - TOP - PAD) / this.lane)];
  }

  listen() {
    const { canvas } = this;
    this.observer = new ResizeObserver(() => {
      if (!this.trace || this.element.clientWidth === this.size?.width) return;
      this.resize();
      this.clamp();
      this.redraw();
    });
    this.observer.observe(this.element);
    this.themes = matchMedia("(prefers-color-scheme: dark)");
    this.onTheme = () => {
      this.readColours();
      this.redraw();
    };
    this.themes.addEventListener("change", this.onTheme);
    // Paper is white: a canvas has to be drawn again for it.
    this.onPrint = (event) => {
      const isPrinting = event.type === "beforeprint";
      document.documentElement.classList.toggle("paper", isPrinting);
      this.readColours();
      if (this.trace) this.draw();
    };
    for (const name of ["beforeprint", "afterprint"]) addEventListener(name, this.onPrint);
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.onUp(event));
    canvas.addEventListener("pointerleave", () => this.setHover(-1));
  }

  onWheel(event) {
    if (!this.trace) return;
    const tall = this.contentHeight() > this.size.height;
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * 0.002), event.offsetX);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.view.x += event.deltaX || event.deltaY;
    else if (tall) this.view.y += event.deltaY;
    else return;
    this.gliding = undefined;
    event.preventDefault();
    this.clamp();
    this.redraw();
  }

  onDown(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.moved = 0;
  }

  onMove(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.setHover(this.at(event.offsetX, event.offsetY), event);
    const [dx, dy] = [event.offsetX - before.x, event.offsetY - before.y];
    this.moved += Math.abs(dx) + Math.abs(dy);
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      const spread = (point) => Math.max(20, Math.hypot(point.x - other.x, point.y - other.y));
      this.zoom(spread({ x: event.offsetX, y: event.offsetY }) / spread(before), (event.offsetX + other.x) / 2);
    } else if (this.moved > 4) {
      this.view.x -= dx;
      this.view.y -= dy;
      this.gliding = undefined;
      this.clamp();
      this.redraw();
    }
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
  }

  onUp(event) {
    this.pointers.delete(event.pointerId);
    if (this.moved > 4 || event.type === "pointercancel") return;
    const node = this.nodeAt(event.offsetX, event.offsetY), picked = this.at(event.offsetX, event.offsetY);
    if (node !== undefined) this.onPick({ node });
    else if (picked >= 0) this.onPick({ event: picked });
    else this.onPick({ near: this.nearest(event.offsetX) });
  }

  /** The last event at or left of a place. */
  nearest(x) {
    return Math.max(0, this.lower((this.view.x + x - this.left + 3) / this.view.scale) - 1);
  }

  setHover(index, event) {
    this.tip.hidden = index < 0;
    this.canvas.style.cursor = index < 0 ? "" : "pointer";
    if (index >= 0 && event) {
      const { trace } = this, what = trace.events[index];
      this.tip.textContent = `${trace.time(index)} · ${this.name(what.node)} ${trace.words(index)}`;
      this.tip.style.left = `${Math.min(event.offsetX + 12, this.size.width - 230)}px`;
      this.tip.style.top = `${event.offsetY + 14}px`;
    }
    if (index === this.hover) return;
    this.hover = index;
    this.redraw();
  }
}

function toSegment(x, y, a, b) {
  const dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy || 1;
  const t = Math.max(0, Math.min(1, ((x - a.x) * dx + (y - a.y) * dy) / length));
  return Math.hypot(x - a.x - t * dx, y - a.y - t * dy);
}
