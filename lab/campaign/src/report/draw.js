"use strict";

const FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

function drawLanes(chart) {
  const { lanes, colours } = chart;
  const context = lanes.getContext("2d");
  const { width, height } = chart;
  chart.clampScroll();
  context.fillStyle = colours.page;
  context.fillRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";

  context.save();
  context.beginPath();
  context.rect(0, chart.top(), width, height - chart.top());
  context.clip();
  drawGround(chart, context, width);
  drawGrid(chart, context, height);
  drawFaultBands(chart, context, height);
  drawHolds(chart, context, width, height);
  drawFaultEdges(chart, context, height);
  drawOverlaps(chart, context);
  drawSelection(chart, context);
  drawGutter(chart, context);
  context.restore();

  drawAxis(chart, context, width);
  drawFaultLabels(chart, context, width);
  drawMarks(chart, context, width, height);
}

/** Stripes behind every other group, and the time for which each process lived. */
function drawGround(chart, context, width) {
  const height = chart.rowHeight();
  const { history, colours, rows } = chart;
  rows.forEach((row, index) => {
    context.fillStyle = row.number % 2 === 0 ? colours.page : colours.stripe;
    context.fillRect(0, chart.y(index), width, height);
  });
  if (chart.grouping !== "client") return;
  for (const { place, life } of history.slots.values()) {
    const first = rows.findIndex((row) => row.group === place);
    const count = rows.filter((row) => row.group === place).length;
    if (life.ended_ms === null || count === 0) continue;
    const x = chart.x(life.ended_ms);
    context.fillStyle = colours.killed;
    context.fillRect(x, chart.y(first), 2, count * height);
    if (chart.scale() > 0.08) context.fillText(`process ${life.process} ${life.cause ?? "ended"}`, x + 6, chart.y(first) + height / 2);
  }
}

function drawGrid(chart, context, height) {
  context.fillStyle = chart.colours.line;
  context.globalAlpha = 0.5;
  for (const time of ticksOf(chart).times) context.fillRect(chart.x(time), chart.top(), 1, height);
  context.globalAlpha = 1;
}

/** A fault of a client covers the lanes of that process, any other all lanes. */
function drawFaultBands(chart, context, height) {
  const { history, colours } = chart;
  context.fillStyle = colours["fault-band"];
  for (const fault of history.faults) {
    const [left, right] = [chart.x(fault.from_ms), chart.x(fault.until_ms)];
    if (right < GUTTER || left > chart.width) continue;
    const [top, bottom] = rangeOf(chart, fault, height);
    context.fillRect(Math.max(left, GUTTER), top, Math.max(right - Math.max(left, GUTTER), 1), bottom - top);
  }
}

/** The bars hide the bands: their edges stay in view. */
function drawFaultEdges(chart, context, height) {
  context.fillStyle = chart.colours.fault;
  context.globalAlpha = 0.45;
  for (const fault of chart.history.faults) {
    const [top, bottom] = rangeOf(chart, fault, height);
    for (const x of [chart.x(fault.from_ms), chart.x(fault.until_ms)]) {
      if (x >= GUTTER) context.fillRect(x, top, 1, bottom - top);
    }
  }
  context.globalAlpha = 1;
}

function rangeOf(chart, fault, height) {
  const all = [chart.top(), Math.min(height, chart.y(chart.rows.length))];
  const place = chart.grouping === "client" ? chart.history.slots.get(fault.process)?.place : undefined;
  if (place === undefined) return all;
  const first = chart.rows.findIndex((row) => row.group === place);
  const last = chart.rows.findLastIndex((row) => row.group === place);
  return first < 0 ? all : [chart.y(first), chart.y(last + 1)];
}

/** Draws the holds in view. Those of a pixel are drawn once, in the colour of the worst. */
function drawHolds(chart, context, width, height) {
  const rowHeight = chart.rowHeight();
  chart.rows.forEach((row, index) => {
    const y = chart.y(index);
    if (y + rowHeight < chart.top() || y > height) return;
    let pixel = null;
    for (let i = firstAfter(chart.history, row.holds, chart.from); i < row.holds.length; i++) {
      const hold = row.holds[i];
      if (chart.history.from[hold] > chart.until) break;
      const left = chart.x(chart.history.from[hold]), right = chart.x(chart.history.until[hold]);
      if (right - left >= 1.5) {
        drawBar(chart, context, hold, left, right, y, rowHeight);
        continue;
      }
      const at = Math.floor(left);
      if (pixel !== null && pixel.at === at) {
        if (worse(chart, hold, pixel.hold)) pixel.hold = hold;
        continue;
      }
      drawPixel(chart, context, pixel, y, rowHeight);
      pixel = { at, hold };
    }
    drawPixel(chart, context, pixel, y, rowHeight);
  });
}

