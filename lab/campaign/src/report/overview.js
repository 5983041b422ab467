"use strict";

const RULES = [
  ["exclusion", "The holders of a key used more permits than the key has"],
  ["fencing", "The resource accepted a write after a later holder had written"],
  ["honest-guard", "A guard reported held after it was lost"],
];

/** The page on all runs: verdict, a row per run, and the faults by kind. */
function showOverview(main, histories, addressOf) {
  const page = node("div", { class: "overview" }, verdictOn(histories));
  page.append(tableOfRuns(histories, addressOf), node("h3", {}, "Faults by kind"), tableOfFaults(histories), notes(histories));
  main.replaceChildren(page);
}

function verdictOn(histories) {
  const sum = (count) => histories.reduce((all, history) => all + count(history), 0);
  const broken = sum((history) => history.broken.length), excused = sum((history) => history.excused.length);
  const holds = sum((history) => history.length), faults = sum((history) => history.faults.length);
  const kinds = new Set(histories.flatMap((history) => history.faults.map((fault) => fault.kind))).size;
  const counted = `${plural(holds, "hold")}, ${plural(faults, "fault")} of ${plural(kinds, "kind")}, ${plural(histories.length, "run")}`;
  const window = excused > 0 ? `, ${number(excused)} inside a window that the promises state` : "";
  return node("p", { class: broken > 0 ? "verdict broken" : "verdict" },
    node("strong", {}, broken > 0 ? plural(broken, "violation") : "No violation of the promises"),
    node("span", {}, counted + window));
}

/** The columns of the table of runs: a head, its explanation, and the cell of a run. */
function columnsOf(histories) {
  const known = Object.fromEntries(RULES);
  const rules = [...new Set([...Object.keys(known), ...histories.flatMap((history) => history.violations.map(({ rule }) => rule))])];
  return [
    ["Seed", "It decides the faults and their times", (history) => [history.seed]],
    ["Time", "", ({ seconds }) => [duration(seconds * 1000)]],
    ["Clients", "Processes that were started", ({ clients }) => [number(clients.length)]],
    ["Calls", "Calls that asked for a lock", ({ figures }) => counted(figures.calls)],
    ["Holds", "Guards that callers received", ({ length }) => counted(length)],
    ["Lost", "Holds that ended by a loss", (history) => counted(history.ended("lost") + history.ended("deadline"))],
    ["Faults", "", ({ faults }) => counted(faults.length)],
    ["of kinds", "", ({ faults }) => counted(new Set(faults.map(({ kind }) => kind)).size)],
    ...rules.map((rule) => [rule, known[rule] ?? "", (history) => counted(history.violationsOf(rule), "broken")]),
    ["Excused", "Violations inside a window that the promises state", ({ excused }) => counted(excused.length, "excused")],
    ["Longest overlap", "Of beliefs that exclude each other", ({ figures }) => timed(figures.longest_overlap_ms)],
    ["Stale writes refused", "Writes that the fenced register refused", ({ figures }) => counted(figures.writes[1])],
    ["Lost updates, unfenced", "Writes to the unfenced register that undid another", ({ figures }) => counted(figures.lost_updates)],
    ["Loss told after, p50", "From the deadline to the signal of the loss, where the process ran", ({ figures }) => timed(figures.loss_latency_ms[0])],
    ["p99", "", ({ figures }) => timed(figures.loss_latency_ms[1])],
    ["max", "", ({ figures }) => timed(figures.loss_latency_ms[2])],
    ["Longest wait, free key", "The longest wait for a key without a holder, while no fault was in force", ({ figures }) => timed(figures.longest_unserved_ms)],
    ["All free after", "From the last client's end", ({ figures }) => timed(figures.until_free_ms)],
  ];
}

const counted = (value, className = "") => [number(value), value === 0 ? "zero" : className];
const timed = (ms) => (ms > 0 ? [duration(ms)] : ["–", "zero"]);
const listed = (versions) => Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", ");

function tableOfRuns(histories, addressOf) {
  const columns = columnsOf(histories);
  const rows = histories.map((history) => {
    const cells = columns.map(([, , cell]) => cell(history)).map(([text, className]) => node("td", { class: className || null }, text));
    return node("tr", {}, node("th", { scope: "row" }, node("a", { href: addressOf(history) }, history.title), node("small", {}, listed(history.versions))), ...cells);
  });
  const heads = [["Store", ""], ...columns].map(([text, title]) => node("th", { scope: "col", title: title || null }, text));
  return node("div", { class: "wide" }, node("table", {}, node("thead", {}, node("tr", {}, ...heads)), node("tbody", {}, ...rows)));
}

function lengthOf(history, violation) {
  const [from, until] = history.overlapOf(violation);
  return until - from;
}

function tableOfFaults(histories) {
  const classes = [...new Set(histories.map((history) => history.class))];
  const kinds = [...new Set(histories.flatMap((history) => history.faults.map((fault) => fault.kind)))].sort();
  if (kinds.length === 0) return node("p", {}, "None: the runs were calm.");
  const head = node("tr", {}, node("th", { scope: "col" }, "Kind"), ...classes.map((name) => node("th", { scope: "col" }, name)), node("th", { scope: "col" }, "All"));
  const rows = kinds.map((kind) => {
    const counts = classes.map((name) => countFaults(histories.filter((history) => history.class === name), kind));
    const cells = [...counts, counts.reduce((a, b) => a + b)].map((count) => node("td", { class: count === 0 ? "zero" : "" }, count === 0 ? "·" : number(count)));
    return node("tr", {}, node("th", { scope: "row" }, kind), ...cells);
  });
  return node("div", { class: "wide" }, node("table", {}, node("thead", {}, head), node("tbody", {}, ...rows)));
}

function countFaults(histories, kind) {
  return histories.reduce((all, { faults }) => all + faults.filter((fault) => fault.kind === kind).length, 0);
}

function notes(histories) {
  const terms = [
    ["Belief", "lasts from the moment a caller receives a guard until it releases the guard, is told of its loss, or the guard's deadline passes. A killed process believes in nothing."],
    ...RULES.map(([rule, meaning]) => [rule, `${meaning}.`]),
    ["Excused", "violations flaw inside a window that the promises state for that store, such as a failover. They are counted here, and their length is shown."],
    ["Seed", "decides the faults and their times. The interleaving of processes differs from run to run."],
  ];
  const machines = [...new Set(histories.map((history) => history.machine))].filter((machine) => machine !== "");
  if (machines.length > 0) terms.push(["Machine", `${machines.join("; ")}.`]);
  return node("div", {}, node("h3", {}, "How to read this"),
    node("div", { class: "notes" }, ...terms.map(([term, meaning]) => node("p", {}, node("b", {}, term), ` ${meaning}`))));
}
