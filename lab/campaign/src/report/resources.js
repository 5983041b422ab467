"use strict";

/** The namespace of SVG, as the parser knows it. */
const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

/** The size of a graph in the side panel, in pixels. */
const GRAPH = { width: 280, height: 54 };

/** Graphs of the resources that clients used, with a line for each process; nothing for a run without samples. */
function resourcesOf(history) {
  const { samples } = history.figures;
  if (samples.length === 0) return [];
  const entries = (sample) => Object.values(sample.entries).reduce((all, count) => all + count, 0);
  const graphs = [
    ["memory, MiB", (sample) => sample.memory_kib / 1024],
    ["file descriptors", (sample) => sample.fds],
    ["tasks", (sample) => sample.tasks],
    ["entries in maps", entries],
  ];
  return [node("h3", {}, "Resources of clients"), ...graphs.map(([title, value]) => graphOf(history, title, value))];
}

function graphOf(history, title, value) {
  const lines = new Map();
  let most = 0;
  for (const sample of history.figures.samples) {
    if (!lines.has(sample.process)) lines.set(sample.process, []);
    lines.get(sample.process).push([sample.at_ms, value(sample)]);
    most = Math.max(most, value(sample));
  }
  const x = (time) => ((time / history.span) * GRAPH.width).toFixed(1);
  const y = (amount) => (GRAPH.height - 2 - (amount / Math.max(most, 1)) * (GRAPH.height - 4)).toFixed(1);
  const svg = shape("svg", { viewBox: `0 0 ${GRAPH.width} ${GRAPH.height}`, role: "img", "aria-label": `${title} over time, at most ${number(most)}` });
  for (const [process, points] of lines) {
    const colour = `var(--kind-${history.slots.get(process)?.place % 8 || 0})`;
    svg.append(shape("polyline", { points: points.map(([time, amount]) => `${x(time)},${y(amount)}`).join(" "), fill: "none", stroke: colour, "stroke-width": 1.3 }));
  }
  return node("figure", {}, node("figcaption", {}, title, node("b", {}, `at most ${number(most)}`)), svg);
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}
