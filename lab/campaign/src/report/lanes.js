"use strict";

/**
 * Rows of holds of which no two overlap, so that a row can be searched by time.
 *
 * By client, a row is a task of a process; by key, the holds of a key share a row as long as they exclude each other. So a second row of
 * a mutex is two holders at once.
 */
function layLanes(history, grouping, key) {
  const groups = new Map();
  for (let hold = 0; hold < history.length; hold++) {
    if (key !== null && history.key[hold] !== key) continue;
    const [group, lane] = placeOf(history, hold, grouping);
    if (!groups.has(group)) groups.set(group, new Map());
    const lanes = groups.get(group);
    if (!lanes.has(lane)) lanes.set(lane, []);
    lanes.get(lane).push(hold);
  }
  const rows = [];
  const inOrder = (map) => [...map].sort(([a], [b]) => a - b);
  const byName = (map) => [...map].sort(([a], [b]) => compareNames(history.holds.keys[a], history.holds.keys[b]));
  (grouping === "key" ? byName(groups) : inOrder(groups)).forEach(([group, lanes], number) => {
    const first = rows.length;
    for (const [lane, holds] of inOrder(lanes)) {
      for (const [depth, packed] of pack(history, holds).entries()) {
        rows.push({ group, number, holds: packed, title: "", label: depth > 0 || grouping === "key" ? "" : `task ${lane}` });
      }
    }
    rows[first].title = grouping === "key" ? history.holds.keys[group] : `client ${group + 1}`;
  });
  return rows;
}

const compareNames = (a, b) => a.localeCompare(b, "en", { numeric: true });

function placeOf(history, hold, grouping) {
  return grouping === "key" ? [history.key[hold], 0] : [history.slots.get(history.process[hold]).place, history.task[hold]];
}

/** Puts each hold into the first row that is free when it begins. */
function pack(history, holds) {
  const { from, until } = history;
  const rows = [], ends = [];
  for (const hold of holds.sort((a, b) => from[a] - from[b])) {
    let row = ends.findIndex((end) => end <= from[hold]);
    if (row < 0) {
      row = rows.length;
      rows.push([]);
    }
    rows[row].push(hold);
    ends[row] = until[hold];
  }
  return rows.map((row) => Uint32Array.from(row));
}

/** The place in a row of its first hold that ends after a time. */
function firstAfter(history, holds, time) {
  let low = 0, high = holds.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (history.until[holds[middle]] <= time) low = middle + 1; else high = middle;
  }
  return low;
}

/** Puts labels of times into as few rows as keep `gap` between them, and says which row each has. */
function packLabels(spans, gap) {
  const ends = [];
  return spans.map(([from, until]) => {
    let row = ends.findIndex((end) => end + gap <= from);
    if (row < 0) row = ends.length;
    ends[row] = until;
    return row;
  });
}