function worse(chart, hold, other) {
  const { part, end, holds } = chart.history;
  const rank = (it) => part[it] * 10 + (["released", "dropped"].includes(holds.ends[end[it]]) ? 0 : 1);
  return rank(hold) > rank(other);
}

function drawPixel(chart, context, pixel, y, rowHeight) {
  if (pixel === null) return;
  context.fillStyle = chart.colourOf(pixel.hold);
  context.fillRect(pixel.at, y + 1, 1, rowHeight - 2);
}

function drawBar(chart, context, hold, left, right, y, rowHeight) {
  const { history, colours } = chart;
  const kind = history.kindOf(hold);
  const height = SHARED.has(kind) ? Math.ceil((rowHeight - 2) * 0.6) : rowHeight - 2;
  const top = y + rowHeight - 1 - height;
  const [from, until] = [Math.max(left, GUTTER - 2), Math.min(right, chart.width + 2)];
  context.fillStyle = chart.colourOf(hold);
  context.fillRect(from, top, until - from, height);
  if (right - left > 5) {
    // The grant, so that holds which follow at once stay apart.
    context.fillStyle = colours.ink;
    context.globalAlpha = 0.55;
    context.fillRect(left, top, 1.5, height);
    context.globalAlpha = 1;
  }
  if (history.part[hold] === EXCUSED) {
    context.strokeStyle = colours.excused;
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.75, top + 0.75, until - from - 1.5, height - 1.5);
  }
  if (rowHeight >= 12 && until - from > 46) drawBarText(chart, context, hold, from, until, top, height);
  if (right - left > 24) drawWrites(chart, context, hold, y, rowHeight);
}

/** The kind and the token, as far as there is room. The last digits of a token tell it from its neighbours. */
function drawBarText(chart, context, hold, from, until, top, height) {
  if (height < 10) return;
  const { history, colours } = chart;
  const room = until - from - 12;
  const [name, token] = [history.kindOf(hold), history.columns.token[hold]];
  const key = chart.grouping === "key" ? `client ${history.slots.get(history.process[hold]).place + 1}` : history.keyOf(hold);
  const texts = [`${name} ${key}  #${token}`, `${key}  #…${token.slice(-6)}`, `#…${token.slice(-6)}`, key];
  const text = texts.find((text) => context.measureText(text).width <= room);
  if (text === undefined) return;
  context.fillStyle = colours["bar-ink"];
  context.fillText(text, from + 6, top + height / 2 + 0.5);
}

/** Writes to the resource: a dot if it accepted, a cross if it refused. */
function drawWrites(chart, context, hold, y, rowHeight) {
  const { history, colours } = chart;
  for (const write of history.writesOf.get(hold) ?? []) {
    const [x, middle] = [chart.x(history.writes.at[write]), y + rowHeight - 4];
    if (history.writes.accepted[write]) {
      context.fillStyle = colours["bar-ink"];
      context.fillRect(x - 1, middle - 1, 2.5, 2.5);
      continue;
    }
    context.strokeStyle = colours.broken;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x - 2.5, middle - 2.5);
    context.lineTo(x + 2.5, middle + 2.5);
    context.moveTo(x + 2.5, middle - 2.5);
    context.lineTo(x - 2.5, middle + 2.5);
    context.stroke();
  }
}

/** The overlap of a violation, hatched in each of its holds. */
function drawOverlaps(chart, context) {
  const { history, colours } = chart;
  const height = chart.rowHeight();
  for (const violation of history.violations) {
    const [from, until] = history.overlapOf(violation);
    const [left, right] = [chart.x(from), chart.x(until)];
    if (right < GUTTER || left > chart.width || violation.holds.length < 2) continue;
    for (const hold of violation.holds) {
      const row = chart.rowOf.get(hold);
      if (row === undefined) continue;
      hatch(context, left, right, chart.y(row), height, colours, chart.width);
    }
  }
}

