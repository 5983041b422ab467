"use strict";

/** The part of a hold in the verdict. */
const CALM = 0, EXCUSED = 1, BROKEN = 2;

/** The ends of beliefs, in the order of the legend, and their meaning. */
const ENDS = {
  released: "released by its holder",
  dropped: "guard dropped",
  lost: "the holder was told of the loss",
  deadline: "the deadline passed first",
  killed: "its process was killed",
};

/** Kinds of lock that several callers may hold at once: their bars are lower. */
const SHARED = new Set(["reader", "permit"]);

/** A run of one class of store, with the columns of its holds as arrays that can be searched fast. */
class History {
  constructor(run) {
    Object.assign(this, run);
    const { columns } = run.holds;
    for (const fault of this.faults) fault.process = processOf(fault.target);
    this.length = columns.from.length;
    this.from = Float64Array.from(columns.from);
    this.until = Float64Array.from(columns.until);
    this.process = Uint32Array.from(columns.process);
    this.task = Uint32Array.from(columns.task);
    this.key = Uint32Array.from(columns.key);
    this.kind = Uint8Array.from(columns.kind);
    this.end = Uint8Array.from(columns.end);
    this.columns = columns;
    this.span = this.spanOfAll();
    this.part = new Uint8Array(this.length);
    this.violations.forEach((violation) => this.mark(violation));
    this.broken = this.violations.filter((violation) => !violation.excused);
    this.excused = this.violations.filter((violation) => violation.excused);
    this.writesOf = this.groupWrites();
    this.slots = placeProcesses(this.clients, this.process);
  }

  keyOf(hold) { return this.holds.keys[this.key[hold]]; }
  kindOf(hold) { return this.holds.kinds[this.kind[hold]]; }
  endOf(hold) { return this.holds.ends[this.end[hold]]; }

  spanOfAll() {
    let last = this.seconds * 1000;
    for (const until of this.until) last = Math.max(last, until);
    for (const fault of this.faults) last = Math.max(last, fault.until_ms);
    return Math.max(last, 1);
  }

  mark(violation) {
    const part = violation.excused ? EXCUSED : BROKEN;
    for (const hold of violation.holds) this.part[hold] = Math.max(this.part[hold], part);
  }

  groupWrites() {
    const groups = new Map();
    this.writes.hold.forEach((hold, write) => {
      if (!groups.has(hold)) groups.set(hold, []);
      groups.get(hold).push(write);
    });
    return groups;
  }

  /** The time for which all holds of a violation were believed in, or the moment of the violation. */
  overlapOf({ holds, at_ms: at }) {
    if (holds.length < 2) return [at, at];
    const from = Math.max(...holds.map((hold) => this.from[hold]));
    const until = Math.min(...holds.map((hold) => this.until[hold]));
    return from < until ? [from, until] : [at, at];
  }

  countBy(column, names) {
    const counts = names.map(() => 0);
    for (const index of column) counts[index] += 1;
    return new Map(names.map((name, index) => [name, counts[index]]));
  }

  /** The number of holds that ended in a way. */
  ended(end) { return this.countBy(this.end, this.holds.ends).get(end) ?? 0; }

  violationsOf(rule) { return this.broken.filter((violation) => violation.rule === rule).length; }
}

/** The client process that a fault hits, or null if it hits others. */
function processOf(target) {
  const named = /^(?:client|process) (\d+)$/.exec(target);
  return named === null ? null : Number(named[1]);
}

/** Numbers places of processes: one that is started after another has ended takes its place. */
function placeProcesses(clients, processes) {
  const lives = new Map([...new Set(processes)].map((process) => [process, { process, started_ms: 0, ended_ms: null }]));
  for (const client of clients) lives.set(client.process, client);
  const places = [], slots = new Map();
  for (const life of [...lives.values()].sort((a, b) => a.started_ms - b.started_ms || a.process - b.process)) {
    let place = places.findIndex((ended) => ended <= life.started_ms);
    if (place < 0) place = places.length;
    places[place] = life.ended_ms ?? Infinity;
    slots.set(life.process, { place, life });
  }
  return slots;
}

function readHistories() {
  return JSON.parse(document.getElementById("data").textContent).runs.map((run) => new History(run));
}
