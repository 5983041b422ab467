"use strict";

/** An element with attributes and children. Texts are nodes, never markup: names come from the run. */
function node(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute.startsWith("on")) made.addEventListener(attribute.slice(2), value);
    else if (value === true) made.setAttribute(attribute, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(attribute, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const number = (value) => Math.round(value).toLocaleString("en");

/** A time in milliseconds, with its unit and three digits or so. */
function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (Math.abs(ms) >= 100_000) return `${(ms / 1000).toFixed(0)} s`;
  if (Math.abs(ms) >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  if (Math.abs(ms) >= 10) return `${ms.toFixed(0)} ms`;
  return `${ms.toFixed(2)} ms`;
}

/** A moment of the run, in seconds. */
const moment = (ms) => `${(ms / 1000).toFixed(3)} s`;

/** The value below which a share of sorted values lies. */
function quantile(sorted, share) {
  return sorted.length === 0 ? NaN : sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)];
}

function plural(count, word, words = `${word}s`) {
  return `${number(count)} ${count === 1 ? word : words}`;
}

const swatch = (colour, className = "") => node("i", { style: `background: var(--${colour})`, class: className, "aria-hidden": "true" });