function hatch(context, left, right, y, height, colours, canvasWidth) {
  const width = Math.max(right - left, 2);
  context.save();
  context.beginPath();
  context.rect(left, y + 1, width, height - 2);
  context.clip();
  context.globalAlpha = 0.35;
  context.strokeStyle = colours["bar-ink"];
  context.lineWidth = 2;
  context.beginPath();
  const [first, last] = [Math.max(left, 0) - height, Math.min(left + width, canvasWidth)];
  for (let x = first; x < last; x += 7) {
    context.moveTo(x, y + height);
    context.lineTo(x + height, y);
  }
  context.stroke();
  context.restore();
}

function drawSelection(chart, context) {
  const row = chart.rowOf.get(chart.selected);
  if (row === undefined) return;
  const { history, colours } = chart;
  const [left, right] = [chart.x(history.from[chart.selected]), chart.x(history.until[chart.selected])];
  context.strokeStyle = colours.ink;
  context.lineWidth = 2;
  context.strokeRect(left - 1, chart.y(row), Math.max(right - left, 2) + 2, chart.rowHeight());
}

function drawGutter(chart, context) {
  const { colours, rows } = chart;
  const height = chart.rowHeight();
  rows.forEach((row, index) => {
    const y = chart.y(index);
    context.fillStyle = row.number % 2 === 0 ? colours.page : colours.stripe;
    context.fillRect(0, y, GUTTER, height);
    context.fillStyle = colours.dim;
    context.textAlign = "right";
    if (height >= 11) context.fillText(row.label, GUTTER - 8, y + height / 2);
    if (row.title === "") return;
    context.textAlign = "left";
    context.fillStyle = colours.ink;
    context.font = `600 ${FONT}`;
    const room = row.label === "" ? GUTTER - 20 : GUTTER - 64;
    context.fillText(shorten(context, row.title, room), 12, y + Math.max(height / 2, 6));
    context.font = FONT;
    context.fillStyle = colours.line;
    context.fillRect(0, y, chart.width, 1);
  });
  context.fillStyle = colours.line;
  context.fillRect(GUTTER - 1, chart.top(), 1, chart.height);
  context.textAlign = "left";
}

function shorten(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** The times that the axis names, and the step between them. */
function ticksOf(chart) {
  const step = niceStep((chart.until - chart.from) / Math.max((chart.width - GUTTER) / 110, 1));
  const times = [];
  for (let time = Math.ceil(chart.from / step) * step; time <= chart.until; time += step) times.push(time);
  return { step, times };
}

function drawAxis(chart, context, width) {
  const { colours } = chart;
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, width, AXIS);
  context.fillStyle = colours.dim;
  context.fillText("time since the start", 12, AXIS / 2);
  const { step, times } = ticksOf(chart);
  for (const time of times) {
    const x = chart.x(time);
    if (x < GUTTER - 1) continue;
    context.fillStyle = colours.line;
    context.fillRect(x, AXIS - 6, 1, 6);
    context.fillStyle = colours.dim;
    context.fillText(clock(time, step), x + 4, AXIS / 2);
  }
  context.fillStyle = colours.line;
  context.fillRect(0, AXIS - 1, width, 1);
  context.fillRect(0, chart.top() - 1, width, 1);
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}

/** A time in seconds with as many digits as its step needs. */
function clock(time, step) {
  const digits = Math.max(0, Math.ceil(-Math.log10(step / 1000)));
  return `${(time / 1000).toFixed(digits)} s`;
}

function drawFaultLabels(chart, context, width) {
  const { history, colours } = chart;
  chart.labels = [];
  if (chart.labelRows() === 0) return;
  context.fillStyle = colours.dim;
  context.fillText("faults", 12, AXIS + LABEL / 2 + 2);
  context.save();
  context.beginPath();
  context.rect(GUTTER, AXIS, width - GUTTER, chart.top() - AXIS);
  context.clip();
  const shown = history.faults.filter((fault) => fault.until_ms >= chart.from && fault.from_ms <= chart.until);
  const labels = shown.map((fault) => {
    const [left, right] = [Math.max(chart.x(fault.from_ms), GUTTER), Math.min(Math.max(chart.x(fault.until_ms), chart.x(fault.from_ms) + 3), width)];
    const text = [fault.kind, fault.target].filter((part) => part !== "").join(" · ");
    return { fault, left, right, text, end: Math.max(right, left + context.measureText(text).width + 10) };
  });
  const rows = packLabels(labels.map(({ left, end }) => [left, end]), 4);
  labels.forEach((label, index) => {
    const row = rows[index] < LABEL_ROWS ? rows[index] : index % LABEL_ROWS;
    const top = AXIS + row * LABEL + 3;
    const isCrowded = rows[index] >= LABEL_ROWS;
    chart.labels.push({ ...label, top, right: isCrowded ? label.right : label.end });
    context.fillStyle = colours["fault-band"];
    context.fillRect(label.left, top, label.right - label.left, LABEL - 3);
    context.fillStyle = colours.fault;
    context.fillRect(label.left, top, 2, LABEL - 3);
    if (!isCrowded) context.fillText(label.text, label.left + 6, top + LABEL / 2 - 1);
  });
  context.restore();
}

