"use strict";

/** Addresses: `#` the overview, `#CLASS/SEED` a run, `#CLASS/SEED/N` its violation N. */
function start() {
  const histories = readHistories();
  const main = document.getElementById("main"), tabs = document.getElementById("tabs");
  const addressOf = (history) => `#${encodeURIComponent(history.class)}/${history.seed}`;
  let page = null;

  const route = () => {
    page?.end();
    page = null;
    document.getElementById("tip").hidden = true;
    const [name, seed, violation] = location.hash.slice(1).split("/").map(decodeURIComponent);
    const siblings = histories.filter((history) => history.class === name);
    const history = siblings.find((sibling) => sibling.seed === seed) ?? siblings[0];
    fillTabs(tabs, histories, history?.class ?? null, addressOf);
    if (!history) return showOverview(main, histories, addressOf);
    page = showClass(main, history, siblings, addressOf, history.violations[Number(violation) - 1] ?? null);
  };

  listenForThemes(() => page?.chart.readColours());
  window.addEventListener("hashchange", route);
  route();
}

function fillTabs(tabs, histories, current, addressOf) {
  const classes = new Map();
  for (const history of histories) classes.set(history.class, [...(classes.get(history.class) ?? []), history]);
  const tab = (href, text, isCurrent, broken) => node("a", { href, "aria-current": isCurrent ? "page" : null }, text,
    broken > 0 ? node("span", { class: "count", title: plural(broken, "violation") }, number(broken)) : null);
  tabs.replaceChildren(tab("#", "Overview", current === null, 0), ...[...classes].map(([name, runs]) =>
    tab(addressOf(runs[0]), runs[0].title, name === current, runs.reduce((all, run) => all + run.broken.length, 0))));
}

/** Follows the system's theme until the button chooses the other. */
function listenForThemes(onChange) {
  const button = document.getElementById("theme"), root = document.documentElement;
  const isDark = window.matchMedia("(prefers-color-scheme: dark)");
  const apply = (dark) => {
    root.classList.toggle("dark", dark);
    button.textContent = dark ? "light" : "dark";
    onChange();
  };
  isDark.addEventListener("change", () => apply(isDark.matches));
  button.addEventListener("click", () => apply(!root.classList.contains("dark")));
  apply(isDark.matches);
}

start();
