"use strict";
/* Everything that the trace viewer knows of a run: what the page holds, and, where the page is
   served from the run itself, what it fetched for the time in view. */
const TraceModel = (() => {
  const MOST_LANES = 256;
  const PAD = 0.5;  // of the view, fetched at both sides of it

  async function load(packed) {
    const base = await TraceData.decode(packed);
    const model = {packed, base, live: null, arrows: null, bandwidth: null};
    if (packed.arrows) model.arrows = rows(await TraceData.columns(packed.arrows));
    if (packed.bandwidth) {
      model.bandwidth = {...packed.bandwidth, ...await TraceData.columns(packed.bandwidth)};
    }
    model.hasLane = (rank, kind) => packed.lanes.some((l) => l.rank === rank && l.kind === kind);
    model.dataFor = (view, lane) => fetchedFor(model, view, lane) ? model.live : base;
    model.busyOf = busyOf;
    model.fetch = (view, width, lanes) => fetched(model, view, width, lanes);
    return model;
  }

  function rows(columns) {
    const found = Array.from(columns.lane, (lane, i) => ({
      lane, read: columns.read[i], to: columns.to[i], taken: columns.taken[i]}));
    return found.sort((a, b) => a.read - b.read);
  }

  /* Whether what was fetched is to be shown of a lane: it holds the view. */
  function fetchedFor(model, view, lane) {
    const {live, base} = model;
    return live !== null && live.lanes.has(lane) && live.low <= view.low && live.high >= view.high
      && !TraceData.holds(base, lane, view.low, view.high);
  }

  /* Lanes of which more can be fetched: neither page nor last answer holds them in full, or in
     bins that are hardly wider than a pixel. */
  function wanting(model, view, lanes) {
    const wide = (view.high - view.low) * (1 + 2 * PAD) * 1.5;
    return lanes.filter((lane) => {
      if (TraceData.holds(model.base, lane, view.low, view.high)) return false;
      if (!fetchedFor(model, view, lane)) return true;
      return !model.live.whole.has(lane) && model.live.high - model.live.low > wide;
    });
  }

  /* Busy nanoseconds of a track in a view, from its bins. */
  function busyOf(data, key, view) {
    let sum = 0;
    for (const {place, busy} of data.bins.series.get(key) || []) {
      for (let i = 0; i < place.length; i++) {
        const start = data.bins.low + place[i] * data.bins.width;
        const inside = Math.min(start + data.bins.width, view.high) - Math.max(start, view.low);
        if (inside > 0) sum += busy[i] * inside / data.bins.width;
      }
    }
    return sum;
  }

  /* Fetches slices around a view from the server of `vanidl view`; whether it did. */
  async function fetched(model, view, width, lanes) {
    if (!model.packed.server || !wanting(model, view, lanes).length) return false;
    const pad = PAD * (view.high - view.low);
    const low = Math.max(Math.floor(view.low - pad), model.base.low);
    const high = Math.min(Math.ceil(view.high + pad), model.base.high);
    const query = `t0=${low}&t1=${high}&width=${Math.ceil(width * (1 + 2 * PAD))}&lanes=${lanes.slice(0, MOST_LANES).join(".")}`;
    const packed = await asked(`slices?${query}`);
    const live = await TraceData.decode({...packed, low, high});
    live.lanes = new Set(lanes);
    Object.assign(model.packed.processes, packed.processes);
    model.live = live;
    return true;
  }

  async function asked(address) {
    const answer = await fetch(address, {cache: "no-store"});
    if (!answer.ok) throw new Error(`the server of vanidl view answered ${answer.status}`);
    return answer.json();
  }

  /* The first file that matches, in the whole run. */
  function find(words) { return asked(`find?words=${encodeURIComponent(words)}`); }

  return {load, find};
})();