/** A line with the rule of each violation in view. */
function drawMarks(chart, context, width, height) {
  const { history, colours } = chart;
  let last = -Infinity;
  for (const violation of [...history.excused, ...history.broken]) {
    const x = chart.x(violation.at_ms);
    if (x < GUTTER || x > width) continue;
    context.fillStyle = violation.excused ? colours.excused : colours.broken;
    context.globalAlpha = violation === chart.current ? 1 : 0.55;
    context.fillRect(x - 0.5, AXIS - 8, violation === chart.current ? 2 : 1, height);
    context.globalAlpha = 1;
    if (Math.abs(x - last) < 30) continue;
    last = x;
    const wide = context.measureText(violation.rule).width + 8;
    context.fillRect(x - 0.5, 3, wide, AXIS - 9);
    context.fillStyle = colours.page;
    context.fillText(violation.rule, x + 3.5, AXIS / 2 - 1);
  }
}

/** The whole run: holds in force, losses and deaths, faults, violations, and the part that the chart shows. */
function drawMap(chart) {
  const { map, history, colours } = chart;
  const context = map.getContext("2d");
  const [width, height] = [map.clientWidth, map.clientHeight];
  const scale = (width - GUTTER) / history.span;
  const x = (time) => GUTTER + time * scale;
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = colours.ink;
  context.fillText("whole run", 12, 15);
  context.fillStyle = colours.dim;
  context.fillText("holds at a time", 12, 32);
  context.fillStyle = colours["fault-band"];
  for (const fault of history.faults) context.fillRect(x(fault.from_ms), 0, Math.max((fault.until_ms - fault.from_ms) * scale, 1), height);

  chart.density ??= densityOf(history, Math.max(Math.floor(width - GUTTER), 1));
  const { held, ill, most } = chart.density;
  const room = height - 10;
  held.forEach((count, pixel) => {
    const bar = (count / most) * room;
    context.fillStyle = colours.released;
    context.fillRect(GUTTER + pixel, height - bar, 1, bar);
    if (ill[pixel] > 0) {
      context.fillStyle = colours.lost;
      context.fillRect(GUTTER + pixel, height - Math.min(3 + ill[pixel], room), 1, Math.min(3 + ill[pixel], room));
    }
  });
  for (const violation of [...history.excused, ...history.broken]) {
    context.fillStyle = violation.excused ? colours.excused : colours.broken;
    context.fillRect(x(violation.at_ms) - 1, 0, 2, height);
  }
  const [left, right] = [Math.max(x(chart.from), GUTTER), Math.min(x(chart.until), width)];
  context.fillStyle = colours.window;
  context.fillRect(left, 0, Math.max(right - left, 2), height);
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.strokeRect(left + 0.75, 0.75, Math.max(right - left - 1.5, 2), height - 1.5);
}

/** The mean number of holds, and the number of losses and deaths, in each pixel of the map. */
function densityOf(history, pixels) {
  const held = new Float32Array(pixels), ill = new Uint16Array(pixels);
  const scale = pixels / history.span;
  const pixel = (time) => Math.min(Math.max(Math.floor(time * scale), 0), pixels - 1);
  for (let hold = 0; hold < history.length; hold++) {
    const [from, until] = [history.from[hold] * scale, history.until[hold] * scale];
    for (let at = pixel(history.from[hold]); at <= pixel(history.until[hold]); at++) {
      held[at] += Math.max(Math.min(until, at + 1) - Math.max(from, at), 0);
    }
    if (["lost", "deadline", "killed"].includes(history.endOf(hold))) ill[pixel(history.until[hold])] += 1;
  }
  return { held, ill, most: Math.max(...held, 1) };
}
