"use strict";

/** Moves a chart by wheel, pointer and keys. */
function listen(chart, lists) {
  const { lanes, map } = chart;
  lanes.addEventListener("wheel", (event) => {
    event.preventDefault();
    const delta = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 24 : 1);
    if (event.shiftKey) chart.scrollBy(event.deltaY || event.deltaX);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) chart.pan(event.deltaX / chart.width);
    else chart.zoom(1.0018 ** delta, chart.time(event.offsetX));
  }, { passive: false });
  drag(lanes, {
    move: (dx, dy) => {
      chart.pan(-dx / (chart.width - GUTTER));
      chart.scrollBy(-dy);
    },
    click: ({ offsetX, offsetY }) => {
      const fault = chart.faultAt(offsetX, offsetY);
      if (fault) chart.showFault(fault); else chart.select(chart.holdAt(offsetX, offsetY));
    },
  });
  const centre = (event) => {
    const time = ((event.offsetX - GUTTER) / (chart.width - GUTTER)) * chart.history.span;
    const half = (chart.until - chart.from) / 2;
    chart.setRange(time - half, time + half);
  };
  drag(map, { move: (dx, dy, event) => centre(event), click: centre });
  lanes.addEventListener("pointermove", (event) => hover(chart, event));
  lanes.addEventListener("pointerleave", () => { document.getElementById("tip").hidden = true; });
  lanes.addEventListener("keydown", (event) => {
    const act = actions(chart, lists)[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
}

function actions(chart, lists) {
  return {
    ArrowLeft: () => chart.pan(-0.2), ArrowRight: () => chart.pan(0.2), ArrowUp: () => chart.scrollBy(-40), ArrowDown: () => chart.scrollBy(40),
    "+": () => chart.zoom(0.6), "=": () => chart.zoom(0.6), "-": () => chart.zoom(1 / 0.6),
    0: () => chart.setRange(0, chart.history.span), Home: () => chart.setRange(0, chart.history.span),
    n: () => lists.next(1), p: () => lists.next(-1), ".": () => chart.selectNext(1), ",": () => chart.selectNext(-1),
    Escape: () => chart.select(null),
  };
}

/** Tells movements with a pressed pointer from clicks. */
function drag(element, { move, click }) {
  let last = null, moved = 0;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    [last, moved] = [event, 0];
  });
  element.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const [dx, dy] = [event.clientX - last.clientX, event.clientY - last.clientY];
    moved += Math.abs(dx) + Math.abs(dy);
    last = event;
    if (moved < 4) return;
    element.classList.add("moving");
    move(dx, dy, event);
  });
  element.addEventListener("pointerup", (event) => {
    if (last !== null && moved < 4) click(event);
    last = null;
    element.classList.remove("moving");
  });
  element.addEventListener("pointercancel", () => {
    last = null;
    element.classList.remove("moving");
  });
}

/** Shows the facts on the hold or the fault below the pointer. */
function hover(chart, event) {
  const tip = document.getElementById("tip");
  const { history } = chart;
  const hold = chart.holdAt(event.offsetX, event.offsetY), fault = chart.faultAt(event.offsetX, event.offsetY);
  tip.hidden = event.buttons !== 0 || (hold === null && fault === null);
  if (tip.hidden) return;
  tip.replaceChildren(...(fault ? tipOfFault(fault) : tipOfHold(history, hold)));
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 16 + width > window.innerWidth ? event.clientX - 16 - width : event.clientX + 16;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.max(Math.min(event.clientY + 16, window.innerHeight - height - 4), 4)}px`;
}

function tipOfHold(history, hold) {
  const violations = history.violations.filter(({ holds }) => holds.includes(hold)).slice(0, 3);
  return [
    node("h4", {}, `${history.kindOf(hold)} ${history.keyOf(hold)}`),
    node("dl", {}, ...factsOf(history, hold).slice(2).flatMap(([term, text]) => [node("dt", {}, term), node("dd", {}, text)])),
    ...violations.map(({ rule, text, excused }) => node("p", { class: excused ? "excused" : "" }, `${rule}: ${text}`)),
  ];
}

function tipOfFault(fault) {
  return [
    node("h4", {}, fault.kind), node("dl", {},
      node("dt", {}, "target"), node("dd", {}, fault.target || "–"), node("dt", {}, "from"), node("dd", {}, moment(fault.from_ms)),
      node("dt", {}, "for"), node("dd", {}, duration(fault.until_ms - fault.from_ms))),
  ];
}
