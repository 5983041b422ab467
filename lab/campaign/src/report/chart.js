"use strict";

/** The width of the names of lanes, and the heights of the rows above the lanes, in pixels. */
const GUTTER = 148, AXIS = 24, LABEL = 17, LABEL_ROWS = 4;

/** The heights between which lanes share the room, in pixels. */
const LOWEST = 7, HIGHEST = 26;

/** The shortest time that fills the chart, in milliseconds. */
const CLOSEST = 0.5;

/** A chart of the holds of a run, and a map of the whole run above it. It draws on canvas: a run has many more holds than a page has nodes. */
class Chart {
  constructor(history, { map, lanes, onSelect, onHover }) {
    Object.assign(this, { history, map, lanes, onSelect, onHover });
    this.grouping = "client";
    this.colouring = "end";
    this.key = null;
    this.selected = null;
    this.current = null;
    this.scroll = 0;
    this.setRange(0, history.span);
    this.arrange();
    this.readColours();
  }

  arrange() {
    this.rows = layLanes(this.history, this.grouping, this.key);
    this.rowOf = new Map();
    this.rows.forEach((row, index) => row.holds.forEach((hold) => this.rowOf.set(hold, index)));
    this.density = null;
    this.draw();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colours = new Proxy({}, { get: (known, name) => (known[name] ??= style.getPropertyValue(`--${name}`).trim()) });
    this.density = null;
    this.draw();
  }

  setRange(from, until) {
    const { span } = this.history;
    const length = Math.min(Math.max(until - from, CLOSEST), span * 1.02);
    const margin = span * 0.01;
    this.from = Math.min(Math.max(from, -margin), span + margin - length);
    this.until = this.from + length;
    this.draw();
  }

  zoom(factor, around = (this.from + this.until) / 2) {
    this.setRange(around - (around - this.from) * factor, around + (this.until - around) * factor);
  }

  pan(share) {
    const by = (this.until - this.from) * share;
    this.setRange(this.from + by, this.until + by);
  }

  scrollBy(pixels) {
    this.scroll += pixels;
    this.draw();
  }

  /** Shows a violation: its overlap in a third of the chart, or all of its holds, with its lanes in view. */
  show(violation) {
    this.current = violation;
    this.selected = violation.holds[0] ?? null;
    const [from, until] = this.spanOf(violation);
    const margin = Math.max(until - from, 40);
    this.setRange(from - margin, until + margin);
    const rows = violation.holds.map((hold) => this.rowOf.get(hold)).filter((row) => row !== undefined);
    if (rows.length > 0) this.scroll = (Math.min(...rows) - 2) * this.rowHeight();
    this.onSelect(this.selected);
    this.draw();
  }

  spanOf(violation) {
    const { history } = this;
    const [from, until] = history.overlapOf(violation);
    if (from < until) return [from, until];
    const { holds, at_ms: at } = violation;
    return [Math.min(at, ...holds.map((hold) => history.from[hold])), Math.max(at, ...holds.map((hold) => history.until[hold]))];
  }

  showFault(fault) {
    const margin = Math.max((fault.until_ms - fault.from_ms) * 0.6, 300);
    this.setRange(fault.from_ms - margin, fault.until_ms + margin);
  }

  select(hold) {
    this.selected = hold;
    this.onSelect(hold);
    this.draw();
  }

  /** Selects the hold that follows the selected one in its lane, or precedes it. */
  selectNext(step) {
    const row = this.rows[this.rowOf.get(this.selected) ?? 0];
    if (!row) return;
    const place = this.selected === null ? firstAfter(this.history, row.holds, this.from) : row.holds.indexOf(this.selected) + step;
    const hold = row.holds[Math.min(Math.max(place, 0), row.holds.length - 1)];
    const { from, until } = this.history;
    if (from[hold] < this.from || until[hold] > this.until) {
      const half = (this.until - this.from) / 2;
      this.setRange(from[hold] - half, from[hold] + half);
    }
    this.select(hold);
  }

  resize() {
    for (const canvas of [this.map, this.lanes]) {
      const scale = window.devicePixelRatio || 1;
      const [width, height] = [canvas.clientWidth * scale, canvas.clientHeight * scale].map(Math.round);
      if (canvas.width !== width) canvas.width = width;
      if (canvas.height !== height) canvas.height = height;
      canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    }
    [this.width, this.height] = [this.lanes.clientWidth, this.lanes.clientHeight];
    this.density = null;
    // At once: a canvas is empty after its size has changed.
    this.paint();
  }

  draw() {
    if (this.frame || !this.width) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
    });
  }

  paint() {
    if (!(this.width > GUTTER)) return;
    drawLanes(this);
    drawMap(this);
  }

  x(time) { return GUTTER + (time - this.from) * this.scale(); }
  time(x) { return this.from + (x - GUTTER) / this.scale(); }
  scale() { return (this.width - GUTTER) / (this.until - this.from); }
  top() { return AXIS + this.labelRows() * LABEL + 5; }
  labelRows() { return this.history.faults.length === 0 ? 0 : LABEL_ROWS; }

  rowHeight() {
    const room = this.height - this.top();
    return Math.min(Math.max(Math.floor(room / Math.max(this.rows.length, 1)), LOWEST), HIGHEST);
  }

  y(row) { return this.top() + row * this.rowHeight() - this.scroll; }

  /** Keeps the lanes in view. */
  clampScroll() {
    const beyond = this.rows.length * this.rowHeight() - (this.height - this.top());
    this.scroll = Math.min(Math.max(this.scroll, 0), Math.max(beyond, 0));
  }

  colourOf(hold) {
    if (this.history.part[hold] === BROKEN) return this.colours.broken;
    return this.colouring === "end" ? this.colours[this.history.endOf(hold)] : this.colours[`kind-${this.history.kind[hold] % 8}`];
  }

  /** The hold at a point, if there is one: of several in a pixel, the one with the worst part. */
  holdAt(x, y) {
    const row = this.rows[Math.floor((y - this.top() + this.scroll) / this.rowHeight())];
    if (!row || y < this.top() || x < GUTTER) return null;
    const [from, until] = [this.time(x - 2), this.time(x + 2)];
    let found = null;
    for (let i = firstAfter(this.history, row.holds, from); i < row.holds.length; i++) {
      const hold = row.holds[i];
      if (this.history.from[hold] > until) break;
      if (found === null || this.history.part[hold] > this.history.part[found]) found = hold;
    }
    return found;
  }

  faultAt(x, y) {
    if (x < GUTTER || y < AXIS || y >= this.top()) return null;
    const labels = this.labels?.filter(({ left, right, top }) => left <= x && x <= right && top <= y && y < top + LABEL);
    return labels?.at(-1)?.fault ?? null;
  }
}
