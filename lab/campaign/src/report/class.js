"use strict";

/** More buttons than this help no reader. */
const LISTED = 300;

/** The page of one run: its chart, and the lists that lead through it. Returns a function that ends it. */
function showClass(main, history, siblings, addressOf, violation) {
  const map = node("canvas", { class: "map", "aria-hidden": "true" });
  const lanes = node("canvas", { class: "lanes", tabindex: "0", role: "application", "aria-label": labelOf(history), "aria-describedby": "keys" });
  const detail = node("div", { "aria-live": "polite" });
  const legend = node("div", { class: "legend" });
  const chart = new Chart(history, { map, lanes, onSelect: (hold) => detail.replaceChildren(detailOf(history, hold)) });

  const lists = listsOf(history, chart);
  const tools = toolsOf(history, chart, () => fillLegend(legend, history, chart));
  main.replaceChildren(node("div", { class: "class" },
    headOf(history, siblings, addressOf, tools),
    node("div", { class: "chart" }, map, lanes, legend),
    node("aside", { class: "side", "aria-label": "Violations, faults and the selected hold" }, ...lists.sections, node("h3", {}, "Selected hold"), detail, ...resourcesOf(history), keysHelp())));

  fillLegend(legend, history, chart);
  detail.replaceChildren(detailOf(history, null));
  listen(chart, lists);
  const observer = new ResizeObserver(() => chart.resize());
  observer.observe(lanes);
  chart.resize();
  if (violation !== null) lists.jump(violation);
  return { chart, end: () => observer.disconnect() };
}

function labelOf(history) {
  const { broken, excused, faults, length, slots, title } = history;
  return `Holds of ${title} over time: ${plural(length, "hold")} by ${plural(slots.size, "process", "processes")}, ${plural(faults.length, "fault")}, ` +
    `${plural(broken.length, "violation")}, ${number(excused.length)} excused. The list beside the chart names each violation.`;
}

function headOf(history, siblings, addressOf, tools) {
  const fact = (value, text, className = "") => node("span", {}, node("b", { class: className }, value), ` ${text}`);
  const { broken, excused, faults } = history;
  const seeds = siblings.length === 1 ? null : node("select", { "aria-label": "Seed", onchange: (event) => { location.hash = event.target.value; } },
    ...siblings.map((sibling) => node("option", { value: addressOf(sibling), selected: sibling === history }, `seed ${sibling.seed}`)));
  return node("div", { class: "head" },
    node("h2", {}, history.title), seeds,
    node("div", { class: "facts" },
      fact(number(history.length), "holds · "), fact(number(history.ended("lost") + history.ended("deadline")), "lost · "), fact(number(faults.length), "faults · "),
      fact(number(broken.length), broken.length === 1 ? "violation · " : "violations · ", broken.length > 0 ? "broken" : ""),
      fact(number(excused.length), "excused", excused.length > 0 ? "excused" : "")),
    node("div", { class: "facts" }, `seed ${history.seed} · ${listed(history.versions)}`),
    tools);
}

function toolsOf(history, chart, onChange) {
  const choice = (name, options, apply) => node("label", {}, `${name} `, node("select", {
    onchange: (event) => {
      apply(event.target.value);
      onChange();
    },
  }, ...options.map(([value, text]) => node("option", { value }, text))));
  const arrange = (change) => (value) => {
    change(value);
    chart.arrange();
  };
  const keys = [...history.holds.keys.entries()].sort(([, a], [, b]) => compareNames(a, b));
  return node("div", { class: "tools" },
    choice("lanes", [["client", "by client"], ["key", "by key"]], arrange((value) => { chart.grouping = value; })),
    choice("keys", [["", "all"], ...keys], arrange((value) => { chart.key = value === "" ? null : Number(value); })),
    choice("colour", [["end", "by end"], ["kind", "by kind"]], arrange((value) => { chart.colouring = value; })),
    node("button", { type: "button", onclick: () => chart.setRange(0, history.span) }, "whole run"));
}

function fillLegend(legend, history, chart) {
  const names = chart.colouring === "end" ? history.holds.ends : history.holds.kinds;
  const counts = history.countBy(chart.colouring === "end" ? history.end : history.kind, names);
  const items = [...counts].filter(([, count]) => count > 0).map(([name, count]) => {
    const colour = chart.colouring === "end" ? name : `kind-${names.indexOf(name) % 8}`;
    return node("span", {}, swatch(colour), `${chart.colouring === "end" ? ENDS[name] ?? name : name} (${number(count)})`);
  });
  legend.replaceChildren(...items,
    node("span", {}, swatch("broken"), "part of a violation"), node("span", {}, swatch("excused"), "excused"),
    node("span", {}, swatch("fault"), "fault"), node("span", {}, swatch("dim", "low"), "low bar: reader or permit"));
}

function detailOf(history, hold) {
  if (hold === null) return node("p", { class: "none" }, "Select a bar.");
  return node("dl", {}, ...factsOf(history, hold).flatMap(([term, text]) => [node("dt", {}, term), node("dd", {}, text)]));
}

function factsOf(history, hold) {
  const { columns } = history;
  const { place } = history.slots.get(history.process[hold]);
  const end = history.endOf(hold), lost = columns.lost[hold];
  const facts = [
    ["key", history.keyOf(hold)], ["kind", history.kindOf(hold)], ["token", columns.token[hold]],
    ["client", `${place + 1} (process ${history.process[hold]}, task ${history.task[hold]})`],
    ["from", moment(history.from[hold])], ["until", moment(history.until[hold])],
    ["held for", duration(history.until[hold] - history.from[hold])], ["end", ENDS[end] ?? end],
  ];
  if (columns.limit[hold] > 1) facts.splice(3, 0, ["units", `${number(columns.units[hold])} of ${number(columns.limit[hold])}`]);
  if (lost !== null) facts.push(["told of loss", moment(lost)]);
  const writes = history.writesOf.get(hold) ?? [];
  const refused = writes.filter((write) => !history.writes.accepted[write]).length;
  if (writes.length > 0) facts.push(["writes", `${number(writes.length)}, ${number(refused)} refused`]);
  return facts;
}

/** The lists of violations and faults, whose buttons move the chart. */
function listsOf(history, chart) {
  const buttons = new Map();
  const jump = (violation) => {
    for (const button of buttons.values()) button.removeAttribute("aria-current");
    const button = buttons.get(violation);
    button?.setAttribute("aria-current", "true");
    button?.scrollIntoView({ block: "nearest" });
    chart.show(violation);
  };
  const violationButton = (violation) => {
    const overlap = lengthOf(history, violation);
    const button = node("button", { type: "button", class: violation.excused ? "excused" : "broken", onclick: () => jump(violation) },
      node("b", {}, violation.rule), `${violation.key} at ${moment(violation.at_ms)}`,
      node("small", {}, overlap > 0 ? `${duration(overlap)} together. ${violation.text}` : violation.text),
      violation.excused ? node("small", {}, `Window: ${violation.excused}`) : null);
    buttons.set(violation, button);
    return button;
  };
  const faultButton = (fault) => node("button", { type: "button", class: "fault", onclick: () => chart.showFault(fault) },
    `${moment(fault.from_ms)} ${fault.kind}`, fault.target === "" ? null : node("small", {}, `${fault.target}, ${duration(fault.until_ms - fault.from_ms)}`));
  const section = (title, items, button, none) => [
    node("h3", {}, `${title} (${number(items.length)})`),
    items.length === 0 ? node("p", { class: "none" }, none) : node("ol", {}, ...items.slice(0, LISTED).map((item) => node("li", {}, button(item)))),
    items.length > LISTED ? node("p", { class: "none" }, `and ${number(items.length - LISTED)} more`) : null,
  ];
  const order = [...history.broken, ...history.excused];
  const next = (step) => {
    if (order.length === 0) return;
    const place = order.indexOf(chart.current);
    jump(order[(place < 0 ? (step > 0 ? 0 : -1) : place + step + order.length) % order.length] ?? order.at(-1));
  };
  const sections = [
    ...section("Violations", history.broken, violationButton, "None."),
    ...(history.excused.length > 0 ? section("Excused", history.excused, violationButton, "") : []),
    ...section("Faults", history.faults, faultButton, "None."),
  ].filter((part) => part !== null);
  return { sections, jump, next };
}

function keysHelp() {
  const keys = [["wheel, + −", "zoom"], ["drag, ← →", "move in time"], ["shift + wheel, ↑ ↓", "move over the lanes"], ["n p", "next, previous violation"],
    [", .", "previous, next hold of a lane"], ["0", "whole run"]];
  return node("div", { id: "keys" }, node("h3", {}, "Keys"),
    node("dl", {}, ...keys.flatMap(([key, effect]) => [node("dt", {}, node("kbd", {}, key)), node("dd", {}, effect)])));
}
